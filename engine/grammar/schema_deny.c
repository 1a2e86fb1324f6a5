// The negation of a schema: each keyword contributes the ways in which a value can fail it.
#include "engine/grammar/numbers.h"
#include "engine/grammar/schema_draft.h"

#include <stdio.h>

static int deny_type(struct schema *s, struct choice *c, const struct value *v)
{
    unsigned types;
    bool integer, number;
    if (schema_read_types(s, v, &types, &integer, &number))
        return -1;
    c->at[c->n++].types = TYPE_ALL & ~types;
    return integer && !number ? choice_demand(s, c, TYPE_NUMBER, (struct demand){.kind = D_NOT_INTEGER}) : 0;
}

static int deny_values(struct schema *s, struct choice *c, const struct value *v, bool list)
{
    struct alternative *a = &c->at[c->n++];
    size_t n = list ? v->list->n : 1;
    a->demands = ARENA_ARRAY(&s->arena, struct demand, n);
    for (size_t i = 0; a->demands && i < n; i++)
        a->demands[a->n_demands++] = (struct demand){.kind = D_NOT_VALUE, .v = list ? &v->list->items[i] : v, .at = v};
    return a->demands ? 0 : schema_no_memory(s);
}

static int deny_order(struct schema *s, struct choice *c, const struct value *v, int64_t orders)
{
    double real;
    if (!value_number(v, &real))
        return schema_refuse(s, v, "this is no number");
    return choice_demand(s, c, TYPE_NUMBER, (struct demand){.kind = D_COMPARE, .v = v, .at = v, .n = orders});
}

// A minimum n is failed by at most n - 1, a maximum n by at least n + 1.
static int deny_count(struct schema *s, struct choice *c, const struct value *v, const char *name, unsigned type,
                      enum demand_kind opposite, int step)
{
    struct demand demand = {.kind = opposite};
    if (schema_want_count(s, v, name, &demand.n))
        return -1;
    demand.n += step;
    return demand.n < 0 ? 0 : choice_demand(s, c, type, demand);
}

static int deny_required(struct schema *s, struct choice *c, const struct value *v)
{
    for (size_t i = 0; i < v->list->n; i++)
        if (choice_demand(s, c, TYPE_OBJECT, (struct demand){.kind = D_FORBID, .key = v->list->items[i].text}))
            return -1;
    return 0;
}

static int deny_properties(struct schema *s, struct choice *c, const struct value *v)
{
    for (size_t i = 0; i < v->dict->n; i++) {
        struct alternative *a = &c->at[c->n++];
        struct str key = v->dict->entries[i].key.text;
        a->types = TYPE_OBJECT;
        a->demands = ARENA_ARRAY(&s->arena, struct demand, 2);
        if (!a->demands)
            return schema_no_memory(s);
        a->demands[a->n_demands++] = (struct demand){.kind = D_REQUIRE, .key = key};
        a->demands[a->n_demands++] =
            (struct demand){.kind = D_KEY, .key = key, .lit = {&v->dict->entries[i].value, true}, .at = v};
    }
    return 0;
}

static int deny_prefix(struct schema *s, struct choice *c, const struct value *list)
{
    for (size_t i = 0; i < list->list->n; i++)
        if (choice_demand(s, c, TYPE_ARRAY,
                          (struct demand){.kind = D_AT, .lit = {&list->list->items[i], true}, .n = (int64_t)i}))
            return -1;
    return 0;
}

static int deny_items(struct schema *s, struct choice *c, const struct value *node, const struct value *v)
{
    if (v->kind == VALUE_LIST)
        return deny_prefix(s, c, v);
    if (value_get(node, "prefixItems"))
        return schema_refuse(s, v, "not is not supported over items behind prefixItems");
    return choice_demand(s, c, TYPE_ARRAY,
                         (struct demand){.kind = D_CONTAINS, .lit = {v, true}, .at = v, .n = 1, .m = -1});
}

static int deny_contains(struct schema *s, struct choice *c, const struct value *node, const struct value *v)
{
    if (value_get(node, "minContains") || value_get(node, "maxContains"))
        return schema_refuse(s, v, "not is not supported over minContains and maxContains");
    return choice_demand(s, c, TYPE_ARRAY, (struct demand){.kind = D_EACH, .lit = {v, true}, .at = v});
}

