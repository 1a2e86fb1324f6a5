// Every kind of record is first made into a body with OpenAI's field names, and all bodies then take the same path:
// take_body checks the names of the fields against known_fields, and then the values that it uses. A prompt is made
// of other fields by --template, in which {{name}} is replaced. The first fault ends the parse, with a code for the
// error line.
#include "cmd/batch/batch_row.h"
#include "engine/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// A record while it is parsed.
struct parse {
    struct batch_row *row;
    const struct row_form *form;
    const char *code;
    int64_t line; // of the file, where the record begins
    struct error *err;
};

// --- values of a body ---

static const struct value *get(const struct value *body, const char *key)
{
    const struct value *v = value_get(body, key);
    return value_is(v, VALUE_NONE) ? NULL : v; // null means that the field is not set
}

static int wrong_kind(const char *key, const struct value *v, const char *wanted, struct error *err)
{
    return fail(err, E_USAGE, "%s: %s where %s is wanted", key, value_kind_name(v), wanted);
}

static int take_real(const struct value *body, const char *key, double least, double most, double *out,
                     struct error *err)
{
    const struct value *v = get(body, key);
    double number;
    if (!v)
        return 0;
    if (!value_number(v, &number))
        return wrong_kind(key, v, "a number", err);
    if (!(number >= least && number <= most))
        return fail(err, E_USAGE, "%s: %.9g: from %.9g to %.9g", key, number, least, most);
    *out = number;
    return 0;
}

static int take_integer(const struct value *body, const char *key, int64_t least, int64_t most, int64_t *out,
                        struct error *err)
{
    double number;
    const struct value *v = get(body, key);
    if (!v)
        return 0;
    if (!value_number(v, &number))
        return wrong_kind(key, v, "a whole number", err);
    if (!(number >= (double)least && number <= (double)most))
        return fail(err, E_USAGE, "%s: %.0f: from %lld to %lld", key, number, (long long)least, (long long)most);
    if (number != nearbyint(number))
        return fail(err, E_USAGE, "%s: %.17g is no whole number", key, number);
    *out = (int64_t)number;
    return 0;
}

static int take_bool(const struct value *body, const char *key, bool *out, struct error *err)
{
    const struct value *v = get(body, key);
    if (v && v->kind != VALUE_BOOL)
        return wrong_kind(key, v, "true or false", err);
    if (v)
        *out = v->boolean;
    return 0;
}

static int take_kind(const struct value *body, const char *key, enum value_kind kind, const char *wanted,
                     const struct value **out, struct error *err)
{
    const struct value *v = get(body, key);
    if (v && v->kind != kind)
        return wrong_kind(key, v, wanted, err);
    *out = v;
    return 0;
}

static int take_seed(const struct value *body, struct row_settings *s, struct error *err)
{
    const struct value *v = get(body, "seed");
    if (!v)
        return 0;
    if (v->kind == VALUE_INT)
        s->seed = (uint64_t)v->integer;
    else if (v->kind == VALUE_BIGINT && v->text.len <= 20 && v->text.data[0] != '-')
        s->seed = strtoull(v->text.data, NULL, 10);
    else
        return wrong_kind("seed", v, "a whole number of 64 bits", err);
    s->has_seed = true;
    return 0;
}

static int push_stop(struct batch_row *row, const struct value *v, struct error *err)
{
    if (!value_is(v, VALUE_STRING))
        return wrong_kind("stop", v, "a string or a list of strings", err);
    if (!v->text.len)
        return fail(err, E_USAGE, "stop: an empty string");
    if (row->n_stops == ROW_STOPS_MOST)
        return fail(err, E_USAGE, "stop: more than %d strings", ROW_STOPS_MOST);
    row->stops[row->n_stops++] = v;
    return 0;
}

static int take_stops(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *v = get(body, "stop");
    if (!v || v->kind == VALUE_STRING)
        return v ? push_stop(row, v, err) : 0;
    if (v->kind != VALUE_LIST)
        return push_stop(row, v, err);
    for (size_t i = 0; i < v->list->n; i++)
        if (push_stop(row, &v->list->items[i], err))
            return -1;
    return 0;
}

