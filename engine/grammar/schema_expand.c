// Expands a claim into branches: every keyword becomes demands, more literals, or a choice. Choices are tried one by
// one.
#include "engine/grammar/numbers.h"
#include "engine/grammar/schema_draft.h"

#include <stdio.h>

struct expansion {
    struct schema *s;
    schema_branch_fn *fn;
    void *arg;
    int depth;
};
enum { CHOICES_DEEP_MAX = 300, STEPS_MAX = 500000, EXPANSIONS_NEST_MAX = 300 };

// --- types ---

static int take_type(struct schema *s, struct draft *d, const struct value *v, bool negated)
{
    unsigned types;
    bool integer, number;
    if (schema_read_types(s, v, &types, &integer, &number))
        return -1;
    bool part = integer && !number; // integers only, a part of all numbers
    if (!negated) {
        d->b.types &= types;
        return part ? draft_demand(s, d, (struct demand){.kind = D_INTEGER}) : 0;
    }
    d->b.types &= ~types | (part ? TYPE_NUMBER : 0);
    return part ? draft_demand(s, d, (struct demand){.kind = D_NOT_INTEGER}) : 0;
}

// --- oneOf, if ---

// *out: whether the schemas a and b may both hold for one value; true if in doubt.
static int overlap(struct schema *s, const struct value *a, const struct value *b, bool *out)
{
    struct literal both[] = {{a, false}, {b, false}};
    int empty = schema_is_empty(s, both, 2, 0);
    *out = !empty;
    return empty < 0 ? -1 : 0;
}

static int take_one_of(struct schema *s, struct draft *d, const struct value *v)
{
    size_t n = v->list->n;
    struct choice *c = choice_new(s, n);
    if (!c)
        return schema_no_memory(s);
    for (size_t i = 0; i < n; i++) {
        struct alternative *a = &c->at[c->n++];
        if (!alternative_literals(s, a, n))
            return schema_no_memory(s);
        a->lits[a->n_lits++] = (struct literal){&v->list->items[i], false};
        if (schema_spend(s, n))
            return -1;
        for (size_t k = 0; k < n; k++) {
            bool also = false;
            if (k != i && overlap(s, &v->list->items[i], &v->list->items[k], &also))
                return -1;
            if (also)
                a->lits[a->n_lits++] = (struct literal){&v->list->items[k], true};
        }
    }
    draft_choose(d, c);
    return 0;
}

// The negation of exactly one: none holds, or some two do.
int draft_not_one_of(struct schema *s, struct draft *d, const struct value *v)
{
    size_t n = v->list->n;
    if (schema_spend(s, n * n))
        return -1;
    struct choice *c = choice_new(s, n * (n - 1) / 2 + 1);
    if (!c || !alternative_literals(s, &c->at[0], n))
        return schema_no_memory(s);
    for (size_t i = 0; i < n; i++)
        c->at[0].lits[c->at[0].n_lits++] = (struct literal){&v->list->items[i], true};
    c->n = 1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            struct alternative *a = &c->at[c->n++];
            if (!alternative_literals(s, a, 2))
                return schema_no_memory(s);
            a->lits[a->n_lits++] = (struct literal){&v->list->items[i], false};
            a->lits[a->n_lits++] = (struct literal){&v->list->items[k], false};
        }
    draft_choose(d, c);
    return 0;
}

static int take_any_of(struct schema *s, struct draft *d, const struct value *v, bool negated)
{
    struct choice *c = choice_new(s, v->list->n);
    if (!c)
        return schema_no_memory(s);
    for (size_t i = 0; i < v->list->n; i++)
        if (choice_literal(s, c, &v->list->items[i], negated))
            return -1;
    draft_choose(d, c);
    return 0;
}

static int take_each(struct schema *s, struct draft *d, const struct value *v, bool negated)
{
    for (size_t i = v->list->n; i-- > 0;)
        if (draft_todo(s, d, &v->list->items[i], negated))
            return -1;
    return 0;
}

