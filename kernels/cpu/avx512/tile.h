// What tiles of rows by columns share: the arrangement of the columns' steps, products with a broadcast operand,
// joining of 16-bit sums, and the float sums D that are kept until the next span.
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

// How tiles read the steps of a column, which prepare_columns leaves as eight int16, r_0 to r_7:
//   STEPS_OF_NEIGHBOURS  int16 pairs (r_0, r_1), (r_2, r_3), ..., for runs of 32 that are joined: left as they are
//   STEPS_TWO_APART      int16 pairs (r_0, r_2), (r_1, r_3), (r_4, r_6), (r_5, r_7)
//   STEPS_TWICE          int16 pairs (r_0, r_0), (r_1, r_1), ..., for shorter runs that are joined
//   STEPS_WHOLE          eight int32
//   STEPS_FLOAT          eight floats, for blocks of 32. Each sum of a block is to be multiplied by r and converted
//                        to a float at once: it starts with the bits of the float LIFT, so that, as long as its
//                        magnitude is below 2^22, its bits are those of the float LIFT + sum. `lift` is -LIFT * r. The
//                        fma (LIFT + sum) * r - LIFT * r is exact.
enum step_form { STEPS_OF_NEIGHBOURS, STEPS_TWO_APART, STEPS_TWICE, STEPS_WHOLE, STEPS_FLOAT };
#define LIFT 12582912.0f // 1.5 * 2^23

INLINE void lift_column(struct columns *c, int j, __m256i steps)
{
    const __m256 floats = _mm256_cvtepi32_ps(steps);
    const __m512i lift = _mm512_castps_si512(_mm512_set1_ps(LIFT));
    _mm256_storeu_ps(c->step_floats[j], floats);
    _mm256_storeu_ps(c->lift[j], _mm256_mul_ps(floats, _mm256_set1_ps(-LIFT)));
    _mm512_storeu_si512(c->start[j], _mm512_add_epi32(load_512(c->start[j]), lift)); // there are up to 16 runs
}

INLINE void arrange_steps(struct columns *c, enum step_form form)
{
    for (int j = 0; j < c->n && form != STEPS_OF_NEIGHBOURS; j++) {
        const __m128i steps = load_128(c->steps[j]);
        const __m256i whole = _mm256_cvtepu16_epi32(steps);
        if (form == STEPS_FLOAT)
            lift_column(c, j, whole);
        else if (form == STEPS_TWO_APART)
            _mm_storeu_si128((__m128i *)c->steps[j], _mm_shufflehi_epi16(_mm_shufflelo_epi16(steps, 0xd8), 0xd8));
        else
            _mm256_storeu_si256((__m256i *)c->steps[j],
                                form == STEPS_WHOLE ? whole : _mm256_or_si256(whole, _mm256_slli_epi32(whole, 16)));
    }
}

// The pairs that minima need: of sub-blocks of 16; of sub-blocks of 32; of sub-blocks of 32, each of whose minima
// multiplies two sums over 16, because weighted sums over 32 may not fit 16 bits.
enum mins { NO_MINS, MINS_OF_16, MINS_OF_32, MINS_OF_32_TWICE };

INLINE int pairs_of(enum mins mins)
{
    return mins == NO_MINS ? 0 : mins == MINS_OF_32 ? 4 : 8;
}

// The pairs of 16 rows that are multiplied with pair s of the columns. `rows` are pairs of two adjacent sub-blocks
// each, `apart` registers apart.
INLINE __m512i min_pair(const __m512i *rows, int apart, int s, enum mins mins)
{
    return mins == MINS_OF_32_TWICE ? one_of_pair(rows[apart * (s / 2)], s % 2) : rows[apart * s];
}

// The sums of 16 rows, by columns.
typedef __m512i run_sums[TILE_MOST];

// Joins two 16-bit sums in each word; the second is shifted up by `up` bits.
INLINE __m512i join_sums(__m512i low, __m512i high, int up)
{
    const __mmask32 upper = 0xaaaaaaaa;
    return _mm512_mask_blend_epi16(upper, low, _mm512_slli_epi32(high, (unsigned)up));
}

// The same, with one operation that uses the shuffle unit.
INLINE __m512i join_sums_by_shuffle(__m512i low, __m512i high)
{
    const __m512i up = _mm512_set4_epi32(0x0d0c0d0c, 0x09080908, 0x05040504, 0x01000100);
    return _mm512_mask_shuffle_epi8(low, 0xcccccccccccccccc, high, up);
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
