// An expression without X_AND and X_NOT becomes a net and then an automaton by the subset construction. Complement
// exchanges accepting and other states, intersection is the product of two automata, and Moore's algorithm minimizes
// the results. All of it is charged to the work limit of the grammar, so that no pattern takes long.
#include "engine/grammar/dfa_build.h"

#include "engine/grammar/net_build.h"
#include "engine/grammar/subset.h"

#include <stdlib.h>

// Other work, in units of visited transitions: building one op of a net, and clearing the tables of a product.
enum { OP_LOOKS = 16, PRODUCT_LOOKS = 1 << 15 };

// --- work ---

bool dfa_spend(struct exprs *x, uint64_t looks)
{
    x->work += looks;
    return x->work <= DFA_WORK_MAX;
}

int dfa_too_much(struct error *err)
{
    return fail(err, E_USAGE, "patterns are too complex: their automata take more than %d million steps to build",
                DFA_WORK_MAX >> 20);
}

// Redirects transitions to states from which nothing can be accepted to the dead state.
static bool bury(struct dfa *d)
{
    bool *alive = calloc(d->n, 1);
    if (!alive)
        return false;
    // The rounds are as many as the most transitions to lower numbers on a way to acceptance: few, as states are
    // numbered in the order in which they are reached from the start.
    bool changed = true;
    memcpy(alive, d->accept, d->n);
    while (changed) {
        changed = false;
        for (uint32_t s = d->n; s-- > 0;) {
            const uint32_t *row = d->next + (size_t)s * d->n_classes;
            for (uint32_t c = 0; c < d->n_classes && !alive[s]; c++)
                if (alive[row[c]])
                    alive[s] = changed = true;
        }
    }
    for (size_t i = 0; i < (size_t)d->n * d->n_classes; i++)
        if (!alive[d->next[i]])
            d->next[i] = DFA_DEAD;
    if (!alive[d->start])
        d->start = DFA_DEAD;
    free(alive);
    return true;
}

// --- from an expression without X_AND and X_NOT ---

static int explore(struct dfa **out, struct subsets *s, const struct net *net, struct exprs *x, struct error *err)
{
    uint32_t start = subsets_start(s, 0);
    uint64_t spent = 0;
    for (uint32_t i = 0; i < s->n && s->n <= DFA_STATES_MAX && !s->failed; i++)
        for (uint32_t c = 0; c < net->n_classes; c++) {
            subsets_step(s, i, (uint8_t)c);
            if (!dfa_spend(x, s->looks - spent))
                return dfa_too_much(err);
            spent = s->looks;
        }
    if (s->n > DFA_STATES_MAX || s->too_wide)
        return fail(err, E_USAGE, "a pattern is too complex: its automaton has more than %d states", DFA_STATES_MAX);
    struct dfa *d = s->failed ? NULL : dfa_new(s->n, net->n_classes);
    if (!d)
        return fail(err, E_MEMORY, "no memory for an automaton of %u states", s->n);
    memcpy(d->class_of, net->class_of, sizeof d->class_of);
    d->start = start;
    for (uint32_t i = 0; i < s->n; i++) {
        d->accept[i] = s->at[i].ends;
        for (uint32_t c = 0; c < net->n_classes; c++)
            d->next[(size_t)i * net->n_classes + c] = subsets_step(s, i, (uint8_t)c);
    }
    *out = d;
    return 0;
}

static int dfa_of_plain(struct dfa **out, struct exprs *x, expr_id e, struct error *err)
{
    struct net net;
    struct subsets s;
    if (net_build_regular(&net, x, e, err))
        return -1;
    int status = dfa_spend(x, (uint64_t)net.n * OP_LOOKS) ? subsets_init(&s, &net, 1, err) : dfa_too_much(err);
    if (!status) {
        status = explore(out, &s, &net, x, err);
        subsets_free(&s);
    }
    net_free(&net);
    return status;
}

// --- complement ---

