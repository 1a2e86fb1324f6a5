// Matmul by AVX-512 of types with a codebook (IQ1, IQ2, IQ3) or of three values (TQ1_0, TQ2_0), for more columns than
// avx512/codebook.c serves (3 of IQ types, 4 of TQ1_0, 8 of TQ2_0), up to those of matmul_q8_in_place_columns: 12 to
// 31, by type.
//
// A block takes longer to unpack than to multiply with a few columns, so it is unpacked once for all of them: 16 rows
// at a time, to unsigned bytes (signed weights plus an offset), in the L1 cache. Then up to eight columns at a time are
// multiplied with these, four rows together. avx512/codebook.h describes the order of the weights, in which a lane's
// products belong to one sub-block, and how sums are multiplied by scales and steps. A panel (avx512/codebook_panel.c)
// needs no sums across lanes, but transposes the rows first, which pays only with more columns: from 13 on for TQ1_0
// and 16 for IQ1, up to 32 for IQ2_XS, IQ3_S and TQ2_0.
// A row and a column take 6 to 8 operations a block, four of them vpdpbusd.
#include "kernels/cpu/avx512/codebook.h"
#include "kernels/cpu/avx512/rows.h"

enum { COLUMNS_AT_ONCE = 8, FEW_MAX = PANEL_TILES_MIN - 1, FOUR = 4 };

// The unpacked blocks of 16 rows.
struct unpacked {
    __m512i w[GROUP][4];
    // Lane l has the scale of elements 16l .. 16l + 15. With SCALES_OF_PAIRS, a register has the scales of two rows, in
    // the order in which packs_epi32 joins their sums.
    __m512i scale[GROUP];
};

// A block of a column, arranged in the order of the weights.
struct prepared {
    __m512i x[4], start, steps;
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

typedef void arrange_fn(const int8_t *q, __m512i x[4]);

struct kind {
    size_t bytes; // of a block
    int offset;   // of the weights
    enum scaling scaling;
};

INLINE void prepare(const struct matmul_args *a, int j, int64_t block, const struct kind *k, arrange_fn *arrange,
                    struct prepared *out)
{
    const struct view x = view_of(a, j, block);
    arrange(x.q, out->x);
    out->start = start_of(out->x, k->offset);
    out->steps = steps_of(&x, k->scaling);
    out->d = q8_scales(a->x[j], a->k)[block];
}

// ---- unpacking 16 rows' blocks at byte `at`
//
// UNPACK_QUADS(name, kind, scaling): the function of a type with a codebook; kind is that of unsigned_<kind>.
// UNPACK_EIGHTS(name): the function of a type of three values.

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
#define UNPACK_EIGHTS(name)                                                                                            \
    INLINE void unpack_##name(const struct rows16 *g, size_t at, struct row_prefetch *prefetch, int bytes,             \
                              struct unpacked *o)                                                                      \
    {                                                                                                                  \
        KEEP_LOOP_FOR (int r = 0; r < GROUP; r++) {                                                                    \
            eights_##name(g->at[r] + at, o->w[r]);                                                                     \
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
UNPACK_EIGHTS(tq1_0)
UNPACK_EIGHTS(tq2_0)
// clang-format on

// ---- n columns are multiplied with the unpacked rows

// The products of four rows with one column; lanes are still to be scaled and added up.
INLINE void dot_four(const struct unpacked *o, int row, const struct prepared *x, __m512i v[FOUR])
{
    UNROLL_FOR (int r = 0; r < FOUR; r++)
        v[r] = x->start;
    UNROLL_FOR (int e = 0; e < 4; e++)
        UNROLL_FOR (int r = 0; r < FOUR; r++)
            v[r] = _mm512_dpbusd_epi32(v[r], o->w[row + r][e], x->x[e]);
}

// In each quarter, word i is the scaled sum of row `row` + i.
INLINE __m512i scaled_four(const struct unpacked *o, int row, const struct prepared *x, enum scaling scaling)
{
    __m512i v[FOUR], joined[2];
    dot_four(o, row, x, v);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const int r = row + 2 * i;
        if (scaling == SCALES_WIDE)
            joined[i] = join_wide(v + 2 * i, o->scale[r], o->scale[r + 1], x->steps);
        else if (scaling == SCALES_OF_PAIRS)
            joined[i] = join_narrow(v + 2 * i, o->scale[r / 2], x->steps);
        else
            joined[i] = join_one(v + 2 * i, x->steps);
    }
    return reduce_pairs(joined[0], joined[1]);
}

INLINE void sweep(const struct unpacked *o, const struct prepared *x, __m512 dw, enum scaling scaling, int n, __m512 *d)
{
    __m512i quarters[COLUMNS_AT_ONCE][GROUP / FOUR];
    KEEP_LOOP_FOR (int t = 0; t < GROUP / FOUR; t++) {
        UNROLL_FOR (int j = 0; j < n; j++)
            quarters[j][t] = scaled_four(o, FOUR * t, &x[j], scaling);
    }
    UNROLL_FOR (int j = 0; j < n; j++) {
        const __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(reduce_across_quarters(quarters[j])), dw);
        d[j] = _mm512_fmadd_ps(s, _mm512_set1_ps(x[j].d), d[j]);
    }
}

