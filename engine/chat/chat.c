// Builds the values that templates expect from the messages of a request, and renders the template with them. What a
// template supports is found out when it is opened: short dialogues that contain a probe word are rendered, with a
// limit of PROBE_STEPS steps each, and the output is searched for the word.
#include "engine/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/chat/jinja.h"
#include "engine/json.h"

struct chat_template {
    struct jinja_template *jinja;
    const struct tokenizer *tokenizer;
    char *source;
    size_t n_source;
    struct chat_abilities can;
    bool text_arguments; // arguments of tool calls must be passed as JSON text
    bool empty_content;  // messages without content must be passed with an empty one
};

const struct str chat_template_chatml = {
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    sizeof("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
           "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}") -
        1};

// ---- Messages, in the form that templates expect ----

// The state of building the values for one rendering.
struct making {
    const struct chat_template *t;
    struct arena arena;
    struct error *err;
};

// Roles that templates write between their own marks, as in <|user|>, count as template text. All other roles are
// input.
static bool is_known_role(struct str role)
{
    static const char *const known[] = {"system",   "user",      "assistant",   "tool",  "developer",
                                        "function", "ipython",   "observation", "model", "environment",
                                        "tools",    "documents", "context"};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (str_equal_z(role, known[i]))
            return true;
    return false;
}

static bool is_text_part(const struct value *part)
{
    const struct value *type = value_get(part, "type"), *text = value_get(part, "text");
    return value_is(text, VALUE_STRING) && (!type || (value_is(type, VALUE_STRING) && str_equal_z(type->text, "text")));
}

// Concatenates the texts of all parts. E_USAGE if a part is not text.
static int join_parts(struct making *m, const struct value *parts, struct value *out)
{
    struct text all = {0};
    int status = 0;
    for (size_t i = 0; i < value_count(parts) && !status; i++) {
        const struct value *part = &parts->list->items[i];
        if (part->kind == VALUE_STRING)
            text_append(&all, part->text);
        else if (is_text_part(part))
            text_append(&all, value_get(part, "text")->text);
        else
            status = fail(m->err, E_USAGE,
                          "content: part %zu is no text, and the model's chat template takes text alone", i);
    }
    if (!status && all.failed)
        status = fail(m->err, E_MEMORY, "no memory for a message");
    if (!status)
        status = value_string_copy(out, &m->arena, (struct str){all.data ? all.data : "", all.size}, m->err);
    out->origin = ORIGIN_INPUT;
    text_free(&all);
    return status;
}

static int make_content(struct making *m, const struct value *content, struct value *out)
{
    if (content->kind == VALUE_LIST && !m->t->can.parts)
        return join_parts(m, content, out);
    if (content->kind == VALUE_NONE && m->t->empty_content) {
        *out = VALUE_LIT("");
        return 0;
    }
    return value_mark_input(out, &m->arena, content, m->err);
}

// The arguments of a call are JSON text (as in OpenAI's API) or a dict; the template gets the form that it takes.
static int make_arguments(struct making *m, const struct value *given, struct value *out)
{
    struct value read;
    struct error ignored;
    struct json_reader reader = {.arena = &m->arena, .flags = JSON_INPUT | JSON_NAN};
    if (given->kind == VALUE_STRING && !m->t->text_arguments) {
        *out = *given;
        out->origin = ORIGIN_INPUT;
        if (!json_read(&read, &reader, given->text, &ignored) && read.kind == VALUE_DICT)
            *out = read;
        return 0;
    }
    if (given->kind == VALUE_STRING || !m->t->text_arguments)
        return value_mark_input(out, &m->arena, given, m->err);
    struct text json = {0};
    int status = json_write_text(given, NULL, &json, m->err);
    if (!status)
        status = value_string_copy(out, &m->arena, (struct str){json.data, json.size}, m->err);
    out->origin = ORIGIN_INPUT;
    text_free(&json);
    return status;
}

typedef int make_fn(struct making *m, const struct value *given, struct value *out);