// The dead state now accepts everything, and accepting states no longer accept. State 0 must stay the dead state, so
// all states move up by one.
static int complement(struct dfa **out, const struct dfa *d, struct error *err)
{
    struct dfa *r = dfa_new(d->n + 1, d->n_classes);
    if (!r)
        return fail(err, E_MEMORY, "no memory for an automaton of %u states", d->n + 1);
    memcpy(r->class_of, d->class_of, sizeof r->class_of);
    for (uint32_t s = 0; s < d->n; s++) {
        r->accept[s + 1] = !d->accept[s];
        for (uint32_t c = 0; c < d->n_classes; c++)
            r->next[(size_t)(s + 1) * d->n_classes + c] = d->next[(size_t)s * d->n_classes + c] + 1;
    }
    r->start = d->start + 1;
    if (!bury(r)) {
        dfa_free(r);
        return fail(err, E_MEMORY, "no memory for an automaton of %u states", d->n + 1);
    }
    *out = r;
    return 0;
}

// --- intersection ---

struct product {
    const struct dfa *a, *b;
    uint64_t *pairs; // state of a << 32 | state of b
    uint32_t *table, table_size, n;
    uint8_t class_a[256], class_b[256], class_of[256];
    uint32_t n_classes;
};

static void join_classes(struct product *p)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t a = p->a->class_of[byte], b = p->b->class_of[byte];
        uint32_t c = 0;
        while (c < p->n_classes && (p->class_a[c] != a || p->class_b[c] != b))
            c++;
        if (c == p->n_classes) {
            p->class_a[c] = a;
            p->class_b[c] = b;
            p->n_classes++;
        }
        p->class_of[byte] = (uint8_t)c;
    }
}

// Returns the number of a pair of states, adding it if it is new; UINT32_MAX if there are too many pairs. If one of
// the two states is dead, so is the pair.
static uint32_t pair_number(struct product *p, uint32_t a, uint32_t b)
{
    if (a == DFA_DEAD || b == DFA_DEAD)
        return DFA_DEAD;
    uint64_t key = (uint64_t)a << 32 | b, h = key * 0x9E3779B97F4A7C15u;
    uint32_t slot = (uint32_t)(h >> 32) & (p->table_size - 1);
    for (; p->table[slot]; slot = (slot + 1) & (p->table_size - 1))
        if (p->pairs[p->table[slot] - 1] == key)
            return p->table[slot] - 1;
    if (p->n >= DFA_STATES_MAX)
        return UINT32_MAX;
    p->pairs[p->n] = key;
    p->table[slot] = p->n + 1;
    return p->n++;
}

static uint32_t pair_step(struct product *p, uint32_t pair, uint32_t c)
{
    uint32_t a = (uint32_t)(p->pairs[pair] >> 32), b = (uint32_t)p->pairs[pair];
    return pair_number(p, p->a->next[(size_t)a * p->a->n_classes + p->class_a[c]],
                       p->b->next[(size_t)b * p->b->n_classes + p->class_b[c]]);
}

static int product_explore(struct product *p, struct dfa **out, struct exprs *x, struct error *err)
{
    p->n = 1; // pair 0 is the dead state
    uint32_t start = pair_number(p, p->a->start, p->b->start);
    for (uint32_t i = 1; i < p->n; i++) {
        if (!dfa_spend(x, UINT64_C(2) * p->n_classes))
            return dfa_too_much(err);
        for (uint32_t c = 0; c < p->n_classes; c++)
            if (pair_step(p, i, c) == UINT32_MAX)
                return fail(err, E_USAGE, "patterns together are too complex: more than %d states", DFA_STATES_MAX);
    }
    struct dfa *d = dfa_new(p->n, p->n_classes);
    if (!d)
        return fail(err, E_MEMORY, "no memory for an automaton of %u states", p->n);
    memcpy(d->class_of, p->class_of, sizeof d->class_of);
    d->start = start;
    for (uint32_t i = 1; i < p->n; i++) {
        d->accept[i] = p->a->accept[p->pairs[i] >> 32] && p->b->accept[(uint32_t)p->pairs[i]];
        for (uint32_t c = 0; c < p->n_classes; c++)
            d->next[(size_t)i * p->n_classes + c] = pair_step(p, i, c);
    }
    *out = d;
    if (bury(d))
        return 0;
    dfa_free(d);
    return fail(err, E_MEMORY, "no memory for an automaton of %u states", p->n);
}

