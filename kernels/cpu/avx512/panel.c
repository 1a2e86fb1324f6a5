// Matmul of many columns by AVX-512: a panel of 64 rows by 256 elements is unpacked once, and all columns are
// multiplied with it.
//
// The naive loop: for each row, column and block of 256, isum = sum of step[j] * scale[j] * (w . q)[j]; D = fma(isum *
// d, da, D). The steps are those of the column, for 32 elements each (see kernels.h).
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
//     16 bits. Two adjacent runs are joined in a word, and one vpdpwssd multiplies both by their scales and adds them,
//     where vpmulld and vpaddd take three operations a run. Before that, one vpmullw multiplies the pair of scales by
//     the pair of the column's steps: their product is at most 128 * 16. Where weights are meant to be unsigned, the
//     product also multiplies the offset times the sums of the activations, to add these again.
//   - A tile of 32 rows sums one run after the other, and the first sums wait in memory, because not all sums fit the
//     registers. A shuffle joins them. Where the CPU has spare_adders, a tile of 16 rows and 8 columns sums two runs
//     at once; these sums and those of a block fit the registers. A shift and a blend join them. There vpdpbusd
//     broadcasts its operand from memory itself, also for blocks of 32.
//   - In types with blocks of 32, a sum is converted to a float and multiplied by its step in one operation, an fma:
//     the sum starts with the bits of a large float (STEPS_FLOAT in avx512/tile.h). Where the CPU has spare_adders,
//     integer products are cheaper.
//   - How many elements a run may have depends on how large the activations can be, since its sum must fit 16 bits.
//     RUNS_ANY allows for the largest activations that are possible. Most activations are smaller. So there is a second
//     set of tiles, RUNS_MILD, for columns in which the sum of |q| over each run is below a limit of the type. With it,
//     Q6_K has runs of 16 instead of 8 and Q5_K of 32 instead of 16. Q4_K then needs no offset to centre its weights.
//     Minima are multiplied by weighted sums of 32 instead of 16 activations. If activations are normally distributed,
//     91% of tiles of 8 columns are mild for Q4_K and Q5_K and 25% for Q6_K; with more outliers (Laplace), all and 95%.
//   - The products of weights and scales of Q2_K and Q3_K still fit bytes. With RUNS_FOLDED, which pays with
//     spare_adders, the weights of a panel are multiplied by their scales, and runs of 32 are only multiplied by steps.
//   - The panel stays in the L1 cache while the columns are multiplied. Their float sums D are kept in scratch until
//     the next span of k. Two panels alternate, because columns come from far away and are prepared once for both.
// Operations per register of rows and column in a block, 64 of which are vpdpbusd: Q4_K 93 (mild 85), Q5_K 109 (89),
// Q6_K 115 (91), Q2_K 101, Q3_K 91, IQ4_XS 99, IQ2_XS 131, TQ2_0 75; eight blocks of 32 81, with minima 89. With
// spare_adders only products of bytes, of pairs and of floats count, because other units multiply integers: Q4_K 83
// (75), Q5_K 91 (79), Q6_K 82 (74), Q2_K 83 (folded 75), Q3_K 74 (66); eight blocks of 32 73, with minima 81.
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
    // The least columns for which it pays on CPUs with spare_adders to multiply the weights by their scales beforehand.
    FOLDED_MIN = 32,
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

