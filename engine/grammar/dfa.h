// Deterministic finite automata of regular expressions, for intersection and complement, which nets cannot express.
// dfa_build.h builds them from expressions.
//
// State DFA_DEAD is a sink: no text leads out of it. Ownership: dfa_free. Threads: read-only once built.
#ifndef QUERN_DFA_H
#define QUERN_DFA_H

#include "gguf/base.h"

enum { DFA_DEAD = 0, DFA_STATES_MAX = 1 << 16 };

// A set of byte values: bit b % 64 of bits[b / 64].
struct byte_set {
    uint64_t bits[4];
};

static inline bool byte_set_has(const struct byte_set *s, unsigned byte)
{
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}

static inline void byte_set_add(struct byte_set *s, unsigned byte)
{
    s->bits[byte >> 6] |= UINT64_C(1) << (byte & 63);
}

struct dfa {
    uint32_t n, start;
    uint32_t n_classes;
    uint8_t class_of[256];
    uint32_t *next; // [n][n_classes]
    bool *accept;   // [n]
};

// All transitions lead to DFA_DEAD, and no state accepts. NULL if memory runs out.
struct dfa *dfa_new(uint32_t n, uint32_t n_classes);
void dfa_free(struct dfa *d); // NULL is fine
bool dfa_accepts_empty(const struct dfa *d);
bool dfa_accepts(const struct dfa *d, struct str text);
bool dfa_is_empty(const struct dfa *d);
uint32_t dfa_size(const struct dfa *d); // the number of ops that it takes in a net

// The outgoing edges of a state: one set of bytes for each target state. Edges to DFA_DEAD are left out.
struct dfa_edges {
    struct byte_set *sets;
    uint32_t *to, n;
};
bool dfa_edges(struct dfa_edges *out, const struct dfa *d, uint32_t state);
void dfa_edges_free(struct dfa_edges *edges);

#endif
