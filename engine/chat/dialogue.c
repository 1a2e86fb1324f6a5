// Renders all messages anew for each answer. If the prompt and the answer so far fill the context and `shift` is set,
// the oldest turns are dropped until a quarter of the context is free, and the answer continues behind the new
// prompt; so one answer may take several runs of generation.
#include "engine/chat/dialogue.h"

#include <stdlib.h>

const char *const dialogue_role_name[] = {"user", "assistant"};

// --- messages ---

static int copy(struct str text, struct str *out, struct error *err)
{
    char *p = malloc(text.len + 1);
    if (!p)
        return fail(err, E_MEMORY, "no memory for a message of %zu bytes", text.len);
    if (text.len)
        memcpy(p, text.data, text.len);
    p[text.len] = '\0';
    *out = (struct str){p, text.len};
    return 0;
}

static void drop(struct str *text)
{
    free((char *)(uintptr_t)text->data);
    *text = (struct str){0};
}

void dialogue_open(struct dialogue *d, const struct model *m, struct session *s, const struct chat_template *t)
{
    *d = (struct dialogue){.model = m, .session = s, .chat = t};
}

void dialogue_close(struct dialogue *d)
{
    dialogue_cut(d, 0);
    drop(&d->system);
    free(d->messages);
    *d = (struct dialogue){0};
}

int dialogue_set_system(struct dialogue *d, struct str text, struct error *err)
{
    struct str system = {0};
    if (text.len && copy(text, &system, err))
        return -1;
    drop(&d->system);
    d->system = system;
    return 0;
}

int dialogue_add(struct dialogue *d, enum dialogue_role role, struct str content, struct str reasoning,
                 struct error *err)
{
    if (d->n == d->cap) {
        size_t cap = 2 * d->cap + 16;
        struct dialogue_message *more = realloc(d->messages, cap * sizeof *more);
        if (!more)
            return fail(err, E_MEMORY, "no memory for %zu messages", cap);
        d->messages = more;
        d->cap = cap;
    }
    struct dialogue_message m = {.role = role};
    if (copy(content, &m.content, err))
        return -1;
    if (reasoning.len && copy(reasoning, &m.reasoning, err)) {
        drop(&m.content);
        return -1;
    }
    d->messages[d->n++] = m;
    return 0;
}

void dialogue_cut(struct dialogue *d, size_t n)
{
    while (d->n > n) {
        drop(&d->messages[d->n - 1].content);
        drop(&d->messages[--d->n].reasoning);
    }
}

size_t dialogue_last_question(const struct dialogue *d)
{
    for (size_t i = d->n; i-- > 0;)
        if (d->messages[i].role == ROLE_USER)
            return i;
    return d->n;
}

// --- turns: a question and everything up to the next one; what stands before the first question belongs to its turn ---

static size_t count_turns(const struct dialogue *d)
{
    size_t n = d->n > 0;
    for (size_t i = 1; i < d->n; i++)
        n += d->messages[i].role == ROLE_USER;
    return n;
}

// The index of the message with which the last `kept` turns begin.
static size_t turns_begin(const struct dialogue *d, size_t kept)
{
    size_t i = d->n;
    while (kept && i)
        kept -= d->messages[--i].role == ROLE_USER;
    return i;
}

static void drop_oldest(struct dialogue *d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        drop(&d->messages[i].content);
        drop(&d->messages[i].reasoning);
    }
    memmove(d->messages, d->messages + n, (d->n - n) * sizeof *d->messages);
    d->n -= n;
}

// --- the prompt ---

static int push_message(struct arena *arena, struct value *list, const char *role, struct str content,
                        struct str reasoning, struct error *err)
{
    struct value m;
    if (value_dict_new(&m, arena, err) || value_dict_set(arena, &m, "role", value_string(str_from(role)), err) ||
        value_dict_set(arena, &m, "content", value_string(content), err))
        return -1;
    if (reasoning.len && value_dict_set(arena, &m, "reasoning_content", value_string(reasoning), err))
        return -1;
    return value_list_push(arena, list, m, err);
}

