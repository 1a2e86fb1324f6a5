// Emits objects: the named properties in the order of the schema, then others.
//
// A named property is written at most once. Other names may occur twice, which JSON allows; readers keep the last
// one. Therefore other names can contribute at most one property to a minimum.
#include "engine/grammar/dfa_build.h"
#include "engine/grammar/schema.h"

#include <stdlib.h>

enum { PATTERNS_MAX = 5, COUNTED_STATES_MAX = 200000 };

struct property {
    struct str key;
    bool required, forbidden;
    expr_id pair; // "key": value; EXPR_NEVER if it cannot exist
};

struct key_pattern {
    const struct value *piece, *value; // a schema with patternProperties, and the schema of the values
    expr_id e;
};

struct object {
    struct schema *s;
    const struct branch *b;
    struct property *props;
    size_t n, cap;
    struct value numbers;           // a dict: the index of each property in `props` by its name
    const struct demand **speaking; // [n_speaking]: the demands that say something of the values or names of properties
    size_t n_speaking;
    struct key_pattern patterns[PATTERNS_MAX];
    size_t n_patterns;
    int64_t min, max;
    bool closed;    // names that no schema mentions are not allowed
    expr_id others; // "key": value for any name other than those in `props`
    expr_id *memo;  // [property][count][first]: the rest of the object
    int64_t counts;
};

static expr_id text(const struct object *o, const char *z)
{
    return expr_text_z(&o->s->x, z);
}

// --- names ---

static struct property *find_property(struct object *o, struct str key)
{
    const struct value *number = value_get_str(&o->numbers, key);
    if (number)
        return &o->props[number->integer];
    if (value_dict_put(&o->s->arena, &o->numbers, value_string(key), value_int((int64_t)o->n), NULL))
        return NULL;
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 16;
        struct property *props = realloc(o->props, cap * sizeof *props);
        if (!props)
            return NULL;
        o->props = props;
        o->cap = cap;
    }
    o->props[o->n] = (struct property){.key = key};
    return &o->props[o->n++];
}

static int add_patterns(struct object *o, const struct value *piece)
{
    const struct value *patterns = value_get(piece, "patternProperties");
    if (patterns && patterns->kind != VALUE_DICT)
        return schema_refuse(o->s, patterns, "patternProperties is an object");
    for (size_t i = 0; i < value_count(patterns); i++) {
        const struct value_entry *entry = &patterns->dict->entries[i];
        if (o->n_patterns == PATTERNS_MAX)
            return schema_refuse(o->s, patterns, "more than %d patterns of names in one object are not supported",
                                 PATTERNS_MAX);
        struct key_pattern *p = &o->patterns[o->n_patterns++];
        *p = (struct key_pattern){.piece = piece, .value = &entry->value};
        if (schema_pattern(o->s, &entry->key, &p->e))
            return -1;
    }
    return 0;
}

static int add_piece(struct object *o, const struct value *piece, bool *explicit)
{
    const struct value *props = value_get(piece, "properties"), *more = value_get(piece, "additionalProperties");
    if (props && props->kind != VALUE_DICT)
        return schema_refuse(o->s, props, "properties is an object");
    for (size_t i = 0; i < value_count(props); i++)
        if (!find_property(o, props->dict->entries[i].key.text))
            return schema_no_memory(o->s);
    *explicit = *explicit || more;
    return add_patterns(o, piece);
}

static int read_demand(struct object *o, const struct demand *d, bool *explicit)
{
    struct property *p = NULL;
    switch (d->kind) {
    case D_PROPERTIES:
        return add_piece(o, d->v, explicit);
    case D_REQUIRE:
    case D_FORBID:
    case D_KEY:
        p = find_property(o, d->key);
        if (!p)
            return schema_no_memory(o->s);
        p->required = p->required || d->kind == D_REQUIRE;
        p->forbidden = p->forbidden || d->kind == D_FORBID;
        return 0;
    case D_MIN_PROPERTIES:
        o->min = MAX(o->min, d->n);
        return 0;
    case D_MAX_PROPERTIES:
        o->max = o->max < 0 ? d->n : MIN(o->max, d->n);
        return 0;
    default:
        return 0;
    }
}

// --- the values of properties ---

