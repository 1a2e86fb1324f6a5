// The global functions of templates, the methods of lists and dicts, and the lookup of methods.
#include "engine/chat/jinja_text.h"

#include <stdio.h>
#include <time.h>

// ---- Lists and dicts ----

static int list_count(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value item;
    int64_t n = 0;
    if (args_bind(r, args, "count", "value", 1, &item))
        return -1;
    for (size_t i = 0; i < self->list->n; i++) {
        bool same;
        if (run_same(r, &self->list->items[i], &item, &same))
            return -1;
        n += same;
    }
    *out = value_int(n);
    return 0;
}

static int list_index(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value v[3] = {value_none(), value_int(0), value_int(INT64_MAX)};
    int64_t n = (int64_t)self->list->n, from, to;
    if (args_bind(r, args, "index", "value start stop", 1, v) || run_int_arg(r, &v[1], &from) ||
        run_int_arg(r, &v[2], &to))
        return -1;
    from = from < 0 ? MAX(from + n, (int64_t)0) : from;
    to = to < 0 ? to + n : MIN(to, n);
    for (int64_t i = from; i < to; i++) {
        bool same;
        if (run_same(r, &self->list->items[i], &v[0], &same))
            return -1;
        if (same) {
            *out = value_int(i);
            return 0;
        }
    }
    return run_fail(r, "%s.index(x): x is not in it", value_type_name(self));
}

// Lists and dicts are immutable, so a copy is the value itself.
static int copy(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    *out = *self;
    return args_bind(r, args, "copy", "", 0, NULL);
}

static int dict_get(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value v[2] = {value_none(), value_none()};
    if (args_bind(r, args, "get", "key default", 1, v))
        return -1;
    if (v[0].kind == VALUE_LIST || v[0].kind == VALUE_DICT)
        return run_fail(r, "unhashable type: '%s'", value_type_name(&v[0]));
    const struct value *found;
    if (run_find(r, self, &v[0], &found))
        return -1;
    *out = found ? *found : v[1];
    return 0;
}

static int new_view(struct run *r, const struct value *self, const struct call_args *args, const char *what,
                    enum view_kind kind, struct value *out)
{
    struct view *view = args_bind(r, args, what, "", 0, NULL) ? NULL : RUN_NEW(r, struct view);
    if (!view)
        return -1;
    *view = (struct view){{OBJ_VIEW}, kind, *self};
    *out = value_of_object(view);
    return 0;
}

static int dict_keys(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    return new_view(r, self, args, "keys", VIEW_KEYS, out);
}

static int dict_values(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    return new_view(r, self, args, "values", VIEW_VALUES, out);
}

static int dict_items(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    return new_view(r, self, args, "items", VIEW_ITEMS, out);
}

static int int_bit_length(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    int64_t i;
    if (args_bind(r, args, "bit_length", "", 0, NULL) || run_int_arg(r, self, &i))
        return -1;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *out = value_int(u ? 64 - __builtin_clzll(u) : 0);
    return 0;
}

static int float_is_integer(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    double f = self->real;
    *out = value_bool(f - f == 0 && (f >= 0x1p53 || f <= -0x1p53 || f == (double)(int64_t)f));
    return args_bind(r, args, "is_integer", "", 0, NULL);
}

