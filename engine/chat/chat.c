// Builds the values that templates expect from the messages of a request, and renders the template with them. What a
// template supports is found out when it is opened: short dialogues that contain a probe word are rendered, with a
// limit of PROBE_STEPS steps each, and the output is searched for the word.
#include "engine/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/chat/jinja.h"
#include "engine/chat/messages.h"
#include "engine/json.h"

struct chat_template {
    struct jinja_template *jinja;
    const struct tokenizer *tokenizer;
    char *source;
    size_t n_source;
    struct chat_abilities can;
    struct message_form form;
    bool probed; // false as soon as memory runs out while it is found out what the template supports
};

const struct str chat_template_chatml = {
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    sizeof("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
           "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}") -
        1};

// ---- The context ----

static int set_token(const struct chat_template *t, struct making *m, struct value *context, const char *name,
                     enum token_role role)
{
    int32_t id = t->tokenizer ? tokenizer_role(t->tokenizer, role) : -1;
    struct str text = id >= 0 ? tokenizer_text(t->tokenizer, id) : STR_LIT("");
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

static int make_context(const struct chat_template *t, struct making *m, const struct chat_request *r,
                        struct value *context)
{
    struct value messages, tools;
    if (messages_make(m, r->messages, &messages) || value_dict_new(context, &m->arena, m->err) ||
        set_kwargs(m, context, r->kwargs) || set_token(t, m, context, "bos_token", TOKEN_BOS) ||
        set_token(t, m, context, "eos_token", TOKEN_EOS) || set_token(t, m, context, "pad_token", TOKEN_PAD) ||
        set_token(t, m, context, "unk_token", TOKEN_UNK) ||
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
    struct making m = {.form = &t->form, .err = err ? err : &local};
    *m.err = (struct error){0};
    struct value context;
    struct jinja_options o = {.max_steps = max_steps};
    time_t clock = r->now ? r->now : time(NULL);
    localtime_r(&clock, &o.now);
    int status = make_context(t, &m, r, &context);
    if (!status && jinja_render(t->jinja, &context, &o, out, m.err)) {
        status = -1;
        if (m.err->code == E_MODEL)
            fail_prefix(m.err, "chat template");
    }
    arena_free(&m.arena);
    return status;
}

// ---- What reaches the prompt ----
//
// A template that does not know a role, or a field, leaves its text out without a word. So the text of each message, the
// names of called functions and those of tools are searched for in the prompt. Templates may change texts, for example
// drop reasoning, and short texts may be elsewhere in the prompt by chance: in doubt the messages are rendered again with
// a word of its own in the place of each text, which the template writes or does not.

enum { TEXT_IS_SURE = 24 }; // bytes of a text that is not in a prompt by chance

static bool reaches(const struct jinja_output *out, struct str text)
{
    return text.len == 0 || (out->size >= text.len && memmem(out->text, out->size, text.data, text.len));
}

// The same for texts that mostly follow each other: *at is where the last one ended.
static bool reaches_behind(const struct jinja_output *out, struct str text, size_t *at)
{
    const char *found =
        text.len && out->size > *at ? memmem(out->text + *at, out->size - *at, text.data, text.len) : NULL;
    if (found)
        *at = (size_t)(found - out->text) + text.len;
    return found || reaches(out, text);
}

static struct str role_of(const struct value *message)
{
    const struct value *role = value_get(message, "role");
    return value_is(role, VALUE_STRING) ? role->text : STR_LIT("");
}

// How many texts of a message must reach the prompt: none where a template may leave them out, as beside calls, where some
// have the content as a thought.
static size_t needed_texts(const struct value *message)
{
    return value_count(value_get(message, "tool_calls")) ? 0 : message_parts(value_get(message, "content"));
}

static struct str needed_text(const struct value *message, size_t part)
{
    return str_stripped(message_part(value_get(message, "content"), part));
}

static bool is_certain(const struct value *message, const struct jinja_output *out, size_t *at)
{
    const struct str role = role_of(message);
    const bool plain = str_equal_z(role, "user") || str_equal_z(role, "assistant");
    bool certain = !value_count(value_get(message, "tool_calls"));
    for (size_t i = 0; certain && i < needed_texts(message); i++) {
        const struct str text = needed_text(message, i);
        certain = text.len == 0 || ((plain || text.len >= TEXT_IS_SURE) && reaches_behind(out, text, at));
    }
    return certain;
}

// Whether the template writes the words that stand for the texts of message i, and those for the calls in it.
static int check_marks(const struct value *message, size_t i, const struct jinja_output *marked, size_t *at,
                       struct error *err)
{
    const struct str role = role_of(message);
    for (size_t k = 0; k < needed_texts(message); k++)
        if (needed_text(message, k).len && !reaches_behind(marked, str_from(message_mark(i, k).text), at))
            return fail(
                err, E_USAGE,
                "messages: what number %zu, role %.*s, says would not reach the model: the chat template leaves it "
                "out",
                i, (int)MIN(role.len, (size_t)32), role.data);
    for (size_t k = 0; k < value_count(value_get(message, "tool_calls")); k++)
        if (!reaches_behind(marked, str_from(message_call_mark(i, k).text), at))
            return fail(
                err, E_USAGE,
                "messages: the tool calls of number %zu would not reach the model: the chat template leaves them "
                "out",
                i);
    return 0;
}

static int check_messages(const struct chat_template *t, const struct chat_request *r, struct error *err)
{
    struct arena arena = {0};
    struct value messages;
    struct jinja_output marked = {0};
    struct chat_request again = *r;
    struct error why;
    size_t at = 0;
    again.messages = &messages;
    int status = messages_mark(&arena, r->messages, &messages, err);
    const bool rendered = !status && !render(t, &again, 0, &marked, &why);
    for (size_t i = 0; rendered && !status && i < r->messages->list->n; i++)
        status = check_marks(&r->messages->list->items[i], i, &marked, &at, err);
    // A template may refuse such words, which proves nothing.
    if (!status && !rendered && why.code == E_MEMORY)
        status = fail(err, E_MEMORY, "%s", why.text);
    jinja_output_free(&marked);
    arena_free(&arena);
    return status;
}

static int check_reached(const struct chat_template *t, const struct chat_request *r, const struct jinja_output *out,
                         struct error *err)
{
    bool certain = true;
    size_t at = 0;
    for (size_t i = 0; i < r->messages->list->n; i++)
        certain = certain && is_certain(&r->messages->list->items[i], out, &at);
    for (size_t i = 0; i < value_count(r->tools); i++) {
        const struct value *function = value_get(&r->tools->list->items[i], "function");
        const struct value *name = value_get(function ? function : &r->tools->list->items[i], "name");
        if (value_is(name, VALUE_STRING) && !reaches(out, name->text))
            return fail(err, E_USAGE, "tools: %.*s would not reach the model: the chat template leaves it out",
                        (int)MIN(name->text.len, (size_t)64), name->text.data);
    }
    return certain ? 0 : check_messages(t, r, err);
}

// ---- A message that the answer continues ----

// The offset of the last place where the template has written this text of a message; SIZE_MAX if it has not. The
// template's own text may hold the same words.
static size_t last_place(const struct jinja_output *out, struct str text)
{
    for (size_t at = out->size >= text.len ? out->size - text.len + 1 : 0; at-- > 0;)
        if (!memcmp(out->text + at, text.data, text.len) && !memchr(out->marks + at, 0, text.len))
            return at;
    return SIZE_MAX;
}

// Cuts the prompt behind the text of the last message, with the white space at its end if the template keeps that, as
// apply_chat_template(continue_final_message=True) of transformers does.
static int cut_behind_final(const struct chat_request *r, struct jinja_output *out, struct error *err)
{
    const struct value *last = &r->messages->list->items[r->messages->list->n - 1],
                       *content = value_get(last, "content");
    const size_t n = message_parts(content);
    const struct str whole = n ? message_part(content, n - 1) : STR_LIT(""), text = str_stripped(whole);
    if (!text.len)
        return fail(err, E_USAGE, "messages: the last one has no text that could be continued");
    size_t at = last_place(out, text);
    if (at == SIZE_MAX)
        return fail(err, E_USAGE,
                    "messages: the last one cannot be continued: the chat template does not write it as it is");
    const bool kept = out->size - at >= whole.len && !memcmp(out->text + at, whole.data, whole.len);
    out->size = at + (kept ? whole.len : text.len);
    return 0;
}

int chat_render(const struct chat_template *t, const struct chat_request *r, struct token_list *out, struct text *plain,
                struct error *err)
{
    struct jinja_output text = {0};
    size_t before = out->n;
    int status = render(t, r, 0, &text, err) || check_reached(t, r, &text, err) ||
                         (r->continue_final && cut_behind_final(r, &text, err))
                     ? -1
                     : 0;
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
static struct jinja_output probe(struct chat_template *t, const char *messages, const char *tools, int thinking)
{
    struct arena arena = {0};
    struct error err = {0};
    struct value m, k;
    struct json_reader reader = {.arena = &arena};
    struct jinja_output out = {0};
    struct chat_request r = {.messages = &m, .add_generation_prompt = true, .thinking = thinking, .now = 1};
    if (!json_read(&m, &reader, str_from(messages), &err) &&
        (!tools || !json_read(&k, &reader, str_from(tools), &err))) {
        r.tools = tools ? &k : NULL;
        render(t, &r, PROBE_STEPS, &out, &err);
    }
    t->probed = t->probed && err.code != E_MEMORY;
    arena_free(&arena);
    return out;
}

static bool holds(const struct jinja_output *out, const char *word)
{
    return out->text && strstr(out->text, word);
}

static bool probe_holds(struct chat_template *t, const char *messages, const char *tools, const char *word,
                        const char *without)
{
    struct jinja_output out = probe(t, messages, tools, 0);
    bool yes = holds(&out, word) && !(without && holds(&out, without));
    jinja_output_free(&out);
    return yes;
}

static bool thinking_matters(struct chat_template *t)
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

#define PROBE_PART "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"xproberx\"}]}]"
#define PROBE_ROLE(role)                                                                                               \
    "[{\"role\": \"" role "\", \"content\": \"xproberx\"}, {\"role\": \"user\", \"content\": \"Hi\"}]"

// How messages must look. What has not been probed yet is passed as it is.
static void find_form(struct chat_template *t)
{
    struct message_form *f = &t->form;
    *f = (struct message_form){.strings = true, .parts = true, .system = true, .developer = true};
    f->parts =
        probe_holds(t, PROBE_PART, NULL, "xproberx", "'text'") && !probe_holds(t, PROBE_PART, NULL, "\"text\"", NULL);
    f->strings =
        !f->parts || probe_holds(t, "[{\"role\": \"user\", \"content\": \"xproberx\"}]", NULL, "xproberx", NULL);
    f->system = probe_holds(t, PROBE_ROLE("system"), NULL, "xproberx", NULL);
    f->developer = probe_holds(t, PROBE_ROLE("developer"), NULL, "xproberx", NULL);
    if (!probe_holds(t, PROBE_CALL("\"\""), PROBE_TOOLS, "xproberx", "{'a'")) {
        f->text_arguments = true;
        f->text_arguments = probe_holds(t, PROBE_CALL("\"\""), PROBE_TOOLS, "xproberx", NULL);
    }
    struct jinja_output none = probe(t, PROBE_CALL("null"), PROBE_TOOLS, 0);
    f->empty_content = !none.text || holds(&none, "None");
    jinja_output_free(&none);
}

static void find_abilities(struct chat_template *t)
{
    find_form(t);
    t->can = (struct chat_abilities){.system = t->form.system, .parts = t->form.parts};
    t->can.tools = probe_holds(t, "[{\"role\": \"user\", \"content\": \"Hi\"}]", PROBE_TOOLS, "xproberx", NULL);
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
    t->probed = true;
    find_abilities(t);
    if (!t->probed) {
        chat_close(t);
        return fail(err, E_MEMORY, "no memory for a chat template of %zu bytes", source.len);
    }
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
