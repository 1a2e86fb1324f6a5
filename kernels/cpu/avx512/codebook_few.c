// Matmul by AVX-512 of types with a codebook (IQ1, IQ2, IQ3) or of three values (TQ1_0, TQ2_0), for more columns than
// avx512/codebook.c serves (3 of IQ types, 4 of TQ1_0, 8 of TQ2_0), up to those of matmul_q8_in_place_columns: 12 to
// 31, by type.
//
// A block takes longer to unpack than to multiply with a few columns, so it is unpacked once for all of them: 16 rows
// at a time, to unsigned bytes (signed weights plus an offset), in the order in which avx512/codebook_unpack.h makes
// them, in the L1 cache. Then up to eight columns at a time are multiplied with these, four rows together. A lane's
// products belong to one sub-block. A panel (avx512/codebook_panel.c) needs no sums across lanes, but transposes the
// rows first, which pays only with more columns: from 13 on for TQ1_0 and 16 for IQ1, up to 32 for IQ2_XS, IQ3_S and
// TQ2_0.
// A row and a column take 7 to 9 operations a block, four of them vpdpbusd.
#include "kernels/cpu/avx512/codebook.h"
#include "kernels/cpu/avx512/rows.h"

enum { REGS_MAX = 5, COLUMNS_AT_ONCE = 8, FEW_MAX = PANEL_TILES_MIN - 1, FOUR = 4 };

// The unpacked blocks of 16 rows.
struct unpacked {
    __m512i w[GROUP][REGS_MAX];
    // Lane l has the scale of elements 16l .. 16l + 15. With SCALES_OF_PAIRS, a register has the scales of two rows, in
    // the order in which packs_epi32 joins their sums.
    __m512i scale[GROUP];
};

// How the sums of 16 elements are scaled: SCALES_WIDE where they need more than 16 bits, SCALES_OF_PAIRS where the
// sums of two rows fit a register, SCALES_ONE where there are no scales.
enum scaling { SCALES_WIDE, SCALES_OF_PAIRS, SCALES_ONE };

// A block of a column, arranged in the order of the weights.
struct prepared {
    __m512i x[REGS_MAX], start;
    float d;
};

// The contents of a thread's scratch.
struct work {
    struct unpacked unpacked;
    __m512 d[FEW_MAX]; // sums of 16 rows, by columns
    // By block, then by column. If the scratch is too small, all further blocks use the last block's place.
    struct prepared columns[];
};

// ---- columns

typedef void arrange_fn(const int8_t *q, __m512i *x);

struct kind {
    size_t bytes; // of a block
    int regs;     // registers of weights in a block
    int offset;   // of the weights
};

INLINE void prepare(const struct matmul_args *a, int j, int64_t block, const struct kind *k, arrange_fn *arrange,
                    struct prepared *out)
{
    arrange(q8_quants(a->x[j]) + SPAN * block, out->x);
    out->start = start_of(out->x, k->regs, k->offset);
    out->d = q8_scales(a->x[j], a->k)[block];
}

// ---- unpacking 16 rows' blocks at byte `at`
//
// UNPACK_QUADS(name, kind, scaling): the function of a type with a codebook; kind is that of unsigned_<kind>.
// UNPACK_DIGITS(name): the function of a type of three values.

typedef void unpack_fn(const struct rows16 *g, size_t at, struct row_prefetch *prefetch, int bytes, struct unpacked *o);

INLINE void unpack_quads(const struct rows16 *g, size_t at, struct row_prefetch *prefetch, int bytes, quads_fn *quads,
                         unsigned_fn *make_unsigned, enum scaling scaling, struct unpacked *o)
{
    KEEP_LOOP_FOR (int r = 0; r < GROUP; r += 2) {
        struct quads rows[2];
        quads(g->at[r] + at, g->at[r + 1] + at, rows);
        UNROLL_FOR (int i = 0; i < 2; i++) {
            make_unsigned(&rows[i], o->w[r + i]);
            if (scaling == SCALES_WIDE)
                o->scale[r + i] = rows[i].scale;
            prefetch_row(prefetch, bytes);
        }
        if (scaling == SCALES_OF_PAIRS)
            o->scale[r / 2] = _mm512_packs_epi32(rows[0].scale, rows[1].scale);
    }
}

