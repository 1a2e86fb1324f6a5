// What a step costs at least: bytes that must be read and multiply-adds that must be done, node by node.
//
// Both are lower bounds that follow from the graph alone, the same for every machine: each weight is read once a step,
// each cached key and value once for all rows of its sequence; small values that stay in caches are not counted. Speeds
// are held against them. Threads: pure.
#ifndef QUERN_COST_H
#define QUERN_COST_H

#include "kernels/graph.h"

struct cost {
    double bytes;    // read
    double products; // multiply-adds
};

// A step of n_seqs sequences, n_tokens / n_seqs rows each, that have `depth` positions behind them.
struct cost_step {
    int n_tokens, n_outputs, n_seqs, depth;
    enum dtype kv_type[2];
};

// Of experts, as many different ones are counted as rows that choose at random would meet.
struct cost cost_of_node(const struct tensor *n, const struct cost_step *s);
// The sum over the graph.
struct cost cost_of_graph(const struct graph *g, const struct cost_step *s);

#endif
