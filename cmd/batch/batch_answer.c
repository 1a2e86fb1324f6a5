// The line is first built as a tree of values in the row's arena and then written as JSON without spaces. The
// response's ids are fingerprints of the row's number and custom_id, not random numbers. The reasoning and the tool
// calls of a chat are separated from its content here, by pushing the tokens of the finished answer through a struct
// answer.
#include "cmd/batch/batch_answer.h"
#include "cmd/batch/batch_tools.h"
#include "cmd/digest.h"
#include "engine/json.h"

#include <inttypes.h>
#include <stdio.h>

// A line under construction. After a failure nothing more is made and `err` keeps the first fault, so that the code
// that builds a value needs no checks in between.
struct maker {
    struct arena *arena;
    struct batch_job *job;
    const struct batch_context *context;
    struct error *err;
    bool failed;
};

static struct value dict(struct maker *m)
{
    struct value v = value_none();
    m->failed = m->failed || value_dict_new(&v, m->arena, m->err);
    return v;
}

static struct value list(struct maker *m)
{
    struct value v = value_none();
    m->failed = m->failed || value_list_new(&v, m->arena, m->err);
    return v;
}

static void set(struct maker *m, struct value *to, const char *key, struct value v)
{
    m->failed = m->failed || value_dict_set(m->arena, to, key, v, m->err);
}

static void push(struct maker *m, struct value *to, struct value v)
{
    m->failed = m->failed || value_list_push(m->arena, to, v, m->err);
}

static struct value text_of(struct maker *m, const char *text)
{
    struct value v = value_none();
    m->failed = m->failed || value_string_copy(&v, m->arena, str_from(text), m->err);
    return v;
}

static struct value text_value(struct maker *m, const struct text *text)
{
    struct value v = VALUE_LIT("");
    if (text->size)
        m->failed = m->failed || value_string_copy(&v, m->arena, (struct str){text->data, text->size}, m->err);
    return v;
}

static struct str sample_text(const struct sample *s)
{
    return (struct str){s->text.data ? s->text.data : "", s->text.size};
}

// --- log-probabilities ---

static struct str piece_of(const struct maker *m, int32_t token)
{
    return tokenizer_piece(m->context->model->tokenizer, token, true);
}

// The log-probability of a token in chats: {token, logprob, bytes}.
static struct value chat_logprob(struct maker *m, int32_t token, double logprob)
{
    struct value v = dict(m), bytes = list(m);
    struct str piece = piece_of(m, token);
    for (size_t i = 0; i < piece.len; i++)
        push(m, &bytes, value_int((uint8_t)piece.data[i]));
    set(m, &v, "token", value_string(piece));
    set(m, &v, "logprob", value_float(logprob));
    set(m, &v, "bytes", bytes);
    return v;
}

static struct value chat_logprobs(struct maker *m, const struct request *r, const struct sample *s)
{
    struct value v = dict(m), content = list(m);
    for (int i = 0; i < s->n_tokens; i++) {
        struct value token = chat_logprob(m, s->tokens[i], (double)s->logprobs[i]), top = list(m);
        for (int j = 0; j < r->n_logprobs; j++) {
            struct candidate c = s->top[(ptrdiff_t)i * r->n_logprobs + j];
            push(m, &top, chat_logprob(m, c.id, (double)c.logit));
        }
        set(m, &token, "top_logprobs", top);
        push(m, &content, token);
    }
    set(m, &v, "content", content);
    return v;
}

// The text of a token as a key. JSON has no other bytes than UTF-8, so that others become U+FFFD here already, and keys
// that would be written alike are one.
static struct value key_of(struct maker *m, int32_t token)
{
    struct str piece = piece_of(m, token);
    struct text text = {0};
    uint32_t cp;
    for (size_t i = 0, n; !utf8_valid(piece) && i < piece.len; i += n ? n : 1) {
        n = (size_t)utf8_decode(piece.data + i, piece.len - i, &cp);
        text_append(&text, n ? (struct str){piece.data + i, n} : STR_LIT("\xef\xbf\xbd"));
    }
    struct value v = text.size ? text_value(m, &text) : value_string(piece);
    text_free(&text);
    return v;
}

