// A set of byte strings, each with a token. Finds the longest string that a text starts with.
//
// Ownership: lives in the arena that it was built in. Threads: read-only once built.
#ifndef QUERN_TRIE_H
#define QUERN_TRIE_H

#include "gguf/base.h"

// An edge: parent in bits 40-63, byte in bits 32-39, child in bits 0-31. 0 means no edge, because no edge leads to
// the root.
struct trie {
    uint64_t *edges; // open addressing
    uint64_t mask, seed;
    int32_t *token; // of each node; -1 if no string ends there
    uint32_t n_nodes;
    int32_t root[256]; // child of the root for each byte; 0 if there is none
};

enum { TRIE_MAX_NODES = 1 << 24 };

// Makes room for strings of `bytes` bytes in total. E_MODEL if that exceeds the limit of a trie, E_MEMORY.
int trie_new(struct trie *trie, size_t bytes, struct arena *arena, struct error *err);
void trie_add(struct trie *trie, struct str s, int32_t token);
// Returns the token of the longest string at the start of [p, end), and its length; -1 if there is none.
int32_t trie_longest(const struct trie *trie, const char *p, const char *end, size_t *len);

// The node behind `node`, 0 being the root, by this byte; 0 if there is none. trie->token tells which string ends there.
uint32_t trie_step(const struct trie *trie, uint32_t node, unsigned char byte);

#endif
