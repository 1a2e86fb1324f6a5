// Matmul of many columns by AVX-512: a panel of 64 rows by 256 elements is unpacked once, and all columns are
// multiplied with it.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da,
// D).
// Here lane r of a register belongs to row r, so that nothing has to be added up across lanes:
//   - Weights are unpacked to unsigned bytes [k / 4][row][4]. vpdpbusd multiplies four bytes of 16 rows with four
//     bytes of one column, which are broadcast. A tile of 32 rows and 8 columns keeps 16 sums in flight with 2 loads
//     and 8 broadcasts per step. With 12 sums, products would wait for earlier ones a tenth of the time.
//   - Few columns (up to NARROW_MAX) are memory-bound, so what counts is the order in which memory is read. They use a
//     panel of 16 rows, and these are read through all of k before the next 16: the hardware prefetcher follows so few
//     streams. With a panel of 64 rows, only one block of each row is read before the next row, and the prefetcher
//     follows none of them. Where streams are read (reads_streams), the tiles also prefetch the 16 rows below, some
//     cache lines per turn of their loops, so that memory is busy while they multiply. (On CPUs with spare_adders most
//     types' few columns are served by avx512/transposed.c.)
//   - The sum of a run of elements starts with minus the offset of the weights times the sum of the run's
//     activations. So the offset costs nothing, and it centres the weights: the sum of a run of the right length fits
//     16 bits. Then vpdpwssd with the pair (scale, 0) multiplies and adds in one operation, where vpmulld and vpaddd
//     take three. (The upper half of the sum is only its sign, and is multiplied by 0.)
//   - Where the CPU has spare_adders, a tile of 16 rows and 8 columns sums two such runs at once; these sums and
//     those of a block still fit the registers. A shift and a blend join two 16-bit sums in a word, and vpdpwssd
//     multiplies both by their scales. There vpdpbusd broadcasts its operand from memory itself, also for blocks of
//     32.
//   - How many elements a run may have depends on how large the activations can be, since its sum must fit 16 bits.
//     RUNS_ANY allows for the largest activations that are possible. Almost all activations are at most half as large.
//     So there is a second set of tiles, RUNS_MILD, for columns in which the sum of |q| over each run is below a limit
//     of the type. With it, Q6_K has runs of 16 instead of 8 and Q5_K of 32 instead of 16. Q4_K then needs no offset
//     to centre its weights; because these are unsigned, the offset would have to be added back for each block.
//   - The products of weights and scales of Q2_K and Q3_K still fit bytes, and TQ1_0 and TQ2_0 have no scales. With
//     RUNS_WHOLE a block is one run.
//   - The panel stays in the L1 cache while the columns are multiplied. Their float sums D are kept in scratch until
//     the next span of k. Two panels alternate, because columns come from far away and are prepared once for both.
// Operations per register of rows and column in a block, 64 of which are vpdpbusd: Q4_K 85 (mild 81), Q5_K 93 (85),
// Q6_K 99 (83), Q2_K 93 (whole 77), Q3_K 83 (67), IQ4_XS 91; eight blocks of 32 81, with minima 89. With two runs at
// once only multiplications count: Q4_K 79 (75), Q5_K 83 (79), Q6_K 82 (74), Q3_K 74.
// avx512/matmul_q8.c chooses this for more columns than are served in place, unless transposed.c serves them;
// amx/matmul_q8.c also chooses it below its own limits.
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/tile.h"

enum {
    TILE_ROWS = 32,
    NARROW_MAX = 8, // up to so many columns a panel has 16 rows, unless the columns are in tiles
    TILE_COLUMNS_MIN = 3,
    PANELS = 2, // panels that alternate
    HEIGHT = PANELS * PANEL,
    COLUMNS_MAX = 512, // the most columns that the two panels are multiplied with at once
    WHOLE_MIN = 32,    // the least columns for which it pays to multiply the weights by their scales beforehand
    TILES_MAX = COLUMNS_MAX / TILE_COLUMNS,
};

// The contents of a thread's scratch.
struct work {
    struct panel panel;
    struct columns columns[TILES_MAX]; // of all tiles in a span; or of one tile of few columns in several spans
    // D of each panel and tile, kept until the next span; see partial_at.
    _Alignas(64) float d[PANELS][TILES_MAX][TILE_COLUMNS * PANEL];
};
_Static_assert(sizeof(struct work) <= SCRATCH_BYTES, "a panel and its sums fit the scratch");