// A token of a text, with its log-probability and the likeliest ones in its place.
struct scored_token {
    int32_t id;
    float logprob;
    const struct candidate *top;
    int n_top;
};

// The log-probabilities of the most likely tokens, and of the token itself, by their texts. Of tokens with the same
// text the most likely one counts.
static struct value alternatives(struct maker *m, struct scored_token t)
{
    struct value v = dict(m);
    for (int i = 0; !m->failed && i <= t.n_top; i++) {
        struct value key = key_of(m, i < t.n_top ? t.top[i].id : t.id);
        if (!value_find(&v, &key))
            m->failed =
                m->failed || value_dict_put(m->arena, &v, key,
                                            value_float((double)(i < t.n_top ? t.top[i].logit : t.logprob)), m->err);
    }
    return v;
}

// The log-probabilities of completions: {tokens, token_logprobs, top_logprobs, text_offset}. Offsets count bytes of
// the text.
struct columns {
    struct value tokens, own, top, offsets;
    int64_t offset;
};

// Adds a token whose text has n bytes. scored false: it is the first one of a prompt.
static void add_token(struct maker *m, struct columns *to, struct scored_token t, bool scored, size_t n)
{
    push(m, &to->tokens, value_string(piece_of(m, t.id)));
    push(m, &to->own, scored ? value_float((double)t.logprob) : value_none());
    push(m, &to->top, scored ? alternatives(m, t) : value_none());
    push(m, &to->offsets, value_int(to->offset));
    to->offset += (int64_t)n;
}

static void add_prompt(struct maker *m, struct columns *to, const struct request *r, struct str text)
{
    const struct text_scores *s = r->scores;
    struct detokenizer d = detokenizer_begin(m->context->model->tokenizer, false);
    for (int i = 0; i < r->n_prompt; i++) {
        struct scored_token t = {r->prompt[i], s->logprobs[i], s->top + (ptrdiff_t)i * s->n_top, r->n_logprobs};
        add_token(m, to, t, i > 0, detokenizer_next(&d, r->prompt[i]).len);
    }
    to->offset = (int64_t)text.len;
}

// echo: the text of the prompt, whose tokens come first, and the token that ended the answer comes last; NULL data:
// only the tokens of the answer.
static struct value completion_logprobs(struct maker *m, const struct request *r, const struct sample *s,
                                        struct str echo)
{
    const bool ended = echo.data && s->end_token >= 0;
    struct value v = dict(m);
    struct columns all = {list(m), list(m), list(m), list(m), 0};
    if (echo.data)
        add_prompt(m, &all, r, echo);
    for (int i = 0; i < s->n_tokens + ended; i++) {
        struct scored_token t = {i < s->n_tokens ? s->tokens[i] : s->end_token, s->logprobs[i],
                                 s->top + (ptrdiff_t)i * r->n_logprobs, r->n_logprobs};
        add_token(m, &all, t, true, tokenizer_piece(m->context->model->tokenizer, t.id, false).len);
    }
    set(m, &v, "tokens", all.tokens);
    set(m, &v, "token_logprobs", all.own);
    set(m, &v, "top_logprobs", r->n_logprobs ? all.top : value_none());
    set(m, &v, "text_offset", all.offsets);
    return v;
}

// --- prompts ---

// An entry of prompt_logprobs: {id: {logprob, rank, decoded_token}}.
static void set_ranked(struct maker *m, struct value *to, int32_t id, float logprob, int rank)
{
    char name[16];
    snprintf(name, sizeof name, "%d", id);
    struct value v = dict(m), key = text_of(m, name);
    if (m->failed || value_find(to, &key))
        return;
    set(m, &v, "logprob", value_float((double)logprob));
    set(m, &v, "rank", value_int(rank));
    set(m, &v, "decoded_token", value_string(piece_of(m, id)));
    m->failed = m->failed || value_dict_put(m->arena, to, key, v, m->err);
}

// As in vLLM: each token of the prompt, and then the most likely ones in its place.
static struct value prompt_logprobs(struct maker *m, const struct request *r)
{
    const struct text_scores *s = r->scores;
    const int n_top = (int)m->job->row.settings.n_prompt_logprobs;
    struct value v = list(m);
    push(m, &v, value_none());
    for (int i = 1; i < r->n_prompt; i++) {
        const struct candidate *top = s->top + (ptrdiff_t)i * s->n_top;
        struct value at = dict(m);
        set_ranked(m, &at, r->prompt[i], s->logprobs[i], s->ranks[i]);
        for (int j = 0; j < n_top; j++)
            set_ranked(m, &at, top[j].id, top[j].logit, j + 1);
        push(m, &v, at);
    }
    return v;
}