static int list_messages(const struct dialogue *d, struct arena *arena, struct value *list, struct error *err)
{
    int status = value_list_new(list, arena, err);
    if (!status && d->system.len)
        status = push_message(arena, list, "system", d->system, (struct str){0}, err);
    for (size_t i = 0; !status && i < d->n; i++) {
        const struct dialogue_message *m = &d->messages[i];
        status = push_message(arena, list, dialogue_role_name[m->role], m->content, m->reasoning, err);
    }
    return status;
}

static int render(const struct dialogue *d, int thinking, struct token_list *tokens, struct text *plain,
                  struct error *err)
{
    struct arena arena = {0};
    struct value messages;
    int status = list_messages(d, &arena, &messages, err);
    struct chat_request request = {.messages = &messages, .add_generation_prompt = true, .thinking = thinking};
    if (!status)
        status = chat_render(d->chat, &request, tokens, plain, err);
    arena_free(&arena);
    return status;
}

int dialogue_prompt(const struct dialogue *d, int thinking, struct text *plain, struct error *err)
{
    struct token_list tokens = {0};
    int status = render(d, thinking, &tokens, plain, err);
    token_list_free(&tokens);
    return status;
}

// --- other tokens for the same text ---

// Whether a token may be exchanged for other tokens with the same bytes.
static bool is_plain(const struct tokenizer *t, int32_t id)
{
    enum token_attr attr = tokenizer_attr(t, id);
    return (attr == TOKEN_NORMAL || attr == TOKEN_BYTE) && tokenizer_piece(t, id, false).len > 0;
}

// Advances *i and *j past tokens with the same bytes, to the next place where tokens of both lists end. False if the
// bytes differ.
static bool find_same(const struct tokenizer *t, const int32_t *from, size_t n_from, size_t *i, const int32_t *to,
                      size_t n_to, size_t *j)
{
    struct str a = {0}, b = {0};
    size_t x = *i, y = *j;
    do {
        struct str *empty = a.len ? &b : &a;
        if (!a.len && (x == n_from || !is_plain(t, from[x])))
            return false;
        if (!b.len && a.len && (y == n_to || !is_plain(t, to[y])))
            return false;
        *empty = a.len ? tokenizer_piece(t, to[y++], false) : tokenizer_piece(t, from[x++], false);
        size_t n = MIN(a.len, b.len);
        if (!n) // one of them may be NULL
            continue;
        if (memcmp(a.data, b.data, n))
            return false;
        a = (struct str){a.data + n, a.len - n};
        b = (struct str){b.data + n, b.len - n};
    } while (a.len || b.len);
    *i = x;
    *j = y;
    return true;
}

int dialogue_align(const struct tokenizer *t, const int32_t *from, size_t n_from, const int32_t *to, size_t n_to,
                   struct token_list *out, struct error *err)
{
    size_t i = 0, j = 0;
    while (i < n_from && j < n_to && (from[i] == to[j] || find_same(t, from, n_from, &i, to, n_to, &j)))
        if (i < n_from && j < n_to && from[i] == to[j]) {
            i++;
            j++;
        }
    for (size_t k = 0; k < i; k++)
        if (token_list_push(out, from[k], err))
            return -1;
    for (; j < n_to; j++)
        if (token_list_push(out, to[j], err))
            return -1;
    return 0;
}

// --- generating the answer ---

// The state of one answer. It may take several runs of generation if the context is shifted.
struct reply {
    struct dialogue *d;
    const struct dialogue_settings *o;
    struct answer parts;
    struct detokenizer marks; // decodes control tokens
    struct text content, reasoning;
    struct token_list tokens; // tokens of the answer
    struct error error;
};

static int take_part(void *arg, enum answer_part part, struct str text)
{
    struct reply *reply = arg;
    text_append(part == ANSWER_REASONING ? &reply->reasoning : &reply->content, text);
    if (reply->content.failed || reply->reasoning.failed)
        return fail(&reply->error, E_MEMORY, "no memory for the answer");
    return reply->o->emit(reply->o->arg, part, text);
}