struct literals {
    struct literal *at;
    size_t n;
};

static int push(struct object *o, struct literals *l, const struct value *node, bool negated)
{
    struct literal *more = realloc(l->at, (l->n + 1) * sizeof *more);
    if (!more)
        return schema_no_memory(o->s);
    l->at = more;
    more[l->n++] = (struct literal){node, negated};
    return node->kind == VALUE_DICT || node->kind == VALUE_BOOL
               ? 0
               : schema_refuse(o->s, node, "a schema is an object, true or false");
}

static int key_matches(struct object *o, const struct key_pattern *p, struct str key, bool *in)
{
    struct dfa *d;
    if (dfa_from_expr(&d, &o->s->x, p->e, o->s->err))
        return -1;
    *in = dfa_accepts(d, key);
    dfa_free(d);
    return 0;
}

// Collects what one schema says of a name; `key` is NULL for other names. `matched` is the set of patterns that the
// name matches.
static int piece_literals(struct object *o, const struct value *piece, const struct str *key, unsigned matched,
                          struct literals *l)
{
    const struct value *props = value_get(piece, "properties"), *more = value_get(piece, "additionalProperties");
    const struct value *node = key && value_is(props, VALUE_DICT) ? value_get_str(props, *key) : NULL;
    bool named = node != NULL;
    if (node && push(o, l, node, false))
        return -1;
    for (size_t i = 0; i < o->n_patterns; i++)
        if ((matched & (1u << i)) && o->patterns[i].piece == piece) {
            named = true;
            if (push(o, l, o->patterns[i].value, false))
                return -1;
        }
    return !named && more ? push(o, l, more, false) : 0;
}

static int all_literals(struct object *o, const struct str *key, unsigned matched, struct literals *l)
{
    if (schema_spend(o->s, 1 + o->n_speaking / 4))
        return -1;
    for (size_t i = 0; i < o->n_speaking; i++) {
        const struct demand *d = o->speaking[i];
        if (d->kind == D_PROPERTIES && piece_literals(o, d->v, key, matched, l))
            return -1;
        if (key && d->kind == D_KEY && str_equal(d->key, *key) && push(o, l, d->lit.node, d->lit.negated))
            return -1;
    }
    return 0;
}

static expr_id colon(const struct object *o)
{
    return expr_cat(&o->s->x, text(o, ":"), expr_optional(&o->s->x, text(o, " ")));
}

static int value_of(struct object *o, const struct str *key, unsigned matched, expr_id *out)
{
    struct literals l = {0};
    int status = all_literals(o, key, matched, &l);
    if (!status)
        status = schema_claim(o->s, l.at, l.n, out);
    free(l.at);
    return status;
}

static int build_property(struct object *o, struct property *p)
{
    unsigned matched = 0;
    expr_id value;
    for (size_t i = 0; i < o->n_patterns; i++) {
        bool in;
        if (key_matches(o, &o->patterns[i], p->key, &in))
            return -1;
        matched |= in ? 1u << i : 0;
    }
    for (size_t i = 0; i < o->n_speaking && !p->forbidden; i++) {
        const struct value name = value_string(p->key);
        if (o->speaking[i]->kind != D_NAMES)
            continue;
        int met = schema_matches(o->s, o->speaking[i]->lit, &name);
        if (met < 0)
            return -1;
        p->forbidden = !met;
    }
    p->pair = EXPR_NEVER;
    if (p->forbidden)
        return 0;
    if (value_of(o, &p->key, matched, &value))
        return -1;
    p->pair = expr_cat(&o->s->x, schema_text(o->s, p->key), expr_cat(&o->s->x, colon(o), value));
    return 0;
}

// --- other names ---

// The names that propertyNames allows: the union over the branches of its schema.
struct names {
    expr_id e;
};

