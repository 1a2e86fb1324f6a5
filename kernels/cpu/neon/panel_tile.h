// How each level of 64-bit ARM lays out a panel of eight rows by 256 elements, and how it multiplies it with a few
// columns.
//
//   sdot     Four bytes of each of four rows are one vector. One instruction multiplies them with four bytes of a
//            column, and a lane is a row. No sums have to be added up across lanes.
//   smmla    Eight bytes of two rows are one vector, and eight bytes of two columns. Lane 2r + c belongs to row r and
//            column c of the pairs.
//   neither  16 bytes of a row are one vector, as for one column. The sums of four rows are reduced by pairwise adds.
//
// In types with blocks of 256, each group of 16 or 32 elements has its own scale. With sdot and smmla the sum of a
// group does not start at zero but at the sum of the group before (of the same eight groups), and is multiplied by the
// group's scale minus the scale of the next group. The total is the same, as neon/in_place.c shows, and no register has
// to be cleared for each group.
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
#else
    ROW_VECTORS = 2,
#endif
};

// A span of eight rows, unpacked. A type fills the members that its tiles read. "In sum lanes" means in the order of
// lanes that the registers of sums have (to_sum_lanes).
struct panel {
    int8x16_t w[PANEL_ROWS * 16];
#ifdef __ARM_FEATURE_DOTPROD
    int32x4_t step[16][ROW_VECTORS]; // the scale of each group minus that of the next one, in sum lanes
#else
    int16x8_t scale[PANEL_ROWS][2];
#endif
    int16x8_t min[16]; // one lane per row
    // Of blocks of 32, in sum lanes. Of the block of 256, d[0] and m[0], one lane per row.
    float32x4_t d[8][ROW_VECTORS], m[8][ROW_VECTORS];
};

// A span of the columns of a tile.
struct tile {
    const int8_t *q[TILE_COLUMNS];
    struct sums sums[TILE_COLUMNS];
    float da[TILE_COLUMNS];
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
    int8x16_t *w = &p->w[8 * i + 2 * h];
    w[0] = low_halves(v[0], v[1]), w[1] = low_halves(v[2], v[3]);
    w[4] = high_halves(v[0], v[1]), w[5] = high_halves(v[2], v[3]);
}
#elif defined(__ARM_FEATURE_DOTPROD)
INLINE void panel_put(struct panel *p, int h, int i, const int8x16_t v[4])
{
    int32x4_t a = vreinterpretq_s32_s8(v[0]), b = vreinterpretq_s32_s8(v[1]);
    int32x4_t c = vreinterpretq_s32_s8(v[2]), d = vreinterpretq_s32_s8(v[3]);
    int32x4_t ac[2] = {vzip1q_s32(a, c), vzip2q_s32(a, c)}, bd[2] = {vzip1q_s32(b, d), vzip2q_s32(b, d)};
    int8x16_t *w = &p->w[8 * i + h];
    w[0] = vreinterpretq_s8_s32(vzip1q_s32(ac[0], bd[0])), w[2] = vreinterpretq_s8_s32(vzip2q_s32(ac[0], bd[0]));
    w[4] = vreinterpretq_s8_s32(vzip1q_s32(ac[1], bd[1])), w[6] = vreinterpretq_s8_s32(vzip2q_s32(ac[1], bd[1]));
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
        int16x8_t steps[PANEL_ROWS];
        UNROLL_FOR (int r = 0; r < PANEL_ROWS; r++)
            steps[r] = vsubq_s16(scale[r][half], vextq_s16(scale[r][half], vdupq_n_s16(0), 1));
        transpose_8(steps, steps);
        UNROLL_FOR (int g = 0; g < 8; g++)
            to_sum_lanes_s32(vmovl_s16(vget_low_s16(steps[g])), vmovl_high_s16(steps[g]), p->step[8 * half + g]);
#else
        UNROLL_FOR (int r = 0; r < PANEL_ROWS; r++)
            p->scale[r][half] = scale[r][half];
#endif
    }
}

// ---- integers of a tile

// The number of registers of sums for each row vector: one per column, or with smmla one per pair of columns.
#ifdef __ARM_FEATURE_MATMUL_INT8
#define COLUMN_VECTORS(columns) (((columns) + 1) / 2)
enum { COLUMN_VECTORS_MAX = TILE_COLUMNS / 2 };
#else
#define COLUMN_VECTORS(columns) (columns)
enum { COLUMN_VECTORS_MAX = TILE_COLUMNS };
#endif

typedef int32x4_t tile_sums[ROW_VECTORS][COLUMN_VECTORS_MAX];
typedef float32x4_t tile_floats[ROW_VECTORS][COLUMN_VECTORS_MAX];

