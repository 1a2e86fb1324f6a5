// What tiles of rows by columns share: products with a broadcast operand, joining of 16-bit sums, and the float sums
// D that are kept until the next span.
//
// Private to avx512/panel.c and avx512/transposed.c. All functions are inlined; only store_columns writes outside of
// the scratch.
#ifndef QUERN_AVX512_TILE_H
#define QUERN_AVX512_TILE_H

#include "kernels/cpu/avx512/matmul_q8.h"

// The cache lines that a tile prefetches, `step` at a time.
struct line_prefetch {
    const uint8_t *at, *end;
    int step;
};

INLINE void prefetch_lines(struct line_prefetch *prefetch)
{
    for (int i = 0; i < prefetch->step && prefetch->at < prefetch->end; i++, prefetch->at += 64)
        _mm_prefetch((const char *)prefetch->at, _MM_HINT_T1);
}

// acc + w . q, where q are four activations that all lanes use. (In assembly, because compilers broadcast them by an
// instruction of their own.)
INLINE __m512i dot_all(__m512i acc, __m512i w, const int8_t *q)
{
    struct four {
        int8_t q[4];
    };
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const struct four *)q));
    return acc;
}

// The sums of 16 rows, by columns.
typedef __m512i run_sums[TILE_MOST];

// Joins two 16-bit sums in each word; the second is shifted up by `up` bits.
INLINE __m512i join_sums(__m512i low, __m512i high, int up)
{
    const __mmask32 upper = 0xaaaaaaaa;
    return _mm512_mask_blend_epi16(upper, low, _mm512_slli_epi32(high, (unsigned)up));
}

// The position of D of 16 rows from `row` on, in column j of a tile. The order is that in which tiles use them.
INLINE int partial_at(int j, int row)
{
    return row / GROUP * (TILE_COLUMNS * GROUP) + j * GROUP;
}

// D = fma(S, da, D) of column j; `at` is the row.
INLINE void add_to_partial(float *out, int at, __m512 s, const struct columns *c, int j)
{
    float *d = out + partial_at(j, at);
    _mm512_store_ps(d, _mm512_fmadd_ps(s, _mm512_set1_ps(c->da[j]), _mm512_load_ps(d)));
}

// Sets D of some columns and rows to 0.
INLINE void set_partial(float *d, int n, int rows)
{
    for (int j = 0; j < n; j++)
        for (int r = 0; r < rows; r += GROUP)
            _mm512_store_ps(d + partial_at(j, r), _mm512_setzero_ps());
}

// Stores rows row .. row + rows - 1 of the columns first .. first + n - 1; d is D of the first.
INLINE void store_columns(const struct matmul_args *a, int first, int n, int row, int rows, const float *d)
{
    for (int j = 0; j < n; j++)
        for (int r = 0; r < rows; r += GROUP)
            _mm512_mask_storeu_ps(a->y[first + j] + row + r, rows_mask(a, row + r),
                                  _mm512_load_ps(d + partial_at(j, r)));
}

#endif
