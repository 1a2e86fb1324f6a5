// Checks that a grammar can be used: its rules are defined, it can be completed, and no rule is left-recursive.
//
// Only engine/grammar includes this file. Ownership: rule_graph_free frees the lists of the graph. Threads: one at a
// time.
#ifndef QUERN_NET_CHECK_H
#define QUERN_NET_CHECK_H

#include "engine/grammar/net.h"

// The call graph of the rules that the root needs.
struct rule_graph {
    uint32_t *first; // [n + 1]: start of each rule's calls in `calls`
    uint32_t *calls;
    uint32_t *uses;  // number of calls of each rule; calls within a long repeat count twice
    bool *recursive; // the rule calls itself, directly or indirectly
    uint32_t *order; // callees before callers, except within recursion
    uint32_t n, n_order, n_calls, cap_calls;
};

// E_USAGE if a needed rule is not defined.
int rule_graph_build(struct rule_graph *g, const struct exprs *x, uint32_t root, struct error *err);
void rule_graph_free(struct rule_graph *g);

// Fills in `need` of every op. E_MEMORY.
int net_find_needs(struct net *net, uint32_t n_rules, struct error *err);
// Fills in `need` and `empty`, and checks that the root can be completed and that no rule is left-recursive.
int net_check(struct net *net, const struct rule_graph *g, struct error *err);

#endif