// The text of a prompt: the string, or what its ids stand for.
static struct str prompt_text(struct maker *m, int request)
{
    const struct value *v = m->job->row.prompt;
    const struct request *r = &m->job->requests[request];
    struct detokenizer d = detokenizer_begin(m->context->model->tokenizer, false);
    struct text text = {0};
    if (v->kind == VALUE_LIST && v->list->items[0].kind != VALUE_INT)
        v = &v->list->items[request];
    if (v->kind == VALUE_STRING)
        return v->text.len ? v->text : STR_LIT("");
    for (int i = 0; i < r->n_prompt; i++)
        text_append(&text, detokenizer_next(&d, r->prompt[i]));
    struct value made = text_value(m, &text);
    text_free(&text);
    return made.text;
}

// --- choices ---

static struct value token_ids(struct maker *m, const struct sample *s)
{
    struct value v = list(m);
    for (int i = 0; i < s->n_tokens; i++)
        push(m, &v, value_int(s->tokens[i]));
    return v;
}

static const char *finish_reason(enum stop_reason reason)
{
    return reason == STOP_LENGTH || reason == STOP_CONTEXT ? "length" : "stop";
}

// Whether the token is one of the row's stop_token_ids.
static bool is_stop_id(const struct batch_row *row, int32_t token)
{
    for (size_t i = 0; i < value_count(row->stop_ids); i++)
        if (row->stop_ids->list->items[i].integer == token)
            return true;
    return false;
}

// --- messages ---

struct parts {
    struct text reasoning, content;
};

static int take_part(void *arg, enum answer_part part, struct str text)
{
    struct parts *p = arg;
    if (part == ANSWER_REASONING)
        text_append(&p->reasoning, text);
    if (part == ANSWER_CONTENT)
        text_append(&p->content, text);
    return p->reasoning.failed || p->content.failed;
}

// Adds the tokens of an answer. If a stop string cut off the end of the answer, only the tokens of the text that is
// left are added.
static int push_tokens(const struct maker *m, struct answer *a, const struct request *r, const struct sample *s,
                       struct error *err)
{
    const struct tokenizer *t = m->context->model->tokenizer;
    struct detokenizer marks = detokenizer_begin(t, true), plain = detokenizer_begin(t, false);
    size_t at = 0;
    // the answer continues the text of the prompt
    detokenizer_next(&marks, r->prompt[r->n_prompt - 1]);
    detokenizer_next(&plain, r->prompt[r->n_prompt - 1]);
    for (int i = 0; i < s->n_tokens; i++) {
        size_t n = detokenizer_next(&plain, s->tokens[i]).len;
        if (s->reason == STOP_STRING && at + n > s->text.size)
            return at < s->text.size ? answer_push(a, (struct str){s->text.data + at, s->text.size - at}, err) : 0;
        if (answer_push_token(a, &marks, s->tokens[i], err))
            return -1;
        at += n;
    }
    return 0;
}

// A tool call, {id, type, function: {name, arguments}}. Clients of OpenAI's API expect an id, and the arguments as
// the text of a JSON object.
static struct value tool_call(struct maker *m, const struct value *call, int index, int number)
{
    struct value v = dict(m), function = dict(m), arguments = VALUE_LIT("{}");
    const struct value *own = value_get(call, "function"), *given = value_get(own, "arguments");
    struct text text = {0};
    char id[64];
    snprintf(id, sizeof id, "call_%" PRId64 "_%d_%d", m->job->row.number, index, number);
    if (given && !m->failed) {
        m->failed = json_write_text(given, NULL, &text, m->err);
        arguments = text_value(m, &text);
    }
    text_free(&text);
    set(m, &function, "name", value_get(own, "name") ? *value_get(own, "name") : VALUE_LIT(""));
    set(m, &function, "arguments", arguments);
    set(m, &v, "id", text_of(m, id));
    set(m, &v, "type", VALUE_LIT("function"));
    set(m, &v, "function", function);
    return v;
}