#define UNPACK_QUADS(name, kind, scaling)                                                                              \
    INLINE void unpack_##name(const struct rows16 *g, size_t at, struct row_prefetch *prefetch, int bytes,             \
                              struct unpacked *o)                                                                      \
    {                                                                                                                  \
        unpack_quads(g, at, prefetch, bytes, quads_##name, unsigned_##kind, scaling, o);                               \
    }
#define UNPACK_DIGITS(name)                                                                                            \
    INLINE void unpack_##name(const struct rows16 *g, size_t at, struct row_prefetch *prefetch, int bytes,             \
                              struct unpacked *o)                                                                      \
    {                                                                                                                  \
        KEEP_LOOP_FOR (int r = 0; r < GROUP; r++) {                                                                    \
            digits_##name(g->at[r] + at, o->w[r]);                                                                     \
            prefetch_row(prefetch, bytes);                                                                             \
        }                                                                                                              \
    }
// clang-format off
UNPACK_QUADS(iq2_xxs, signed, SCALES_WIDE)
UNPACK_QUADS(iq2_xs, signed, SCALES_WIDE)
UNPACK_QUADS(iq2_s, signed, SCALES_WIDE)
UNPACK_QUADS(iq3_xxs, signed, SCALES_WIDE)
UNPACK_QUADS(iq3_s, signed, SCALES_OF_PAIRS)
UNPACK_QUADS(iq1_s, iq1, SCALES_OF_PAIRS)
UNPACK_QUADS(iq1_m, iq1, SCALES_OF_PAIRS)
UNPACK_DIGITS(tq1_0)
UNPACK_DIGITS(tq2_0)
// clang-format on

// ---- n columns are multiplied with the unpacked rows

// The products of four rows with one column; lanes are still to be scaled and added up.
INLINE void dot_four(const struct unpacked *o, int row, const struct prepared *x, int regs, __m512i v[FOUR])
{
    UNROLL_FOR (int r = 0; r < FOUR; r++)
        v[r] = x->start;
    UNROLL_FOR (int e = 0; e < regs; e++)
        UNROLL_FOR (int r = 0; r < FOUR; r++)
            v[r] = _mm512_dpbusd_epi32(v[r], o->w[row + r][e], x->x[e]);
}

// Sums of 16 products are at most 16 * 62 * 127, times scales up to 31. In IQ3_S they are at most 16 * 15 * 127, in
// IQ1 16 * 9 * 127, which fit 16 bits.
INLINE __m512i add_up(const struct unpacked *o, int row, __m512i v[FOUR], enum scaling scaling)
{
    UNROLL_FOR (int r = 0; scaling == SCALES_WIDE && r < FOUR; r++)
        v[r] = _mm512_mullo_epi32(v[r], o->scale[row + r]);
    if (scaling != SCALES_OF_PAIRS)
        return reduce_quarters(v);
    return reduce_pairs(_mm512_madd_epi16(_mm512_packs_epi32(v[0], v[1]), o->scale[row / 2]),
                        _mm512_madd_epi16(_mm512_packs_epi32(v[2], v[3]), o->scale[row / 2 + 1]));
}

INLINE void sweep(const struct unpacked *o, const struct prepared *x, __m512 dw, int regs, enum scaling scaling, int n,
                  __m512 *d)
{
    __m512i quarters[COLUMNS_AT_ONCE][GROUP / FOUR];
    KEEP_LOOP_FOR (int t = 0; t < GROUP / FOUR; t++) {
        UNROLL_FOR (int j = 0; j < n; j++) {
            __m512i v[FOUR];
            dot_four(o, FOUR * t, &x[j], regs, v);
            quarters[j][t] = add_up(o, FOUR * t, v, scaling);
        }
    }
    UNROLL_FOR (int j = 0; j < n; j++) {
        const __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(reduce_across_quarters(quarters[j])), dw);
        d[j] = _mm512_fmadd_ps(s, _mm512_set1_ps(x[j].d), d[j]);
    }
}

typedef void sweep_fn(const struct unpacked *o, const struct prepared *x, __m512 dw, __m512 *d);
// SWEEP(name, regs, scaling, n): the function for n columns of a kind of type. SWEEPS: all of them, and their table.
#define SWEEP(name, regs, scaling, n)                                                                                  \
    static void name##_by_##n(const struct unpacked *o, const struct prepared *x, __m512 dw, __m512 *d)                \
    {                                                                                                                  \
        sweep(o, x, dw, regs, scaling, n, d);                                                                          \
    }