// `if` and `then` both hold, or `if` fails and `else` holds. Negated: `if` holds and `then` fails, or both `if` and
// `else` fail.
int draft_if(struct schema *s, struct draft *d, const struct value *node, bool negated)
{
    const struct value *condition = value_get(node, "if");
    const struct value *then[2] = {value_get(node, "then"), value_get(node, "else")};
    if (!then[0] && !then[1])
        return negated ? (d->b.types = 0, 0) : 0;
    struct choice *c = choice_new(s, 2);
    if (!c)
        return schema_no_memory(s);
    for (int k = 0; k < 2; k++) {
        if (then[k] && schema_want_schema(s, then[k], k ? "else" : "then"))
            return -1;
        if (negated && !then[k])
            continue;
        struct alternative *a = &c->at[c->n++];
        if (!alternative_literals(s, a, 2))
            return schema_no_memory(s);
        a->lits[a->n_lits++] = (struct literal){condition, k == 1};
        if (then[k])
            a->lits[a->n_lits++] = (struct literal){then[k], negated};
    }
    draft_choose(d, c);
    return 0;
}

// --- dependencies ---

// If the property exists, the listed properties must exist, or the value must meet a schema.
static int take_dependency(struct schema *s, struct draft *d, struct str key, const struct value *v)
{
    if (v->kind == VALUE_LIST ? schema_want_names(s, v, "a dependency") : schema_want_schema(s, v, "a dependency"))
        return -1;
    struct choice *c = choice_new(s, 2);
    if (!c || choice_demand(s, c, TYPE_ALL, (struct demand){.kind = D_FORBID, .key = key}))
        return schema_no_memory(s);
    struct alternative *a = &c->at[c->n++];
    size_t n = v->kind == VALUE_LIST ? v->list->n : 0;
    a->types = TYPE_OBJECT;
    a->demands = ARENA_ARRAY(&s->arena, struct demand, n + 1);
    if (!a->demands || !alternative_literals(s, a, 1))
        return schema_no_memory(s);
    a->demands[a->n_demands++] = (struct demand){.kind = D_REQUIRE, .key = key};
    for (size_t i = 0; i < n; i++)
        a->demands[a->n_demands++] = (struct demand){.kind = D_REQUIRE, .key = v->list->items[i].text};
    if (v->kind != VALUE_LIST)
        a->lits[a->n_lits++] = (struct literal){v, false};
    draft_choose(d, c);
    return 0;
}

static int take_dependencies(struct schema *s, struct draft *d, const struct value *v, const char *name)
{
    if (schema_want_dict(s, v, name))
        return -1;
    for (size_t i = 0; i < v->dict->n; i++)
        if (take_dependency(s, d, v->dict->entries[i].key.text, &v->dict->entries[i].value))
            return -1;
    return 0;
}

// --- keywords, not negated ---

static int take_count(struct schema *s, struct draft *d, const struct value *v, const char *name, enum demand_kind kind)
{
    struct demand demand = {.kind = kind};
    return schema_want_count(s, v, name, &demand.n) ? -1 : draft_demand(s, d, demand);
}

static int take_order(struct schema *s, struct draft *d, const struct value *v, const char *name, int64_t orders)
{
    double real;
    if (!value_number(v, &real))
        return schema_refuse(s, v, "%s is a number", name);
    return draft_demand(s, d, (struct demand){.kind = D_COMPARE, .v = v, .at = v, .n = orders});
}

static int take_contains(struct schema *s, struct draft *d, const struct value *node, const struct value *v)
{
    const struct value *min = value_get(node, "minContains"), *max = value_get(node, "maxContains");
    struct demand demand = {.kind = D_CONTAINS, .lit = {v, false}, .at = v, .n = 1, .m = -1};
    if (schema_want_schema(s, v, "contains") || (min && schema_want_count(s, min, "minContains", &demand.n)) ||
        (max && schema_want_count(s, max, "maxContains", &demand.m)))
        return -1;
    return demand.n == 0 && demand.m < 0 ? 0 : draft_demand(s, d, demand);
}

static int take_required(struct schema *s, struct draft *d, const struct value *v)
{
    if (schema_want_names(s, v, "required"))
        return -1;
    for (size_t i = 0; i < v->list->n; i++)
        if (draft_demand(s, d, (struct demand){.kind = D_REQUIRE, .key = v->list->items[i].text, .at = v}))
            return -1;
    return 0;
}

static int take_piece(struct schema *s, struct draft *d, const struct value *node, enum demand_kind kind)
{
    if (schema_spend(s, d->b.n / 8))
        return -1;
    for (size_t i = 0; i < d->b.n; i++)
        if (d->b.demands[i].kind == kind && d->b.demands[i].v == node)
            return 0;
    return draft_demand(s, d, (struct demand){.kind = kind, .v = node, .at = node});
}

static int take_reference(struct schema *s, struct draft *d, const struct value *v, bool negated)
{
    const struct value *target;
    return schema_resolve(s, v, &target) ? -1 : draft_todo(s, d, target, negated);
}

