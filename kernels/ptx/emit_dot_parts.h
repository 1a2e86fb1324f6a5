// What the files that emit products of a unit share: emit_dot.c, emit_dot_grid.c and emit_dot_bits.c for the types with
// codebooks and those of few bits, emit_dot_loop.c for more than two rows. Private to them. Registers are those that
// ptx_dot_unit declares.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_DOT_PARTS_H
#define QUERN_EMIT_DOT_PARTS_H

#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/emit_nibble.h"

// Begins the load of a weight: from the ring in shared memory, or from global memory.
void ptx_dot_load(const struct ptx_dot *dot);
// Follows the last load of the unit's weights.
void ptx_dot_end_loads(const struct ptx_dot *dot);
// Loads `chunks` chunks of the unit, from chunk `from` on, to %w<first> and the following registers.
void ptx_dot_chunks(const struct ptx_dot *dot, uint32_t first, uint32_t from, uint32_t chunks);
// Sets %at to the lane's address in the piece of `size` bytes.
void ptx_dot_piece(const struct ptx_dot *dot, uint32_t size);
// Sets %d to the half in the piece of 2 bytes.
void ptx_dot_half_piece(const struct ptx_dot *dot);
// Sets %ps<r> to the address of the sums of the block's activations in row r: 16 sums of 16 bits.
void ptx_dot_sums_at(const struct ptx_dot *dot);
// Loads the 16 sums of row r's activations to %x0 to %x7.
void ptx_dot_load_sums(const struct ptx_dot *dot, uint32_t r);
// Sets %step to the step of 32 activations of row r.
void ptx_dot_step(const struct ptx_dot *dot, uint32_t r, uint32_t sub);
// Loads 32 activations of row r to %x0 to %x7.
void ptx_dot_load_x(const struct ptx_dot *dot, uint32_t r, uint32_t sub);

// Products of the types with codebooks (emit_dot_grid.c), and of the others of few bits (emit_dot_bits.c): of three values, of
// one and two bits, of 4-bit floats with a scale for each 16.
void ptx_dot_unit_grid(const struct ptx_dot *dot);
void ptx_dot_unit_tq1_0(const struct ptx_dot *dot);
void ptx_dot_unit_tq2_0(const struct ptx_dot *dot);
void ptx_dot_unit_bits(const struct ptx_dot *dot);
void ptx_dot_unit_nvfp4(const struct ptx_dot *dot);
// Products of all types with more than two rows.
void ptx_dot_unit_loop(const struct ptx_dot *dot);

#endif