static int take_text(void *arg, struct str text)
{
    struct reply *reply = arg;
    if (!text.len)
        return 0;
    if (answer_push(&reply->parts, text, &reply->error))
        return -1;
    return reply->parts.refused;
}

// Control tokens produce no text in take_text; those that are marks are handled here.
static int take_token(void *arg, const struct generate_token *token)
{
    struct reply *reply = arg;
    const struct tokenizer *t = reply->d->model->tokenizer;
    if (token_list_push(&reply->tokens, token->id, &reply->error))
        return -1;
    if (tokenizer_attr(t, token->id) != TOKEN_CONTROL)
        return 0;
    return answer_push_token(&reply->parts, &reply->marks, token->id, &reply->error);
}

static void tell_prompt(void *arg, bool over)
{
    const struct reply *reply = arg;
    if (reply->o->on_prompt)
        reply->o->on_prompt(reply->o->arg, over);
}

static int refuse_full(const struct reply *reply, size_t n, struct error *err)
{
    int n_ctx = session_n_ctx(reply->d->session);
    return fail(err, E_USAGE,
                "the dialogue has %zu tokens, the context %d: /undo takes back the last turn, /clear all; "
                "-c %zu would give it room, --context-shift lets the oldest turns go",
                n, n_ctx, (n / 1024 + 2) * 1024);
}

// A prompt that is made of the last turns of a dialogue.
struct trial {
    struct token_list *prompt;
    struct text *plain;
    size_t kept;  // how many turns the prompt has
    size_t n;     // tokens of the prompt and of the answer so far
    size_t whole; // the same with all turns
    bool full;    // they leave too little of the context free
};

// Renders the last `kept` turns, unless the answer is cancelled.
static int try_turns(const struct reply *reply, size_t kept, struct trial *t, struct error *err)
{
    const size_t n_ctx = (size_t)session_n_ctx(reply->d->session), from = turns_begin(reply->d, kept);
    struct dialogue last = *reply->d;
    if (reply->o->base.cancel && atomic_load(reply->o->base.cancel))
        return fail(err, E_INTERRUPTED, "interrupted");
    last.messages += from;
    last.n -= from;
    t->prompt->n = t->plain->size = 0;
    if (render(&last, reply->o->thinking, t->prompt, t->plain, err))
        return -1;
    t->kept = kept;
    t->n = t->prompt->n + reply->tokens.n;
    t->whole = t->whole ? t->whole : t->n;
    t->full = t->n >= n_ctx || (t->whole >= n_ctx && t->n > n_ctx - n_ctx / 4);
    return 0;
}

// Finds the most turns that fit, below `most`, which do not; the last turn is kept in any case. Grows from the last turn
// in doubling steps, then halves the rest: no rendering has many more turns than the context holds.
static int find_turns(const struct reply *reply, size_t most, struct trial *t, struct error *err)
{
    size_t fit = 0, full = most;
    bool doubling = true;
    while (full - fit > 1) {
        const size_t middle = fit + (full - fit) / 2, kept = doubling ? MIN(MAX(2 * fit, (size_t)1), middle) : middle;
        if (try_turns(reply, kept, t, err))
            return -1;
        doubling = doubling && !t->full;
        *(t->full ? &full : &fit) = kept;
    }
    fit = MAX(fit, (size_t)1);
    return t->kept == fit ? 0 : try_turns(reply, fit, t, err);
}

// Drops the oldest turns until the prompt and the answer so far leave a quarter of the context free.
static int make_prompt(struct reply *reply, struct token_list *prompt, struct text *plain, struct error *err)
{
    struct dialogue *d = reply->d;
    struct trial t = {.prompt = prompt, .plain = plain};
    const size_t n_turns = count_turns(d);
    if (try_turns(reply, n_turns, &t, err))
        return -1;
    if (t.full && reply->o->shift && n_turns > 1) {
        if (find_turns(reply, n_turns, &t, err))
            return -1;
        const size_t n = turns_begin(d, t.kept);
        drop_oldest(d, n);
        reply->o->shifted(reply->o->arg, n, (int)(t.whole - t.n));
    }
    if (t.n >= (size_t)session_n_ctx(d->session))
        return refuse_full(reply, t.n, err);
    for (size_t i = 0; i < reply->tokens.n; i++)
        if (token_list_push(prompt, reply->tokens.ids[i], err))
            return -1;
    return 0;
}

