// Matmul of the fewest columns by AVX-512 of types with a codebook (IQ1, IQ2, IQ3) or of three values (TQ1_0, TQ2_0):
// up to three columns of IQ types, four of TQ1_0, and eight of TQ2_0, which is unpacked quickly.
// avx512/codebook_few.c serves more columns.
//
// The naive loop, for each row: for each block, isum = sum of step[j] * scale[j] * (w . q)[j]; D = fma(isum * dw, da,
// D). As in avx512/in_place_256.c each block is read once, in place; here 16 rows are a group. Two rows are unpacked at
// a time (avx512/codebook_unpack.h, avx512/codebook.h) for all columns, and their sums are joined in one register.
//   - Activations are arranged in the order of the weights once per block of 16 rows, and the signs of weights are
//     applied to them: vpdpbusd wants its weights unsigned, and nothing else is needed.
//   - In IQ1, a weight in eighths is 8 (g + 1) - 9 + {0, 2}. The 9 is subtracted through the sums of the activations,
//     and the 0 or 2, which is common to 8 elements, is one vpdpwssd with their sums.
// A block of IQ3_XXS, 98 bytes, takes some 50 operations. avx512/matmul_q8.c chooses this up to the columns of
// matmul_q8_in_place_columns.
#include "kernels/cpu/avx512/codebook.h"
#include "kernels/cpu/avx512/rows.h"

// distance in bytes of a row's prefetches
enum { PREFETCH_BYTES = 448 };

enum { COLUMNS_MAX = 8 };

// The activations of a block, in the order of the weights, and their steps.
struct activations {
    __m512i x[4];
    __m512i minus[4]; // -x, for IQ2 and IQ3
    __m512i start;    // for others; lane l: minus the offset of the weights times the sum of the lane's activations
    __m512i sums8;    // for IQ1: word j is the sum of elements 8j .. 8j + 7
    __m512i steps;
};

// ---- activations

typedef void activations_fn(const int8_t *q, struct activations *out);

INLINE void activations_signed(const int8_t *q, struct activations *out)
{
    arrange_quads(q, out->x);
    UNROLL_FOR (int e = 0; e < 4; e++)
        out->minus[e] = _mm512_sub_epi8(_mm512_setzero_si512(), out->x[e]);
}

INLINE void activations_iq1(const int8_t *q, struct activations *out)
{
    const __m512i ones = _mm512_set1_epi8(1);
    arrange_quads(q, out->x);
    __m512i a = _mm512_add_epi16(_mm512_maddubs_epi16(ones, out->x[0]), _mm512_maddubs_epi16(ones, out->x[1]));
    __m512i b = _mm512_add_epi16(_mm512_maddubs_epi16(ones, out->x[2]), _mm512_maddubs_epi16(ones, out->x[3]));
    out->sums8 = _mm512_add_epi16(a, b);
    out->start = _mm512_dpwssd_epi32(_mm512_setzero_si512(), out->sums8, _mm512_set1_epi16(-SHIFT_OFFSET));
}

INLINE void activations_ternary(const int8_t *q, struct activations *out)
{
    arrange_eights(q, out->x);
    out->start = start_of(out->x, TERNARY_OFFSET);
}

// ---- products of two rows with n columns: joined sums

typedef void products_fn(const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n, __m512i out[]);

// `quads`, `scaling` and n are compile-time constants.
INLINE void products_signed(quads_fn *quads, enum scaling scaling, const uint8_t *b0, const uint8_t *b1,
                            const struct activations *x, int n, __m512i out[])
{
    struct quads rows[2];
    __m512i dot[COLUMNS_MAX][2];
    quads(b0, b1, rows);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        UNROLL_FOR (int j = 0; j < n; j++) {
            dot[j][r] = _mm512_setzero_si512();
            UNROLL_FOR (int e = 0; e < 4; e++) {
                __m512i q = _mm512_mask_blend_epi8(minus_of(&rows[r], e), x[j].x[e], x[j].minus[e]);
                dot[j][r] = _mm512_dpbusd_epi32(dot[j][r], rows[r].w[e], q);
            }
        }
    }
    const __m512i scales = _mm512_packs_epi32(rows[0].scale, rows[1].scale);
    UNROLL_FOR (int j = 0; j < n; j++)
        out[j] = scaling == SCALES_WIDE ? join_wide(dot[j], rows[0].scale, rows[1].scale, x[j].steps)
                                        : join_narrow(dot[j], scales, x[j].steps);
}

