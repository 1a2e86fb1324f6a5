// The 8-bit matmul of AMX: many columns of blocks of 256 by matrix tiles; the rest as AVX-512 does it.
//
// A tile product forms 16 columns x 16 rows x 64 elements, eight times what vpdpbusd does in that time, but it knows no
// scales: what a scale must multiply has to leave the tile first. So the scales go in beforehand. Blocks are unpacked as for
// AVX-512, and go into two planes of bytes, high and low, of the weights times their integer scales (put_scaled):
// w * scale = high * 2^shift + low.
//   Q2_K, Q4_K, Q5_K  scale = 8 s1 + s0, high = w * s1, low = w * s0: unsigned, at most 31 * 7 = 217 (shift 3)
//   all others        |w * scale| <= 4096 with its sign: high = (product + 32) >> 6, |high| <= 64, and low is what is left,
//                     -32 .. 31 (shift 6)
// Then a whole block is summed up in the tiles, and isum = (sum of high << shift) + sum of low, exact as ever. Types
// with blocks of 32 have floats for scales: their sums would leave the tiles after every 32 elements, which gains
// nothing.
//
// What comes out of the tiles (a register a column, a lane a row) goes through the floats of kernels.h while the next
// tiles are multiplied: it waits as the `job`. The tiles are the CPU's own state: set up and given back in each call.
#include "kernels/cpu/matmul_q8_avx512.h"

enum {
    TILE_COLS = 16,          // columns of activations a tile: its rows, as the instructions have it
    COLUMNS = 2 * TILE_COLS, // that go together
    ROWS = GROUP,            // rows of weights a tile
    SWEEP_ROWS = PLANE_ROWS, // rows whose bytes stay in the L1 cache while all columns pass
    HEIGHT = 128, // rows that do so in turn, span by span: columns that come from far away come once for them
    SWEEPS = HEIGHT / SWEEP_ROWS,
    COLUMNS_MAX = 512, // that they serve
};

// ---- tiles. The compiler is told that memory is read and written; the order of volatile statements stays.

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// All of 16 rows of 64 bytes. Tiles 0-3 hold sums, 4 and 5 the 64 elements of 16 columns each, 6 and 7 those of 16 rows
// of weights, in words of four.
static void configure_tiles(void)
{
    _Alignas(64) struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++)
        c.rows[t] = 16, c.row_bytes[t] = 64;
    __asm__ volatile("ldtilecfg %0" ::"m"(c) : "memory");
}

