// Emits PTX for products with a model's weights, look-ups of their rows, and the repacking of weights to tiles, for
// every tensor type.
//
// In GPU memory weights are stored in tiles of 32 rows (weight_tile.h), so that the 32 lanes of a warp, each reading
// one row, load 512 consecutive bytes. ptx_emit_repack makes tiles of a file's rows without loss; ptx_tiles_bytes
// returns their size. All kernels here read tiles, products and look-ups alike, so that a token table which is also
// the output head is stored once. Biases, norms and scales are plain floats.
//
// Numbers: an output has the same bits whatever the class of rows and whatever else is in the batch. With activations of
// 8 bits and of float32 these are the bits of the CPU: integer sums are exact, and floats are summed in the order defined
// by kernels/cpu/kernels.h. With `q8` the activations are 8-bit, in the layout of emit_dot.h (q8 rows of
// ptx_q8_row_bytes(n_in)); with `halves` they are 16-bit, and tensor cores sum them in an order of their own
// (emit_matmul_half.c); otherwise they are float32. ptx_takes_q8 tells which types have the 8-bit path: all quantised ones.
// The CPU levels may have it for fewer; for those types the programs of the two machines differ in where activations are
// rounded.
//
// A text holds one entry, with the parameters listed at its function in that order. Parameters that a kernel does not
// use are present and may be 0. Addresses are aligned to 16 bytes; strides are in bytes and are multiples of 4 (of 16
// for q8 rows). Shared memory is static, at most 48 KB, but for the class PTX_WIDE_ROWS (struct ptx_launch). The caller
// sets only grid[1], from the number of rows.
// Nothing is read beyond n_in of a row of x or written beyond n_out of a row of y.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_MATMUL_H
#define QUERN_EMIT_MATMUL_H

#include "gguf/dtype.h"
#include "kernels/ptx/emit.h"
#include "kernels/tensor.h"

enum { PTX_TILE_ROWS = 32, PTX_MANY_ROWS = 64, PTX_WIDE_ROWS = 128 };
enum {
    PTX_SECTIONS = 4,
    PTX_OUTPUTS_MAX = 1 << 20
}; // the most products that one launch computes, and the most outputs
enum {
    PTX_GROUP_EXPERTS = 4096,
    PTX_GROUP_LEAST = 8
}; // the most experts that ptx_emit_group sorts by, the smallest group

// Whether the products of this type have a path with 8-bit activations.
bool ptx_takes_q8(enum dtype type);

// Whether products of this type can take activations of 16 bits, on a GPU of that compute capability (75, 80, ...).
bool ptx_takes_halves(enum dtype type, uint32_t n_in, uint32_t target);
// Bytes of a row of n_in activations of 16 bits, a multiple of 16: for F16 weights n_in times f16 and the scale of the row
// (f32), for BF16 weights n_in times bf16 and n_in times the rest that rounding left (bf16).
uint32_t ptx_half_row_bytes(enum dtype type, uint32_t n_in);

// Bytes that n_out rows of n_in weights occupy as tiles; the last tile has 32 rows as well. Each expert's matrix
// starts at a multiple of this size. n_in must be a multiple of the type's block. -1 if the size does not fit or the
// type cannot be dequantised.
int ptx_tiles_bytes(enum dtype type, uint32_t n_in, uint32_t n_out, size_t *bytes, struct error *err);

