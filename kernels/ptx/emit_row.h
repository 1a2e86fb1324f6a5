// Emits one kernel, row_NODE, for a step of one row: several operations on the row that are no products, one after another
// in one CTA (thread block), where each would be a launch of a few microseconds. gpu_fuse_rows.c decides which.
//
// The naive loop that it equals:
//     for each node, in order:
//         for each column c: y[node][c] = f(values of earlier nodes or launches)
// Values are in memory, those of nodes of this kernel, too. Before a node that reads one of these there is a barrier,
// unless there was one since it was computed. Every value has the bits of the kernels of emit_ops.h.
//
// Parameters: step, positions, pages, then n_params addresses, to which nodes refer by number. PTX 6.3, sm_75; 7.8, sm_90
// if it is dependent. Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_ROW_H
#define QUERN_EMIT_ROW_H

#include "kernels/ptx/emit_ops.h"

enum { PTX_ROW_NODES = 12, PTX_ROW_PARAMS = 48, PTX_ROW_WIDTH = 1 << 14, PTX_ROW_GROUP = 4096 };

enum ptx_row_kind { PTX_ROW_ELEMENT, PTX_ROW_SLICE, PTX_ROW_JOIN, PTX_ROW_ROPE, PTX_ROW_NORM, PTX_ROW_KV };
struct ptx_row_node {
    enum ptx_row_kind kind;
    uint32_t width; // columns, at most PTX_ROW_WIDTH
    int a, b;       // numbers of the nodes that compute x and z; -1: earlier launches do
    int x, z, y; // numbers of parameters: the sources (z: the second one, or the table of angles) and the value; of KV
                 // y is the offset in a page, a number instead of an address
    int gain, bias; // of a norm; -1: none
    union {
        struct ptx_elements element; // only op, act and factor are used
        struct ptx_slice slice;      // group, from, n
        struct ptx_join join;        // first, second, same
        struct ptx_rope rope;        // head_dim, pairs, layout
        struct ptx_norm norm;        // group (at most PTX_ROW_GROUP), kind, eps, by_column
        struct ptx_kv kv;
    };
};
struct ptx_row {
    uint32_t node;  // of the graph, for comments and the entry's name
    bool dependent; // programmatic dependent launch, as in emit_fused.h
    int n_nodes, n_params;
    struct ptx_row_node nodes[PTX_ROW_NODES];
};
int ptx_emit_row(struct ptx *p, const struct ptx_row *r, struct ptx_launch *launch, struct error *err);

#endif