static int intersect(struct dfa **out, const struct dfa *a, const struct dfa *b, struct exprs *x, struct error *err)
{
    struct product p = {.a = a, .b = b, .table_size = 2 * DFA_STATES_MAX};
    p.pairs = calloc(DFA_STATES_MAX, sizeof *p.pairs);
    p.table = calloc(p.table_size, sizeof *p.table);
    int status;
    join_classes(&p);
    if (!dfa_spend(x, PRODUCT_LOOKS))
        status = dfa_too_much(err);
    else if (p.pairs && p.table)
        status = product_explore(&p, out, x, err);
    else
        status = fail(err, E_MEMORY, "no memory for a product of automata");
    free(p.pairs);
    free(p.table);
    return status;
}

// --- minimization ---

// Moore's algorithm: partitions the states by acceptance, then splits parts by the parts that their transitions lead
// to, until nothing changes. Parts are numbered in the order of their first states, so the dead state stays 0.
struct moore {
    const struct dfa *d;
    uint32_t *part, *next_part, *table, *first;
    uint32_t table_size, n;
};

static bool same_part(const struct moore *m, uint32_t s, uint32_t t)
{
    if (m->part[s] != m->part[t])
        return false;
    const uint32_t k = m->d->n_classes, *a = m->d->next + (size_t)s * k, *b = m->d->next + (size_t)t * k;
    for (uint32_t c = 0; c < k; c++)
        if (m->part[a[c]] != m->part[b[c]])
            return false;
    return true;
}

static uint32_t split(struct moore *m)
{
    const uint32_t k = m->d->n_classes;
    uint32_t n = 0;
    memset(m->table, 0, m->table_size * sizeof *m->table);
    for (uint32_t s = 0; s < m->d->n; s++) {
        const uint32_t *row = m->d->next + (size_t)s * k;
        uint64_t h = m->part[s];
        for (uint32_t c = 0; c < k; c++)
            h = (h ^ m->part[row[c]]) * 0x9E3779B97F4A7C15u, h ^= h >> 31;
        uint32_t slot = (uint32_t)h & (m->table_size - 1);
        while (m->table[slot] && !same_part(m, m->table[slot] - 1, s))
            slot = (slot + 1) & (m->table_size - 1);
        if (!m->table[slot]) {
            m->table[slot] = s + 1;
            m->first[n] = s;
            m->next_part[s] = n++;
        } else {
            m->next_part[s] = m->next_part[m->table[slot] - 1];
        }
    }
    uint32_t *t = m->part;
    m->part = m->next_part;
    m->next_part = t;
    return n;
}

static struct dfa *quotient(const struct moore *m)
{
    const struct dfa *d = m->d;
    struct dfa *r = dfa_new(m->n, d->n_classes);
    if (!r)
        return NULL;
    memcpy(r->class_of, d->class_of, sizeof r->class_of);
    r->start = m->part[d->start];
    for (uint32_t i = 0; i < m->n; i++) {
        r->accept[i] = d->accept[m->first[i]];
        for (uint32_t c = 0; c < d->n_classes; c++)
            r->next[(size_t)i * d->n_classes + c] = m->part[d->next[(size_t)m->first[i] * d->n_classes + c]];
    }
    return r;
}

// Replaces *d by the minimal automaton. If memory runs out or the work limit is reached, *d stays as it is, which is
// also correct.
static void minimize(struct dfa **d, struct exprs *x)
{
    uint32_t n = (*d)->n;
    struct moore m = {.d = *d, .table_size = 16};
    while (m.table_size < 2 * n)
        m.table_size *= 2;
    uint32_t *parts = calloc(3 * (size_t)n, sizeof *parts);
    m.table = malloc(m.table_size * sizeof *m.table);
    if (parts && m.table) {
        m.part = parts;
        m.next_part = parts + n;
        m.first = parts + 2 * (size_t)n;
        for (uint32_t s = 0; s < n; s++)
            m.part[s] = (*d)->accept[s];
        // state 0 is dead: it does not accept and comes first, so its part is number 0
        uint32_t before = 0;
        while (m.n = split(&m), m.n > before && dfa_spend(x, (uint64_t)n * (*d)->n_classes))
            before = m.n;
        struct dfa *r = m.n == before && m.n < n ? quotient(&m) : NULL;
        if (r) {
            dfa_free(*d);
            *d = r;
        }
    }
    free(parts);
    free(m.table);
}

// --- expressions ---

// Automata of automata are built by recursion, some 300 bytes of stack each.
enum { DFA_NEST_MAX = 2000 };

