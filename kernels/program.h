// Lowers a graph to a program, from which both machines make their plans: dead nodes are dropped, equal nodes are
// merged, and nodes that quantise activations are inserted.
//
// The CPU's plan is a schedule of phases (kernels/cpu/schedule.h), the GPU's a list of launches (kernels/ptx/gpu.h).
// Ownership: all memory is from the caller's arena. Threads: read-only once built.
#ifndef QUERN_PROGRAM_H
#define QUERN_PROGRAM_H

#include "kernels/graph.h"

// How a machine uses activations of 8 or 16 bits.
struct act_rules {
    // The form that products with weights of this type take, in rows of k. NULL: all take floats.
    enum act_form (*form)(const void *ctx, enum dtype weight, int64_t k);
    size_t (*row_bytes)(enum act_form form, int64_t k); // bytes of a row of k activations, not of floats
    // Bytes of n rows of k activations in tiles, a second form in which products with weights of this type are
    // faster. 0: they are not faster. NULL: the machine has no such form.
    size_t (*tiles_bytes)(const void *ctx, enum dtype weight, int64_t k, int n);
    const void *ctx;
};

struct program {
    struct tensor **nodes; // [n], sources before their readers; nodes[i]->id is i
    int n;
    struct tensor *logits;
    struct tensor **of; // [graph node id]: the node that computes it here; NULL: it was dead
    struct act_rules acts;
    int n_dead, n_common; // nodes that were dropped, and merged, for dumps
};
// E_MEMORY.
int program_build(struct arena *arena, const struct graph *g, struct act_rules acts, struct program *out,
                  struct error *err);
// Bytes of one row of a node's value: floats, or rows in another form for QUANTIZE.
size_t program_row_bytes(const struct program *p, const struct tensor *n);

#endif
