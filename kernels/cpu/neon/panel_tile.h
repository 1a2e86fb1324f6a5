// How each level of 64-bit ARM lays out a panel of eight rows by 256 elements, and how it multiplies it with a few
// columns.
//
//   sdot     Four bytes of each of four rows are one vector. One instruction multiplies them with four bytes of a
//            column, and a lane is a row. No sums have to be added up across lanes.
//   smmla    Eight bytes of two rows are one vector, and eight bytes of two columns. Lane 2r + c belongs to row r and
//            column c of the pairs.
//   neither  16 bytes of a row are one vector, as for one column. The sums of four rows are reduced by pairwise adds.
//
// In types with blocks of 256, each group of 16 or 32 elements has its own scale, and each run of 32 elements has the
// step of its column.
//   - With sdot and smmla the sum of a run is multiplied by its scale, and by its step when it is added to the sum of
//     the block. If a run has two scales, the sum of the second group does not start at zero. It continues the sum of
//     the first one, which is multiplied by the first scale minus the second, so that no register has to be cleared.
//   - Without either, eight scales of a row are multiplied by eight steps at once.
// In types with blocks of 32, the integers of four rows are multiplied by the step before they become floats.
//
// Private to neon/panel.c. All functions are inlined.
#ifndef QUERN_NEON_PANEL_TILE_H
#define QUERN_NEON_PANEL_TILE_H

#include "kernels/cpu/neon/codebook.h"

enum {
    PANEL_ROWS = 8,
#ifdef __ARM_FEATURE_DOTPROD
    TILE_COLUMNS = 4, // the most columns of a tile
#else
    TILE_COLUMNS = 2,
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
    ROW_VECTORS = 4, // registers of sums for eight rows and a column, or with smmla a pair of columns
    COLUMN_VECTORS_MAX = TILE_COLUMNS / 2,
#else
    ROW_VECTORS = 2,
    COLUMN_VECTORS_MAX = TILE_COLUMNS,
#endif
    VECTOR_COLUMNS = TILE_COLUMNS / COLUMN_VECTORS_MAX, // columns in a register of sums
};

// The number of registers of sums for each row vector: one per column, or with smmla one per pair of columns.
#define COLUMN_VECTORS(columns) (((columns) + VECTOR_COLUMNS - 1) / VECTOR_COLUMNS)

// A span of eight rows, unpacked. A type fills the members that its tiles read. "In sum lanes" means in the order of
// lanes that the registers of sums have (to_sum_lanes).
struct panel {
    int8x16_t w[PANEL_ROWS * 16];
#ifdef __ARM_FEATURE_DOTPROD
    int32x4_t scale[16][ROW_VECTORS]; // in sum lanes; the first of two scales of a run is less the second
#else
    int16x8_t scale[PANEL_ROWS][2];
#endif
    union {
        int16x8_t min[16];        // of 16 groups, one lane per row
        int32x4_t wide_min[8][2]; // of 8 groups
    };
    // Of blocks of 32, in sum lanes. Of the block of 256, d[0] and m[0], one lane per row.
    float32x4_t d[8][ROW_VECTORS], m[8][ROW_VECTORS];
};

// A span of the columns of a tile. A type fills the members that it needs.
struct tile {
#ifdef __ARM_FEATURE_MATMUL_INT8
    int8x16_t pairs[Q8_RUNS][COLUMN_VECTORS_MAX][4]; // the elements, in each vector eight of two columns
#endif
    const int8_t *q[TILE_COLUMNS];
    float da[TILE_COLUMNS];
    int16x8_t steps[TILE_COLUMNS];
    int32_t lanes[COLUMN_VECTORS_MAX][Q8_RUNS * VECTOR_COLUMNS]; // the steps; with smmla those of two columns alternate
    // The sums over 16 and over 32 elements, times their steps. Those of 32 as floats are in sum lanes.
    int16x8_t sums_16[TILE_COLUMNS][2];
    int32x4_t sums_32[TILE_COLUMNS][2];
    float32x4_t float_sums[COLUMN_VECTORS_MAX][Q8_RUNS];
};

