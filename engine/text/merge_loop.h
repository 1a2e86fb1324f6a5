// The merge loop of BPE and SPM: it merges the adjacent pair with the lowest key, the leftmost of equals, until none
// is left.
//
//     while (some pair of neighbours merges)
//         merge the pair with the lowest key, the leftmost of equals;
//
// This naive loop is quadratic. merge_short does exactly this, on arrays that fit the first-level cache. merge_long
// serves longer words in n log n: it keeps the pairs in a heap and the symbols in a linked list.
//
// A symbol is a number: the id of a token (BPE), or the offset of its first byte (SPM). With offsets, the end of the
// text follows the last symbol. `pair` returns the key of merging a and b, or MERGE_NONE, and sets the new symbol; c
// is the symbol after b. Everything is inlined into bpe.c and spm.c. Threads: no state besides the arguments.
#ifndef QUERN_MERGE_LOOP_H
#define QUERN_MERGE_LOOP_H

#include "engine/text/vocab.h"

#include <assert.h>

enum { MERGE_SHORT = 24 };

typedef uint32_t merge_pair_fn(const void *ctx, uint32_t a, uint32_t b, uint32_t c, uint32_t *merged);

// Merges the n symbols at v, 0 < n <= MERGE_SHORT. v[n] and v[n + 1] hold what follows them. Returns how many symbols
// are left.
static inline __attribute__((always_inline)) size_t merge_short(uint32_t *v, size_t n, merge_pair_fn *pair,
                                                                const void *ctx)
{
    uint32_t key[MERGE_SHORT], merged[MERGE_SHORT];
    assert(n > 0 && n <= MERGE_SHORT);
    merged[n - 1] = 0; // moved along with the others, but never used
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

// A symbol in the list: its neighbours by index, and the key and the result of merging it with the next one.
struct merge_node {
    uint32_t value, prev, next, key, merged;
};

// Symbols of a word at most, because their numbers have 32 bits.
#define MERGE_LONGEST (UINT32_MAX - 2)

// The bytes of scratch memory that merge_long needs for n symbols: a heap with at most n - 1 initial pairs and two more
// for each of n - 1 merges, then the nodes, including one after the last symbol.
static inline size_t merge_long_bytes(size_t n)
{
    return (n + 1) * sizeof(struct merge_node) + n * 3 * sizeof(uint64_t);
}

// The nodes within scratch memory of that size.
static inline struct merge_node *merge_long_nodes(void *scratch, size_t n)
{
    return (struct merge_node *)((uint64_t *)scratch + 3 * n);
}

// Restores the heap order after heap[i] was replaced. An entry has the key in its high half and the left symbol in
// its low half. The gap first moves down to a leaf without comparing against the new entry, because that usually
// belongs near the leaves.
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

// Computes the key and the result for node i and the node after it, if there is one.
static inline __attribute__((always_inline)) void merge_look(struct merge_node *nodes, uint32_t n, uint32_t i,
                                                             merge_pair_fn *pair, const void *ctx)
{
    uint32_t next = nodes[i].next;
    nodes[i].key = MERGE_NONE;
    if (next < n) {
        nodes[i].key = pair(ctx, nodes[i].value, nodes[next].value, nodes[nodes[next].next].value, &nodes[i].merged);
    }
}

// Merges n symbols. The values of the nodes 0 .. n - 1 and of node n, which follows the last symbol, must be set.
// Afterwards the remaining symbols are linked by `next` from node 0 to node n. `scratch` has the size of
// merge_long_bytes and contains the nodes.
static inline __attribute__((always_inline)) void merge_long(void *scratch, uint32_t n, merge_pair_fn *pair,
                                                             const void *ctx)
{
    uint64_t *heap = scratch;
    struct merge_node *nodes = merge_long_nodes(scratch, n);
    size_t n_heap = 0;
    for (uint32_t i = 0; i <= n; i++) {
        nodes[i].prev = i - 1; // node 0 has no predecessor; it always stays the first
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
            continue; // outdated: the pair has changed or was merged since this entry was made
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
