// Expressions and byte sets are interned in hash tables with open addressing, which double when they are half full.
// The constructors simplify: sets of bytes in a choice are united, and nested repeats are merged. A set of characters
// becomes a tree of UTF-8 bytes, in which bytes with the same continuation share a node.
#include "engine/grammar/expr.h"

#include <stdlib.h>

void exprs_free(struct exprs *x)
{
    for (uint32_t i = 0; i < x->n_dfas; i++)
        dfa_free(x->dfas[i]);
    free(x->dfas);
    free(x->at);
    free(x->table);
    free(x->sets);
    free(x->set_table);
    free(x->rules);
    arena_free(&x->arena);
    *x = (struct exprs){0};
}

// Makes room for one more element of a growing array; false if memory runs out.
static bool grow(struct exprs *x, void **array, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    size_t want = *cap ? (size_t)*cap * 2 : 64, bytes;
    void *more = want > UINT32_MAX || size_mul(want, size, &bytes) ? NULL : realloc(*array, bytes);
    if (!more) {
        x->failed = true;
        return false;
    }
    *array = more;
    *cap = (uint32_t)want;
    return true;
}

// --- hash consing: equal expressions get one id ---

static uint64_t hash(const struct expr *e)
{
    uint64_t h = (uint64_t)e->op * 0x9E3779B97F4A7C15u;
    const uint32_t parts[] = {e->a, e->b, e->min, e->max};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        h = (h ^ parts[i]) * 0xD6E8FEB86659FD93u, h ^= h >> 32;
    return h;
}

static bool same(const struct expr *a, const struct expr *b)
{
    return a->op == b->op && a->a == b->a && a->b == b->b && a->min == b->min && a->max == b->max;
}

static void insert(struct exprs *x, uint32_t id)
{
    uint32_t slot = (uint32_t)hash(&x->at[id]) & (x->table_size - 1);
    while (x->table[slot])
        slot = (slot + 1) & (x->table_size - 1);
    x->table[slot] = id + 1;
}

static bool grow_table(struct exprs *x)
{
    if (x->n * 2 < x->table_size)
        return true;
    uint32_t size = x->table_size ? x->table_size * 2 : 256;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table) {
        x->failed = true;
        return false;
    }
    free(x->table);
    x->table = table;
    x->table_size = size;
    for (uint32_t i = 0; i < x->n; i++)
        insert(x, i);
    return true;
}

static void begin(struct exprs *x);

static expr_id intern(struct exprs *x, struct expr e)
{
    x->made++;
    if (!x->n && e.op != X_NEVER)
        begin(x);
    if (!grow_table(x) || !grow(x, (void **)&x->at, x->n, &x->cap, sizeof *x->at))
        return EXPR_NEVER;
    uint32_t slot = (uint32_t)hash(&e) & (x->table_size - 1);
    for (; x->table[slot]; slot = (slot + 1) & (x->table_size - 1))
        if (same(&x->at[x->table[slot] - 1], &e))
            return x->table[slot] - 1;
    if (x->n >= EXPRS_MAX) {
        x->overgrown = true;
        return EXPR_NEVER;
    }
    x->at[x->n] = e;
    x->table[slot] = x->n + 1;
    return x->n++;
}

// EXPR_NEVER and EXPR_EMPTY have fixed ids and are made first.
static void begin(struct exprs *x)
{
    if (!x->n)
        intern(x, (struct expr){.op = X_NEVER, .regular = true});
    if (x->n == 1)
        intern(x, (struct expr){.op = X_EMPTY, .regular = true});
}

int exprs_check(struct exprs *x, struct error *err)
{
    begin(x);
    if (x->overgrown)
        return fail(err, E_USAGE, "the grammar is too large: more than %d expressions", EXPRS_MAX);
    return x->failed ? fail(err, E_MEMORY, "no memory for a grammar of %u expressions", x->n) : 0;
}

// --- the operations ---