// ---- filling a panel

// Transposes an 8 x 8 matrix.
INLINE void transpose_8(const int16x8_t in[8], int16x8_t out[8])
{
    int16x8_t a[8], b[8];
    UNROLL_FOR (int i = 0; i < 4; i++) {
        a[2 * i] = vzip1q_s16(in[i], in[i + 4]);
        a[2 * i + 1] = vzip2q_s16(in[i], in[i + 4]);
    }
    UNROLL_FOR (int i = 0; i < 4; i++) {
        b[2 * i] = vzip1q_s16(a[i], a[i + 4]);
        b[2 * i + 1] = vzip2q_s16(a[i], a[i + 4]);
    }
    UNROLL_FOR (int i = 0; i < 4; i++) {
        out[2 * i] = vzip1q_s16(b[i], b[i + 4]);
        out[2 * i + 1] = vzip2q_s16(b[i], b[i + 4]);
    }
}

// Brings one number of each of eight rows to the lanes that the registers of sums have.
INLINE void to_sum_lanes_s32(int32x4_t first, int32x4_t last, int32x4_t out[ROW_VECTORS])
{
#ifdef __ARM_FEATURE_MATMUL_INT8
    out[0] = vzip1q_s32(first, first), out[1] = vzip2q_s32(first, first);
    out[2] = vzip1q_s32(last, last), out[3] = vzip2q_s32(last, last);
#else
    out[0] = first, out[1] = last;
#endif
}

