// Parses the tool calls of each family into one common form.
#include "engine/chat/answer_calls.h"

#include <stdlib.h>

#include "engine/json.h"

struct calls {
    const struct answer_style *style;
    struct arena *arena;
    struct value *out;
    size_t bad;
    struct error *err;
};

// ---- Pieces of text ----

static struct str from(struct str s, size_t at)
{
    return (struct str){s.data + at, s.len - at};
}

// Returns the offset of `mark` in s; SIZE_MAX if it does not occur.
static size_t find(struct str s, const char *mark)
{
    const char *p = s.len ? memmem(s.data, s.len, mark, strlen(mark)) : NULL;
    return p ? (size_t)(p - s.data) : SIZE_MAX;
}

// Splits s at `mark`: *before gets the text before it, s the text after it. False if there is no mark; then *before
// is all of s and s is empty.
static bool cut(struct str *s, const char *mark, struct str *before)
{
    size_t at = find(*s, mark);
    *before = at == SIZE_MAX ? *s : (struct str){s->data, at};
    *s = at == SIZE_MAX ? (struct str){s->data + s->len, 0} : from(*s, at + strlen(mark));
    return at != SIZE_MAX;
}

// ---- The end of a call ----

static bool has_strings(const struct answer_style *style)
{
    return style->tools == TOOLS_JSON_TAG || style->tools == TOOLS_NAME_JSON || style->tools == TOOLS_PYTHON;
}

static void pass_byte(const struct answer_style *style, struct quotes *q, char c)
{
    const bool opens = c == '"' || (c == '\'' && style->tools == TOOLS_PYTHON);
    if (q->escaped)
        q->escaped = false;
    else if (q->quote && c == '\\')
        q->escaped = true;
    else if (q->quote && c == q->quote)
        q->quote = 0;
    else if (!q->quote && opens)
        q->quote = c;
}

void quotes_pass(const struct answer_style *style, struct quotes *q, struct str text)
{
    for (size_t i = 0; has_strings(style) && i < text.len; i++)
        pass_byte(style, q, text.data[i]);
}

size_t call_end(const struct answer_style *style, struct quotes q, struct str text)
{
    const size_t n = style->call_close ? strlen(style->call_close) : 0;
    if (!n)
        return SIZE_MAX;
    if (!has_strings(style))
        return find(text, style->call_close);
    for (size_t i = 0; i + n <= text.len; i++) {
        if (!q.quote && !memcmp(text.data + i, style->call_close, n))
            return i;
        pass_byte(style, &q, text.data[i]);
    }
    return SIZE_MAX;
}

// ---- One call ----

static int push_call(struct calls *c, struct str name, struct value arguments)
{
    struct value call, function, name_value;
    if (value_dict_new(&call, c->arena, c->err) || value_dict_new(&function, c->arena, c->err) ||
        value_string_copy(&name_value, c->arena, name, c->err) ||
        value_dict_set(c->arena, &function, "name", name_value, c->err) ||
        value_dict_set(c->arena, &function, "arguments", arguments, c->err) ||
        value_dict_set(c->arena, &call, "type", VALUE_LIT("function"), c->err) ||
        value_dict_set(c->arena, &call, "function", function, c->err))
        return -1;
    return value_list_push(c->arena, c->out, call, c->err);
}

// Reads a JSON value at the start of *s and removes it. False if there is none, or with an error if memory runs out.
static bool read_json(struct calls *c, struct str *s, struct value *out)
{
    struct error why;
    struct json_reader reader = {.arena = c->arena, .flags = JSON_PREFIX};
    if (json_read(out, &reader, *s, &why)) {
        if (why.code == E_MEMORY)
            *c->err = why;
        return false;
    }
    *s = from(*s, reader.used);
    return true;
}

// The tool of this name among those that were offered; NULL: there is none.
static const struct value *offered_tool(const struct calls *c, struct str name)
{
    for (size_t i = 0; i < value_count(c->style->offered); i++) {
        const struct value *tool = &c->style->offered->list->items[i], *function = value_get(tool, "function");
        function = function ? function : tool;
        const struct value *own = value_get(function, "name");
        if (value_is(own, VALUE_STRING) && str_equal(own->text, name))
            return function;
    }
    return NULL;
}

static bool is_offered(const struct calls *c, struct str name)
{
    return !c->style->offered || offered_tool(c, name);
}