// A schema beside json_object: of an object, whether it says so or not.
static int take_object_schema(struct batch_row *row, const struct value *schema, struct error *err)
{
    row->schema = schema;
    if (!value_is(schema, VALUE_DICT) || value_get(schema, "type"))
        return 0;
    struct value *copy = ARENA_NEW(&row->arena, struct value);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for a schema");
    if (value_dict_new(copy, &row->arena, err) || value_dict_set(&row->arena, copy, "type", VALUE_LIT("object"), err))
        return -1;
    for (size_t i = 0; i < schema->dict->n; i++)
        if (value_dict_put(&row->arena, copy, schema->dict->entries[i].key, schema->dict->entries[i].value, err))
            return -1;
    row->schema = copy;
    return 0;
}

static int take_response_format(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *format = NULL, *schema = NULL;
    if (take_kind(body, "response_format", VALUE_DICT, "an object", &format, err))
        return -1;
    if (!format)
        return 0;
    const struct value *type = get(format, "type");
    if (!value_is(type, VALUE_STRING))
        return fail(err, E_USAGE, "response_format.type: text, json_object or json_schema");
    if (str_equal_z(type->text, "text"))
        return 0;
    if (str_equal_z(type->text, "json_object")) {
        row->wants_json = true;
        return take_object_schema(row, get(format, "schema"), err);
    }
    if (!str_equal_z(type->text, "json_schema"))
        return fail(err, E_USAGE, "response_format.type: \"%.*s\"; text, json_object or json_schema",
                    STR_ARG(type->text));
    if (take_kind(format, "json_schema", VALUE_DICT, "an object", &schema, err))
        return -1;
    row->schema = schema ? get(schema, "schema") : NULL;
    return row->schema ? 0 : fail(err, E_USAGE, "response_format.json_schema.schema is missing");
}

// A schema as vLLM takes it: an object, or its text.
static int take_guide(struct batch_row *row, const char *name, const struct value *guide, struct error *err)
{
    struct json_reader reader = {.arena = &row->arena, .flags = JSON_INPUT};
    if (!guide)
        return 0;
    if (row->schema || row->wants_json)
        return fail(err, E_USAGE, "%s: response_format asks for a form, too", name);
    row->schema = guide;
    if (guide->kind != VALUE_STRING)
        return guide->kind == VALUE_DICT ? 0 : wrong_kind(name, guide, "a schema", err);
    struct value *read = ARENA_NEW(&row->arena, struct value);
    if (!read)
        return fail(err, E_MEMORY, "no memory for a schema");
    row->schema = read;
    return json_read(read, &reader, guide->text, err) ? fail_prefix(err, name) : 0;
}

// guided_json, and structured_outputs with json alone.
static int take_guides(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *outputs = NULL;
    if (take_kind(body, "structured_outputs", VALUE_DICT, "an object", &outputs, err) ||
        take_guide(row, "guided_json", get(body, "guided_json"), err))
        return -1;
    for (size_t i = 0; outputs && i < outputs->dict->n; i++) {
        const struct value_entry *e = &outputs->dict->entries[i];
        if (!str_equal_z(e->key.text, "json") && e->value.kind != VALUE_NONE)
            return fail(err, E_USAGE, "structured_outputs.%.*s: only json is supported", STR_ARG(e->key.text));
    }
    return outputs ? take_guide(row, "structured_outputs.json", get(outputs, "json"), err) : 0;
}

// --- bodies ---

enum { IN_CHAT = 1, IN_COMPLETION = 2, IN_EMBEDDING = 4, IN_BOTH = IN_CHAT | IN_COMPLETION };