#define SWEEPS(name, regs, scaling)                                                                                    \
    SWEEP(name, regs, scaling, 4)                                                                                      \
    SWEEP(name, regs, scaling, 5)                                                                                      \
    SWEEP(name, regs, scaling, 6)                                                                                      \
    SWEEP(name, regs, scaling, 7)                                                                                      \
    SWEEP(name, regs, scaling, 8)                                                                                      \
    static sweep_fn *const name[COLUMNS_AT_ONCE + 1] = {                                                               \
        [4] = name##_by_4, name##_by_5, name##_by_6, name##_by_7, name##_by_8};
SWEEPS(sweep_wide, 4, SCALES_WIDE)
SWEEPS(sweep_pairs, 4, SCALES_OF_PAIRS)
SWEEPS(sweep_tq2_0, 4, SCALES_ONE)
SWEEPS(sweep_tq1_0, 5, SCALES_ONE)

// Multiplies all columns in parts of about the same width.
INLINE void sweep_all(const struct work *w, const struct prepared *x, __m512 dw, sweep_fn *const *by, int n, __m512 *d)
{
    const int parts = (n + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;
    for (int i = 0, first = 0, width; i < parts; i++, first += width) {
        width = n / parts + (i < n % parts);
        by[width](&w->unpacked, x + first, dw, d + first);
    }
}

// ---- all rows

INLINE void multiply_few(const struct matmul_args *a, const struct kind *k, arrange_fn *arrange, unpack_fn *unpack,
                         factor_fn *factor, sweep_fn *const *by)
{
    struct work *w = a->scratch;
    const int n = a->n_x;
    const int64_t n_blocks = a->k / SPAN, room = (int64_t)((SCRATCH_BYTES - sizeof(*w)) / sizeof(w->columns[0])) / n;
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 g = rows_from(a, first);
        for (int j = 0; j < n; j++)
            w->d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            const size_t at = (size_t)b * k->bytes;
            struct row_prefetch prefetch = prefetch_in_order(a, first, b, k->bytes, k->bytes);
            struct prepared *x = w->columns + MIN(b, room - 1) * n;
            for (int j = 0; j < n && (first == 0 || b >= room - 1); j++)
                prepare(a, j, b, k, arrange, &x[j]);
            unpack(&g, at, &prefetch, (int)k->bytes, &w->unpacked);
            sweep_all(w, x, factor(&g, at), by, n, w->d);
        }
        for (int j = 0; j < n; j++)
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), w->d[j]);
    }
}

// Defines matmul_q8_few_<name>. bytes: of a block. regs: registers of weights in a block. offset: of the weights.
// arrange: arrange_<arrange>. factor: factor_<factor>. by: the table of sweep functions by columns.
#define FEW(name, bytes, regs, offset, arrange, factor, by)                                                            \
    void ISA_FN(matmul_q8_few_##name)(const struct matmul_args *a)                                                     \
    {                                                                                                                  \
        static const struct kind kind = {bytes, regs, offset};                                                         \
        multiply_few(a, &kind, arrange_##arrange, unpack_##name, factor_##factor, by);                                 \
    }

// clang-format off
FEW(iq2_xxs, 66, 4, SIGN_OFFSET, quads, eighth, sweep_wide)
FEW(iq2_xs, 74, 4, SIGN_OFFSET, quads, eighth, sweep_wide)
FEW(iq2_s, 82, 4, SIGN_OFFSET, quads, eighth, sweep_wide)
FEW(iq3_xxs, 98, 4, SIGN_OFFSET, quads, quarter, sweep_wide)
FEW(iq3_s, 110, 4, SIGN_OFFSET, quads, one, sweep_pairs)
FEW(iq1_s, 50, 4, SHIFT_OFFSET, quads, eighth, sweep_pairs)
FEW(iq1_m, 56, 4, SHIFT_OFFSET, quads, iq1_m, sweep_pairs)
FEW(tq1_0, 54, 5, TERNARY_OFFSET, tq1_0, tq1_0, sweep_tq1_0)
FEW(tq2_0, 66, 4, TERNARY_OFFSET, tq2_0, tq2_0, sweep_tq2_0)
// clang-format on