// Copies a dict, marked as input, with the value of `key` made by `make`. Keys stay unmarked so that they can be
// compared.
static int copy_with(struct making *m, const struct value *dict, const char *key, make_fn *make, struct value *out)
{
    if (dict->kind != VALUE_DICT)
        return value_mark_input(out, &m->arena, dict, m->err);
    if (value_dict_new(out, &m->arena, m->err))
        return -1;
    out->origin = ORIGIN_INPUT;
    for (size_t i = 0; i < dict->dict->n; i++) {
        const struct value_entry *e = &dict->dict->entries[i];
        struct value k, v;
        bool this_one = e->key.kind == VALUE_STRING && str_equal_z(e->key.text, key);
        if (value_mark_input(&k, &m->arena, &e->key, m->err) ||
            (this_one ? make(m, &e->value, &v) : value_mark_input(&v, &m->arena, &e->value, m->err)) ||
            value_dict_put(&m->arena, out, k, v, m->err))
            return -1;
    }
    return 0;
}

static int make_function(struct making *m, const struct value *given, struct value *out)
{
    return copy_with(m, given, "arguments", make_arguments, out);
}

static int make_calls(struct making *m, const struct value *given, struct value *out)
{
    if (given->kind != VALUE_LIST)
        return value_mark_input(out, &m->arena, given, m->err);
    if (value_list_new(out, &m->arena, m->err))
        return -1;
    out->origin = ORIGIN_INPUT;
    for (size_t i = 0; i < given->list->n; i++) {
        struct value call;
        if (copy_with(m, &given->list->items[i], "function", make_function, &call) ||
            value_list_push(&m->arena, out, call, m->err))
            return -1;
    }
    return 0;
}

static int make_field(struct making *m, const struct value_entry *e, struct value *out)
{
    struct str key = e->key.text;
    if (str_equal_z(key, "role") && e->value.kind == VALUE_STRING) {
        *out = e->value;
        out->origin = is_known_role(e->value.text) ? ORIGIN_OWN : ORIGIN_INPUT;
        return 0;
    }
    if (str_equal_z(key, "content"))
        return make_content(m, &e->value, out);
    if (str_equal_z(key, "tool_calls"))
        return make_calls(m, &e->value, out);
    return value_mark_input(out, &m->arena, &e->value, m->err);
}

static int make_message(struct making *m, const struct value *given, size_t i, struct value *out)
{
    const struct value *role = value_get(given, "role");
    if (!value_is(role, VALUE_STRING))
        return fail(m->err, E_USAGE, "messages: number %zu is no object with a role", i);
    if (value_dict_new(out, &m->arena, m->err))
        return -1;
    out->origin = ORIGIN_INPUT;
    for (size_t k = 0; k < given->dict->n; k++) {
        const struct value_entry *e = &given->dict->entries[k];
        struct value v, key;
        if (e->key.kind != VALUE_STRING || value_mark_input(&key, &m->arena, &e->key, m->err) || make_field(m, e, &v) ||
            value_dict_put(&m->arena, out, key, v, m->err))
            return -1;
    }
    if (!value_get(given, "content") && m->t->empty_content)
        return value_dict_set(&m->arena, out, "content", VALUE_LIT(""), m->err);
    return 0;
}

static bool has_role(const struct value *message, const char *role)
{
    const struct value *r = value_get(message, "role");
    return value_is(r, VALUE_STRING) && str_equal_z(r->text, role);
}

// Prepends the text of the system message to the first user message, for templates that do not support system
// messages.
static int fold_system(struct making *m, struct value *messages)
{
    struct value folded;
    const struct value *system = value_count(messages) ? &messages->list->items[0] : NULL;
    if (!has_role(system, "system") || value_count(messages) < 2 || value_list_new(&folded, &m->arena, m->err))
        return m->err->code ? -1 : 0;
    const struct value *text = value_get(system, "content"), *content;
    bool done = false;
    for (size_t i = 1; i < messages->list->n; i++) {
        struct value message = messages->list->items[i];
        content = value_get(&message, "content");
        if (!done && has_role(&message, "user") && value_is(content, VALUE_STRING) && value_is(text, VALUE_STRING)) {
            struct text both = {0};
            struct value v;
            text_append(&both, text->text);
            text_append(&both, STR_LIT("\n\n"));
            text_append(&both, content->text);
            int status = both.failed ? fail(m->err, E_MEMORY, "no memory for a message")
                                     : value_string_copy(&v, &m->arena, (struct str){both.data, both.size}, m->err);
            text_free(&both);
            v.origin = ORIGIN_INPUT;
            if (status || value_dict_set(&m->arena, &message, "content", v, m->err))
                return -1;
            done = true;
        }
        if (value_list_push(&m->arena, &folded, message, m->err))
            return -1;
    }
    if (done)
        *messages = folded;
    return 0;
}