// Returns the slot of the set in the table, or the free slot where it belongs.
static uint32_t set_slot(const struct exprs *x, const struct byte_set *set)
{
    uint64_t h = 0;
    for (int i = 0; i < 4; i++)
        h = (h ^ set->bits[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
    uint32_t slot = (uint32_t)h & (x->set_table_size - 1);
    while (x->set_table[slot] && memcmp(&x->sets[x->set_table[slot] - 1], set, sizeof *set))
        slot = (slot + 1) & (x->set_table_size - 1);
    return slot;
}

static bool grow_set_table(struct exprs *x)
{
    if (x->n_sets * 2 < x->set_table_size)
        return true;
    uint32_t size = x->set_table_size ? x->set_table_size * 2 : 128;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table) {
        x->failed = true;
        return false;
    }
    free(x->set_table);
    x->set_table = table;
    x->set_table_size = size;
    for (uint32_t i = 0; i < x->n_sets; i++)
        table[set_slot(x, &x->sets[i])] = i + 1;
    return true;
}

expr_id expr_bytes(struct exprs *x, const struct byte_set *set)
{
    if (!(set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]))
        return EXPR_NEVER;
    if (!grow_set_table(x))
        return EXPR_NEVER;
    uint32_t slot = set_slot(x, set);
    if (!x->set_table[slot]) {
        if (!grow(x, (void **)&x->sets, x->n_sets, &x->cap_sets, sizeof *x->sets))
            return EXPR_NEVER;
        x->sets[x->n_sets++] = *set;
        x->set_table[slot] = x->n_sets;
    }
    return intern(x, (struct expr){.op = X_BYTES, .a = x->set_table[slot] - 1, .regular = true});
}

expr_id expr_byte_range(struct exprs *x, uint8_t from, uint8_t to)
{
    struct byte_set set = {0};
    for (unsigned b = from; b <= to; b++)
        byte_set_add(&set, b);
    return expr_bytes(x, &set);
}

expr_id expr_text(struct exprs *x, struct str text)
{
    expr_id e = EXPR_EMPTY;
    for (size_t i = text.len; i-- > 0;)
        e = expr_cat(x, expr_byte_range(x, (uint8_t)text.data[i], (uint8_t)text.data[i]), e);
    return e;
}

expr_id expr_text_z(struct exprs *x, const char *text)
{
    return expr_text(x, str_from(text));
}

static bool is_regular(const struct exprs *x, expr_id e)
{
    return e <= EXPR_EMPTY || x->at[e].regular;
}

static bool has_logic(const struct exprs *x, expr_id e)
{
    return e > EXPR_EMPTY && x->at[e].logic;
}

static enum expr_op op_of(const struct exprs *x, expr_id e)
{
    return e <= EXPR_EMPTY ? (enum expr_op)e : x->at[e].op;
}

static expr_id pair(struct exprs *x, enum expr_op op, expr_id a, expr_id b)
{
    return intern(x, (struct expr){.op = op,
                                   .a = a,
                                   .b = b,
                                   .regular = is_regular(x, a) && is_regular(x, b),
                                   .logic = has_logic(x, a) || has_logic(x, b)});
}

// Sequences and choices nest to the right, so that loops instead of recursion can walk long ones.
expr_id expr_cat(struct exprs *x, expr_id a, expr_id b)
{
    if (a == EXPR_NEVER || b == EXPR_NEVER)
        return EXPR_NEVER;
    if (a == EXPR_EMPTY || b == EXPR_EMPTY)
        return a == EXPR_EMPTY ? b : a;
    expr_id parts[64];
    size_t n = 0;
    while (op_of(x, a) == X_CAT && n < COUNT_OF(parts)) {
        parts[n++] = x->at[a].a;
        a = x->at[a].b;
    }
    // if the left sequence has more than 64 parts, its rest is joined with b first
    b = op_of(x, a) == X_CAT ? expr_cat(x, a, b) : pair(x, X_CAT, a, b);
    while (n > 0 && b != EXPR_NEVER) {
        a = parts[--n];
        b = pair(x, X_CAT, a, b);
    }
    return b;
}