// ---- tiles: n columns by `regs` registers of rows, from row `lane` on. n and regs are compile-time constants: all
// loops are unrolled, and the arrays are registers.

enum { REGS_MAX = 2 };
typedef __m512i tile_sums[TILE_COLUMNS][REGS_MAX];

INLINE void set_zero(tile_sums sum, int n, int regs)
{
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++)
            sum[j][i] = _mm512_setzero_si512();
}

// Only tiles of 16 rows prefetch. With 32 rows, whose sums fill the registers, it costs 3 to 5% more time than it
// saves.
INLINE struct line_prefetch prefetch_of_tile(const struct panel *p, int turns, int regs)
{
    if (regs > 1)
        return (struct line_prefetch){NULL, NULL, 0};
    return (struct line_prefetch){p->prefetch, p->prefetch + 64 * p->prefetch_count,
                                  (p->prefetch_count + turns - 1) / turns};
}

// Sets the sums of a run to the values that they start with. The start of column j is at 32 j.
INLINE void set_start(tile_sums acc, const int32_t *start, int n, int regs)
{
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++)
            acc[j][i] = _mm512_set1_epi32(start[32 * j]);
}

// Bytes from elements k .. k + n - 1 of a column to the next ones: columns are stored in pieces of 64.
INLINE size_t step_from(const struct columns *c, int k, int n)
{
    return (k + n) % Q8_TILE_WIDTH ? (size_t)n : (size_t)n + c->piece - Q8_TILE_WIDTH;
}

// acc += w . q over `length` elements from `at` on. w points at the tile's rows in the words of element 0.
// from_memory: products broadcast activations from memory themselves, not from registers.
INLINE void dot_words(tile_sums acc, const uint8_t *w, const int8_t *const *q, int at, int length, int n, int regs,
                      bool from_memory)
{
    UNROLL_FOR (int k = at; k < at + length; k += 4) {
        __m512i v[REGS_MAX];
        UNROLL_FOR (int i = 0; i < regs; i++)
            v[i] = _mm512_load_si512(w + k * PANEL + 64 * i);
        UNROLL_FOR (int j = 0; j < n; j++) {
            const __m512i b = broadcast_32(q[j] + k);
            UNROLL_FOR (int i = 0; i < regs; i++)
                acc[j][i] = from_memory ? dot_all(acc[j][i], v[i], q[j] + k) : _mm512_dpbusd_epi32(acc[j][i], v[i], b);
        }
    }
}

// How the sums of runs are scaled:
//   SCALES_OF_16_BITS       sums fit 16 bits and start with minus their offset
//   SCALES_OFFSET_RESTORED  the same, and the offset is added again, because the weights are meant to be unsigned
//   SCALES_FROM_ZERO        sums fit 16 bits and start with 0
//   SCALES_OF_32_BITS       sums need 32 bits
enum scaling { SCALES_OF_16_BITS, SCALES_OFFSET_RESTORED, SCALES_FROM_ZERO, SCALES_OF_32_BITS };

// sum += acc . (int16 pairs of the rows)
INLINE void add_scaled(tile_sums sum, tile_sums acc, const int32_t *scale, int n, int regs)
{
    UNROLL_FOR (int i = 0; i < regs; i++) {
        const __m512i s = _mm512_load_si512(scale + 16 * i);
        UNROLL_FOR (int j = 0; j < n; j++)
            sum[j][i] = _mm512_dpwssd_epi32(sum[j][i], acc[j][i], s);
    }
}

// sum += acc * scale, for sums that need 32 bits
INLINE void add_multiplied(tile_sums sum, tile_sums acc, const int32_t *scale, int n, int regs)
{
    UNROLL_FOR (int i = 0; i < regs; i++) {
        const __m512i s = _mm512_load_si512(scale + 16 * i);
        UNROLL_FOR (int j = 0; j < n; j++)
            sum[j][i] = _mm512_add_epi32(sum[j][i], _mm512_mullo_epi32(acc[j][i], s));
    }
}

// sum += pairs s of the rows . pairs s of the columns, which have `pairs` each
INLINE void add_pairs(tile_sums sum, const int32_t *rows, const struct columns *c, int s, int n, int regs, int pairs)
{
    __m512i v[REGS_MAX];
    UNROLL_FOR (int i = 0; i < regs; i++)
        v[i] = _mm512_load_si512(rows + 16 * i);
    UNROLL_FOR (int j = 0; j < n; j++) {
        const __m512i x = broadcast_32(c->pairs + 2 * (j * pairs + s));
        UNROLL_FOR (int i = 0; i < regs; i++)
            sum[j][i] = _mm512_dpwssd_epi32(sum[j][i], v[i], x);
    }
}

