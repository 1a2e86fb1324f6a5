// What tiles of rows by columns share: products with a broadcast, sums of 16 bits joined, the floats that wait for the
// next span.
//
// Private to matmul_q8_avx512*.c. All is inlined; only store_columns writes what is not scratch.
#ifndef QUERN_AVX512_TILE_H
#define QUERN_AVX512_TILE_H

#include "kernels/cpu/avx512/matmul_q8.h"

// What a tile asks for, `step` lines at a time.
struct line_prefetch {
    const uint8_t *at, *end;
    int step;
};

INLINE void prefetch_lines(struct line_prefetch *prefetch)
{
    for (int i = 0; i < prefetch->step && prefetch->at < prefetch->end; i++, prefetch->at += 64)
        _mm_prefetch((const char *)prefetch->at, _MM_HINT_T1);
}

// The product of weights and four activations, which all lanes read: acc + w . q. (Compilers broadcast them apart.)
INLINE __m512i dot_all(__m512i acc, __m512i w, const int8_t *q)
{
    struct four {
        int8_t q[4];
    };
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const struct four *)q));
    return acc;
}

// Sums of 16 rows, by columns.
typedef __m512i run_sums[TILE_MOST];

// Two sums of 16 bits in a word, the second brought up by so many bits.
INLINE __m512i join_sums(__m512i low, __m512i high, int up)
{
    const __mmask32 upper = 0xaaaaaaaa;
    return _mm512_mask_blend_epi16(upper, low, _mm512_slli_epi32(high, (unsigned)up));
}

// Where D of 16 rows from `row` on of a tile's column j lies: one behind the other, as tiles come to them.
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

// D = 0 of some columns and rows.
INLINE void set_partial(float *d, int n, int rows)
{
    for (int j = 0; j < n; j++)
        for (int r = 0; r < rows; r += GROUP)
            _mm512_store_ps(d + partial_at(j, r), _mm512_setzero_ps());
}

// Rows row .. row + rows - 1 of the columns first .. first + n - 1; d is D of the first.
INLINE void store_columns(const struct matmul_args *a, int first, int n, int row, int rows, const float *d)
{
    for (int j = 0; j < n; j++)
        for (int r = 0; r < rows; r += GROUP)
            _mm512_mask_storeu_ps(a->y[first + j] + row + r, rows_mask(a, row + r),
                                  _mm512_load_ps(d + partial_at(j, r)));
}

#endif