// Takes {"name": ..., "arguments" or "parameters": {...}}, or a call as in messages.
static int take_object(struct calls *c, const struct value *object)
{
    const struct value *inner = value_get(object, "function");
    object = value_is(inner, VALUE_DICT) ? inner : object;
    const struct value *name = value_get(object, "name"), *arguments = value_get(object, "arguments");
    name = name ? name : value_get(object, "tool_name");
    arguments = arguments ? arguments : value_get(object, "parameters");
    const struct value none = {.kind = VALUE_NONE};
    arguments = arguments ? arguments : &none;
    struct value read;
    const bool nothing =
        arguments->kind == VALUE_NONE || (arguments->kind == VALUE_STRING && !str_stripped(arguments->text).len);
    if (nothing && c->style->tools != TOOLS_JSON_BARE) {
        if (value_dict_new(&read, c->arena, c->err))
            return -1;
        arguments = &read;
    } else if (value_is(arguments, VALUE_STRING)) { // JSON text within JSON
        struct str text = arguments->text;
        if (read_json(c, &text, &read))
            arguments = &read;
    }
    if (!value_is(name, VALUE_STRING) || (c->style->tools == TOOLS_JSON_BARE && !is_offered(c, name->text)) ||
        !value_is(arguments, VALUE_DICT)) {
        c->bad++;
        return 0;
    }
    return push_call(c, name->text, *arguments);
}

static int take_value(struct calls *c, const struct value *v)
{
    if (v->kind != VALUE_LIST)
        return take_object(c, v);
    for (size_t i = 0; i < v->list->n; i++)
        if (take_object(c, &v->list->items[i]))
            return -1;
    return 0;
}

// Takes a sequence of objects or lists of objects.
static int take_json(struct calls *c, struct str s)
{
    for (s = str_stripped(s); s.len; s = str_stripped(s)) {
        struct value v;
        if (s.data[0] == ';' || s.data[0] == ',') {
            s = from(s, 1);
            continue;
        }
        if (!read_json(c, &s, &v)) {
            c->bad++;
            return 0;
        }
        if (take_value(c, &v))
            return -1;
    }
    return 0;
}

// ---- A name, and then its arguments ----

// Reduces functions.get_weather:0 and get_weather[CALL_ID]abc to get_weather. Text after a space names a channel and is
// dropped, too.
static struct str bare_name(struct str name)
{
    name = str_stripped(name);
    if (name.len > 10 && !memcmp(name.data, "functions.", 10))
        name = from(name, 10);
    const char *space = name.len ? memchr(name.data, ' ', name.len) : NULL;
    const char *colon = name.len ? memchr(name.data, ':', name.len) : NULL;
    if (space)
        name.len = (size_t)(space - name.data);
    if (colon && (!space || colon < space))
        name.len = (size_t)(colon - name.data);
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] == '<' || name.data[i] == '[')
            name.len = i;
    return name;
}

static int take_named_json(struct calls *c, struct str s)
{
    struct str before, name;
    while (cut(&s, c->style->name_open, &before)) {
        struct value arguments;
        bool named = cut(&s, c->style->name_close, &name);
        const char *brace = named && s.len ? memchr(s.data, '{', s.len) : NULL;
        size_t next = find(s, c->style->name_open);
        if (brace)
            s = from(s, MIN((size_t)(brace - s.data), next));
        name = bare_name(name);
        if (!brace || !name.len || !read_json(c, &s, &arguments) || arguments.kind != VALUE_DICT)
            c->bad++;
        else if (push_call(c, name, arguments))
            return -1;
    }
    return 0;
}

// ---- Tags ----

// What a tool's schema allows for a parameter.
enum { IS_STRING = 1, IS_NUMBER = 2, IS_BOOL = 4, IS_NULL = 8, IS_ARRAY = 16, IS_OBJECT = 32, IS_ANY = 63 };

static unsigned type_bits(const struct value *type)
{
    static const struct {
        const char *name;
        unsigned bits;
    } names[] = {{"string", IS_STRING}, {"integer", IS_NUMBER}, {"number", IS_NUMBER}, {"boolean", IS_BOOL},
                 {"null", IS_NULL},     {"array", IS_ARRAY},    {"object", IS_OBJECT}};
    for (size_t i = 0; value_is(type, VALUE_STRING) && i < COUNT_OF(names); i++)
        if (str_equal_z(type->text, names[i].name))
            return names[i].bits;
    return IS_ANY;
}

