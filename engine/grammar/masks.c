// The walk of the token trees, the cache of partial masks, and the union of partial masks into the mask of a set.
// Short and long tokens have a tree each. A partial mask costs one walk of a tree; later masks only OR cached bits.
// Near the depth limit of the stack a partial mask may allow too much, so the mask of such a set is computed by an
// uncached walk with the whole stack.
#include "engine/grammar/masks.h"

#include "engine/grammar/kinds.h"

#include <stdlib.h>

static const size_t partials_bytes_max = (size_t)256 << 20;

int masks_init(struct masks *m, const struct grammar_vocab *v, struct readings *r, struct error *err)
{
    *m = (struct masks){.v = v, .r = r};
    size_t depth = 1;
    for (int i = 0; i < TREE_COUNT; i++)
        depth = MAX(depth, v->trees[i].longest);
    m->reach_long = (uint32_t)depth + 1;
    m->sets = malloc((depth + 2) * sizeof *m->sets);
    m->rows = malloc((depth + 2) * sizeof *m->rows);
    m->found = malloc((grammar_vocab_words(v) + 1) * sizeof *m->found);
    m->children = malloc((depth + 2) * sizeof *m->children);
    if (m->sets && m->rows && m->children && m->found)
        return 0;
    masks_free(m);
    return fail(err, E_MEMORY, "no memory for the masks of %d tokens", v->n_tokens);
}

static void clear_partials(struct masks *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        free(m->partials[i].bits);
        free(m->partials[i].ids);
        free(m->partials[i].nodes);
    }
    m->n = 0;
    m->bytes = 0;
    if (m->table)
        memset(m->table, 0, m->table_size * sizeof *m->table);
}

void masks_free(struct masks *m)
{
    clear_partials(m);
    free(m->partials);
    free(m->table);
    free(m->found);
    free(m->nodes);
    free(m->sets);
    free(m->rows);
    free(m->children);
    *m = (struct masks){0};
}

// --- the walk ---

