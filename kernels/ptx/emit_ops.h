// Emits the kernels of all operations of a graph other than products with weights. An emitter takes sizes and returns
// text and the shape of the launch.
//
// Sizes are constants in the text, and the emitters check them. The number of rows of a step is not in the text: the
// first parameter of every kernel is the address of the step's header (struct ptx_step). %ctaid.x is the row of a
// CTA, and CTAs beyond the last row of the step return at once. An emitter returns grid[0] = 1; the caller multiplies
// it by the number of rows (of tiles, for PTX_ATTEND_TILES). One text thus serves steps of any number of rows, and
// the result of a row does not depend on the other rows of the batch.
//
// Values are float32 in row-major order, (rows, width), without padding. Addresses are aligned to 16 bytes.
// Parameters are 8 bytes each, in the order listed at each function.
//
// PTX 6.3, sm_75 or later. Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_OPS_H
#define QUERN_EMIT_OPS_H

#include "kernels/ptx/emit.h"
#include "kernels/tensor.h"

// The header of a step's input in GPU memory. The arrays of the step (tokens, positions, ...) follow it.
struct ptx_step {
    uint32_t rows[2];      // [enum rows]: number of tokens, number of outputs
    uint32_t pages_stride; // entries of a sequence's page table
    uint32_t top_k;        // number of largest logits that are returned for each row; 0: all logits
    uint64_t kv;           // address of cache page 0
    uint64_t states;       // address of slot 0 of the states of sequences
};

// Element by element: ADD a + b, ACT act(a), GLU act(a) * b, SCALE factor * a, SOFTCAP factor * tanh(a / factor),
// CLAMP the nearest to a from -factor to factor, XIELU as struct xielu_params says. Parameters: step, a, b (ADD and GLU only), y. Rows of b may be longer than
// those of y; then b is the address of its first column.
enum ptx_element { PTX_ADD, PTX_ACT, PTX_GLU, PTX_SCALE, PTX_SOFTCAP, PTX_CLAMP, PTX_XIELU };
struct ptx_elements {
    uint32_t node; // of the graph, for the comment and the suffix of the entry's name; the same in all structs below
    enum rows rows;
    uint32_t width;
    enum ptx_element op;
    enum act_kind act;         // of ACT and GLU
    float factor;              // of SCALE, SOFTCAP and CLAMP
    uint32_t a_share;          // of GLU: so many neighbouring columns have one number of a; 0: each has its own
    uint32_t b_width;          // columns from row to row of b; 0: width
    bool b_loose;              // the address of b is a multiple of 4 bytes, not of 16
    bool b_one_row;            // b is one row, which belongs to all rows of a
    struct xielu_params xielu; // of XIELU
};
int ptx_emit_elements(struct ptx *p, const struct ptx_elements *e, struct ptx_launch *launch, struct error *err);
// ptx_element emits %a<i> = f(%a<i>) or f(%a<i>, %b<i>), i < 4, for use inside other kernels. These declare
// PTX_ELEMENT_REGS.
#define PTX_ELEMENT_REGS                                                                                               \
    "    .reg .pred %less;\n"                                                                                          \
    "    .reg .f32 %a<4>, %b<4>, %s, %t, %u;\n"
void ptx_element(struct ptx *p, const struct ptx_elements *e, uint32_t i);

// Gathers the rows whose logits are wanted: y[i] = x[outputs[i]]. Parameters: step, outputs, x, y.
struct ptx_pick {
    uint32_t node, width;
};
int ptx_emit_pick(struct ptx *p, const struct ptx_pick *k, struct ptx_launch *launch, struct error *err);

// Normalises each group of `group` columns of a row; a CTA has one group. Parameters: step, x, gain (if `gain`), bias
// (if `bias`), y. Gain and bias have `group` elements.
struct ptx_norm {
    uint32_t node;
    enum rows rows;
    uint32_t width, group; // group divides width
    enum norm_kind kind;
    float eps;
    bool gain, bias;
    bool by_column; // gain and bias have `width` elements
};
// Returns the threads of a CTA. Thread t sums the elements t, t + threads, and so on; a fused kernel that uses the
// same number gets the same bits.
uint32_t ptx_norm_threads(uint32_t group);
int ptx_emit_norm(struct ptx *p, const struct ptx_norm *n, struct ptx_launch *launch, struct error *err);

