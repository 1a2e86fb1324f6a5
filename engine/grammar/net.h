// The nets of a grammar: each rule becomes a non-deterministic automaton over bytes, which may call the nets of other
// rules.
//
// An op reads a byte or a token, splits into two ways, calls a rule, or ends its rule. Rules that are small or used
// only once are inlined into the nets that use them, unless they are recursive. Each op stores its `need`: the
// minimum number of nested calls on any way from it to the end of its rule. Ops that cannot reach the end are dead.
// All users of a net skip dead ops, so whatever remains can always be completed.
//
// Ownership: net_free frees everything. The expressions must outlive the net. Threads: read-only once built.
#ifndef QUERN_NET_H
#define QUERN_NET_H

#include "engine/grammar/expr.h"

enum net_kind { NET_BYTES, NET_SPLIT, NET_CALL, NET_TOKEN, NET_END };
#define NET_NONE UINT32_MAX
#define NET_NOT_TOKEN UINT32_C(0x80000000) // flag in `arg` of NET_TOKEN: any token except this one

struct net_op {
    uint32_t kind : 3, empty : 1, need : 28; // empty: the end of the rule can be reached from here without reading a
                                             // byte
    uint32_t arg;                            // by kind: number of the byte set; the second way; rule; token
    uint32_t next;                           // op that follows
};
enum { NEED_DEAD = (1 << 28) - 1 };

// The copies of a counted repeat. All copies have the same layout: copy i, counted from the end of the repeat,
// consists of the ops from `first + i * stride` on.
struct net_chain {
    uint32_t first, stride, count;
};

struct net {
    const struct exprs *x;
    struct net_op *ops;
    uint32_t n, cap;
    uint32_t *start;          // first op of each rule; NET_NONE if the rule is inlined or not used
    struct net_chain *chains; // in ascending order; chains do not nest
    uint32_t n_chains, cap_chains;
    struct byte_set available; // bytes that some token can write
    uint8_t class_of[256];     // class of each byte; bytes that no op distinguishes share a class
    uint8_t class_byte[256];   // one byte of each class
    uint32_t n_classes;
    uint32_t root; // number of the root rule
    uint32_t lead; // rule: optional white space, then the root; used after a trigger
};

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { NET_OPS_MAX = 1 << 14, NET_CHAIN_MIN = 40 }; // small limits are reached, and inputs are quick
#else
enum { NET_OPS_MAX = 1 << 21, NET_CHAIN_MIN = 40 };
#endif

static inline bool net_is_dead(const struct net *net, uint32_t op)
{
    return net->ops[op].need == NEED_DEAD;
}

#endif
