#include "engine/grammar/masks.h"

#include <stdlib.h>

static const size_t lessons_bytes_max = (size_t)256 << 20;

int masks_init(struct masks *m, const struct grammar_vocab *v, struct readings *r, struct error *err)
{
    *m = (struct masks){.v = v, .r = r};
    size_t depth = 1;
    for (int i = 0; i < TREE_COUNT; i++)
        for (uint32_t k = 0; k < v->trees[i].n; k++)
            depth = MAX(depth, v->trees[i].depth[k]);
    m->sets = malloc((depth + 2) * sizeof *m->sets);
    m->rows = malloc((depth + 2) * sizeof *m->rows);
    m->found = malloc((grammar_vocab_words(v) + 1) * sizeof *m->found);
    if (m->sets && m->rows && m->found)
        return 0;
    masks_free(m);
    return fail(err, E_MEMORY, "no memory for the masks of %d tokens", v->n_tokens);
}

static void forget(struct masks *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        free(m->lessons[i].bits);
        free(m->lessons[i].ids);
        free(m->lessons[i].nodes);
    }
    m->n = 0;
    m->bytes = 0;
    if (m->table)
        memset(m->table, 0, m->table_size * sizeof *m->table);
}

void masks_free(struct masks *m)
{
    forget(m);
    free(m->lessons);
    free(m->table);
    free(m->found);
    free(m->nodes);
    free(m->sets);
    free(m->rows);
    *m = (struct masks){0};
}

// --- the walk ---

struct walk {
    struct masks *m;
    const struct token_tree *tree;
    uint32_t deepest;
};

static struct walk walk_begin(struct masks *m, int tree)
{
    memset(m->found, 0, grammar_vocab_words(m->v) * sizeof *m->found);
    m->n_found = 0;
    m->n_nodes = 0;
    return (struct walk){.m = m, .tree = &m->v->trees[tree]};
}

static void put_node(struct masks *m, uint32_t node)
{
    if (m->n_nodes == m->cap_nodes) {
        size_t cap = m->cap_nodes ? 2 * m->cap_nodes : 4096;
        uint32_t *nodes = realloc(m->nodes, cap * sizeof *nodes);
        if (!nodes) {
            m->failed = true;
            return;
        }
        m->nodes = nodes;
        m->cap_nodes = cap;
    }
    m->nodes[m->n_nodes++] = node;
}

static inline void put_tokens(struct masks *m, int32_t token)
{
    for (; token >= 0; token = m->v->next_same[token]) {
        uint32_t *word = &m->found[token >> 5], bit = UINT32_C(1) << (token & 31);
        m->n_found += !(*word & bit);
        *word |= bit;
    }
}

// All nodes from..to - 1, the first of which continues a text that has become `set`. Steps are looked up in the row of
// each depth; what is not there is asked for.
static void walk(struct walk *w, uint32_t set, uint32_t from, uint32_t to)
{
    const struct token_tree *tree = w->tree;
    struct masks *m = w->m;
    struct readings *r = m->r;
    const uint8_t *class_of = r->net->class_of;
    if (from >= to)
        return;
    const unsigned base = tree->depth[from] - 1u;
    m->sets[0] = set;
    m->rows[0] = r->at[set].row;
    for (uint32_t i = from; i < to;) {
        unsigned depth = tree->depth[i] - base;
        uint8_t class = class_of[tree->byte[i]];
        uint32_t *row = m->rows[depth - 1], next = row ? row[class] : UINT32_MAX;
        if (next == UINT32_MAX) {
            next = readings_step(r, m->sets[depth - 1], class);
            m->rows[depth - 1] = r->at[m->sets[depth - 1]].row;
        }
        if (next == READINGS_DEAD) {
            i = tree->skip[i];
            continue;
        }
        const struct reading_set *at = &r->at[next];
        w->deepest = MAX(w->deepest, at->deepest);
        put_tokens(m, tree->token[i]);
        if (at->done && tree->skip[i] > i + 1)
            put_node(m, i);
        m->sets[depth] = next;
        m->rows[depth] = at->row;
        i = at->n ? i + 1 : tree->skip[i];
    }
}

// --- lessons ---

static uint32_t lesson_slot(const struct masks *m, uint64_t key)
{
    uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & (m->table_size - 1);
    while (m->table[slot] && m->lessons[m->table[slot] - 1].key != key)
        slot = (slot + 1) & (m->table_size - 1);
    return slot;
}

