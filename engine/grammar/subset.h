// The states of a net as they are met: sets of ops that are alive together, each set once.
//
// A state is what a rule may be waiting for after some text: bytes, tokens, calls, its end. States and their steps are
// made when they are asked for, so that a net whose deterministic automaton would be enormous costs what is used of it.
// State 0 is the dead one. Ownership: subsets_free. Threads: one at a time.
#ifndef QUERN_SUBSET_H
#define QUERN_SUBSET_H

#include "engine/grammar/net.h"

enum { SUBSET_DEAD = 0 };
#define SUBSET_UNKNOWN UINT32_MAX

struct subset_call {
    uint32_t rule, back; // called, and the state behind it
};

struct subset {
    uint32_t first, n;       // its ops in `pool`, rising: bytes, tokens, calls and ends
    uint32_t calls, n_calls; // in `call`; SUBSET_UNKNOWN until asked for
    uint32_t *row;           // by class: the next state, SUBSET_UNKNOWN; NULL until a step is made
    uint32_t need;           // of the least demanding op
    bool ends, has_bytes, has_tokens;
};

struct subsets {
    const struct net *net;
    struct subset *at;
    uint32_t n, cap;
    uint32_t *pool;
    uint32_t n_pool, cap_pool;
    struct subset_call *call;
    uint32_t n_call, cap_call;
    uint32_t *table; // hash -> state + 1
    uint32_t table_size;
    uint32_t *start;        // of each rule, SUBSET_UNKNOWN
    uint32_t *seen, clock;  // of each op
    uint32_t *todo, *found; // [net->n + 1]
    size_t bytes;           // taken
    uint64_t looks;         // at an op, while steps were made: their work
    bool failed;            // memory was short
    bool too_wide;          // more ops in a state than are followed
};
enum { SUBSET_OPS_MAX = 1 << 17 };

int subsets_init(struct subsets *s, const struct net *net, uint32_t n_rules, struct error *err);
void subsets_free(struct subsets *s);
// These return SUBSET_DEAD when memory is short, and say so in the struct.
uint32_t subsets_start(struct subsets *s, uint32_t rule);
uint32_t subsets_step(struct subsets *s, uint32_t state, uint8_t class);
// The state of exactly these ops and what is reached from them without a byte.
uint32_t subsets_of(struct subsets *s, const uint32_t *ops, uint32_t n);
// The calls of a state, one for each rule.
const struct subset_call *subsets_calls(struct subsets *s, uint32_t state, uint32_t *n);
// What comes after the token, where the state waits for tokens.
uint32_t subsets_token(struct subsets *s, uint32_t state, uint32_t token);
// The state that looks the same for a text of fewer than `reach` bytes, NET_CHAIN_MIN or more: counted repeats that are
// far from their ends are moved to where the end is just out of sight.
uint32_t subsets_near(struct subsets *s, uint32_t state, uint32_t reach);
// Whether `next` is the state but for counted repeats, all of which have one copy less to come and yet another one
// behind it: then both go on in the same ways.
bool subsets_is_one_further(const struct subsets *s, uint32_t state, uint32_t next);

#endif
