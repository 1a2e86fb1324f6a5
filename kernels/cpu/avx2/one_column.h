// What the types share whose rows are multiplied as they lie, beside each other (AVX2, one column).
//
// Elsewhere the words of eight rows are turned first, so that a lane is a row from the first product on
// (avx2/unpack.h). With one column that is dear: of 32 weights of eight rows 16 operations of some 60 turn words, and
// each word of the column is a broadcast. Here bytes meet the column's bytes in their own order, rows i and 4 + i in the halves
// of a register, and the sums of eight rows come together before they are scaled. All are exact, so the bits are the same.
// (AVX-VNNI, whose products need no widening, keeps to turned words: this was not timed there. Nor does it help types whose bytes
// have more than two elements: turning these serves all of their sub-blocks.)
//
// Private to matmul_q8_avx2_beside*.c.
#ifndef QUERN_AVX2_ONE_COLUMN_H
#define QUERN_AVX2_ONE_COLUMN_H

#include "kernels/cpu/avx2/in_place.h"

// 16 bytes at `at` of rows i and 4 + i.
INLINE __m256i two_rows(const struct rows8 *rows, int i, size_t at)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(rows->at[i] + at)), load_128(rows->at[4 + i] + at),
                                   1);
}

// 16 bytes of the column, for both halves.
INLINE __m256i both_halves(const int8_t *q)
{
    return _mm256_broadcastsi128_si256(load_128(q));
}

INLINE __m256i add_pairs(__m256i v)
{
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

// Two words of a, then two of b, of each half; by numbers as vshufps has them.
#define WORDS(a, b, picks) _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), picks))
enum { CROSSWISE = 0x4e, EVEN = 0x88, ODD = 0xdd };

// Sums of row i and of row 4 + i are in the halves of t[i], for i = 0 .. 3. Those of two such registers share one: rows i and
// i + 1 have two words each in the lower half, rows 4 + i and 5 + i in the upper.
INLINE __m256i share_16(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_blend_epi32(a, b, 0xcc), WORDS(a, b, CROSSWISE));
}

INLINE __m256i share_32(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xcc), WORDS(a, b, CROSSWISE));
}

// Of two that are shared: lane r is what row r has.
INLINE __m256i join_shared_16(__m256i a, __m256i b)
{
    return _mm256_add_epi16(WORDS(a, b, EVEN), WORDS(a, b, ODD));
}

INLINE __m256i join_shared_32(__m256i a, __m256i b)
{
    return _mm256_add_epi32(WORDS(a, b, EVEN), WORDS(a, b, ODD));
}

INLINE __m256i join_16(const __m256i t[4])
{
    return join_shared_16(share_16(t[0], t[1]), share_16(t[2], t[3]));
}

INLINE __m256i join_32(const __m256i t[4])
{
    return join_shared_32(share_32(t[0], t[1]), share_32(t[2], t[3]));
}

// Sums of 32 products of what nibbles at `at` stand for, the low ones elements 0-15: values of either sign, none of them -128.
// The column's signs move to them.
INLINE __m256i multiply_signed_values(const struct rows8 *rows, size_t at, const int8_t *q, __m256i values)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    const __m256i low_size = _mm256_abs_epi8(low), high_size = _mm256_abs_epi8(high);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at);
        __m256i a = _mm256_sign_epi8(_mm256_shuffle_epi8(values, field(v, 0, 15)), low);
        __m256i b = _mm256_sign_epi8(_mm256_shuffle_epi8(values, field(v, 4, 15)), high);
        t[i] = _mm256_add_epi32(add_pairs(_mm256_maddubs_epi16(low_size, a)),
                                add_pairs(_mm256_maddubs_epi16(high_size, b)));
    });
    return join_32(t);
}

// Groups of one call follow each other without leaving the loop's registers: rows of a few blocks take hardly longer than
// entering it.
#define BESIDE(name)                                                                                                   \
    void ISA_FN(name##_beside)(const struct place *l, __m256 out[])                                                    \
    {                                                                                                                  \
        const struct rows8 first = *l->rows;                                                                           \
        for (int i = 0; i < l->groups; i++)                                                                            \
            out[i] = multiply_group_##name(l, &first, (size_t)i * l->step);                                            \
    }

#endif
