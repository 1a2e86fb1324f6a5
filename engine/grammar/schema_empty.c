// A shallow check whether any value can meet a claim. It finds out which parts of a oneOf can overlap.
#include "engine/grammar/schema.h"

struct search {
    int depth;
    bool found; // some branch can be met
};

static const struct demand *find_demand(const struct branch *b, enum demand_kind kind)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->demands[i].kind == kind)
            return &b->demands[i];
    return NULL;
}

// Collects the literals on the property of that name. *forbidden: the property must not exist.
static size_t key_literals(const struct branch *b, struct str key, struct literal *out, size_t cap, bool *forbidden)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct demand *d = &b->demands[i];
        if (d->kind == D_FORBID && str_equal(d->key, key))
            *forbidden = true;
        if (d->kind == D_KEY && str_equal(d->key, key) && n < cap)
            out[n++] = d->lit;
        if (d->kind != D_PROPERTIES)
            continue;
        const struct value *props = value_get(d->v, "properties"), *more = value_get(d->v, "additionalProperties");
        const struct value *node = value_is(props, VALUE_DICT) ? value_get_str(props, key) : NULL;
        if (!node && more && !value_get(d->v, "patternProperties"))
            node = more;
        if (node && n < cap)
            out[n++] = (struct literal){node, false};
    }
    return n;
}

// Whether a required property cannot exist: it is forbidden, or no value meets its literals.
static int object_is_empty(struct schema *s, const struct branch *b, int depth)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->demands[i].kind != D_REQUIRE)
            continue;
        struct literal lits[32];
        bool forbidden = false;
        if (schema_spend(s, 1 + b->n / 8))
            return -1;
        size_t n = key_literals(b, b->demands[i].key, lits, COUNT_OF(lits), &forbidden);
        int empty = forbidden ? 1 : n ? schema_is_empty(s, lits, n, depth + 1) : 0;
        if (empty)
            return empty;
    }
    return 0;
}

static int values_are_empty(struct schema *s, const struct branch *b, const struct demand *values)
{
    size_t n = values->n ? 1 : value_count(values->v);
    for (size_t i = 0; i < n; i++) {
        const struct value *v = values->n ? values->v : &values->v->list->items[i];
        bool good = schema_type_of(v) & b->types;
        if (schema_spend(s, 1 + b->n / 8))
            return -1;
        for (size_t k = 0; k < b->n && good; k++) {
            const struct demand *d = &b->demands[k];
            if (d->kind == D_NOT_VALUE)
                good = !schema_equal(s, d->v, v);
            else if (d->kind == D_VALUES)
                good = schema_lists(s, d, v);
        }
        if (good)
            return 0;
    }
    return 1;
}

static int text_is_empty(struct schema *s, const struct branch *b, unsigned type)
{
    expr_id e;
    if (type == TYPE_STRING ? schema_emit_string(s, b, &e) : schema_emit_number(s, b, &e))
        return -1;
    return e == EXPR_NEVER;
}

static int look_for_branch(void *arg, struct schema *s, const struct branch *b)
{
    struct search *search = arg;
    const struct demand *values = find_demand(b, D_VALUES);
    if (values) {
        int empty = values_are_empty(s, b, values);
        search->found = search->found || !empty;
        return empty < 0 ? -1 : search->found;
    }
    int empty = 1;
    for (unsigned type = TYPE_NULL; type <= TYPE_OBJECT && empty == 1; type <<= 1) {
        if (!(b->types & type))
            continue;
        if (type == TYPE_OBJECT)
            empty = object_is_empty(s, b, search->depth);
        else
            empty = type == TYPE_STRING || type == TYPE_NUMBER ? text_is_empty(s, b, type) : 0;
    }
    if (empty < 0)
        return -1;
    search->found = search->found || !empty;
    return search->found;
}

int schema_is_empty(struct schema *s, const struct literal *list, size_t n, int depth)
{
    struct search search = {.depth = depth};
    if (depth > 6)
        return 0;
    if (schema_expand(s, list, n, TYPE_ALL, look_for_branch, &search) < 0)
        return -1;
    return !search.found;
}
