// Converts values to text: str, repr, HTML escapes.
#include "engine/chat/jinja_run.h"

#include <stdio.h>

#include "engine/json.h"
#include "engine/text/unicode.h"

static int put(struct run *r, struct build *b, const char *z, uint8_t origin)
{
    return build_text(r, b, str_from(z), origin == ORIGIN_INPUT ? ORIGIN_INPUT : ORIGIN_OWN, NULL);
}

static int build_repr(struct run *r, struct build *b, const struct value *v);

// ---- Strings ----

// Python's str.isprintable: not a control, format, private, surrogate or unassigned character, and no separator
// except the space.
static bool printable(uint32_t cp)
{
    unsigned bits = unicode_bits(cp);
    return cp == ' ' || ((bits & 0x7F) != 0 && !(bits & (UNI_CONTROL | UNI_SEPARATOR)));
}

static int escape_code(uint32_t cp, char out[16])
{
    return snprintf(out, 16, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

static int escape_of(uint32_t cp, char quote, char out[16])
{
    if (cp == '\\' || cp == (uint32_t)quote)
        return snprintf(out, 16, "\\%c", (int)cp);
    if (cp == '\n' || cp == '\r' || cp == '\t')
        return snprintf(out, 16, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    if (printable(cp))
        return 0;
    return escape_code(cp, out);
}

static int repr_string(struct run *r, struct build *b, const struct value *s)
{
    const char *p = s->text.data;
    size_t n = s->text.len;
    if (run_step(r, n / 8))
        return -1;
    bool single = n && memchr(p, '\'', n), other = n && memchr(p, '"', n);
    char quote = single && !other ? '"' : '\'';
    const char quotes[2] = {quote, 0};
    if ((s->markup && put(r, b, "Markup(", ORIGIN_OWN)) || put(r, b, quotes, s->origin))
        return -1;
    size_t start = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = 0;
        char out[16];
        len = (size_t)utf8_decode(p + i, n - i, &cp);
        int e = len ? escape_of(cp, quote, out) : snprintf(out, sizeof out, "\\x%02x", (unsigned char)p[i]);
        len = len ? len : 1;
        if (e == 0)
            continue;
        if (build_slice(r, b, s, start, i) || put(r, b, out, string_origin(s, i)))
            return -1;
        start = i + len;
    }
    if (build_slice(r, b, s, start, n) || put(r, b, quotes, s->origin))
        return -1;
    return s->markup ? put(r, b, ")", ORIGIN_OWN) : 0;
}

// ---- Containers and objects ----

static int repr_items(struct run *r, struct build *b, const struct value *v)
{
    bool tuple = v->kind == VALUE_TUPLE;
    if (put(r, b, tuple ? "(" : "[", v->origin))
        return -1;
    for (size_t i = 0; i < v->list->n; i++)
        if ((i && put(r, b, ", ", v->origin)) || build_repr(r, b, &v->list->items[i]))
            return -1;
    return put(r, b, tuple ? v->list->n == 1 ? ",)" : ")" : "]", v->origin);
}

static int repr_dict(struct run *r, struct build *b, const struct value *v)
{
    if (put(r, b, "{", v->origin))
        return -1;
    for (size_t i = 0; i < v->dict->n; i++) {
        const struct value_entry *e = &v->dict->entries[i];
        if ((i && put(r, b, ", ", v->origin)) || build_repr(r, b, &e->key) || put(r, b, ": ", v->origin) ||
            build_repr(r, b, &e->value))
            return -1;
    }
    return put(r, b, "}", v->origin);
}

static int repr_view(struct run *r, struct build *b, const struct value *v)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    struct value list;
    if (put(r, b, names[((const struct view *)v->object)->kind], ORIGIN_OWN) || run_items(r, v, &list) ||
        build_repr(r, b, &list))
        return -1;
    return put(r, b, ")", ORIGIN_OWN);
}

static int repr_object(struct run *r, struct build *b, const struct value *v)
{
    char text[128];
    switch (object_kind(v)) {
    case OBJ_NAMESPACE:
        return put(r, b, "<Namespace ", ORIGIN_OWN) || build_repr(r, b, &((const struct namespace *)v->object)->dict) ||
                       put(r, b, ">", ORIGIN_OWN)
                   ? -1
                   : 0;
    case OBJ_RANGE: {
        const struct range *g = v->object;
        if (g->step == 1)
            snprintf(text, sizeof text, "range(%lld, %lld)", (long long)g->start, (long long)g->stop);
        else
            snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)g->start, (long long)g->stop,
                     (long long)g->step);
        return put(r, b, text, ORIGIN_OWN);
    }
    case OBJ_VIEW:
        return repr_view(r, b, v);
    case OBJ_LOOP: {
        struct loop *loop = v->object;
        int64_t n;
        if (run_loop_length(r, loop, &n))
            return -1;
        snprintf(text, sizeof text, "<LoopContext %zu/%lld>", loop->at + 1, (long long)n);
        return put(r, b, text, ORIGIN_OWN);
    }
    case OBJ_MACRO: {
        const struct macro *m = v->object;
        if (m->is_caller)
            return put(r, b, "<Macro anonymous>", ORIGIN_OWN);
        snprintf(text, sizeof text, "<Macro '%.*s'>", (int)MIN(m->node->name.len, (size_t)100), m->node->name.data);
        return put(r, b, text, ORIGIN_OWN);
    }
    default:
        snprintf(text, sizeof text, "<%s object>", value_type_name(v));
        return put(r, b, text, ORIGIN_OWN);
    }
}

