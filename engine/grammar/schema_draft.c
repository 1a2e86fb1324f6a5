// Building drafts; looking up keywords and checking their values.
#include "engine/grammar/schema_draft.h"

// --- keywords ---

enum keyword schema_keyword(struct str name)
{
    static const struct {
        const char *name;
        enum keyword keyword;
    } keywords[] = {
#define KEYWORD(name, keyword) {name, keyword},
#include "engine/grammar/keywords.def"
#undef KEYWORD
    };
    for (size_t i = 0; i < COUNT_OF(keywords); i++)
        if (str_equal_z(name, keywords[i].name))
            return keywords[i].keyword;
    return name.len > 1 && name.data[0] == 'x' && name.data[1] == '-' ? K_ANNOTATION : K_UNKNOWN;
}

int schema_check_keywords(struct schema *s, const struct value *node)
{
    for (size_t i = 0; node->kind == VALUE_DICT && i < node->dict->n; i++) {
        struct str name = node->dict->entries[i].key.text;
        const enum keyword keyword = schema_keyword(name);
        if (s->ref_alone && value_get(node, "$ref"))
            continue;
        if (keyword == K_UNKNOWN)
            schema_pass_over(s, name);
        if (keyword == K_UNSUPPORTED)
            return schema_refuse(s, &node->dict->entries[i].value, "the keyword '%.*s' is not supported",
                                 (int)MIN(name.len, (size_t)60), name.data);
    }
    return 0;
}

// --- drafts ---

static bool room(struct schema *s, void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    size_t want = MAX(2 * *cap, (size_t)8);
    void *old;
    memcpy(&old, list, sizeof old);
    void *more = arena_array(&s->arena, want, size, 16);
    if (!more)
        return false;
    if (n)
        memcpy(more, old, n * size);
    memcpy(list, &more, sizeof more);
    *cap = want;
    return true;
}

int draft_demand(struct schema *s, struct draft *d, struct demand demand)
{
    if (!room(s, &d->b.demands, d->b.n, &d->cap, sizeof *d->b.demands))
        return schema_no_memory(s);
    d->b.demands[d->b.n++] = demand;
    return 0;
}

int draft_todo(struct schema *s, struct draft *d, const struct value *node, bool negated)
{
    if (!room(s, &d->todo, d->n_todo, &d->cap_todo, sizeof *d->todo))
        return schema_no_memory(s);
    d->todo[d->n_todo++] = (struct literal){node, negated};
    return 0;
}

struct choice *choice_new(struct schema *s, size_t n)
{
    struct choice *c = ARENA_NEW(&s->arena, struct choice);
    s->work += n; // whoever expands the choice counts it
    if (!c)
        return NULL;
    c->at = ARENA_ARRAY(&s->arena, struct alternative, n);
    for (size_t i = 0; c->at && i < n; i++)
        c->at[i].types = TYPE_ALL;
    return c->at ? c : NULL;
}

void draft_choose(struct draft *d, struct choice *c)
{
    c->next = d->choices;
    d->choices = c;
}

bool alternative_literals(struct schema *s, struct alternative *a, size_t n)
{
    a->lits = ARENA_ARRAY(&s->arena, struct literal, n);
    return a->lits != NULL;
}

int choice_literal(struct schema *s, struct choice *c, const struct value *node, bool negated)
{
    struct alternative *a = &c->at[c->n];
    if (!alternative_literals(s, a, 1))
        return schema_no_memory(s);
    a->lits[a->n_lits++] = (struct literal){node, negated};
    c->n++;
    return 0;
}

int choice_demand(struct schema *s, struct choice *c, unsigned types, struct demand demand)
{
    struct alternative *a = &c->at[c->n];
    a->demands = ARENA_NEW(&s->arena, struct demand);
    if (!a->demands)
        return schema_no_memory(s);
    a->demands[a->n_demands++] = demand;
    a->types = types;
    c->n++;
    return 0;
}

// --- checks of a keyword's value ---

int schema_want_list(struct schema *s, const struct value *v, const char *name)
{
    return v->kind == VALUE_LIST && v->list->n > 0 ? 0 : schema_refuse(s, v, "%s is a list that is not empty", name);
}

int schema_want_schema(struct schema *s, const struct value *v, const char *name)
{
    return v->kind == VALUE_DICT || v->kind == VALUE_BOOL ? 0 : schema_refuse(s, v, "%s is a schema", name);
}

int schema_want_schemas(struct schema *s, const struct value *v, const char *name)
{
    if (schema_want_list(s, v, name))
        return -1;
    for (size_t i = 0; i < v->list->n; i++)
        if (schema_want_schema(s, &v->list->items[i], name))
            return -1;
    return 0;
}

int schema_want_count(struct schema *s, const struct value *v, const char *name, int64_t *n)
{
    double real = 0;
    bool good = value_number(v, &real) && real >= 0 && real == (double)(int64_t)MIN(real, 1e15);
    *n = good ? (int64_t)MIN(real, 1e9) : 0;
    return good ? 0 : schema_refuse(s, v, "%s is a whole number from 0 on", name);
}

int schema_want_dict(struct schema *s, const struct value *v, const char *name)
{
    return v->kind == VALUE_DICT ? 0 : schema_refuse(s, v, "%s is an object", name);
}

int schema_want_names(struct schema *s, const struct value *v, const char *name)
{
    bool good = v->kind == VALUE_LIST;
    for (size_t i = 0; good && i < v->list->n; i++)
        good = v->list->items[i].kind == VALUE_STRING;
    return good ? 0 : schema_refuse(s, v, "%s is a list of names", name);
}

// --- types ---

unsigned schema_type_named(const struct value *name, bool *integer)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {{"null", TYPE_NULL},     {"boolean", TYPE_FALSE | TYPE_TRUE},
                 {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER},
                 {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < COUNT_OF(types) && value_is(name, VALUE_STRING); i++)
        if (str_equal_z(name->text, types[i].name)) {
            *integer = str_equal_z(name->text, "integer");
            return types[i].types;
        }
    return 0;
}

int schema_read_types(struct schema *s, const struct value *v, unsigned *types, bool *integer, bool *number)
{
    size_t n = v->kind == VALUE_LIST ? v->list->n : 1;
    *types = 0;
    *integer = *number = false;
    for (size_t i = 0; i < n; i++) {
        const struct value *name = v->kind == VALUE_LIST ? &v->list->items[i] : v;
        bool whole = false;
        unsigned bits = schema_type_named(name, &whole);
        if (!bits)
            return schema_refuse(s, name,
                                 "this is none of the types null, boolean, integer, number, string, array, object");
        *types |= bits;
        *integer = *integer || whole;
        *number = *number || (bits == TYPE_NUMBER && !whole);
    }
    return 0;
}
