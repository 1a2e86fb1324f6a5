// Emits branches as expressions: listed values and arrays. Objects are in schema_object.c.
#include "engine/grammar/schema.h"

#include <stdlib.h>

enum { INDENT_MAX = 16, CONTAINS_STATES_MAX = 4000, UNIQUE_VALUES_MAX = 8 };

expr_id schema_space(struct schema *s)
{
    struct exprs *x = &s->x;
    expr_id blank = expr_text_z(x, " ");
    expr_id line = expr_cat(x, expr_text_z(x, "\n"), expr_repeat(x, blank, 0, INDENT_MAX));
    return expr_optional(x, expr_alt(x, blank, line));
}

static expr_id text(struct schema *s, const char *z)
{
    return expr_text_z(&s->x, z);
}

// --- listed values ---

// "key": value, or a value alone if it has no key.
static int emit_item(struct schema *s, const struct value *key, const struct value *v, expr_id *out)
{
    if (schema_emit_value(s, v, out))
        return -1;
    if (!key)
        return 0;
    expr_id colon = expr_cat(&s->x, text(s, ":"), expr_optional(&s->x, text(s, " ")));
    *out = expr_cat(&s->x, schema_text(s, key->text), expr_cat(&s->x, colon, *out));
    return 0;
}

// Built from the last item to the first, because sequences nest to the right.
static int emit_list_value(struct schema *s, const struct value *v, expr_id *out)
{
    bool list = v->kind == VALUE_LIST;
    expr_id space = schema_space(s), comma = text(s, ",");
    *out = expr_cat(&s->x, space, text(s, list ? "]" : "}"));
    for (size_t i = value_count(v); i-- > 0;) {
        expr_id item = EXPR_NEVER;
        if (schema_spend(s, 1) || emit_item(s, list ? NULL : &v->dict->entries[i].key,
                                            list ? &v->list->items[i] : &v->dict->entries[i].value, &item))
            return -1;
        *out = expr_cat(&s->x, space, expr_cat(&s->x, item, *out));
        if (i > 0)
            *out = expr_cat(&s->x, comma, *out);
    }
    *out = expr_cat(&s->x, text(s, list ? "[" : "{"), *out);
    return 0;
}

int schema_emit_value(struct schema *s, const struct value *v, expr_id *out)
{
    struct text decimal = {0};
    switch (schema_type_of(v)) {
    case TYPE_NULL:
        *out = text(s, "null");
        return 0;
    case TYPE_FALSE:
    case TYPE_TRUE:
        *out = text(s, v->boolean ? "true" : "false");
        return 0;
    case TYPE_STRING:
        *out = schema_text(s, v->text);
        return 0;
    case TYPE_NUMBER:
        if (!schema_decimal(v, &decimal))
            return decimal.failed ? schema_no_memory(s) : schema_refuse(s, v, "this number is too large");
        *out = expr_text(&s->x, (struct str){decimal.data, decimal.size});
        text_free(&decimal);
        return 0;
    default:
        return emit_list_value(s, v, out);
    }
}

// Emits those values of enum or const that meet the whole branch.
static int emit_values(struct schema *s, const struct branch *b, const struct demand *values, expr_id *out)
{
    size_t n_values = values->n ? 1 : value_count(values->v);
    *out = EXPR_NEVER;
    for (size_t i = n_values; i-- > 0;) {
        const struct value *v = values->n ? values->v : &values->v->list->items[i];
        if (schema_spend(s, 1))
            return -1;
        int met = schema_meets(s, b, v);
        expr_id e = EXPR_NEVER;
        if (met < 0 || (met && schema_emit_value(s, v, &e)))
            return -1;
        if (met)
            *out = expr_alt(&s->x, e, *out);
    }
    return 0;
}

// --- arrays ---

struct array {
    struct schema *s;
    const struct branch *b;
    size_t n_prefix;  // items for which some schema has keywords by index
    int64_t min, max; // number of items; max -1: no maximum
    const struct demand *contains, *unique;
};

static int push(struct schema *s, struct literal **list, size_t *n, struct literal lit)
{
    struct literal *more = realloc(*list, (*n + 1) * sizeof *more);
    if (!more)
        return schema_no_memory(s);
    *list = more;
    more[(*n)++] = lit;
    return 0;
}

