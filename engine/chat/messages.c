// Copies messages field by field, in the form that a template takes, with everything marked as input that came from
// outside.
#include "engine/chat/messages.h"

#include "engine/json.h"
#include "kernels/text.h"

#include <stdio.h>

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

// The text of a part: a string, {type: text, text} in any of OpenAI's names, or {type: refusal, refusal}.
static bool part_text(const struct value *part, struct str *out)
{
    if (part->kind == VALUE_STRING) {
        *out = part->text;
        return true;
    }
    static const char *const names[] = {"text", "input_text", "output_text"};
    const struct value *type = value_get(part, "type"), *text = value_get(part, "text");
    bool known = !type;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        known = known || (value_is(type, VALUE_STRING) && str_equal_z(type->text, names[i]));
    if (value_is(type, VALUE_STRING) && str_equal_z(type->text, "refusal")) {
        text = value_get(part, "refusal");
        known = true;
    }
    if (!known || !value_is(text, VALUE_STRING))
        return false;
    *out = text->text;
    return true;
}

size_t message_parts(const struct value *content)
{
    return value_is(content, VALUE_LIST) ? content->list->n : value_is(content, VALUE_STRING);
}

struct str message_part(const struct value *content, size_t i)
{
    struct str text = STR_LIT("");
    if (value_is(content, VALUE_STRING))
        return content->text;
    part_text(&content->list->items[i], &text);
    return text;
}

static int refuse_part(struct making *m, const struct value *part, size_t i)
{
    const struct value *type = value_get(part, "type");
    struct str name = value_is(type, VALUE_STRING) ? type->text : STR_LIT("an unknown type");
    return fail(m->err, E_USAGE, "content: part %zu is no text but %.*s; quern passes text alone to a model", i,
                (int)MIN(name.len, (size_t)64), name.data);
}

static int push_part(struct making *m, struct value *list, struct str text)
{
    struct value part, copy = value_string(text);
    copy.origin = ORIGIN_INPUT;
    if (value_dict_new(&part, &m->arena, m->err) ||
        value_dict_set(&m->arena, &part, "type", VALUE_LIT("text"), m->err) ||
        value_dict_set(&m->arena, &part, "text", copy, m->err))
        return -1;
    part.origin = ORIGIN_INPUT;
    return value_list_push(&m->arena, list, part, m->err);
}

// A list of parts {type: text, text}. E_USAGE if a part is not text.
static int make_parts(struct making *m, const struct value *parts, struct value *out)
{
    if (value_list_new(out, &m->arena, m->err))
        return -1;
    out->origin = ORIGIN_INPUT;
    for (size_t i = 0; i < value_count(parts); i++) {
        struct str text;
        if (!part_text(&parts->list->items[i], &text))
            return refuse_part(m, &parts->list->items[i], i);
        if (push_part(m, out, text))
            return -1;
    }
    return 0;
}

// Concatenates the texts of all parts. E_USAGE if a part is not text.
static int join_parts(struct making *m, const struct value *parts, struct value *out)
{
    struct text all = {0};
    struct str text;
    int status = 0;
    for (size_t i = 0; i < value_count(parts) && !status; i++) {
        if (part_text(&parts->list->items[i], &text))
            text_append(&all, text);
        else
            status = refuse_part(m, &parts->list->items[i], i);
    }
    if (!status && all.failed)
        status = fail(m->err, E_MEMORY, "no memory for a message");
    if (!status)
        status = value_string_copy(out, &m->arena, (struct str){all.data ? all.data : "", all.size}, m->err);
    out->origin = ORIGIN_INPUT;
    text_free(&all);
    return status;
}

static int make_string(struct making *m, struct str text, struct value *out)
{
    if (m->form->strings) {
        *out = value_string(text);
        out->origin = ORIGIN_INPUT;
        return 0;
    }
    if (value_list_new(out, &m->arena, m->err))
        return -1;
    out->origin = ORIGIN_INPUT;
    return text.len ? push_part(m, out, text) : 0;
}

static int make_content(struct making *m, const struct value *content, struct value *out)
{
    if (content->kind == VALUE_LIST)
        return m->form->parts ? make_parts(m, content, out) : join_parts(m, content, out);
    if (content->kind == VALUE_STRING)
        return make_string(m, content->text, out);
    if (content->kind == VALUE_NONE && (m->form->empty_content || !m->form->strings))
        return make_string(m, STR_LIT(""), out);
    return value_mark_input(out, &m->arena, content, m->err);
}