// The floats of a block of 256. `mins` says whether the type has minima.
INLINE void finish_block(const struct panel *p, int lane, const struct columns *c, float *out, tile_sums sum,
                         tile_sums min, int n, int regs, bool mins)
{
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++) {
            int at = lane + 16 * i;
            __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[j][i]), _mm512_load_ps(p->d[0] + at));
            if (mins)
                s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min[j][i]), _mm512_load_ps(p->m[0] + at), s);
            add_to_partial(out, at, s, c, j);
        }
}

// Finishes a block of 256 after its runs: adds the minima, in min_pairs pairs, and restores offsets.
INLINE void add_mins(const struct panel *p, int lane, const struct columns *c, float *out, tile_sums sum, int n,
                     int regs, bool restores_offset, int min_pairs)
{
    tile_sums min;
    set_zero(min, n, regs);
    UNROLL_FOR (int s = 0; s < min_pairs; s++) {
        if (restores_offset)
            add_pairs(sum, p->restore[s] + lane, c, s, n, regs, min_pairs);
        add_pairs(min, p->min[s] + lane, c, s, n, regs, min_pairs);
    }
    finish_block(p, lane, c, out, sum, min, n, regs, min_pairs > 0);
}

// Multiplies blocks of 256 in runs of `run` elements, with a scale for each `per_scale` elements. Minima are
// min_pairs pairs.
INLINE void tile_scaled(const struct panel *p, int lane, const struct columns *c, float *out, int n, int regs, int run,
                        int per_scale, enum scaling scaling, int min_pairs)
{
    tile_sums sum, acc;
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    const int32_t *scale = p->scale[0] + lane, *start = c->start[0];
    struct line_prefetch prefetch = prefetch_of_tile(p, SPAN / per_scale, regs);
    set_zero(sum, n, regs);
#pragma GCC unroll 1
    for (int k = 0; k < SPAN; k += per_scale) {
        prefetch_lines(&prefetch);
        UNROLL_FOR (int r = 0; r < per_scale / run; r++) {
            if (scaling == SCALES_FROM_ZERO)
                set_zero(acc, n, regs);
            else
                set_start(acc, start + r, n, regs);
            dot_words(acc, w, q, r * run, run, n, regs, false);
            if (scaling == SCALES_OF_32_BITS)
                add_multiplied(sum, acc, scale, n, regs);
            else
                add_scaled(sum, acc, scale, n, regs);
        }
        for (int j = 0; j < n; j++)
            q[j] += step_from(c, k, per_scale);
        w += per_scale * PANEL;
        scale += PANEL;
        start += per_scale / run;
    }
    add_mins(p, lane, c, out, sum, n, regs, scaling == SCALES_OFFSET_RESTORED, min_pairs);
}

// The sums of two adjacent runs at once, by columns. They start with the values in `start`, or with 0 where it is
// NULL.
INLINE void dot_two_runs(run_sums first, run_sums second, const uint8_t *w, const int8_t *const *q,
                         const int32_t *start, int n, int run)
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        first[j] = start ? _mm512_set1_epi32(start[32 * j]) : _mm512_setzero_si512();
        second[j] = start ? _mm512_set1_epi32(start[32 * j + 1]) : _mm512_setzero_si512();
    }
    UNROLL_FOR (int k = 0; k < run; k += 4) {
        const __m512i v = _mm512_load_si512(w + k * PANEL), u = _mm512_load_si512(w + (run + k) * PANEL);
        UNROLL_FOR (int j = 0; j < n; j++) {
            first[j] = dot_all(first[j], v, q[j] + k);
            second[j] = dot_all(second[j], u, q[j] + run + k);
        }
    }
}

// sum += first * its scale + second * its scale; `share`: both have the same scale.
INLINE void add_two_scaled(run_sums sum, run_sums first, run_sums second, const int32_t *scale, int n, bool share)
{
    const __m512i low = _mm512_load_si512(scale), high = share ? low : _mm512_load_si512(scale + PANEL);
    const __m512i scales = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    UNROLL_FOR (int j = 0; j < n; j++)
        sum[j] = _mm512_dpwssd_epi32(sum[j], join_sums(first[j], second[j], 16), scales);
}