static void release_tiles(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, from, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((long)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                                      \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((long)(stride)) : "memory")
// sums t += columns a (signed) . rows b
#define TILE_DOT_UNSIGNED(t, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #t ::)
#define TILE_DOT_SIGNED(t, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #t ::)
#define TILE_DOT(is_signed, t, a, b)                                                                                   \
    do {                                                                                                               \
        if (is_signed)                                                                                                 \
            TILE_DOT_SIGNED(t, a, b);                                                                                  \
        else                                                                                                           \
            TILE_DOT_UNSIGNED(t, a, b);                                                                                \
    } while (0)

// ---- what lies in scratch

// Some of the columns: as many as the scratch holds.
struct part {
    int first, n;
};

// Up to 32 columns in a span: one group of tiles, or two.
struct tokens {
    const int8_t *quants;
    const void *sums; // pairs of them, as the type's mins want these
    const float *d;
    int first, n; // within the part
};

// D of 16 rows and 32 columns, while it waits for the next span: a register a column.
struct sums {
    _Alignas(64) float d[COLUMNS][ROWS];
};

// Sums that have left the tiles and wait for the floats.
struct job {
    struct tokens tokens; // n = 0: nothing waits
    int lane;             // first of the 16, of the panel's
    struct sums *sums;
    _Alignas(64) int32_t high[COLUMNS][ROWS], low[COLUMNS][ROWS];
};

struct work {
    _Alignas(64) plane high, low;
    struct job job;
    // In the order in which they are made and used, so that they come out of the L2 cache in one stream.
    struct sums sums[SWEEPS][COLUMNS_MAX / COLUMNS][SWEEP_ROWS / ROWS];
    _Alignas(64) int8_t gathered[COLUMNS_MAX * Q8_TILE_COLUMN_BYTES]; // tiles of a span, where the caller has none
    struct panel panel;
};
_Static_assert(sizeof(struct work) <= SCRATCH_BYTES, "a panel and the sums fit the scratch");

// ---- types

struct kind {
    bool is_signed;
    int run;  // elements a scale; 0: not by tiles
    int from; // columns that they serve better than panels do, which depends on what unpacking costs
};

// clang-format off
static const struct kind kinds[DT_COUNT] = {
    [DT_Q2_K] = {false, 16, 40},   [DT_Q3_K] = {true, 16, 44},    [DT_Q4_K] = {false, 32, 32},  [DT_Q5_K] = {false, 32, 36},
    [DT_Q6_K] = {true, 16, 44},    [DT_IQ4_XS] = {true, 32, 32},  [DT_IQ1_S] = {true, 16, 40},  [DT_IQ1_M] = {true, 16, 40},
    [DT_IQ2_XXS] = {true, 32, 32}, [DT_IQ2_XS] = {true, 16, 32},  [DT_IQ2_S] = {true, 16, 32},  [DT_IQ3_XXS] = {true, 32, 40},
    [DT_IQ3_S] = {true, 16, 44},   [DT_TQ1_0] = {true, 32, 40},   [DT_TQ2_0] = {true, 32, 40},
};
// clang-format on

// ---- columns

// The tiles of the part's columns in a span: the caller's, or made here.
static struct q8_tiles tiles_of(const struct matmul_args *a, const struct part *part, int64_t span)
{
    struct work *w = a->scratch;
    if (a->x_tiles) {
        struct q8_tiles t = q8_tiles_at(a->x_tiles, a->n_tiled, span);
        int first = a->x_first + part->first;
        return (struct q8_tiles){t.quants + (size_t)first * SPAN, t.sums + first, t.sums_of_32 + first, t.d + first};
    }
    struct q8_tiles t = q8_tiles_at(w->gathered, part->n, 0);
    for (int j = 0; j < part->n; j++)
        q8_tiles_put(&t, j, a->x[part->first + j], a->k, span);
    return t;
}

static struct tokens take_columns(const struct q8_tiles *t, const struct kind *kind, int first, int n)
{
    return (struct tokens){.quants = t->quants + (size_t)first * SPAN,
                           .sums = kind->run == 16 ? (const void *)(t->sums + first) : t->sums_of_32 + first,
                           .d = t->d + first,
                           .first = first,
                           .n = MIN(n - first, (int)COLUMNS)};
}

// ---- the floats of what has left the tiles, columns from .. to - 1

// `seen` is 0 in the first span, where there is no D to go on with.
INLINE void finish(struct work *w, __mmask16 seen, int from, int to, int shift, int min_pairs)
{
    to = MIN(to, w->job.tokens.n);
    if (from >= to)
        return;
    const int lane = w->job.lane;
    const struct tokens *t = &w->job.tokens;
    const int32_t *pairs = t->sums;
    const struct panel *panel = &w->panel;
    const __m512 d = _mm512_load_ps(panel->d[0] + lane), m = _mm512_load_ps(panel->m[0] + lane);
    __m512i min_of[8];
    UNROLL
    for (int s = 0; s < min_pairs; s++)
        min_of[s] = _mm512_load_si512(panel->min[s] + lane);
    for (int j = from; j < to; j++) {
        __m512i high = _mm512_load_si512(w->job.high[j]), low = _mm512_load_si512(w->job.low[j]);
        __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, (unsigned)shift), low), min = _mm512_setzero_si512();
        __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), d);
        UNROLL
        for (int i = 0; i < min_pairs; i++)
            min = _mm512_dpwssd_epi32(min, min_of[i], _mm512_set1_epi32(pairs[j * min_pairs + i]));
        if (min_pairs)
            s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min), m, s);
        float *total = w->job.sums->d[j];
        s = _mm512_fmadd_ps(s, _mm512_set1_ps(t->d[j]), _mm512_maskz_load_ps(seen, total));
        _mm512_store_ps(total, s);
    }
}

// ---- the tiles

// 16 rows from `lane` on with some columns, over 256 elements. The job before this one is finished meanwhile.
INLINE void multiply_tiles(struct work *w, const struct tokens *t, int lane, struct sums *sums, __mmask16 seen,
                           bool is_signed, int shift, int min_pairs)
{
    const bool both = t->n > TILE_COLS;
    const uint8_t *high = w->high[lane / ROWS][0][0], *low = w->low[lane / ROWS][0][0];
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int k = 0; k < SPAN; k += Q8_TILE_WIDTH) {
        TILE_LOAD(4, t->quants + k * TILE_COLS, Q8_TILE_WIDTH);
        TILE_LOAD(6, high + k * ROWS, 64);
        TILE_DOT(is_signed, 0, 4, 6);
        TILE_LOAD(7, low + k * ROWS, 64);
        TILE_DOT(is_signed, 1, 4, 7);
        if (both) {
            TILE_LOAD(5, t->quants + Q8_TILE_GROUP + k * TILE_COLS, Q8_TILE_WIDTH);
            TILE_DOT(is_signed, 2, 5, 6);
            TILE_DOT(is_signed, 3, 5, 7);
        }
        finish(w, seen, k / 8, k / 8 + 8, shift, min_pairs);
    }
    TILE_STORE(0, w->job.high[0], 64);
    TILE_STORE(1, w->job.low[0], 64);
    TILE_STORE(2, w->job.high[TILE_COLS], 64);
    TILE_STORE(3, w->job.low[TILE_COLS], 64);
    w->job.tokens = *t;
    w->job.lane = lane;
    w->job.sums = sums;
}