// Only the tiles of narrow panels prefetch. With 32 rows, whose sums fill the registers, it costs 3 to 5% more time
// than it saves.
INLINE struct line_prefetch prefetch_of_tile(const struct panel *p, int turns, bool narrow)
{
    if (!narrow)
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

// How the sums of runs of blocks of 256 are scaled:
//   SCALES_OF_16_BITS       sums fit 16 bits and start with minus their offset
//   SCALES_OFFSET_RESTORED  the same, and the offset is added again, because the weights are meant to be unsigned
//   SCALES_FROM_ZERO        sums fit 16 bits and start with 0
//   SCALES_ONE              sums fit 16 bits and start with minus their offset; the scales are 1
//   SCALES_OF_32_BITS       sums need 32 bits and start with minus their offset
//   SCALES_FOLDED           the same, but the weights have been multiplied by their scales
//   SCALES_FOLDED_FROM_ZERO the same, and sums start with 0
enum scaling {
    SCALES_OF_16_BITS,
    SCALES_OFFSET_RESTORED,
    SCALES_FROM_ZERO,
    SCALES_ONE,
    SCALES_OF_32_BITS,
    SCALES_FOLDED,
    SCALES_FOLDED_FROM_ZERO,
};

// min += minima . weighted sums of the columns
INLINE void add_mins(tile_sums min, const struct panel *p, int lane, const struct columns *c, int n, int regs,
                     enum mins mins)
{
    UNROLL_FOR (int s = 0; s < pairs_of(mins); s++) {
        __m512i v[REGS_MAX];
        UNROLL_FOR (int i = 0; i < regs; i++)
            v[i] = min_pair((const __m512i *)(p->min[0] + lane) + i, PANEL / GROUP, s, mins);
        UNROLL_FOR (int j = 0; j < n; j++) {
            const __m512i x = broadcast_32(&c->mins[j][s]);
            UNROLL_FOR (int i = 0; i < regs; i++)
                min[j][i] = _mm512_dpwssd_epi32(min[j][i], v[i], x);
        }
    }
}

// Finishes a block of 256 after its runs: adds the minima and computes the block's floats.
INLINE void finish_block(const struct panel *p, int lane, const struct columns *c, float *out, tile_sums sum, int n,
                         int regs, enum mins mins)
{
    tile_sums min;
    set_zero(min, n, regs);
    add_mins(min, p, lane, c, n, regs, mins);
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++) {
            int at = lane + 16 * i;
            __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[j][i]), _mm512_load_ps(p->d[0] + at));
            if (mins != NO_MINS)
                s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min[j][i]), _mm512_load_ps(p->m[0] + at), s);
            add_to_partial(out, at, s, c, j);
        }
}

// The sums of two adjacent runs. They start with the values in `start`, or with 0 where it is NULL. A tile of 16 rows
// computes both at once, so that its products need not wait for each other.
INLINE void dot_two_runs(tile_sums first, tile_sums second, const uint8_t *w, const int8_t *const *q,
                         const int32_t *start, int n, int regs, int run)
{
    start ? set_start(first, start, n, regs) : set_zero(first, n, regs);
    if (regs > 1)
        dot_words(first, w, q, 0, run, n, regs, false);
    start ? set_start(second, start + 1, n, regs) : set_zero(second, n, regs);
    if (regs > 1) {
        dot_words(second, w, q, run, run, n, regs, false);
        return;
    }
    UNROLL_FOR (int k = 0; k < run; k += 4) {
        dot_words(first, w, q, k, 4, n, 1, true);
        dot_words(second, w, q, run + k, 4, n, 1, true);
    }
}

// sum += first * its scale + second * its scale. The pairs `scale` of the rows are multiplied by the pair of the
// columns' steps first. `restore` has pairs of offsets that are scaled and added, too; NULL: there are none.
INLINE void add_two_scaled(tile_sums sum, tile_sums first, tile_sums second, const __m512i scale[REGS_MAX],
                           const int32_t *steps, const int32_t *restore, int n, int regs, enum scaling scaling)
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        const __m512i step = broadcast_32(steps + 8 * j);
        UNROLL_FOR (int i = 0; i < regs; i++) {
            const __m512i factor = scaling == SCALES_ONE ? step : _mm512_mullo_epi16(scale[i], step);
            const __m512i both =
                regs > 1 ? join_sums_by_shuffle(first[j][i], second[j][i]) : join_sums(first[j][i], second[j][i], 16);
            sum[j][i] = _mm512_dpwssd_epi32(sum[j][i], both, factor);
            if (restore)
                sum[j][i] = _mm512_dpwssd_epi32(sum[j][i], factor, broadcast_32(restore + 8 * j));
        }
    }
}