// tile_scaled for 16 rows, with two runs at once.
INLINE void two_scaled(const struct panel *p, int lane, const struct columns *c, float *out, int n, int run,
                       int per_scale, enum scaling scaling, int min_pairs)
{
    const bool share = per_scale > run;
    tile_sums sums;
    run_sums sum, first, second;
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    const int32_t *scale = p->scale[0] + lane, *start = c->start[0];
    UNROLL_FOR (int j = 0; j < n; j++)
        sum[j] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (int k = 0; k < SPAN; k += 2 * run) {
        dot_two_runs(first, second, w, q, scaling == SCALES_FROM_ZERO ? NULL : start, n, run);
        add_two_scaled(sum, first, second, scale, n, share);
        for (int j = 0; j < n; j++)
            q[j] += step_from(c, k, 2 * run);
        w += 2 * run * PANEL;
        scale += (share ? 1 : 2) * PANEL;
        start += 2;
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        sums[j][0] = sum[j];
    add_mins(p, lane, c, out, sums, n, 1, scaling == SCALES_OFFSET_RESTORED, min_pairs);
}

// Multiplies blocks of 256 whose weights have been multiplied by their scales: one run.
INLINE void tile_whole(const struct panel *p, int lane, const struct columns *c, float *out, int n, int regs,
                       int min_pairs)
{
    enum { STEP = 32 };
    tile_sums sum, min;
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    set_start(sum, c->start[0], n, regs);
#pragma GCC unroll 1
    for (int k = 0; k < SPAN; k += STEP) {
        dot_words(sum, w, q, 0, STEP, n, regs, false);
        for (int j = 0; j < n; j++)
            q[j] += step_from(c, k, STEP);
        w += STEP * PANEL;
    }
    set_zero(min, n, regs);
    UNROLL_FOR (int s = 0; s < min_pairs; s++)
        add_pairs(min, p->min[s] + lane, c, s, n, regs, min_pairs);
    finish_block(p, lane, c, out, sum, min, n, regs, min_pairs > 0);
}

// Multiplies blocks of 32, a run each, whose sums S are floats. For runs of 16 (NVFP4) the factors are in `scale`.
INLINE void tile_blocks(const struct panel *p, int lane, const struct columns *c, int n_blocks, float *out, int n,
                        int regs, int run, bool mins, bool from_memory)
{
    tile_sums acc;
    __m512 sum[TILE_COLUMNS][REGS_MAX];
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    struct line_prefetch prefetch = prefetch_of_tile(p, SPAN / run, regs);
    const float *d = (run == 16 ? (const float *)p->scale[0] : p->d[0]) + lane, *m = p->m[0] + lane;
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++)
            sum[j][i] = _mm512_setzero_ps();
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks * 32 / run; b++) {
        prefetch_lines(&prefetch);
        set_start(acc, c->start[0] + b, n, regs);
        dot_words(acc, w, q, 0, run, n, regs, from_memory);
        UNROLL_FOR (int i = 0; i < regs; i++) {
            const __m512 scale = _mm512_load_ps(d + 16 * i), min = _mm512_load_ps(m + 16 * i);
            UNROLL_FOR (int j = 0; j < n; j++) {
                sum[j][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[j][i]), scale, sum[j][i]);
                if (mins)
                    sum[j][i] = _mm512_fmadd_ps(_mm512_set1_ps(c->sums[j][b]), min, sum[j][i]);
            }
        }
        for (int j = 0; j < n; j++)
            q[j] += step_from(c, b * run, run);
        w += run * PANEL;
        d += PANEL;
        m += PANEL;
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++)
            add_to_partial(out, lane + 16 * i, sum[j][i], c, j);
}

// The tile functions of a type. Each shape of a tile is a function of its own.
typedef void tile_fn(const struct panel *p, int lane, const struct columns *c, int n_blocks, float *out);
struct tiles {
    tile_fn *wide[TILE_COLUMNS + 1];   // 32 rows; 3 columns and more, since tiles have about equal widths
    tile_fn *narrow[TILE_COLUMNS + 1]; // 16 rows; 3 columns and more
    tile_fn *spare[TILE_COLUMNS + 1];  // for CPUs with spare_adders, of spare_rows rows
    int spare_rows;                    // 0: there are none
};

#define TILE(kind, N, REGS, ...)                                                                                       \
    static void kind##_##N##x##REGS(const struct panel *p, int lane, const struct columns *c, int n_blocks,            \
                                    float *out)                                                                        \
    {                                                                                                                  \
        enum { n = N, regs = REGS };                                                                                   \
        (void)n_blocks;                                                                                                \
        __VA_ARGS__;                                                                                                   \
    }