static void add_up(struct dialogue_result *r, const struct generate_result *g)
{
    r->reason = g->reason;
    r->n_prompt += g->n_prompt;
    r->n_computed += g->n_prompt - g->n_reused;
    r->n_generated += g->n_generated;
    r->n_steps += g->n_steps;
    r->prompt_ms += g->prompt_ms;
    r->generate_ms += g->generate_ms;
}

static int run(struct reply *reply, const struct token_list *prompt, struct dialogue_result *r, struct error *err)
{
    struct dialogue *d = reply->d;
    struct token_list aligned = {0};
    struct generate_options g = reply->o->base;
    struct generate_result result = {0};
    int status = dialogue_align(d->model->tokenizer, session_tokens(d->session, 0),
                                (size_t)session_length(d->session, 0), prompt->ids, prompt->n, &aligned, err);
    if (!status && aligned.n >= (size_t)session_n_ctx(d->session)) { // the other tokens may be more
        token_list_free(&aligned);
        aligned = *prompt;
    }
    g.prompt = aligned.ids;
    g.n_prompt = (int)aligned.n;
    if (g.n_predict >= 0)
        g.n_predict = MAX(g.n_predict - (int64_t)reply->tokens.n, 0);
    g.emit = take_text;
    g.on_token = take_token;
    g.on_prompt = tell_prompt;
    g.arg = reply;
    if (!status)
        status = generate(d->session, d->model, 0, &g, &result, err);
    add_up(r, &result);
    if (!status && result.reason == STOP_OUTPUT && reply->error.code) {
        *err = reply->error;
        status = -1;
    }
    if (aligned.ids != prompt->ids)
        token_list_free(&aligned);
    return status;
}

static void begin_parts(struct reply *reply, struct str plain)
{
    struct answer_style style = chat_answer_style(reply->d->chat, plain, false);
    answer_begin(&reply->parts, &style, take_part, reply);
    reply->marks = detokenizer_begin(reply->d->model->tokenizer, true);
}

static int answer_runs(struct reply *reply, struct dialogue_result *r, struct error *err)
{
    struct token_list prompt = {0};
    struct text plain = {0};
    int status;
    bool begun = false;
    do {
        status = make_prompt(reply, &prompt, &plain, err);
        if (status && begun && (err->code == E_USAGE || err->code == E_INTERRUPTED)) {
            // nothing is left to drop, or the search for it was interrupted: the answer ends here
            r->reason = err->code == E_INTERRUPTED ? STOP_INTERRUPTED : r->reason;
            status = 0;
            break;
        }
        if (!status && !begun)
            begin_parts(reply, (struct str){plain.data, plain.size});
        begun = true;
        if (!status)
            status = run(reply, &prompt, r, err);
    } while (!status && r->reason == STOP_CONTEXT && reply->o->shift && dialogue_last_question(reply->d) > 0);
    token_list_free(&prompt);
    text_free(&plain);
    return status;
}

int dialogue_answer(struct dialogue *d, const struct dialogue_settings *o, struct dialogue_result *r, struct error *err)
{
    struct reply reply = {.d = d, .o = o};
    *r = (struct dialogue_result){0};
    int status = answer_runs(&reply, r, err);
    if (!status && r->reason == STOP_INTERRUPTED && r->n_generated == 0)
        status = fail(err, E_INTERRUPTED, "interrupted");
    if (!status)
        status = answer_end(&reply.parts, err);
    r->n_context = session_length(d->session, 0);
    if (!status)
        status = dialogue_add(d, ROLE_ASSISTANT, (struct str){reply.content.data, reply.content.size},
                              (struct str){reply.reasoning.data, reply.reasoning.size}, err);
    answer_free(&reply.parts);
    text_free(&reply.content);
    text_free(&reply.reasoning);
    token_list_free(&reply.tokens);
    return status;
}