// The product y = x w' (+ bias) (+ residual). With experts: y[row][j] = scale[e] * (x w[e]') (+ bias[e]), where e =
// ids[row][j]. Parameters of the kernel, 8 bytes each except for the last one: x, w, y, bias (f32 [n_out], with experts
// [n_experts][n_out]), residual (f32 rows),
// ids (int32), scale (f32 [n_experts]), and .u32 n_rows. y may be the same memory as the residual.
//
// A joined product is several products of the same rows of x in one launch (emit_matmul_joined.c), each of which is a
// section. It has no residual and no experts, and w, y and bias of the second section and of those behind it are
// further parameters after n_rows: w1, y1, bias1, w2 and so on. All sections have a bias or none has.
struct ptx_section {
    uint32_t n_out, y_stride;
};
struct ptx_matmul {
    uint32_t node; // of the graph, for comments and the entry's name: matmul_NODE
    enum dtype type;
    uint32_t n_in, n_out; // 1 to PTX_OUTPUTS_MAX; of a joined product n_out is the sum of the sections'
    // The class: the rows of x that a CTA processes, 1, 2, 4 or 8 (with q8 also 16 and 32), PTX_MANY_ROWS, or PTX_WIDE_ROWS;
    // ptx_has_class tells which there are. Experts have classes of 1, of PTX_MANY_ROWS and with q8 of 8, 16 and 32. Every
    // class gives the right result for any n_rows; too large a class wastes time, too small a class reads the weights again.
    uint32_t rows;
    // Of 8 rows and more: the compute capability that the text is written for (75, 80, ...), or a lower one.
    uint32_t target;
    bool q8, bias, residual, scale;
    bool halves; // x has rows of 16 bits, from ptx_emit_halve for this type of weights; see ptx_takes_halves
    uint32_t x_stride, y_stride, residual_stride;
    // Experts: n_used of them per row; 0: a plain product. For row `row` and place j, x is at row * x_stride (+ j *
    // x_part if each place has a row of its own; x_part = 0: all places share one), y at row * y_stride + j * 4 *
    // n_out, and the id at ids + row * ids_stride + 4 * j. An id outside of [0, n_experts) writes nothing. In
    // classes above 1, `ids` is the output of ptx_emit_group for groups of that size instead, x_stride is n_used * x_part
    // unless x_part is 0, and y_stride is n_used * 4 * n_out.
    uint32_t n_used, n_experts, x_part, ids_stride;
    bool x_shared; // x is one row of float32 in shared memory, inside a fused kernel
    // Of a joined product 2 to PTX_SECTIONS; 0: a single product. y_stride is that of the first section.
    uint32_t n_sections;
    struct ptx_section sections[PTX_SECTIONS];
};
int ptx_emit_matmul(struct ptx *p, const struct ptx_matmul *m, struct ptx_launch *launch, struct error *err);
// Whether a class of `rows` (1 to 32, PTX_MANY_ROWS, PTX_WIDE_ROWS) serves this product on a GPU whose thread blocks have up
// to `shared` bytes of shared memory. m->rows does not matter.
bool ptx_has_class(const struct ptx_matmul *m, uint32_t rows, uint32_t shared);
// The class that serves n_rows fastest on a GPU of that compute capability (75, 80, ...), as far as it is known without
// measuring.
uint32_t ptx_matmul_rows(const struct ptx_matmul *m, uint32_t n_rows, uint32_t target);
// An upper bound for the number of groups of `size` of the places of n_rows: the last group of each expert may be
// incomplete.
static inline uint32_t ptx_groups(uint32_t n_used, uint32_t n_experts, uint32_t n_rows, uint32_t size)
{
    return n_rows * n_used / size + MIN(n_experts, n_rows * n_used);
}
// grid[1] for n_rows. With experts there is a CTA for each place of each row, or for each group.
static inline uint32_t ptx_matmul_grid(const struct ptx_matmul *m, uint32_t n_rows)
{
    if (!m->n_used)
        return ptx_tiles(n_rows, m->rows);
    return m->rows > 1 ? ptx_groups(m->n_used, m->n_experts, n_rows, m->rows) : n_rows * m->n_used;
}