struct walk {
    struct masks *m;
    const struct token_tree *tree;
    uint32_t deepest;
    uint64_t taken;        // tokens that consist of only these kinds have been found already,
    uint32_t taken_length; // if they have at most this many bytes
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

static inline void put_tokens(struct walk *w, uint32_t from, uint32_t to)
{
    const int32_t *order = w->tree->order;
    w->m->n_found += to - from;
    for (uint32_t i = from; i < to; i++)
        w->m->found[order[i] >> 5] |= UINT32_C(1) << (order[i] & 31);
}

// --- kinds that are read alike ---
//
// Inside a string, most characters lead to the same set: back to the current one, or, if characters are counted, to
// the one with the count increased. `ahead` is this next set. `alike` are the kinds of which every character leads to
// `ahead`. A subtree with only such kinds is accepted at once if they are alike in as many successive sets as its
// longest text has bytes.

#define LETTERS (UINT64_C(1) << (KIND_LETTERS + 1)) // g-z

// Whether every text with one byte from each of the n ranges leads from the set to `ahead`.
static bool leads_ahead(struct readings *r, uint32_t set, const struct kind_range *range, unsigned n, uint32_t ahead)
{
    const uint8_t *class_of = r->net->class_of;
    if (!n)
        return set == ahead;
    for (unsigned byte = range->from; byte <= range->to; byte++) {
        if (byte > range->from && class_of[byte] == class_of[byte - 1])
            continue;
        uint32_t next = readings_step(r, set, class_of[byte]);
        if (next == READINGS_DEAD || !leads_ahead(r, next, range + 1, n - 1, ahead))
            return false;
    }
    return true;
}

static bool is_alike(struct readings *r, uint32_t set, unsigned kind)
{
    // forms are in ascending order of kinds, and each kind has at least one form
    for (size_t i = kind; i < KIND_FORMS && kind_forms[i].kind <= kind; i++)
        if (kind_forms[i].kind == kind && !leads_ahead(r, set, kind_forms[i].at, kind_forms[i].len, r->at[set].ahead))
            return false;
    return true;
}

// The set to which most characters lead: that of the letter e, or else of the digit 0.
static uint32_t find_ahead(struct readings *r, uint32_t set)
{
    uint32_t next = readings_step(r, set, r->net->class_of['e']);
    return next != READINGS_DEAD ? next : readings_step(r, set, r->net->class_of['0']);
}

// Fills in `ahead` of a set, and marks as examined what needs no examination.
static void look_ahead(struct readings *r, uint32_t set)
{
    uint32_t ahead = find_ahead(r, set);
    r->at[set].ahead = ahead;
    r->at[set].examined |= KINDS_NONE;
    if (ahead == READINGS_DEAD)
        r->at[set].examined = UINT64_MAX;
}

// Whether what is known of a set also holds of the one ahead of it: both differ only in the counts of repeats.
static bool is_alike_ahead(struct readings *r, uint32_t set)
{
    struct reading_set *from = &r->at[set];
    const struct reading_set *to = &r->at[from->ahead];
    if (from->goes_on == GOES_ON_UNKNOWN) {
        const struct reading *a = &r->pool[from->first], *b = &r->pool[to->first];
        bool same = from->n == 1 && to->n == 1 && a->frame == b->frame &&
                    subsets_is_one_further(&r->subsets, a->state, b->state);
        from->goes_on = same ? GOES_ON : GOES_ON_NOT;
    }
    return from->goes_on == GOES_ON;
}

// Returns the set ahead of an examined set, and passes on to it what is known if that also holds there.
static uint32_t step_ahead(struct readings *r, uint32_t set)
{
    uint32_t ahead = r->at[set].ahead;
    if (ahead == set || !is_alike_ahead(r, set))
        return ahead;
    if (!r->at[ahead].examined)
        look_ahead(r, ahead);
    r->at[ahead].examined |= r->at[set].examined;
    r->at[ahead].alike |= r->at[set].alike;
    return ahead;
}

// Returns which of the kinds are alike in the set. With `all`, it stops at the first kind that is not.
static uint64_t find_alike(struct readings *r, uint32_t set, uint64_t kinds, bool all)
{
    if (!r->at[set].examined)
        look_ahead(r, set);
    for (uint64_t left; (left = kinds & ~r->at[set].examined);) {
        if (all && (kinds & r->at[set].examined & ~r->at[set].alike))
            break;
        unsigned kind = (unsigned)__builtin_ctzll(left);
        bool alike = is_alike(r, set, kind);
        r->at[set].examined |= UINT64_C(1) << kind;
        r->at[set].alike |= (uint64_t)alike << kind;
    }
    return kinds & r->at[set].alike;
}

enum { RUN_MAX = 16, RUN_FOREVER = UINT16_MAX };

// Fills in the run of a set: the sets ahead of it, up to the first in which letters are not alike.
static void find_run(struct readings *r, uint32_t set)
{
    uint64_t kinds = (UINT64_C(1) << KIND_COUNT) - 1;
    uint32_t at = set, length = 0, deepest = 0;
    for (; length < RUN_MAX && find_alike(r, at, LETTERS, false); length++) {
        kinds = find_alike(r, at, kinds, false);
        uint32_t ahead = step_ahead(r, at);
        deepest = MAX(deepest, r->at[ahead].deepest);
        if (ahead == at)
            length = RUN_FOREVER - 1;
        at = ahead;
    }
    struct reading_set *found = &r->at[set];
    found->run_alike = length ? kinds : 0;
    found->run_length = MAX(length, 1);
    found->run_end = at;
    found->run_deepest = deepest;
}

// At the beginning of a walk of the short tree, finds all tokens of kinds that are alike as far as these tokens
// reach.
static void take_alike(struct walk *w, uint32_t set)
{
    struct readings *r = w->m->r;
    uint64_t kinds = (UINT64_C(1) << KIND_COUNT) - 1;
    uint32_t length = 0;
    for (; length < NET_CHAIN_MIN; set = r->at[set].run_end) {
        if (!r->at[set].run_length)
            find_run(r, set);
        if (!(r->at[set].run_alike & LETTERS)) // too few tokens to be worth it
            break;
        kinds &= r->at[set].run_alike;
        length += r->at[set].run_length;
        w->deepest = MAX(w->deepest, r->at[set].run_deepest);
    }
    if (!length)
        return;
    w->taken = kinds;
    w->taken_length = length;
    vocab_tree_of_kinds(w->m->v, kinds, length, w->m->found);
    w->m->n_found = (uint32_t)w->m->v->n_tokens; // an upper bound
}

// Whether the kinds are alike in this set and the next ones, `length` sets in all.
static bool stay_alike(struct walk *w, uint32_t set, uint64_t kinds, uint32_t length)
{
    struct readings *r = w->m->r;
    while (length > 0) {
        if (find_alike(r, set, kinds, true) != kinds)
            return false;
        if (length >= 4 && !r->at[set].run_length)
            find_run(r, set);
        const struct reading_set *at = &r->at[set];
        if (at->run_length && !(kinds & ~at->run_alike)) {
            w->deepest = MAX(w->deepest, at->run_deepest);
            length -= MIN(length, at->run_length);
            set = at->run_end;
        } else if (at->run_alike && at->run_length <= length) {
            return false;
        } else {
            set = step_ahead(r, set);
            w->deepest = MAX(w->deepest, r->at[set].deepest);
            length--;
        }
    }
    return true;
}

// Whether every text below the node may follow the set; if so, adds the tokens of these texts.
static bool take_all_below(struct walk *w, uint32_t set, const struct token_node *node)
{
    if (node->reach == REACH_MAX || !stay_alike(w, set, node->kinds, node->reach))
        return false;
    put_tokens(w, token_node_mid(w->tree, node), node->last);
    return true;
}

// Goes down one level: the children of the node continue a text that has become `set`.
static inline void descend(struct walk *w, unsigned depth, uint32_t set, const struct token_node *node)
{
    struct masks *m = w->m;
    m->sets[depth] = set;
    m->rows[depth] = m->r->at[set].row;
    m->children[depth][0] = node->child;
    m->children[depth][1] = node->child + node->n_child;
}

// Walks everything below a node, which continues a text that has become `set`. Steps are taken from the cached row of
// each depth; missing ones are computed.
static void walk(struct walk *w, uint32_t set, uint32_t below)
{
    const struct token_node *nodes = w->tree->at;
    struct masks *m = w->m;
    struct readings *r = m->r;
    const uint8_t *class_of = r->net->class_of;
    unsigned depth = 0;
    descend(w, depth, set, &nodes[below]);
    while (m->children[depth][0] < m->children[depth][1] || depth > 0) {
        if (m->children[depth][0] == m->children[depth][1]) {
            depth--;
            continue;
        }
        uint32_t i = m->children[depth][0]++;
        m->n_visited++;
        const struct token_node *node = &nodes[i];
        if (!(node->whole & ~w->taken) && depth + 1 + node->reach <= w->taken_length)
            continue;
        uint8_t class = class_of[node->byte];
        uint32_t *row = m->rows[depth], next = row ? row[class] : UINT32_MAX;
        if (next == UINT32_MAX) {
            next = readings_step(r, m->sets[depth], class);
            m->rows[depth] = r->at[m->sets[depth]].row;
        }
        if (next == READINGS_DEAD)
            continue;
        w->deepest = MAX(w->deepest, r->at[next].deepest);
        put_tokens(w, node->first, token_node_mid(w->tree, node));
        if (!node->n_child || (r->at[next].n && take_all_below(w, next, node)))
            continue;
        if (r->at[next].done)
            put_node(m, i);
        if (r->at[next].n)
            descend(w, ++depth, next, node);
    }
}

// --- the cache of partial masks ---

static uint32_t partial_slot(const struct masks *m, uint64_t key)
{
    uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & (m->table_size - 1);
    while (m->table[slot] && m->partials[m->table[slot] - 1].key != key)
        slot = (slot + 1) & (m->table_size - 1);
    return slot;
}

static bool make_room(struct masks *m)
{
    if (m->n == m->cap) {
        uint32_t cap = m->cap ? 2 * m->cap : 64;
        struct partial_mask *partials = realloc(m->partials, cap * sizeof *partials);
        if (!partials)
            return false;
        m->partials = partials;
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
        table[partial_slot(m, m->partials[i].key)] = i + 1;
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Returns a copy of the nodes without duplicates.
static uint32_t *copy_nodes(struct masks *m, uint32_t *n)
{
    // one walk finds nodes in ascending order; only several walks from different nodes can mix them
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

static uint32_t *list_found(const struct masks *m, uint32_t *n)
{
    uint32_t *ids = malloc((m->n_found + (size_t)1) * sizeof *ids);
    *n = 0;
    for (size_t i = 0; ids && m->n_found && i < grammar_vocab_words(m->v); i++)
        for (uint32_t word = m->found[i]; word; word &= word - 1)
            ids[(*n)++] = (uint32_t)i * 32 + (uint32_t)__builtin_ctz(word);
    return ids;
}

// Stores the result of a walk as a mask or as a list, whichever is smaller. UINT32_MAX if memory runs out.
static uint32_t store_partial(struct masks *m, const struct walk *w, uint64_t key)
{
    size_t words = grammar_vocab_words(m->v);
    struct partial_mask l = {.key = key, .deepest = w->deepest, .tree = (uint8_t)(w->tree - m->v->trees)};
    bool good = make_room(m);
    if (m->n_found > words) {
        l.bits = malloc(words * sizeof *l.bits);
        if (l.bits)
            memcpy(l.bits, m->found, words * sizeof *l.bits);
    } else {
        l.ids = list_found(m, &l.n_ids);
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
    m->n_computed++;
    m->table[partial_slot(m, key)] = m->n + 1;
    m->partials[m->n] = l;
    return m->n++;
}

static bool is_known(const struct masks *m, uint64_t key, uint32_t *partial)
{
    if (!m->table_size)
        return false;
    *partial = m->table[partial_slot(m, key)] - 1;
    return *partial != UINT32_MAX;
}

// Returns the partial mask of a state for one of the trees.
static uint32_t partial_of_state(struct masks *m, int tree, uint32_t state)
{
    uint64_t key = UINT64_C(1) << 63 | (uint64_t)tree << 32 | state;
    uint32_t partial;
    if (is_known(m, key, &partial))
        return partial;
    struct walk w = walk_begin(m, tree);
    uint32_t set = readings_of(m->r, state, FRAME_UNKNOWN);
    w.deepest = m->r->at[set].deepest;
    if (tree == TREE_SHORT)
        take_alike(&w, set);
    walk(&w, set, 0);
    return store_partial(m, &w, key);
}

// Returns the partial mask of the texts that left their rule at the nodes of `earlier` and return to `back`.
static uint32_t partial_of_return(struct masks *m, uint32_t earlier, uint32_t back)
{
    uint64_t key = (uint64_t)earlier << 32 | back;
    uint32_t partial;
    if (is_known(m, key, &partial))
        return partial;
    struct walk w = walk_begin(m, m->partials[earlier].tree);
    uint32_t set = readings_of(m->r, back, FRAME_UNKNOWN);
    w.deepest = m->r->at[set].deepest;
    for (uint32_t i = 0; i < m->partials[earlier].n_nodes; i++) {
        uint32_t node = m->partials[earlier].nodes[i];
        walk(&w, set, node);
        if (m->r->at[set].done) // the rule returned to may end at once as well
            put_node(m, node);
    }
    return store_partial(m, &w, key);
}

// --- the whole mask ---

static void add_partial(const struct masks *m, const struct partial_mask *l, uint32_t *mask)
{
    size_t words = grammar_vocab_words(m->v);
    for (size_t i = 0; l->bits && i < words; i++)
        mask[i] |= l->bits[i];
    for (uint32_t i = 0; l->ids && i < l->n_ids; i++)
        mask[l->ids[i] >> 5] |= UINT32_C(1) << (l->ids[i] & 31);
}

// Adds the tokens that may follow one reading. False if memory runs out. Sets *deep if the stack is so high that the
// depth limit may forbid some tokens of the partial masks.
static bool add_reading(struct masks *m, int tree, struct reading at, uint32_t *mask, bool *deep)
{
    struct readings *r = m->r;
    uint32_t state = subsets_near(&r->subsets, at.state, tree == TREE_SHORT ? NET_CHAIN_MIN : m->reach_long);
    if (state == SUBSET_DEAD)
        return false;
    uint32_t partial = partial_of_state(m, tree, state), frame = at.frame;
    while (partial != UINT32_MAX) {
        const struct partial_mask *l = &m->partials[partial];
        if (l->deepest + r->frames[frame].depth > r->depth_max) {
            *deep = true;
            return true;
        }
        add_partial(m, l, mask);
        if (!l->n_nodes || frame == FRAME_ROOT || frame == FRAME_UNKNOWN)
            return true;
        partial = partial_of_return(m, partial, r->frames[frame].back);
        frame = r->frames[frame].below;
    }
    return false;
}

// Adds the tokens by walks that know the whole stack; slow.
static void walk_set(struct masks *m, uint32_t set, uint32_t *mask)
{
    for (int tree = 0; tree < TREE_COUNT; tree++) {
        struct walk w = walk_begin(m, tree);
        walk(&w, set, 0);
        for (size_t i = 0; i < grammar_vocab_words(m->v); i++)
            mask[i] |= m->found[i];
    }
}

static void add_token(const struct grammar_vocab *v, uint32_t *mask, uint32_t token)
{
    if (token < (uint32_t)v->n_tokens)
        mask[token >> 5] |= UINT32_C(1) << (token & 31);
}

// Adds the tokens that the grammar names. Tokens that end an answer are never added here.
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
    if (m->bytes > partials_bytes_max)
        clear_partials(m);
    struct readings *r = m->r;
    memset(mask, 0, grammar_vocab_words(m->v) * sizeof *mask);
    bool deep = false, good = true;
    for (uint32_t i = 0; i < r->at[set].n && good; i++) {
        struct reading at = r->pool[r->at[set].first + i];
        for (int tree = 0; tree < TREE_COUNT && good && !at.called; tree++)
            if (m->v->trees[tree].at[0].n_child)
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
