// The reference operations: every operation in plain C, as its paper defines it. Fast paths are compared with them.
//
// Everything between a load and a store is computed in double, sums included; values between nodes are float32.
// Weights, keys and values are decoded by gguf/dtype.c, and activations are never quantised. Nothing is fused, reused
// or reordered.
//
// Ownership: struct ref_run refers to a plan and a step and owns nothing. Threads: one at a time on a plan.
#ifndef QUERN_REF_OPS_H
#define QUERN_REF_OPS_H

#include "kernels/machine.h"

// The run of one step. In the KV cache, the key or value of head h at position p lies in row h * KV_PAGE + p %
// KV_PAGE of its layer's part of the page.
struct ref_run {
    const struct step *step;
    float *const *values;      // [node id]: (rows, width), row-major
    const enum dtype *kv_type; // [2]
    uint8_t *kv;               // page 0
    size_t page_bytes;
    const struct kv_layer *kv_layers; // [n_kv]
    const size_t (*kv_offset)[2];     // [n_kv][part] within a page
    float *states;                    // slot 0
    size_t state_floats;              // of a slot
    float *state;                     // scratch for the state of one head or column
    float *decoded;                   // scratch for one decoded row of any weight, key or value
    double *sums;                     // scratch for one row of any node's value
};

// Computes the value of node n, or writes to the KV cache. The sources of n must have been computed.
void ref_node(const struct ref_run *r, const struct tensor *n);

#endif