// The union of two expressions that are sets of bytes.
static expr_id alt_bytes(struct exprs *x, expr_id a, expr_id b)
{
    struct byte_set set = x->sets[x->at[a].a];
    for (int i = 0; i < 4; i++)
        set.bits[i] |= x->sets[x->at[b].a].bits[i];
    return expr_bytes(x, &set);
}

// a or b, where a is not X_ALT itself.
static expr_id alt_one(struct exprs *x, expr_id a, expr_id b)
{
    if (a == EXPR_NEVER || b == EXPR_NEVER || a == b)
        return a == EXPR_NEVER ? b : a;
    if (op_of(x, a) == X_BYTES && op_of(x, b) == X_BYTES)
        return alt_bytes(x, a, b);
    if (op_of(x, b) == X_ALT && op_of(x, x->at[b].a) == X_BYTES && op_of(x, a) == X_BYTES) {
        expr_id rest = x->at[b].b;
        return pair(x, X_ALT, alt_bytes(x, a, x->at[b].a), rest);
    }
    if (op_of(x, b) == X_ALT && x->at[b].a == a)
        return b;
    return pair(x, X_ALT, a, b);
}

expr_id expr_alt(struct exprs *x, expr_id a, expr_id b)
{
    expr_id parts[64];
    size_t n = 0;
    while (op_of(x, a) == X_ALT && n < COUNT_OF(parts)) {
        parts[n++] = x->at[a].a;
        a = x->at[a].b;
    }
    b = op_of(x, a) == X_ALT ? expr_alt(x, a, b) : alt_one(x, a, b);
    while (n > 0)
        b = alt_one(x, parts[--n], b);
    return b;
}

expr_id expr_cat_n(struct exprs *x, const expr_id *list, size_t n)
{
    expr_id e = EXPR_EMPTY;
    while (n > 0)
        e = expr_cat(x, list[--n], e);
    return e;
}

expr_id expr_alt_n(struct exprs *x, const expr_id *list, size_t n)
{
    expr_id e = EXPR_NEVER;
    while (n > 0)
        e = expr_alt(x, list[--n], e);
    return e;
}

expr_id expr_repeat(struct exprs *x, expr_id a, uint32_t min, uint32_t max)
{
    if (max == 0 || a == EXPR_EMPTY || (a == EXPR_NEVER && min == 0))
        return EXPR_EMPTY;
    if (a == EXPR_NEVER || min > max)
        return EXPR_NEVER;
    if (min == 1 && max == 1)
        return a;
    bool again = op_of(x, a) == X_REPEAT && x->at[a].max == REPEAT_ANY && x->at[a].min <= 1;
    if (again && max == REPEAT_ANY && min <= 1) // (a*)* and similar
        return expr_repeat(x, x->at[a].a, MIN(min, x->at[a].min), REPEAT_ANY);
    return intern(
        x, (struct expr){
               .op = X_REPEAT, .a = a, .min = min, .max = max, .regular = is_regular(x, a), .logic = has_logic(x, a)});
}

expr_id expr_optional(struct exprs *x, expr_id a)
{
    return expr_repeat(x, a, 0, 1);
}

expr_id expr_star(struct exprs *x, expr_id a)
{
    return expr_repeat(x, a, 0, REPEAT_ANY);
}

expr_id expr_rule(struct exprs *x, uint32_t rule)
{
    return intern(x, (struct expr){.op = X_RULE, .a = rule});
}

expr_id expr_token(struct exprs *x, int32_t token, bool negated)
{
    return intern(x, (struct expr){.op = X_TOKEN, .a = (uint32_t)token, .b = negated});
}

expr_id expr_and(struct exprs *x, expr_id a, expr_id b)
{
    if (a == EXPR_NEVER || b == EXPR_NEVER || a == b)
        return a == EXPR_NEVER ? a : b;
    return intern(x, (struct expr){.op = X_AND, .a = MIN(a, b), .b = MAX(a, b), .regular = true, .logic = true});
}

expr_id expr_not(struct exprs *x, expr_id a)
{
    if (op_of(x, a) == X_NOT)
        return x->at[a].a;
    return intern(x, (struct expr){.op = X_NOT, .a = a, .regular = true, .logic = true});
}