// Loops over all registers of sums.
#define EACH_SUM(v, c, columns)                                                                                        \
    UNROLL_FOR (int v = 0; v < ROW_VECTORS; v++)                                                                       \
        UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++)

#if defined(__ARM_FEATURE_MATMUL_INT8)
// Adds the products of 16 elements from element 16 i on.
INLINE void dot_step(const struct panel *p, int i, int columns, const struct tile *t, tile_sums sums)
{
    int8x16_t low[COLUMN_VECTORS_MAX], high[COLUMN_VECTORS_MAX];
    UNROLL_FOR (int c = 0; c < COLUMN_VECTORS(columns); c++) {
        int8x16_t a = vld1q_s8(t->q[2 * c] + 16 * i), b = 2 * c + 1 < columns ? vld1q_s8(t->q[2 * c + 1] + 16 * i) : a;
        low[c] = low_halves(a, b), high[c] = high_halves(a, b);
    }
    EACH_SUM(v, c, columns)
    sums[v][c] = vmmlaq_s32(sums[v][c], p->w[8 * i + v], low[c]);
    EACH_SUM(v, c, columns)
    sums[v][c] = vmmlaq_s32(sums[v][c], p->w[8 * i + 4 + v], high[c]);
}
#elif defined(__ARM_FEATURE_DOTPROD)
INLINE void dot_step(const struct panel *p, int i, int columns, const struct tile *t, tile_sums sums)
{
    int8x16_t q[TILE_COLUMNS];
    UNROLL_FOR (int c = 0; c < columns; c++)
        q[c] = vld1q_s8(t->q[c] + 16 * i);
    const int8x16_t *w = &p->w[8 * i];
#define QUARTER(e) EACH_SUM(v, c, columns) sums[v][c] = vdotq_laneq_s32(sums[v][c], w[2 * e + v], q[c], e);
    QUARTER(0) QUARTER(1) QUARTER(2) QUARTER(3)
#undef QUARTER
}
#endif

// dot_256 computes isum of the block of 256, dot_32 that of block j of 32. groups, wide and columns are compile-time
// constants.
#ifdef __ARM_FEATURE_DOTPROD
INLINE void dot_256(const struct panel *p, int groups, bool wide, int columns, const struct tile *t, tile_sums sums)
{
    (void)wide;
    EACH_SUM(v, c, columns)
    sums[v][c] = vdupq_n_s32(0);
    for (int i = 0; groups == 1 && i < 16; i++)
        dot_step(p, i, columns, t, sums);
    for (int half = 0; half < groups / 8; half++) {
        tile_sums run;
        EACH_SUM(v, c, columns)
        run[v][c] = vdupq_n_s32(0);
        for (int g = 8 * half; g < 8 * half + 8; g++) {
            UNROLL_FOR (int i = 0; i < 16 / groups; i++)
                dot_step(p, g * (16 / groups) + i, columns, t, run);
            EACH_SUM(v, c, columns)
            sums[v][c] = vmlaq_s32(sums[v][c], run[v][c], p->step[g][v]);
        }
    }
}

INLINE void dot_32(const struct panel *p, int j, bool wide, int columns, const struct tile *t, tile_sums sums)
{
    (void)wide;
    EACH_SUM(v, c, columns)
    sums[v][c] = vdupq_n_s32(0);
    dot_step(p, 2 * j, columns, t, sums);
    dot_step(p, 2 * j + 1, columns, t, sums);
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

// Adds the scaled products of eight groups of rows 4 v .. 4 v + 3.
INLINE void dot_groups(const struct panel *p, int v, int half, int groups, bool wide, int columns,
                       const int8_t *const *q, int32x4_t sums[TILE_COLUMNS][4])
{
    int per = 16 / groups;
    bool together = per == 2 && !wide; // two vectors share a scale, and their sum fits 16 bits
    const int8x16_t *w = &p->w[64 * v + 8 * half];
    int16x8_t scale[4];
    UNROLL_FOR (int r = 0; r < 4; r++) {
        scale[r] = p->scale[4 * v + r][half];
        __asm__("" : "+w"(scale[r])); // one load instead of one per lane
    }
    UNROLL_FOR (int i = 0; i < 8 * per; i += together ? 2 : 1) {
        UNROLL_FOR (int c = 0; c < columns; c++) {
            const int8_t *at = q[c] + 128 * half + 16 * i;
            int8x16_t x = vld1q_s8(at), y = together ? vld1q_s8(at + 16) : x;
            UNROLL_FOR (int r = 0; r < 4; r++) {
                int16x8_t dot = dot_16(w[16 * r + i], x);
                if (together)
                    dot = add_16(dot, w[16 * r + i + 1], y);
                sums[c][r] = add_scaled(sums[c][r], dot, scale[r][i / per]);
            }
        }
        load_after();
    }
}

// The products of rows 4 v .. 4 v + 3 without scales. |w| <= 2, so that the sum of 32 products fits 16 bits.
INLINE void dot_ones(const struct panel *p, int v, int columns, const int8_t *const *q, int32x4_t sums[TILE_COLUMNS][4])
{
    int16x8_t dot[TILE_COLUMNS][4];
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < 4; r++)
            dot[c][r] = vdupq_n_s16(0);
    for (int i = 0; i < 16; i++)
        UNROLL_FOR (int c = 0; c < columns; c++) {
            int8x16_t x = vld1q_s8(q[c] + 16 * i);
            UNROLL_FOR (int r = 0; r < 4; r++)
                dot[c][r] = add_16(dot[c][r], p->w[64 * v + 16 * r + i], x);
        }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < 4; r++)
            sums[c][r] = vpaddlq_s16(dot[c][r]);
}