// Returns `prefixItems`, or the older form of `items` that is a list. *rest: the schema of the items after it.
static const struct value *prefix_of(const struct value *node, const struct value **rest)
{
    const struct value *prefix = value_get(node, "prefixItems"), *items = value_get(node, "items");
    *rest = items;
    if (!prefix && value_is(items, VALUE_LIST)) {
        *rest = value_get(node, "additionalItems");
        prefix = items;
    }
    return prefix;
}

// Collects the literals on item i; i = n_prefix stands for all items after the prefix.
static int item_literals(const struct array *a, size_t i, struct literal **list, size_t *n)
{
    for (size_t k = 0; k < a->b->n; k++) {
        const struct demand *d = &a->b->demands[k];
        const struct value *rest = NULL, *prefix = d->kind == D_ITEMS ? prefix_of(d->v, &rest) : NULL;
        const struct value *node = value_is(prefix, VALUE_LIST) && i < prefix->list->n ? &prefix->list->items[i] : rest;
        if (node && push(a->s, list, n, (struct literal){node, false}))
            return -1;
        bool here = (d->kind == D_EACH && (int64_t)i >= d->n) || (d->kind == D_AT && (int64_t)i == d->n);
        if (here && push(a->s, list, n, d->lit))
            return -1;
    }
    return 0;
}

// The expression of item i, which must also meet `more` unless that is NULL.
static int item_at(const struct array *a, size_t i, const struct literal *more, expr_id *out)
{
    struct literal *list = NULL;
    size_t n = 0;
    int status = item_literals(a, i, &list, &n);
    if (!status && more)
        status = push(a->s, &list, &n, *more);
    for (size_t k = 0; k < n && !status; k++)
        if (list[k].node->kind != VALUE_DICT && list[k].node->kind != VALUE_BOOL)
            status = schema_refuse(a->s, list[k].node, "a schema is an object, true or false");
    if (!status)
        status = schema_spend(a->s, a->b->n) || schema_claim(a->s, list, n, out) ? -1 : 0;
    free(list);
    return status;
}

static expr_id separator(const struct array *a)
{
    return expr_cat(&a->s->x, text(a->s, ","), schema_space(a->s));
}

static int read_array(struct array *a)
{
    for (size_t i = 0; i < a->b->n; i++) {
        const struct demand *d = &a->b->demands[i];
        const struct value *rest, *prefix;
        switch (d->kind) {
        case D_MIN_ITEMS:
            a->min = MAX(a->min, d->n);
            break;
        case D_MAX_ITEMS:
            a->max = a->max < 0 ? d->n : MIN(a->max, d->n);
            break;
        case D_AT:
            a->min = MAX(a->min, d->n + 1);
            a->n_prefix = MAX(a->n_prefix, (size_t)d->n + 1);
            break;
        case D_ITEMS:
            prefix = prefix_of(d->v, &rest);
            a->n_prefix = MAX(a->n_prefix, value_count(prefix));
            break;
        case D_UNIQUE:
            a->unique = d;
            break;
        case D_CONTAINS:
            if (a->contains)
                return schema_refuse(a->s, d->at, "more than one contains on one array is not supported");
            a->contains = d;
            break;
        default:
            break;
        }
    }
    return 0;
}

// Builds the items from the last one of the prefix to the first; everything after an item that may be missing is
// optional.
static int emit_plain(const struct array *a, expr_id *out)
{
    struct exprs *x = &a->s->x;
    expr_id rest, e;
    int64_t n = (int64_t)a->n_prefix, most = a->max < 0 ? -1 : MAX(a->max - MAX(n, 1), 0);
    int64_t least = MAX(a->min - MAX(n, 1), 0);
    if (item_at(a, a->n_prefix, NULL, &rest))
        return -1;
    e = expr_repeat(x, expr_cat(x, separator(a), rest), (uint32_t)least, most < 0 ? REPEAT_ANY : (uint32_t)most);
    if (n == 0)
        e = expr_cat(x, rest, e);
    for (int64_t i = MAX(n, 1) - 1; i >= 0; i--) {
        expr_id item;
        if (n > 0) {
            if (item_at(a, (size_t)i, NULL, &item))
                return -1;
            e = expr_cat(x, i ? expr_cat(x, separator(a), item) : item, e);
        }
        if (a->max >= 0 && i >= a->max)
            e = EXPR_EMPTY;
        else if (i >= a->min)
            e = expr_optional(x, e);
    }
    *out = e;
    return 0;
}

// --- arrays with contains: one rule for each index and count of matches ---

static int64_t matches_max(const struct array *a)
{
    return a->contains->m < 0 ? a->contains->n : a->contains->m;
}