static const struct {
    enum value_kind kind;
    const char *name;
    native_fn *call; // NULL: a method that would change the value
} methods[] = {
    {VALUE_LIST, "count", list_count},
    {VALUE_LIST, "index", list_index},
    {VALUE_LIST, "copy", copy},
    {VALUE_TUPLE, "count", list_count},
    {VALUE_TUPLE, "index", list_index},
    {VALUE_DICT, "get", dict_get},
    {VALUE_DICT, "keys", dict_keys},
    {VALUE_DICT, "values", dict_values},
    {VALUE_DICT, "items", dict_items},
    {VALUE_DICT, "copy", copy},
    {VALUE_INT, "bit_length", int_bit_length},
    {VALUE_FLOAT, "is_integer", float_is_integer},
    {VALUE_LIST, "append", NULL},
    {VALUE_LIST, "clear", NULL},
    {VALUE_LIST, "extend", NULL},
    {VALUE_LIST, "insert", NULL},
    {VALUE_LIST, "pop", NULL},
    {VALUE_LIST, "remove", NULL},
    {VALUE_LIST, "reverse", NULL},
    {VALUE_LIST, "sort", NULL},
    {VALUE_DICT, "clear", NULL},
    {VALUE_DICT, "pop", NULL},
    {VALUE_DICT, "popitem", NULL},
    {VALUE_DICT, "setdefault", NULL},
    {VALUE_DICT, "update", NULL},
};

native_fn *method_find(const struct value *of, struct str name, const char **canonical, bool *unsafe)
{
    if (is_string(of))
        return text_method(name, canonical);
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        if (methods[i].kind == of->kind && str_equal_z(name, methods[i].name)) {
            *canonical = methods[i].name;
            *unsafe = !methods[i].call;
            return methods[i].call;
        }
    return NULL;
}

// ---- Functions ----

static int call_range(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    int64_t v[3] = {0, 0, 1};
    (void)self;
    if (args->n < 1 || args->n > 3 || args->n_named)
        return run_fail(r, "range() takes one to three plain arguments");
    for (size_t i = 0; i < args->n; i++)
        if (run_int_arg(r, &args->at[i], &v[args->n == 1 ? 1 : i]))
            return -1;
    if (v[2] == 0)
        return run_fail(r, "range() arg 3 must not be zero");
    bool up = v[2] > 0, some = up ? v[0] < v[1] : v[0] > v[1];
    uint64_t span = up ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
    uint64_t n = some ? (span - 1) / (up ? (uint64_t)v[2] : 0 - (uint64_t)v[2]) + 1 : 0;
    if (n > JINJA_RANGE_MAX)
        return run_fail(r, "a range of more than %d items", JINJA_RANGE_MAX);
    struct range *g = RUN_NEW(r, struct range);
    if (!g)
        return -1;
    *g = (struct range){{OBJ_RANGE}, v[0], v[1], v[2], (int64_t)n};
    *out = value_of_object(g);
    return 0;
}

// Implements dict(mapping or pairs, key=value...).
static int call_dict(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value items;
    (void)self;
    if (args->n > 1)
        return run_fail(r, "dict expected at most 1 argument, got %zu", args->n);
    if (run_dict_new(r, out))
        return -1;
    if (args->n && args->at[0].kind == VALUE_DICT) {
        const struct value_dict *d = args->at[0].dict;
        for (size_t i = 0; i < d->n; i++)
            if (run_dict_put(r, out, d->entries[i].key, d->entries[i].value))
                return -1;
    } else if (args->n) {
        if (run_items(r, &args->at[0], &items))
            return -1;
        for (size_t i = 0; i < items.list->n; i++) {
            struct value pair;
            if (run_items(r, &items.list->items[i], &pair))
                return -1;
            if (value_count(&pair) != 2)
                return run_fail(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                                value_count(&pair));
            if (run_dict_put(r, out, pair.list->items[0], pair.list->items[1]))
                return -1;
        }
    }
    for (size_t k = 0; k < args->n_named; k++)
        if (run_dict_put(r, out, value_string(args->names[k]), args->at[args->n + k]))
            return -1;
    return 0;
}

static int call_namespace(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value dict;
    struct namespace *ns = call_dict(r, self, args, &dict) ? NULL : RUN_NEW(r, struct namespace);
    if (!ns)
        return -1;
    *ns = (struct namespace){{OBJ_NAMESPACE}, dict};
    *out = value_of_object(ns);
    return 0;
}

static int call_raise(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value v, s;
    (void)self, (void)out;
    if (args_bind(r, args, "raise_exception", "message", 1, &v) || run_str(r, &v, &s))
        return -1;
    return run_fail(r, "%.*s", (int)MIN(s.text.len, (size_t)380), s.text.data);
}

