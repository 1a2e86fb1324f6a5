// The loop that BPE and SPM share: of all neighbours that may merge, the ones that come first do, the leftmost of
// equals, until none may.
//
//     while (some pair of neighbours merges)
//         merge the pair with the least key, the leftmost of equals;
//
// As written that is quadratic. merge_short does just so, on arrays that fit the first-level cache; merge_long keeps
// the pairs in a heap and the symbols in a linked list, n log n, for words that are longer.
//
// A symbol is a number: a token's id (BPE), or where it starts in the text (SPM), in which case the end of the text
// stands behind the last one. `pair` gives the key of merging a and b, where c stands behind b, or MERGE_NONE, and the
// new symbol. All is inlined into bpe.c and spm.c. Threads: no state but the arguments.
#ifndef QUERN_MERGE_LOOP_H
#define QUERN_MERGE_LOOP_H

#include "engine/text/vocab.h"

enum { MERGE_SHORT = 24 };

typedef uint32_t merge_pair_fn(const void *ctx, uint32_t a, uint32_t b, uint32_t c, uint32_t *merged);

// Merges n symbols at v, 0 < n <= MERGE_SHORT, v[n] being what stands behind them; returns how many are left.
static inline __attribute__((always_inline)) size_t merge_short(uint32_t *v, size_t n, merge_pair_fn *pair,
                                                                const void *ctx)
{
    uint32_t key[MERGE_SHORT], merged[MERGE_SHORT];
    for (size_t i = 0; i < n; i++) {
        key[i] = i + 1 < n ? pair(ctx, v[i], v[i + 1], v[i + 2], &merged[i]) : MERGE_NONE;
    }
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            best = key[i] < key[best] ? i : best;
        }
        if (key[best] == MERGE_NONE) {
            return n;
        }
        v[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            v[i] = v[i + 1];
            key[i] = key[i + 1];
            merged[i] = merged[i + 1];
        }
        v[n] = v[n + 1];
        if (best > 0) {
            key[best - 1] = pair(ctx, v[best - 1], v[best], v[best + 1], &merged[best - 1]);
        }
        key[best] = best + 1 < n ? pair(ctx, v[best], v[best + 1], v[best + 2], &merged[best]) : MERGE_NONE;
    }
}

// A symbol in the list, its neighbours by index, and what merging it with the next one would cost and give.
struct merge_node {
    uint32_t value, prev, next, key, merged;
};

// Bytes of scratch that merge_long wants for n symbols: a heap of at most n - 1 pairs to begin with and two more for
// each of n - 1 merges, then the nodes, and one behind the last.
static inline bool merge_long_bytes(size_t n, size_t *bytes)
{
    size_t heap;
    return size_mul(n + 1, sizeof(struct merge_node), bytes) || size_mul(n, 3 * sizeof(uint64_t), &heap) ||
           size_add(*bytes, heap, bytes) || n >= UINT32_MAX - 1;
}

// The nodes in scratch memory of that size.
static inline struct merge_node *merge_long_nodes(void *scratch, size_t n)
{
    return (struct merge_node *)((uint64_t *)scratch + 3 * n);
}

// Moves the entry that is to stand at heap[i] down to where it belongs: an entry is the key in the high half, the left
// symbol in the low. First the hole goes down to a leaf, without asking, as what comes from the end belongs near the
// end.
static inline void merge_heap_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t moving = heap[i];
    size_t top = i;
    for (size_t child; (child = 2 * i + 2) < n; i = child) {
        child -= heap[child - 1] < heap[child];
        heap[i] = heap[child];
    }
    if (2 * i + 1 < n) {
        heap[i] = heap[2 * i + 1];
        i = 2 * i + 1;
    }
    for (; i > top && heap[(i - 1) / 2] > moving; i = (i - 1) / 2) {
        heap[i] = heap[(i - 1) / 2];
    }
    heap[i] = moving;
}

static inline void merge_heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2) {
        heap[i] = heap[(i - 1) / 2];
    }
    heap[i] = entry;
}

// Looks up what node i and the next one, if any of the n, make.
static inline __attribute__((always_inline)) void merge_look(struct merge_node *nodes, uint32_t n, uint32_t i,
                                                             merge_pair_fn *pair, const void *ctx)
{
    uint32_t next = nodes[i].next;
    nodes[i].key = MERGE_NONE;
    if (next < n) {
        nodes[i].key = pair(ctx, nodes[i].value, nodes[next].value, nodes[nodes[next].next].value, &nodes[i].merged);
    }
}

// Merges the n symbols whose values are set, and that of node n, which stands behind the last. The survivors are linked
// by `next` from node 0 on to node n. `scratch` has room as merge_long_bytes says, the nodes in it.
static inline __attribute__((always_inline)) void merge_long(void *scratch, uint32_t n, merge_pair_fn *pair,
                                                             const void *ctx)
{
    uint64_t *heap = scratch;
    struct merge_node *nodes = merge_long_nodes(scratch, n);
    size_t n_heap = 0;
    for (uint32_t i = 0; i <= n; i++) {
        nodes[i].prev = i - 1; // node 0 has none, and is the first for good
        nodes[i].next = i < n ? i + 1 : n;
    }
    for (uint32_t i = 0; i < n; i++) {
        merge_look(nodes, n, i, pair, ctx);
        if (nodes[i].key != MERGE_NONE) {
            heap[n_heap++] = (uint64_t)nodes[i].key << 32 | i;
        }
    }
    for (size_t i = n_heap / 2; i-- > 0;) {
        merge_heap_down(heap, n_heap, i);
    }
    while (n_heap > 0) {
        uint64_t top = heap[0];
        heap[0] = heap[--n_heap];
        if (n_heap > 0) {
            merge_heap_down(heap, n_heap, 0);
        }
        uint32_t i = (uint32_t)top;
        if (nodes[i].key != top >> 32) {
            continue; // its pair has changed, or it was merged away, since this entry was made
        }
        uint32_t right = nodes[i].next;
        nodes[i].value = nodes[i].merged;
        nodes[i].next = nodes[right].next;
        nodes[nodes[right].next].prev = i;
        nodes[right].key = MERGE_NONE;
        for (uint32_t left = i > 0 ? nodes[i].prev : i;; left = i) {
            merge_look(nodes, n, left, pair, ctx);
            if (nodes[left].key != MERGE_NONE) {
                merge_heap_push(heap, &n_heap, (uint64_t)nodes[left].key << 32 | left);
            }
            if (left == i) {
                break;
            }
        }
    }
}

#endif
