// Drafts come from a lookup first and from the draft model only if the lookup gives nothing that pays. The lookup
// follows chains of earlier occurrences of the last two tokens, at most 48 per draft. The length of a draft is the
// one with the most expected tokens per millisecond, from the measured times of steps and an acceptance rate for each
// kind of draft. After 64 unused drafts a short one is tried again.
#include "engine/speculate.h"
#include "engine/clock.h"
#include "engine/sample/logprobs.h"

#include <math.h>
#include <stdlib.h>

enum {
    MATCH_MIN = 2,  // least length of a match
    MATCH_MAX = 16, // longer matches count as equal
    CHAIN_MAX = 48, // most earlier occurrences that are compared
    N_KINDS = 6,    // of drafts: by the length of the match, and those of the draft model
    KIND_DRAFT = N_KINDS - 1,
    PROBE_AFTER = 64, // unused drafts in a row before one is tried again
    VOCAB_SLACK = 128,
};

// How often drafted tokens of one kind were accepted; recent ones count most.
struct record {
    double right, all;
};

struct speculator {
    struct speculate_options o;
    int n_ctx;
    bool stopped;
    // the text, and the earlier occurrences of each pair of tokens
    int32_t *tokens; // [n_ctx + 1]
    int n;
    int32_t *last; // [n_slots] the position after the latest pair with that hash; 0: none
    int32_t *prev; // [n_ctx + 1] the occurrence before it
    uint32_t n_slots;
    // the last draft, used or not, and how many of its tokens have been compared with the text
    int32_t drafted[DRAFT_MAX];
    int n_drafted, at, kind;
    int n_unused;
    struct record records[N_KINDS];
    double step_ms[DRAFT_MAX + 2]; // milliseconds of a step by its number of rows; 0: not known
    double draft_ms;               // milliseconds of the draft model per token
    struct sampler *sampler;       // for the draft model
    int n_vocab;                   // number of logits of the model
};

// --- making ---

int speculator_new(struct speculator **out, const struct speculate_options *o, int n_ctx, struct error *err)
{
    struct speculator *s = calloc(1, sizeof *s);
    if (!s)
        return fail(err, E_MEMORY, "no memory for drafts");
    s->o = *o;
    s->o.most = MAX(0, MIN(o->most, DRAFT_MAX));
    s->n_ctx = n_ctx;
    s->n_slots = 1024;
    while (s->n_slots < (uint32_t)n_ctx && s->n_slots < 1u << 22)
        s->n_slots *= 2;
    s->tokens = malloc(((size_t)n_ctx + 1) * sizeof *s->tokens);
    s->prev = malloc(((size_t)n_ctx + 1) * sizeof *s->prev);
    s->last = calloc(s->n_slots, sizeof *s->last);
    if (!s->tokens || !s->prev || !s->last) {
        speculator_free(s);
        return fail(err, E_MEMORY, "no memory for drafts in a text of %d tokens", n_ctx);
    }
    *out = s;
    return 0;
}

void speculator_free(struct speculator *s)
{
    if (!s)
        return;
    sampler_free(s->sampler);
    free(s->tokens);
    free(s->prev);
    free(s->last);
    free(s);
}

int speculate_check_vocab(const struct tokenizer *t, const struct tokenizer *draft, struct error *err)
{
    int32_t n = tokenizer_n_vocab(t), m = tokenizer_n_vocab(draft);
    if (tokenizer_kind(t) != tokenizer_kind(draft) || abs(n - m) > VOCAB_SLACK)
        return fail(err, E_USAGE, "the draft model has another vocabulary: %d tokens, the model has %d", m, n);
    for (int32_t id = 0; id < MIN(n, m); id++) {
        struct str a = tokenizer_text(t, id), b = tokenizer_text(draft, id);
        if (!str_equal(a, b))
            return fail(err, E_USAGE,
                        "the draft model has another vocabulary: token %d is \"%.*s\", the model's is \"%.*s\"", id,
                        STR_ARG(b), STR_ARG(a));
    }
    return 0;
}

// --- the text ---

static uint32_t slot_of(const struct speculator *s, int end)
{
    uint64_t pair = (uint64_t)(uint32_t)s->tokens[end - 2] << 32 | (uint32_t)s->tokens[end - 1];
    return (uint32_t)(pair * 0x9e3779b97f4a7c15u >> 32) & (s->n_slots - 1);
}

