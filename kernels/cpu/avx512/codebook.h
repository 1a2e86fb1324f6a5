// What the kernels of few columns share for types with a codebook, or of three values: the order of weights and of
// activations, how the sums of two rows are multiplied by scales and steps; and the entry points of
// avx512/codebook_few.c.
//
// In both orders, lane l of the four registers of a block has elements 16l .. 16l + 15, and so lanes 2j and 2j + 1 have
// the same step:
//   quads   byte i of register e is element 4i + e. Types with a codebook are unpacked in this order.
//   eights  eight bytes j of register e are elements 32j + 8e .. 32j + 8e + 7. Three values are unpacked in this order.
//
// Private to avx512/codebook.c and avx512/codebook_few.c. All functions but the entry points are pure and inlined.
#ifndef QUERN_AVX512_CODEBOOK_H
#define QUERN_AVX512_CODEBOOK_H

#include "kernels/cpu/avx512/codebook_unpack.h"

// ---- activations

// Quarter m of x[e] is quarter e of the 64 bytes from q + 64m on, after they are permuted by `pick`.
INLINE void arrange_by(const int8_t *q, const uint8_t pick[64], __m512i x[4])
{
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

INLINE void arrange_quads(const int8_t *q, __m512i x[4])
{
    // clang-format off
    static const _Alignas(64) uint8_t pick[64] = {
        0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61,
        2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
    // clang-format on
    arrange_by(q, pick, x);
}

INLINE void arrange_eights(const int8_t *q, __m512i x[4])
{
    // clang-format off
    static const _Alignas(64) uint8_t pick[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  32, 33, 34, 35, 36, 37, 38, 39, 8,  9,  10, 11, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 46, 47,
        16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51, 52, 53, 54, 55, 24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63};
    // clang-format on
    arrange_by(q, pick, x);
}

// Minus an offset times the sum of each lane's activations. The sums of weights with that offset start with it.
INLINE __m512i start_of(const __m512i x[4], int offset)
{
    __m512i sum = _mm512_setzero_si512();
    UNROLL_FOR (int e = 0; e < 4; e++)
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8((char)offset), x[e]);
    return _mm512_sub_epi32(_mm512_setzero_si512(), sum);
}

// ---- three values, in eights

typedef void eights_fn(const uint8_t *b, __m512i w[4]);

// A byte has a digit of each of four runs of 32.
INLINE void eights_tq2_0(const uint8_t *b, __m512i w[4])
{
    const __m512i v = load_512(b);
    const __m512i bytes[4] = {_mm512_permutex_epi64(v, 0x00), _mm512_permutex_epi64(v, 0x55),
                              _mm512_permutex_epi64(v, 0xaa), _mm512_permutex_epi64(v, 0xff)};
    UNROLL_FOR (int e = 0; e < 4; e++)
        w[e] = move_bits_of_8(bytes[e], 2, 0x64206420, 0);
}

// A byte has five digits: four of them are in a code, the fifth is looked up on its own. Of 32 bytes, the digits are
// runs 0 to 4. Of the next 16 bytes, digits 0 and 1 are run 5, digits 2 and 3 run 6, and the fifth ones the first half
// of run 7. The digits of the last 4 bytes are the rest of run 7, four elements each. So these bytes are repeated, and
// the codes of the repetition are shifted by a digit.
INLINE void eights_tq1_0(const uint8_t *b, __m512i w[4])
{
    const __m128i last = _mm_loadu_si32(b + 48);
    const __m512i bytes = _mm512_mask_broadcastd_epi32(_mm512_maskz_loadu_epi8(0xffffffffffff, b), 0x3000, last);
    const struct table_masks m = masks_of(bytes);
    const __m512i fifth = look_up_256(tq1_codes[1], bytes, &m);
    __m512i code = look_up_256(tq1_codes[0], bytes, &m);
    code = _mm512_mask_srli_epi32(code, 0x2000, code, 2);
    UNROLL_FOR (int e = 0; e < 4; e++) {
        const __m512i pick = _mm512_setr_epi64(e, e, e, e, 8 + e, 4 + e % 2, 4 + e % 2, e < 2 ? 12 + e : 6);
        const uint32_t from = e < 2 ? 0x04006420 : e == 2 ? 0x06206420 : 0x46206420;
        w[e] = move_bits_of_8(_mm512_permutex2var_epi64(code, pick, fifth), 2, from, 0);
    }
}

// ---- the sums of two rows: how they are multiplied by scales and steps, and joined in one register
//
// Quarter q of joined sums has two words of the first row, for the steps 2q and 2q + 1, and then two of the second row.
//   SCALES_WIDE      Sums need more than 16 bits. They are multiplied by the scales, joined, and multiplied by the
//                    steps, in 32 bits.
//   SCALES_OF_PAIRS  Sums fit 16 bits. Those of two rows are packed to one register, and a multiply-add by the scales
//                    times the steps joins them.
//   SCALES_ONE       The same without scales.
enum scaling { SCALES_WIDE, SCALES_OF_PAIRS, SCALES_ONE };

// The steps of a column: with SCALES_WIDE words in the order of joined sums, otherwise int16 in the order of packed
// sums.
INLINE __m512i steps_of(const struct view *x, enum scaling scaling)
{
    const __m512i of_quarter = _mm512_setr_epi32(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7);
    const __m512i words = _mm512_permutexvar_epi32(of_quarter, _mm512_castsi256_si512(words_of_steps(x)));
    return scaling == SCALES_WIDE ? words : _mm512_or_si512(words, _mm512_slli_epi32(words, 16));
}

// Joins the sums of two rows: SCALES_WIDE. Sums are at most 16 * 62 * 127, scales 31.
INLINE __m512i join_wide(const __m512i sum[2], __m512i scale0, __m512i scale1, __m512i steps)
{
    const __m512i pairs = reduce_pairs(_mm512_mullo_epi32(sum[0], scale0), _mm512_mullo_epi32(sum[1], scale1));
    return _mm512_mullo_epi32(pairs, steps);
}

// SCALES_ONE. Sums are at most 16 * 2 * 127.
INLINE __m512i join_one(const __m512i sum[2], __m512i steps)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(sum[0], sum[1]), steps);
}

// SCALES_OF_PAIRS. Sums are at most 16 * 15 * 127 in IQ3_S and 16 * 9 * 127 in IQ1, scales 31. `scales` has those of
// both rows, packed as the sums are.
INLINE __m512i join_narrow(const __m512i sum[2], __m512i scales, __m512i steps)
{
    return join_one(sum, _mm512_mullo_epi16(scales, steps));
}

// ---- more columns

// Matmul of more columns than avx512/codebook.c serves, up to PANEL_TILES_MIN - 1.
#define FEW(name) void ISA_FN(matmul_q8_few_##name)(const struct matmul_args *a);
// clang-format off
FEW(iq1_s) FEW(iq1_m) FEW(iq2_xxs) FEW(iq2_xs) FEW(iq2_s) FEW(iq3_xxs) FEW(iq3_s) FEW(tq1_0) FEW(tq2_0)
// clang-format on
#undef FEW

#endif
