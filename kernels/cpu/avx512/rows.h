// A few columns by 16 rows at a time: what the rows ask for ahead of its use, and how the lanes of 16 sums are
// added up.
//
// Private to matmul_q8_avx512*.c. All is pure and inlined.
#ifndef QUERN_AVX512_ROWS_H
#define QUERN_AVX512_ROWS_H

#include "kernels/cpu/avx512/matmul_q8.h"

// ---- bytes ahead

// Bytes between request and use: more than a group of rows, where they are asked for in the order of memory; of a stream.
enum { BEYOND_GROUP = 4096, AHEAD_STREAM = 4096 };

// A span of 16 rows, to be asked for while another is worked on. Its bytes are shared out: each row, while it is read, asks
// for as many as it has itself, of the same row as its own is in its group, or simply of those that come next in memory.
struct ahead {
    const uint8_t *at;
    size_t row; // bytes from a row's share to the next row's
};

// What was asked for before and is read soon, into the L1 cache.
INLINE void prefetch_near(const uint8_t *at, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

// A row's share; rows come one after the other. The empty instructions keep the compiler from gathering the requests of
// several rows in one place, where a core would wait for them.
INLINE void prefetch_row(struct ahead *ahead, int bytes)
{
    __asm__ volatile("");
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)ahead->at + i, _MM_HINT_T1);
    __asm__ volatile("");
    ahead->at += ahead->row;
}

// Row `row` of a->w, past the last group the caller's next rows; where these are not known, rows that are in the cache.
INLINE const uint8_t *row_ahead(const struct matmul_args *a, int row)
{
    const int end = (a->n_rows + GROUP - 1) / GROUP * GROUP;
    if (row >= end && !a->next)
        return a->w;
    return row < end ? (const uint8_t *)a->w + (size_t)row * a->w_stride
                     : (const uint8_t *)a->next + (size_t)(row - end) * a->next_stride;
}

// Each row asks for its own bytes `distance` spans on, past its end for those of the row that is 16 behind.
INLINE struct ahead ahead_by_row(const struct matmul_args *a, int first, int64_t span, int64_t spans, size_t bytes,
                                 int64_t distance)
{
    const int64_t to = span + distance;
    return (struct ahead){row_ahead(a, first + GROUP * (int)(to / spans)) + (size_t)(to % spans) * bytes, a->w_stride};
}

// What lies a group on and somewhat more, in the order of memory; `share` bytes a row and part. (A group alone is too late
// for rows of 768, two are too much for rows of 5632.)
INLINE struct ahead ahead_in_order(const struct matmul_args *a, int first, int64_t span, size_t bytes, size_t share)
{
    const size_t end = (size_t)(a->n_rows + GROUP - 1) / GROUP * GROUP * a->w_stride;
    const size_t to = (size_t)(first + GROUP) * a->w_stride + (size_t)span * GROUP * bytes + BEYOND_GROUP;
    const uint8_t *w = a->w, *at = to < end ? w + to : a->next ? (const uint8_t *)a->next + (to - end) : w;
    return (struct ahead){at, share};
}

// ---- adding up lanes

// In each quarter, word i of the result is the sum of the four words of that quarter in v[i].
INLINE __m512i reduce_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// In each quarter, words 0 and 1 of `first` are the sum of a row, 2 and 3 that of another, and so of `second`: four sums.
INLINE __m512i reduce_pairs(__m512i first, __m512i second)
{
    const __m512 a = _mm512_castsi512_ps(first), b = _mm512_castsi512_ps(second);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
}

// Word i of quarter t is the sum over the quarters of word i of v[t].
INLINE __m512i reduce_across_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

#endif