INLINE void dot_256(const struct panel *p, int groups, bool wide, int columns, const struct tile *t, tile_sums sums)
{
    UNROLL_FOR (int v = 0; v < ROW_VECTORS; v++) {
        int32x4_t rows[TILE_COLUMNS][4];
        UNROLL_FOR (int c = 0; c < columns; c++)
            UNROLL_FOR (int r = 0; r < 4; r++)
                rows[c][r] = vdupq_n_s32(0);
        if (groups == 1)
            dot_ones(p, v, columns, t->q, rows);
        UNROLL_FOR (int half = 0; half < groups / 8; half++)
            dot_groups(p, v, half, groups, wide, columns, t->q, rows);
        UNROLL_FOR (int c = 0; c < columns; c++)
            sums[v][c] = reduce_rows(rows[c]);
    }
}

// Where |w| <= 32 (not `wide`), the sum of eight products fits 16 bits, and pairs are added in 16 bits.
INLINE void dot_32(const struct panel *p, int j, bool wide, int columns, const struct tile *t, tile_sums sums)
{
    EACH_SUM(v, c, columns)
    {
        int8x16_t x = vld1q_s8(t->q[c] + 32 * j), y = vld1q_s8(t->q[c] + 32 * j + 16);
        int32x4_t dots[4];
        int16x8_t narrow[4];
        UNROLL_FOR (int r = 0; r < 4; r++) {
            const int8x16_t *w = &p->w[64 * v + 16 * r + 2 * j];
            if (wide)
                dots[r] = vpadalq_s16(vpaddlq_s16(dot_16(w[0], x)), dot_16(w[1], y));
            else
                narrow[r] = add_16(dot_16(w[0], x), w[1], y);
        }
        sums[v][c] = wide ? reduce_rows(dots)
                          : vpaddq_s32(vpaddlq_s16(vpaddq_s16(narrow[0], narrow[1])),
                                       vpaddlq_s16(vpaddq_s16(narrow[2], narrow[3])));
    }
}
#endif

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

// out[j] has the sums of block j of 32 activations as floats, for the columns of column vector c, in sum lanes.
INLINE void floats_of_sums(const struct tile *t, int columns, int c, float32x4_t out[8])
{
    const struct sums *x = &t->sums[2 * c], *y = 2 * c + 1 < columns ? &t->sums[2 * c + 1] : x;
    float32x4_t a[2] = {floats_of_low(x->of32), floats_of_high(x->of32)};
    float32x4_t b[2] = {floats_of_low(y->of32), floats_of_high(y->of32)};
    UNROLL_FOR (int i = 0; i < 2; i++) {
        float64x2_t first = vreinterpretq_f64_f32(vzip1q_f32(a[i], b[i]));
        float64x2_t last = vreinterpretq_f64_f32(vzip2q_f32(a[i], b[i]));
        out[4 * i] = vreinterpretq_f32_f64(vdupq_laneq_f64(first, 0));
        out[4 * i + 1] = vreinterpretq_f32_f64(vdupq_laneq_f64(first, 1));
        out[4 * i + 2] = vreinterpretq_f32_f64(vdupq_laneq_f64(last, 0));
        out[4 * i + 3] = vreinterpretq_f32_f64(vdupq_laneq_f64(last, 1));
    }
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

INLINE void floats_of_sums(const struct tile *t, int columns, int c, float32x4_t out[8])
{
    (void)columns;
    float32x4_t a[2] = {floats_of_low(t->sums[c].of32), floats_of_high(t->sums[c].of32)};
    UNROLL_FOR (int j = 0; j < 8; j++)
        out[j] = vdupq_n_f32(a[j / 4][j % 4]);
}
#endif

#endif
