// A set of byte strings, each with a token, that is asked for the longest one that a text starts with.
//
// Ownership: lives in the arena that it was built in. Threads: read-only once built.
#ifndef QUERN_TRIE_H
#define QUERN_TRIE_H

#include "gguf/base.h"

// An edge from a node by a byte: parent in bits 40-63, byte in 32-39, child in 0-31. 0 is no edge, as no edge leads to
// the root.
struct trie {
    uint64_t *edges; // open addressing
    uint64_t mask, seed;
    int32_t *token; // of each node, -1 when no string ends there
    uint32_t n_nodes;
    int32_t root[256]; // the child of the root by each byte, 0 when there is none
};

enum { TRIE_MAX_NODES = 1 << 24 };

// Room for strings of `bytes` bytes altogether. E_MODEL when that is more than a trie holds, E_MEMORY.
int trie_new(struct trie *trie, size_t bytes, struct arena *arena, struct error *err);
void trie_add(struct trie *trie, struct str s, int32_t token);
// The token of the longest string at the start of [p, end) and its length; -1 when there is none.
int32_t trie_longest(const struct trie *trie, const char *p, const char *end, size_t *len);

#endif
