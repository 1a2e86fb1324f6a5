// The graph as both machines take it: dead nodes dropped, equal nodes merged, the quantisation of activations put in.
//
// A machine makes its own plan of a program: the CPU a schedule of phases (kernels/cpu/schedule.h), the GPU a list of
// launches (kernels/ptx/gpu.h). Ownership: all memory is the caller's arena. Threads: read-only once built.
#ifndef QUERN_PROGRAM_H
#define QUERN_PROGRAM_H

#include "kernels/graph.h"

// How a machine takes quantised activations: for which types of weight, and what a row of k of them occupies.
struct q8_rules {
    bool (*takes)(const void *ctx, enum dtype weight);
    size_t (*row_bytes)(int64_t k);
    // What n columns occupy once more, in the form in which products with that weight are faster; 0: they are not. NULL: never.
    size_t (*tiles_bytes)(const void *ctx, enum dtype weight, int64_t k, int n);
    const void *ctx;
};

struct program {
    struct tensor **nodes; // in an order in which sources come first; ids are 0 .. n-1
    int n;
    struct tensor *logits;
    struct tensor **of; // [graph node id]: its node here, NULL when it is dead
    struct q8_rules q8;
    int n_dead, n_common; // nodes that were dropped, for dumps
};
int program_build(struct arena *arena, const struct graph *g, struct q8_rules q8, struct program *out,
                  struct error *err);
// Bytes of one row of a node's value: floats, or 8-bit rows for QUANTIZE.
size_t program_row_bytes(const struct program *p, const struct tensor *n);

#endif