expr_id expr_dfa(struct exprs *x, struct dfa *dfa)
{
    if (!grow(x, (void **)&x->dfas, x->n_dfas, &x->cap_dfas, sizeof *x->dfas)) {
        dfa_free(dfa);
        return EXPR_NEVER;
    }
    x->dfas[x->n_dfas] = dfa;
    return intern(x, (struct expr){.op = X_DFA, .a = x->n_dfas++, .regular = true});
}

uint32_t exprs_rule(struct exprs *x, struct str name)
{
    if (!grow(x, (void **)&x->rules, x->n_rules, &x->cap_rules, sizeof *x->rules))
        return UINT32_MAX;
    x->rules[x->n_rules] = (struct rule){.name = arena_strdup(&x->arena, name)};
    if (!x->rules[x->n_rules].name) {
        x->failed = true;
        return UINT32_MAX;
    }
    return x->n_rules++;
}

bool expr_nullable(const struct exprs *x, expr_id e)
{
    for (;;) {
        if (e <= EXPR_EMPTY)
            return e == EXPR_EMPTY;
        const struct expr *at = &x->at[e];
        switch (at->op) {
        case X_CAT:
            if (!expr_nullable(x, at->a))
                return false;
            e = at->b;
            break;
        case X_ALT:
            if (expr_nullable(x, at->a))
                return true;
            e = at->b;
            break;
        case X_REPEAT:
            return at->min == 0 || expr_nullable(x, at->a);
        case X_AND:
            return expr_nullable(x, at->a) && expr_nullable(x, at->b);
        case X_NOT:
            return !expr_nullable(x, at->a);
        case X_DFA:
            return dfa_accepts_empty(x->dfas[at->a]);
        default:
            return false;
        }
    }
}

// --- sets of characters ---

void char_set_add(struct char_set *s, uint32_t from, uint32_t to)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        struct char_range *at = realloc(s->at, cap * sizeof *at);
        if (!at) {
            s->failed = true;
            return;
        }
        s->at = at;
        s->cap = cap;
    }
    s->at[s->n++] = (struct char_range){from, to};
}

void char_set_add_set(struct char_set *s, const struct char_set *more)
{
    for (size_t i = 0; i < more->n; i++)
        char_set_add(s, more->at[i].from, more->at[i].to);
    s->failed = s->failed || more->failed;
}

static int by_from(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

void char_set_normalize(struct char_set *s)
{
    if (s->n > 1)
        qsort(s->at, s->n, sizeof *s->at, by_from);
    size_t out = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (out > 0 && s->at[i].from <= s->at[out - 1].to + 1)
            s->at[out - 1].to = MAX(s->at[out - 1].to, s->at[i].to);
        else
            s->at[out++] = s->at[i];
    }
    s->n = out;
}

void char_set_negate(struct char_set *s)
{
    char_set_add(s, 0xD800, 0xDFFF);
    char_set_normalize(s);
    struct char_set rest = {.failed = s->failed};
    uint32_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].from > next)
            char_set_add(&rest, next, s->at[i].from - 1);
        next = s->at[i].to + 1;
    }
    if (next <= CHAR_MAX_CODE)
        char_set_add(&rest, next, CHAR_MAX_CODE);
    free(s->at);
    *s = rest;
}

void char_set_free(struct char_set *s)
{
    free(s->at);
    *s = (struct char_set){0};
}

enum { BLOCK_LOOKS = 200 }; // work for a block of characters of which the set holds only a part

// The UTF-8 spellings of those characters of the set within from..to, all of one length. They are written as a tree
// of bytes: each byte leads to at most one continuation, and bytes with the same continuation form one set. An
// automaton is then in few states at once, even for hundreds of ranges as in \p{Lu}; a choice of ranges would put it
// into the states of all of them.
struct spelling {
    struct exprs *x;
    const struct char_set *s;
    uint32_t from, to;
};

// Sets of bytes grouped by what follows them. There are at most 64 groups: continuation bytes have 64 values, and
// there are fewer lead bytes (0xC2..0xF4).
struct ways {
    struct byte_set sets[64];
    expr_id behind[64];
    size_t n;
};

