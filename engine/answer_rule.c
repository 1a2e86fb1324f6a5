// Follows the answer through the phases of `enum phase`. Marks are searched in the last TAIL bytes of the text,
// because a model may write a mark in several tokens. Two constraints of the same grammar are kept, one that applies
// from the first token on and one that waits for the closing mark; which one counts depends on whether the answer has
// reasoning.
#include "engine/answer_rule.h"

#include <stdlib.h>

// PHASE_START: the answer has not shown yet whether it begins with reasoning. PHASE_OPENING: the first token of the
// opening mark has come, and the others are being forced. PHASE_CLOSING: the budget is used up, and the closing mark is
// being forced token by token.
enum phase { PHASE_START, PHASE_OPENING, PHASE_REASONING, PHASE_CLOSING, PHASE_ANSWER };
enum { TAIL = 256 }; // last bytes of the text, in which the marks are searched

struct answer_rule {
    struct answer_rule_options o;
    const struct tokenizer *t;
    enum phase phase;
    struct constraint *at_once; // the grammar, applied from the first token on
    struct constraint *behind;  // the grammar, applied after the closing mark
    int32_t opens;              // the token that is the opening mark, or a special token that begins it; -1: none
    struct token_list open;     // the tokens of a mark of several
    size_t n_opened;            // how many of them have been generated in PHASE_OPENING
    struct token_list close;    // the tokens of the closing mark
    size_t n_closed;            // how many of them have been generated in PHASE_CLOSING
    int64_t n_reasoned;         // tokens of reasoning so far
    char tail[TAIL];
    size_t n_tail;
    uint32_t *mask; // [n_words]
    size_t n_words;
};

// --- making ---

static int make_constraints(struct answer_rule *r, struct error *err)
{
    struct constraint_options behind = {r->o.think_close ? str_from(r->o.think_close) : (struct str){0}};
    if (!r->o.grammar)
        return 0;
    if (constraint_new(&r->at_once, r->o.grammar, NULL, err))
        return -1;
    return r->o.think_close ? constraint_new(&r->behind, r->o.grammar, &behind, err) : 0;
}

// Finds the token that opens the reasoning. A mark of several tokens must begin with a special one, because others may
// begin an answer, too.
static int find_opening(struct answer_rule *r, struct error *err)
{
    r->opens = r->o.think_open ? tokenizer_find(r->t, str_from(r->o.think_open)) : -1;
    if (!r->o.think_open || r->opens >= 0 || !r->o.grammar)
        return 0;
    if (tokenizer_encode(r->t, str_from(r->o.think_open), TOKENIZE_SPECIAL, &r->open, err))
        return -1;
    enum token_attr attr = r->open.n ? tokenizer_attr(r->t, r->open.ids[0]) : TOKEN_NORMAL;
    if (attr == TOKEN_CONTROL || attr == TOKEN_USER_DEFINED)
        r->opens = r->open.ids[0];
    return 0;
}

int answer_rule_new(struct answer_rule **out, const struct tokenizer *t, int n_vocab,
                    const struct answer_rule_options *o, struct error *err)
{
    struct answer_rule *r = calloc(1, sizeof *r);
    if (!r)
        return fail(err, E_MEMORY, "no memory for the rule of an answer");
    r->o = *o;
    r->t = t;
    r->n_words = ((size_t)n_vocab + 31) / 32;
    r->mask = calloc(r->n_words, sizeof *r->mask);
    if (!r->mask) {
        answer_rule_free(r);
        return fail(err, E_MEMORY, "no memory for the rule of an answer");
    }
    if (find_opening(r, err) ||
        (o->think_close && tokenizer_encode(t, str_from(o->think_close), TOKENIZE_SPECIAL, &r->close, err)) ||
        make_constraints(r, err)) {
        answer_rule_free(r);
        return -1;
    }
    *out = r;
    return 0;
}

void answer_rule_free(struct answer_rule *r)
{
    if (!r)
        return;
    constraint_free(r->at_once);
    constraint_free(r->behind);
    token_list_free(&r->open);
    token_list_free(&r->close);
    free(r->mask);
    free(r);
}

// --- following an answer ---

static bool ends_with(const struct answer_rule *r, const char *mark)
{
    size_t n = mark ? strlen(mark) : 0;
    return n && n <= r->n_tail && !memcmp(r->tail + r->n_tail - n, mark, n);
}