static unsigned schema_bits(const struct value *schema, int depth)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    const struct value *type = value_get(schema, "type"), *values = value_get(schema, "enum");
    unsigned bits = 0;
    if (value_is(type, VALUE_LIST))
        for (size_t i = 0; i < type->list->n; i++)
            bits |= type_bits(&type->list->items[i]);
    else if (type)
        bits = type_bits(type);
    for (size_t i = 0; !type && depth < 8 && i < COUNT_OF(choices); i++)
        for (size_t k = 0; k < value_count(value_get(schema, choices[i])); k++)
            bits |= schema_bits(&value_get(schema, choices[i])->list->items[k], depth + 1);
    for (size_t i = 0; !type && i < value_count(values); i++)
        bits |= values->list->items[i].kind == VALUE_STRING ? IS_STRING : IS_ANY & ~(unsigned)IS_STRING;
    return bits ? bits : IS_ANY;
}

// What the parameter `key` of function `name` may be, by the tools that were offered.
static unsigned parameter_bits(const struct calls *c, struct str name, struct str key)
{
    const struct value *function = offered_tool(c, name);
    const struct value *all = value_get(value_get(function, "parameters"), "properties");
    for (size_t k = 0; value_is(all, VALUE_DICT) && k < all->dict->n; k++)
        if (all->dict->entries[k].key.kind == VALUE_STRING && str_equal(all->dict->entries[k].key.text, key))
            return schema_bits(&all->dict->entries[k].value, 0);
    return IS_ANY;
}

static unsigned bits_of(const struct value *v)
{
    switch (v->kind) {
    case VALUE_NONE:
        return IS_NULL;
    case VALUE_BOOL:
        return IS_BOOL;
    case VALUE_LIST:
        return IS_ARRAY;
    case VALUE_DICT:
        return IS_OBJECT;
    default: // a string between tags is none of JSON
        return IS_NUMBER;
    }
}

// Python's words, which models write between tags. False if the text is none of them.
static bool python_constant(struct str s, struct value *out)
{
    if (str_equal_z(s, "True") || str_equal_z(s, "False"))
        *out = value_bool(s.data[0] == 'T');
    else if (str_equal_z(s, "None"))
        *out = value_none();
    else
        return false;
    return true;
}

// Reads a value between tags, of one of the kinds in `bits`: JSON if that gives such a kind, otherwise text without one
// newline at each end. Where a string is allowed, text in quotes is taken as it is.
static int tag_value(struct calls *c, struct str text, unsigned bits, struct value *out)
{
    struct str json = str_stripped(text);
    bool quoted = json.len && json.data[0] == '"';
    struct str rest = json;
    const bool typed = bits != IS_ANY;
    if (bits != IS_STRING && typed && python_constant(json, out) && (bits_of(out) & bits))
        return 0;
    if (bits != IS_STRING && !quoted && read_json(c, &rest, out) && rest.len == 0 && (bits_of(out) & bits))
        return 0;
    if (text.len && text.data[0] == '\n')
        text = from(text, 1);
    text.len -= text.len && text.data[text.len - 1] == '\n';
    return value_string_copy(out, c->arena, text, c->err);
}

static int take_parameters(struct calls *c, struct str name, struct str body, struct value *arguments)
{
    const struct answer_style *st = c->style;
    struct str before, key, text;
    while (cut(&body, st->key_open, &before)) {
        struct value k, v;
        if (!cut(&body, st->key_close, &key) || (*st->value_open && !cut(&body, st->value_open, &before)))
            return 0;
        cut(&body, st->value_close, &text);
        if (value_string_copy(&k, c->arena, str_stripped(key), c->err) ||
            tag_value(c, text, parameter_bits(c, name, str_stripped(key)), &v) ||
            value_dict_put(c->arena, arguments, k, v, c->err))
            return -1;
    }
    return 0;
}

static int take_tags(struct calls *c, struct str s)
{
    struct str before, name;
    while (cut(&s, c->style->name_open, &before)) {
        struct value arguments;
        size_t next = find(s, c->style->name_open);
        struct str one = {s.data, next == SIZE_MAX ? s.len : next};
        s = from(s, one.len);
        bool named = cut(&one, c->style->name_close, &name);
        size_t key = find(name, c->style->key_open);
        if (key != SIZE_MAX) { // the name ends where the first key begins
            one = (struct str){name.data + key, (size_t)(one.data + one.len - name.data) - key};
            name.len = key;
        }
        const char *angle = name.len ? memchr(name.data, '<', name.len) : NULL;
        if (angle)
            name.len = (size_t)(angle - name.data);
        name = str_stripped(name);
        if ((!named && key == SIZE_MAX && !angle) || !name.len) {
            c->bad++;
            continue;
        }
        if (value_dict_new(&arguments, c->arena, c->err) || take_parameters(c, name, one, &arguments) ||
            push_call(c, name, arguments))
            return -1;
    }
    return 0;
}

