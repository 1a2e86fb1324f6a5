// Subset construction, one state and one transition at a time. A hash that does not depend on the order of the ops
// finds equal sets, so that only new sets are sorted. The number of ops visited is counted in `looks`, by which
// dfa_build.c limits its work. Positions far from the end of a counted repeat can be mapped to nearer ones, so that
// they share states.
#include "engine/grammar/subset.h"

#include <stdlib.h>

enum { SORT_LOOKS = 8 }; // work of sorting one op of a new set, in visited ops

int subsets_init(struct subsets *s, const struct net *net, uint32_t n_rules, struct error *err)
{
    *s = (struct subsets){.net = net};
    size_t n = (size_t)net->n + 1;
    s->start = malloc((n_rules + 1) * sizeof *s->start);
    s->seen = calloc(n, sizeof *s->seen);
    s->todo = malloc(2 * n * sizeof *s->todo);
    s->found = malloc(n * sizeof *s->found);
    if (!s->start || !s->seen || !s->todo || !s->found) {
        subsets_free(s);
        return fail(err, E_MEMORY, "no memory for a grammar of %u states", net->n);
    }
    memset(s->start, 0xFF, (n_rules + 1) * sizeof *s->start);
    s->bytes = n * 4 * sizeof(uint32_t);
    subsets_of(s, NULL, 0);
    return 0;
}

void subsets_free(struct subsets *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free(s->at[i].row);
    free(s->at);
    free(s->pool);
    free(s->call);
    free(s->table);
    free(s->start);
    free(s->seen);
    free(s->todo);
    free(s->found);
    *s = (struct subsets){0};
}

// Makes room for `more` elements in a growing array.
static bool reserve(struct subsets *s, void **array, uint32_t n, uint32_t more, uint32_t *cap, size_t size)
{
    if (*cap - n >= more)
        return true;
    size_t want = MAX((size_t)*cap * 2, (size_t)n + more + 64), bytes;
    void *grown = want > UINT32_MAX || size_mul(want, size, &bytes) ? NULL : realloc(*array, bytes);
    if (!grown) {
        s->failed = true;
        return false;
    }
    s->bytes += (want - *cap) * size;
    *array = grown;
    *cap = (uint32_t)want;
    return true;
}

// --- equal sets are one state ---

// Independent of the order of the ops, so that only new sets need to be sorted.
static uint32_t hash(const uint32_t *ops, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t one = (ops[i] + UINT64_C(1)) * 0x9E3779B97F4A7C15u;
        h += (one ^ one >> 29) * 0xD6E8FEB86659FD93u;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool grow_table(struct subsets *s)
{
    if (s->n * 2 < s->table_size)
        return true;
    uint32_t size = s->table_size ? s->table_size * 2 : 128;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table) {
        s->failed = true;
        return false;
    }
    s->bytes += (size - s->table_size) * sizeof *table;
    free(s->table);
    s->table = table;
    s->table_size = size;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t slot = hash(s->pool + s->at[i].first, s->at[i].n) & (size - 1);
        while (table[slot])
            slot = (slot + 1) & (size - 1);
        table[slot] = i + 1;
    }
    return true;
}