INLINE void products_iq1(quads_fn *quads, const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n,
                         __m512i out[])
{
    struct quads rows[2];
    __m512i dot[COLUMNS_MAX][2];
    quads(b0, b1, rows);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        UNROLL_FOR (int j = 0; j < n; j++) {
            dot[j][r] = _mm512_dpwssd_epi32(x[j].start, rows[r].delta, x[j].sums8);
            UNROLL_FOR (int e = 0; e < 4; e++)
                dot[j][r] = _mm512_dpbusd_epi32(dot[j][r], rows[r].w[e], x[j].x[e]);
        }
    }
    const __m512i scales = _mm512_packs_epi32(rows[0].scale, rows[1].scale);
    UNROLL_FOR (int j = 0; j < n; j++)
        out[j] = join_narrow(dot[j], scales, x[j].steps);
}

INLINE void products_ternary(eights_fn *eights, const uint8_t *b0, const uint8_t *b1, const struct activations *x,
                             int n, __m512i out[])
{
    __m512i w[2][4];
    eights(b0, w[0]);
    eights(b1, w[1]);
    UNROLL_FOR (int j = 0; j < n; j++) {
        __m512i dot[2] = {x[j].start, x[j].start};
        UNROLL_FOR (int e = 0; e < 4; e++)
            UNROLL_FOR (int r = 0; r < 2; r++)
                dot[r] = _mm512_dpbusd_epi32(dot[r], w[r][e], x[j].x[e]);
        out[j] = join_one(dot, x[j].steps);
    }
}

// PRODUCTS(name, CALL): products_<name>, which does CALL.
// clang-format off
#define PRODUCTS(name, CALL) \
    INLINE void products_##name(const uint8_t *b0, const uint8_t *b1, const struct activations *x, int n, __m512i out[]) \
    { \
        CALL; \
    }
#define SIGNED(name, scaling) PRODUCTS(name, products_signed(quads_##name, scaling, b0, b1, x, n, out))
#define IQ1(name) PRODUCTS(name, products_iq1(quads_##name, b0, b1, x, n, out))
#define TERNARY(name) PRODUCTS(name, products_ternary(eights_##name, b0, b1, x, n, out))
// clang-format on
SIGNED(iq2_xxs, SCALES_WIDE)
SIGNED(iq2_xs, SCALES_WIDE)
SIGNED(iq2_s, SCALES_WIDE)
SIGNED(iq3_xxs, SCALES_WIDE)
SIGNED(iq3_s, SCALES_OF_PAIRS)
IQ1(iq1_s)
IQ1(iq1_m)
TERNARY(tq1_0)
TERNARY(tq2_0)

// ---- n columns: all rows