static int take_unique(struct schema *s, struct draft *d, const struct value *v)
{
    if (v->kind != VALUE_BOOL)
        return schema_refuse(s, v, "uniqueItems is true or false");
    return v->boolean ? draft_demand(s, d, (struct demand){.kind = D_UNIQUE, .at = v}) : 0;
}

static int take_multiple(struct schema *s, struct draft *d, const struct value *v)
{
    double real;
    if (!value_number(v, &real) || !(real > 0))
        return schema_refuse(s, v, "multipleOf is a number above 0");
    return draft_demand(s, d, (struct demand){.kind = D_MULTIPLE, .v = v, .at = v});
}

static int take_text(struct schema *s, struct draft *d, const struct value *v, const char *name, enum demand_kind kind)
{
    if (v->kind != VALUE_STRING)
        return schema_refuse(s, v, "%s is a string", name);
    return draft_demand(s, d, (struct demand){.kind = kind, .v = v, .at = v});
}

static int take_keyword(struct schema *s, struct draft *d, const struct value *node, enum keyword k, const char *name,
                        const struct value *v)
{
    switch (k) {
    case K_REF:
        return take_reference(s, d, v, false);
    case K_TYPE:
        return take_type(s, d, v, false);
    case K_ENUM:
        return v->kind == VALUE_LIST ? draft_demand(s, d, (struct demand){.kind = D_VALUES, .v = v, .at = v})
                                     : schema_refuse(s, v, "enum is a list");
    case K_CONST:
        return draft_demand(s, d, (struct demand){.kind = D_VALUES, .v = v, .at = v, .n = 1});
    case K_ALL_OF:
        return schema_want_schemas(s, v, name) ? -1 : take_each(s, d, v, false);
    case K_ANY_OF:
        return schema_want_schemas(s, v, name) ? -1 : take_any_of(s, d, v, false);
    case K_ONE_OF:
        return schema_want_schemas(s, v, name) ? -1 : take_one_of(s, d, v);
    case K_NOT:
        return schema_want_schema(s, v, name) ? -1 : draft_todo(s, d, v, true);
    case K_IF:
        return schema_want_schema(s, v, name) ? -1 : draft_if(s, d, node, false);
    case K_MINIMUM:
        return take_order(s, d, v, name, NUMBER_ABOVE | NUMBER_EQUAL);
    case K_MAXIMUM:
        return take_order(s, d, v, name, NUMBER_BELOW | NUMBER_EQUAL);
    case K_EXCLUSIVE_MINIMUM:
        return take_order(s, d, v, name, NUMBER_ABOVE);
    case K_EXCLUSIVE_MAXIMUM:
        return take_order(s, d, v, name, NUMBER_BELOW);
    case K_MULTIPLE_OF:
        return take_multiple(s, d, v);
    case K_MIN_LENGTH:
        return take_count(s, d, v, name, D_MIN_LENGTH);
    case K_MAX_LENGTH:
        return take_count(s, d, v, name, D_MAX_LENGTH);
    case K_PATTERN:
        return take_text(s, d, v, name, D_PATTERN);
    case K_FORMAT:
        return take_text(s, d, v, name, D_FORMAT);
    case K_MIN_ITEMS:
        return take_count(s, d, v, name, D_MIN_ITEMS);
    case K_MAX_ITEMS:
        return take_count(s, d, v, name, D_MAX_ITEMS);
    case K_UNIQUE_ITEMS:
        return take_unique(s, d, v);
    case K_ITEMS:
    case K_PREFIX_ITEMS:
    case K_ADDITIONAL_ITEMS:
        return take_piece(s, d, node, D_ITEMS);
    case K_CONTAINS:
        return take_contains(s, d, node, v);
    case K_MIN_PROPERTIES:
        return take_count(s, d, v, name, D_MIN_PROPERTIES);
    case K_MAX_PROPERTIES:
        return take_count(s, d, v, name, D_MAX_PROPERTIES);
    case K_REQUIRED:
        return take_required(s, d, v);
    case K_PROPERTIES:
    case K_PATTERN_PROPERTIES:
    case K_ADDITIONAL_PROPERTIES:
        return take_piece(s, d, node, D_PROPERTIES);
    case K_PROPERTY_NAMES:
        return schema_want_schema(s, v, name)
                   ? -1
                   : draft_demand(s, d, (struct demand){.kind = D_NAMES, .lit = {v, false}, .at = v});
    case K_DEPENDENT_REQUIRED:
    case K_DEPENDENT_SCHEMAS:
    case K_DEPENDENCIES:
        return take_dependencies(s, d, v, name);
    default: // annotations, and keywords that are read together with another one
        return 0;
    }
}

