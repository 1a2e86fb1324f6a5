// Emits code that unpacks weights of one and two bits (Q1_0, Q2_0), of three values (TQ1_0, TQ2_0) and of 4-bit floats with a
// scale for each 16 (NVFP4) to bytes, for products with 8-bit activations. emit_type.c and emit_type_grid.c convert the
// same types to floats.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_BITS_H
#define QUERN_EMIT_BITS_H

#include "kernels/ptx/emit_type.h"

// ptx_type_bytes for these types.
void ptx_bits_bytes(const struct ptx_part *part);
// Of Q1_0, Q2_0 and NVFP4: sets %q0 to %q7 to the 32 weights that are in %w<word> and, with more bits, the next one or three.
// Those of Q1_0 are 0 and 2, of Q2_0 0 to 3, from which 1 is to be subtracted, and of NVFP4 0 to 24, less 12. Changes %t0.
void ptx_bits_weights(struct ptx *p, enum dtype type, uint32_t word);
// NVFP4: sets %d and %m to the scales of two runs of 16, halved because the weights are doubled, from the two bytes from bit
// `at` of %w<word> on. Changes %t0, %t1, %h, %h1 and %pred.
void ptx_bits_nvfp4_scales(struct ptx *p, uint32_t word, uint32_t at);

#endif