// Multiplies blocks of 256 in runs of `run` elements whose sums fit 16 bits, two adjacent runs together. A pair of
// scales covers `per_pair` elements: two runs, or two times two runs that share a scale.
INLINE void tile_scaled(const struct panel *p, int lane, const struct columns *c, float *out, int n, int regs,
                        bool narrow, int run, int per_pair, enum scaling scaling, enum mins mins)
{
    const int turns = per_pair / (2 * run), words = turns > 1 && per_pair > 32 ? 2 : 1; // pairs of steps per `per_pair`
    tile_sums sum, first, second;
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    const int32_t *scales = p->scale[0] + lane, *start = c->start[0], *steps = c->steps[0], *restore = c->restore[0];
    struct line_prefetch prefetch = prefetch_of_tile(p, SPAN / per_pair, narrow);
    set_zero(sum, n, regs);
#pragma GCC unroll 1
    for (int k = 0; k < SPAN; k += per_pair) {
        prefetch_lines(&prefetch);
        UNROLL_FOR (int t = 0; t < turns; t++) {
            const int8_t *at[TILE_COLUMNS];
            __m512i scale[REGS_MAX];
            for (int j = 0; j < n; j++)
                at[j] = q[j] + 2 * run * t;
            dot_two_runs(first, second, w + 2 * run * PANEL * t, at, scaling == SCALES_FROM_ZERO ? NULL : start + 2 * t,
                         n, regs, run);
            UNROLL_FOR (int i = 0; scaling != SCALES_ONE && i < regs; i++) {
                scale[i] = _mm512_load_si512(scales + 16 * i);
                scale[i] = turns > 1 ? one_of_pair(scale[i], t) : scale[i];
            }
            add_two_scaled(sum, first, second, scale, steps + (words > 1 ? t : 0),
                           scaling == SCALES_OFFSET_RESTORED ? restore + t : NULL, n, regs, scaling);
        }
        for (int j = 0; j < n; j++)
            q[j] += step_from(c, k, per_pair);
        w += per_pair * PANEL;
        scales += PANEL;
        start += 2 * turns;
        steps += words;
        restore += turns;
    }
    finish_block(p, lane, c, out, sum, n, regs, mins);
}

// sum += acc * scale * step. Of a scale the lower 16 bits are enough; with their sign they are the whole scale.
INLINE void add_multiplied(tile_sums sum, tile_sums acc, const int32_t *scale, const int32_t *steps, int n, int regs,
                           enum scaling scaling)
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        const __m512i step = broadcast_32(steps + 8 * j);
        UNROLL_FOR (int i = 0; i < regs; i++) {
            const __m512i factor =
                scaling == SCALES_OF_32_BITS ? _mm512_madd_epi16(_mm512_load_si512(scale + 16 * i), step) : step;
            sum[j][i] = _mm512_add_epi32(sum[j][i], _mm512_mullo_epi32(acc[j][i], factor));
        }
    }
}

// Multiplies blocks of 256 in runs of `run` elements (16 or 32) whose sums need 32 bits.
INLINE void tile_multiplied(const struct panel *p, int lane, const struct columns *c, float *out, int n, int regs,
                            int run, enum scaling scaling, enum mins mins)
{
    tile_sums sum, acc;
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    const int32_t *scale = p->scale[0] + lane, *start = c->start[0], *steps = c->steps[0];
    struct line_prefetch prefetch = prefetch_of_tile(p, SPAN / Q8_RUN, regs == 1);
    set_zero(sum, n, regs);
#pragma GCC unroll 1
    for (int k = 0; k < SPAN; k += Q8_RUN) {
        prefetch_lines(&prefetch);
        UNROLL_FOR (int r = 0; r < Q8_RUN / run; r++) {
            scaling == SCALES_FOLDED_FROM_ZERO ? set_zero(acc, n, regs) : set_start(acc, start + r, n, regs);
            dot_words(acc, w, q, r * run, run, n, regs, false);
            add_multiplied(sum, acc, scale + PANEL * r, steps, n, regs, scaling);
        }
        for (int j = 0; j < n; j++)
            q[j] += step_from(c, k, Q8_RUN);
        w += Q8_RUN * PANEL;
        scale += Q8_RUN / run * PANEL;
        start += Q8_RUN / run;
        steps++;
    }
    finish_block(p, lane, c, out, sum, n, regs, mins);
}

// The sum of run b, of blocks of 32 or of 16 elements, times the step of column j.
INLINE __m512 times_step(__m512i acc, const struct columns *c, int j, int b, int run, bool lifted)
{
    const int step = b * run / Q8_RUN;
    if (lifted)
        return _mm512_fmadd_ps(_mm512_castsi512_ps(acc), _mm512_set1_ps(c->step_floats[j][step]),
                               _mm512_set1_ps(c->lift[j][step]));
    return _mm512_cvtepi32_ps(_mm512_mullo_epi32(acc, broadcast_32(&c->steps[j][step])));
}

