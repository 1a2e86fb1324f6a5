// Code that both the float and the 8-bit products of 4-bit types need.
//
// A register is named by a literal and a number: "%q", 3 is %q3. Ownership: none. Threads: no shared state.
#ifndef QUERN_EMIT_NIBBLE_H
#define QUERN_EMIT_NIBBLE_H

#include "kernels/ptx/emit.h"

// Looks up nibbles: <to><low> becomes the values (signed bytes) of the low nibbles of the four bytes of <from><word>,
// and <to><high> those of the high nibbles.
void ptx_nibble_values(struct ptx *p, const int8_t values[16], const char *from, uint32_t word, const char *to,
                       uint32_t low, uint32_t high);
// The same for 4-bit floats: the values of fp4_values plus PTX_FP4_LESS, 0 to 24, which take fewer instructions.
enum { PTX_FP4_LESS = 12 };
void ptx_fp4_bytes(struct ptx *p, const char *from, uint32_t word, const char *to, uint32_t low, uint32_t high);
// Sets d (.f32) to half of 2^(e - 127), for e (.u32) up to 255. Changes `spare` (.u32) and the predicate `pred`.
void ptx_e8m0_half(struct ptx *p, const char *d, const char *e, const char *spare, const char *pred);

// Emits a NUL-terminated literal of the program.
static inline void ptx_word(struct ptx *p, const char *literal)
{
    ptx_copy(p, literal, strlen(literal));
}

#endif