INLINE void to_sum_lanes(float32x4_t first, float32x4_t last, float32x4_t out[ROW_VECTORS])
{
    int32x4_t v[ROW_VECTORS];
    to_sum_lanes_s32(vreinterpretq_s32_f32(first), vreinterpretq_s32_f32(last), v);
    for (int i = 0; i < ROW_VECTORS; i++)
        out[i] = vreinterpretq_f32_s32(v[i]);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
INLINE int8x16_t low_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

INLINE int8x16_t high_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

// Stores 16 elements from element 16 i on of rows 4 h .. 4 h + 3.
INLINE void panel_put(struct panel *p, int h, int i, const int8x16_t v[4])
{
    int8x16_t *w = &p->w[16 * (i / 2) + 8 * h + 2 * (i % 2)];
    w[0] = low_halves(v[0], v[1]), w[1] = high_halves(v[0], v[1]);
    w[4] = low_halves(v[2], v[3]), w[5] = high_halves(v[2], v[3]);
}
#elif defined(__ARM_FEATURE_DOTPROD)
INLINE void panel_put(struct panel *p, int h, int i, const int8x16_t v[4])
{
    int32x4_t a = vreinterpretq_s32_s8(v[0]), b = vreinterpretq_s32_s8(v[1]);
    int32x4_t c = vreinterpretq_s32_s8(v[2]), d = vreinterpretq_s32_s8(v[3]);
    int32x4_t ac[2] = {vzip1q_s32(a, c), vzip2q_s32(a, c)}, bd[2] = {vzip1q_s32(b, d), vzip2q_s32(b, d)};
    int8x16_t *w = &p->w[16 * (i / 2) + 8 * h + 4 * (i % 2)];
    w[0] = vreinterpretq_s8_s32(vzip1q_s32(ac[0], bd[0])), w[1] = vreinterpretq_s8_s32(vzip2q_s32(ac[0], bd[0]));
    w[2] = vreinterpretq_s8_s32(vzip1q_s32(ac[1], bd[1])), w[3] = vreinterpretq_s8_s32(vzip2q_s32(ac[1], bd[1]));
}
#else
INLINE void panel_put(struct panel *p, int h, int i, const int8x16_t v[4])
{
    UNROLL_FOR (int r = 0; r < 4; r++)
        p->w[16 * (4 * h + r) + i] = v[r];
}
#endif

// Stores the scales of the groups of eight rows.
INLINE void panel_put_scales(struct panel *p, int groups, int16x8_t (*scale)[2])
{
    UNROLL_FOR (int half = 0; half < groups / 8; half++) {
#ifdef __ARM_FEATURE_DOTPROD
        int16x8_t v[PANEL_ROWS];
        UNROLL_FOR (int r = 0; r < PANEL_ROWS; r++)
            v[r] = scale[r][half];
        transpose_8(v, v);
        for (int g = 0; groups == 16 && g < 8; g += 2)
            v[g] = vsubq_s16(v[g], v[g + 1]);
        UNROLL_FOR (int g = 0; g < 8; g++)
            to_sum_lanes_s32(vmovl_s16(vget_low_s16(v[g])), vmovl_high_s16(v[g]), p->scale[8 * half + g]);
#else
        UNROLL_FOR (int r = 0; r < PANEL_ROWS; r++)
            p->scale[r][half] = scale[r][half];
#endif
    }
}

// Stores the minima of the groups of eight rows.
INLINE void panel_put_mins(struct panel *p, int groups, int16x8_t (*min)[PANEL_ROWS])
{
    int16x8_t v[8];
    UNROLL_FOR (int half = 0; half < groups / 8; half++) {
        transpose_8(min[half], v);
        UNROLL_FOR (int g = 0; g < 8; g++) {
            if (groups == 16)
                p->min[8 * half + g] = v[g];
            else
                p->wide_min[g][0] = vmovl_s16(vget_low_s16(v[g])), p->wide_min[g][1] = vmovl_high_s16(v[g]);
        }
    }
}

// ---- filling a tile
//
// It is done once for all panels of a span.

// Sets column c of a tile from a span of a q8 row.
static inline void tile_put(struct tile *t, int c, const struct column *x, int64_t span)
{
    const struct sums sums = sums_of(x, span);
    const int16x8_t steps = steps_of(x, span);
    t->q[c] = x->q + SPAN * span;
    t->da[c] = x->da[span];
    t->steps[c] = steps;
    t->sums_16[c][0] = vmulq_s16(sums.of16[0], vzip1q_s16(steps, steps));
    t->sums_16[c][1] = vmulq_s16(sums.of16[1], vzip2q_s16(steps, steps));
    weigh_sums(sums.of32, steps, t->sums_32[c]);
}

// tile_spread(): sets `lanes` and `pairs` of column vector c from its columns.
#ifdef __ARM_FEATURE_MATMUL_INT8
static inline void tile_spread(struct tile *t, int columns, int c)
{
    const int first = 2 * c, last = MIN(first + 1, columns - 1);
    const int16x8_t x = t->steps[first], y = t->steps[last];
    const int16x8_t low = vzip1q_s16(x, y), high = vzip2q_s16(x, y);
    vst1q_s32(t->lanes[c], vmovl_s16(vget_low_s16(low))), vst1q_s32(t->lanes[c] + 4, vmovl_high_s16(low));
    vst1q_s32(t->lanes[c] + 8, vmovl_s16(vget_low_s16(high))), vst1q_s32(t->lanes[c] + 12, vmovl_high_s16(high));
    KEEP_LOOP_FOR (int i = 0; i < 8; i++) {
        const int8x16_t a[2] = {vld1q_s8(t->q[first] + 32 * i), vld1q_s8(t->q[first] + 32 * i + 16)};
        const int8x16_t b[2] = {vld1q_s8(t->q[last] + 32 * i), vld1q_s8(t->q[last] + 32 * i + 16)};
        UNROLL_FOR (int e = 0; e < 2; e++)
            t->pairs[i][c][2 * e] = low_halves(a[e], b[e]), t->pairs[i][c][2 * e + 1] = high_halves(a[e], b[e]);
    }
}
#else
static inline void tile_spread(struct tile *t, int columns, int c)
{
    (void)columns;
    vst1q_s32(t->lanes[c], vmovl_s16(vget_low_s16(t->steps[c])));
    vst1q_s32(t->lanes[c] + 4, vmovl_high_s16(t->steps[c]));
}
#endif

// Sets `float_sums` of column vector c from `sums_32`.
static inline void tile_spread_sums(struct tile *t, int columns, int c)
{
    UNROLL_FOR (int i = 0; i < 2; i++) {
        float32x4_t *out = &t->float_sums[c][4 * i];
#ifdef __ARM_FEATURE_MATMUL_INT8
        const float32x4_t x = vcvtq_f32_s32(t->sums_32[2 * c][i]);
        const float32x4_t y = vcvtq_f32_s32(t->sums_32[MIN(2 * c + 1, columns - 1)][i]);
        const float64x2_t low = vreinterpretq_f64_f32(vzip1q_f32(x, y)), high = vreinterpretq_f64_f32(vzip2q_f32(x, y));
        out[0] = vreinterpretq_f32_f64(vdupq_laneq_f64(low, 0));
        out[1] = vreinterpretq_f32_f64(vdupq_laneq_f64(low, 1));
        out[2] = vreinterpretq_f32_f64(vdupq_laneq_f64(high, 0));
        out[3] = vreinterpretq_f32_f64(vdupq_laneq_f64(high, 1));
#else
        (void)columns;
        const float32x4_t x = vcvtq_f32_s32(t->sums_32[c][i]);
        UNROLL_FOR (int j = 0; j < 4; j++)
            out[j] = vdupq_n_f32(x[j]);
#endif
    }
}

// ---- integers of a tile

typedef int32x4_t tile_sums[ROW_VECTORS][COLUMN_VECTORS_MAX];
typedef float32x4_t tile_floats[ROW_VECTORS][COLUMN_VECTORS_MAX];

// Loops over all registers of sums.
#define EACH_SUM(v, c, columns)                                                                                        \
    UNROLL_FOR (int v = 0; v < ROW_VECTORS; v++)                                                                       \
        UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)