typedef void sweep_fn(const struct unpacked *o, const struct prepared *x, __m512 dw, __m512 *d);
// SWEEP(name, scaling, n): the function for n columns. SWEEPS: all of them, and their table.
#define SWEEP(name, scaling, n)                                                                                        \
    static void name##_by_##n(const struct unpacked *o, const struct prepared *x, __m512 dw, __m512 *d)                \
    {                                                                                                                  \
        sweep(o, x, dw, scaling, n, d);                                                                                \
    }
#define SWEEPS(name, scaling)                                                                                          \
    SWEEP(name, scaling, 4)                                                                                            \
    SWEEP(name, scaling, 5)                                                                                            \
    SWEEP(name, scaling, 6)                                                                                            \
    SWEEP(name, scaling, 7)                                                                                            \
    SWEEP(name, scaling, 8)                                                                                            \
    static sweep_fn *const name[COLUMNS_AT_ONCE + 1] = {                                                               \
        [4] = name##_by_4, name##_by_5, name##_by_6, name##_by_7, name##_by_8};
SWEEPS(sweep_wide, SCALES_WIDE)
SWEEPS(sweep_pairs, SCALES_OF_PAIRS)
SWEEPS(sweep_one, SCALES_ONE)

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
                         factor_fn *factor)
{
    sweep_fn *const *by = k->scaling == SCALES_WIDE ? sweep_wide : k->scaling == SCALES_ONE ? sweep_one : sweep_pairs;
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

// Defines matmul_q8_few_<name>. bytes: of a block. offset: of the weights. arrange: arrange_<arrange>. factor:
// factor_<factor>.
#define FEW(name, bytes, offset, scaling, arrange, factor)                                                             \
    void ISA_FN(matmul_q8_few_##name)(const struct matmul_args *a)                                                     \
    {                                                                                                                  \
        static const struct kind kind = {bytes, offset, scaling};                                                      \
        multiply_few(a, &kind, arrange_##arrange, unpack_##name, factor_##factor);                                     \
    }

// clang-format off
FEW(iq2_xxs, 66, SIGN_OFFSET, SCALES_WIDE, quads, eighth)
FEW(iq2_xs, 74, SIGN_OFFSET, SCALES_WIDE, quads, eighth)
FEW(iq2_s, 82, SIGN_OFFSET, SCALES_WIDE, quads, eighth)
FEW(iq3_xxs, 98, SIGN_OFFSET, SCALES_WIDE, quads, quarter)
FEW(iq3_s, 110, SIGN_OFFSET, SCALES_OF_PAIRS, quads, one)
FEW(iq1_s, 50, SHIFT_OFFSET, SCALES_OF_PAIRS, quads, eighth)
FEW(iq1_m, 56, SHIFT_OFFSET, SCALES_OF_PAIRS, quads, iq1_m)
FEW(tq1_0, 54, TERNARY_OFFSET, SCALES_ONE, eights, tq1_0)
FEW(tq2_0, 66, TERNARY_OFFSET, SCALES_ONE, eights, tq2_0)
// clang-format on