// Splits the answer into its parts and the calls that it says. A forced answer is calls as a whole, unless it has the
// template's form.
static void split(struct maker *m, const struct request *r, const struct sample *s, struct parts *parts,
                  struct value *found)
{
    struct batch_row *row = &m->job->row;
    size_t n_bad = 0;
    struct answer answer;
    struct error unread;
    struct answer_style style = batch_job_style(m->job, m->context);
    const bool forced = row->choice != CHOICE_FREE && style.tools == TOOLS_NONE;
    answer_begin(&answer, &style, take_part, parts);
    m->failed = m->failed || push_tokens(m, &answer, r, s, m->err) || answer_end(&answer, m->err) ||
                answer_tool_calls(&answer, m->arena, found, &n_bad, m->err);
    answer_free(&answer);
    if (forced && !m->failed) {
        if (!batch_tools_read(row, (struct str){parts->content.data, parts->content.size}, found, &unread))
            text_free(&parts->content);
        else
            n_bad++;
    }
    m->job->n_bad_calls += (int64_t)n_bad;
}

static struct value message(struct maker *m, const struct request *r, const struct sample *s, int index, bool *calls)
{
    struct value v = dict(m), found = list(m), tools = list(m);
    struct parts parts = {{0}, {0}};
    split(m, r, s, &parts, &found);
    size_t n = m->job->row.one_call ? MIN(value_count(&found), 1u) : value_count(&found);
    for (size_t i = 0; !m->failed && i < n; i++)
        push(m, &tools, tool_call(m, &found.list->items[i], index, (int)i));
    *calls = value_count(&tools) > 0;
    set(m, &v, "role", VALUE_LIT("assistant"));
    set(m, &v, "content", *calls && !parts.content.size ? value_none() : text_value(m, &parts.content));
    if (parts.reasoning.size)
        set(m, &v, "reasoning_content", text_value(m, &parts.reasoning));
    if (*calls)
        set(m, &v, "tool_calls", tools);
    text_free(&parts.reasoning);
    text_free(&parts.content);
    return v;
}

// The text of a completion, behind its prompt where that is wanted.
static struct value completion_text(struct maker *m, const struct sample *s, struct str echo)
{
    struct text text = {0};
    if (!echo.data)
        return value_string(sample_text(s));
    text_append(&text, echo);
    text_append(&text, sample_text(s));
    struct value v = text_value(m, &text);
    text_free(&text);
    return v;
}

static void set_completion(struct maker *m, struct value *to, int request, const struct sample *s)
{
    const struct request *r = &m->job->requests[request];
    struct str echo = m->job->row.settings.echo ? prompt_text(m, request) : (struct str){0};
    set(m, to, "text", completion_text(m, s, echo));
    set(m, to, "logprobs", r->n_logprobs >= 0 ? completion_logprobs(m, r, s, echo) : value_none());
    if (m->job->row.settings.n_prompt_logprobs >= 0)
        set(m, to, "prompt_logprobs", prompt_logprobs(m, r));
}

static struct value choice(struct maker *m, int request, int sample, int index)
{
    bool calls = false;
    const struct request *r = &m->job->requests[request];
    const struct sample *s = &r->samples[sample];
    struct value v = dict(m);
    set(m, &v, "index", value_int(index));
    if (m->job->row.kind == ROW_CHAT) {
        set(m, &v, "message", message(m, r, s, index, &calls));
        set(m, &v, "logprobs", r->n_logprobs >= 0 ? chat_logprobs(m, r, s) : value_none());
    } else {
        set_completion(m, &v, request, s);
    }
    if (m->job->row.settings.wants_ids)
        set(m, &v, "token_ids", token_ids(m, s));
    // as in OpenAI's API, a call of the function that the row has named is a stop
    calls = calls && m->job->row.choice != CHOICE_NAMED;
    set(m, &v, "finish_reason", value_string(str_from(calls ? "tool_calls" : finish_reason(s->reason))));
    if (is_stop_id(&m->job->row, s->end_token))
        set(m, &v, "stop_reason", value_int(s->end_token));
    return v;
}