static void describe(struct subsets *s, struct subset *at)
{
    at->need = NEED_DEAD;
    for (uint32_t i = 0; i < at->n; i++) {
        const struct net_op *op = &s->net->ops[s->pool[at->first + i]];
        at->need = MIN(at->need, op->need);
        at->ends = at->ends || op->kind == NET_END || op->empty;
        at->has_bytes = at->has_bytes || op->kind == NET_BYTES;
        at->has_tokens = at->has_tokens || op->kind == NET_TOKEN;
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort(uint32_t *ops, uint32_t n)
{
    // small sets are nearly sorted already
    for (uint32_t i = 1; i < n && n <= 16; i++)
        for (uint32_t k = i; k > 0 && ops[k - 1] > ops[k]; k--) {
            uint32_t t = ops[k];
            ops[k] = ops[k - 1];
            ops[k - 1] = t;
        }
    if (n > 16)
        qsort(ops, n, sizeof *ops, by_number);
}

// Whether the state equals the set under construction, which has `n` ops, all marked in `seen`.
static bool is_found(struct subsets *s, const struct subset *at, uint32_t n)
{
    uint32_t i = 0;
    if (at->n != n)
        return false;
    while (i < n && s->seen[s->pool[at->first + i]] == s->clock)
        i++;
    s->looks += i;
    return i == n;
}

// Returns the state of the set in `found`, adding it if it is new.
static uint32_t intern(struct subsets *s, uint32_t n)
{
    if (!grow_table(s) || !reserve(s, (void **)&s->at, s->n, 1, &s->cap, sizeof *s->at))
        return SUBSET_DEAD;
    uint32_t slot = hash(s->found, n) & (s->table_size - 1);
    for (; s->table[slot]; slot = (slot + 1) & (s->table_size - 1))
        if (is_found(s, &s->at[s->table[slot] - 1], n))
            return s->table[slot] - 1;
    if (!reserve(s, (void **)&s->pool, s->n_pool, n + 1, &s->cap_pool, sizeof *s->pool))
        return SUBSET_DEAD;
    struct subset *at = &s->at[s->n];
    *at = (struct subset){.first = s->n_pool, .n = n, .n_calls = SUBSET_UNKNOWN};
    sort(s->found, n);
    s->looks += (uint64_t)n * SORT_LOOKS;
    if (n)
        memcpy(s->pool + s->n_pool, s->found, n * sizeof *s->found);
    s->n_pool += n;
    describe(s, at);
    s->table[slot] = s->n + 1;
    return s->n++;
}

// Adds an op to the set in `found`; a split is replaced by the ops that it leads to. Returns the new size of the set.
static uint32_t spread(struct subsets *s, uint32_t op, uint32_t n_found)
{
    uint32_t n = 0;
    s->todo[n++] = op;
    while (n > 0) {
        op = s->todo[--n];
        s->looks++;
        if (s->seen[op] == s->clock || net_is_dead(s->net, op))
            continue;
        s->seen[op] = s->clock;
        const struct net_op *at = &s->net->ops[op];
        if (at->kind == NET_SPLIT) {
            s->todo[n++] = at->next;
            s->todo[n++] = at->arg;
        } else {
            s->found[n_found++] = op;
        }
    }
    return n_found;
}

static void begin(struct subsets *s)
{
    if (++s->clock == 0) {
        memset(s->seen, 0, ((size_t)s->net->n + 1) * sizeof *s->seen);
        s->clock = 1;
    }
}

static uint32_t finish(struct subsets *s, uint32_t n)
{
    if (n > SUBSET_OPS_MAX) {
        s->too_wide = true;
        return SUBSET_DEAD;
    }
    return intern(s, n);
}

uint32_t subsets_of(struct subsets *s, const uint32_t *ops, uint32_t n)
{
    begin(s);
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < n; i++)
        n_found = spread(s, ops[i], n_found);
    return finish(s, n_found);
}

// --- steps ---

uint32_t subsets_start(struct subsets *s, uint32_t rule)
{
    if (s->start[rule] == SUBSET_UNKNOWN)
        s->start[rule] = subsets_of(s, &s->net->start[rule], 1);
    return s->start[rule];
}

static uint32_t make_step(struct subsets *s, uint32_t state, uint8_t class)
{
    const struct subset *at = &s->at[state];
    unsigned byte = s->net->class_byte[class];
    if (!byte_set_has(&s->net->available, byte))
        return SUBSET_DEAD;
    begin(s);
    uint32_t n_found = 0;
    s->looks += at->n + 1;
    for (uint32_t i = 0; i < at->n; i++) {
        const struct net_op *op = &s->net->ops[s->pool[at->first + i]];
        if (op->kind == NET_BYTES && byte_set_has(&s->net->x->sets[op->arg], byte))
            n_found = spread(s, op->next, n_found);
    }
    return finish(s, n_found);
}

uint32_t subsets_step(struct subsets *s, uint32_t state, uint8_t class)
{
    if (state == SUBSET_DEAD || !s->at[state].has_bytes)
        return SUBSET_DEAD;
    if (!s->at[state].row) {
        size_t size = s->net->n_classes * sizeof(uint32_t);
        s->at[state].row = malloc(size);
        if (!s->at[state].row) {
            s->failed = true;
            return SUBSET_DEAD;
        }
        memset(s->at[state].row, 0xFF, size);
        s->bytes += size;
    }
    uint32_t next = s->at[state].row[class];
    if (next == SUBSET_UNKNOWN) {
        next = make_step(s, state, class);
        if (!s->failed)
            s->at[state].row[class] = next;
    }
    return next;
}

static int by_rule(const void *a, const void *b)
{
    const struct subset_call *x = a, *y = b;
    return x->rule != y->rule ? (x->rule > y->rule) - (x->rule < y->rule) : (x->back > y->back) - (x->back < y->back);
}

// Merges calls of the same rule into one, which continues at the union of their return states.
static bool make_calls(struct subsets *s, uint32_t state)
{
    uint32_t n = 0;
    struct subset at = s->at[state];
    struct subset_call *raw = malloc((at.n + 1) * sizeof *raw);
    uint32_t *backs = malloc((at.n + 1) * sizeof *backs);
    bool good = raw && backs && reserve(s, (void **)&s->call, s->n_call, at.n + 1, &s->cap_call, sizeof *s->call);
    for (uint32_t i = 0; i < at.n && good; i++) {
        const struct net_op *op = &s->net->ops[s->pool[at.first + i]];
        if (op->kind == NET_CALL)
            raw[n++] = (struct subset_call){op->arg, op->next};
    }
    if (n > 1)
        qsort(raw, n, sizeof *raw, by_rule);
    uint32_t first = s->n_call;
    for (uint32_t i = 0, k; i < n && good; i = k) {
        uint32_t n_backs = 0;
        for (k = i; k < n && raw[k].rule == raw[i].rule; k++)
            backs[n_backs++] = raw[k].back;
        uint32_t back = subsets_of(s, backs, n_backs);
        good = !s->failed;
        s->call[s->n_call++] = (struct subset_call){raw[i].rule, back};
    }
    free(raw);
    free(backs);
    if (!good) {
        s->failed = true;
        s->n_call = first;
        return false;
    }
    s->at[state].calls = first;
    s->at[state].n_calls = s->n_call - first;
    return true;
}

const struct subset_call *subsets_calls(struct subsets *s, uint32_t state, uint32_t *n)
{
    *n = 0;
    if (s->at[state].n_calls == SUBSET_UNKNOWN && !make_calls(s, state))
        return s->call;
    *n = s->at[state].n_calls;
    return s->call + s->at[state].calls;
}

uint32_t subsets_token(struct subsets *s, uint32_t state, uint32_t token)
{
    const struct subset *at = &s->at[state];
    begin(s);
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        const struct net_op *op = &s->net->ops[s->pool[at->first + i]];
        bool negated = op->arg & NET_NOT_TOKEN;
        if (op->kind == NET_TOKEN && ((op->arg & ~NET_NOT_TOKEN) == token) != negated)
            n_found = spread(s, op->next, n_found);
    }
    return finish(s, n_found);
}