static int make_messages(struct making *m, const struct value *given, struct value *out)
{
    if (!value_is(given, VALUE_LIST))
        return fail(m->err, E_USAGE, "messages: a list of {role, content} is wanted");
    if (value_list_new(out, &m->arena, m->err))
        return -1;
    out->origin = ORIGIN_INPUT;
    for (size_t i = 0; i < given->list->n; i++) {
        struct value message;
        if (make_message(m, &given->list->items[i], i, &message) || value_list_push(&m->arena, out, message, m->err))
            return -1;
    }
    return m->t->can.system ? 0 : fold_system(m, out);
}

// ---- The context ----

static int set_token(struct making *m, struct value *context, const char *name, enum token_role role)
{
    int32_t id = m->t->tokenizer ? tokenizer_role(m->t->tokenizer, role) : -1;
    struct str text = id >= 0 ? tokenizer_text(m->t->tokenizer, id) : STR_LIT("");
    return value_dict_set(&m->arena, context, name, value_string(text), m->err);
}

static int set_kwargs(struct making *m, struct value *context, const struct value *kwargs)
{
    if (kwargs && kwargs->kind != VALUE_DICT)
        return fail(m->err, E_USAGE, "the variables for a chat template are no object");
    for (size_t i = 0; i < value_count(kwargs); i++) {
        const struct value_entry *e = &kwargs->dict->entries[i];
        struct value v;
        if (value_mark_input(&v, &m->arena, &e->value, m->err) || value_dict_put(&m->arena, context, e->key, v, m->err))
            return -1;
    }
    return 0;
}

static int make_context(struct making *m, const struct chat_request *r, struct value *context)
{
    struct value messages, tools;
    if (make_messages(m, r->messages, &messages) || value_dict_new(context, &m->arena, m->err) ||
        set_kwargs(m, context, r->kwargs) || set_token(m, context, "bos_token", TOKEN_BOS) ||
        set_token(m, context, "eos_token", TOKEN_EOS) || set_token(m, context, "pad_token", TOKEN_PAD) ||
        set_token(m, context, "unk_token", TOKEN_UNK) ||
        value_dict_set(&m->arena, context, "messages", messages, m->err) ||
        value_dict_set(&m->arena, context, "add_generation_prompt", value_bool(r->add_generation_prompt), m->err))
        return -1;
    if (value_count(r->tools) && (value_mark_input(&tools, &m->arena, r->tools, m->err) ||
                                  value_dict_set(&m->arena, context, "tools", tools, m->err)))
        return -1;
    struct value think = value_bool(r->thinking > 0); // families use different names
    return r->thinking && (value_dict_set(&m->arena, context, "enable_thinking", think, m->err) ||
                           value_dict_set(&m->arena, context, "thinking", think, m->err))
               ? -1
               : 0;
}

static int render(const struct chat_template *t, const struct chat_request *r, int64_t max_steps,
                  struct jinja_output *out, struct error *err)
{
    struct error local;
    struct making m = {.t = t, .err = err ? err : &local};
    *m.err = (struct error){0};
    struct value context;
    struct jinja_options o = {.max_steps = max_steps};
    time_t clock = r->now ? r->now : time(NULL);
    localtime_r(&clock, &o.now);
    int status = make_context(&m, r, &context);
    if (!status && jinja_render(t->jinja, &context, &o, out, m.err)) {
        status = -1;
        if (m.err->code == E_MODEL)
            fail_prefix(m.err, "chat template");
    }
    arena_free(&m.arena);
    return status;
}

