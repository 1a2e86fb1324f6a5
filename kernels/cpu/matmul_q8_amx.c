// The 8-bit matmul of AMX: many columns by matrix tiles; few as AVX-512 does it.
//
// 32 rows of weights are unpacked for a span of 256 elements, and all columns pass, 32 at a time. The columns lie in
// tiles of their own (q8_tiles in kernels.h), which are made once where they are quantised; for those that have none
// (the rows that chose an expert) they are made here, span by span.
#include "kernels/cpu/matmul_q8_amx.h"

// Some of the columns: as many as the scratch holds.
struct part {
    int first, n;
};

// How a type is multiplied, and the columns that tiles serve better than panels do, which depends on what unpacking
// costs.
struct kind {
    const struct tile_runner *runner;
    int from;
};

// clang-format off
#define UNSIGNED_32 &matmul_q8_unsigned_mins_of_32_amx
#define UNSIGNED_16 &matmul_q8_unsigned_mins_of_16_amx
#define SIGNED      &matmul_q8_signed_amx
#define BLOCKS      &matmul_q8_blocks_amx
#define BLOCKS_MINS &matmul_q8_blocks_mins_amx
static const struct kind kinds[DT_COUNT] = {
    [DT_Q2_K] = {UNSIGNED_16, 40}, [DT_Q4_K] = {UNSIGNED_32, 32}, [DT_Q5_K] = {UNSIGNED_32, 36},
    [DT_Q3_K] = {SIGNED, 44},      [DT_Q6_K] = {SIGNED, 44},      [DT_IQ4_XS] = {SIGNED, 32},
    [DT_IQ1_S] = {SIGNED, 40},     [DT_IQ1_M] = {SIGNED, 40},     [DT_IQ2_XXS] = {SIGNED, 32},
    [DT_IQ2_XS] = {SIGNED, 32},    [DT_IQ2_S] = {SIGNED, 32},     [DT_IQ3_XXS] = {SIGNED, 40},
    [DT_IQ3_S] = {SIGNED, 44},     [DT_TQ1_0] = {SIGNED, 40},     [DT_TQ2_0] = {SIGNED, 40},
    [DT_Q4_0] = {BLOCKS, 48},      [DT_Q5_0] = {BLOCKS, 48},      [DT_Q8_0] = {BLOCKS, 48},
    [DT_IQ4_NL] = {BLOCKS, 48},    [DT_MXFP4] = {BLOCKS, 48},
    [DT_Q4_1] = {BLOCKS_MINS, 128}, [DT_Q5_1] = {BLOCKS_MINS, 128},
};
// clang-format on

// The tiles of the part's columns in a span, made here.
static struct q8_tiles tiles_of(const struct matmul_args *a, const struct part *part, int64_t span)
{
    struct work *w = a->scratch;
    struct q8_tiles t = q8_tiles_at(w->gathered, part->n, 0);
    for (int j = 0; j < part->n; j++)
        q8_tiles_put(&t, j, a->x[part->first + j], a->k, span);
    return t;
}

static struct tokens take_columns(const struct q8_tiles *t, int first, int n)
{
    return (struct tokens){.quants = t->quants + (size_t)first * SPAN,
                           .sums = t->sums + first,
                           .sums_of_32 = t->sums_of_32 + first,
                           .d = t->d + first,
                           .first = first,
                           .n = MIN(n - first, (int)COLUMNS)};
}

// Asks for the places of some rows' outputs, which will be stored soon.
static void prefetch_outputs(const struct matmul_args *a, const struct part *part, const struct tokens *t, int row,
                             int rows)
{
    for (int j = 0; j < t->n; j++)
        for (int r = 0; r < rows; r += ROWS)
            _mm_prefetch((const char *)(a->y[part->first + t->first + j] + row + r), _MM_HINT_T0);
}

// Some finished rows, of some columns of the part.
static void store(const struct matmul_args *a, const struct part *part, const struct tokens *t, const struct sums *sums,
                  int row, int rows)
{
    for (int j = 0; j < t->n; j++)
        for (int r = 0; r < rows; r += ROWS)
            _mm512_mask_storeu_ps(a->y[part->first + t->first + j] + row + r, rows_mask(a, row + r),
                                  _mm512_load_ps(sums[r / ROWS].d[j]));
}

// A span of the rows that are unpacked, at `row`, with all columns of the part. In the last span they are stored.
static void sweep(const struct matmul_args *a, const struct part *part, const struct q8_tiles *tiles, int row, int rows,
                  int64_t span)
{
    struct work *w = a->scratch;
    const struct tile_runner *runner = kinds[a->type].runner;
    const __mmask16 seen = span ? 0xffff : 0;
    const bool last = span == q8_blocks(a->k) - 1;
    for (int j = 0; j < part->n; j += COLUMNS) {
        struct tokens t = take_columns(tiles, j, part->n);
        struct sums *sums = w->sums[row % HEIGHT / SWEEP_ROWS][j / COLUMNS];
        if (last)
            prefetch_outputs(a, part, &t, row, rows);
        runner->run(w, &t, rows, blocks_in_span(a, span), sums, seen);
        if (last) {
            runner->drain(w);
            store(a, part, &t, sums, row, rows);
        }
    }
    runner->drain(w);
}

