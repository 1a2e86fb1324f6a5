// What a step must do at least: the bytes that it reads and the multiply-adds that it computes, node by node.
//
// Both are lower bounds that follow from the graph alone and are the same for every machine. Each weight is read once
// in a step, and each cached key and value once for all rows of its sequence. Values that are small enough for caches
// are not counted. Measured speeds are compared with these bounds. Threads: pure.
#ifndef QUERN_COST_H
#define QUERN_COST_H

#include "kernels/graph.h"

struct cost {
    double bytes;    // read
    double products; // multiply-adds
};

// A step of n_seqs sequences with n_tokens / n_seqs rows each, after `depth` positions that are in the KV cache.
struct cost_step {
    int n_tokens, n_outputs, n_seqs, depth;
    enum dtype kv_type[2];
};

// Of a product with experts, as many experts are counted as the rows would need if they chose at random.
struct cost cost_of_node(const struct tensor *n, const struct cost_step *s);
// The sum over all nodes of the graph.
struct cost cost_of_graph(const struct graph *g, const struct cost_step *s);

#endif