// --- the expansion ---

static int take_literal(struct schema *s, struct draft *d, struct literal lit)
{
    const struct value *node = lit.node;
    if (node->kind == VALUE_BOOL) {
        if (node->boolean == lit.negated)
            d->b.types = 0;
        return 0;
    }
    if (node->kind != VALUE_DICT)
        return schema_refuse(s, node, "a schema is an object, true or false");
    if (schema_spend(s, 4 + 8 * node->dict->n)) // a keyword is looked up in a table
        return -1;
    if (schema_check_keywords(s, node))
        return -1;
    if (lit.negated)
        return draft_deny(s, d, node);
    const struct value *ref = value_get(node, "$ref");
    if (ref && s->ref_alone)
        return take_reference(s, d, ref, false);
    for (size_t i = 0; i < node->dict->n; i++) {
        struct str name = node->dict->entries[i].key.text;
        char z[32];
        snprintf(z, sizeof z, "%.*s", STR_ARG(name));
        if (take_keyword(s, d, node, schema_keyword(name), z, &node->dict->entries[i].value))
            return -1;
    }
    return 0;
}

static int apply(struct schema *s, struct draft *d, const struct alternative *a)
{
    d->b.types &= a->types;
    for (size_t i = 0; i < a->n_demands; i++)
        if (draft_demand(s, d, a->demands[i]))
            return -1;
    for (size_t i = a->n_lits; i-- > 0;)
        if (draft_todo(s, d, a->lits[i].node, a->lits[i].negated))
            return -1;
    return 0;
}

// Makes the lists of a copied draft independent of the original.
static int split(struct schema *s, struct draft *d)
{
    struct demand *demands = ARENA_ARRAY(&s->arena, struct demand, d->b.n + 4);
    struct literal *todo = ARENA_ARRAY(&s->arena, struct literal, d->n_todo + 4);
    if (schema_spend(s, 8 + d->b.n + d->n_todo))
        return -1;
    if (!demands || !todo)
        return schema_no_memory(s);
    if (d->b.n)
        memcpy(demands, d->b.demands, d->b.n * sizeof *demands);
    if (d->n_todo)
        memcpy(todo, d->todo, d->n_todo * sizeof *todo);
    d->b.demands = demands;
    d->todo = todo;
    d->cap = d->b.n + 4;
    d->cap_todo = d->n_todo + 4;
    return 0;
}

static int run(struct expansion *e, struct draft *d)
{
    struct schema *s = e->s;
    while (d->n_todo > 0 && d->b.types) {
        struct literal lit = d->todo[--d->n_todo];
        if (++s->n_steps > STEPS_MAX)
            return fail(s->err, E_USAGE,
                        "schema: a reference leads back to itself, or there are too many combinations");
        if (take_literal(s, d, lit))
            return -1;
    }
    if (!d->b.types)
        return 0;
    if (!d->choices)
        return e->fn(e->arg, s, &d->b);
    if (++e->depth > CHOICES_DEEP_MAX)
        return fail(s->err, E_USAGE,
                    "schema: a reference leads back to itself, or more than %d choices meet in one value",
                    CHOICES_DEEP_MAX);
    struct choice *c = d->choices;
    for (size_t i = 0; i < c->n; i++) {
        struct draft way = *d;
        way.choices = c->next;
        if (split(s, &way) || apply(s, &way, &c->at[i]))
            return -1;
        int status = run(e, &way);
        if (status)
            return status;
    }
    e->depth--;
    return 0;
}

int schema_expand(struct schema *s, const struct literal *list, size_t n, unsigned types, schema_branch_fn *fn,
                  void *arg)
{
    struct expansion e = {.s = s, .fn = fn, .arg = arg};
    struct draft d = {.b.types = types};
    if (s->n_nested >= EXPANSIONS_NEST_MAX)
        return fail(s->err, E_USAGE, "schema: checks of its parts are nested deeper than %d", EXPANSIONS_NEST_MAX);
    for (size_t i = n; i-- > 0;)
        if (draft_todo(s, &d, list[i].node, list[i].negated))
            return -1;
    s->n_nested++;
    int status = run(&e, &d);
    s->n_nested--;
    return status;
}
