// Emits one kernel, fused_NODE, for a step of one row: the products of one row of activations with several matrices,
// the operations that compute that row before them, and the operations on their columns after them. gpu_fuse.c decides
// what becomes one such kernel. It is used for steps of one row only; other steps run the kernels of emit_ops.h and
// emit_matmul.h, one per operation.
//
// The naive loop that it equals:
//     row = prologue(inputs)                        // norms of the whole row, element-wise functions, 8-bit rounding
//     for each section, for each column c of it:
//         for each leg l:
//             y[l] = sum over k of row[k] * w[l][c][k]
//         for each node of the section, in order:
//             v[node] = f(y, earlier v, inputs)     // bias, sums, gates, norms of heads, rotary positions
//             store v[node], if a later kernel needs it, or write it to the KV cache
// A leg is one product. A section is one or more legs of the same number of columns, with the nodes that use only
// those columns. A unit is a group of 32 to 256 neighbouring columns of a section; no node needs a column outside of
// its unit.
//
// A CTA processes one unit at a time; after the products thread i of it has column i of the unit. CTAs loop over the
// units of all sections, so any grid gives the right result; launch.grid[0] is the number of units. Every CTA computes
// the prologue for itself and keeps the row in shared memory. That costs one pass over the inputs for the elements and
// one or two for each norm, per CTA, and saves a launch for each operation. Without a prologue the row is read from
// global memory.
//
// Every value has the same bits as from the kernels of emit_ops.h and emit_matmul.h, because the order of each sum is
// the same.
//
// A CTA first prefetches the weights of its first unit into L2, before it computes the row or waits for earlier
// launches. Variants of a kernel with 8-bit activations differ in the threads of a CTA and in the way of the weights:
// emit_fused_ring.c keeps them in flight in shared memory.
//
// Parameters: step, positions, pages (as in emit_ops.h), then n_params addresses, to which nodes and legs refer by
// number. Rows are contiguous and aligned to 16 bytes. PTX 6.3, sm_75. Shared memory is static, at most 48 KB, except for
// a ring, which is dynamic.
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_FUSED_H
#define QUERN_EMIT_FUSED_H

#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/emit_ops.h"

enum { FUSED_NODES = 16, FUSED_LEGS = 3, FUSED_SECTIONS = 6, FUSED_PARAMS = 60, FUSED_UNIT = 256 };

enum ptx_fused_kind {
    FUSED_LOAD,    // loads a row from memory. param: its address
    FUSED_SUM,     // the result of leg a, with its bias
    FUSED_ELEMENT, // an element-wise function of node a, or of nodes a and b
    FUSED_NORM,    // norm of node a: of the whole row in a prologue, of groups of columns in a section.
                   // param: gain, other: bias
    FUSED_ROPE,    // rotary positions applied to node a. param: the table of cosines and sines
    FUSED_KV,      // writes node a to the KV cache. param: the value of kv.offset, a number instead of an address
};
// One value per element of the row (in a prologue) or per column (in a section). a and b are the numbers of earlier
// nodes of the same list; of a FUSED_SUM, a is the number of a leg.
struct ptx_fused_node {
    enum ptx_fused_kind kind;
    int a, b;
    int param, other; // numbers of parameters; -1: none
    int store;        // the parameter with the address at which the value is stored; -1: not stored
    union {
        struct ptx_elements element; // only op, act and factor are used
        struct {
            enum norm_kind kind;
            uint32_t group;
            float eps;
        } norm;
        struct {
            uint32_t head_dim, pairs;
            enum rope_layout layout;
        } rope;
        struct ptx_kv kv;
    };
};
struct ptx_fused_leg {
    enum dtype type;
    int w, bias; // numbers of parameters; bias -1: none
};
struct ptx_fused_section {
    uint32_t n_out; // columns of each leg
    uint32_t unit;  // columns that a CTA processes at a time: a multiple of 32; if more than 32, a divisor of n_out
    int n_legs, n_nodes;
    struct ptx_fused_leg legs[FUSED_LEGS];
    struct ptx_fused_node nodes[FUSED_NODES];
};
// The variants of a kernel, which give the same bits. Which one is fastest depends on the card.
enum ptx_fused_variant {
    FUSED_WIDE,      // a CTA has up to 512 threads
    FUSED_NARROW,    // up to 256, so that two CTAs fit on a multiprocessor; with 16-bit activations FUSED_WIDE again
    FUSED_RING,      // as before, with weights in flight in shared memory (emit_fused_ring.c)
    FUSED_RING_PAIR, // the same, for two CTAs of the launch on a multiprocessor: these leave no room for the next launch
    FUSED_VARIANTS
};
struct ptx_fused {
    uint32_t node; // of the graph, for comments and the entry's name
    enum ptx_fused_variant variant;
    uint32_t target; // 10 * major + minor of the card's compute capability; only a ring depends on it
    uint32_t n_in;   // elements of the row
    bool q8;         // the products take 8-bit activations
    bool halves;     // they take activations of 16 bits; all weights are F16, or all are BF16. PTX 7.0, sm_80
    bool dependent;  // programmatic dependent launch: the kernel starts before the launches ahead of it have ended, and
                     // waits for them itself. PTX 7.8, sm_90
    int n_prologue;  // nodes of the prologue; the last one is the row. 0: the row is in memory, in the products' format
    int source;      // with n_prologue 0: the parameter with the address of the row
    int n_sections, n_params;
    struct ptx_fused_node prologue[FUSED_NODES];
    struct ptx_fused_section sections[FUSED_SECTIONS];
};
int ptx_emit_fused(struct ptx *p, const struct ptx_fused *f, struct ptx_launch *launch, struct error *err);
// Whether the kernel fits into 48 KB of shared memory and 512 threads, or has room for its ring.
bool ptx_fused_fits(const struct ptx_fused *f);
// The number of variants that this kernel has on f->target, 1 to FUSED_VARIANTS: the first ones of enum ptx_fused_variant.
uint32_t ptx_fused_variants(const struct ptx_fused *f);

