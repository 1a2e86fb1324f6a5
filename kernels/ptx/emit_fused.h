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
// those columns. A unit is a group of 32 to 256 neighbouring columns of a section, or of 2 to 8 where there are few
// columns; no node needs a column outside of its unit.
//
// The legs of a section may be the matrices of experts, of which the row has chosen n_used. The place j of the row, one
// of n_used, takes the matrices of expert ids[j]; the ids are read from memory. Such a section has one of two forms:
//     for each place j, each column c: y[j][c] = scale[ids[j]] * sum over k of row[k] * w[ids[j]][c][k] + bias[ids[j]][c]
//     for each column c: y[c] = sum over j, in their order, of weight[j] * (the same)                  // `summed`
// In the first form the section has n_used times n_out columns, those of place 0 first, and a unit belongs to one place.
// With `apart` place j multiplies part j of the row, which has so many parts of n_in elements.
//
// At the end of the kernel the last CTA to finish may choose experts by what the kernel has computed (emit_route.c).
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
// launches. Which experts have been chosen is known only after the wait.
//
// Parameters: step, positions, pages (as in emit_ops.h), then n_params addresses, to which nodes and legs refer by
// number. Rows are contiguous and aligned to 16 bytes. PTX 6.3, sm_75. Shared memory is static, at most 48 KB.
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_FUSED_H
#define QUERN_EMIT_FUSED_H

#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/emit_ops.h"

enum {
    FUSED_NODES = 16,
    FUSED_LEGS = 3,
    FUSED_SECTIONS = 6,
    FUSED_PARAMS = 60,
    FUSED_UNIT = 256,
    FUSED_NARROW = 8, // columns of a unit of few float32 columns, at most
    FUSED_ROUTES = 2,
    FUSED_SUMMED = 32 // places whose products are summed
};

