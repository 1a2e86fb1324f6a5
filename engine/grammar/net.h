// The nets of a grammar: each rule as a non-deterministic automaton over bytes, which may call others.
//
// An op waits for a byte, or a token; or it goes two ways, calls a rule, or ends its own. Small rules and those that
// are used once are part of the nets that use them, if they do not call themselves. Every op knows how many calls deep
// it must go at least to reach the end of its rule (`need`): those that cannot are dead, and are passed over by all who
// read the net, so that what is left can always be completed.
//
// Ownership: net_free takes all back; the expressions must live as long. Threads: read-only once built.
#ifndef QUERN_NET_H
#define QUERN_NET_H

#include "engine/grammar/expr.h"

enum net_kind { NET_BYTES, NET_SPLIT, NET_CALL, NET_TOKEN, NET_END };
#define NET_NONE UINT32_MAX
#define NET_NOT_TOKEN UINT32_C(0x80000000) // in `arg` of NET_TOKEN: any token but this

struct net_op {
    uint32_t kind : 3, empty : 1, need : 28; // empty: the end of the rule is reached from here without a byte
    uint32_t arg;                            // the set; the other way; the rule; the token
    uint32_t next;                           // where it goes on
};
enum { NEED_DEAD = (1 << 28) - 1 };

// The copies of a counted repeat, laid out alike: copy i (from the end) is the ops from `first + i * stride`.
struct net_chain {
    uint32_t first, stride, count;
};

struct net {
    const struct exprs *x;
    struct net_op *ops;
    uint32_t n, cap;
    uint32_t *start;          // of each rule, NET_NONE when it is part of others or not used
    struct net_chain *chains; // in rising order, none within another
    uint32_t n_chains, cap_chains;
    struct byte_set available; // bytes that can be written at all
    uint8_t class_of[256];     // bytes that no op tells apart are one class
    uint8_t class_byte[256];   // a byte of each class
    uint32_t n_classes;
    uint32_t root; // rule
    uint32_t lead; // rule: white space, then the root; what follows a trigger
};

enum { NET_OPS_MAX = 1 << 21, NET_CHAIN_MIN = 40 };

// Builds the rules that `root` needs, and the rule `lead`, which is made here. E_USAGE: a rule is undefined, recurses
// on its left, or the grammar has no text, or is too large; E_MEMORY.
int net_build(struct net *net, struct exprs *x, uint32_t root, const struct byte_set *available, struct error *err);
// The net of one regular expression, as rule 0.
int net_build_regular(struct net *net, struct exprs *x, expr_id e, struct error *err);
void net_free(struct net *net);

static inline bool net_is_dead(const struct net *net, uint32_t op)
{
    return net->ops[op].need == NEED_DEAD;
}

#endif
