// A small llama-like graph for tests of plans and machines: grouped queries, rope, a gated FFN or a mixture of experts.
#ifndef QUERN_TINY_GRAPH_H
#define QUERN_TINY_GRAPH_H

#include "kernels/graph.h"

enum {
    TINY_EMBD = 256,
    TINY_FFN = 512,
    TINY_HEADS = 4,
    TINY_HEADS_KV = 2,
    TINY_DIM = 64,
    TINY_RANK = 256, // of the latent
    TINY_VOCAB = 320,
    TINY_BLOCK = 32,
    TINY_EXPERTS = 8,
    TINY_USED = 2,
    TINY_WEIGHTS_MAX = 256,
};

struct tiny {
    struct graph *graph;
    struct weight weights[TINY_WEIGHTS_MAX];
    int n_weights;
    struct arena data;
    // What to build.
    int n_layer;
    bool experts;
    bool latent;         // attention has one KV head whose values are the first columns of its keys
    bool with_data;      // else the weights have shapes only, which is all that a plan reads
    enum dtype type;     // of the matmuls
    int window;          // of attention
    int n_ff, n_head_kv; // 0: TINY_FFN, TINY_HEADS_KV
    uint64_t seed;
};

// Fills t->graph from the fields above; fails the test when it cannot. tiny_free frees what was built.
void tiny_build(struct tiny *t);
void tiny_free(struct tiny *t);

// Seeded noise in [-1, 1), for any test: one step of a 64-bit generator.
float tiny_noise(uint64_t *state);

#endif