#define TILES_OF(regs, kind, ...)                                                                                      \
    TILE(kind, 3, regs, __VA_ARGS__)                                                                                   \
    TILE(kind, 4, regs, __VA_ARGS__)                                                                                   \
    TILE(kind, 5, regs, __VA_ARGS__)                                                                                   \
    TILE(kind, 6, regs, __VA_ARGS__)                                                                                   \
    TILE(kind, 7, regs, __VA_ARGS__)                                                                                   \
    TILE(kind, 8, regs, __VA_ARGS__)
#define BY_WIDTH(kind, regs)                                                                                           \
    {                                                                                                                  \
        [3] = kind##_3x##regs, kind##_4x##regs, kind##_5x##regs, kind##_6x##regs, kind##_7x##regs, kind##_8x##regs     \
    }
#define TILES(kind, ...)                                                                                               \
    TILES_OF(2, kind, __VA_ARGS__)                                                                                     \
    TILES_OF(1, kind, __VA_ARGS__)                                                                                     \
    static const struct tiles kind = {.wide = BY_WIDTH(kind, 2), .narrow = BY_WIDTH(kind, 1)};
#define TILES_AND_SPARE(kind, spare_regs, by_spare, ...)                                                               \
    TILES_OF(2, kind, __VA_ARGS__)                                                                                     \
    TILES_OF(1, kind, __VA_ARGS__)                                                                                     \
    TILES_OF(spare_regs, kind##_spare, by_spare)                                                                       \
    static const struct tiles kind = {.wide = BY_WIDTH(kind, 2),                                                       \
                                      .narrow = BY_WIDTH(kind, 1),                                                     \
                                      .spare = BY_WIDTH(kind##_spare, spare_regs),                                     \
                                      .spare_rows = 16 * (spare_regs)};
// Tiles that also have a variant for CPUs with spare_adders. The arguments after `kind` are those that both variants
// share.
//
// TILE(kind, N, REGS, call): the function of N columns and REGS registers of rows.
// TILES(kind, call), TILES_AND_SPARE(kind, spare_regs, spare_call, call): all functions of a kind, and its struct
// tiles.
#define SCALED_TILES(kind, ...)                                                                                        \
    TILES_AND_SPARE(kind, 1, two_scaled(p, lane, c, out, n, __VA_ARGS__),                                              \
                    tile_scaled(p, lane, c, out, n, regs, __VA_ARGS__))
#define BLOCK_TILES(kind, ...)                                                                                         \
    TILES_AND_SPARE(kind, 2, tile_blocks(p, lane, c, n_blocks, out, n, regs, __VA_ARGS__, true),                       \
                    tile_blocks(p, lane, c, n_blocks, out, n, regs, __VA_ARGS__, false))

// clang-format off
SCALED_TILES(tiles_q2_k, 16, 16, SCALES_FROM_ZERO, 8)
SCALED_TILES(tiles_q3_k, 16, 16, SCALES_OF_16_BITS, 0)
SCALED_TILES(tiles_q4_k, 32, 32, SCALES_OFFSET_RESTORED, 4)
SCALED_TILES(tiles_q5_k, 16, 32, SCALES_OFFSET_RESTORED, 4)
SCALED_TILES(tiles_q6_k, 8, 16, SCALES_OF_16_BITS, 0)
SCALED_TILES(tiles_q4_k_mild, 32, 32, SCALES_FROM_ZERO, 4)
SCALED_TILES(tiles_q5_k_mild, 32, 32, SCALES_OFFSET_RESTORED, 4)
SCALED_TILES(tiles_q6_k_mild, 16, 16, SCALES_OF_16_BITS, 0)
SCALED_TILES(tiles_ternary, 32, 32, SCALES_OF_16_BITS, 0)
TILES(tiles_whole, tile_whole(p, lane, c, out, n, regs, 0))
TILES(tiles_whole_mins, tile_whole(p, lane, c, out, n, regs, 8))
TILES(tiles_iq4_xs, tile_scaled(p, lane, c, out, n, regs, 32, 32, SCALES_OF_32_BITS, 0))
TILES(tiles_codebook_16, tile_scaled(p, lane, c, out, n, regs, 16, 16, SCALES_OF_32_BITS, 0))
BLOCK_TILES(tiles_32, 32, false)
BLOCK_TILES(tiles_nvfp4, 16, false)
BLOCK_TILES(tiles_32_mins, 32, true)

// By type and run form; NULL where a type has no such form.
static const struct tiles *const tiles_of[DT_COUNT][RUNS_COUNT] = {
    [DT_Q4_0] = {&tiles_32},   [DT_Q5_0] = {&tiles_32},   [DT_Q8_0] = {&tiles_32},       [DT_IQ4_NL] = {&tiles_32},
    [DT_MXFP4] = {&tiles_32},  [DT_Q4_1] = {&tiles_32_mins}, [DT_Q5_1] = {&tiles_32_mins}, [DT_IQ4_XS] = {&tiles_iq4_xs},
    [DT_Q2_K] = {&tiles_q2_k, NULL, &tiles_whole_mins}, [DT_Q3_K] = {&tiles_q3_k, NULL, &tiles_whole},
    [DT_Q4_K] = {&tiles_q4_k, &tiles_q4_k_mild}, [DT_Q5_K] = {&tiles_q5_k, &tiles_q5_k_mild},
    [DT_Q6_K] = {&tiles_q6_k, &tiles_q6_k_mild},
    [DT_IQ1_S] = {&tiles_q3_k}, [DT_IQ1_M] = {&tiles_q3_k}, [DT_IQ2_XXS] = {&tiles_iq4_xs}, [DT_IQ2_XS] = {&tiles_codebook_16},
    [DT_IQ2_S] = {&tiles_codebook_16}, [DT_IQ3_XXS] = {&tiles_iq4_xs}, [DT_IQ3_S] = {&tiles_q3_k}, [DT_TQ1_0] = {&tiles_ternary, NULL, &tiles_whole},
    [DT_TQ2_0] = {&tiles_ternary, NULL, &tiles_whole}, [DT_Q1_0] = {&tiles_32}, [DT_Q2_0] = {&tiles_32},
    [DT_NVFP4] = {&tiles_nvfp4},
};
// clang-format on

// ---- columns

// Sums of |q| over the sixteen runs of 16 of a span. The two halves of a run of 32 are in neighbouring quarters, 0
// and 1 or 2 and 3. |q| is computed as the distance of q + 128 from 128.
INLINE __m512i magnitudes_of_16(const int8_t *q)
{
    const __m512i top = _mm512_set1_epi8((char)0x80);
    __m512i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_sad_epu8(_mm512_xor_si512(load_512(q + 64 * i), top), top);
    __m512i of_8 = _mm512_packus_epi32(_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
    return _mm512_madd_epi16(of_8, _mm512_set1_epi16(1));
}

// Stores the sums over 32 elements, from the sums over 16.
INLINE void put_sums_of_32(int16_t *to, const int16_t *sums)
{
    __m256i of_32 = _mm256_madd_epi16(load_256(sums), _mm256_set1_epi16(1));
    _mm_storeu_si128((__m128i *)to, _mm256_cvtepi32_epi16(of_32));
}

// Whether all of the columns' sums over runs of 16, or of 32, are at most `most`.
INLINE bool magnitudes_of_16_within(const struct columns *c, int most)
{
    __m512i max = _mm512_setzero_si512();
    for (int j = 0; j < c->n; j++)
        max = _mm512_max_epi32(max, magnitudes_of_16(c->q[j]));
    return !_mm512_cmpgt_epi32_mask(max, _mm512_set1_epi32(most));
}

INLINE bool magnitudes_of_32_within(const struct columns *c, int most)
{
    __m512i max = _mm512_setzero_si512();
    for (int j = 0; j < c->n; j += 2) {
        __m512i m = _mm512_packus_epi32(magnitudes_of_16(c->q[j]), magnitudes_of_16(c->q[MIN(j + 1, c->n - 1)]));
        max = _mm512_max_epu16(max, _mm512_add_epi16(m, _mm512_shuffle_i32x4(m, m, 0xb1)));
    }
    return !_mm512_cmpgt_epu16_mask(max, _mm512_set1_epi16((short)most));
}

// Sets up columns first .. first + n - 1 of this span from x_tiles. Returns whether they are mild (see RUNS_MILD).
static bool look_up_tiles(const struct matmul_args *a, int first, int n, int64_t span, struct columns *c)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    struct q8_tiles t = q8_tiles_at(a->x_tiles, a->n_tiled, span);
    first += a->x_first;
    int most = 0;
    for (int j = 0; j < c->n; j++) {
        int at = first + j;
        c->q[j] = q8_tiles_quants(&t, at);
        c->q_sums[j] = t.sums[at];
    }
    for (int j = 0; j < n; j++)
        most = MAX(most, t.most[first + j][u->mild_run == 16 ? MOST_OF_16 : MOST_OF_32]);
    c->piece = Q8_TILE_COLUMNS * Q8_TILE_WIDTH;
    c->da = t.d + first;
    c->pairs = u->pairs_of == 16 ? t.sums[first] : t.sums_of_32[first];
    return most <= u->mild_most;
}

// The same from the columns' rows.
static bool look_up_rows(const struct matmul_args *a, int first, int n, int64_t span, struct columns *c)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    for (int j = 0; j < n; j++) {
        const void *x = a->x[first + j];
        c->q[j] = q8_quants(x) + span * SPAN;
        c->q_sums[j] = q8_sums(x, a->k) + span * Q8_SUMS;
        c->own_da[j] = q8_scales(x, a->k)[span];
        if (u->pairs_of == 16)
            memcpy(c->own_pairs + j * Q8_SUMS, c->q_sums[j], Q8_SUMS * sizeof(int16_t));
        else if (u->pairs_of == 32)
            put_sums_of_32(c->own_pairs + j * (Q8_SUMS / 2), c->q_sums[j]);
    }
    c->piece = Q8_TILE_WIDTH;
    c->da = c->own_da;
    c->pairs = c->own_pairs;
    return u->mild_run == 16   ? magnitudes_of_16_within(c, u->mild_most)
           : u->mild_run == 32 ? magnitudes_of_32_within(c, u->mild_most)
                               : false;
}

void ISA_FN(matmul_q8_prepare_columns)(const struct matmul_args *a, int first, int n, int width, int64_t span,
                                       bool whole, struct columns *c)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    c->n = width;
    bool mild = a->x_tiles ? look_up_tiles(a, first, n, span, c) : look_up_rows(a, first, n, span, c);
    c->run_form = whole ? RUNS_WHOLE : mild && u->mild_run ? RUNS_MILD : RUNS_ANY;
    void (*prepare)(struct columns * c) = whole                      ? u->prepare_whole
                                          : c->run_form == RUNS_MILD ? u->prepare_mild
                                                                     : u->prepare;
    if (prepare)
        prepare(c);
}