// Whether arguments say nothing: null, or text that is blank or "null".
static bool says_nothing(const struct value *arguments)
{
    if (arguments->kind != VALUE_STRING)
        return arguments->kind == VALUE_NONE;
    const struct str s = str_stripped(arguments->text);
    return s.len == 0 || str_equal_z(s, "null");
}

// The arguments of a call are JSON text (as in OpenAI's API) or a dict; the template gets the form that it takes. What
// says nothing is an empty object.
static int make_arguments(struct making *m, const struct value *given, struct value *out)
{
    const struct value empty = VALUE_LIT("{}");
    if (says_nothing(given))
        given = &empty;
    struct value read;
    struct error why;
    struct json_reader reader = {.arena = &m->arena, .flags = JSON_INPUT | JSON_NAN};
    if (given->kind == VALUE_STRING && !m->form->text_arguments) {
        *out = *given;
        out->origin = ORIGIN_INPUT;
        if (!json_read(&read, &reader, given->text, &why))
            *out = read.kind == VALUE_DICT ? read : *out;
        else if (why.code == E_MEMORY)
            return fail(m->err, E_MEMORY, "%s", why.text);
        return 0;
    }
    if (given->kind == VALUE_STRING || !m->form->text_arguments)
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
    struct value arguments;
    const struct value none = value_none();
    if (copy_with(m, given, "arguments", make_arguments, out))
        return -1;
    if (given->kind != VALUE_DICT || value_get(given, "arguments"))
        return 0;
    return make_arguments(m, &none, &arguments) || value_dict_set(&m->arena, out, "arguments", arguments, m->err);
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
        if (!m->form->developer && str_equal_z(e->value.text, "developer"))
            *out = VALUE_LIT("system");
        out->origin = is_known_role(out->text) ? ORIGIN_OWN : ORIGIN_INPUT;
        return 0;
    }
    if (str_equal_z(key, "content"))
        return make_content(m, &e->value, out);
    if (str_equal_z(key, "tool_calls"))
        return make_calls(m, &e->value, out);
    return value_mark_input(out, &m->arena, &e->value, m->err);
}

// Whether a field is as if it was not there: tool_calls of null, or an empty list.
static bool is_absent(const struct value_entry *e)
{
    return str_equal_z(e->key.text, "tool_calls") &&
           (e->value.kind == VALUE_NONE || (e->value.kind == VALUE_LIST && e->value.list->n == 0));
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
        if (e->key.kind == VALUE_STRING && is_absent(e))
            continue;
        if (e->key.kind != VALUE_STRING || value_mark_input(&key, &m->arena, &e->key, m->err) || make_field(m, e, &v) ||
            value_dict_put(&m->arena, out, key, v, m->err))
            return -1;
    }
    struct value empty;
    if (value_get(given, "content") || !m->form->empty_content)
        return 0;
    return make_string(m, STR_LIT(""), &empty) || value_dict_set(&m->arena, out, "content", empty, m->err) ? -1 : 0;
}

static bool has_role(const struct value *message, const char *role)
{
    const struct value *r = value_get(message, "role");
    return value_is(r, VALUE_STRING) && str_equal_z(r->text, role);
}

// Puts the text of a system message in front of that of a user message.
static int put_in_front(struct making *m, struct str system, struct value *message)
{
    const struct value *content = value_get(message, "content");
    struct text both = {0};
    struct value v;
    text_append(&both, system);
    text_append(&both, STR_LIT("\n\n"));
    if (value_is(content, VALUE_STRING))
        text_append(&both, content->text);
    int status = both.failed ? fail(m->err, E_MEMORY, "no memory for a message")
                             : value_string_copy(&v, &m->arena, (struct str){both.data, both.size}, m->err);
    text_free(&both);
    v.origin = ORIGIN_INPUT;
    if (!status && value_is(content, VALUE_LIST)) {
        struct value list;
        status = value_list_new(&list, &m->arena, m->err) || push_part(m, &list, v.text);
        for (size_t i = 0; !status && i < content->list->n; i++)
            status = value_list_push(&m->arena, &list, content->list->items[i], m->err);
        v = list;
        v.origin = ORIGIN_INPUT;
    }
    return status || value_dict_set(&m->arena, message, "content", v, m->err) ? -1 : 0;
}