enum ptx_fused_kind {
    FUSED_LOAD,    // loads a row from memory. param: its address
    FUSED_SUM,     // the result of leg a, with its bias
    FUSED_ELEMENT, // an element-wise function of node a, or of nodes a and b
    FUSED_NORM,    // norm of node a: of the whole row in a prologue, of groups of columns in a section.
                   // param: gain, other: bias
    FUSED_WEIGH,   // node a times the number at param, plus 0: the sum of one weighed part
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
    int w, bias, scale; // numbers of parameters; bias and (of experts) scale -1: none
};
struct ptx_fused_experts {
    uint32_t n_used, n_experts; // 0: the legs are plain matrices
    bool each;                  // place j has expert j, and no ids are read
    bool apart;                 // place j multiplies part j of the row
    bool summed;                // a column is the sum over the places; there is one leg, whose FUSED_SUM is that sum
    bool plain;                 // the weights of the sum are 1
    int route;                  // the parameter with the address of n_used weights (f32) and n_used ids (int32)
};
struct ptx_fused_section {
    uint32_t n_out; // columns of each leg
    uint32_t unit;  // columns that a CTA processes at a time: a multiple of 32; if more than 32, a divisor of n_out; or
                    // 2, 4 or FUSED_NARROW, equal in all sections of a kernel that ptx_fused_narrow takes
    int n_legs, n_nodes;
    struct ptx_fused_experts experts;
    struct ptx_fused_leg legs[FUSED_LEGS];
    struct ptx_fused_node nodes[FUSED_NODES];
};
// A choice of experts at the end of the kernel. Numbers of parameters: logits that a section stores, biases (-1: none),
// and where the weights and ids go.
struct ptx_fused_route {
    struct ptx_route route;
    int logits, bias, y;
};
// The variants of a kernel, which give the same bits. Which one is fastest depends on the card. Kernels with experts, with
// a choice of experts or with few float32 columns have the first one alone.
enum ptx_fused_variant {
    FUSED_WIDE,      // a CTA has up to 512 threads
    FUSED_SMALL,     // up to 256, so that two CTAs fit on a multiprocessor; with 16-bit activations FUSED_WIDE again
    FUSED_RING,      // as before, with weights in flight in shared memory (emit_fused_ring.c)
    FUSED_RING_PAIR, // the same, for two CTAs of the launch on a multiprocessor: these leave no room for the next launch
    FUSED_VARIANTS
};
struct ptx_fused {
    uint32_t node; // of the graph, for comments and the entry's name
    enum ptx_fused_variant variant;
    uint32_t target; // 10 * major + minor of the card's compute capability; only a ring depends on it
    uint32_t n_in;   // elements of the row, or of each of its parts
    uint32_t parts;  // of the row, which follow each other; 0: one
    bool q8;         // the products take 8-bit activations
    bool halves;     // they take activations of 16 bits; all weights are F16, or all are BF16. PTX 7.0, sm_80
    bool dependent;  // programmatic dependent launch: the kernel starts before the launches ahead of it have ended, and
                     // waits for them itself. PTX 7.8, sm_90
    int n_prologue;  // nodes of the prologue; the last one is the row. 0: the row is in memory, in the products' format
    int source;      // with n_prologue 0: the parameter with the address of the row
    int n_sections, n_params, n_routes;
    int arrivals; // with routes: the parameter with the address of a counter (u32), zero before and after the launch
    struct ptx_fused_node prologue[FUSED_NODES];
    struct ptx_fused_section sections[FUSED_SECTIONS];
    struct ptx_fused_route routes[FUSED_ROUTES];
};
int ptx_emit_fused(struct ptx *p, const struct ptx_fused *f, struct ptx_launch *launch, struct error *err);
// Whether the kernel fits into 48 KB of shared memory and 512 threads, or has room for its ring.
bool ptx_fused_fits(const struct ptx_fused *f);
// The number of variants that this kernel has on f->target, 1 to FUSED_VARIANTS: the first ones of enum ptx_fused_variant.
uint32_t ptx_fused_variants(const struct ptx_fused *f);
// The variant of the kernel as a part of a whole step (emit_whole.h): with a ring if it has one, else of few threads if its
// products allow it, with the same bits.
enum ptx_fused_variant ptx_fused_part(const struct ptx_fused *f);
// Whether all sections have units of 2, 4 or FUSED_NARROW columns: plain products of whole rows of float32 with float32 weights,
// n_in a multiple of 16, and nodes that need no other columns.
bool ptx_fused_narrow(const struct ptx_fused *f);

// ---- between the files emit_fused*.c

static inline uint32_t ptx_fused_parts(const struct ptx_fused *f)
{
    return MAX(f->parts, 1u);
}
// Elements of all parts of the row.
static inline uint32_t ptx_fused_width(const struct ptx_fused *f)
{
    return ptx_fused_parts(f) * f->n_in;
}
// Bytes from one part of the row to the next, in the products' format.
uint32_t ptx_fused_part_bytes(const struct ptx_fused *f);
static inline uint32_t ptx_fused_tiles(const struct ptx_fused_section *s)
{
    return s->unit / PTX_TILE_ROWS;
}
// Tiles of all places of a unit: the products of a leg.
static inline uint32_t ptx_fused_unit_tiles(const struct ptx_fused_section *s)
{
    return ptx_fused_tiles(s) * (s->experts.summed ? s->experts.n_used : 1);
}

// The prologue (emit_fused_row.c). Each pass over the row computes the elements of all nodes again; only the results of
// norms (%mean and %root) are kept between passes.

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

// Activations of 8 bits (emit_fused_q8.c): the row in shared memory, named row; and the products of a unit, which end in
// %y<leg> of warp j for tile j. The other warps go to MADE. The sums of a unit take ptx_fused_q8_sums_bytes at %sums.
uint32_t ptx_fused_q8_items(const struct ptx_fused *f, const struct ptx_fused_section *s);
void ptx_fused_q8_row(struct ptx *p, const struct ptx_fused *f, uint32_t warps);
struct ptx_ring;
void ptx_fused_q8_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s, uint32_t warps,
                           const struct ptx_ring *ring);