// Prefetches the outputs of some columns, which will be stored soon.
static void prefetch_outputs(const struct matmul_args *a, int first, int n, int row, int rows)
{
    for (int j = 0; j < n; j++)
        for (int r = 0; r < rows; r += GROUP)
            _mm_prefetch((const char *)(a->y[first + j] + row + r), _MM_HINT_T0);
}

// ---- all rows and columns

// Lets the tiles of this span of 16 rows prefetch as many bytes of the 16 rows below, in the order of memory.
static void prefetch_below(const struct matmul_args *a, int row, int64_t span, struct panel *p)
{
    const size_t bytes = GROUP * dtype_row_bytes(a->type, SPAN);
    p->prefetch = row_to_prefetch(a, row + GROUP) + (size_t)span * bytes;
    p->prefetch_count = reads_streams(a->reading) ? (int)((bytes + 63) / 64) : 0;
}

// Few columns, which are one tile: 16 rows at a time, through all of k. The columns are prepared once for all rows
// where the scratch has room for that many spans.
static void multiply_narrow(const struct matmul_args *a)
{
    struct work *w = a->scratch;
    int64_t spans = q8_blocks(a->k);
    for (int row = 0; row < a->n_rows; row += GROUP) {
        int rows = MIN(a->n_rows - row, (int)GROUP);
        set_partial(w->d[0][0], a->n_x, GROUP);
        for (int64_t span = 0; span < spans; span++) {
            struct columns *c = &w->columns[MIN(span, (int64_t)TILES_MAX - 1)];
            if (row == 0 || span >= TILES_MAX - 1)
                ISA_FN(matmul_q8_prepare_columns)(a, 0, a->n_x, a->n_x, span, false, c);
            ISA_FN(matmul_q8_unpack_panel)(a, row, rows, GROUP, span, &w->panel);
            prefetch_below(a, row, span, &w->panel);
            tiles_of[a->type][c->run_form]->narrow[a->n_x](&w->panel, 0, c, blocks_in_span(a, span), w->d[0][0]);
        }
        store_columns(a, 0, a->n_x, row, rows, w->d[0][0]);
    }
}