static void append(struct speculator *s, int32_t token)
{
    if (s->n > s->n_ctx)
        return;
    s->tokens[s->n++] = token;
    if (s->n < MATCH_MIN)
        return;
    uint32_t slot = slot_of(s, s->n);
    s->prev[s->n - 1] = s->last[slot];
    s->last[slot] = s->n;
}

int speculator_begin(struct speculator *s, const int32_t *tokens, int n, const struct sampler_params *p, int n_vocab,
                     struct error *err)
{
    s->n = s->n_drafted = s->n_unused = 0;
    s->stopped = false;
    memset(s->last, 0, s->n_slots * sizeof *s->last);
    for (int i = 0; i < n; i++)
        append(s, tokens[i]);
    s->n_vocab = n_vocab;
    sampler_free(s->sampler);
    s->sampler = NULL;
    if (!s->o.draft)
        return 0;
    struct sampler_params draft = *p;
    int n_draft = s->o.draft_model->info.n_vocab;
    for (int i = 0; i < p->n_biases; i++)
        if (p->biases[i].token >= n_draft)
            draft.n_biases = 0; // the draft model samples without biases
    return sampler_new(&s->sampler, &draft, n_draft, NULL, err);
}

void speculator_push(struct speculator *s, int32_t token)
{
    if (s->at < s->n_drafted) {
        struct record *r = &s->records[s->kind];
        bool right = s->drafted[s->at++] == token;
        r->right = 0.97 * r->right + right;
        r->all = 0.97 * r->all + 1;
        if (!right)
            s->n_drafted = 0;
    }
    append(s, token);
}

void speculator_stop(struct speculator *s)
{
    s->stopped = true;
}

const int32_t *speculator_tokens(const struct speculator *s, int *n)
{
    *n = s->n;
    return s->tokens;
}

// --- what may follow ---

// How many tokens before `end` equal those at the end of the text.
static int match_length(const struct speculator *s, int end)
{
    int n = 0;
    while (n < MATCH_MAX && n < end && s->tokens[end - 1 - n] == s->tokens[s->n - 1 - n])
        n++;
    return n;
}

// The position after the longest earlier match with the end of the text, the latest of equal ones; 0 when there is
// none.
static int find_match(const struct speculator *s, int *length)
{
    int best = 0;
    *length = MATCH_MIN - 1;
    if (s->n < MATCH_MIN + 1)
        return 0;
    int end = s->prev[s->n - 1];
    for (int i = 0; end && i < CHAIN_MAX && *length < MATCH_MAX; i++, end = s->prev[end - 1]) {
        int n = match_length(s, end);
        if (n > *length) {
            *length = n;
            best = end;
        }
    }
    return best;
}

static int kind_of(int length)
{
    return length >= 12 ? 4 : length >= 7 ? 3 : length >= 4 ? 2 : length >= 3 ? 1 : 0;
}

// Drafts the tokens that followed the match. Where they reach the end of the text, the draft continues with its own
// beginning.
static int look_up(struct speculator *s, int room, int32_t *out, int *kind)
{
    int length, from = find_match(s, &length);
    if (!from)
        return 0;
    for (int i = 0; i < room; i++)
        out[i] = from + i < s->n ? s->tokens[from + i] : out[from + i - s->n];
    *kind = kind_of(length);
    return room;
}

// Brings the session of the draft model up to the text. The last token is always computed, with its logits.
static int draft_catch_up(struct speculator *s, struct error *err)
{
    struct session *d = s->o.draft;
    const int32_t *have = session_tokens(d, 0);
    int n = 0, most = MIN(session_length(d, 0), s->n - 1);
    while (n < most && have[n] == s->tokens[n])
        n++;
    session_truncate(d, 0, n);
    for (n = session_length(d, 0); n < s->n;) {
        struct session_row rows[DRAFT_MAX];
        int n_rows = MIN(MIN(s->n - n, DRAFT_MAX), session_n_batch(d));
        for (int i = 0; i < n_rows; i++, n++)
            rows[i] = (struct session_row){s->tokens[n], 0, n == s->n - 1};
        if (session_step(d, rows, n_rows, err))
            return -1;
    }
    return 0;
}