// The table of rotary angles. Row t of y has cos(positions[t] * frequencies[i]) * mscale for all pairs i, then the
// sines. The arithmetic is in double; results are rounded to float. Parameters: step, positions, frequencies (f64),
// y.
struct ptx_rope_table {
    uint32_t node, pairs;
    float mscale;
    float growth; // the factor of a position is mscale (1 + growth ln(1 + (position + offset) / period)); 0: mscale
    uint32_t period, offset;
};
int ptx_emit_rope_table(struct ptx *p, const struct ptx_rope_table *r, struct ptx_launch *launch, struct error *err);
// Rotates the first `pairs` pairs of each head by the angles of the table and copies the rest of the head.
// Parameters: step, x, table, y.
struct ptx_rope {
    uint32_t node;
    enum rows rows;
    uint32_t width, head_dim, pairs;
    enum rope_layout layout;
};
int ptx_emit_rope(struct ptx *p, const struct ptx_rope *r, struct ptx_launch *launch, struct error *err);

// Writes rows of keys or values to the pages of the cache, with the bytes that dtype_encode gives. Row t goes to slot
// positions[t] % KV_PAGE of page pages[tables[t] * pages_stride + positions[t] / KV_PAGE]. Parameters: step,
// positions, tables, pages, x.
struct ptx_kv {
    uint32_t page_bytes; // distance between pages
    uint32_t offset;     // bytes from the start of a page to the keys or values of this layer
    uint32_t dim;        // of a head; a multiple of the type's block
    enum dtype type;     // F32, F16, BF16, Q8_0 or Q4_0
    uint32_t row_dim;    // elements from one row to the next, where rows are the beginnings of longer ones; 0: dim
};
static inline uint32_t ptx_kv_row_bytes(const struct ptx_kv *kv)
{
    return (uint32_t)dtype_row_bytes(kv->type, kv->row_dim ? kv->row_dim : kv->dim);
}
struct ptx_kv_write {
    uint32_t node, heads;
    struct ptx_kv kv;
};
int ptx_emit_kv_write(struct ptx *p, const struct ptx_kv_write *w, struct ptx_launch *launch, struct error *err);

// Attention over the pages of the KV cache. Three forms give a row the same bits; emit_attend_parts.h defines the
// order of their sums, one with floats and one with halves.
//   ROWS   A CTA has a row, a KV head with up to 8 of its query heads, and the splits %ctaid.z, %ctaid.z + %nctaid.z,
//          and so on of the row's positions. If several CTAs share a row, each stores its partial sums, and the last
//          one to finish combines them. Chosen for steps of fewer than PTX_ATTEND_MANY rows. Parameters: step,
//          positions, tables, pages, q, sinks (if `sinks`), slopes (if `slopes`), partials, counters, y. The caller sets
//          grid z to any number from 1 to `splits`. The sizes of partials and counters are ptx_attend_partials and ptx_attend_counters; counters are
//          zero before and after the launch.
//   LONE   Does the same, but skips the rows that TILES serves. Chosen, together with TILES, from PTX_ATTEND_MANY
//          rows on.
//   TILES  A CTA has ptx_attend_tile rows of the step and a KV head. It serves runs of two or more rows at
//          consecutive positions of one sequence, and reads each key and value once for a run and its query heads.
//          Grid x counts tiles of rows. Parameters: step, positions, tables, pages, q, sinks (if
//          `sinks`), slopes (if `slopes`), y.
enum ptx_attend_form { PTX_ATTEND_ROWS, PTX_ATTEND_LONE, PTX_ATTEND_TILES };
struct ptx_attend {
    uint32_t node;
    enum rows rows; // ROWS_TOKENS
    uint32_t heads, heads_kv;
    struct ptx_kv k, v;
    float scale, softcap; // softcap 0: none
    uint32_t window;      // a row sees positions at a distance below this; 0: all positions
    bool chunked;         // it sees those from the last multiple of the window on
    // Attention both ways, in the form ROWS: `positions` are the last positions that rows see, so many bytes behind each
    // stands the first one, and twice as many behind it the row's own. 0: a row sees what is before it.
    uint32_t firsts;
    bool sinks;  // each head has one more score, f32 [heads], whose value is 0
    bool slopes; // -slope * |j - position| is added to the score of position j, f32 [heads]; floats only
    enum ptx_attend_form form;
    // The most parts into which a row's positions are divided (one more with a window): a power of two, equal in all
    // forms; see ptx_attend_splits.
    uint32_t splits;
    bool halves; // the products on tensor cores, with factors in f16: another order of sums, the same in all forms
};
int ptx_emit_attend(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch, struct error *err);
// Returns whether tensor cores can do the products: from sm_80 on, with a positive scale and heads whose elements are a
// multiple of 16: up to 256 of F16 (of values above 128 a multiple of 32), up to 128 of Q8_0 or Q4_0, whose conversion
// needs registers. `target` is the number of an architecture (80: sm_80).
bool ptx_attend_takes_halves(const struct ptx_attend *a, uint32_t target);
// Returns the number of splits that gives a GPU enough CTAs at one row: 16, 32 or 64.
uint32_t ptx_attend_splits(uint32_t heads_kv);
// Returns grid z for steps of `rows` rows: `splits` for one row, fewer as rows increase, and 1 from PTX_ATTEND_MANY
// rows on. With 1 the kernel does not use partials and counters.
enum { PTX_ATTEND_MANY = 16 };
uint32_t ptx_attend_lanes(uint32_t splits, uint32_t rows);
// Returns the rows of a tile.
uint32_t ptx_attend_tile(const struct ptx_attend *a);
// Bytes for steps of up to `rows` rows with grid z above 1.
size_t ptx_attend_partials(const struct ptx_attend *a, uint32_t rows);
size_t ptx_attend_counters(const struct ptx_attend *a, uint32_t rows);