// ---- Python, and a form of it with words as keys and marks around strings ----

struct python {
    struct calls *c;
    struct str s;
    int depth;
};

static void skip(struct python *p)
{
    while (p->s.len && strchr(" \n\r\t", p->s.data[0]) && p->s.data[0])
        p->s = from(p->s, 1);
}

static bool take(struct python *p, char sign)
{
    skip(p);
    bool is = p->s.len && p->s.data[0] == sign;
    p->s = is ? from(p->s, 1) : p->s;
    return is;
}

static struct str word(struct python *p)
{
    skip(p);
    size_t n = 0;
    while (n < p->s.len && (p->s.data[n] == '_' || p->s.data[n] == '.' || p->s.data[n] == '-' ||
                            (p->s.data[n] >= '0' && p->s.data[n] <= '9') ||
                            ((p->s.data[n] | 0x20) >= 'a' && (p->s.data[n] | 0x20) <= 'z')))
        n++;
    struct str w = {p->s.data, n};
    p->s = from(p->s, n);
    return w;
}

// Reads a string in either kind of quotes; -1 if it does not end, or memory runs out.
static int python_string(struct python *p, struct value *out)
{
    static const char names[] = "nrt", signs[] = "\n\r\t";
    char quote = p->s.data[0], *text = arena_alloc(p->c->arena, p->s.len, 1);
    size_t n = 0, i = 1;
    if (!text)
        return fail(p->c->err, E_MEMORY, "no memory for a tool call");
    for (; i < p->s.len && p->s.data[i] != quote; i++) {
        if (p->s.data[i] == '\\' && i + 1 < p->s.len) {
            const char *found = strchr(names, p->s.data[++i]);
            text[n++] = found && *found ? signs[found - names] : p->s.data[i];
        } else {
            text[n++] = p->s.data[i];
        }
    }
    if (i >= p->s.len)
        return -1;
    p->s = from(p->s, i + 1);
    *out = value_string((struct str){text, n});
    return 0;
}

// Whether a string between marks begins here.
static bool at_marked(const struct python *p)
{
    const char *mark = p->c->style->tools == TOOLS_BRACES ? p->c->style->value_open : NULL;
    return mark && p->s.len >= strlen(mark) && !memcmp(p->s.data, mark, strlen(mark));
}

static int marked_string(struct python *p, struct value *out)
{
    const char *mark = p->c->style->value_open;
    struct str text;
    p->s = from(p->s, strlen(mark));
    return cut(&p->s, mark, &text) ? value_string_copy(out, p->c->arena, text, p->c->err) : -1;
}

static int python_value(struct python *p, struct value *out);

// A key of a dictionary: a value, or where strings have marks, a word up to the colon.
static int python_key(struct python *p, struct value *out)
{
    skip(p);
    const char *colon = p->s.len ? memchr(p->s.data, ':', p->s.len) : NULL;
    if (p->c->style->tools != TOOLS_BRACES || at_marked(p))
        return python_value(p, out);
    if (!colon)
        return -1;
    struct str key = {p->s.data, (size_t)(colon - p->s.data)};
    p->s = from(p->s, key.len);
    return value_string_copy(out, p->c->arena, str_stripped(key), p->c->err);
}

static int python_items(struct python *p, char end, struct value *out)
{
    if (value_list_new(out, p->c->arena, p->c->err))
        return -1;
    while (!take(p, end)) {
        struct value v;
        if (python_value(p, &v) || value_list_push(p->c->arena, out, v, p->c->err))
            return -1;
        if (!take(p, ','))
            return take(p, end) ? 0 : -1;
    }
    return 0;
}

static int python_dict(struct python *p, struct value *out)
{
    if (value_dict_new(out, p->c->arena, p->c->err))
        return -1;
    while (!take(p, '}')) {
        struct value k, v;
        if (python_key(p, &k) || !take(p, ':') || python_value(p, &v) ||
            value_dict_put(p->c->arena, out, k, v, p->c->err))
            return -1;
        if (!take(p, ','))
            return take(p, '}') ? 0 : -1;
    }
    return 0;
}

static int python_word(struct python *p, struct value *out)
{
    struct str w = word(p), rest = w;
    if (str_equal_z(w, "None") || str_equal_z(w, "null"))
        *out = value_none();
    else if (str_equal_z(w, "True") || str_equal_z(w, "true"))
        *out = value_bool(true);
    else if (str_equal_z(w, "False") || str_equal_z(w, "false"))
        *out = value_bool(false);
    else
        return read_json(p->c, &rest, out) && rest.len == 0 ? 0 : -1;
    return 0;
}

