// What one column and a few have in common, of types with blocks of 32: sums of two or four blocks, a lane a row or span.
//
// Private to matmul_q8_avx512_decode_32.c and matmul_q8_avx512_one_32.c. All is pure and inlined.
#ifndef QUERN_MATMUL_Q8_AVX512_DECODE_32_H
#define QUERN_MATMUL_Q8_AVX512_DECODE_32_H

#include "kernels/cpu/matmul_q8_avx512_decode.h"

// Quarters 0 and 1 of v[t] are four sums each of one block of rows 4t .., 2 and 3 of another block.
INLINE void add_halves(const __m512i v[4], __m512i dot[2])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xdd));
    dot[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    dot[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
}

// Quarter b of v[t] is block b of rows 4t ..: transposed.
INLINE void part_quarters(const __m512i v[4], __m512i dot[4])
{
    __m512i a0 = _mm512_shuffle_i32x4(v[0], v[1], 0x44), a1 = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    __m512i b0 = _mm512_shuffle_i32x4(v[2], v[3], 0x44), b1 = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    dot[0] = _mm512_shuffle_i32x4(a0, b0, 0x88);
    dot[1] = _mm512_shuffle_i32x4(a0, b0, 0xdd);
    dot[2] = _mm512_shuffle_i32x4(a1, b1, 0x88);
    dot[3] = _mm512_shuffle_i32x4(a1, b1, 0xdd);
}

// The activations of four blocks, a quarter each.
INLINE struct nibbles load_4_activations(const int8_t *q)
{
    return (struct nibbles){load_4x16(q, q + 32, q + 64, q + 96), load_4x16(q + 16, q + 48, q + 80, q + 112)};
}

// ---- one column that is read by streams, matmul_q8_avx512_one_32.c

// Q8_0: of up to so many blocks of 256.
enum { ONE_Q8_0_MOST = SCRATCH_BYTES / 8 };
matmul_fn ISA_FN(matmul_q8_one_q4_0), ISA_FN(matmul_q8_one_q4_1), ISA_FN(matmul_q8_one_q5_0), ISA_FN(matmul_q8_one_q5_1),
    ISA_FN(matmul_q8_one_q8_0), ISA_FN(matmul_q8_one_iq4_nl), ISA_FN(matmul_q8_one_mxfp4);

#endif