static bool make_room(struct masks *m)
{
    if (m->n == m->cap) {
        uint32_t cap = m->cap ? 2 * m->cap : 64;
        struct lesson *lessons = realloc(m->lessons, cap * sizeof *lessons);
        if (!lessons)
            return false;
        m->lessons = lessons;
        m->cap = cap;
    }
    if (m->n * 2 < m->table_size)
        return true;
    uint32_t size = m->table_size ? 2 * m->table_size : 128;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table)
        return false;
    free(m->table);
    m->table = table;
    m->table_size = size;
    for (uint32_t i = 0; i < m->n; i++)
        table[lesson_slot(m, m->lessons[i].key)] = i + 1;
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// A copy of the nodes without those that come twice.
static uint32_t *copy_nodes(struct masks *m, uint32_t *n)
{
    // a walk finds them in order; only walks below one another mix them
    size_t sorted = 1;
    while (sorted < m->n_nodes && m->nodes[sorted - 1] < m->nodes[sorted])
        sorted++;
    if (sorted < m->n_nodes)
        qsort(m->nodes, m->n_nodes, sizeof *m->nodes, by_number);
    *n = 0;
    for (size_t i = 0; i < m->n_nodes; i++)
        if (!i || m->nodes[i] != m->nodes[i - 1])
            m->nodes[(*n)++] = m->nodes[i];
    uint32_t *copy = malloc((*n + (size_t)1) * sizeof *copy);
    if (copy && *n)
        memcpy(copy, m->nodes, *n * sizeof *copy);
    return copy;
}

static uint32_t *list_found(const struct masks *m)
{
    uint32_t *ids = malloc((m->n_found + (size_t)1) * sizeof *ids), n = 0;
    for (size_t i = 0; ids && i < grammar_vocab_words(m->v); i++)
        for (uint32_t word = m->found[i]; word; word &= word - 1)
            ids[n++] = (uint32_t)i * 32 + (uint32_t)__builtin_ctz(word);
    return ids;
}

// Writes down what a walk has found; the smaller of mask and list. UINT32_MAX when memory is short.
static uint32_t write_down(struct masks *m, const struct walk *w, uint64_t key)
{
    size_t words = grammar_vocab_words(m->v);
    struct lesson l = {.key = key, .deepest = w->deepest, .tree = (uint8_t)(w->tree - m->v->trees)};
    bool good = make_room(m);
    if (m->n_found > words) {
        l.bits = malloc(words * sizeof *l.bits);
        if (l.bits)
            memcpy(l.bits, m->found, words * sizeof *l.bits);
    } else {
        l.ids = list_found(m);
        l.n_ids = m->n_found;
    }
    l.nodes = copy_nodes(m, &l.n_nodes);
    if (!good || m->failed || !l.nodes || (!l.bits && !l.ids)) {
        free(l.bits);
        free(l.ids);
        free(l.nodes);
        m->failed = true;
        return UINT32_MAX;
    }
    m->bytes += (l.bits ? words : l.n_ids) * 4 + l.n_nodes * 4 + sizeof l;
    m->n_learned++;
    m->table[lesson_slot(m, key)] = m->n + 1;
    m->lessons[m->n] = l;
    return m->n++;
}

static bool is_known(const struct masks *m, uint64_t key, uint32_t *lesson)
{
    if (!m->table_size)
        return false;
    *lesson = m->table[lesson_slot(m, key)] - 1;
    return *lesson != UINT32_MAX;
}

// What may follow the state, in one of the trees.
static uint32_t learn_state(struct masks *m, int tree, uint32_t state)
{
    uint64_t key = UINT64_C(1) << 63 | (uint64_t)tree << 32 | state;
    uint32_t lesson;
    if (is_known(m, key, &lesson))
        return lesson;
    struct walk w = walk_begin(m, tree);
    uint32_t set = readings_of(m->r, state, FRAME_UNKNOWN);
    w.deepest = m->r->at[set].deepest;
    walk(&w, set, 0, w.tree->n);
    return write_down(m, &w, key);
}

// What may follow where an earlier lesson left its rule, if that rule returns to `back`.
static uint32_t learn_return(struct masks *m, uint32_t earlier, uint32_t back)
{
    uint64_t key = (uint64_t)earlier << 32 | back;
    uint32_t lesson;
    if (is_known(m, key, &lesson))
        return lesson;
    const struct token_tree *tree = &m->v->trees[m->lessons[earlier].tree];
    struct walk w = walk_begin(m, m->lessons[earlier].tree);
    uint32_t set = readings_of(m->r, back, FRAME_UNKNOWN);
    w.deepest = m->r->at[set].deepest;
    for (uint32_t i = 0; i < m->lessons[earlier].n_nodes; i++) {
        uint32_t node = m->lessons[earlier].nodes[i];
        walk(&w, set, node + 1, tree->skip[node]);
        if (m->r->at[set].done) // it returns at once, too
            put_node(m, node);
    }
    return write_down(m, &w, key);
}