// Drafts with the draft model, using the random numbers of the true text. Errors are ignored and only end the draft,
// because the text does not depend on it.
static int ask_draft(struct speculator *s, int room, int32_t *out)
{
    struct session *d = s->o.draft;
    struct error ignored;
    int n_vocab = s->o.draft_model->info.n_vocab, n = 0;
    double begin = clock_ms();
    room = MIN(room, session_n_ctx(d) - s->n);
    if (room <= 0 || draft_catch_up(s, &ignored)) {
        s->stopped |= room > 0;
        return 0;
    }
    while (n < room) {
        const float *logits = session_logits(d, 0);
        int length = session_length(d, 0);
        int32_t token = sampler_next(s->sampler, logits, NULL, session_tokens(d, 0), length, length);
        if (token < 0 || token >= s->n_vocab ||
            (s->o.p_min > 0 && expf(logprobs_of(logits, n_vocab, token, NULL, 0)) < s->o.p_min))
            break;
        out[n++] = token;
        if (n < room && session_step(d, &(struct session_row){token, 0, true}, 1, &ignored))
            break;
    }
    double ms = (clock_ms() - begin) / MAX(n, 1);
    s->draft_ms = s->draft_ms > 0 ? 0.8 * s->draft_ms + 0.2 * ms : ms;
    return n;
}

// --- whether it pays ---

// The cost of a step of so many rows in milliseconds: as measured, or by linear interpolation between the nearest
// measured numbers of rows. Without a second measurement, each further row is taken to cost a quarter of the first.
static double step_cost(const struct speculator *s, int rows)
{
    double one = s->step_ms[1] > 0 ? s->step_ms[1] : 1;
    int below = 1, above = 0;
    if (s->step_ms[rows] > 0)
        return s->step_ms[rows];
    for (int r = 2; r <= DRAFT_MAX + 1; r++) {
        if (s->step_ms[r] <= 0)
            continue;
        if (r < rows)
            below = r;
        else if (!above)
            above = r;
    }
    double low = below == 1 ? one : s->step_ms[below];
    double slope = above       ? (s->step_ms[above] - low) / (above - below)
                   : below > 1 ? (low - one) / (below - 1)
                               : one / 4;
    return low + MAX(slope, 0) * (rows - below);
}

static double chance(const struct speculator *s, int kind)
{
    const struct record *r = &s->records[kind];
    return (r->right + 1) / (r->all + 2);
}

// The length of a draft, up to `most`, that gives the most tokens per millisecond; *rate is that number. Each drafted
// token is accepted with probability p if those before it were, and costs token_ms to draft.
static int best_length(const struct speculator *s, int most, double p, double token_ms, double *rate)
{
    double tokens = 1, all_right = 1;
    int best = 0;
    *rate = 1 / step_cost(s, 1);
    for (int k = 1; k <= most; k++) {
        all_right *= p;
        tokens += all_right;
        double r = tokens / (step_cost(s, k + 1) + k * token_ms);
        if (r > *rate) {
            *rate = r;
            best = k;
        }
    }
    return best;
}

void speculator_note_step(struct speculator *s, int n_rows, double ms)
{
    if (n_rows < 1 || n_rows > DRAFT_MAX + 1)
        return;
    double *known = &s->step_ms[n_rows];
    *known = *known > 0 ? 0.8 * *known + 0.2 * ms : ms;
}

// How many tokens of a draft of n to use.
static int weigh(struct speculator *s, int n, int kind, double token_ms)
{
    double rate;
    int best = s->o.always ? n : best_length(s, n, chance(s, kind), token_ms, &rate);
    if (!best && ++s->n_unused >= PROBE_AFTER)
        best = MIN(n, 3);
    if (best < s->o.least)
        best = 0;
    if (best)
        s->n_unused = 0;
    return best;
}

int speculator_draft(struct speculator *s, int room, int32_t *out)
{
    room = MIN(room, s->o.most);
    s->n_drafted = 0;
    // the cost of a step of one row must be known before the first draft
    if (s->stopped || room <= 0 || (s->step_ms[1] <= 0 && !s->o.always))
        return 0;
    int n = s->o.lookup ? look_up(s, room, s->drafted, &s->kind) : 0;
    int use = n ? weigh(s, n, s->kind, 0) : 0;
    if (!use && s->o.draft) {
        // the draft model computes only as many tokens as will be used
        int want = weigh(s, room, KIND_DRAFT, s->draft_ms);
        if (want) {
            use = n = ask_draft(s, want, s->drafted);
            s->kind = KIND_DRAFT;
        }
    }
    if (use < s->o.least)
        use = 0;
    memcpy(out, s->drafted, (size_t)use * sizeof *out);
    s->n_drafted = n;
    s->at = 0;
    return use;
}
