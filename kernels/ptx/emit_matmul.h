// Emits PTX for products with a model's weights, look-ups of their rows, and the repacking of weights to tiles, for
// every tensor type.
//
// In GPU memory weights are stored in tiles of 32 rows (weight_tile.h), so that the 32 lanes of a warp, each reading
// one row, load 512 consecutive bytes. ptx_emit_repack makes tiles of a file's rows without loss; ptx_tiles_bytes
// returns their size. All kernels here read tiles, products and look-ups alike, so that a token table which is also
// the output head is stored once. Biases, norms and scales are plain floats.
//
// Numbers: every output has the same bits as on the CPU, whatever the class of rows and whatever else is in the
// batch: integer sums are exact, and floats are summed in the order defined by kernels/cpu/kernels.h. With `q8` the
// activations are 8-bit, in the layout of kernels.h (q8 rows of q8_row_bytes(n_in)); otherwise they are float32.
// ptx_takes_q8 tells which types have the 8-bit path. The CPU levels may have it for more types (codebooks and three
// values) or for fewer; for those types the programs of the two machines differ in where activations are rounded.
//
// A text holds one entry, with the parameters listed at its function in that order. Parameters that a kernel does not
// use are present and may be 0. Addresses are aligned to 16 bytes; strides are in bytes and are multiples of 4 (of 16
// for q8 rows). Shared memory is static, at most 48 KB. The caller sets only grid[1], from the number of rows.
// Nothing is read beyond n_in of a row of x or written beyond n_out of a row of y.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_MATMUL_H
#define QUERN_EMIT_MATMUL_H

#include "gguf/dtype.h"
#include "kernels/ptx/emit.h"
#include "kernels/tensor.h"

enum { PTX_TILE_ROWS = 32, PTX_MANY_SHIFT = 6, PTX_MANY_ROWS = 1 << PTX_MANY_SHIFT };
enum { PTX_GROUP_EXPERTS = 4096 }; // the most that places are grouped by

// Whether the type's products have a path with activations in 8 bits.
bool ptx_takes_q8(enum dtype type);

// Bytes of n_out rows of n_in weights as tiles: the last tile has 32 rows too. A matrix of an expert begins at a
// multiple of this. -1 where it does not fit or the type has no decode. n_in is a multiple of the type's block.
int ptx_tiles_bytes(enum dtype type, uint32_t n_in, uint32_t n_out, size_t *bytes, struct error *err);

// y = x w' (+ bias) (+ residual); with experts y[row][j] = scale[e] * (x w[e]'), e = ids[row][j].
// Parameters, 8 bytes each but for the last: x, w, y, bias (f32 [n_out]), residual (f32 rows), ids (int32), scale (f32
// [n_experts]), and .u32 n_rows. y may be the residual.
struct ptx_matmul {
    uint32_t node; // of the graph, for comments and the entry's name: matmul_NODE
    enum dtype type;
    uint32_t n_in, n_out; // 1 to 2^20
    uint32_t rows; // the class: rows of x that a CTA takes, 1, 2, 4 or 8, or what ptx_matmul_rows says. Any n_rows is
                   // right with any class; too large a class costs time, too small a one reads weights again
    uint32_t
        target; // of PTX_MANY_ROWS: the compute capability that the text is written for (75, 80, ..), or a lower one
    bool q8, bias, residual, scale;
    uint32_t x_stride, y_stride, residual_stride;
    // Experts: n_used of them a row, 0: a plain product. Row `row`, place j: x at row * x_stride (+ j * x_part where
    // the places have rows of their own; 0: they share it), y at row * y_stride + j * 4 * n_out, ids at row *
    // ids_stride + 4 * j. An id outside of [0, n_experts) writes nothing. Of PTX_MANY_ROWS, ids is what ptx_emit_group
    // has made of them, x_stride is n_used * x_part where that is not 0, and y_stride n_used * 4 * n_out.
    uint32_t n_used, n_experts, x_part, ids_stride;
    bool x_shared; // x, one row of float32, lies in shared memory: within a fused kernel
};
int ptx_emit_matmul(struct ptx *p, const struct ptx_matmul *m, struct ptx_launch *launch, struct error *err);
// The class that serves n_rows best on a card of that compute capability (75, 80, ..).
uint32_t ptx_matmul_rows(const struct ptx_matmul *m, uint32_t n_rows, uint32_t target);
// The most groups that n_rows may make: of each expert's the last may have few places.
static inline uint32_t ptx_groups(uint32_t n_used, uint32_t n_experts, uint32_t n_rows)
{
    return n_rows * n_used / PTX_MANY_ROWS + MIN(n_experts, n_rows * n_used);
}
// grid[1] for n_rows; experts have a CTA for each place of each row, or for each group.
static inline uint32_t ptx_matmul_grid(const struct ptx_matmul *m, uint32_t n_rows)
{
    if (!m->n_used)
        return ptx_tiles(n_rows, m->rows);
    return m->rows == PTX_MANY_ROWS ? ptx_groups(m->n_used, m->n_experts, n_rows) : n_rows * m->n_used;
}