// --- the sum ---

static void add_lesson(const struct masks *m, const struct lesson *l, uint32_t *mask)
{
    size_t words = grammar_vocab_words(m->v);
    for (size_t i = 0; l->bits && i < words; i++)
        mask[i] |= l->bits[i];
    for (uint32_t i = 0; l->ids && i < l->n_ids; i++)
        mask[l->ids[i] >> 5] |= UINT32_C(1) << (l->ids[i] & 31);
}

// Adds what may follow one reading. False when memory is short; *deep when the stack is so high that what was learned
// without looking at it may not hold.
static bool add_reading(struct masks *m, int tree, struct reading at, uint32_t *mask, bool *deep)
{
    struct readings *r = m->r;
    uint32_t state = tree == TREE_SHORT ? subsets_near(&r->subsets, at.state) : at.state;
    if (state == SUBSET_DEAD)
        return false;
    uint32_t lesson = learn_state(m, tree, state), frame = at.frame;
    while (lesson != UINT32_MAX) {
        const struct lesson *l = &m->lessons[lesson];
        if (l->deepest + r->frames[frame].depth > r->depth_max) {
            *deep = true;
            return true;
        }
        add_lesson(m, l, mask);
        if (!l->n_nodes || frame == FRAME_ROOT || frame == FRAME_UNKNOWN)
            return true;
        lesson = learn_return(m, lesson, r->frames[frame].back);
        frame = r->frames[frame].below;
    }
    return false;
}

// The slow way, which knows the whole stack.
static void walk_set(struct masks *m, uint32_t set, uint32_t *mask)
{
    for (int tree = 0; tree < TREE_COUNT; tree++) {
        struct walk w = walk_begin(m, tree);
        walk(&w, set, 0, w.tree->n);
        for (size_t i = 0; i < grammar_vocab_words(m->v); i++)
            mask[i] |= m->found[i];
    }
}

static void add_token(const struct grammar_vocab *v, uint32_t *mask, uint32_t token)
{
    if (token < (uint32_t)v->n_tokens)
        mask[token >> 5] |= UINT32_C(1) << (token & 31);
}

// Tokens that are named in the grammar. Tokens that end an answer do that alone.
static void add_named(struct masks *m, uint32_t state, uint32_t *mask)
{
    const struct subsets *s = &m->r->subsets;
    for (uint32_t i = 0; i < s->at[state].n; i++) {
        const struct net_op *op = &s->net->ops[s->pool[s->at[state].first + i]];
        if (op->kind != NET_TOKEN)
            continue;
        if (!(op->arg & NET_NOT_TOKEN)) {
            add_token(m->v, mask, op->arg);
            continue;
        }
        for (int32_t id = 0; id < m->v->n_tokens; id++)
            if (vocab_tree_may_stand(m->v, id) && (uint32_t)id != (op->arg & ~NET_NOT_TOKEN))
                add_token(m->v, mask, (uint32_t)id);
    }
}

bool masks_of(struct masks *m, uint32_t set, uint32_t *mask)
{
    if (m->bytes > lessons_bytes_max)
        forget(m);
    struct readings *r = m->r;
    memset(mask, 0, grammar_vocab_words(m->v) * sizeof *mask);
    bool deep = false, good = true;
    for (uint32_t i = 0; i < r->at[set].n && good; i++) {
        struct reading at = r->pool[r->at[set].first + i];
        for (int tree = 0; tree < TREE_COUNT && good && !at.called; tree++)
            if (m->v->trees[tree].n)
                good = add_reading(m, tree, at, mask, &deep);
    }
    if (deep && good) {
        memset(mask, 0, grammar_vocab_words(m->v) * sizeof *mask);
        walk_set(m, set, mask);
    }
    for (uint32_t i = 0; i < r->at[set].n; i++)
        add_named(m, r->pool[r->at[set].first + i].state, mask);
    for (int32_t i = 0; i < m->v->n_ends; i++)
        if (r->at[set].done)
            add_token(m->v, mask, (uint32_t)m->v->ends[i]);
    return good && !m->failed && !r->failed;
}