static int python_value(struct python *p, struct value *out)
{
    int status;
    skip(p);
    if (!p->s.len || p->depth == 100)
        return -1;
    p->depth++;
    if (at_marked(p))
        status = marked_string(p, out);
    else if (p->s.data[0] == '"' || p->s.data[0] == '\'')
        status = python_string(p, out);
    else if (take(p, '['))
        status = python_items(p, ']', out);
    else if (take(p, '('))
        status = python_items(p, ')', out);
    else
        status = take(p, '{') ? python_dict(p, out) : python_word(p, out);
    p->depth--;
    return status;
}

// Reads name(key=value, ...); 1 if it is not a call.
static int python_call(struct python *p)
{
    struct value arguments;
    struct str name = word(p);
    if (!name.len || !take(p, '('))
        return 1;
    if (value_dict_new(&arguments, p->c->arena, p->c->err))
        return -1;
    while (!take(p, ')')) {
        struct str key = word(p);
        struct value k, v;
        if (!key.len || !take(p, '=') || python_value(p, &v))
            return 1;
        if (value_string_copy(&k, p->c->arena, key, p->c->err) ||
            value_dict_put(p->c->arena, &arguments, k, v, p->c->err))
            return -1;
        if (!take(p, ',') && !(p->s.len && p->s.data[0] == ')'))
            return 1;
    }
    return push_call(p->c, name, arguments);
}

static int take_python(struct calls *c, struct str s)
{
    struct python p = {.c = c, .s = str_stripped(s)};
    if (p.s.len && p.s.data[0] == '{')
        return take_json(c, p.s);
    bool list = take(&p, '[');
    while (p.s.len && !(list && take(&p, ']'))) {
        int status = python_call(&p);
        if (status) {
            c->bad++;
            return c->err->code ? -1 : 0;
        }
        take(&p, ',');
        skip(&p);
    }
    return 0;
}

static int take_braces(struct calls *c, struct str s)
{
    struct python p = {.c = c, .s = s};
    struct str before, name;
    struct value arguments;
    bool named = cut(&p.s, c->style->name_open, &before) && cut(&p.s, c->style->name_close, &name);
    if (named && str_stripped(name).len && python_dict(&p, &arguments) == 0)
        return push_call(c, str_stripped(name), arguments);
    c->bad += c->err->code == E_OK;
    return c->err->code == E_OK ? 0 : -1;
}

// ---- All formats ----

static int take_block(struct calls *c, struct str s)
{
    switch (c->style->tools) {
    case TOOLS_JSON_TAG:
    case TOOLS_JSON_LIST:
    case TOOLS_JSON_BARE:
        return take_json(c, s);
    case TOOLS_NAME_JSON:
        return take_named_json(c, s);
    case TOOLS_XML:
        return take_tags(c, s);
    case TOOLS_PYTHON:
        return take_python(c, s);
    case TOOLS_BRACES:
        return take_braces(c, s);
    case TOOLS_NONE:
        break;
    }
    return 0;
}

// Whether the mark that opens a call also opens a name, as in <function=name>; then it is part of the call.
static bool mark_opens_name(const struct answer_style *s)
{
    return s->name_open && s->call_open && strstr(s->call_open, s->name_open);
}

int answer_tool_calls(const struct answer *a, struct arena *arena, struct value *out, size_t *n_bad, struct error *err)
{
    struct error local = {0};
    struct calls c = {.style = &a->style, .arena = arena, .out = out, .err = err ? err : &local};
    struct str s = {a->calls ? a->calls : "", a->n_calls}, before, block;
    int status = value_list_new(out, arena, c.err);
    c.err->code = status ? c.err->code : E_OK;
    if (a->style.tools == TOOLS_JSON_BARE && !status && find(s, a->style.call_open) == SIZE_MAX)
        status = s.len ? take_block(&c, s) : 0;
    else if (!status && a->style.call_open && mark_opens_name(&a->style))
        status = take_block(&c, s);
    else
        while (!status && a->style.call_open && cut(&s, a->style.call_open, &before)) {
            const size_t end = call_end(&a->style, (struct quotes){0}, s);
            block = (struct str){s.data, MIN(end, s.len)};
            s = end == SIZE_MAX ? (struct str){s.data + s.len, 0} : from(s, end + strlen(a->style.call_close));
            status = take_block(&c, block);
        }
    if (n_bad)
        *n_bad = a->n_bad + c.bad;
    return status || c.err->code ? -1 : 0; // what there was no memory for is no call that cannot be read
}
