// Pieces of code that both the float and the 8-bit products of 4-bit types need.
//
// Registers are named by a literal and a number: "%q", 3 is %q3. Ownership: none. Threads: none shared.
#ifndef QUERN_EMIT_NIBBLE_H
#define QUERN_EMIT_NIBBLE_H

#include "kernels/ptx/emit.h"

// <to><low> = the values, as signed bytes, of the low nibbles of the four bytes of <from><word>; <to><high> of the
// high.
void ptx_nibble_values(struct ptx *p, const int8_t values[16], const char *from, uint32_t word, const char *to,
                       uint32_t low, uint32_t high);
// d (.f32) = half of 2^(e - 127), e a .u32 up to 255; `spare` (.u32) and `pred` are changed.
void ptx_e8m0_half(struct ptx *p, const char *d, const char *e, const char *spare, const char *pred);

// The text of a NUL-terminated literal of the program.
static inline void ptx_word(struct ptx *p, const char *literal)
{
    ptx_copy(p, literal, strlen(literal));
}

#endif