static int call_strftime(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value v;
    char format[256], text[1024];
    (void)self;
    if (args_bind(r, args, "strftime_now", "format", 1, &v))
        return -1;
    if (!is_string(&v) || v.text.len >= sizeof format || (v.text.len && memchr(v.text.data, '\0', v.text.len)))
        return run_fail(r, "strftime_now() wants a format of less than %zu bytes", sizeof format);
    if (run_step(r, 16 + 2 * v.text.len)) // a letter stands for up to some ten characters
        return -1;
    if (v.text.len)
        memcpy(format, v.text.data, v.text.len);
    format[v.text.len] = '\0';
    if (v.text.len && memmem(format, v.text.len, "%f", 2))
        return run_fail(r, "strftime_now() knows no microseconds");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format, r->now);
#pragma GCC diagnostic pop
    struct build b = {0};
    if (build_text(r, &b, (struct str){text, n}, v.origin == ORIGIN_INPUT ? ORIGIN_INPUT : ORIGIN_OWN, NULL))
        return -1;
    *out = build_value(&b);
    return 0;
}

static int call_joiner(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct value sep = VALUE_LIT(", ");
    (void)self;
    struct joiner *j = args_bind(r, args, "joiner", "sep", 0, &sep) ? NULL : RUN_NEW(r, struct joiner);
    if (!j)
        return -1;
    *j = (struct joiner){{OBJ_JOINER}, sep, false};
    *out = value_of_object(j);
    return 0;
}

static int call_cycler(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    (void)self;
    if (args->n == 0 || args->n_named)
        return run_fail(r, "cycler() wants at least one plain argument");
    struct cycler *c = RUN_NEW(r, struct cycler);
    if (!c || run_list_new(r, &c->items))
        return -1;
    c->head.kind = OBJ_CYCLER;
    for (size_t i = 0; i < args->n; i++)
        if (run_list_push(r, &c->items, args->at[i]))
            return -1;
    *out = value_of_object(c);
    return 0;
}

static int cycler_next(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    struct cycler *c = self->object;
    *out = c->items.list->items[c->at];
    c->at = (c->at + 1) % c->items.list->n;
    return args_bind(r, args, "next", "", 0, NULL);
}

static int cycler_reset(struct run *r, const struct value *self, const struct call_args *args, struct value *out)
{
    ((struct cycler *)self->object)->at = 0;
    *out = value_none();
    return args_bind(r, args, "reset", "", 0, NULL);
}

int cycler_attribute(struct run *r, const struct value *v, struct str name, struct value *out, bool *found)
{
    const struct cycler *c = v->object;
    bool next = str_equal_z(name, "next"), reset = str_equal_z(name, "reset");
    *found = next || reset || str_equal_z(name, "current");
    if (!next && !reset) {
        *out = c->items.list->items[c->at];
        return 0;
    }
    struct method *m = RUN_NEW(r, struct method);
    if (!m)
        return -1;
    *m = (struct method){{OBJ_METHOD}, *v, next ? "next" : "reset", next ? cycler_next : cycler_reset};
    *out = value_of_object(m);
    return 0;
}

static const struct function functions[] = {
    {{OBJ_FUNCTION}, "range", call_range},           {{OBJ_FUNCTION}, "dict", call_dict},
    {{OBJ_FUNCTION}, "namespace", call_namespace},   {{OBJ_FUNCTION}, "raise_exception", call_raise},
    {{OBJ_FUNCTION}, "strftime_now", call_strftime}, {{OBJ_FUNCTION}, "cycler", call_cycler},
    {{OBJ_FUNCTION}, "joiner", call_joiner},
};

bool global_find(struct str name, struct value *out)
{
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        if (str_equal_z(name, functions[i].name)) {
            *out = value_of_object((void *)(uintptr_t)&functions[i]); // never written to
            return true;
        }
    return false;
}
