// A gated delta net (Yang et al. 2024, arXiv 2412.06464), in place of attention: what a sequence remembers is a matrix for
// each head and the last inputs of a short convolution, the state of graph_delta_rule and graph_short_conv.
#ifndef QUERN_BLOCKS_DELTA_NET_H
#define QUERN_BLOCKS_DELTA_NET_H

#include "models/build.h"

struct delta_net {
    int n_head_k, n_head, dim; // heads of queries and keys, heads of values, columns of a head
    int kernel;                // rows that the convolution sees
    bool grouped;              // heads of values that share a head of keys stand together, see key_head_of
    enum scaled scaled;        // what scales of its matrices multiply
};

// Reads the keys ssm.*.
struct delta_net delta_net_read(struct build *b);

// Numbers of each head and row, from which its decay and the strength of a change are made: (n_tok, n_head).
struct delta_gates {
    struct tensor *alpha, *beta;
};
// The products of x with ssm_alpha and ssm_beta.
struct delta_gates delta_gates(struct build *b, struct tensor *x, const struct delta_net *d);
// The same from one matrix, ssm_ba, which has for each head of keys first the betas, then the alphas of its heads.
struct delta_gates delta_gates_fused(struct build *b, struct tensor *x, const struct delta_net *d);

// Projection, convolution, delta rule, norm, gate: (n_tok, n_head * dim).
struct tensor *delta_net(struct build *b, struct tensor *x, struct delta_gates gates, const struct delta_net *d);

#endif