// Every field of a body that has a meaning, or that may be ignored because it does not change an answer. Fields of
// which only some values are supported are checked in check_refused.
static const struct {
    const char *name;
    unsigned kinds;
} known_fields[] = {
    {"model", IN_BOTH | IN_EMBEDDING},
    {"user", IN_BOTH | IN_EMBEDDING},
    {"metadata", IN_BOTH},
    {"store", IN_BOTH},
    {"service_tier", IN_BOTH},
    {"safety_identifier", IN_BOTH},
    {"prompt_cache_key", IN_BOTH},
    {"stream", IN_BOTH},
    {"stream_options", IN_BOTH},
    {"temperature", IN_BOTH},
    {"top_p", IN_BOTH},
    {"top_k", IN_BOTH},
    {"min_p", IN_BOTH},
    {"frequency_penalty", IN_BOTH},
    {"presence_penalty", IN_BOTH},
    {"repeat_penalty", IN_BOTH},
    {"repetition_penalty", IN_BOTH},
    {"max_tokens", IN_BOTH},
    {"max_completion_tokens", IN_CHAT},
    {"stop", IN_BOTH},
    {"seed", IN_BOTH},
    {"n", IN_BOTH},
    {"best_of", IN_COMPLETION},
    {"echo", IN_COMPLETION},
    {"suffix", IN_COMPLETION},
    {"prompt", IN_COMPLETION},
    {"messages", IN_CHAT},
    {"tools", IN_CHAT},
    {"tool_choice", IN_CHAT},
    {"parallel_tool_calls", IN_CHAT},
    {"reasoning_effort", IN_CHAT},
    {"chat_template_kwargs", IN_CHAT},
    {"logprobs", IN_BOTH},
    {"top_logprobs", IN_CHAT},
    {"logit_bias", IN_BOTH},
    {"response_format", IN_BOTH},
    {"guided_json", IN_BOTH},
    {"structured_outputs", IN_BOTH},
    {"add_generation_prompt", IN_CHAT},
    {"ignore_eos", IN_BOTH},
    {"return_token_ids", IN_BOTH},
    {"input", IN_EMBEDDING},
    {"encoding_format", IN_EMBEDDING},
    {"dimensions", IN_EMBEDDING},
};

static int check_fields(const struct value *body, enum row_kind kind, bool ignore_unknown, struct error *err)
{
    static const unsigned bits[] = {
        [ROW_COMPLETION] = IN_COMPLETION, [ROW_CHAT] = IN_CHAT, [ROW_EMBEDDING] = IN_EMBEDDING};
    for (size_t i = 0; i < body->dict->n; i++) {
        const struct value_entry *e = &body->dict->entries[i];
        bool known = e->value.kind == VALUE_NONE || ignore_unknown;
        for (size_t j = 0; !known && j < COUNT_OF(known_fields); j++)
            known = (known_fields[j].kinds & bits[kind]) && str_equal_z(e->key.text, known_fields[j].name);
        if (!known)
            return fail(err, E_USAGE, "body.%.*s: a field that quern does not know", STR_ARG(e->key.text));
    }
    return 0;
}

// Refuses values of fields that ask for something quern does not do.
static int check_refused(const struct value *body, const struct row_settings *s, struct error *err)
{
    bool stream = false, echo = false;
    int64_t best_of = s->n;
    const struct value *suffix = get(body, "suffix"), *choice = get(body, "tool_choice");
    if (take_bool(body, "stream", &stream, err) || take_bool(body, "echo", &echo, err) ||
        take_integer(body, "best_of", 1, ROW_SAMPLES_MOST, &best_of, err))
        return -1;
    if (stream)
        return fail(err, E_USAGE, "stream: a batch does not stream");
    if (echo)
        return fail(err, E_USAGE, "echo: not supported");
    if (best_of != s->n)
        return fail(err, E_USAGE, "best_of: only the same as n is supported");
    if (suffix && !(suffix->kind == VALUE_STRING && !suffix->text.len))
        return fail(err, E_USAGE, "suffix: not supported");
    if (choice &&
        !(choice->kind == VALUE_STRING && (str_equal_z(choice->text, "auto") || str_equal_z(choice->text, "none"))))
        return fail(err, E_USAGE, "tool_choice: only \"auto\" and \"none\" are supported");
    return 0;
}