int chat_render(const struct chat_template *t, const struct chat_request *r, struct token_list *out, struct text *plain,
                struct error *err)
{
    struct jinja_output text = {0};
    size_t before = out->n;
    int status = render(t, r, 0, &text, err);
    bool bos = tokenizer_adds_bos(t->tokenizer);
    int32_t bos_id = tokenizer_role(t->tokenizer, TOKEN_BOS);
    if (!status && bos)
        status = token_list_push(out, bos_id, err);
    if (!status)
        status = tokenizer_encode_marked(t->tokenizer, (struct str){text.text, text.size}, text.marks, 0, out, err);
    if (!status && bos && out->n > before + 1 && out->ids[before + 1] == bos_id) { // the template has also written it
        out->n--;
        memmove(out->ids + before, out->ids + before + 1, (out->n - before) * sizeof *out->ids);
    }
    if (!status && plain) {
        text_append(plain, (struct str){text.text, text.size});
        status = plain->failed ? fail(err, E_MEMORY, "no memory for a prompt of %zu bytes", text.size) : 0;
    }
    if (status)
        out->n = before;
    jinja_output_free(&text);
    return status;
}

// ---- Finding out what a template supports ----

enum { PROBE_STEPS = 200000 }; // a well-behaved template takes a few thousand

// Renders a dialogue given as JSON; the output is empty if the template refuses it.
static struct jinja_output probe(const struct chat_template *t, const char *messages, const char *tools, int thinking)
{
    struct arena arena = {0};
    struct error err;
    struct value m, k;
    struct json_reader reader = {.arena = &arena};
    struct jinja_output out = {0};
    struct chat_request r = {.messages = &m, .add_generation_prompt = true, .thinking = thinking, .now = 1};
    if (!json_read(&m, &reader, str_from(messages), &err) &&
        (!tools || !json_read(&k, &reader, str_from(tools), &err))) {
        r.tools = tools ? &k : NULL;
        render(t, &r, PROBE_STEPS, &out, &err);
    }
    arena_free(&arena);
    return out;
}

static bool holds(const struct jinja_output *out, const char *word)
{
    return out->text && strstr(out->text, word);
}

static bool probe_holds(const struct chat_template *t, const char *messages, const char *tools, const char *word,
                        const char *without)
{
    struct jinja_output out = probe(t, messages, tools, 0);
    bool yes = holds(&out, word) && !(without && holds(&out, without));
    jinja_output_free(&out);
    return yes;
}

static bool thinking_matters(const struct chat_template *t)
{
    static const char hello[] = "[{\"role\": \"user\", \"content\": \"Hello\"}]";
    struct jinja_output on = probe(t, hello, NULL, 1), off = probe(t, hello, NULL, -1);
    bool yes = on.size != off.size || (on.size && memcmp(on.text, off.text, on.size));
    if (on.text) {
        struct answer_style style = chat_answer_style(t, (struct str){on.text, on.size}, false);
        yes = yes || style.in_reasoning;
    }
    jinja_output_free(&on);
    jinja_output_free(&off);
    return yes;
}

#define PROBE_TOOLS                                                                                                    \
    "[{\"type\": \"function\", \"function\": {\"name\": \"xproberx\", \"description\": \"d\", \"parameters\": "        \
    "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", \"description\": \"d\"}}, \"required\": "   \
    "[\"a\"]}}}]"
#define PROBE_CALL(content)                                                                                            \
    "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": " content ", \"tool_calls\": " \
    "[{\"id\": \"call00001\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": "         \
    "\"xproberx\"}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"f\", \"content\": \"ok\"}, " \
    "{\"role\": \"user\", \"content\": \"Hi\"}]"