static int repr_number(struct run *r, struct build *b, const struct value *v)
{
    char text[FLOAT_TEXT];
    if (v->kind == VALUE_FLOAT && run_step(r, FLOAT_REPR_STEPS))
        return -1;
    if (v->kind == VALUE_FLOAT)
        float_repr(v->real, text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
    return put(r, b, text, v->origin);
}

static int build_repr(struct run *r, struct build *b, const struct value *v)
{
    // the depth of containers is bounded, but a namespace may contain itself
    if (r->depth > RUN_DEPTH_MAX || run_step(r, 1))
        return r->depth > RUN_DEPTH_MAX ? run_fail(r, "a value is nested too deep to be printed") : -1;
    int status;
    r->depth++;
    switch ((enum value_kind)v->kind) {
    case VALUE_NONE:
        status = put(r, b, "None", v->origin);
        break;
    case VALUE_BOOL:
        status = put(r, b, v->boolean ? "True" : "False", v->origin);
        break;
    case VALUE_INT:
    case VALUE_FLOAT:
        status = repr_number(r, b, v);
        break;
    case VALUE_BIGINT:
        status = build_text(r, b, v->text, v->origin, v->marks);
        break;
    case VALUE_STRING:
        status = repr_string(r, b, v);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        status = repr_items(r, b, v);
        break;
    case VALUE_DICT:
        status = repr_dict(r, b, v);
        break;
    case VALUE_UNDEFINED:
        status = put(r, b, "Undefined", ORIGIN_OWN);
        break;
    default:
        status = repr_object(r, b, v);
        break;
    }
    r->depth--;
    return status;
}

int run_repr(struct run *r, const struct value *v, struct value *out)
{
    struct build b = {0};
    if (build_repr(r, &b, v))
        return -1;
    *out = build_value(&b);
    return 0;
}

int run_ascii(struct run *r, const struct value *v, struct value *out)
{
    struct value s;
    struct build b = {0};
    if (run_repr(r, v, &s) || run_step(r, s.text.len / 8))
        return -1;
    size_t start = 0;
    for (size_t at = 0, len; at < s.text.len; at += len) {
        char escape[16];
        uint32_t cp;
        len = (size_t)utf8_decode(s.text.data + at, s.text.len - at, &cp); // not 0: repr has escaped what is no UTF-8
        if (cp < 0x80)
            continue;
        escape_code(cp, escape);
        if (build_slice(r, &b, &s, start, at) || put(r, &b, escape, string_origin(&s, at)))
            return -1;
        start = at + len;
    }
    if (build_slice(r, &b, &s, start, s.text.len))
        return -1;
    *out = build_value(&b);
    return 0;
}

int build_str(struct run *r, struct build *b, const struct value *v)
{
    if (is_string(v))
        return build_string(r, b, v);
    return is_undefined(v) ? 0 : build_repr(r, b, v);
}

int run_soft_str(struct run *r, const struct value *v, struct value *out)
{
    if (is_string(v)) {
        *out = *v;
        return 0;
    }
    if (!is_undefined(v))
        return run_repr(r, v, out);
    *out = VALUE_LIT("");
    return 0;
}

int run_str(struct run *r, const struct value *v, struct value *out)
{
    int status = run_soft_str(r, v, out);
    out->markup = false;
    return status;
}

int run_escape_html(struct run *r, const struct value *v, struct value *out)
{
    struct value s;
    struct build b = {.markup = true};
    if (run_soft_str(r, v, &s) || run_step_text(r, s.markup ? 0 : s.text.len))
        return -1;
    size_t start = 0;
    for (size_t i = 0; i < s.text.len && !s.markup; i++) {
        char c = s.text.data[i];
        const char *e = c == '&'    ? "&amp;"
                        : c == '<'  ? "&lt;"
                        : c == '>'  ? "&gt;"
                        : c == '\'' ? "&#39;"
                        : c == '"'  ? "&#34;"
                                    : NULL;
        if (!e)
            continue;
        if (build_slice(r, &b, &s, start, i) || put(r, &b, e, string_origin(&s, i)))
            return -1;
        start = i + 1;
    }
    if (start > 0 && build_slice(r, &b, &s, start, s.text.len))
        return -1;
    *out = start > 0 ? build_value(&b) : s;
    out->markup = true;
    return 0;
}