static int build_pair(struct dfa **out, struct exprs *x, expr_id left, expr_id right, struct error *err)
{
    struct dfa *a = NULL, *b = NULL;
    int status = dfa_from_expr(&a, x, left, err);
    if (!status)
        status = dfa_from_expr(&b, x, right, err);
    if (!status)
        status = intersect(out, a, b, x, err);
    dfa_free(a);
    dfa_free(b);
    return status;
}

static int build_not(struct dfa **out, struct exprs *x, expr_id e, struct error *err)
{
    struct dfa *a = NULL;
    int status = dfa_from_expr(&a, x, e, err);
    if (!status)
        status = complement(out, a, err);
    dfa_free(a);
    return status;
}

static int build_any(struct dfa **out, struct exprs *x, expr_id e, struct error *err)
{
    if (exprs_check(x, err) || expr_lower(x, e, &e, err))
        return -1;
    const struct expr at = x->at[e];
    int status;
    if (at.op == X_AND)
        status = build_pair(out, x, at.a, at.b, err);
    else if (at.op == X_NOT)
        status = build_not(out, x, at.a, err);
    else
        status = dfa_of_plain(out, x, e, err);
    if (!status)
        minimize(out, x);
    return status;
}

int dfa_from_expr(struct dfa **out, struct exprs *x, expr_id e, struct error *err)
{
    *out = NULL;
    if (x->nested >= DFA_NEST_MAX)
        return fail(err, E_USAGE, "patterns are too complex: more than %d of them meet in one text", DFA_NEST_MAX);
    x->nested++;
    int status = build_any(out, x, e, err);
    x->nested--;
    return status;
}

// --- lowering ---

enum { LOWER_NEST_MAX = 200 };

static int lower(struct exprs *x, expr_id e, expr_id *out, int nested, struct error *err);

// Lowers a long sequence or choice part by part, without recursion along its length.
static int lower_list(struct exprs *x, expr_id e, expr_id *out, int nested, struct error *err)
{
    enum expr_op op = x->at[e].op;
    size_t n = 1;
    for (expr_id at = e; at > EXPR_EMPTY && x->at[at].op == op; at = x->at[at].b)
        n++;
    expr_id *parts = calloc(n, sizeof *parts);
    if (!parts)
        return fail(err, E_MEMORY, "no memory for an expression of %zu parts", n);
    int status = 0;
    for (size_t i = 0; i < n && !status; i++) {
        status = lower(x, i + 1 < n ? x->at[e].a : e, &parts[i], nested, err);
        e = i + 1 < n ? x->at[e].b : e;
    }
    if (!status)
        *out = op == X_CAT ? expr_cat_n(x, parts, n) : expr_alt_n(x, parts, n);
    free(parts);
    return status;
}

static int lower(struct exprs *x, expr_id e, expr_id *out, int nested, struct error *err)
{
    *out = e;
    if (e <= EXPR_EMPTY || !x->at[e].logic)
        return 0;
    if (nested > LOWER_NEST_MAX)
        return fail(err, E_USAGE, "the grammar is nested too deeply");
    const struct expr at = x->at[e];
    if (at.op == X_CAT || at.op == X_ALT)
        return lower_list(x, e, out, nested + 1, err);
    if (at.op == X_REPEAT) {
        expr_id inner;
        if (lower(x, at.a, &inner, nested + 1, err))
            return -1;
        *out = expr_repeat(x, inner, at.min, at.max);
        return 0;
    }
    struct dfa *d;
    if (dfa_from_expr(&d, x, e, err))
        return -1;
    *out = dfa_is_empty(d) ? EXPR_NEVER : expr_dfa(x, d);
    if (dfa_is_empty(d))
        dfa_free(d);
    return 0;
}

int expr_lower(struct exprs *x, expr_id e, expr_id *out, struct error *err)
{
    *out = e;
    if (e <= EXPR_EMPTY || x->at[e].op == X_AND || x->at[e].op == X_NOT)
        return 0;
    return lower(x, e, out, 0, err);
}

int exprs_lower(struct exprs *x, struct error *err)
{
    if (exprs_check(x, err))
        return -1;
    for (uint32_t r = 0; r < x->n_rules; r++) {
        expr_id body;
        if (!x->rules[r].defined || x->rules[r].body <= EXPR_EMPTY)
            continue;
        if (lower(x, x->rules[r].body, &body, 0, err))
            return -1;
        x->rules[r].body = body;
    }
    return exprs_check(x, err);
}
