// One kernel for a step of one row: products of one row of activations with some matrices, what makes that row before
// them, and what becomes of their columns after them.
//
// The row is made by every CTA for itself (the prologue): norms of the whole row and functions of its elements, then
// its 8 bits where the products take them. A section is one product or more of one width, of which a CTA takes a unit
// of columns at a time, and what is made of those columns alone: sums with other rows, gates, norms of heads, rotary
// positions, keys and values on their way to the cache. CTAs go through the units of all sections, so that any grid
// does; launch.grid[0] is as many as there are units.
//
// Every value has the bits that the kernels of emit_ops.h and emit_matmul.h give it, for the orders of sums are theirs.
//
// The first weights of a CTA are fetched into the card's cache while the row is made, or waited for.
//
// Parameters: step, positions, pages (as in emit_ops.h), then n_params addresses that nodes and legs name by their
// number. Rows lie without gaps, aligned to 16 bytes. PTX 6.3, sm_75; shared memory is static, 48 KB at most.
// Ownership and threads: as in emit_ops.h.
#ifndef QUERN_EMIT_FUSED_H
#define QUERN_EMIT_FUSED_H

#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/emit_ops.h"

enum { FUSED_NODES = 16, FUSED_LEGS = 3, FUSED_SECTIONS = 6, FUSED_PARAMS = 60, FUSED_UNIT = 256 };

enum ptx_fused_kind {
    FUSED_LOAD,    // param: a row
    FUSED_SUM,     // of leg a
    FUSED_ELEMENT, // of a, or of a and b
    FUSED_NORM,    // of a: the whole row in a prologue, groups of columns after products. param: gain, other: bias
    FUSED_ROPE,    // of a; param: the table
    FUSED_KV,      // a to the cache; param: what kv.offset would be, a number and no address
};
// A value of a column, made of earlier ones of its list.
struct ptx_fused_node {
    enum ptx_fused_kind kind;
    int a, b;
    int param, other; // -1: none
    int store;        // the parameter where the value goes to; -1: it is needed here alone
    union {
        struct ptx_elements element; // op, act and factor
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
    int w, bias; // parameters; bias -1: none
};
struct ptx_fused_section {
    uint32_t n_out; // columns of each leg
    uint32_t unit;  // columns that a CTA takes at a time: a multiple of 32; where it is more than 32, it divides n_out
    int n_legs, n_nodes;
    struct ptx_fused_leg legs[FUSED_LEGS];
    struct ptx_fused_node nodes[FUSED_NODES];
};
struct ptx_fused {
    uint32_t node;
    uint32_t n_in;
    bool q8;
    bool dependent; // may begin before the launches ahead of it have ended, and waits for them itself: PTX 7.8, sm_90
    int n_prologue; // the last one is the row; none: the row is in memory, as the products take it
    int source;     // then its parameter
    int n_sections, n_params;
    struct ptx_fused_node prologue[FUSED_NODES];
    struct ptx_fused_section sections[FUSED_SECTIONS];
};
int ptx_emit_fused(struct ptx *p, const struct ptx_fused *f, struct ptx_launch *launch, struct error *err);
// Whether its shared memory suffices and its sizes are served: what ptx_emit_fused would refuse.
bool ptx_fused_fits(const struct ptx_fused *f);

// ---- between emit_fused.c and emit_fused_row.c

// The row's values are computed anew in each pass over it; nothing of it is kept but what norms have summed.
// Declares what the passes need, and sets the addresses of all that the prologue reads.
void ptx_fused_row_head(struct ptx *p, const struct ptx_fused *f);
// The sums of the prologue's norms, by the CTA's `warps`, by way of so many bytes of shared memory named partials.
uint32_t ptx_fused_partials_bytes(const struct ptx_fused *f);
void ptx_fused_row_norms(struct ptx *p, const struct ptx_fused *f, uint32_t warps);
// Opens a scope with %e<8 node + i>, element %i + i of each node's value, i < count: 8 or 1. The caller closes it.
void ptx_fused_row_elements(struct ptx *p, const struct ptx_fused *f, uint32_t count);
// Stores those of them that are wanted in memory; %i and count as before. CTA 0 does so, by %first_cta.
void ptx_fused_row_stores(struct ptx *p, const struct ptx_fused *f, uint32_t count);

// Thread %index < unit has column %column of a unit. So many bytes of shared memory, named exchange, are for what its
// threads tell each other.
uint32_t ptx_fused_exchange_bytes(const struct ptx_fused_section *s);
// In the section's scope: declares its registers, and reads what does not wait for the products.
void ptx_fused_columns_load(struct ptx *p, const struct ptx_fused_section *s);
// When %y<leg> are the legs' sums; the unit's threads alone.
void ptx_fused_columns(struct ptx *p, const struct ptx_fused_section *s);

#endif