// Where the elements of a half of a span are, and their four steps. With smmla the steps of a pair of columns
// alternate.
struct tile_half {
#ifdef __ARM_FEATURE_MATMUL_INT8
    const int8x16_t (*pairs)[COLUMN_VECTORS_MAX][4];
#endif
    const int8_t *q[TILE_COLUMNS];
    int32x4_t steps[COLUMN_VECTORS_MAX][VECTOR_COLUMNS];
};

INLINE struct tile_half half_of_tile(const struct tile *t, int columns, int half)
{
    struct tile_half h;
#ifdef __ARM_FEATURE_MATMUL_INT8
    h.pairs = t->pairs + 4 * half;
#else
    UNROLL_FOR (int c = 0; c < columns; c++) {
        h.q[c] = t->q[c] + 128 * half;
        __asm__("" : "+r"(h.q[c])); // elements are addressed by offsets from here
    }
#endif
    UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)
        UNROLL_FOR (int i = 0; i < VECTOR_COLUMNS; i++)
            h.steps[c][i] = vld1q_s32(t->lanes[c] + 4 * (VECTOR_COLUMNS * half + i));
    return h;
}

// Run i of the four runs of a half: 32 elements of the columns. Each vector has 16 elements of a column, or with smmla
// 8 of a pair.
typedef int8x16_t tile_run[COLUMN_VECTORS_MAX][2 * VECTOR_COLUMNS];

INLINE void load_run(const struct tile_half *h, int i, int columns, tile_run x)
{
    UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)
        UNROLL_FOR (int e = 0; e < 2 * VECTOR_COLUMNS; e++)
#ifdef __ARM_FEATURE_MATMUL_INT8
            x[c][e] = h->pairs[i][c][e];
#else
            x[c][e] = vld1q_s8(h->q[c] + 32 * i + 16 * e);
#endif
}

// The step of run i in sum lanes.
INLINE int32x4_t step_of_run(const struct tile_half *h, int c, int i)
{
#ifdef __ARM_FEATURE_MATMUL_INT8
    int64x2_t pairs = vreinterpretq_s64_s32(h->steps[c][i / 2]);
    return vreinterpretq_s32_s64(i % 2 ? vdupq_laneq_s64(pairs, 1) : vdupq_laneq_s64(pairs, 0));
#else
    return vdupq_n_s32(h->steps[c][0][i]);
#endif
}

