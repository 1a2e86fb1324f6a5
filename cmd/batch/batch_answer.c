// The line is first built as a tree of values in the row's arena and then written as JSON without spaces. The
// response's ids are fingerprints of the row's number and custom_id, not random numbers. The reasoning and the tool
// calls of a chat are separated from its content here, by pushing the tokens of the finished answer through a struct
// answer.
#include "cmd/batch/batch_answer.h"
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

// The log-probabilities of completions: {tokens, token_logprobs, top_logprobs, text_offset}. Offsets count bytes of
// the answer.
static struct value completion_logprobs(struct maker *m, const struct request *r, const struct sample *s)
{
    struct value v = dict(m), tokens = list(m), own = list(m), top = list(m), offsets = list(m);
    int64_t offset = 0;
    for (int i = 0; i < s->n_tokens; i++) {
        struct value alternatives = dict(m);
        push(m, &tokens, value_string(piece_of(m, s->tokens[i])));
        push(m, &own, value_float((double)s->logprobs[i]));
        push(m, &offsets, value_int(offset));
        offset += (int64_t)tokenizer_piece(m->context->model->tokenizer, s->tokens[i], false).len;
        for (int j = 0; !m->failed && j < r->n_logprobs; j++) {
            struct candidate c = s->top[(ptrdiff_t)i * r->n_logprobs + j];
            m->failed = value_dict_put(m->arena, &alternatives, value_string(piece_of(m, c.id)),
                                       value_float((double)c.logit), m->err);
        }
        push(m, &top, alternatives);
    }
    set(m, &v, "tokens", tokens);
    set(m, &v, "token_logprobs", own);
    set(m, &v, "top_logprobs", r->n_logprobs ? top : value_none());
    set(m, &v, "text_offset", offsets);
    return v;
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

static struct value text_value(struct maker *m, const struct text *text)
{
    struct value v = VALUE_LIT("");
    if (text->size)
        m->failed = m->failed || value_string_copy(&v, m->arena, (struct str){text->data, text->size}, m->err);
    return v;
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

static struct value message(struct maker *m, const struct request *r, const struct sample *s, int index, bool *calls)
{
    struct value v = dict(m), found = list(m), tools = list(m);
    size_t n_bad = 0;
    struct parts parts = {{0}, {0}};
    struct answer answer;
    struct str prompt = {m->job->prompt_text.data, m->job->prompt_text.size};
    struct answer_style style = chat_answer_style(m->context->chat, prompt, m->job->row.tools != NULL);
    style.offered = m->job->row.tools;
    answer_begin(&answer, &style, take_part, &parts);
    m->failed = m->failed || push_tokens(m, &answer, r, s, m->err) || answer_end(&answer, m->err) ||
                answer_tool_calls(&answer, m->arena, &found, &n_bad, m->err);
    m->job->n_bad_calls += (int64_t)n_bad;
    for (size_t i = 0; !m->failed && i < value_count(&found); i++)
        push(m, &tools, tool_call(m, &found.list->items[i], index, (int)i));
    *calls = value_count(&tools) > 0;
    set(m, &v, "role", VALUE_LIT("assistant"));
    set(m, &v, "content", *calls && !parts.content.size ? value_none() : text_value(m, &parts.content));
    if (parts.reasoning.size)
        set(m, &v, "reasoning_content", text_value(m, &parts.reasoning));
    if (*calls)
        set(m, &v, "tool_calls", tools);
    answer_free(&answer);
    text_free(&parts.reasoning);
    text_free(&parts.content);
    return v;
}

static struct value choice(struct maker *m, const struct request *r, int sample, int index)
{
    bool calls = false;
    const struct sample *s = &r->samples[sample];
    bool chats = m->job->row.kind == ROW_CHAT;
    struct value v = dict(m);
    set(m, &v, "index", value_int(index));
    if (chats)
        set(m, &v, "message", message(m, r, s, index, &calls));
    else
        set(m, &v, "text", value_string(sample_text(s)));
    struct value logprobs = value_none();
    if (r->n_logprobs >= 0)
        logprobs = chats ? chat_logprobs(m, r, s) : completion_logprobs(m, r, s);
    set(m, &v, "logprobs", logprobs);
    if (m->job->row.settings.wants_ids)
        set(m, &v, "token_ids", token_ids(m, s));
    set(m, &v, "finish_reason", value_string(str_from(calls ? "tool_calls" : finish_reason(s->reason))));
    return v;
}

static struct value choices(struct maker *m)
{
    struct value v = list(m);
    int index = 0;
    for (int i = 0; i < m->job->n_requests; i++)
        for (int j = 0; j < m->job->requests[i].n_samples; j++)
            push(m, &v, choice(m, &m->job->requests[i], j, index++));
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