// Takes logprobs: in chats it is true, with top_logprobs beside it; in completions it is a number.
static int take_logprobs(const struct value *body, enum row_kind kind, struct row_settings *s, struct error *err)
{
    if (kind == ROW_COMPLETION)
        return take_integer(body, "logprobs", 0, ROW_LOGPROBS_MOST, &s->n_logprobs, err);
    bool wanted = false;
    int64_t top = 0;
    if (take_bool(body, "logprobs", &wanted, err) ||
        take_integer(body, "top_logprobs", 0, ROW_LOGPROBS_MOST, &top, err))
        return -1;
    if (!wanted && top)
        return fail(err, E_USAGE, "top_logprobs: needs logprobs to be true");
    s->n_logprobs = wanted ? top : -1;
    return 0;
}

static int take_settings(struct batch_row *row, const struct value *body, struct error *err)
{
    struct row_settings *s = &row->settings;
    enum { TOKENS_MOST = 1 << 30 };
    *s = (struct row_settings){NAN, NAN, NAN, NAN, NAN, NAN, .top_k = -1, .max_tokens = -1, .n_logprobs = -1, .n = 1};
    if (take_real(body, "temperature", 0, 100, &s->temperature, err) ||
        take_real(body, "top_p", 0, 1, &s->top_p, err) || take_real(body, "min_p", 0, 1, &s->min_p, err) ||
        take_real(body, "frequency_penalty", -2, 2, &s->frequency_penalty, err) ||
        take_real(body, "presence_penalty", -2, 2, &s->presence_penalty, err) ||
        take_real(body, "repeat_penalty", 0.01, 100, &s->repeat_penalty, err) ||
        take_real(body, "repetition_penalty", 0.01, 100, &s->repeat_penalty, err) ||
        take_integer(body, "top_k", -1, TOKENS_MOST, &s->top_k, err) ||
        take_integer(body, "max_tokens", 0, TOKENS_MOST, &s->max_tokens, err) ||
        take_integer(body, "max_completion_tokens", 0, TOKENS_MOST, &s->max_tokens, err) ||
        take_integer(body, "n", 1, ROW_SAMPLES_MOST, &s->n, err) ||
        take_bool(body, "ignore_eos", &s->ignore_end, err) || take_bool(body, "return_token_ids", &s->wants_ids, err))
        return -1;
    if (s->top_k < 0 && get(body, "top_k"))
        s->top_k = 0; // -1 means "all" in other engines
    return take_seed(body, s, err) || take_logprobs(body, row->kind, s, err) || check_refused(body, s, err);
}

static bool are_ids(const struct value *list)
{
    for (size_t i = 0; i < list->list->n; i++)
        if (list->list->items[i].kind != VALUE_INT)
            return false;
    return true;
}

static int check_prompt(const struct value *v, struct error *err)
{
    if (!v)
        return fail(err, E_USAGE, "prompt is missing");
    if (v->kind == VALUE_STRING)
        return 0;
    if (v->kind != VALUE_LIST || !v->list->n)
        return fail(err, E_USAGE, "prompt: a string, a list of strings, of token ids, or of lists of them");
    if (are_ids(v))
        return 0;
    if (v->list->n > ROW_PROMPTS_MOST)
        return fail(err, E_USAGE, "prompt: %zu of them, limit %d", v->list->n, ROW_PROMPTS_MOST);
    for (size_t i = 0; i < v->list->n; i++) {
        const struct value *item = &v->list->items[i];
        if (item->kind != VALUE_STRING && !(item->kind == VALUE_LIST && item->list->n && are_ids(item)))
            return fail(err, E_USAGE, "prompt[%zu]: neither a string nor a list of token ids", i);
    }
    return 0;
}