// Keeps later loads behind the computation of the sums of a row vector. Otherwise the compiler computes those of all
// row vectors at once, and spills registers.
INLINE void finish_sums(struct tile_half *h, int columns, int32x4_t *sums)
{
    UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++) {
        __asm__ volatile("" : "+w"(sums[c])::"memory");
#ifndef __ARM_FEATURE_MATMUL_INT8
        // If it knew that other row vectors use the same steps, it would copy each step to all lanes of a register.
        __asm__("" : "+w"(h->steps[c][0]));
#endif
    }
    (void)h;
}

// dot_256 computes isum of the block of 256, dot_32 that of row vector v of block j of 32 without its step. groups,
// wide and columns are compile-time constants.
#ifdef __ARM_FEATURE_DOTPROD
// Adds the products of a half of run j of row vector v.
#ifdef __ARM_FEATURE_MATMUL_INT8
INLINE void dot_half_run(const struct panel *p, int j, int half, int v, int columns, tile_run x, int32x4_t *sums)
{
    const int8x16_t *w = &p->w[16 * j + 4 * v + 2 * half];
    UNROLL_FOR (int i = 0; i < 2; i++)
        UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)
            sums[c] = vmmlaq_s32(sums[c], w[i], x[c][2 * half + i]);
}
#else
INLINE void dot_half_run(const struct panel *p, int j, int half, int v, int columns, tile_run x, int32x4_t *sums)
{
    const int8x16_t *w = &p->w[16 * j + 8 * v + 4 * half];
#define QUARTER(e)                                                                                                     \
    UNROLL_FOR (int c = 0; c < columns; c++)                                                                           \
        sums[c] = vdotq_laneq_s32(sums[c], w[e], x[c][half], e);
    QUARTER(0) QUARTER(1) QUARTER(2) QUARTER(3)
#undef QUARTER
}
#endif

// Computes the sums of the products of run j (elements 32 j .. 32 j + 31) of row vector v, times their scales. A block
// with one group has no scales.
INLINE void dot_run(const struct panel *p, int j, int v, int groups, int columns, tile_run x, int32x4_t *sums)
{
    int32x4_t run[COLUMN_VECTORS_MAX];
    UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)
        run[c] = vdupq_n_s32(0);
    dot_half_run(p, j, 0, v, columns, x, run);
    for (int c = 0; groups == 16 && c < COLUMN_VECTORS(columns); c++) {
        sums[c] = vmulq_s32(run[c], p->scale[2 * j][v]);
        __asm__("" : "+w"(run[c]) : "w"(sums[c])); // it is updated after it has been used, so that it is not copied
    }
    dot_half_run(p, j, 1, v, columns, x, run);
    UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)
        sums[c] = groups == 16  ? vmlaq_s32(sums[c], run[c], p->scale[2 * j + 1][v])
                  : groups == 8 ? vmulq_s32(run[c], p->scale[j][v])
                                : run[c];
}

INLINE void dot_32(const struct panel *p, int j, int v, bool wide, int columns, tile_run x, int32x4_t *sums)
{
    (void)wide;
    dot_run(p, j, v, 1, columns, x, sums);
}

INLINE void dot_256(const struct panel *p, int groups, bool wide, int columns, const struct tile *t, tile_sums sums)
{
    (void)wide;
    EACH_SUM(v, c, columns)
    sums[v][c] = vdupq_n_s32(0);
    for (int half = 0; half < 2; half++) {
        struct tile_half h = half_of_tile(t, columns, half);
        UNROLL_FOR (int i = 0; i < 4; i++) {
            tile_run x;
            load_run(&h, i, columns, x);
            UNROLL_FOR (int v = 0; v < ROW_VECTORS; v++) {
                int32x4_t part[COLUMN_VECTORS_MAX];
                dot_run(p, 4 * half + i, v, groups, columns, x, part);
                UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)
                    sums[v][c] = vmlaq_s32(sums[v][c], part[c], step_of_run(&h, c, i));
                finish_sums(&h, columns, sums[v]);
            }
        }
    }
}
#else
// Sums of 16 bits, of two products each.
INLINE int16x8_t dot_16(int8x16_t w, int8x16_t q)
{
    return vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(q)), w, q);
}