// Lane r of dot[j] is the integer sum of row r's block at `at` with column j.
INLINE void dots_of_16(const struct rows16 *g, size_t at, size_t bytes, const struct row_prefetch *prefetch,
                       products_fn *products, const struct activations *x, int n, __m512i dot[])
{
    __m512i quarters[COLUMNS_MAX][4];
    struct row_prefetch next = *prefetch;
#pragma GCC unroll 1
    for (int t = 0; t < 4; t++) {
        __m512i two[2][COLUMNS_MAX];
        UNROLL_FOR (int i = 0; i < 2; i++) {
            const int row = 4 * t + 2 * i;
            products(g->at[row] + at, g->at[row + 1] + at, x, n, two[i]);
            prefetch_row(&next, (int)bytes);
            prefetch_row(&next, (int)bytes);
        }
        UNROLL_FOR (int j = 0; j < n; j++)
            quarters[j][t] = reduce_pairs(two[0][j], two[1][j]);
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        dot[j] = reduce_across_quarters(quarters[j]);
}

INLINE void in_place(const struct matmul_args *a, size_t bytes, activations_fn *activations, enum scaling scaling,
                     products_fn *products, factor_fn *factor, int n)
{
    const int64_t n_blocks = a->k / 256;
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 g = rows_from(a, first);
        __m512 d[COLUMNS_MAX];
        UNROLL_FOR (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            const struct row_prefetch prefetch =
                reads_streams(a->reading)
                    ? prefetch_in_order(a, first, b, bytes, bytes)
                    : prefetch_by_row(a, first, b, n_blocks, bytes, PREFETCH_BYTES / (int64_t)bytes);
            const size_t at = (size_t)b * bytes;
            struct activations x[COLUMNS_MAX];
            __m512i dot[COLUMNS_MAX];
            UNROLL_FOR (int j = 0; j < n; j++) {
                const struct view view = view_of(a, j, b);
                activations(view.q, &x[j]);
                x[j].steps = steps_of(&view, scaling);
            }
            dots_of_16(&g, at, bytes, &prefetch, products, x, n, dot);
            const __m512 dw = factor(&g, at);
            UNROLL_FOR (int j = 0; j < n; j++) {
                __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[j]), dw);
                d[j] = _mm512_fmadd_ps(s, _mm512_set1_ps(q8_scales(a->x[j], a->k)[b]), d[j]);
            }
        }
        UNROLL_FOR (int j = 0; j < n; j++)
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
    }
}

// The entry points, with a switch over the number of columns:
//   COLUMNS(n, name, bytes, kind, scaling, factor)       the case of n columns
//   IN_PLACE(name, UP_TO, bytes, kind, scaling, factor)  the function matmul_q8_in_place_<name>
// name: the type, of products_<name>. bytes: of a block. kind: activations_<kind>. factor: factor_<factor>. UP_TO: the
// cases; above them, codebook_few.c is called.
#define COLUMNS(n, name, bytes, kind, scaling, factor)                                                                 \
    case n:                                                                                                            \
        in_place(a, bytes, activations_##kind, scaling, products_##name, factor_##factor, n);                          \
        break;
#define UP_TO_3(...) COLUMNS(1, __VA_ARGS__) COLUMNS(2, __VA_ARGS__) COLUMNS(3, __VA_ARGS__)
#define UP_TO_4(...) UP_TO_3(__VA_ARGS__) COLUMNS(4, __VA_ARGS__)
#define UP_TO_8(...)                                                                                                   \
    UP_TO_4(__VA_ARGS__) COLUMNS(5, __VA_ARGS__) COLUMNS(6, __VA_ARGS__) COLUMNS(7, __VA_ARGS__) COLUMNS(8, __VA_ARGS__)
#define IN_PLACE(name, UP_TO, bytes, kind, scaling, factor)                                                            \
    void ISA_FN(matmul_q8_in_place_##name)(const struct matmul_args *a)                                                \
    {                                                                                                                  \
        switch (a->n_x) {                                                                                              \
            UP_TO(name, bytes, kind, scaling, factor)                                                                  \
        default:                                                                                                       \
            ISA_FN(matmul_q8_few_##name)(a);                                                                           \
        }                                                                                                              \
    }

// clang-format off
IN_PLACE(iq2_xxs, UP_TO_3, 66, signed, SCALES_WIDE, eighth)
IN_PLACE(iq2_xs, UP_TO_3, 74, signed, SCALES_WIDE, eighth)
IN_PLACE(iq2_s, UP_TO_3, 82, signed, SCALES_WIDE, eighth)
IN_PLACE(iq3_xxs, UP_TO_3, 98, signed, SCALES_WIDE, quarter)
IN_PLACE(iq3_s, UP_TO_3, 110, signed, SCALES_OF_PAIRS, one)
IN_PLACE(iq1_s, UP_TO_3, 50, iq1, SCALES_OF_PAIRS, eighth)
IN_PLACE(iq1_m, UP_TO_3, 56, iq1, SCALES_OF_PAIRS, iq1_m)
IN_PLACE(tq1_0, UP_TO_4, 54, ternary, SCALES_ONE, tq1_0)
IN_PLACE(tq2_0, UP_TO_8, 66, ternary, SCALES_ONE, tq2_0)
// clang-format on