// Activations of 16 bits (emit_fused_half.c): the bytes of shared memory, named sums, for the sums of a unit; the row in
// shared memory, named row; and the products of a unit, which end in %y<leg> of warp j for tile j. The other warps go to
// MADE. The weights come from the ring if its depth is not 0 (emit_fused_ring.h), here and above.
uint32_t ptx_fused_half_sums_bytes(const struct ptx_fused_section *s);
void ptx_fused_half_row(struct ptx *p, const struct ptx_fused *f, uint32_t warps);
void ptx_fused_half_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                             const struct ptx_ring *ring);

// Few float32 columns (emit_fused_narrow.c): how often a thread loads 16 bytes in a round, at most `most`; the bytes of
// shared memory, named weights, for so many loads; and the products of a unit, which end in %y0 of its threads. The others
// go to MADE.
uint32_t ptx_fused_narrow_loads(const struct ptx_fused *f, uint32_t most);
uint32_t ptx_fused_narrow_bytes(uint32_t loads);
void ptx_fused_narrow_prefetch(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                               uint32_t threads, uint32_t label);
void ptx_fused_narrow_products(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                               uint32_t loads);

// Experts (emit_fused_experts.c).

int ptx_fused_check_experts(const struct ptx_fused *f, const struct ptx_fused_section *s, struct error *err);
int ptx_fused_check_routes(const struct ptx_fused *f, struct error *err);
// Prefetches `bytes` bytes at %w8 to L2. A thread takes one line of 128 bytes at a time. Changes %w8, %line and %in.
void ptx_fused_prefetch(struct ptx *p, uint32_t bytes, uint32_t threads, uint32_t label);
// Units of a section.
uint32_t ptx_fused_units(const struct ptx_fused_section *s);
// Prefetches the weights of a section's unit %unit8 to L2, once the ids are known. `labels` is a number of its own.
void ptx_fused_experts_prefetch(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                                uint32_t threads, uint32_t labels);
// At the beginning of a section's scope: from the unit %tile, sets %tile to the unit of its place, %expert, %place,
// %x_row, and the addresses %w<leg> of the expert's matrices. With `summed`: %ids, %weights and %scales of lane j are
// those of place j.
void ptx_fused_experts_find(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s);
// With `summed`, for the place in %place, in all lanes: sets %expert and %w_place, the address of its matrix, and
// %x_row, its part of the row.
void ptx_fused_experts_place(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s);
// Loads the bias of %expert for column %local to %bias<number>, if there are biases.
void ptx_fused_experts_bias(struct ptx *p, const struct ptx_fused_section *s, uint32_t number);
// Adds %y0, the product of %place, to %total: with its scale, %bias<number> and its weight.
void ptx_fused_experts_add(struct ptx *p, const struct ptx_fused_section *s, uint32_t number);
// The end of the kernel: the last CTA to finish chooses.
void ptx_fused_choose(struct ptx *p, const struct ptx_fused *f);
uint32_t ptx_fused_route_bytes(const struct ptx_fused *f);

// The columns of a unit. Thread %index < unit has column %column of the section, and %local of its place.

// Bytes of shared memory, named exchange, through which the threads of a unit read each other's columns.
uint32_t ptx_fused_exchange_bytes(const struct ptx_fused_section *s);
// In the section's scope, before the products: declares the registers of the nodes, and loads all inputs that do not
// depend on the products.
void ptx_fused_columns_load(struct ptx *p, const struct ptx_fused_section *s);
// After the products, with %y<leg> the sum of each leg: computes and stores the nodes. Only the threads of the unit
// execute it.
void ptx_fused_columns(struct ptx *p, const struct ptx_fused_section *s);

#endif