static int check_messages(const struct value *v, struct error *err)
{
    if (!value_is(v, VALUE_LIST) || !v->list->n)
        return fail(err, E_USAGE, "messages: a list of {role, content} is wanted");
    for (size_t i = 0; i < v->list->n; i++)
        if (!value_is(value_get(&v->list->items[i], "role"), VALUE_STRING))
            return fail(err, E_USAGE, "messages[%zu]: no object with a role", i);
    return 0;
}

static int take_chat(struct batch_row *row, const struct value *body, struct error *err)
{
    row->messages = get(body, "messages");
    if (check_messages(row->messages, err) || take_kind(body, "tools", VALUE_LIST, "a list", &row->tools, err) ||
        take_kind(body, "chat_template_kwargs", VALUE_DICT, "an object", &row->kwargs, err))
        return -1;
    bool begins = true;
    if (take_bool(body, "add_generation_prompt", &begins, err))
        return -1;
    row->no_answer_begun = !begins;
    const struct value *choice = get(body, "tool_choice"), *effort = get(body, "reasoning_effort");
    if (choice && str_equal_z(choice->text, "none"))
        row->tools = NULL;
    if (!effort)
        return 0;
    if (effort->kind != VALUE_STRING)
        return wrong_kind("reasoning_effort", effort, "a string", err);
    struct value kwargs, *kept;
    if (value_dict_new(&kwargs, &row->arena, err))
        return -1;
    for (size_t i = 0; row->kwargs && i < row->kwargs->dict->n; i++)
        if (value_dict_put(&row->arena, &kwargs, row->kwargs->dict->entries[i].key, row->kwargs->dict->entries[i].value,
                           err))
            return -1;
    if (value_dict_set(&row->arena, &kwargs, "reasoning_effort", *effort, err))
        return -1;
    kept = ARENA_NEW(&row->arena, struct value);
    if (!kept)
        return fail(err, E_MEMORY, "no memory for a row");
    *kept = kwargs;
    row->kwargs = kept;
    return 0;
}

static int take_body(struct batch_row *row, const struct value *body, struct error *err)
{
    const struct value *model = NULL;
    if (check_fields(body, row->kind, row->ignore_unknown, err) ||
        take_kind(body, "model", VALUE_STRING, "a string", &model, err))
        return -1;
    if (model)
        row->model = model->text;
    if (row->kind == ROW_EMBEDDING)
        return get(body, "input") ? 0 : fail(err, E_USAGE, "input is missing");
    if (take_settings(row, body, err) || take_stops(row, body, err) || take_response_format(row, body, err) ||
        take_guides(row, body, err) || take_kind(body, "logit_bias", VALUE_DICT, "an object", &row->bias, err))
        return -1;
    if (row->kind == ROW_CHAT)
        return take_chat(row, body, err);
    row->prompt = get(body, "prompt");
    return check_prompt(row->prompt, err);
}

// --- ids ---

static int set_id(struct parse *p, const struct value *v)
{
    if (value_is(v, VALUE_STRING) && v->text.len) {
        p->row->custom_id = v->text;
        return 0;
    }
    if (value_is(v, VALUE_INT)) {
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%lld", (long long)v->integer);
        const char *kept = arena_strdup(&p->row->arena, (struct str){digits, (size_t)n});
        p->row->custom_id = (struct str){kept, kept ? (size_t)n : 0};
        return kept ? 0 : fail(p->err, E_MEMORY, "no memory for an id");
    }
    return fail(p->err, E_USAGE, "custom_id: a string is wanted");
}

static int set_own_id(struct parse *p)
{
    char text[32];
    int n = snprintf(text, sizeof text, "row-%lld", (long long)p->row->number);
    const char *kept = arena_strdup(&p->row->arena, (struct str){text, (size_t)n});
    p->row->custom_id = (struct str){kept, (size_t)n};
    return kept ? 0 : fail(p->err, E_MEMORY, "no memory for an id");
}

// --- templates ---