// Places of rows (row * n_used + j) in the order of their experts, in groups of up to PTX_MANY_ROWS of one expert, so
// that a product reads an expert's matrix once for all of them. Parameters step (struct ptx_step, which says how many
// rows there are), ids (int32, as a product's), groups, .u32 n_rows, the most. What it writes, words of 4 bytes: the number of groups; from word 4 on 4 for each: expert, the word at which
// its places stand, their number, 0; behind the groups, the places. Ids outside of [0, n_experts) are in no group.
struct ptx_group {
    uint32_t node;
    enum rows rows;
    uint32_t n_used, n_experts, ids_stride; // n_experts: up to PTX_GROUP_EXPERTS
};
int ptx_emit_group(struct ptx *p, const struct ptx_group *g, struct ptx_launch *launch, struct error *err);
static inline size_t ptx_group_bytes(uint32_t n_used, uint32_t n_experts, uint32_t n_rows)
{
    size_t places = (size_t)n_rows * n_used;
    return 4 * (4 * (places / PTX_MANY_ROWS + n_experts + 1) + places);
}

// Rows of a table of tiles, picked by ids and times scale: y[i] = scale * w[ids[i]]. Parameters w, ids (int32), y, .u32
// n_rows. grid[1] = n_rows. An id outside of [0, n_out) writes zeros.
struct ptx_get_rows {
    uint32_t node;
    enum dtype type;
    uint32_t n_in, n_out; // of the table: floats a row, rows
    uint32_t y_stride;
    float scale;
};
int ptx_emit_get_rows(struct ptx *p, const struct ptx_get_rows *g, struct ptx_launch *launch, struct error *err);

// Tiles from rows as they lie in a file. Parameters raw (aligned to 16), tiles, .u32 n_rows: any number of rows from a
// multiple of 32 on, so that a large matrix may come in pieces; the rest of the last tile becomes zeros.
// grid[1] = ptx_tiles(n_rows, 32). Experts: a launch for each matrix.
struct ptx_repack {
    uint32_t node;
    enum dtype type;
    uint32_t n_in;
};
int ptx_emit_repack(struct ptx *p, const struct ptx_repack *r, struct ptx_launch *launch, struct error *err);

// Activations in 8 bits, as kernels.h lays them out and with the same bits. A row of x has `parts` rows of k behind one
// another, which become `parts` rows of q8_row_bytes(k). Parameters x, q8, .u32 n_rows. grid[1] = n_rows.
struct ptx_quantize {
    uint32_t node;
    uint32_t k, parts;
    uint32_t x_stride, y_stride;
};
int ptx_emit_quantize(struct ptx *p, const struct ptx_quantize *q, struct ptx_launch *launch, struct error *err);
// A block of 256 by a warp: from %x0 .. %x7, the lane's elements, which it changes, to {%low, %high}, their bytes; %sum8,
// the sum of a pair of lanes; %d, the scale.
#define PTX_QUANTIZE_REGS                                                                                              \
    "    .reg .pred %in8, %whole;\n"                                                                                   \
    "    .reg .u32 %index8, %bits8, %other8, %low, %high;\n"                                                           \
    "    .reg .s32 %q<8>, %sum8, %near;\n"                                                                             \
    "    .reg .f32 %x<8>, %top, %d, %per;\n"
void ptx_quantize_lanes(struct ptx *p);

#endif
