// Searches the held text for the first of the marks that may occur in the current part, emits what stands before it,
// and changes the part. White space around marks is dropped, except within calls. If a family writes calls as bare
// JSON, an answer that begins with an object is held until its end, and only then is it decided whether it is a call.
#include "engine/chat/answer_calls.h"

#include <stdlib.h>

// ---- Buffers ----

static int append(char **data, size_t *n, size_t *cap, struct str s, struct error *err)
{
    if (s.len > *cap - *n) {
        size_t want = MAX(2 * *cap, *n + s.len + 64);
        char *more = realloc(*data, want);
        if (!more)
            return fail(err, E_MEMORY, "no memory for %zu bytes of an answer", want);
        *data = more;
        *cap = want;
    }
    if (s.len)
        memcpy(*data + *n, s.data, s.len);
    *n += s.len;
    return 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// ---- Marks ----

enum mark_kind { MARK_THINK_OPEN, MARK_THINK_CLOSE, MARK_CALL_OPEN, MARK_CALL_CLOSE, MARK_DROP, MARK_COUNT };

// Returns the text of a mark if it may occur in the current part, otherwise NULL. Dropped marks come last.
static const char *mark_text(const struct answer *a, int kind)
{
    const struct answer_style *s = &a->style;
    bool content = a->part == ANSWER_CONTENT;
    switch (kind) {
    case MARK_THINK_OPEN: // inside reasoning, a model may repeat what the prompt has opened
        return a->part == ANSWER_TOOL_CALLS ? NULL : s->think_open;
    case MARK_THINK_CLOSE:
        return a->part == ANSWER_REASONING ? s->think_close : NULL;
    case MARK_CALL_OPEN:
        return content && s->tools != TOOLS_NONE ? s->call_open : NULL;
    case MARK_CALL_CLOSE:
        return a->part == ANSWER_TOOL_CALLS ? s->call_close : NULL;
    default:
        return content && kind - MARK_DROP < ANSWER_DROPS ? s->drop[kind - MARK_DROP] : NULL;
    }
}

struct sighting {
    size_t at, len; // the first mark in the held text; at is n_held if there is none
    int kind;
    size_t partial; // start of a suffix that may become a mark; n_held if there is none
};

// The place of a mark in the held text; n_held if it is not there. What closes a call does so outside of strings.
static size_t find_mark(const struct answer *a, int kind, const char *mark)
{
    if (kind == MARK_CALL_CLOSE)
        return MIN(call_end(&a->style, a->quotes, (struct str){a->held, a->n_held}), a->n_held);
    const char *found = memmem(a->held, a->n_held, mark, strlen(mark));
    return found ? (size_t)(found - a->held) : a->n_held;
}

static struct sighting look(const struct answer *a)
{
    struct sighting seen = {.at = a->n_held, .partial = a->n_held};
    for (int kind = 0; kind < MARK_DROP + ANSWER_DROPS; kind++) {
        const char *mark = mark_text(a, kind);
        size_t n = mark ? strlen(mark) : 0;
        if (n == 0)
            continue;
        const size_t at = find_mark(a, kind, mark);
        if (at < a->n_held && (at < seen.at || (at == seen.at && n > seen.len)))
            seen = (struct sighting){at, n, kind, seen.partial};
        for (size_t tail = MIN(n - 1, a->n_held); tail > 0; tail--)
            if (!memcmp(a->held + a->n_held - tail, mark, tail)) {
                seen.partial = MIN(seen.partial, a->n_held - tail);
                break;
            }
    }
    return seen;
}

// ---- Output ----

static void emit(struct answer *a, enum answer_part part, struct str text)
{
    if (text.len > 0 && !a->refused)
        a->refused = a->emit(a->arg, part, text);
}

// Emits the first n bytes as the current part.
static int put(struct answer *a, size_t n, struct error *err)
{
    size_t from = 0;
    if (a->part == ANSWER_TOOL_CALLS) {
        quotes_pass(&a->style, &a->quotes, (struct str){a->held, n});
        return append(&a->call, &a->n_call, &a->call_cap, (struct str){a->held, n}, err);
    }
    while (a->trimming && from < n && is_space(a->held[from]))
        from++;
    a->trimming = a->trimming && from == n;
    emit(a, a->part, (struct str){a->held + from, n - from});
    return 0;
}

static void consume(struct answer *a, size_t n)
{
    a->n_held -= n;
    memmove(a->held, a->held + n, a->n_held);
}

static size_t without_spaces(const struct answer *a, size_t n)
{
    while (n > 0 && is_space(a->held[n - 1]))
        n--;
    return n;
}

// Begins a call with its mark. White space before it is content if the call cannot be read.
static int open_call(struct answer *a, const struct sighting *seen, struct error *err)
{
    const size_t text = without_spaces(a, seen->at);
    if (put(a, text, err))
        return -1;
    a->n_lead = a->trimming ? 0 : seen->at - text;
    a->n_call = 0;
    a->quotes = (struct quotes){0};
    a->part = ANSWER_TOOL_CALLS;
    struct str mark = {a->held + seen->at - a->n_lead, a->n_lead + seen->len};
    return append(&a->call, &a->n_call, &a->call_cap, mark, err);
}

// Ends a call: emits it as one if it can be read, else as content.
static int close_call(struct answer *a, struct error *err)
{
    struct arena arena = {0};
    struct value calls;
    size_t bad = 0;
    struct str text = {a->call + a->n_lead, a->n_call - a->n_lead};
    const struct answer one = {.style = a->style, .calls = a->call + a->n_lead, .n_calls = text.len};
    int status = answer_tool_calls(&one, &arena, &calls, &bad, err);
    const bool is_call = !status && bad == 0 && value_count(&calls) > 0;
    arena_free(&arena);
    if (status || (is_call && append(&a->calls, &a->n_calls, &a->calls_cap, text, err)))
        return -1;
    if (is_call)
        emit(a, ANSWER_TOOL_CALLS, text);
    else
        emit(a, ANSWER_CONTENT, (struct str){a->call, a->n_call});
    a->n_bad += is_call ? 0 : MAX(bad, 1u);
    a->n_call = 0;
    a->part = ANSWER_CONTENT;
    a->trimming = is_call;
    a->fresh = false;
    return 0;
}

static int pass_mark(struct answer *a, const struct sighting *seen, struct error *err)
{
    int status;
    if (seen->kind == MARK_CALL_OPEN) {
        status = open_call(a, seen, err);
    } else if (seen->kind == MARK_CALL_CLOSE) {
        status = put(a, seen->at + seen->len, err) || close_call(a, err);
    } else {
        status = put(a, without_spaces(a, seen->at), err); // white space before a mark belongs to the mark
        if (seen->kind == MARK_THINK_OPEN)
            a->part = ANSWER_REASONING;
        else if (seen->kind == MARK_THINK_CLOSE)
            a->part = ANSWER_CONTENT;
        a->trimming = true;
        a->fresh = seen->kind == MARK_THINK_CLOSE;
    }
    consume(a, seen->at + seen->len);
    return status ? -1 : 0;
}

// Whether the answer begins with an object, which may be a call without marks.
static bool begins_bare(const struct answer *a)
{
    size_t i = 0;
    while (i < a->n_held && is_space(a->held[i]))
        i++;
    return i < a->n_held && a->held[i] == '{';
}

static int process(struct answer *a, bool final, struct error *err)
{
    while (a->n_held > 0 && !a->bare) {
        if (a->style.tools == TOOLS_JSON_BARE && a->part == ANSWER_CONTENT && a->fresh && begins_bare(a)) {
            a->bare = true;
            return 0;
        }
        struct sighting seen = look(a);
        if (seen.at < a->n_held && (final || seen.partial > seen.at)) {
            if (pass_mark(a, &seen, err))
                return -1;
            continue;
        }
        size_t n = final ? a->n_held : MIN(seen.partial, seen.at);
        if (!final && a->part != ANSWER_TOOL_CALLS)
            n = without_spaces(a, n);
        if (final && a->part == ANSWER_REASONING)
            n = without_spaces(a, n);
        if (put(a, n, err))
            return -1;
        a->fresh = a->fresh && n == 0;
        consume(a, final ? a->n_held : n);
        return 0;
    }
    return 0;
}

// ---- Public functions ----

void answer_begin(struct answer *a, const struct answer_style *style, answer_emit_fn *emit_fn, void *arg)
{
    *a = (struct answer){.style = *style, .emit = emit_fn, .arg = arg, .fresh = true};
    a->part = style->in_reasoning ? ANSWER_REASONING : ANSWER_CONTENT;
    a->trimming = style->in_reasoning;
}

int answer_push(struct answer *a, struct str piece, struct error *err)
{
    if (append(&a->held, &a->n_held, &a->held_cap, piece, err))
        return -1;
    return process(a, false, err);
}

static bool within_a_mark(const struct answer_style *s, struct str text)
{
    const char *const marks[] = {s->think_open, s->think_close, s->call_open, s->call_close, s->name_open,
                                 s->name_close, s->key_open,    s->key_close, s->value_open, s->value_close,
                                 s->drop[0],    s->drop[1],     s->drop[2],   s->drop[3]};
    for (size_t i = 0; i < COUNT_OF(marks); i++)
        if (marks[i] && memmem(marks[i], strlen(marks[i]), text.data, text.len))
            return true;
    return false;
}

int answer_push_token(struct answer *a, struct detokenizer *d, int32_t id, struct error *err)
{
    enum token_attr attr = tokenizer_attr(d->t, id);
    struct str text = detokenizer_next(d, id);
    bool control = attr == TOKEN_CONTROL || attr == TOKEN_UNKNOWN;
    if (text.len == 0 || (control && !within_a_mark(&a->style, text)))
        return 0;
    return answer_push(a, text, err);
}

int answer_end(struct answer *a, struct error *err)
{
    if (!a->bare)
        return process(a, true, err) || (a->part == ANSWER_TOOL_CALLS && close_call(a, err)) ? -1 : 0;
    // a single object: a call if it can be read as one, otherwise content
    struct arena arena = {0};
    struct value calls;
    size_t bad = 0;
    struct answer_style style = a->style;
    const struct answer whole = {.style = style, .calls = a->held, .n_calls = a->n_held};
    int status = answer_tool_calls(&whole, &arena, &calls, &bad, err);
    bool is_call = !status && bad == 0 && value_count(&calls) > 0;
    arena_free(&arena);
    if (status || (is_call && append(&a->calls, &a->n_calls, &a->calls_cap, (struct str){a->held, a->n_held}, err)))
        return -1;
    emit(a, is_call ? ANSWER_TOOL_CALLS : ANSWER_CONTENT, (struct str){a->held, a->n_held});
    consume(a, a->n_held);
    return 0;
}

void answer_free(struct answer *a)
{
    free(a->held);
    free(a->call);
    free(a->calls);
    a->held = a->call = a->calls = NULL;
    a->n_held = a->held_cap = a->n_call = a->call_cap = a->n_calls = a->calls_cap = 0;
}