// Chooses the `used` experts with the largest logits for each row, or with a bias or groups those with the largest
// scores (graph_route): a row of y has `used` weights (float), then `used` ids (int32). Each row has one warp.
// Parameters: step, logits, bias (if `bias`: f32 [experts]), y.
struct ptx_route {
    uint32_t node;
    enum rows rows;
    uint32_t experts, used;
    enum route_kind kind;
    bool normalise;
    float scale;
    bool bias;
    uint32_t groups, groups_used; // 0: none
    uint32_t share;               // so many neighbouring ids become one behind the choice; 0: each is one
    // The compute capability that the text is written for (75, 80, ...), or a lower one; from 80 on it takes PTX 7.0. The
    // bits are the same.
    uint32_t target;
};
int ptx_emit_route(struct ptx *p, const struct ptx_route *r, struct ptx_launch *launch, struct error *err);
int ptx_route_check(const struct ptx_route *r, struct error *err);
// Emits the choice for one row, as a scope of a kernel in which one whole warp executes it; not for ROUTE_EACH. Reads
// %lane (.u32), and the addresses %px of the logits, %py of the row of y and %bias of the biases (.u64). It declares
// ptx_route_bytes of shared memory under fixed names: a kernel has room for one choice that needs some.
void ptx_route_row(struct ptx *p, const struct ptx_route *r);
uint32_t ptx_route_bytes(const struct ptx_route *r);
// Adds the outputs of a row's experts: y = the sum over j of weight[j] * x[j], in order of j, where x has `used`
// parts of `width` columns and the weights come from `route`, or are 1 if `plain` is set. Parameters: step, x, route, y.
struct ptx_combine {
    uint32_t node;
    enum rows rows;
    uint32_t width, used;
    bool plain;
};
int ptx_emit_combine(struct ptx *p, const struct ptx_combine *c, struct ptx_launch *launch, struct error *err);
// The inputs of a row's experts: y[j] = weight[j] * x, where y has `used` parts of `width` columns. `plain` is not used.
// Parameters: step, x, route, y.
int ptx_emit_weigh(struct ptx *p, const struct ptx_combine *c, struct ptx_launch *launch, struct error *err);

// Columns from .. from + n - 1 of each `group` columns of x. Parameters: step, x, y.
struct ptx_slice {
    uint32_t node;
    enum rows rows;
    uint32_t from_width, width; // of x and of y
    uint32_t group, from, n;
};
int ptx_emit_slice(struct ptx *p, const struct ptx_slice *s, struct ptx_launch *launch, struct error *err);

// Parts of `first` columns of x, each with `second` columns of z behind it: those of the same part or, if `same`, the
// columns of z that all parts share. Parameters: step, x, z, y.
struct ptx_join {
    uint32_t node;
    enum rows rows;
    uint32_t width; // of y
    uint32_t first, second;
    bool same;
};
int ptx_emit_join(struct ptx *p, const struct ptx_join *j, struct ptx_launch *launch, struct error *err);

