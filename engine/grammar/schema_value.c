// Checks whether a value of the document meets a schema. Used for enum and const, and for the names of properties.
#include "engine/grammar/dfa_build.h"
#include "engine/grammar/numbers.h"
#include "engine/grammar/schema.h"

#include <stdlib.h>

unsigned schema_type_of(const struct value *v)
{
    switch (v->kind) {
    case VALUE_NONE:
        return TYPE_NULL;
    case VALUE_BOOL:
        return v->boolean ? TYPE_TRUE : TYPE_FALSE;
    case VALUE_STRING:
        return TYPE_STRING;
    case VALUE_LIST:
        return TYPE_ARRAY;
    case VALUE_DICT:
        return TYPE_OBJECT;
    default:
        return TYPE_NUMBER;
    }
}

// Equality as JSON Schema defines it: true is not equal to 1.
bool schema_equal(struct schema *s, const struct value *a, const struct value *b)
{
    s->work++;
    unsigned type = schema_type_of(a);
    if (type != schema_type_of(b) || value_count(a) != value_count(b))
        return false;
    if (type != TYPE_ARRAY && type != TYPE_OBJECT)
        return value_equal(a, b);
    for (size_t i = 0; i < value_count(a); i++) {
        const struct value *x = type == TYPE_ARRAY ? &a->list->items[i] : &a->dict->entries[i].value;
        const struct value *y =
            type == TYPE_ARRAY ? &b->list->items[i] : value_get_str(b, a->dict->entries[i].key.text);
        if (!y || !schema_equal(s, x, y))
            return false;
    }
    return true;
}

bool schema_lists(struct schema *s, const struct demand *values, const struct value *v)
{
    if (values->n)
        return schema_equal(s, values->v, v);
    const struct value_list *list = values->v->list;
    if (list->n && v >= list->items && v < list->items + list->n) // it comes from there
        return true;
    for (size_t i = 0; i < list->n; i++)
        if (schema_equal(s, &list->items[i], v))
            return true;
    return false;
}

struct meeting {
    struct schema *s;
    const struct value *v;
    bool met;
};

static int text_in(struct schema *s, expr_id e, struct str text)
{
    struct dfa *d;
    if (dfa_from_expr(&d, &s->x, e, s->err))
        return -1;
    int in = dfa_accepts(d, text);
    dfa_free(d);
    return in;
}

static int meets_string(struct schema *s, const struct branch *b, struct str text)
{
    expr_id e;
    bool any;
    if (schema_string_contents(s, b, &e, &any))
        return -1;
    return any ? 1 : text_in(s, e, text);
}

// A number is checked as a decimal: the branch with the additional demand of equality to it must not be empty.
static int meets_number(struct schema *s, const struct branch *b, const struct value *v)
{
    struct branch one = {.types = TYPE_NUMBER};
    expr_id e;
    bool asked = false;
    for (size_t i = 0; i < b->n; i++)
        asked = asked || b->demands[i].kind <= D_NOT_MULTIPLE || b->demands[i].kind == D_NOT_VALUE;
    if (!asked)
        return 1;
    struct demand *demands = ARENA_ARRAY(&s->arena, struct demand, b->n + 1);
    if (!demands)
        return schema_no_memory(s);
    memcpy(demands, b->demands, b->n * sizeof *demands);
    demands[b->n] = (struct demand){.kind = D_COMPARE, .v = v, .at = v, .n = NUMBER_EQUAL};
    one.demands = demands;
    one.n = b->n + 1;
    if (schema_emit_number(s, &one, &e))
        return -1;
    return e != EXPR_NEVER;
}

// Whether item i meets the array keywords of a schema.
static int meets_item(struct schema *s, const struct value *node, size_t i, const struct value *item)
{
    const struct value *items = value_get(node, "items"), *prefix = value_get(node, "prefixItems");
    const struct value *more = items;
    if (!prefix && value_is(items, VALUE_LIST)) {
        prefix = items;
        more = value_get(node, "additionalItems");
    }
    const struct value *rule = value_is(prefix, VALUE_LIST) && i < prefix->list->n ? &prefix->list->items[i] : more;
    return rule ? schema_matches(s, (struct literal){rule, false}, item) : 1;
}

