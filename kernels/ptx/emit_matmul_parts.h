// Parts that the kernels of products share: the entry, the addresses of the inputs, and the end. Private to
// emit_matmul*.c.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_MATMUL_PARTS_H
#define QUERN_EMIT_MATMUL_PARTS_H

#include "kernels/ptx/emit_nibble.h"
#include "kernels/ptx/weight_tile.h"

// Emits the entry with its parameters. It sets %lane, %warp, %tile (ctaid.x), %group (ctaid.y), %rows (n_rows),
// %w_tile and %px0.
void ptx_matmul_entry(struct ptx *p, const struct ptx_matmul *m, uint32_t warps);
// The outputs that a CTA computes.
uint32_t ptx_matmul_outputs(const struct ptx_matmul *m);
// Sets %px<r> to row r of the CTA's rows of x (past the end: to the last row), and %w_tile to the CTA's tile.
void ptx_matmul_sources(struct ptx *p, const struct ptx_matmul *m);

// ---- sections of a joined product (emit_matmul_joined.c), and the one of a single product

// Checks the sections of a joined product.
int ptx_matmul_check_sections(const struct ptx_matmul *m, struct error *err);
// The tiles of CTAs of all sections: grid[0].
uint32_t ptx_matmul_ctas(const struct ptx_matmul *m);
// Emit the parameters and the registers of a joined product; nothing for a single one.
void ptx_matmul_section_params(struct ptx *p, const struct ptx_matmul *m);
void ptx_matmul_section_regs(struct ptx *p, const struct ptx_matmul *m);
// Sets %tile to the CTA's number in its section, and what the functions below read. May be emitted again, so that no
// registers hold this in a loop.
void ptx_matmul_find_section(struct ptx *p, const struct ptx_matmul *m);
// Sets a register to the address of w, y or bias of the section.
void ptx_matmul_address(struct ptx *p, const struct ptx_matmul *m, const char *reg, const char *name);
// Ends a thread whose %output is none of the section's.
void ptx_matmul_end_past(struct ptx *p, const struct ptx_matmul *m);
// Write an operand, a number or a register: the outputs of the section, the number of its last tile of 32 outputs, and the
// bytes from one row of its y to the next, where the rows of a single product are `stride` apart.
void ptx_matmul_put_n_out(struct ptx *p, const struct ptx_matmul *m);
void ptx_matmul_put_last_tile(struct ptx *p, const struct ptx_matmul *m);
void ptx_matmul_put_stride(struct ptx *p, const struct ptx_matmul *m, uint32_t stride);

// ---- many rows: a CTA has PTX_MANY_ROWS rows of x, or places of one expert

#define PTX_ADDRESS_OF(reg, name)                                                                                      \
    "    ld.param.u64 " reg ", [" name "];\n"                                                                          \
    "    cvta.to.global.u64 " reg ", " reg ";\n"

// Sets %first (.u32) to the CTA's first row of x, and %rows to the end of all rows. With experts: %expert, %first =
// 0, %rows = the number of places, %list = the address of the list of places; a CTA without a group ends here. Reads
// %ctaid.y.
#define PTX_MANY_REGS "    .reg .u32 %first;\n    .reg .u64 %list;\n"
void ptx_matmul_many_group(struct ptx *p, const struct ptx_matmul *m);
// With experts: advances %w_tile to the expert's matrix.
void ptx_matmul_many_weights(struct ptx *p, const struct ptx_matmul *m);
// Sets %px0 to the CTA's row of x with the number in register `at` (past the end: to the last row). Changes %index,
// %row, %place.
void ptx_matmul_many_row(struct ptx *p, const struct ptx_matmul *m, const char *at);
// Sets %row<i> to the row of y that belongs to the CTA's row number %index, and the predicate %whole<i> to whether
// that row exists.
void ptx_matmul_many_output(struct ptx *p, const struct ptx_matmul *m, uint32_t i);

// With experts: advances %pointer, the address of the bias of an output, to that of the expert.
void ptx_matmul_expert_bias(struct ptx *p, const struct ptx_matmul *m);

// ---- few rows

// The end of the kernel: warp r computes %sum, output %lane of row r, with the code that make_sum emits, and stores
// it.
void ptx_matmul_end(struct ptx *p, const struct ptx_matmul *m,
                    void (*make_sum)(struct ptx *, const struct ptx_matmul *));