// The value of {{name}}: strings verbatim, everything else as JSON. NULL if there is no such field.
static const struct value *field_of(const struct value *fields, struct str name)
{
    while (name.len && name.data[0] == ' ') {
        name.data++;
        name.len--;
    }
    while (name.len && name.data[name.len - 1] == ' ')
        name.len--;
    return value_get_str(fields, name);
}

static int fill_template(const struct value *fields, struct str form, struct text *out, struct error *err)
{
    while (form.len) {
        const char *open = memmem(form.data, form.len, "{{", 2), *end = form.data + form.len;
        const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
        text_append(out, (struct str){form.data, close ? (size_t)(open - form.data) : form.len});
        if (!close)
            break;
        struct str name = {open + 2, (size_t)(close - open) - 2};
        const struct value *v = field_of(fields, name);
        if (!v)
            return fail(err, E_USAGE, "--template: the row has no field \"%.*s\"", STR_ARG(name));
        if (v->kind == VALUE_STRING)
            text_append(out, v->text);
        else if (json_write_text(v, NULL, out, err))
            return -1;
        form = (struct str){close + 2, (size_t)(end - close) - 2};
    }
    return out->failed ? fail(err, E_MEMORY, "no memory for a prompt") : 0;
}

// Appends {role, content} to the messages.
static int push_message(struct batch_row *row, struct value *list, const char *role, struct str content,
                        struct error *err)
{
    struct value message;
    return value_dict_new(&message, &row->arena, err) ||
           value_dict_set(&row->arena, &message, "role", value_string(str_from(role)), err) ||
           value_dict_set(&row->arena, &message, "content", value_string(content), err) ||
           value_list_push(&row->arena, list, message, err);
}

// Makes the body of a prompt: {prompt}, or {messages}.
static int make_body(struct parse *p, struct str prompt, struct value *body)
{
    struct batch_row *row = p->row;
    struct value messages;
    row->kind = p->form->kind;
    if (value_dict_new(body, &row->arena, p->err))
        return -1;
    if (row->kind == ROW_COMPLETION)
        return value_dict_set(&row->arena, body, "prompt", value_string(prompt), p->err);
    return value_list_new(&messages, &row->arena, p->err) ||
           (p->form->system.data && push_message(row, &messages, "system", p->form->system, p->err)) ||
           push_message(row, &messages, "user", prompt, p->err) ||
           value_dict_set(&row->arena, body, "messages", messages, p->err);
}

static int body_of_template(struct parse *p, const struct value *fields, struct str form, struct value *body)
{
    struct text text = {0};
    struct value prompt = VALUE_LIT("");
    int status = fill_template(fields, form, &text, p->err);
    if (!status && text.size)
        status = value_string_copy(&prompt, &p->row->arena, (struct str){text.data, text.size}, p->err);
    text_free(&text);
    return status ? -1 : make_body(p, prompt.text, body);
}

// --- records ---

// The reader counts lines from the record's own beginning, which is one line of the file.
static int name_line(struct parse *p)
{
    static const char first[] = "line 1, ";
    char said[ERR_TEXT];
    snprintf(said, sizeof said, "%s", p->err->text);
    const bool counted = !strncmp(said, first, strlen(first));
    return fail(p->err, E_USAGE, "line %lld, %s", (long long)p->line, counted ? said + strlen(first) : said);
}

static int parse_json(struct parse *p, struct str text, struct value *out)
{
    struct json_reader reader = {.arena = &p->row->arena, .flags = JSON_INPUT};
    p->code = "invalid_json";
    if (json_read(out, &reader, text, p->err))
        return p->err->code == E_USAGE ? name_line(p) : -1;
    p->code = "invalid_request";
    return out->kind == VALUE_DICT ? 0
                                   : fail(p->err, E_USAGE, "line %lld: %s where an object is wanted",
                                          (long long)p->line, value_kind_name(out));
}