static int contains_rule(const struct array *a, uint32_t first, int64_t places, int64_t place, int64_t count,
                         expr_id *out)
{
    struct exprs *x = &a->s->x;
    const struct demand *d = a->contains;
    int64_t most = matches_max(a), next = MIN(place + 1, places);
    bool may_end = place >= a->min && count >= d->n && (d->m < 0 || count <= d->m);
    *out = may_end ? EXPR_EMPTY : EXPR_NEVER;
    if (a->max >= 0 && place >= a->max)
        return 0;
    size_t at = MIN((size_t)place, a->n_prefix);
    struct literal opposite = {d->lit.node, !d->lit.negated};
    expr_id match, other, comma = place ? separator(a) : EXPR_EMPTY;
    // without a maximum, a match may also be left uncounted
    if (item_at(a, at, &d->lit, &match) || item_at(a, at, d->m < 0 ? NULL : &opposite, &other))
        return -1;
    int64_t after = d->m < 0 ? MIN(count + 1, most) : count + 1;
    expr_id counted = after > most ? EXPR_NEVER : expr_rule(x, first + (uint32_t)(next * (most + 1) + after));
    expr_id uncounted = expr_rule(x, first + (uint32_t)(next * (most + 1) + count));
    *out =
        expr_alt(x, *out, expr_cat(x, comma, expr_alt(x, expr_cat(x, match, counted), expr_cat(x, other, uncounted))));
    return 0;
}

static int emit_contains(const struct array *a, expr_id *out)
{
    struct schema *s = a->s;
    int64_t most = matches_max(a), places = MAX(MAX((int64_t)a->n_prefix, a->min), MAX(a->max, 1));
    if (places > CONTAINS_STATES_MAX || most > CONTAINS_STATES_MAX || (places + 1) * (most + 1) > CONTAINS_STATES_MAX)
        return schema_refuse(s, a->contains->at, "contains on arrays of so many items is not supported");
    uint32_t first = s->x.n_rules;
    for (int64_t i = 0; i < (places + 1) * (most + 1); i++)
        if (exprs_rule(&s->x, STR_LIT("items")) == UINT32_MAX)
            return schema_no_memory(s);
    for (int64_t place = 0; place <= places; place++)
        for (int64_t count = 0; count <= most; count++) {
            expr_id body;
            if (contains_rule(a, first, places, place, count, &body))
                return -1;
            struct rule *rule = &s->x.rules[first + (uint32_t)(place * (most + 1) + count)];
            rule->body = body;
            rule->defined = true;
        }
    *out = expr_rule(&s->x, first);
    return 0;
}

// --- arrays with uniqueItems: one rule for each set of values already used ---

struct listing {
    const struct value *values[UNIQUE_VALUES_MAX + 1];
    size_t n;
    bool open; // items may have values that are not listed
};

static void list_value(struct schema *s, struct listing *l, const struct value *v)
{
    for (size_t i = 0; i < l->n; i++)
        if (schema_equal(s, l->values[i], v))
            return;
    if (l->n <= UNIQUE_VALUES_MAX)
        l->values[l->n++] = v;
}

static int list_branch(void *arg, struct schema *s, const struct branch *b)
{
    static const struct value simple[] = {
        {.kind = VALUE_NONE}, {.kind = VALUE_BOOL}, {.kind = VALUE_BOOL, .boolean = true}};
    struct listing *l = arg;
    const struct demand *values = NULL;
    for (size_t i = 0; i < b->n; i++)
        values = b->demands[i].kind == D_VALUES ? &b->demands[i] : values;
    size_t n = !values ? 0 : values->n ? 1 : value_count(values->v);
    for (size_t i = 0; i < n; i++)
        list_value(s, l, values->n ? values->v : &values->v->list->items[i]);
    l->open = l->open || (!values && b->types > (TYPE_NULL | TYPE_FALSE | TYPE_TRUE));
    for (int i = 0; i < 3 && !values; i++)
        if (b->types & (1u << i))
            list_value(s, l, &simple[i]);
    return 0;
}

static int unique_rule(const struct array *a, const struct listing *l, uint32_t first, unsigned used, expr_id *out)
{
    struct exprs *x = &a->s->x;
    int count = __builtin_popcount(used);
    *out = count >= a->min ? EXPR_EMPTY : EXPR_NEVER;
    for (size_t i = 0; i < l->n && (a->max < 0 || count < a->max); i++) {
        expr_id e = EXPR_NEVER;
        if (used & (1u << i))
            continue;
        if (schema_emit_value(a->s, l->values[i], &e))
            return -1;
        e = expr_cat(x, e, expr_rule(x, first + (used | 1u << i)));
        *out = expr_alt(x, *out, expr_cat(x, used ? separator(a) : EXPR_EMPTY, e));
    }
    return 0;
}