// Prepends the text of the system message to the first user message, for templates that do not support system
// messages.
static int fold_system(struct making *m, struct value *messages)
{
    struct value folded, joined;
    const struct value *system = value_count(messages) ? &messages->list->items[0] : NULL;
    const struct value *content = value_get(system, "content");
    if (!has_role(system, "system") || value_count(messages) < 2 || !message_parts(content))
        return 0;
    if (content->kind == VALUE_LIST && join_parts(m, content, &joined))
        return -1;
    const struct str text = content->kind == VALUE_LIST ? joined.text : content->text;
    if (value_list_new(&folded, &m->arena, m->err))
        return -1;
    folded.origin = ORIGIN_INPUT;
    bool done = false;
    for (size_t i = 1; i < messages->list->n; i++) {
        struct value message = messages->list->items[i];
        if (!done && has_role(&message, "user")) {
            if (put_in_front(m, text, &message))
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

int messages_make(struct making *m, const struct value *given, struct value *out)
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
    return m->form->system ? 0 : fold_system(m, out);
}

// ---- Marks ----

struct message_mark message_mark(size_t message, size_t part)
{
    struct message_mark mark;
    snprintf(mark.text, sizeof mark.text, "xmessage%zux%zux", message, part);
    return mark;
}

struct message_mark message_call_mark(size_t message, size_t call)
{
    struct message_mark mark;
    snprintf(mark.text, sizeof mark.text, "xcall%zux%zux", message, call);
    return mark;
}

// A copy of a dict with another value of one of its keys.
static int copy_but(struct arena *arena, const struct value *dict, const char *key, struct value v, struct value *out,
                    struct error *err)
{
    if (value_dict_new(out, arena, err))
        return -1;
    for (size_t i = 0; i < dict->dict->n; i++) {
        const struct value_entry *e = &dict->dict->entries[i];
        if (value_dict_put(arena, out, e->key, e->value, err))
            return -1;
    }
    return value_dict_set(arena, out, key, v, err);
}

static int mark_calls(struct arena *arena, const struct value *calls, size_t message, struct value *out,
                      struct error *err)
{
    if (value_list_new(out, arena, err))
        return -1;
    for (size_t i = 0; i < calls->list->n; i++) {
        struct value call = calls->list->items[i], function, name;
        const struct value *given = value_get(&call, "function");
        struct message_mark mark = message_call_mark(message, i);
        if (value_is(given, VALUE_DICT) && (value_string_copy(&name, arena, str_from(mark.text), err) ||
                                            copy_but(arena, given, "name", name, &function, err) ||
                                            copy_but(arena, &calls->list->items[i], "function", function, &call, err)))
            return -1;
        if (value_list_push(arena, out, call, err))
            return -1;
    }
    return 0;
}

// The same content with a word for each text in it.
static int mark_content(struct arena *arena, const struct value *content, size_t message, struct value *out,
                        struct error *err)
{
    if (content->kind == VALUE_STRING)
        return content->text.len ? value_string_copy(out, arena, str_from(message_mark(message, 0).text), err) : 0;
    if (value_list_new(out, arena, err))
        return -1;
    for (size_t i = 0; i < content->list->n; i++) {
        struct value word;
        if (value_string_copy(&word, arena, str_from(message_mark(message, i).text), err) ||
            value_list_push(arena, out, word, err))
            return -1;
    }
    return 0;
}

static int mark_message(struct arena *arena, const struct value *given, size_t i, struct value *out, struct error *err)
{
    struct value calls, marked, message = *given;
    const struct value *called = value_get(given, "tool_calls"), *content = value_get(given, "content");
    if (value_is(called, VALUE_LIST) &&
        (mark_calls(arena, called, i, &calls, err) || copy_but(arena, given, "tool_calls", calls, &message, err)))
        return -1;
    *out = message;
    if (!message_parts(content))
        return 0;
    marked = *content;
    return mark_content(arena, content, i, &marked, err) || copy_but(arena, &message, "content", marked, out, err);
}

int messages_mark(struct arena *arena, const struct value *given, struct value *out, struct error *err)
{
    if (value_list_new(out, arena, err))
        return -1;
    for (size_t i = 0; i < value_count(given); i++) {
        struct value message = given->list->items[i];
        if ((value_is(&message, VALUE_DICT) && mark_message(arena, &given->list->items[i], i, &message, err)) ||
            value_list_push(arena, out, message, err))
            return -1;
    }
    return 0;
}