static int take_url(struct parse *p, const struct value *line)
{
    static const struct {
        const char *url;
        enum row_kind kind;
    } urls[] = {
        {"/v1/chat/completions", ROW_CHAT}, {"/v1/completions", ROW_COMPLETION}, {"/v1/embeddings", ROW_EMBEDDING}};
    const struct value *url = get(line, "url"), *method = get(line, "method");
    if (method && !(method->kind == VALUE_STRING && str_equal_z(method->text, "POST")))
        return fail(p->err, E_USAGE, "method: only POST is supported");
    if (!value_is(url, VALUE_STRING))
        return fail(p->err, E_USAGE, "url is missing");
    for (size_t i = 0; i < COUNT_OF(urls); i++)
        if (str_equal_z(url->text, urls[i].url)) {
            p->row->kind = urls[i].kind;
            return 0;
        }
    p->code = "invalid_url";
    return fail(p->err, E_USAGE, "url: \"%.*s\" is none of /v1/chat/completions, /v1/completions, /v1/embeddings",
                STR_ARG(url->text));
}

// Parses OpenAI's batch line, an object with a body.
static int parse_batch_line(struct parse *p, const struct value *line)
{
    const struct value *body = get(line, "body");
    if (!get(line, "custom_id"))
        return fail(p->err, E_USAGE, "custom_id is missing");
    if (set_id(p, get(line, "custom_id")) || take_url(p, line))
        return -1;
    if (!value_is(body, VALUE_DICT))
        return fail(p->err, E_USAGE, "body: an object is wanted");
    return take_body(p->row, body, p->err);
}

static bool is_batch_line(const struct parse *p, const struct value *object)
{
    return !p->form->prompt.data && (get(object, "body") || get(object, "url"));
}

static int take_any_id(struct parse *p, const struct value *object)
{
    const struct value *id = get(object, "custom_id");
    if (!id)
        id = get(object, "id");
    return id ? set_id(p, id) : set_own_id(p);
}

// Parses an object that is its own body: every member but the id is a field.
static int parse_bare_body(struct parse *p, const struct value *object)
{
    struct value body;
    if (value_dict_new(&body, &p->row->arena, p->err))
        return -1;
    for (size_t i = 0; i < object->dict->n; i++) {
        const struct value_entry *e = &object->dict->entries[i];
        if (!str_equal_z(e->key.text, "custom_id") && !str_equal_z(e->key.text, "id") &&
            value_dict_put(&p->row->arena, &body, e->key, e->value, p->err))
            return -1;
    }
    p->row->kind = get(object, "messages") ? ROW_CHAT : ROW_COMPLETION;
    return take_body(p->row, &body, p->err);
}

static int parse_object(struct parse *p, struct str text)
{
    struct value object, body;
    if (parse_json(p, text, &object))
        return -1;
    if (is_batch_line(p, &object))
        return parse_batch_line(p, &object);
    if (take_any_id(p, &object))
        return -1;
    if (p->form->prompt.data)
        return body_of_template(p, &object, p->form->prompt, &body) || take_body(p->row, &body, p->err);
    if (get(&object, "prompt") || get(&object, "messages"))
        return parse_bare_body(p, &object);
    const struct value *prompt = get(&object, "text");
    if (!value_is(prompt, VALUE_STRING))
        return fail(p->err, E_USAGE,
                    "neither a batch line nor an object with a prompt, messages or text; --template "
                    "makes a prompt of other fields");
    return make_body(p, prompt->text, &body) || take_body(p->row, &body, p->err);
}

enum { FIELDS_MOST = 1024 };

static int parse_columns(struct parse *p, struct str text)
{
    struct str fields[FIELDS_MOST];
    struct value object, body;
    int n = batch_split_fields(text, p->form->format, &p->row->arena, fields, FIELDS_MOST, p->err);
    if (n < 0 || value_dict_new(&object, &p->row->arena, p->err))
        return -1;
    for (int i = 0; i < MIN(n, p->form->n_fields); i++)
        if (value_dict_put(&p->row->arena, &object, value_string(p->form->fields[i]), value_string(fields[i]), p->err))
            return -1;
    const struct value *id = value_get(&object, "custom_id");
    id = id ? id : value_get(&object, "id");
    if (value_is(id, VALUE_STRING) && id->text.len ? set_id(p, id) : set_own_id(p))
        return -1;
    if (n != p->form->n_fields) {
        p->code = "invalid_row";
        return fail(p->err, E_USAGE, "%d fields, the header has %d", n, p->form->n_fields);
    }
    struct str form = p->form->prompt.data ? p->form->prompt : STR_LIT("{{text}}");
    return body_of_template(p, &object, form, &body) || take_body(p->row, &body, p->err);
}