// ---- between emit_fused.c and emit_fused_row.c

// The prologue. Each pass over the row computes the elements of all nodes again; only the results of norms (%mean and
// %root) are kept between passes.

// Declares the registers of the passes, and sets the addresses of all inputs of the prologue.
void ptx_fused_row_head(struct ptx *p, const struct ptx_fused *f);
// Computes %mean and %root of the prologue's norms in the CTA of `warps` warps. It uses shared memory named partials,
// of ptx_fused_partials_bytes.
uint32_t ptx_fused_partials_bytes(const struct ptx_fused *f);
void ptx_fused_row_norms(struct ptx *p, const struct ptx_fused *f, uint32_t warps);
// Opens a scope and computes %e<8 * node + i>, element %i + i of each node's value, for i < count; count is 8 or 1.
// The caller closes the scope.
void ptx_fused_row_elements(struct ptx *p, const struct ptx_fused *f, uint32_t count);
// Within that scope, with the same count: stores the elements of nodes with a `store`. Only CTA 0 (%first_cta) does.
void ptx_fused_row_stores(struct ptx *p, const struct ptx_fused *f, uint32_t count);

// Activations of 16 bits (emit_fused_half.c): the bytes of shared memory, named sums, for the sums of a unit; the row in
// shared memory, named row; and the products of a unit, which end in %y<leg> of warp j for tile j. The other warps go to
// MADE. The weights come from the ring if its depth is not 0 (emit_fused_ring.h).
struct ptx_ring;
uint32_t ptx_fused_half_sums_bytes(const struct ptx_fused_section *s);
void ptx_fused_half_row(struct ptx *p, const struct ptx_fused *f, uint32_t warps);
void ptx_fused_half_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                             const struct ptx_ring *ring);

// The columns of a unit. Thread %index < unit has column %column.

// Bytes of shared memory, named exchange, through which the threads of a unit read each other's columns.
uint32_t ptx_fused_exchange_bytes(const struct ptx_fused_section *s);
// In the section's scope, before the products: declares the registers of the nodes, and loads all inputs that do not
// depend on the products.
void ptx_fused_columns_load(struct ptx *p, const struct ptx_fused_section *s);
// After the products, with %y<leg> the sum of each leg: computes and stores the nodes. Only the threads of the unit
// execute it.
void ptx_fused_columns(struct ptx *p, const struct ptx_fused_section *s);

#endif