// Multiplies blocks of 32, a run each, whose sums S are floats. For runs of 16 (NVFP4) the factors are in `scale`.
// spare: for CPUs with spare_adders.
INLINE void tile_blocks(const struct panel *p, int lane, const struct columns *c, int n_blocks, float *out, int n,
                        int regs, int run, bool mins, bool spare)
{
    tile_sums acc;
    __m512 sum[TILE_COLUMNS][REGS_MAX];
    const int8_t *q[TILE_COLUMNS];
    for (int j = 0; j < n; j++)
        q[j] = c->q[j];
    const uint8_t *w = p->w[0][lane];
    struct line_prefetch prefetch = prefetch_of_tile(p, SPAN / run, regs == 1);
    const float *d = (run == 16 ? (const float *)p->scale[0] : p->d[0]) + lane, *m = p->m[0] + lane;
    UNROLL_FOR (int j = 0; j < n; j++)
        UNROLL_FOR (int i = 0; i < regs; i++)
            sum[j][i] = _mm512_setzero_ps();
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks * 32 / run; b++) {
        prefetch_lines(&prefetch);
        set_start(acc, c->start[0] + b, n, regs);
        dot_words(acc, w, q, 0, run, n, regs, spare);
        UNROLL_FOR (int i = 0; i < regs; i++) {
            const __m512 scale = _mm512_load_ps(d + 16 * i), min = _mm512_load_ps(m + 16 * i);
            UNROLL_FOR (int j = 0; j < n; j++) {
                sum[j][i] = _mm512_fmadd_ps(times_step(acc[j][i], c, j, b, run, !spare), scale, sum[j][i]);
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
    enum step_form steps, spare_steps; // of the columns, for the first two and for `spare`
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
// All tiles of a kind, and its struct tiles. The arguments after those that are named are those of the tile function.
//
// TILE(kind, N, REGS, call): the function of N columns and REGS registers of rows.
// SCALED_TILES(kind, step_form, ...): of tile_scaled. CPUs with spare_adders use tiles of 16 rows.
// MULTIPLIED_TILES(kind, ...): of tile_multiplied.
// BLOCK_TILES(kind, ...): of tile_blocks, which has a variant for CPUs with spare_adders.
#define SCALED_TILES(kind, step_form, ...)                                                                             \
    TILES_OF(2, kind, tile_scaled(p, lane, c, out, n, regs, false, __VA_ARGS__))                                       \
    TILES_OF(1, kind, tile_scaled(p, lane, c, out, n, regs, true, __VA_ARGS__))                                        \
    TILES_OF(1, kind##_spare, tile_scaled(p, lane, c, out, n, regs, false, __VA_ARGS__))                               \
    static const struct tiles kind = {.wide = BY_WIDTH(kind, 2),                                                       \
                                      .narrow = BY_WIDTH(kind, 1),                                                     \
                                      .spare = BY_WIDTH(kind##_spare, 1),                                              \
                                      .spare_rows = 16,                                                                \
                                      .steps = step_form,                                                              \
                                      .spare_steps = step_form};
#define MULTIPLIED_TILES(kind, ...)                                                                                    \
    TILES_OF(2, kind, tile_multiplied(p, lane, c, out, n, regs, __VA_ARGS__))                                          \
    TILES_OF(1, kind, tile_multiplied(p, lane, c, out, n, regs, __VA_ARGS__))                                          \
    static const struct tiles kind = {.wide = BY_WIDTH(kind, 2), .narrow = BY_WIDTH(kind, 1), .steps = STEPS_WHOLE};
#define BLOCK_TILES(kind, ...)                                                                                         \
    TILES_OF(2, kind, tile_blocks(p, lane, c, n_blocks, out, n, regs, __VA_ARGS__, false))                             \
    TILES_OF(1, kind, tile_blocks(p, lane, c, n_blocks, out, n, regs, __VA_ARGS__, false))                             \
    TILES_OF(2, kind##_spare, tile_blocks(p, lane, c, n_blocks, out, n, regs, __VA_ARGS__, true))                      \
    static const struct tiles kind = {.wide = BY_WIDTH(kind, 2),                                                       \
                                      .narrow = BY_WIDTH(kind, 1),                                                     \
                                      .spare = BY_WIDTH(kind##_spare, 2),                                              \
                                      .spare_rows = TILE_ROWS,                                                         \
                                      .steps = STEPS_FLOAT,                                                            \
                                      .spare_steps = STEPS_WHOLE};

// clang-format off
SCALED_TILES(tiles_q2_k, STEPS_TWICE, 16, 32, SCALES_FROM_ZERO, MINS_OF_16)
SCALED_TILES(tiles_q3_k, STEPS_TWICE, 16, 32, SCALES_OF_16_BITS, NO_MINS)
SCALED_TILES(tiles_q4_k, STEPS_OF_NEIGHBOURS, 32, 64, SCALES_OFFSET_RESTORED, MINS_OF_32_TWICE)
SCALED_TILES(tiles_q5_k, STEPS_TWICE, 16, 64, SCALES_OFFSET_RESTORED, MINS_OF_32_TWICE)
SCALED_TILES(tiles_q6_k, STEPS_TWICE, 8, 32, SCALES_OF_16_BITS, NO_MINS)
SCALED_TILES(tiles_q4_k_mild, STEPS_OF_NEIGHBOURS, 32, 64, SCALES_FROM_ZERO, MINS_OF_32)
SCALED_TILES(tiles_q5_k_mild, STEPS_OF_NEIGHBOURS, 32, 64, SCALES_OFFSET_RESTORED, MINS_OF_32)
SCALED_TILES(tiles_q6_k_mild, STEPS_TWICE, 16, 32, SCALES_OF_16_BITS, NO_MINS)
SCALED_TILES(tiles_ternary, STEPS_OF_NEIGHBOURS, 32, 64, SCALES_ONE, NO_MINS)
MULTIPLIED_TILES(tiles_q2_k_folded, 32, SCALES_FOLDED_FROM_ZERO, MINS_OF_16)
MULTIPLIED_TILES(tiles_q3_k_folded, 32, SCALES_FOLDED, NO_MINS)
MULTIPLIED_TILES(tiles_iq4_xs, 32, SCALES_OF_32_BITS, NO_MINS)
MULTIPLIED_TILES(tiles_codebook_16, 16, SCALES_OF_32_BITS, NO_MINS)
BLOCK_TILES(tiles_32, 32, false)
BLOCK_TILES(tiles_nvfp4, 16, false)
BLOCK_TILES(tiles_32_mins, 32, true)

// By type and run form; NULL where a type has no such form.
static const struct tiles *const tiles_of[DT_COUNT][RUNS_COUNT] = {
    [DT_Q4_0] = {&tiles_32},   [DT_Q5_0] = {&tiles_32},   [DT_Q8_0] = {&tiles_32},       [DT_IQ4_NL] = {&tiles_32},
    [DT_MXFP4] = {&tiles_32},  [DT_Q4_1] = {&tiles_32_mins}, [DT_Q5_1] = {&tiles_32_mins}, [DT_IQ4_XS] = {&tiles_iq4_xs},
    [DT_Q2_K] = {&tiles_q2_k, NULL, &tiles_q2_k_folded}, [DT_Q3_K] = {&tiles_q3_k, NULL, &tiles_q3_k_folded},
    [DT_Q4_K] = {&tiles_q4_k, &tiles_q4_k_mild}, [DT_Q5_K] = {&tiles_q5_k, &tiles_q5_k_mild},
    [DT_Q6_K] = {&tiles_q6_k, &tiles_q6_k_mild},
    [DT_IQ1_S] = {&tiles_q3_k}, [DT_IQ1_M] = {&tiles_q3_k}, [DT_IQ2_XXS] = {&tiles_iq4_xs}, [DT_IQ2_XS] = {&tiles_codebook_16},
    [DT_IQ2_S] = {&tiles_codebook_16}, [DT_IQ3_XXS] = {&tiles_iq4_xs}, [DT_IQ3_S] = {&tiles_q3_k}, [DT_TQ1_0] = {&tiles_ternary},
    [DT_TQ2_0] = {&tiles_ternary}, [DT_Q1_0] = {&tiles_32}, [DT_Q2_0] = {&tiles_32}, [DT_NVFP4] = {&tiles_nvfp4},
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
static bool look_up_tiles(const struct matmul_args *a, int first, int n, int64_t span, const int16_t *sums[],
                          struct columns *c)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    struct q8_tiles t = q8_tiles_at(a->x_tiles, a->n_tiled, span);
    first += a->x_first;
    int most = 0;
    for (int j = 0; j < c->n; j++) {
        int at = first + j;
        c->q[j] = q8_tiles_quants(&t, at);
        sums[j] = t.sums[at];
        _mm_storeu_si128((__m128i *)c->steps[j], _mm256_cvtepi32_epi16(load_256(t.steps[at])));
    }
    for (int j = 0; j < n; j++)
        most = MAX(most, t.most[first + j][u->mild_run == 16 ? MOST_OF_16 : MOST_OF_32]);
    c->piece = Q8_TILE_COLUMNS * Q8_TILE_WIDTH;
    c->da = t.d + first;
    return most <= u->mild_most;
}

// The same from the columns' rows.
static bool look_up_rows(const struct matmul_args *a, int first, int n, int64_t span, const int16_t *sums[],
                         struct columns *c)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    for (int j = 0; j < n; j++) {
        const void *x = a->x[first + j];
        c->q[j] = q8_quants(x) + span * SPAN;
        sums[j] = q8_sums(x, a->k) + span * Q8_SUMS;
        c->own_da[j] = q8_scales(x, a->k)[span];
        const __m128i steps = _mm_loadl_epi64((const __m128i *)(q8_steps(x, a->k) + span * Q8_RUNS));
        _mm_storeu_si128((__m128i *)c->steps[j], _mm_cvtepu8_epi16(steps));
    }
    c->piece = Q8_TILE_WIDTH;
    c->da = c->own_da;
    return u->mild_run == 16   ? magnitudes_of_16_within(c, u->mild_most)
           : u->mild_run == 32 ? magnitudes_of_32_within(c, u->mild_most)
                               : false;
}

void ISA_FN(matmul_q8_prepare_columns)(const struct matmul_args *a, int first, int n, int width, int64_t span,
                                       bool folded, struct columns *c)
{
    const struct unpacker *u = &ISA_FN(matmul_q8_unpacker)[a->type];
    const int16_t *sums[TILE_MOST];
    c->n = width;
    bool mild = a->x_tiles ? look_up_tiles(a, first, n, span, sums, c) : look_up_rows(a, first, n, span, sums, c);
    c->run_form = folded ? RUNS_FOLDED : mild && u->mild_run ? RUNS_MILD : RUNS_ANY;
    prepare_columns_fn *prepare = folded ? u->prepare_folded : c->run_form == RUNS_MILD ? u->prepare_mild : u->prepare;
    if (prepare)
        prepare(sums, c);
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
            if (row == 0 || span >= TILES_MAX - 1) {
                ISA_FN(matmul_q8_prepare_columns)(a, 0, a->n_x, a->n_x, span, false, c);
                arrange_steps(c, tiles_of[a->type][c->run_form]->steps);
            }
            ISA_FN(matmul_q8_unpack_panel)(a, row, rows, GROUP, span, &w->panel);
            prefetch_below(a, row, span, &w->panel);
            tiles_of[a->type][c->run_form]->narrow[a->n_x](&w->panel, 0, c, blocks_in_span(a, span), w->d[0][0]);
        }
        store_columns(a, 0, a->n_x, row, rows, w->d[0][0]);
    }
}

// The tile function for a number of columns on this CPU, the number of its rows, and how it reads steps.
struct choice {
    tile_fn *tile;
    int rows;
    enum step_form steps;
};

static struct choice choose_tile(const struct matmul_args *a, enum run_form run_form, int width)
{
    const struct tiles *t = tiles_of[a->type][run_form];
    if (a->spare_adders && t->spare_rows)
        return (struct choice){t->spare[width], t->spare_rows, t->spare_steps};
    return (struct choice){t->wide[width], TILE_ROWS, t->steps};
}

// A part of the columns, in tiles of about equal width.
struct part {
    int first, n, tiles;
    bool folded; // the weights of panels are multiplied by their scales
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
            ISA_FN(matmul_q8_prepare_columns)(a, part->first + j, n, width, span, part->folded, c);
        const struct choice choice = choose_tile(a, c->run_form, width);
        if (panel == 0)
            arrange_steps(c, choice.steps);
        if (span == 0)
            set_partial(d, width, PANEL);
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
            if (part->folded)
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
                                a->spare_adders && n >= FOLDED_MIN && tiles_of[a->type][RUNS_FOLDED]};
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