static void ways_add(struct ways *w, unsigned byte, expr_id behind)
{
    size_t i = 0;
    if (behind == EXPR_NEVER)
        return;
    while (i < w->n && w->behind[i] != behind)
        i++;
    if (i == w->n)
        w->behind[w->n++] = behind;
    byte_set_add(&w->sets[i], byte);
}

static expr_id ways_choice(struct exprs *x, const struct ways *w)
{
    expr_id e = EXPR_NEVER;
    for (size_t i = w->n; i-- > 0;)
        e = expr_alt(x, expr_cat(x, expr_bytes(x, &w->sets[i]), w->behind[i]), e);
    return e;
}

// Returns the index of the first range that does not end before the character.
static size_t range_at(const struct char_set *s, uint32_t cp)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->at[mid].to < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

// The last `tail` (1..3) bytes of the 64^tail characters from `first` on.
static expr_id spell_block(const struct spelling *l, uint32_t first, int tail)
{
    uint32_t step = UINT32_C(1) << 6 * (tail - 1), last = first + 64 * step - 1;
    uint32_t from = MAX(first, l->from), to = MIN(last, l->to);
    size_t i = range_at(l->s, from);
    if (i == l->s->n || l->s->at[i].from > to)
        return EXPR_NEVER;
    struct ways w = {0};
    if (from == first && to == last && l->s->at[i].from <= first && l->s->at[i].to >= last) {
        expr_id all = expr_byte_range(l->x, 0x80, 0xBF);
        return tail == 1 ? all : expr_cat(l->x, all, spell_block(l, first, tail - 1));
    }
    l->x->work += BLOCK_LOOKS;
    if (tail > 1) {
        for (unsigned k = 0; k < 64; k++)
            ways_add(&w, 0x80 | k, spell_block(l, first + k * step, tail - 1));
        return ways_choice(l->x, &w);
    }
    for (; i < l->s->n && l->s->at[i].from <= to; i++)
        for (uint32_t cp = MAX(from, l->s->at[i].from); cp <= MIN(to, l->s->at[i].to); cp++)
            ways_add(&w, 0x80 | (cp & 63), EXPR_EMPTY);
    return ways_choice(l->x, &w);
}

expr_id expr_chars(struct exprs *x, struct char_set *s)
{
    static const struct {
        uint32_t from, to;
        unsigned lead; // the high bits that mark the length
        int tail;
    } lengths[] = {{0x80, 0x7FF, 0xC0, 1},
                   {0x800, 0xD7FF, 0xE0, 2}, // surrogates are not characters
                   {0xE000, 0xFFFF, 0xE0, 2},
                   {0x10000, CHAR_MAX_CODE, 0xF0, 3}};
    char_set_normalize(s);
    x->failed = x->failed || s->failed;
    struct byte_set ascii = {0};
    for (size_t i = 0; i < s->n; i++)
        for (uint32_t c = s->at[i].from; c <= s->at[i].to && c < 0x80; c++)
            byte_set_add(&ascii, c);
    if (!s->n || s->at[s->n - 1].to < 0x80)
        return expr_bytes(x, &ascii);
    struct ways w = {0};
    x->work += BLOCK_LOOKS;
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const struct spelling l = {x, s, lengths[i].from, lengths[i].to};
        const int shift = 6 * lengths[i].tail;
        for (uint32_t k = l.from >> shift; k <= l.to >> shift; k++)
            ways_add(&w, lengths[i].lead | k, spell_block(&l, k << shift, lengths[i].tail));
    }
    return expr_alt(x, expr_bytes(x, &ascii), ways_choice(x, &w));
}

expr_id expr_any_char(struct exprs *x)
{
    struct char_set all = {0};
    if (x->any_char != EXPR_NEVER)
        return x->any_char;
    char_set_add(&all, 0, CHAR_MAX_CODE);
    x->any_char = expr_chars(x, &all);
    char_set_free(&all);
    return x->any_char;
}
