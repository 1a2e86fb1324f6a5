// The deterministic states of a net, built on demand by subset construction.
//
// A state is the set of ops that a rule may be at after some text: bytes, tokens, calls and its end. Each distinct
// set is stored once. States and transitions are built when they are first needed. A net whose full deterministic
// automaton would be enormous therefore costs only what is used of it. State 0 is the dead state. Ownership:
// subsets_free. Threads: one at a time.
#ifndef QUERN_SUBSET_H
#define QUERN_SUBSET_H

#include "engine/grammar/net.h"

enum { SUBSET_DEAD = 0 };
#define SUBSET_UNKNOWN UINT32_MAX

struct subset_call {
    uint32_t rule, back; // the called rule, and the state after its return
};

struct subset {
    uint32_t first, n;       // its ops in `pool`, ascending: bytes, tokens, calls and ends
    uint32_t calls, n_calls; // its calls in `call`; n_calls is SUBSET_UNKNOWN until they are computed
    uint32_t *row;           // next state per byte class, or SUBSET_UNKNOWN; NULL until the first step
    uint32_t need;           // minimum `need` of its ops
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
    uint32_t *start;        // start state of each rule, or SUBSET_UNKNOWN
    uint32_t *seen, clock;  // per op: the clock value of the set that it was last added to
    uint32_t *todo, *found; // work lists: [2 * (net->n + 1)], [net->n + 1]
    size_t bytes;           // memory in use
    uint64_t looks;         // ops visited while building states: a measure of work
    bool failed;            // out of memory
    bool too_wide;          // some state had more than SUBSET_OPS_MAX ops
};
enum { SUBSET_OPS_MAX = 1 << 17 };

int subsets_init(struct subsets *s, const struct net *net, uint32_t n_rules, struct error *err);
void subsets_free(struct subsets *s);
// These return SUBSET_DEAD if memory runs out and set `failed`, or if a state is too large and set `too_wide`.
uint32_t subsets_start(struct subsets *s, uint32_t rule);
uint32_t subsets_step(struct subsets *s, uint32_t state, uint8_t class);
// The state of these ops and all ops that are reached from them without a byte.
uint32_t subsets_of(struct subsets *s, const uint32_t *ops, uint32_t n);
// The calls of a state, merged so that each rule occurs once.
const struct subset_call *subsets_calls(struct subsets *s, uint32_t state, uint32_t *n);
// The state after the token, for a state with `has_tokens`.
uint32_t subsets_token(struct subsets *s, uint32_t state, uint32_t token);
// Returns a state that behaves the same for every text of fewer than `reach` bytes (reach >= NET_CHAIN_MIN).
// Positions in counted repeats that are further than `reach` copies from the end are moved up to that distance, so
// that many states become one.
uint32_t subsets_near(struct subsets *s, uint32_t state, uint32_t reach);
// Whether `next` equals `state` except that all counted repeats have advanced by one copy and still have another one
// to come. Then both states continue in the same ways.
bool subsets_is_one_further(const struct subsets *s, uint32_t state, uint32_t next);

#endif