// The tile function for a number of columns on this CPU, and the number of its rows.
struct choice {
    tile_fn *tile;
    int rows;
};

static struct choice choose_tile(const struct matmul_args *a, enum run_form run_form, int width)
{
    const struct tiles *t = tiles_of[a->type][run_form];
    if (a->spare_adders && t->spare_rows)
        return (struct choice){t->spare[width], t->spare_rows};
    return (struct choice){t->wide[width], TILE_ROWS};
}

// A part of the columns, in tiles of about equal width.
struct part {
    int first, n, tiles;
    bool whole;
};

static int width_of(const struct part *p, int tile)
{
    return p->n / p->tiles + (tile < p->n % p->tiles);
}

// Multiplies all columns of the part with the panel of `rows` rows from `row` on. The first of the panels prepares
// them. Finished sums are stored tile by tile, so that the cache misses on y overlap with the next tiles. Where rows
// end within a tile, the tile multiplies what an older panel has left there, and the results are not stored.
static void sweep(const struct matmul_args *a, const struct part *part, int row, int rows, int panel, int64_t span)
{
    struct work *w = a->scratch;
    const bool last = span == q8_blocks(a->k) - 1;
    for (int t = 0, j = 0, n; t < part->tiles; t++, j += n) {
        struct columns *c = &w->columns[t];
        float *d = w->d[panel][t];
        n = width_of(part, t);
        const int width = MAX(n, (int)TILE_COLUMNS_MIN);
        if (panel == 0)
            ISA_FN(matmul_q8_prepare_columns)(a, part->first + j, n, width, span, part->whole, c);
        if (span == 0)
            set_partial(d, width, PANEL);
        const struct choice choice = choose_tile(a, c->run_form, width);
        for (int lane = 0; lane < rows; lane += choice.rows) {
            if (last && t + 1 < part->tiles)
                prefetch_outputs(a, part->first + j + n, width_of(part, t + 1), row + lane, choice.rows);
            choice.tile(&w->panel, lane, c, blocks_in_span(a, span), d);
        }
        if (last)
            store_columns(a, part->first + j, n, row, rows, d);
    }
}

