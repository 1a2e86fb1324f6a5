// What the two files that emit products of many rows of 8-bit activations share: the layout of shared memory, and the
// ways in which sums are multiplied by scales and steps. emit_matmul_mma.c has the kernel, emit_matmul_mma_put.c fills
// shared memory. Private to them.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_MATMUL_MMA_H
#define QUERN_EMIT_MATMUL_MMA_H

#include "kernels/ptx/emit_bytes.h"
#include "kernels/ptx/emit_matmul_parts.h"

// A turn of the kernel takes half a block: 128 of k, in four parts of 32. Neighbouring weights of a part with the same
// scale are a run: 16 of them, or the whole part.
enum { MMA_WARPS = 8, MMA_STRIDE = 144 };

// How the sums of a part are multiplied by scales of outputs and steps of rows of x.
enum mma_form {
    MMA_FLOATS,   // a float for the run
    MMA_SCALED,   // the bytes in shared memory are weights times their scales, which still fit 8 bits
    MMA_INTEGERS, // an integer for the run
    MMA_PRODUCTS, // an integer for the run, and a matrix instruction forms the products of scales and steps
};
enum mma_form ptx_mma_form(const struct ptx_matmul *m);
// How many products a part is: 1, of k = 32, or 2, of k = 16, if each run of 16 has a scale that is not in the bytes.
uint32_t ptx_mma_runs(const struct ptx_matmul *m);

// The layout of shared memory, `staged`, as byte offsets. A pair is two neighbouring rows of x.
enum {
    MMA_WEIGHTS = 0,    // [output][144]
    MMA_ACTS = 18432,   // [row of x][144]
    MMA_SCALES = 27648, // [output][16 bytes: the integers of the 4 or 8 runs, zeros]
    MMA_UNITS = 29696,  // [output][d, m, 8 bytes of nothing]
    MMA_MINIMA = 31744, // [output][16 runs]
    MMA_SUMS = 33792,   // [row of x][16 low bytes, 16 high bytes]
    MMA_DA = 39936,     // [pair][both scales, 8 bytes of nothing]
    MMA_BYTES = 40448,
    // Steps for MMA_PRODUCTS: [run][row of x][16 bytes: the step at byte `run`, zeros], for 4 runs and for 8, for which
    // the place of the minima is free. For MMA_SCALED and MMA_INTEGERS: [part][pair][both steps, 8 bytes of nothing].
    MMA_STEPS = 35840,
    MMA_STEPS_OF_8 = MMA_MINIMA,
    // For MMA_FLOATS.
    MMA_SCALES_F = MMA_SCALES, // [part][output], and the minima, or the scales of second runs, from 2048 on
    MMA_STEPS_F = MMA_MINIMA,  // [part][pair][both steps, both times -M]
    MMA_SUMS_F = MMA_SUMS,     // [part][pair][both sums, 8 bytes of nothing]
};
static inline uint32_t ptx_mma_steps(const struct ptx_matmul *m)
{
    return ptx_mma_runs(m) == 2 && ptx_mma_form(m) == MMA_PRODUCTS ? MMA_STEPS_OF_8 : MMA_STEPS;
}
enum { MMA_M_BITS = 0x4b400000 }; // of the float M = 1.5 * 2^23

// Clears what the forms need to be zero, and ends with a barrier.
void ptx_mma_clear(struct ptx *p, const struct ptx_matmul *m);
// Sets %put_w and %put_scale to where the thread puts weights and scales, from %wm, %wn (its warp's quarter of outputs
// and half of the rows of x) and %lane.
void ptx_mma_put_at(struct ptx *p, const struct ptx_matmul *m);
// Unpacks the weights of half block %half, and copies the rows of x. Reads %w_tile, %px0, %lane, %put_w and %put_scale.
// Changes %part, %unit, %chunk and %from.
void ptx_mma_put(struct ptx *p, const struct ptx_matmul *m);

// Set %c0 to %c3 to the product of the fragments %a<4 mt> to + 3, 16 outputs, with %b<2 nt> and + 1, 8 rows of x: over 32
// k, or over run `run` of 16. The sums begin with %base.
void ptx_mma_product_32(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt);
void ptx_mma_product_16(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t nt, uint32_t run);
// Sets %c0 to %c3 to the sums over 16 runs of the minima in %a<2 mt> and + 1, 16 outputs, times the sums of 8 rows of x,
// whose low and high bytes are in %low and %high. Changes %e0 to %e3. %base must be 0.
void ptx_mma_minima(struct ptx *p, const struct ptx_matmul *m, uint32_t mt);
// Subtracts `less` from each byte of %q0 to %q7.
void ptx_mma_take_off(struct ptx *p, uint32_t less);

// Whether scales are floats; else they are integers. Each run of a part has one: 1 or 2 runs.
static inline bool ptx_scales_are_floats(const struct ptx_matmul *m)
{
    const enum ptx_scale s = ptx_bytes_of(m->type)->scales;
    return s == PTX_SCALE_FLOAT || s == PTX_SCALE_FLOAT_16;
}
static inline uint32_t ptx_scale_runs(const struct ptx_matmul *m)
{
    const enum ptx_scale s = ptx_bytes_of(m->type)->scales;
    return s == PTX_SCALE_16 || s == PTX_SCALE_FLOAT_16 ? 2 : 1;
}
// Sets %s<at> to + 3, the S of a block for tile mt of 16 outputs, from the integers %isum of the same numbers, the floats %d
// and %m of the block, and %c, the sums of minima times sums of x. Changes %f.
void ptx_mma_scale_integers(struct ptx *p, const struct ptx_matmul *m, uint32_t mt, uint32_t at);

// In the kernels whose lanes unpack weights for themselves, element k of 16 is the k-th part of a block, or the k-th run,
// in the product of scales and steps. %scale0 to %scale3 hold all scales of the block, as ptx_fragment_scales sets them.
// ptx_mma_next_scales sets %now0 to %now3 to those of the next part or run alone: the shift by %select, 8 (part - 4 t) at
// first, clears the mask in lanes that have other scales, as it is not 0 to 31 there. Changes %mask and %select.
// ptx_mma_add_scaled adds to %isum<at> to + 3 the product %c of tile mt of outputs, times these and the steps %step<nt>.
void ptx_mma_next_scales(struct ptx *p);
void ptx_mma_add_scaled(struct ptx *p, uint32_t mt, uint32_t nt, uint32_t at);

// Ends a kernel of 128 outputs by 64 or 128 rows of x a CTA, whose 8 warps have 32 outputs and half of the rows each:
// stores the sums %y0 and so on of the fragments m16n8, number rows / 4 mt + 4 nt + i for tile mt of 16 outputs and tile nt
// of 8 rows.
void ptx_mma_store(struct ptx *p, const struct ptx_matmul *m);

#endif