// Adds the ways to fail one keyword. *skipped: a keyword whose failure cannot be expressed, so that way is left out.
static int deny_keyword(struct schema *s, struct choice *c, const struct value *node, enum keyword k, const char *name,
                        const struct value *v, const struct value **skipped)
{
    const struct value *target;
    switch (k) {
    case K_REF:
        return schema_resolve(s, v, &target) ? -1 : choice_literal(s, c, target, true);
    case K_TYPE:
        return deny_type(s, c, v);
    case K_ENUM:
    case K_CONST:
        return k == K_ENUM && v->kind != VALUE_LIST ? schema_refuse(s, v, "enum is a list")
                                                    : deny_values(s, c, v, k == K_ENUM);
    case K_NOT:
        return choice_literal(s, c, v, false);
    case K_MINIMUM:
        return deny_order(s, c, v, NUMBER_BELOW);
    case K_MAXIMUM:
        return deny_order(s, c, v, NUMBER_ABOVE);
    case K_EXCLUSIVE_MINIMUM:
        return deny_order(s, c, v, NUMBER_BELOW | NUMBER_EQUAL);
    case K_EXCLUSIVE_MAXIMUM:
        return deny_order(s, c, v, NUMBER_ABOVE | NUMBER_EQUAL);
    case K_MULTIPLE_OF:
        return choice_demand(s, c, TYPE_NUMBER, (struct demand){.kind = D_NOT_MULTIPLE, .v = v, .at = v});
    case K_MIN_LENGTH:
        return deny_count(s, c, v, name, TYPE_STRING, D_MAX_LENGTH, -1);
    case K_MAX_LENGTH:
        return deny_count(s, c, v, name, TYPE_STRING, D_MIN_LENGTH, 1);
    case K_PATTERN:
        return choice_demand(s, c, TYPE_STRING, (struct demand){.kind = D_NOT_PATTERN, .v = v, .at = v});
    case K_MIN_ITEMS:
        return deny_count(s, c, v, name, TYPE_ARRAY, D_MAX_ITEMS, -1);
    case K_MAX_ITEMS:
        return deny_count(s, c, v, name, TYPE_ARRAY, D_MIN_ITEMS, 1);
    case K_ITEMS:
        return deny_items(s, c, node, v);
    case K_PREFIX_ITEMS:
        return schema_want_schemas(s, v, name) ? -1 : deny_prefix(s, c, v);
    case K_CONTAINS:
        return deny_contains(s, c, node, v);
    case K_MIN_PROPERTIES:
        return deny_count(s, c, v, name, TYPE_OBJECT, D_MAX_PROPERTIES, -1);
    case K_MAX_PROPERTIES:
        return deny_count(s, c, v, name, TYPE_OBJECT, D_MIN_PROPERTIES, 1);
    case K_REQUIRED:
        return schema_want_names(s, v, name) ? -1 : deny_required(s, c, v);
    case K_PROPERTIES:
        return schema_want_dict(s, v, name) ? -1 : deny_properties(s, c, v);
    case K_ANNOTATION:
    case K_THEN:
    case K_ELSE:
    case K_MIN_CONTAINS:
    case K_MAX_CONTAINS:
        return 0;
    case K_UNIQUE_ITEMS:
    case K_ADDITIONAL_PROPERTIES:
        *skipped = value_is_true(v) == (k == K_UNIQUE_ITEMS) ? v : *skipped;
        return 0;
    default:
        *skipped = v;
        return 0;
    }
}

// An upper bound of the ways to fail one keyword.
static size_t count_ways(const struct value *v)
{
    return 2 + value_count(v);
}

// Adds the ways to fail a keyword that combines schemas. For allOf, one part must fail; for anyOf, all parts must
// fail.
static int deny_combination(struct schema *s, struct choice *c, const struct value *node, enum keyword k,
                            const char *name, const struct value *v)
{
    struct draft part = {.b.types = TYPE_ALL};
    if (k != K_IF && schema_want_schemas(s, v, name))
        return -1;
    if (k == K_ALL_OF) {
        for (size_t i = 0; i < v->list->n; i++)
            if (choice_literal(s, c, &v->list->items[i], true))
                return -1;
        return 0;
    }
    if (k == K_ANY_OF) {
        struct alternative *a = &c->at[c->n++];
        if (!alternative_literals(s, a, v->list->n))
            return schema_no_memory(s);
        for (size_t i = 0; i < v->list->n; i++)
            a->lits[a->n_lits++] = (struct literal){&v->list->items[i], true};
        return 0;
    }
    // oneOf and if make a choice of their own; its alternatives become alternatives here
    if (k == K_ONE_OF ? draft_not_one_of(s, &part, v) : draft_if(s, &part, node, true))
        return -1;
    for (size_t i = 0; part.choices && i < part.choices->n; i++)
        c->at[c->n++] = part.choices->at[i];
    return 0;
}

int draft_deny(struct schema *s, struct draft *d, const struct value *node)
{
    size_t room_for = 0;
    for (size_t i = 0; i < node->dict->n; i++) {
        size_t n = count_ways(&node->dict->entries[i].value);
        room_for += n * (str_equal_z(node->dict->entries[i].key.text, "oneOf") ? n : 1);
    }
    if (schema_spend(s, room_for))
        return -1;
    struct choice *c = choice_new(s, room_for + 2);
    const struct value *skipped = NULL;
    if (!c)
        return schema_no_memory(s);
    for (size_t i = 0; i < node->dict->n; i++) {
        struct str name = node->dict->entries[i].key.text;
        enum keyword k = schema_keyword(name);
        const struct value *v = &node->dict->entries[i].value;
        char z[32];
        snprintf(z, sizeof z, "%.*s", STR_ARG(name));
        bool combines = k == K_ALL_OF || k == K_ANY_OF || k == K_ONE_OF || k == K_IF;
        if (s->ref_alone && k != K_REF && value_get(node, "$ref"))
            continue;
        if (combines ? deny_combination(s, c, node, k, z, v) : deny_keyword(s, c, node, k, z, v, &skipped))
            return -1;
    }
    if (skipped && !c->n) // other ways to fail suffice: every answer still conforms
        return schema_refuse(s, skipped, "this keyword is not supported where it must fail (in not, oneOf or if)");
    draft_choose(d, c);
    return 0;
}