static int add_names(void *arg, struct schema *s, const struct branch *b)
{
    struct names *names = arg;
    expr_id e;
    bool any, listed = false;
    if (schema_string_contents(s, b, &e, &any))
        return -1;
    for (size_t i = 0; i < b->n; i++) {
        const struct demand *d = &b->demands[i];
        expr_id list = EXPR_NEVER;
        for (size_t k = 0; d->kind == D_VALUES && k < (d->n ? 1 : value_count(d->v)); k++) {
            const struct value *v = d->n ? d->v : &d->v->list->items[k];
            if (v->kind == VALUE_STRING)
                list = expr_alt(&s->x, expr_text(&s->x, v->text), list);
        }
        listed = listed || d->kind == D_VALUES;
        if (d->kind == D_VALUES)
            e = expr_and(&s->x, e, list);
    }
    names->e = expr_alt(&s->x, e, names->e);
    (void)listed;
    return 0;
}

// Names that are not in `props` and that meet propertyNames. *any: every name is allowed.
static int other_names(struct object *o, expr_id *out, bool *any)
{
    struct exprs *x = &o->s->x;
    *out = expr_star(x, expr_any_char(x));
    *any = o->n == 0 && o->n_patterns == 0;
    expr_id named = EXPR_NEVER;
    for (size_t i = o->n; i-- > 0;)
        named = expr_alt(x, expr_text(x, o->props[i].key), named);
    if (named != EXPR_NEVER)
        *out = expr_and(x, *out, expr_not(x, named));
    for (size_t i = 0; i < o->b->n; i++) {
        const struct demand *d = &o->b->demands[i];
        if (d->kind != D_NAMES)
            continue;
        struct names names = {EXPR_NEVER};
        if (schema_expand(o->s, &d->lit, 1, TYPE_STRING, add_names, &names))
            return -1;
        *out = expr_and(x, *out, names.e);
        *any = false;
    }
    return 0;
}

// For each set of patterns: the names that match exactly these patterns, with the values that they require.
static int build_others(struct object *o)
{
    struct exprs *x = &o->s->x;
    expr_id names;
    bool any;
    o->others = EXPR_NEVER;
    if (other_names(o, &names, &any))
        return -1;
    for (unsigned matched = 0; matched < 1u << o->n_patterns; matched++) {
        expr_id e = names, key, value;
        if (!matched && o->closed)
            continue;
        for (size_t i = 0; i < o->n_patterns; i++)
            e = expr_and(x, e, matched & (1u << i) ? o->patterns[i].e : expr_not(x, o->patterns[i].e));
        if (value_of(o, NULL, matched, &value))
            return -1;
        if (value == EXPR_NEVER)
            continue;
        if (any)
            key = schema_any_string(o->s);
        else if (schema_quote(o->s, e, &key))
            return -1;
        o->others = expr_alt(x, o->others, expr_cat(x, key, expr_cat(x, colon(o), value)));
    }
    return 0;
}

// --- the sequence ---

static expr_id separator(const struct object *o)
{
    return expr_cat(&o->s->x, text(o, ","), schema_space(o->s));
}

// The rest after all named properties, of which `count` were written. `first`: nothing was written yet.
static expr_id tail(const struct object *o, int64_t count, bool first)
{
    struct exprs *x = &o->s->x;
    int64_t least = MAX(o->min - count, 0), most = o->max < 0 ? -1 : o->max - count;
    if (least > 1 || most == 0 || o->others == EXPR_NEVER || (most > 0 && most < least))
        return least > 0 || most < -1 ? EXPR_NEVER : EXPR_EMPTY;
    expr_id more = expr_cat(x, separator(o), o->others);
    if (!first)
        return expr_repeat(x, more, (uint32_t)least, most < 0 ? REPEAT_ANY : (uint32_t)most);
    expr_id all = expr_cat(x, o->others, expr_repeat(x, more, 0, most < 0 ? REPEAT_ANY : (uint32_t)most - 1));
    return least ? all : expr_optional(x, all);
}

// The rest of the object from property i on, when `count` properties were written (counts above o->counts are not
// distinguished). `first`: the next property is the first one. Filled from the end, because each cell needs the next.
static expr_id *cell(const struct object *o, size_t i, int64_t count, bool first)
{
    return &o->memo[((i * (size_t)(o->counts + 1)) + (size_t)MIN(count, o->counts)) * 2 + first];
}