// Appends a piece to the last bytes of the text. Of a piece longer than TAIL / 2 only the end is kept, because marks
// are shorter than that.
static void append(struct answer_rule *r, struct str piece)
{
    if (piece.len > TAIL / 2)
        piece = (struct str){piece.data + piece.len - TAIL / 2, TAIL / 2};
    if (r->n_tail + piece.len > TAIL) {
        size_t drop = r->n_tail + piece.len - TAIL;
        memmove(r->tail, r->tail + drop, r->n_tail -= drop);
    }
    memcpy(r->tail + r->n_tail, piece.data, piece.len);
    r->n_tail += piece.len;
}

// Whether the text so far, without the white space at its beginning, is a prefix of the opening mark.
static bool may_open(const struct answer_rule *r)
{
    size_t skip = 0, n = strlen(r->o.think_open);
    while (skip < r->n_tail && (r->tail[skip] == ' ' || r->tail[skip] == '\n'))
        skip++;
    return r->n_tail - skip <= n && !memcmp(r->tail + skip, r->o.think_open, r->n_tail - skip);
}

static void leave_start(struct answer_rule *r, int32_t token)
{
    if (token == r->opens && r->open.n > 1) {
        r->phase = PHASE_OPENING;
        r->n_opened = 1;
    } else if (token == r->opens || ends_with(r, r->o.think_open)) {
        r->phase = PHASE_REASONING;
    } else if (r->o.grammar || !r->o.think_open || !may_open(r)) {
        // with a grammar, only the token that begins the opening mark can open the reasoning
        r->phase = PHASE_ANSWER;
    }
}

// The constraint of this answer: `behind` when it has reasoning, else `at_once`.
static struct constraint *constraint_of(const struct answer_rule *r)
{
    bool inside = r->phase == PHASE_OPENING || r->phase == PHASE_REASONING || r->phase == PHASE_CLOSING;
    bool reasons = r->o.in_reasoning || inside || r->n_reasoned;
    return reasons ? r->behind : r->at_once;
}

static int accept(void *state, int32_t token, struct error *err)
{
    struct answer_rule *r = state;
    append(r, tokenizer_piece(r->t, token, true));
    if (r->phase == PHASE_START) {
        leave_start(r, token);
    } else if (r->phase == PHASE_OPENING) {
        r->phase = ++r->n_opened < r->open.n ? PHASE_OPENING : PHASE_REASONING;
    } else if (r->phase == PHASE_CLOSING) {
        r->phase = ++r->n_closed < r->close.n ? PHASE_CLOSING : PHASE_ANSWER;
        r->n_reasoned++;
    } else if (r->phase == PHASE_REASONING) {
        r->n_reasoned++;
        if (ends_with(r, r->o.think_close))
            r->phase = PHASE_ANSWER;
    }
    struct constraint *c = constraint_of(r);
    return c ? constraint_accept(c, token, err) : 0;
}

static void allow(struct answer_rule *r, int32_t token)
{
    r->mask[token / 32] |= 1u << (token % 32);
}

// Makes this token the only one that may come next.
static void force(struct answer_rule *r, int32_t token, const uint32_t **allowed)
{
    memset(r->mask, 0, r->n_words * sizeof *r->mask);
    allow(r, token);
    *allowed = r->mask;
}

static int mask(void *state, const uint32_t **allowed, struct error *err)
{
    struct answer_rule *r = state;
    if (r->phase == PHASE_REASONING && r->o.budget >= 0 && r->n_reasoned >= r->o.budget)
        r->phase = PHASE_CLOSING;
    if (r->phase == PHASE_OPENING || (r->phase == PHASE_CLOSING && r->close.n)) {
        force(r, r->phase == PHASE_OPENING ? r->open.ids[r->n_opened] : r->close.ids[r->n_closed], allowed);
        return 0;
    }
    struct constraint *c = constraint_of(r);
    *allowed = c ? constraint_mask(c, err) : NULL;
    if (c && !*allowed)
        return -1;
    if (c && r->phase == PHASE_START && r->opens >= 0) {
        memcpy(r->mask, *allowed, r->n_words * sizeof *r->mask);
        allow(r, r->opens);
        *allowed = r->mask;
    }
    return 0;
}

struct token_rule answer_rule_begin(struct answer_rule *r)
{
    r->phase = !r->o.think_close ? PHASE_ANSWER : r->o.in_reasoning ? PHASE_REASONING : PHASE_START;
    r->n_opened = r->n_closed = r->n_tail = 0;
    r->n_reasoned = 0;
    if (r->at_once)
        constraint_reset(r->at_once);
    if (r->behind)
        constraint_reset(r->behind);
    return (struct token_rule){r, mask, accept};
}

bool answer_rule_can_end(const struct answer_rule *r)
{
    const struct constraint *c = constraint_of(r);
    return !c || constraint_can_end(c);
}
