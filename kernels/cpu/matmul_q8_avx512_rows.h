// A few columns by 16 rows at a time: what the rows ask for ahead of its use, and how the lanes of 16 sums are
// added up.
//
// Private to matmul_q8_avx512*.c. All is pure and inlined.
#ifndef QUERN_MATMUL_Q8_AVX512_ROWS_H
#define QUERN_MATMUL_Q8_AVX512_ROWS_H

#include "kernels/cpu/matmul_q8_avx512.h"

// ---- bytes ahead

// Bytes to ask for, NULL: none. Of each row, from `at` on.
struct ahead {
    const struct rows16 *rows;
    size_t at;
};

INLINE void prefetch_block(const struct ahead *ahead, int row, int from, int bytes)
{
    for (int i = 0; ahead && i < bytes; i += 64)
        _mm_prefetch((const char *)ahead->rows->at[row] + ahead->at + from + i, _MM_HINT_T1);
}

// What to ask for while block `b` of n is worked on: `distance` blocks on, or the start of the rows that come after.
INLINE struct ahead ahead_of(const struct rows16 *g, const struct rows16 *after, int64_t b, int64_t n, size_t bytes,
                             int64_t distance)
{
    int64_t to = b + distance;
    if (to < n)
        return (struct ahead){g, (size_t)to * bytes};
    return (struct ahead){after, (size_t)MIN(to - n, n - 1) * bytes};
}

// ---- adding up lanes

// In each quarter, word i of the result is the sum of the four words of that quarter in v[i].
INLINE __m512i reduce_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// Word i of quarter t is the sum over the quarters of word i of v[t].
INLINE __m512i reduce_across_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

#endif