static void fill_place(const struct object *o, size_t i)
{
    struct exprs *x = &o->s->x;
    const struct property *p = &o->props[i];
    for (int64_t count = 0; count <= o->counts; count++)
        for (int first = 0; first < 2; first++) {
            expr_id pair = first ? p->pair : expr_cat(x, separator(o), p->pair);
            bool full = o->max >= 0 && count >= o->max;
            expr_id with = full ? EXPR_NEVER : expr_cat(x, pair, *cell(o, i + 1, count + 1, false));
            expr_id without = *cell(o, i + 1, count, first);
            expr_id e = p->required ? with : expr_alt(x, with, without);
            // the usual case becomes a sequence, whose suffixes are shared by all that lead to them
            if (!p->required && !full && !first && o->counts == 0)
                e = expr_cat(x, expr_optional(x, pair), without);
            *cell(o, i, count, first) = e;
        }
}

static int emit_sequence(struct object *o, expr_id *out)
{
    size_t n = (o->n + 1) * (size_t)(o->counts + 1) * 2;
    o->memo = calloc(n, sizeof *o->memo);
    if (!o->memo)
        return schema_no_memory(o->s);
    for (int64_t count = 0; count <= o->counts; count++)
        for (int first = 0; first < 2; first++)
            *cell(o, o->n, count, first) = tail(o, count, first);
    for (size_t i = o->n; i-- > 0;)
        fill_place(o, i);
    *out = *cell(o, 0, 0, true);
    free(o->memo);
    return 0;
}

// Refuses a minimum above the number of named properties plus one, unless only named properties are allowed.
static int check_minimum(const struct object *o)
{
    int64_t named = 0;
    for (size_t i = 0; i < o->n; i++)
        named += o->props[i].pair != EXPR_NEVER;
    if (o->min > named + 1 && o->others != EXPR_NEVER)
        return schema_refuse(o->s, &o->s->root,
                             "minProperties %lld is not supported where fewer than %lld names are known",
                             (long long)o->min, (long long)o->min - 1);
    return 0;
}

static int read_demands(struct object *o, bool *explicit)
{
    o->speaking = arena_array(&o->s->arena, o->b->n, sizeof *o->speaking, 8);
    if (!o->speaking || value_dict_new(&o->numbers, &o->s->arena, NULL))
        return schema_no_memory(o->s);
    for (size_t i = 0; i < o->b->n; i++) {
        const struct demand *d = &o->b->demands[i];
        if (d->kind == D_PROPERTIES || d->kind == D_KEY || d->kind == D_NAMES)
            o->speaking[o->n_speaking++] = d;
        if (schema_spend(o->s, 1) || read_demand(o, d, explicit))
            return -1;
    }
    return 0;
}

// Counts matter only if there are bounds, and only up to the greater bound.
static int read_counts(struct object *o)
{
    o->counts = o->min == 0 && o->max < 0 ? 0 : MIN(MAX(o->min, o->max), (int64_t)o->n);
    if ((o->n + 1) * (size_t)(o->counts + 1) * 2 > COUNTED_STATES_MAX)
        return schema_refuse(o->s, &o->s->root,
                             "%zu properties, or bounds on their number, come to more than %d places", o->n,
                             COUNTED_STATES_MAX);
    return 0;
}

static int emit(struct object *o, expr_id *out)
{
    bool explicit = false;
    if (read_demands(o, &explicit) || read_counts(o))
        return -1;
    bool speaks = o->n_patterns > 0;
    for (size_t i = 0; i < o->n; i++)
        speaks = speaks || !o->props[i].forbidden;
    o->closed = speaks && !explicit && !o->s->options.open_objects;
    for (size_t i = 0; i < o->n; i++) {
        if (build_property(o, &o->props[i]))
            return -1;
        if (o->props[i].required && o->props[i].pair == EXPR_NEVER)
            return 0;
    }
    expr_id inner;
    if (build_others(o) || check_minimum(o) || emit_sequence(o, &inner))
        return -1;
    expr_id parts[] = {text(o, "{"), schema_space(o->s), inner, schema_space(o->s), text(o, "}")};
    *out = expr_cat_n(&o->s->x, parts, COUNT_OF(parts));
    return 0;
}

int schema_emit_object(struct schema *s, const struct branch *b, expr_id *out)
{
    struct object o = {.s = s, .b = b, .max = -1};
    *out = EXPR_NEVER;
    int status = emit(&o, out);
    free(o.props);
    return status;
}