static int parse_line(struct parse *p, struct str text)
{
    struct value object, body;
    if (set_own_id(p))
        return -1;
    if (!p->form->prompt.data)
        return make_body(p, text, &body) || take_body(p->row, &body, p->err);
    return value_dict_new(&object, &p->row->arena, p->err) ||
           value_dict_set(&p->row->arena, &object, "text", value_string(text), p->err) ||
           body_of_template(p, &object, p->form->prompt, &body) || take_body(p->row, &body, p->err);
}

// Copies the record's bytes, of which the row keeps views: the buffer is reused for the next record.
static int copy_record(struct batch_row *row, const struct record *record, struct str *text, struct error *err)
{
    char *copy = arena_alloc(&row->arena, record->bytes.len, 1);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for a row of %zu bytes", record->bytes.len);
    memcpy(copy, record->bytes.data, record->bytes.len);
    *text = (struct str){copy, record->bytes.len};
    return 0;
}

static int parse_record(struct parse *p, const struct record *record)
{
    struct str text;
    p->row->number = record->number;
    p->code = "invalid_row";
    if (record->is_too_long)
        return fail(p->err, E_USAGE, "line %lld: longer than %d MiB", (long long)record->line, RECORD_MOST >> 20);
    if (record->is_open)
        return fail(p->err, E_USAGE, "line %lld: a quote that nothing closes", (long long)record->line);
    p->code = "invalid_utf8";
    if (!utf8_valid(record->bytes))
        return fail(p->err, E_USAGE, "line %lld: not UTF-8", (long long)record->line);
    p->code = "invalid_request";
    if (p->form->format == FORMAT_JSONL)
        return parse_object(p, record->bytes);
    if (copy_record(p->row, record, &text, p->err))
        return -1;
    return p->form->format == FORMAT_LINES ? parse_line(p, text) : parse_columns(p, text);
}

int batch_row_parse(struct batch_row *row, const struct record *record, const struct row_form *form, const char **code,
                    struct error *err)
{
    struct parse p = {.row = row, .form = form, .line = record->line, .err = err};
    row->ignore_unknown = form->ignore_unknown;
    if (!parse_record(&p, record))
        return 0;
    *code = p.code;
    return -1;
}

void batch_row_free(struct batch_row *row)
{
    arena_free(&row->arena);
    *row = (struct batch_row){0};
}

int batch_row_columns(const struct record *record, enum batch_format format, struct arena *arena,
                      const struct str **fields, int *n_fields, struct error *err)
{
    struct str views[FIELDS_MOST];
    struct str *kept = NULL;
    char *text = arena_alloc(arena, record->bytes.len, 1);
    if (text)
        memcpy(text, record->bytes.data, record->bytes.len);
    if (!utf8_valid(record->bytes) || record->is_too_long || record->is_open)
        return fail(err, E_USAGE, "line %lld: no header of columns", (long long)record->line);
    int n =
        text ? batch_split_fields((struct str){text, record->bytes.len}, format, arena, views, FIELDS_MOST, err) : -1;
    if (n > FIELDS_MOST)
        return fail(err, E_USAGE, "line %lld: %d columns, limit %d", (long long)record->line, n, FIELDS_MOST);
    if (n >= 0)
        kept = ARENA_ARRAY(arena, struct str, (size_t)n);
    if (!kept)
        return fail(err, E_MEMORY, "no memory for the header");
    memcpy(kept, views, (size_t)n * sizeof *kept);
    *fields = kept;
    *n_fields = n;
    return 0;
}