static int meets_array_demand(struct schema *s, const struct demand *d, const struct value *v)
{
    size_t n = v->list->n, count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct value *item = &v->list->items[i];
        int met = 1;
        if (d->kind == D_ITEMS)
            met = meets_item(s, d->v, i, item);
        else if ((d->kind == D_EACH && (int64_t)i >= d->n) || d->kind == D_CONTAINS ||
                 (d->kind == D_AT && (int64_t)i == d->n))
            met = schema_matches(s, d->lit, item);
        if (met < 0)
            return -1;
        count += met == 1;
        if (!met && d->kind != D_CONTAINS)
            return 0;
        for (size_t k = 0; d->kind == D_UNIQUE && k < i; k++)
            if (schema_equal(s, item, &v->list->items[k]))
                return 0;
    }
    switch (d->kind) {
    case D_MIN_ITEMS:
        return (int64_t)n >= d->n;
    case D_MAX_ITEMS:
        return (int64_t)n <= d->n;
    case D_AT:
        return (int64_t)n > d->n;
    case D_CONTAINS:
        return (int64_t)count >= d->n && (d->m < 0 || (int64_t)count <= d->m);
    default:
        return 1;
    }
}

static int meets_property(struct schema *s, const struct value *node, struct str key, const struct value *v)
{
    const struct value *props = value_get(node, "properties"), *patterns = value_get(node, "patternProperties");
    const struct value *more = value_get(node, "additionalProperties");
    const struct value *rule = value_is(props, VALUE_DICT) ? value_get_str(props, key) : NULL;
    bool named = rule != NULL;
    int met = rule ? schema_matches(s, (struct literal){rule, false}, v) : 1;
    for (size_t i = 0; value_is(patterns, VALUE_DICT) && i < patterns->dict->n && met == 1; i++) {
        const struct value_entry *entry = &patterns->dict->entries[i];
        expr_id e;
        int in = schema_pattern(s, &entry->key, &e) ? -1 : text_in(s, e, key);
        if (in < 0)
            return -1;
        named = named || in;
        met = in ? schema_matches(s, (struct literal){&entry->value, false}, v) : 1;
    }
    return met == 1 && !named && more ? schema_matches(s, (struct literal){more, false}, v) : met;
}

static int meets_object_demand(struct schema *s, const struct demand *d, const struct value *v)
{
    const struct value *at;
    int met = 1;
    switch (d->kind) {
    case D_MIN_PROPERTIES:
        return (int64_t)v->dict->n >= d->n;
    case D_MAX_PROPERTIES:
        return (int64_t)v->dict->n <= d->n;
    case D_REQUIRE:
        return value_get_str(v, d->key) != NULL;
    case D_FORBID:
        return value_get_str(v, d->key) == NULL;
    case D_KEY:
        at = value_get_str(v, d->key);
        return at ? schema_matches(s, d->lit, at) : 1;
    case D_NAMES:
    case D_PROPERTIES:
        for (size_t i = 0; i < v->dict->n && met == 1; i++) {
            const struct value_entry *entry = &v->dict->entries[i];
            met = d->kind == D_NAMES ? schema_matches(s, d->lit, &entry->key)
                                     : meets_property(s, d->v, entry->key.text, &entry->value);
        }
        return met;
    default:
        return 1;
    }
}

int schema_meets(struct schema *s, const struct branch *b, const struct value *v)
{
    unsigned type = schema_type_of(v);
    if (!(b->types & type))
        return 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct demand *d = &b->demands[i];
        if (d->kind == D_VALUES && !schema_lists(s, d, v))
            return 0;
        if (d->kind == D_NOT_VALUE && schema_equal(s, d->v, v))
            return 0;
        if (schema_spend(s, 1))
            return -1;
        int met = type == TYPE_ARRAY    ? meets_array_demand(s, d, v)
                  : type == TYPE_OBJECT ? meets_object_demand(s, d, v)
                                        : 1;
        if (met != 1)
            return met;
    }
    if (type == TYPE_STRING)
        return meets_string(s, b, v->text);
    return type == TYPE_NUMBER ? meets_number(s, b, v) : 1;
}

static int try_branch(void *arg, struct schema *s, const struct branch *b)
{
    struct meeting *m = arg;
    int met = schema_meets(s, b, m->v);
    m->met = met == 1;
    return met;
}

int schema_matches(struct schema *s, struct literal lit, const struct value *v)
{
    struct meeting m = {.s = s, .v = v};
    if (schema_expand(s, &lit, 1, TYPE_ALL, try_branch, &m) < 0)
        return -1;
    return m.met;
}