// --- merging positions far from the end of a counted repeat ---

static const struct net_chain *chain_of(const struct net *net, uint32_t op)
{
    uint32_t low = 0, high = net->n_chains;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (op < net->chains[mid].first)
            high = mid;
        else if (op >= net->chains[mid].first + net->chains[mid].stride * net->chains[mid].count)
            low = mid + 1;
        else
            return &net->chains[mid];
    }
    return NULL;
}

uint32_t subsets_near(struct subsets *s, uint32_t state, uint32_t reach)
{
    const struct subset *at = &s->at[state];
    if (!s->net->n_chains)
        return state;
    bool moved = false;
    begin(s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        uint32_t op = s->pool[at->first + i];
        const struct net_chain *chain = chain_of(s->net, op);
        // copies are numbered from the end, so this many copies follow the one that contains the op
        uint32_t copy = chain ? (op - chain->first) / chain->stride : 0;
        if (copy > reach) {
            op -= (copy - reach) * chain->stride;
            moved = true;
        }
        if (s->seen[op] == s->clock)
            continue;
        s->seen[op] = s->clock;
        s->found[n++] = op;
    }
    return moved ? finish(s, n) : state;
}

bool subsets_is_one_further(const struct subsets *s, uint32_t state, uint32_t next)
{
    const struct subset *a = &s->at[state], *b = &s->at[next];
    bool moved = false;
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t from = s->pool[a->first + i], to = s->pool[b->first + i];
        if (from == to && !chain_of(s->net, from))
            continue;
        const struct net_chain *chain = chain_of(s->net, to);
        if (!chain || to - chain->first < chain->stride || from != to + chain->stride ||
            chain_of(s->net, from) != chain)
            return false;
        moved = true;
    }
    return moved;
}