static int emit_unique(const struct array *a, expr_id *out)
{
    struct schema *s = a->s;
    struct listing l = {0};
    struct literal *list = NULL;
    size_t n = 0, kept = 0;
    int status = item_literals(a, 0, &list, &n);
    if (!status)
        status = schema_expand(s, list, n, TYPE_ALL, list_branch, &l);
    if (!status && (l.open || l.n > UNIQUE_VALUES_MAX || a->n_prefix || a->contains))
        status = schema_refuse(s, a->unique->at, "uniqueItems is supported for items from a list of at most %d values",
                               UNIQUE_VALUES_MAX);
    for (size_t i = 0; i < l.n && !status; i++) {
        int met = 1;
        for (size_t k = 0; k < n && met == 1; k++)
            met = schema_matches(s, list[k], l.values[i]);
        status = met < 0 ? -1 : 0;
        if (met == 1)
            l.values[kept++] = l.values[i];
    }
    free(list);
    if (status)
        return -1;
    l.n = kept;
    uint32_t first = s->x.n_rules;
    for (unsigned i = 0; i < 1u << l.n; i++)
        if (exprs_rule(&s->x, STR_LIT("items")) == UINT32_MAX)
            return schema_no_memory(s);
    for (unsigned used = 0; used < 1u << l.n; used++) {
        expr_id body;
        if (unique_rule(a, &l, first, used, &body))
            return -1;
        s->x.rules[first + used].body = body;
        s->x.rules[first + used].defined = true;
    }
    *out = expr_rule(&s->x, first);
    return 0;
}

int schema_emit_array(struct schema *s, const struct branch *b, expr_id *out)
{
    struct array a = {.s = s, .b = b, .max = -1};
    expr_id inner;
    *out = EXPR_NEVER;
    if (read_array(&a))
        return -1;
    if (a.max >= 0 && a.max < a.min)
        return 0;
    if (a.unique && (a.max < 0 || a.max > 1)) {
        if (emit_unique(&a, &inner))
            return -1;
    } else if (a.contains ? emit_contains(&a, &inner) : emit_plain(&a, &inner)) {
        return -1;
    }
    expr_id parts[] = {text(s, "["), schema_space(s), inner, schema_space(s), text(s, "]")};
    // for an empty array, one of the two spaces would suffice
    *out = expr_cat_n(&s->x, parts, COUNT_OF(parts));
    return 0;
}

// --- all types ---

static int emit_type(struct schema *s, const struct branch *b, unsigned type, expr_id *out)
{
    switch (type) {
    case TYPE_NULL:
        *out = text(s, "null");
        return 0;
    case TYPE_FALSE:
        *out = text(s, "false");
        return 0;
    case TYPE_TRUE:
        *out = text(s, "true");
        return 0;
    case TYPE_NUMBER:
        return schema_emit_number(s, b, out);
    case TYPE_STRING:
        return schema_emit_string(s, b, out);
    case TYPE_ARRAY:
        return schema_emit_array(s, b, out);
    default:
        return schema_emit_object(s, b, out);
    }
}

// Whether D_NOT_VALUE excludes a value of this type; null, true and false are then excluded entirely.
static bool is_denied(const struct branch *b, unsigned type)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->demands[i].kind == D_NOT_VALUE && schema_type_of(b->demands[i].v) == type)
            return true;
    return false;
}

int schema_emit(struct schema *s, const struct branch *b, expr_id *out)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->demands[i].kind == D_VALUES)
            return emit_values(s, b, &b->demands[i], out);
    *out = EXPR_NEVER;
    for (unsigned type = TYPE_OBJECT; type; type >>= 1) {
        expr_id e;
        if (!(b->types & type))
            continue;
        if (is_denied(b, type)) {
            if (type >= TYPE_ARRAY)
                return schema_refuse(s, &s->root, "not const and not enum are not supported for arrays and objects");
            if (type <= TYPE_TRUE)
                continue;
        }
        if (emit_type(s, b, type, &e))
            return -1;
        *out = expr_alt(&s->x, e, *out);
    }
    return 0;
}
