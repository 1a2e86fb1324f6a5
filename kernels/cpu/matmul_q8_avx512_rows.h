// A few columns by 16 rows at a time: what the rows ask for ahead of its use, and how the lanes of 16 sums are
// added up.
//
// Private to matmul_q8_avx512*.c. All is pure and inlined.
#ifndef QUERN_MATMUL_Q8_AVX512_ROWS_H
#define QUERN_MATMUL_Q8_AVX512_ROWS_H

#include "kernels/cpu/matmul_q8_avx512.h"

// ---- bytes ahead

// A span of 16 rows, to be asked for while another is worked on. Its bytes are shared out: each row, while it is read, asks
// for as many as it has itself, of the same row as its own is in its group, or simply of those that come next in memory.
struct ahead {
    const uint8_t *at;
    size_t row, part; // bytes from a row's share to the next row's; and from a row's first byte to the next, by its parts
};

// The shares from byte `from` of each row on.
INLINE struct ahead ahead_from(const struct ahead *ahead, int from)
{
    return (struct ahead){ahead->at + (size_t)from * ahead->part, ahead->row, ahead->part};
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

// Each row asks for its own bytes `distance` spans on, or at the start of the row that is 16 behind.
INLINE struct ahead ahead_by_row(const struct matmul_args *a, int first, int64_t span, int64_t spans, size_t bytes,
                                 int64_t distance)
{
    const int64_t to = span + distance;
    const bool here = to < spans;
    return (struct ahead){row_ahead(a, here ? first : first + GROUP) +
                              (size_t)(here ? to : MIN(to - spans, spans - 1)) * bytes,
                          a->w_stride, 1};
}

// What lies two groups on, in the order of memory; `share` bytes a row and part. (One group on is too late for rows of
// 2048 elements: 1.07 times as fast.)
INLINE struct ahead ahead_in_order(const struct matmul_args *a, int first, int64_t span, size_t bytes, size_t share)
{
    return (struct ahead){row_ahead(a, first + 2 * GROUP) + (size_t)span * GROUP * bytes, share, GROUP};
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