// Sorts the places of rows (row * n_used + j) by their expert, into groups of up to `size` places of one expert, so that
// a product reads an expert's matrix once for a whole group.
// Parameters: step (struct ptx_step, which holds the number of rows), ids (int32, as in a product), groups, .u32
// n_rows (the maximum).
// The output consists of words of 4 bytes: word 0 is the number of groups; from word 4 on there are 4 words for each
// group (expert, index of the word at which its places start, number of places, 0); behind all groups follow the
// places. Ids outside of [0, n_experts) are in no group.
struct ptx_group {
    uint32_t node;
    enum rows rows;
    uint32_t n_used, n_experts, ids_stride; // n_experts: at most PTX_GROUP_EXPERTS
    uint32_t size;                          // PTX_GROUP_LEAST to PTX_MANY_ROWS, a power of two
};
int ptx_emit_group(struct ptx *p, const struct ptx_group *g, struct ptx_launch *launch, struct error *err);
// Bytes of the output for groups of any size.
static inline size_t ptx_group_bytes(uint32_t n_used, uint32_t n_experts, uint32_t n_rows)
{
    size_t places = (size_t)n_rows * n_used;
    return 4 * (4 * (places / PTX_GROUP_LEAST + n_experts + 1) + places);
}

// Looks up rows of a table stored as tiles: y[i] = scale * w[ids[i]]. Parameters: w, ids (int32), y, .u32 n_rows.
// grid[1] = n_rows. An id outside of [0, n_out) writes zeros.
struct ptx_get_rows {
    uint32_t node;
    enum dtype type;
    uint32_t n_in, n_out; // of the table: floats per row, number of rows
    uint32_t y_stride;
    float scale;
};
int ptx_emit_get_rows(struct ptx *p, const struct ptx_get_rows *g, struct ptx_launch *launch, struct error *err);

// Makes tiles of rows in the file's layout. Parameters: raw (aligned to 16 bytes), tiles, .u32 n_rows. A launch takes
// any number of rows that start at a multiple of 32, so a large matrix may be passed in pieces; the missing rows of
// the last tile become zeros. grid[1] = ptx_tiles(n_rows, 32). With experts there is one launch per matrix.
struct ptx_repack {
    uint32_t node;
    enum dtype type;
    uint32_t n_in;
};
int ptx_emit_repack(struct ptx *p, const struct ptx_repack *r, struct ptx_launch *launch, struct error *err);

// Quantises activations to 8 bits, in the layout of emit_dot.h; scales, steps and quants have the bits of the CPU. A
// row of x consists of `parts` rows of k floats, one after another, which become `parts` rows of ptx_q8_row_bytes(k).
// Parameters: x, q8, .u32 n_rows. grid[1] = n_rows.
struct ptx_quantize {
    uint32_t node;
    uint32_t k, parts;
    uint32_t x_stride, y_stride;
};
int ptx_emit_quantize(struct ptx *p, const struct ptx_quantize *q, struct ptx_launch *launch, struct error *err);
// Rounds activations to 16 bits for weights of `type`, see ptx_half_row_bytes. A row of x consists of `parts` rows of k
// floats, one after another, k a multiple of 32. What is no number stays none. Parameters: x, y, .u32 n_rows. grid[1] =
// n_rows.
struct ptx_halve {
    uint32_t node;
    enum dtype type;
    uint32_t k, parts;
    uint32_t x_stride, y_stride;
};
int ptx_emit_halve(struct ptx *p, const struct ptx_halve *h, struct ptx_launch *launch, struct error *err);

// Quantises one block of 256 with one warp. Input: %x0 to %x7, the lane's 8 elements, which are changed. Output:
// {%low, %high}, their bytes; %step8, the step of 32 elements, equal in each four lanes; %sum8, the sum of 16 elements
// times the step, equal in each pair of lanes; %d, the scale.
#define PTX_QUANTIZE_REGS                                                                                              \
    "    .reg .pred %in8, %whole;\n"                                                                                   \
    "    .reg .u32 %index8, %bits8, %run8, %other8, %low, %high;\n"                                                    \
    "    .reg .s32 %q<8>, %step8, %sum8, %near;\n"                                                                     \
    "    .reg .f32 %x<8>, %top, %d, %per;\n"
void ptx_quantize_lanes(struct ptx *p);

#endif