static void multiply_panels(const struct matmul_args *a, const struct part *part, int row)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    struct work *w = a->scratch;
    for (int64_t span = 0; span < q8_blocks(a->k); span++)
        for (int i = 0; i < PANELS && row + i * PANEL < a->n_rows; i++) {
            int first = row + i * PANEL, rows = MIN(a->n_rows - first, (int)PANEL);
            ISA_FN(matmul_q8_unpack_panel)(a, first, rows, HEIGHT, span, &w->panel);
            if (part->whole && u->fold_scales)
                u->fold_scales(&w->panel);
            sweep(a, part, first, rows, i, span);
        }
}

static void multiply(const struct matmul_args *a)
{
    if (a->n_x <= NARROW_MAX && !a->x_tiles) {
        multiply_narrow(a);
        return;
    }
    int parts = (a->n_x + COLUMNS_MAX - 1) / COLUMNS_MAX;
    for (int row = 0; row < a->n_rows; row += HEIGHT)
        for (int i = 0, first = 0, n; i < parts; i++, first += n) {
            n = a->n_x / parts + (i < a->n_x % parts);
            struct part part = {first, n, (n + TILE_COLUMNS - 1) / TILE_COLUMNS,
                                n >= WHOLE_MIN && tiles_of[a->type][RUNS_WHOLE]};
            multiply_panels(a, &part, row);
        }
}

matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT] = {
    [DT_Q4_0] = multiply,   [DT_Q4_1] = multiply,  [DT_Q5_0] = multiply,    [DT_Q5_1] = multiply,
    [DT_Q8_0] = multiply,   [DT_Q2_K] = multiply,  [DT_Q3_K] = multiply,    [DT_Q4_K] = multiply,
    [DT_Q5_K] = multiply,   [DT_Q6_K] = multiply,  [DT_IQ4_NL] = multiply,  [DT_IQ4_XS] = multiply,
    [DT_MXFP4] = multiply,  [DT_IQ1_S] = multiply, [DT_IQ1_M] = multiply,   [DT_IQ2_XXS] = multiply,
    [DT_IQ2_XS] = multiply, [DT_IQ2_S] = multiply, [DT_IQ3_XXS] = multiply, [DT_IQ3_S] = multiply,
    [DT_TQ1_0] = multiply,  [DT_TQ2_0] = multiply, [DT_Q1_0] = multiply,    [DT_Q2_0] = multiply,
    [DT_NVFP4] = multiply,
};
