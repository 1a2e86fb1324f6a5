// Arranges activations in the order in which blocks of types with a codebook, or of three values, are unpacked; and
// the entry points of avx512/codebook_few.c.
//
// Private to avx512/codebook.c and avx512/codebook_few.c. All functions but the entry points are pure and inlined.
#ifndef QUERN_AVX512_CODEBOOK_H
#define QUERN_AVX512_CODEBOOK_H

#include "kernels/cpu/avx512/codebook_unpack.h"

// Byte i of x[e] is element 4i + e.
INLINE void arrange_quads(const int8_t *q, __m512i x[4])
{
    // clang-format off
    static const _Alignas(64) uint8_t pick[64] = {
        0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61,
        2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
    // clang-format on
    __m512i v[4];
    UNROLL_FOR (int m = 0; m < 4; m++)
        v[m] = _mm512_permutexvar_epi8(load_512(pick), load_512(q + 64 * m));
    const __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
    const __m512i c = _mm512_shuffle_i32x4(v[0], v[1], 0xee), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    x[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    x[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    x[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    x[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

// Register p belongs to pair p of the bits of 64 bytes: elements 32p .. 32p + 31 of the first half, and of the
// second.
INLINE void arrange_tq2_0(const int8_t *q, __m512i x[4])
{
    UNROLL_FOR (int p = 0; p < 4; p++)
        x[p] = load_2x32(q + 32 * p, q + 128 + 32 * p);
}

// Register p belongs to digit p: of 32 bytes elements 32p .., of the next 16 elements 160 + 16p .., of the last 4
// elements 240 + 4p .. (except for the fifth digit).
INLINE void arrange_tq1_0(const int8_t *q, __m512i x[5])
{
    UNROLL_FOR (int p = 0; p < 5; p++) {
        __m128i last = _mm_setzero_si128();
        if (p < 4)
            last = _mm_loadu_si32(q + 240 + 4 * p);
        x[p] = _mm512_zextsi256_si512(load_256(q + 32 * p));
        x[p] = _mm512_inserti32x4(x[p], load_128(q + 160 + 16 * p), 2);
        x[p] = _mm512_inserti32x4(x[p], last, 3);
    }
}

// Minus an offset times the sum of each lane's activations. The sums of weights with that offset start with it.
INLINE __m512i start_of(const __m512i *x, int n, int offset)
{
    __m512i sum = _mm512_setzero_si512();
    UNROLL_FOR (int p = 0; p < n; p++)
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8((char)offset), x[p]);
    return _mm512_sub_epi32(_mm512_setzero_si512(), sum);
}

// Matmul of more columns than avx512/codebook.c serves, up to PANEL_TILES_MIN - 1.
#define FEW(name) void ISA_FN(matmul_q8_few_##name)(const struct matmul_args *a);
// clang-format off
FEW(iq1_s) FEW(iq1_m) FEW(iq2_xxs) FEW(iq2_xs) FEW(iq2_s) FEW(iq3_xxs) FEW(iq3_s) FEW(tq1_0) FEW(tq2_0)
// clang-format on
#undef FEW

#endif
