// What the kernels of products share: the head, the sources, the end. Private to emit_matmul*.c.
//
// Ownership: none. Threads: none shared; emitters keep nothing.
#ifndef QUERN_EMIT_MATMUL_PARTS_H
#define QUERN_EMIT_MATMUL_PARTS_H

#include "kernels/ptx/emit_nibble.h"
#include "kernels/ptx/weight_tile.h"

// The entry with its parameters; %lane, %warp, %tile (ctaid.x), %group (ctaid.y), %rows (n_rows), %w_tile and %px0 are
// set.
void ptx_matmul_entry(struct ptx *p, const struct ptx_matmul *m, uint32_t warps);
// %px<r> = row r of the CTA's rows of x (one past the end: the last); %w_tile = the CTA's tile.
void ptx_matmul_sources(struct ptx *p, const struct ptx_matmul *m);

// ---- many rows: a CTA has PTX_MANY_ROWS rows of x, or of places of one expert

#define PTX_ADDRESS_OF(reg, name)                                                                                      \
    "    ld.param.u64 " reg ", [" name "];\n"                                                                          \
    "    cvta.to.global.u64 " reg ", " reg ";\n"

// %first (.u32) = the CTA's first row of x, %rows = the end of them all. With experts: %expert, %first = 0, %rows = the
// number of places, %list = where they are told; a CTA that no group is left for ends here. Reads %ctaid.y.
#define PTX_MANY_REGS "    .reg .u32 %first;\n    .reg .u64 %list;\n"
void ptx_matmul_many_group(struct ptx *p, const struct ptx_matmul *m);
// %w_tile = the expert's matrix; nothing without experts.
void ptx_matmul_many_weights(struct ptx *p, const struct ptx_matmul *m);
// %px0 = the CTA's row of x number `at`, a register's name; past the end: the last. Changes %index, %row, %place.
void ptx_matmul_many_row(struct ptx *p, const struct ptx_matmul *m, const char *at);
// %row<i> = the row of y that the CTA's row number %index becomes, where it is not past the end: %whole<i>.
void ptx_matmul_many_output(struct ptx *p, const struct ptx_matmul *m, uint32_t i);

// ---- few

// The end of the kernel: warp r makes %sum of output %lane of row r by make_sum's code, and stores it.
void ptx_matmul_end(struct ptx *p, const struct ptx_matmul *m,
                    void (*make_sum)(struct ptx *, const struct ptx_matmul *));

// A tile's products with one row of float32, in a scope of 8 warps that all take part: the tile is at %w_tile, the row
// at %px0 (.u64), which is changed. Declares registers. When it ends, whoever is to know the sum of output %lane makes
// it, %sum, with ptx_matmul_f32_sum; shared memory of PTX_MATMUL_F32_BYTES, named weights, is free again after a barrier.
enum { PTX_MATMUL_F32_WARPS = 8, PTX_MATMUL_F32_BYTES = 32768 };
void ptx_matmul_f32_tile(struct ptx *p, const struct ptx_matmul *m);
void ptx_matmul_f32_sum(struct ptx *p, const struct ptx_matmul *m);

// The warp's first chunk of a tile of weights that are decoded to floats: %unit and %part, from %w_tile and %warp.
void ptx_matmul_first_unit(struct ptx *p, const struct ptx_matmul *m);

// The whole kernel for activations in 8 bits; returns the warps of a CTA.
uint32_t ptx_matmul_q8(struct ptx *p, const struct ptx_matmul *m);
// The same for many rows on tensor cores, 256 threads a CTA; returns the outputs of a CTA.
uint32_t ptx_matmul_mma(struct ptx *p, const struct ptx_matmul *m);
// The whole kernel for many rows of float32 activations, 256 threads a CTA.
void ptx_matmul_tiled(struct ptx *p, const struct ptx_matmul *m);

#endif
