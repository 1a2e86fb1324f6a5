// What the kernels of products share: the head, the sources, the end. Private to emit_matmul*.c.
//
// Ownership: none. Threads: none shared; emitters keep nothing.
#ifndef QUERN_PTX_EMIT_MATMUL_PARTS_H
#define QUERN_PTX_EMIT_MATMUL_PARTS_H

#include "kernels/ptx/emit_nibble.h"
#include "kernels/ptx/weight_tile.h"

// The entry with its parameters; %lane, %warp, %tile (ctaid.x), %group (ctaid.y), %rows (n_rows), %w_tile and %px0 are
// set.
void ptx_matmul_entry(struct ptx *p, const struct ptx_matmul *m, uint32_t warps);
// %px<r> = row r of the CTA's rows of x (one past the end: the last); %w_tile = the CTA's tile.
void ptx_matmul_sources(struct ptx *p, const struct ptx_matmul *m);
// The end of the kernel: warp r makes %sum of output %lane of row r by make_sum's code, and stores it.
void ptx_matmul_end(struct ptx *p, const struct ptx_matmul *m,
                    void (*make_sum)(struct ptx *, const struct ptx_matmul *));

// The whole kernel for activations in 8 bits; returns the warps of a CTA.
uint32_t ptx_matmul_q8(struct ptx *p, const struct ptx_matmul *m);
// The same for many rows on tensor cores, 256 threads a CTA; returns the outputs of a CTA.
uint32_t ptx_matmul_mma(struct ptx *p, const struct ptx_matmul *m);

#endif