static void multiply_rows(const struct matmul_args *a, const struct part *part, int from, int to)
{
    struct work *w = a->scratch;
    for (int64_t span = 0; span < q8_blocks(a->k); span++) {
        struct q8_tiles tiles = tiles_of(a, part, span);
        for (int row = from; row < to; row += SWEEP_ROWS) {
            int rows = MIN(to - row, (int)SWEEP_ROWS);
            ISA_FN(matmul_q8_unpack_panel)(a, row, rows, HEIGHT, span, &w->panel);
            sweep(a, part, &tiles, row, rows, span);
        }
    }
}

static void multiply(const struct matmul_args *a)
{
    struct work *w = a->scratch;
    w->job.tokens.n = 0;
    w->panel.high = &w->high;
    w->panel.low = &w->low;
    configure_tiles(kinds[a->type].runner->width);
    for (int row = 0; row < a->n_rows; row += HEIGHT)
        for (int first = 0; first < a->n_x; first += COLUMNS_PART) {
            struct part part = {first, MIN(a->n_x - first, (int)COLUMNS_PART)};
            multiply_rows(a, &part, row, MIN(row + HEIGHT, a->n_rows));
        }
    release_tiles();
}

// Types whose rows are rows of tiles, and from how many columns on.
static const struct {
    matmul_fn *multiply;
    int from;
} by_rows[DT_COUNT] = {
    [DT_Q4_K] = {matmul_q8_q4_k_amx, 8},
    [DT_Q5_K] = {matmul_q8_q5_k_amx, 8},
    [DT_Q6_K] = {matmul_q8_q6_k_amx, 8},
    [DT_Q2_K] = {matmul_q8_q2_k_amx, 8},
    [DT_Q3_K] = {matmul_q8_q3_k_amx, 8},
    [DT_IQ4_XS] = {matmul_q8_iq4_xs_amx, 8},
    [DT_TQ1_0] = {matmul_q8_tq1_0_amx, 3},
    [DT_TQ2_0] = {matmul_q8_tq2_0_amx, 3},
    [DT_Q8_0] = {matmul_q8_q8_0_amx, 10},
    [DT_Q4_0] = {matmul_q8_q4_0_amx, 8},
    [DT_Q5_0] = {matmul_q8_q5_0_amx, 8},
    [DT_IQ4_NL] = {matmul_q8_iq4_nl_amx, 8},
    [DT_MXFP4] = {matmul_q8_mxfp4_amx, 8},
    [DT_Q4_1] = {matmul_q8_q4_1_amx, 10},
    [DT_Q5_1] = {matmul_q8_q5_1_amx, 10},
    [DT_IQ2_XXS] = {matmul_q8_iq2_xxs_amx, 8},
    [DT_IQ2_XS] = {matmul_q8_iq2_xs_amx, 8},
    [DT_IQ2_S] = {matmul_q8_iq2_s_amx, 8},
    [DT_IQ3_XXS] = {matmul_q8_iq3_xxs_amx, 8},
    [DT_IQ3_S] = {matmul_q8_iq3_s_amx, 8},
    [DT_IQ1_S] = {matmul_q8_iq1_s_amx, 8},
    [DT_IQ1_M] = {matmul_q8_iq1_m_amx, 8},
};

bool matmul_q8_in_tiles_amx(enum dtype type, int64_t n)
{
    return by_rows[type].multiply && n >= by_rows[type].from;
}

static void matmul(const struct matmul_args *a)
{
    if (matmul_q8_in_tiles_amx(a->type, a->n_x) || (a->x_tiles && by_rows[a->type].multiply))
        by_rows[a->type].multiply(a);
    else if (a->n_x <= ISA_FN(matmul_q8_in_place)[a->type])
        ISA_FN(matmul_q8_decode)[a->type](a);
    else if (!kinds[a->type].runner || a->n_x < kinds[a->type].from)
        ISA_FN(matmul_q8_panel)[a->type](a);
    else
        multiply(a);
}

matmul_fn *const matmul_q8_table_amx[DT_COUNT] = {
    [DT_Q4_0] = matmul,    [DT_Q4_1] = matmul,   [DT_Q5_0] = matmul,  [DT_Q5_1] = matmul,    [DT_Q8_0] = matmul,
    [DT_Q2_K] = matmul,    [DT_Q3_K] = matmul,   [DT_Q4_K] = matmul,  [DT_Q5_K] = matmul,    [DT_Q6_K] = matmul,
    [DT_IQ4_NL] = matmul,  [DT_IQ4_XS] = matmul, [DT_MXFP4] = matmul, [DT_IQ1_S] = matmul,   [DT_IQ1_M] = matmul,
    [DT_IQ2_XXS] = matmul, [DT_IQ2_XS] = matmul, [DT_IQ2_S] = matmul, [DT_IQ3_XXS] = matmul, [DT_IQ3_S] = matmul,
    [DT_TQ1_0] = matmul,   [DT_TQ2_0] = matmul, [DT_Q1_0] = matmul,
    [DT_Q2_0] = matmul, [DT_NVFP4] = matmul,
};