static void find_abilities(struct chat_template *t)
{
    t->can = (struct chat_abilities){.system = true, .tools = true, .parts = true};
    t->can.parts =
        probe_holds(t, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"xproberx\"}]}]", NULL,
                    "xproberx", "'text'") &&
        !probe_holds(t, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"xproberx\"}]}]", NULL,
                     "\"text\"", NULL);
    t->can.system =
        probe_holds(t, "[{\"role\": \"system\", \"content\": \"xproberx\"}, {\"role\": \"user\", \"content\": \"Hi\"}]",
                    NULL, "xproberx", NULL);
    t->can.tools = probe_holds(t, "[{\"role\": \"user\", \"content\": \"Hi\"}]", PROBE_TOOLS, "xproberx", NULL);
    bool dicts = probe_holds(t, PROBE_CALL("\"\""), PROBE_TOOLS, "xproberx", "{'a'");
    if (!dicts) {
        t->text_arguments = true;
        t->text_arguments = probe_holds(t, PROBE_CALL("\"\""), PROBE_TOOLS, "xproberx", NULL);
    }
    struct jinja_output none = probe(t, PROBE_CALL("null"), PROBE_TOOLS, 0);
    t->empty_content = !none.text || holds(&none, "None");
    jinja_output_free(&none);
    t->can.thinking = thinking_matters(t);
}

struct chat_abilities chat_can(const struct chat_template *t)
{
    return t->can;
}

// ---- Opening ----

static void template_key(const char *name, char *key, size_t room)
{
    snprintf(key, room, "tokenizer.chat_template%s%s", name ? "." : "", name ? name : "");
}

bool chat_template_exists(const struct gguf *file, const char *name)
{
    char key[128];
    struct str source;
    template_key(name, key, sizeof key);
    return file && gguf_get_str(file, key, &source, NULL) == 1 && source.len > 0;
}

static int no_template(const struct gguf *file, const char *name, struct error *err)
{
    static const char prefix[] = "tokenizer.chat_template.";
    char names[200] = "";
    for (size_t i = 0; file && i < gguf_n_kv(file); i++) {
        struct str key = gguf_kv_at(file, i)->key;
        if (key.len >= sizeof prefix && !memcmp(key.data, prefix, sizeof prefix - 1))
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.*s", names[0] ? ", " : "",
                     (int)(key.len - sizeof prefix + 1), key.data + sizeof prefix - 1);
    }
    if (!name)
        return fail(err, E_MODEL, "the model has no chat template (tokenizer.chat_template)%s%s",
                    names[0] ? "; it has some with names: " : "", names);
    return fail(err, E_MODEL, "the model has no chat template named '%s'%s%s", name, names[0] ? "; it has " : "",
                names);
}

static int find_source(const struct gguf *file, const struct chat_choice *choice, struct str *source, struct error *err)
{
    char key[128];
    *source = choice->source;
    if (source->data)
        return 0;
    template_key(choice->name, key, sizeof key);
    if (!chat_template_exists(file, choice->name))
        return no_template(file, choice->name, err);
    return gguf_get_str(file, key, source, err) == 1 ? 0 : -1;
}

int chat_open(struct chat_template **out, const struct gguf *file, const struct tokenizer *tokenizer,
              const struct chat_choice *choice, struct error *err)
{
    struct str source;
    *out = NULL;
    if (find_source(file, choice, &source, err))
        return -1;
    struct chat_template *t = calloc(1, sizeof *t);
    char *copy = t ? malloc(source.len + 1) : NULL;
    if (!copy) {
        free(t);
        return fail(err, E_MEMORY, "no memory for a chat template of %zu bytes", source.len);
    }
    memcpy(copy, source.data, source.len);
    copy[source.len] = '\0';
    t->source = copy;
    t->n_source = source.len;
    t->tokenizer = tokenizer;
    if (jinja_parse(&t->jinja, source, err)) {
        chat_close(t);
        return fail_prefix(err, "chat template");
    }
    find_abilities(t);
    *out = t;
    return 0;
}

void chat_close(struct chat_template *t)
{
    if (t) {
        jinja_free(t->jinja);
        free(t->source);
        free(t);
    }
}

struct str chat_source(const struct chat_template *t)
{
    return (struct str){t->source, t->n_source};
}