// The products of one tile with one row of float32, emitted as a scope in which all 8 warps take part. Input: the
// tile at %w_tile, the row at %px0 (.u64), which is changed. The scope declares its registers. Afterwards
// ptx_matmul_f32_sum computes %sum, the sum of output %lane, in any warp that needs it; the shared memory `weights`
// of PTX_MATMUL_F32_BYTES may be reused after a barrier.
enum { PTX_MATMUL_F32_WARPS = 8, PTX_MATMUL_F32_BYTES = 32768 };
void ptx_matmul_f32_tile(struct ptx *p, const struct ptx_matmul *m);
void ptx_matmul_f32_sum(struct ptx *p, const struct ptx_matmul *m);

// Sets %unit and %part to the warp's first unit and part in a tile of weights that are dequantised to floats, from
// %w_tile and %warp.
void ptx_matmul_first_unit(struct ptx *p, const struct ptx_matmul *m);

// Emits the whole kernel for 8-bit activations and few rows. Returns the number of warps of a CTA.
uint32_t ptx_matmul_q8(struct ptx *p, const struct ptx_matmul *m);
// Emits the whole kernel for 8-bit activations and many rows on tensor cores, with 256 threads per CTA.
void ptx_matmul_mma(struct ptx *p, const struct ptx_matmul *m);
// Emits the whole kernel for 8-bit activations and the class PTX_WIDE_ROWS on tensor cores, with 256 threads per CTA.
// ptx_matmul_wide_bytes returns its shared memory, all of which is dynamic.
void ptx_matmul_wide(struct ptx *p, const struct ptx_matmul *m);
uint32_t ptx_matmul_wide_bytes(const struct ptx_matmul *m);
// Emits the whole kernel for 8-bit activations and a class of 8, 16 or 32 rows on tensor cores, with 32 outputs per CTA.
// Returns the number of warps of a CTA.
uint32_t ptx_matmul_rows_mma(struct ptx *p, const struct ptx_matmul *m);
// The same for compute capability 8.0 and later and weights with integer scales, which go through a ring in shared memory
// of ptx_matmul_ring_bytes, all of it dynamic; with 256 threads per CTA.
void ptx_matmul_ring(struct ptx *p, const struct ptx_matmul *m);
uint32_t ptx_matmul_ring_bytes(const struct ptx_matmul *m);
// Stores %sum (.f32), the complete sum of output %output of row %row, with bias, residual and scale. Needs %term (.f32).
void ptx_matmul_store(struct ptx *p, const struct ptx_matmul *m);
// Emit the whole kernels for activations of 16 bits, with 256 threads per CTA: for up to 8 rows, and for many.
void ptx_matmul_half_few(struct ptx *p, const struct ptx_matmul *m);
void ptx_matmul_half_many(struct ptx *p, const struct ptx_matmul *m);
// The products of one tile with up to 8 rows of 16 bits, as far as they are the chain that has the warp's number (0 to 7).
// Input: the tile at %w_tile; %pb (.u64), the row of the lane's column %g, in shared memory with x_shared, which is
// changed; %has, whether the column has a row; %g = %lane / 4, %t = %lane % 4. Output: %acc0 to %acc7, the sums of outputs
// %g + 8 (i / 2) for columns 2 %t + i % 2. The labels STEP, REST and SUMMED are of the scope.
#define PTX_HALF_REGS                                                                                                  \
    "    .reg .pred %has;\n"                                                                                           \
    "    .reg .u32 %g, %t, %left, %first;\n"                                                                           \
    "    .reg .u64 %pa;\n"                                                                                             \
    "    .reg .b32 %a<64>, %b<32>;\n"                                                                                  \
    "    .reg .f32 %acc<8>;\n"
void ptx_half_chain(struct ptx *p, const struct ptx_matmul *m);
// The same for chains that come in stages of shared memory, of PTX_HALF_STAGE_BYTES each, which follow each other in a tile
// from chain to chain. take(p, of) emits the wait for the next stage and sets %pa to its address; loaded(p, of) what follows
// the last load from it. Changes %pa, %pb, %left and %first; %w_tile is not read.
enum { PTX_HALF_STAGE_BYTES = 4096 };
struct ptx_half_stage {
    void (*take)(struct ptx *p, const void *of);
    void (*loaded)(struct ptx *p, const void *of);
    const void *of;
};
void ptx_half_staged_chain(struct ptx *p, const struct ptx_matmul *m, const struct ptx_half_stage *stage);
// The stages of a chain; 0: chains of rows of n_in are not whole stages of one number.
uint32_t ptx_half_stages(uint32_t n_in);
// From %top (.u32), the bits of the largest magnitude of a row: sets %scale (.f32), and %bits (.u32) to the bits of the
// factor that undoes it.
void ptx_half_scale(struct ptx *p);
// Emits the whole kernel for float32 activations and many rows, with 256 threads per CTA.
void ptx_matmul_tiled(struct ptx *p, const struct ptx_matmul *m);

#endif
