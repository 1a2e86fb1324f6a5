// One or two columns of types with a codebook (IQ1, IQ2, IQ3) or of three values (TQ), by AVX-512.
//
// As matmul_q8_avx512_decode.c does it: 16 rows together, each block read once, in place. Two rows are unpacked at a
// time (matmul_q8_avx512_quads.h), for one column or for both.
//   - Activations are put into the order of the weights once for 16 rows, and take the signs: with unsigned weights
//   that is
//     all that vpdpbusd wants.
//   - In IQ1 the 9 goes through the sums of the activations, and the 0 or 2, for 8 elements at a time, is one vpdpwssd
//   with
//     their sums.
// Of a block of IQ3_XXS, 98 bytes, that makes some 50 operations.
#include "kernels/cpu/matmul_q8_avx512_quads.h"
#include "kernels/cpu/matmul_q8_avx512_rows.h"

// Bytes of a row between the request and the use.
enum { AHEAD_BYTES = 448 };

enum { COLUMNS_MAX = 2 };

// The activations of a block, in the order of the weights.
struct activations {
    __m512i x[5];
    __m512i minus[4]; // of IQ2 and IQ3: -x
    __m512i start;    // in lane l: minus the weights' offset times the sum of its elements
    __m512i sums8;    // of IQ1: in word j of elements 8j .. 8j + 7
};

// ---- activations