// Where a node's part of a state is: float `at` of slots of `slot` floats. The parameter `from` of the kernels below is
// an array of a number for each row: in the first row of a sequence in the step, the slot of the state before it (-1:
// zeros), and PTX_STATE_GOES_ON in its other rows. `to` has the slots that the states after the rows are stored to; -1:
// to none.
struct ptx_state {
    uint32_t at, slot;
};
enum { PTX_STATE_GOES_ON = -2 };
// A causal convolution of each column by itself. Parameters: step, from, to, x, w, bias (if `bias`), y.
struct ptx_conv {
    uint32_t node, width, kernel;
    bool bias;
    struct ptx_state state;
};
int ptx_emit_conv(struct ptx *p, const struct ptx_conv *c, struct ptx_launch *launch, struct error *err);
// The gated delta rule. Parameters: step, from, to, qkv, alpha, beta, rate, bias, y.
struct ptx_delta {
    uint32_t node, n_head_k, n_head, dim_k, dim_v;
    bool grouped;
    bool
        by_channel; // alpha has the steps of n_head * dim_k columns, see graph_channel_delta_rule, and there is no bias
    float eps;
    struct ptx_state state;
};
int ptx_emit_delta(struct ptx *p, const struct ptx_delta *d, struct ptx_launch *launch, struct error *err);
// The selective scan. x_width, b_width and c_width are those of the values in which x, B and C lie; x begins at column 0.
// Parameters: step, from, to, x, dt, b, c, rate, skip (if `skip`), y.
struct ptx_scan {
    uint32_t node, n_head, n_group, dim, n_state;
    uint32_t x_width, b_width, c_width, b_at, c_at;
    bool rates, skip;
    struct ptx_state state;
};
int ptx_emit_scan(struct ptx *p, const struct ptx_scan *s, struct ptx_launch *launch, struct error *err);

// Finds the largest logits of each row, as struct candidate (kernels/top_k.h): the top_k of the step, at most `keep`.
// The first launch reduces each chunk of a row to `keep` sorted keys; grid[1] is the number of chunks. Each further
// launch reduces the keys of the previous one. The launch with one chunk per row writes the candidates. If a logit of
// a row is not finite, the row's first id is -1. Parameters: step, x (logits, or the keys of the previous launch), y.
enum { PTX_TOP_MAX = 256 };
struct ptx_top {
    uint32_t node;
    uint32_t n;    // items of a row: logits, or keys in whole runs of `keep`
    uint32_t keep; // a power of two, at most PTX_TOP_MAX and at most the number of logits
    bool keys;     // x has keys
};
// Returns the items of a chunk, which a CTA reduces.
uint32_t ptx_top_chunk(uint32_t n, uint32_t keep);
int ptx_emit_top(struct ptx *p, const struct ptx_top *o, struct ptx_launch *launch, struct error *err);

// ---- the beginning of these kernels

// Sets %row to the CTA's row, or returns if the step has no such row. $1: the offset of the number of rows in struct
// ptx_step (ptx_count_at).
#define PTX_ROW_REGS                                                                                                   \
    "    .reg .pred %no_row;\n"                                                                                        \
    "    .reg .u32 %row, %n_rows;\n"                                                                                   \
    "    .reg .u64 %step;\n"
#define PTX_ROW                                                                                                        \
    "    mov.u32 %row, %ctaid.x;\n"                                                                                    \
    "    ld.param.u64 %step, [step];\n"                                                                                \
    "    cvta.to.global.u64 %step, %step;\n"                                                                           \
    "    ld.global.u32 %n_rows, [%step+$1];\n"                                                                         \
    "    setp.ge.u32 %no_row, %row, %n_rows;\n"                                                                        \
    "    @%no_row ret;\n"
// Loads an address from a kernel's parameters.
//   reg   string literal: a 64-bit register, which receives the address in global memory
//   name  string literal: the parameter
#define PTX_ADDRESS(reg, name)                                                                                         \
    "    ld.param.u64 " reg ", [" name "];\n"                                                                          \
    "    cvta.to.global.u64 " reg ", " reg ";\n"

// e^x is computed as 2^(x log2 e).
#define LOG2_E 1.44269504088896340736

// Returns the offset of the number of rows of a kind in struct ptx_step.
static inline uint32_t ptx_count_at(enum rows rows)
{
    return (uint32_t)(sizeof(uint32_t) * (size_t)rows);
}

// The halves of a double's bits. A double takes two marks: 0d$x0$x1.
static inline uint32_t ptx_double_high(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return (uint32_t)(bits >> 32);
}
static inline uint32_t ptx_double_low(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return (uint32_t)bits;
}

// The widest row: a kernel's offsets within a row have 32 bits.
enum { PTX_WIDTH_MAX = 1 << 24 };
static inline int ptx_check_width(const char *what, uint32_t width, struct error *err)
{
    if (width < 1 || width > PTX_WIDTH_MAX)
        return fail(err, E_GPU, "%s: rows of %u", what, width);
    return 0;
}

#endif