// What waits is finished, and nothing waits any more.
INLINE void finish_job(struct work *w, __mmask16 seen, int shift, int min_pairs)
{
    finish(w, seen, 0, COLUMNS, shift, min_pairs);
    w->job.tokens.n = 0;
}

// ---- all rows and columns

struct runner {
    void (*run)(struct work *w, const struct tokens *t, int lane, struct sums *sums, __mmask16 seen);
    void (*drain)(struct work *w, __mmask16 seen);
};

#define RUNNER(name, is_signed, shift, min_pairs)                                                                      \
    static void run_##name(struct work *w, const struct tokens *t, int lane, struct sums *sums, __mmask16 seen)        \
    {                                                                                                                  \
        multiply_tiles(w, t, lane, sums, seen, is_signed, shift, min_pairs);                                           \
    }                                                                                                                  \
    static void drain_##name(struct work *w, __mmask16 seen)                                                           \
    {                                                                                                                  \
        finish_job(w, seen, shift, min_pairs);                                                                         \
    }                                                                                                                  \
    static const struct runner name = {run_##name, drain_##name};

RUNNER(unsigned_mins_of_32, false, 3, 4)
RUNNER(unsigned_mins_of_16, false, 3, 8)
RUNNER(signed_no_mins, true, 6, 0)

static const struct runner *runner_of(enum dtype type)
{
    if (kinds[type].is_signed)
        return &signed_no_mins;
    return kinds[type].run == 16 ? &unsigned_mins_of_16 : &unsigned_mins_of_32;
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
    const struct runner *runner = runner_of(a->type);
    const __mmask16 seen = span ? 0xffff : 0;
    const bool last = span == q8_blocks(a->k) - 1;
    for (int j = 0; j < part->n; j += COLUMNS) {
        struct tokens t = take_columns(tiles, &kinds[a->type], j, part->n);
        struct sums *sums = w->sums[row % HEIGHT / SWEEP_ROWS][j / COLUMNS];
        if (last)
            prefetch_outputs(a, part, &t, row, rows);
        for (int lane = 0; lane < rows; lane += ROWS)
            runner->run(w, &t, lane, &sums[lane / ROWS], seen);
        if (last) {
            runner->drain(w, seen);
            store(a, part, &t, sums, row, rows);
        }
    }
    runner->drain(w, seen);
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
    configure_tiles();
    for (int row = 0; row < a->n_rows; row += HEIGHT)
        for (int first = 0; first < a->n_x; first += COLUMNS_MAX) {
            struct part part = {first, MIN(a->n_x - first, (int)COLUMNS_MAX)};
            multiply_rows(a, &part, row, MIN(row + HEIGHT, a->n_rows));
        }
    release_tiles();
}

bool matmul_q8_in_tiles_amx(enum dtype type, int64_t n)
{
    return kinds[type].run && n >= kinds[type].from;
}

static void matmul(const struct matmul_args *a)
{
    if (a->n_x <= 2)
        ISA_FN(matmul_q8_decode)[a->type](a);
    else if (!matmul_q8_in_tiles_amx(a->type, a->n_x))
        ISA_FN(matmul_q8_panel)[a->type](a);
    else
        multiply(a);
}

matmul_fn *const matmul_q8_table_amx[DT_COUNT] = {
    [DT_Q4_0] = matmul,    [DT_Q4_1] = matmul,   [DT_Q5_0] = matmul,  [DT_Q5_1] = matmul,    [DT_Q8_0] = matmul,
    [DT_Q2_K] = matmul,    [DT_Q3_K] = matmul,   [DT_Q4_K] = matmul,  [DT_Q5_K] = matmul,    [DT_Q6_K] = matmul,
    [DT_IQ4_NL] = matmul,  [DT_IQ4_XS] = matmul, [DT_MXFP4] = matmul, [DT_IQ1_S] = matmul,   [DT_IQ1_M] = matmul,
    [DT_IQ2_XXS] = matmul, [DT_IQ2_XS] = matmul, [DT_IQ2_S] = matmul, [DT_IQ3_XXS] = matmul, [DT_IQ3_S] = matmul,
    [DT_TQ1_0] = matmul,   [DT_TQ2_0] = matmul,
};