// Byte i of x[e] is element 4i + e.
INLINE void take_quads(const int8_t *q, __m512i x[4])
{
    // clang-format off
    static const _Alignas(64) uint8_t pick[64] = {
        0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61,
        2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
    // clang-format on
    __m512i v[4];
    UNROLL
    for (int m = 0; m < 4; m++)
        v[m] = _mm512_permutexvar_epi8(load_512(pick), load_512(q + 64 * m));
    const __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
    const __m512i c = _mm512_shuffle_i32x4(v[0], v[1], 0xee), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    x[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    x[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    x[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    x[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

typedef void activations_fn(const int8_t *q, struct activations *out);

INLINE void activations_signed(const int8_t *q, struct activations *out)
{
    take_quads(q, out->x);
    UNROLL
    for (int e = 0; e < 4; e++)
        out->minus[e] = _mm512_sub_epi8(_mm512_setzero_si512(), out->x[e]);
}

INLINE void activations_iq1(const int8_t *q, struct activations *out)
{
    const __m512i ones = _mm512_set1_epi8(1);
    take_quads(q, out->x);
    __m512i a = _mm512_add_epi16(_mm512_maddubs_epi16(ones, out->x[0]), _mm512_maddubs_epi16(ones, out->x[1]));
    __m512i b = _mm512_add_epi16(_mm512_maddubs_epi16(ones, out->x[2]), _mm512_maddubs_epi16(ones, out->x[3]));
    out->sums8 = _mm512_add_epi16(a, b);
    out->start = _mm512_dpwssd_epi32(_mm512_setzero_si512(), out->sums8, _mm512_set1_epi16(-SHIFT_OFFSET));
}

INLINE void start_ternary(struct activations *out, int n)
{
    out->start = _mm512_setzero_si512();
    UNROLL
    for (int p = 0; p < n; p++)
        out->start = _mm512_dpbusd_epi32(out->start, _mm512_set1_epi8(TERNARY_OFFSET), out->x[p]);
    out->start = _mm512_sub_epi32(_mm512_setzero_si512(), out->start);
}

// Pair p of the bits of 64 bytes: elements 32p .. of the first half, and of the second.
INLINE void activations_tq2_0(const int8_t *q, struct activations *out)
{
    UNROLL
    for (int p = 0; p < 4; p++)
        out->x[p] = load_2x32(q + 32 * p, q + 128 + 32 * p);
    start_ternary(out, 4);
}

// Digit p of 32 bytes: elements 32p ..; of the next 16: 160 + 16p ..; of the last 4: 240 + 4p .., but of the fifth.
INLINE void activations_tq1_0(const int8_t *q, struct activations *out)
{
    UNROLL
    for (int p = 0; p < 5; p++) {
        __m128i last = _mm_setzero_si128();
        if (p < 4)
            last = _mm_loadu_si32(q + 240 + 4 * p);
        out->x[p] = _mm512_zextsi256_si512(load_256(q + 32 * p));
        out->x[p] = _mm512_inserti32x4(out->x[p], load_128(q + 160 + 16 * p), 2);
        out->x[p] = _mm512_inserti32x4(out->x[p], last, 3);
    }
    start_ternary(out, 5);
}

// ---- products of two rows with n columns: lanes to be added up

typedef void products_fn(const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n, __m512i out[][2]);

// |sum of a lane| <= 16 * 62 * 127, times 31.
INLINE void products_signed(quads_fn *quads, const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n,
                            __m512i out[][2])
{
    struct quads rows[2];
    quads(b0, b1, rows);
    UNROLL
    for (int r = 0; r < 2; r++) {
        UNROLL
        for (int j = 0; j < n; j++) {
            __m512i dot = _mm512_setzero_si512();
            UNROLL
            for (int e = 0; e < 4; e++) {
                __m512i q = _mm512_mask_blend_epi8(minus_of(&rows[r], e), x[j].x[e], x[j].minus[e]);
                dot = _mm512_dpbusd_epi32(dot, rows[r].w[e], q);
            }
            out[j][r] = _mm512_mullo_epi32(dot, rows[r].scale);
        }
    }
}

INLINE void products_iq1(quads_fn *quads, const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n,
                         __m512i out[][2])
{
    struct quads rows[2];
    quads(b0, b1, rows);
    UNROLL
    for (int r = 0; r < 2; r++) {
        UNROLL
        for (int j = 0; j < n; j++) {
            __m512i dot = _mm512_dpwssd_epi32(x[j].start, rows[r].delta, x[j].sums8);
            UNROLL
            for (int e = 0; e < 4; e++)
                dot = _mm512_dpbusd_epi32(dot, rows[r].w[e], x[j].x[e]);
            out[j][r] = _mm512_mullo_epi32(dot, rows[r].scale);
        }
    }
}

INLINE __m512i dot_digits(const __m512i *w, const struct activations *x, int n)
{
    __m512i dot = x->start;
    UNROLL
    for (int p = 0; p < n; p++)
        dot = _mm512_dpbusd_epi32(dot, w[p], x->x[p]);
    return dot;
}

INLINE void products_tq2_0(const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n, __m512i out[][2])
{
    __m512i w[2][4];
    digits_tq2_0(b0, w[0]);
    digits_tq2_0(b1, w[1]);
    UNROLL
    for (int j = 0; j < n; j++)
        out[j][0] = dot_digits(w[0], &x[j], 4), out[j][1] = dot_digits(w[1], &x[j], 4);
}

INLINE void products_tq1_0(const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n, __m512i out[][2])
{
    __m512i w[2][5];
    digits_tq1_0(b0, w[0]);
    digits_tq1_0(b1, w[1]);
    UNROLL
    for (int j = 0; j < n; j++)
        out[j][0] = dot_digits(w[0], &x[j], 5), out[j][1] = dot_digits(w[1], &x[j], 5);
}

// clang-format off
#define PRODUCTS(name, kind) \
    INLINE void products_##name(const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n, __m512i out[][2]) \
    { \
        products_##kind(quads_##name, b0, b1, x, n, out); \
    }
// clang-format on
PRODUCTS(iq2_xxs, signed)
PRODUCTS(iq2_xs, signed)
PRODUCTS(iq2_s, signed)
PRODUCTS(iq3_xxs, signed)
PRODUCTS(iq3_s, signed)
PRODUCTS(iq1_s, iq1)
PRODUCTS(iq1_m, iq1)

// ---- one column or two: all rows

// Lane r of dot[j] is the integer sum of row r's block at `at` with column j.
INLINE void dots_of_16(const struct rows16 *g, size_t at, size_t bytes, const struct ahead *ahead,
                       products_fn *products, const struct activations *x, int n, __m512i dot[])
{
    __m512i quarters[COLUMNS_MAX][4];
    struct ahead ask = *ahead;
#pragma GCC unroll 1
    for (int t = 0; t < 4; t++) {
        __m512i two[2][COLUMNS_MAX][2];
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int row = 4 * t + 2 * i;
            products(g->at[row] + at, g->at[row + 1] + at, x, n, two[i]);
            prefetch_row(&ask, (int)bytes);
            prefetch_row(&ask, (int)bytes);
        }
        UNROLL
        for (int j = 0; j < n; j++) {
            const __m512i v[4] = {two[0][j][0], two[0][j][1], two[1][j][0], two[1][j][1]};
            quarters[j][t] = reduce_quarters(v);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++)
        dot[j] = reduce_across_quarters(quarters[j]);
}

// n columns: a block is unpacked once for both.
INLINE void decode(const struct matmul_args *a, size_t bytes, activations_fn *take, products_fn *products,
                   factor_fn *factor, int n)
{
    const int64_t n_blocks = a->k / 256;
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 g = rows_from(a, first);
        __m512 d[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            const struct ahead ahead = reads_streams(a->reading)
                                           ? ahead_in_order(a, first, b, bytes, bytes)
                                           : ahead_by_row(a, first, b, n_blocks, bytes, AHEAD_BYTES / (int64_t)bytes);
            const size_t at = (size_t)b * bytes;
            struct activations x[COLUMNS_MAX];
            __m512i dot[COLUMNS_MAX];
            UNROLL
            for (int j = 0; j < n; j++)
                take(q8_quants(a->x[j]) + 256 * b, &x[j]);
            dots_of_16(&g, at, bytes, &ahead, products, x, n, dot);
            const __m512 dw = factor(&g, at);
            UNROLL
            for (int j = 0; j < n; j++) {
                __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[j]), dw);
                d[j] = _mm512_fmadd_ps(s, _mm512_set1_ps(q8_scales(a->x[j], a->k)[b]), d[j]);
            }
        }
        UNROLL
        for (int j = 0; j < n; j++)
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
    }
}

#define DECODE(name, bytes, take, factor)                                                                              \
    void ISA_FN(matmul_q8_decode_##name)(const struct matmul_args *a)                                                  \
    {                                                                                                                  \
        if (a->n_x == 1)                                                                                               \
            decode(a, bytes, activations_##take, products_##name, factor_##factor, 1);                                 \
        else                                                                                                           \
            decode(a, bytes, activations_##take, products_##name, factor_##factor, 2);                                 \
    }

// clang-format off
DECODE(iq2_xxs, 66, signed, eighth)
DECODE(iq2_xs, 74, signed, eighth)
DECODE(iq2_s, 82, signed, eighth)
DECODE(iq3_xxs, 98, signed, quarter)
DECODE(iq3_s, 110, signed, one)
DECODE(iq1_s, 50, iq1, eighth)
DECODE(iq1_m, 56, iq1, iq1_m)
DECODE(tq1_0, 54, tq1_0, tq1_0)
DECODE(tq2_0, 66, tq2_0, tq2_0)
// clang-format on
