// What must hold of a grammar before it is used: its rules are there, can be completed, and do not recurse on the left.
//
// For engine/grammar alone. Ownership: rule_graph_free takes the graph's lists back. Threads: one at a time.
#ifndef QUERN_NET_CHECK_H
#define QUERN_NET_CHECK_H

#include "engine/grammar/net.h"

// Which rules call which, of those that the root needs.
struct rule_graph {
    uint32_t *first; // [n + 1] where the calls of a rule begin
    uint32_t *calls;
    uint32_t *uses;  // how often a rule is written; a long repeat counts twice
    bool *recursive; // it calls itself, in however many steps
    uint32_t *order; // callees before callers, but for recursion
    uint32_t n, n_order, n_calls, cap_calls;
};

// E_USAGE when a rule that is needed is not defined.
int rule_graph_build(struct rule_graph *g, const struct exprs *x, uint32_t root, struct error *err);
void rule_graph_free(struct rule_graph *g);

// Fills in how deep each op must go. E_MEMORY.
int net_find_needs(struct net *net, uint32_t n_rules, struct error *err);
// The needs, that the root can be completed, and that no rule begins with itself.
int net_check(struct net *net, const struct rule_graph *g, struct error *err);

#endif