INLINE int16x8_t add_16(int16x8_t sum, int8x16_t w, int8x16_t q)
{
    return vmlal_high_s8(vmlal_s8(sum, vget_low_s8(w), vget_low_s8(q)), w, q);
}

INLINE int32x4_t add_scaled(int32x4_t sum, int16x8_t dot, int16_t scale)
{
    return vmlal_high_n_s16(vmlal_n_s16(sum, vget_low_s16(dot), scale), dot, scale);
}

INLINE int32x4_t reduce_rows(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

// The scales of eight groups of rows 4 v .. 4 v + 3, times the steps of a column.
INLINE void scales_of(const struct panel *p, int v, int half, int groups, int16x8_t steps, int16x8_t scale[4])
{
    if (groups == 16)
        steps = half ? vzip2q_s16(steps, steps) : vzip1q_s16(steps, steps);
    UNROLL_FOR (int r = 0; r < 4; r++) {
        scale[r] = groups == 1 ? steps : vmulq_s16(p->scale[4 * v + r][half], steps);
        __asm__("" : "+w"(scale[r])); // one multiplication instead of one per lane
    }
}

// Adds the scaled products of eight groups of rows 4 v .. 4 v + 3.
INLINE void dot_groups(const struct panel *p, int v, int half, int groups, bool wide, int columns, const struct tile *t,
                       int32x4_t sums[TILE_COLUMNS][4])
{
    int per = groups == 16 ? 1 : 2;
    bool together = per == 2 && !wide; // two vectors share a scale, and their sum fits 16 bits
    const int8x16_t *w = &p->w[64 * v + 8 * half];
    int16x8_t scale[TILE_COLUMNS][4];
    UNROLL_FOR (int c = 0; c < columns; c++)
        scales_of(p, v, half, groups, t->steps[c], scale[c]);
    UNROLL_FOR (int i = 0; i < 8 * per; i += together ? 2 : 1) {
        UNROLL_FOR (int c = 0; c < columns; c++) {
            const int8_t *at = t->q[c] + 128 * half + 16 * i;
            int8x16_t x = vld1q_s8(at), y = together ? vld1q_s8(at + 16) : x;
            UNROLL_FOR (int r = 0; r < 4; r++) {
                int16x8_t dot = dot_16(w[16 * r + i], x);
                if (together)
                    dot = add_16(dot, w[16 * r + i + 1], y);
                sums[c][r] = add_scaled(sums[c][r], dot, scale[c][r][i / per]);
                if (per == 2 && wide) // the next vector has the same scale, which would be copied
                    __asm__("" : "+w"(scale[c][r]));
            }
        }
        load_after();
    }
}

INLINE void dot_256(const struct panel *p, int groups, bool wide, int columns, const struct tile *t, tile_sums sums)
{
    UNROLL_FOR (int v = 0; v < ROW_VECTORS; v++) {
        int32x4_t rows[TILE_COLUMNS][4];
        UNROLL_FOR (int c = 0; c < columns; c++)
            UNROLL_FOR (int r = 0; r < 4; r++)
                rows[c][r] = vdupq_n_s32(0);
        for (int half = 0; half < (groups == 16 ? 2 : 1); half++)
            dot_groups(p, v, half, groups, wide, columns, t, rows);
        UNROLL_FOR (int c = 0; c < columns; c++)
            sums[v][c] = reduce_rows(rows[c]);
    }
}

// Where |w| <= 32 (not `wide`), the sum of eight products fits 16 bits, and pairs are added in 16 bits.
INLINE void dot_32(const struct panel *p, int j, int v, bool wide, int columns, tile_run x, int32x4_t *sums)
{
    UNROLL_FOR (int c = 0; c < columns; c++) {
        int32x4_t dots[4];
        int16x8_t narrow[4];
        UNROLL_FOR (int r = 0; r < 4; r++) {
            const int8x16_t *w = &p->w[64 * v + 16 * r + 2 * j];
            if (wide)
                dots[r] = vpadalq_s16(vpaddlq_s16(dot_16(w[0], x[c][0])), dot_16(w[1], x[c][1]));
            else
                narrow[r] = add_16(dot_16(w[0], x[c][0]), w[1], x[c][1]);
        }
        sums[c] = wide ? reduce_rows(dots)
                       : vpaddq_s32(vpaddlq_s16(vpaddq_s16(narrow[0], narrow[1])),
                                    vpaddlq_s16(vpaddq_s16(narrow[2], narrow[3])));
    }
    UNROLL_FOR (int c = 0; c < columns; c++)
        __asm__ volatile("" : "+w"(sums[c])::"memory"); // as finish_sums
}
#endif

// dot_mins_16 and dot_mins_32 compute the sums of the minima of eight rows, of 16 or 8 groups, times the sums of the
// columns: four rows of a column in each vector.
typedef int32x4_t min_sums[TILE_COLUMNS][2];

INLINE void dot_mins_16(const struct panel *p, int columns, const struct tile *t, min_sums sums)
{
    int16x8_t x[TILE_COLUMNS][2];
    UNROLL_FOR (int c = 0; c < columns; c++)
        UNROLL_FOR (int i = 0; i < 2; i++) {
            x[c][i] = t->sums_16[c][i], sums[c][i] = vdupq_n_s32(0);
            __asm__("" : "+w"(x[c][i])); // one load instead of one per element
        }
    UNROLL_FOR (int g = 0; g < 16; g++)
        UNROLL_FOR (int c = 0; c < columns; c++) {
            sums[c][0] = vmlal_n_s16(sums[c][0], vget_low_s16(p->min[g]), x[c][g / 8][g % 8]);
            sums[c][1] = vmlal_high_n_s16(sums[c][1], p->min[g], x[c][g / 8][g % 8]);
        }
}

INLINE void dot_mins_32(const struct panel *p, int columns, const struct tile *t, min_sums sums)
{
    int32x4_t x[TILE_COLUMNS][2];
    UNROLL_FOR (int c = 0; c < columns; c++)
        UNROLL_FOR (int i = 0; i < 2; i++) {
            x[c][i] = t->sums_32[c][i], sums[c][i] = vdupq_n_s32(0);
            __asm__("" : "+w"(x[c][i]));
        }
    UNROLL_FOR (int g = 0; g < 8; g++)
        UNROLL_FOR (int c = 0; c < columns; c++)
            UNROLL_FOR (int h = 0; h < 2; h++)
                sums[c][h] = vmlaq_n_s32(sums[c][h], p->wide_min[g][h], x[c][g / 4][g % 4]);
}

// ---- results of a tile

// Four rows of a column, 4 h .. 4 h + 3, one lane per row, from the registers of sums.
#ifdef __ARM_FEATURE_MATMUL_INT8
INLINE int32x4_t rows_of_column(tile_sums s, int c, int h)
{
    int32x4_t a = s[2 * h][c / 2], b = s[2 * h + 1][c / 2];
    return c % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b);
}

INLINE float32x4_t float_rows_of_column(tile_floats s, int c, int h)
{
    float32x4_t a = s[2 * h][c / 2], b = s[2 * h + 1][c / 2];
    return c % 2 ? vuzp2q_f32(a, b) : vuzp1q_f32(a, b);
}

#else
INLINE int32x4_t rows_of_column(tile_sums s, int c, int h)
{
    return s[h][c];
}

INLINE float32x4_t float_rows_of_column(tile_floats s, int c, int h)
{
    return s[h][c];
}
#endif

#endif