static struct value choices(struct maker *m)
{
    struct value v = list(m);
    int index = 0;
    for (int i = 0; i < m->job->n_requests; i++)
        for (int j = 0; j < m->job->requests[i].n_samples; j++)
            push(m, &v, choice(m, i, j, index++));
    return v;
}

static struct value usage(struct maker *m)
{
    struct value v = dict(m);
    int64_t prompt = 0, completion = 0;
    for (int i = 0; i < m->job->n_requests; i++) {
        prompt += m->job->requests[i].n_prompt;
        for (int j = 0; j < m->job->requests[i].n_samples; j++)
            completion += m->job->requests[i].samples[j].n_tokens;
    }
    set(m, &v, "prompt_tokens", value_int(prompt));
    set(m, &v, "completion_tokens", value_int(completion));
    set(m, &v, "total_tokens", value_int(prompt + completion));
    return v;
}

// --- lines ---

static int print_value(const struct value *v, struct text *line, struct error *err)
{
    return json_write_text(v, &(struct json_style){.item_sep = ",", .key_sep = ":"}, line, err);
}

int batch_id_print(struct str custom_id, struct text *out, struct error *err)
{
    struct value id = custom_id.data ? value_string(custom_id) : value_none();
    return print_value(&id, out, err);
}

static int print_head(int64_t number, struct str custom_id, struct text *line, struct error *err)
{
    text_print(line, "{\"id\":\"batch_req_%" PRId64 "\",\"custom_id\":", number);
    if (batch_id_print(custom_id, line, err))
        return -1;
    text_print(line, ",\"response\":");
    return 0;
}

static int end_line(struct text *line, struct error *err)
{
    text_print(line, "}\n");
    return line->failed ? fail(err, E_MEMORY, "no memory for a line of output") : 0;
}

// The id of the response, which is the same whenever the row is computed.
static void request_id(const struct batch_row *row, char out[33])
{
    struct digest d = {0};
    digest_add(&d, &row->number, sizeof row->number);
    digest_add(&d, row->custom_id.data, row->custom_id.len);
    digest_format(digest_end(&d), out);
}

int batch_line_begin(const struct batch_job *job, struct text *line, struct error *err)
{
    char hash[33];
    request_id(&job->row, hash);
    if (print_head(job->row.number, job->row.custom_id, line, err))
        return -1;
    text_print(line, "{\"status_code\":200,\"request_id\":\"req_%s\",\"body\":{", hash);
    return 0;
}

int batch_answer_print(struct batch_job *job, const struct batch_context *c, struct text *line, struct error *err)
{
    struct maker m = {&job->row.arena, job, c, err, false};
    bool chats = job->row.kind == ROW_CHAT;
    char hash[33], id[64], request[64];
    request_id(&job->row, hash);
    snprintf(id, sizeof id, "%s-%s", chats ? "chatcmpl" : "cmpl", hash);
    snprintf(request, sizeof request, "req_%s", hash);
    struct value response = dict(&m), body = dict(&m);
    set(&m, &body, "id", text_of(&m, id));
    set(&m, &body, "object", value_string(str_from(chats ? "chat.completion" : "text_completion")));
    set(&m, &body, "created", value_int(0));
    set(&m, &body, "model", text_of(&m, c->model_name));
    set(&m, &body, "choices", choices(&m));
    set(&m, &body, "usage", usage(&m));
    if (chats && job->row.settings.n_prompt_logprobs >= 0)
        set(&m, &body, "prompt_logprobs", prompt_logprobs(&m, &job->requests[0]));
    set(&m, &response, "status_code", value_int(200));
    set(&m, &response, "request_id", text_of(&m, request));
    set(&m, &response, "body", body);
    if (m.failed || print_head(job->row.number, job->row.custom_id, line, err) || print_value(&response, line, err))
        return -1;
    text_print(line, ",\"error\":null");
    return end_line(line, err);
}

int batch_error_print(int64_t number, struct str custom_id, const char *code, const char *message, struct text *line,
                      struct error *err)
{
    struct value text = value_string(str_from(message));
    if (print_head(number, custom_id, line, err))
        return -1;
    text_print(line, "null,\"error\":{\"code\":\"%s\",\"message\":", code);
    if (print_value(&text, line, err))
        return -1;
    text_print(line, "}");
    return end_line(line, err);
}
