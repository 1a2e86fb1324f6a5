// The inner loops of attention: what knows queries, rows of keys and values, and slots of a span, but no pages.
//
// Scores of some queries are ATTENTION_SPAN floats apart, the slots of one span. Tiles take so many queries and vectors
// as the registers hold, so each loop over these is unrolled; the forms with fewer are for what is left over. A score's
// bits do not depend on the form that made it. attention.c includes this; nothing is kept.
#ifndef QUERN_ATTENTION_TILES_H
#define QUERN_ATTENTION_TILES_H

#include "kernels/cpu/matmul_f32_tile.h"
#include "kernels/graph.h"

enum {
    VALUE_VECS = 8,
    PLAIN_QUERIES = TILE_COLS > 1 ? 12 : 2, // up to so many take values of 16 bits as they lie: each tile decodes them
    SOFTMAX_QUERIES = 8,                    // whose scores the L1 cache holds
};

// Bytes of keys and values that are fetched before their use: by row into L1, by streams into L2, which has far more misses
// under way. On Zen 4 f16 is 1.25 to 1.9 times as fast by 16 KB into L2 as by 4 KB into L1.
enum { PAGE_AHEAD_L1 = 4096, PAGE_AHEAD_L2 = 16384 };

INLINE void fetch_line(const char *at, enum reading reading)
{
    if (reads_streams(reading))
        __builtin_prefetch(at, 0, 2);
    else
        __builtin_prefetch(at);
}

// Up to whole LANES.
static int padded(int dim)
{
    return (dim + LANES - 1) / LANES * LANES;
}

// A case for each number of columns that a tile may have.
#define UP_TO_SIX(X) X(1) X(2) X(3) X(4) X(5) X(6)

// ---- scores of few queries, keys as rows

#if defined(VEC_PLAIN)
enum { ROW_QUERIES = 1 };
#else
enum { ROW_QUERIES = TILE_SUMS >= 16 ? 4 : TILE_SUMS / TILE_ROWS }; // 4 keys by 4 queries: 16 registers of sums
#endif

// The products of TILE_ROWS keys and some queries, for the parts [first, end) of the lanes.
INLINE void row_sums(enum dtype type, int queries, int first, int end, const char *const keys[TILE_ROWS],
                     const float *const *q, int stride, struct lanes sums[TILE_ROWS][ROW_QUERIES])
{
    vec s[TILE_ROWS][ROW_QUERIES][PARTS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int i = 0; i < queries; i++)
            UNROLL_FOR (int p = first; p < end; p++)
                s[r][i][p] = (vec){0};
    for (int d = 0; d < stride; d += LANES) {
        UNROLL_FOR (int p = first; p < end; p++) {
            vec query[ROW_QUERIES];
            UNROLL_FOR (int i = 0; i < queries; i++)
                query[i] = vec_held(vec_load(q[i] + d + p * VEC));
            UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
                vec key = vec_held(weight_load(type, keys[r] + (size_t)(d + p * VEC) * weight_bytes(type)));
                UNROLL_FOR (int i = 0; i < queries; i++)
                    s[r][i][p] = vec_fma(key, query[i], s[r][i][p]);
            }
        }
    }
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int i = 0; i < queries; i++)
            UNROLL_FOR (int p = first; p < end; p++)
                sums[r][i].part[p] = s[r][i][p];
}

// Scores of TILE_ROWS keys. Several queries go a part of the lanes after the other: the registers hold no more.
INLINE void row_tile(enum dtype type, int queries, const char *const keys[TILE_ROWS], const float *const *q, int stride,
                     float *scores)
{
    struct lanes sums[TILE_ROWS][ROW_QUERIES];
    if (PARTS == 1 || queries == 1) {
        row_sums(type, queries, 0, PARTS, keys, q, stride, sums);
    } else {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            row_sums(type, queries, p, p + 1, keys, q, stride, sums);
            __asm__("" : "+m"(sums)); // else the compiler holds them in registers, and this part's no longer
        }
    }
    quad four[ROW_QUERIES];
#if defined(VEC_AVX512)
    if (queries == ROW_QUERIES)
        lanes_sum4x4(sums, four);
    else
#endif
        UNROLL_FOR (int i = 0; i < queries; i++)
            four[i] = lanes_sum4(sums[0][i], sums[1][i], sums[2][i], sums[3][i]);
    UNROLL_FOR (int i = 0; i < queries; i++)
        memcpy(scores + i * ATTENTION_SPAN, &four[i], sizeof(four[i]));
}

INLINE void row_tiles(enum dtype type, int queries, const char *const keys[TILE_ROWS], const float *const *q,
                      int stride, float *scores)
{
    switch (MIN(queries, ROW_QUERIES)) {
    case 1:
        row_tile(type, 1, keys, q, stride, scores);
        break;
    case 2:
        row_tile(type, MIN(2, ROW_QUERIES), keys, q, stride, scores);
        break;
    case 3:
        row_tile(type, MIN(3, ROW_QUERIES), keys, q, stride, scores);
        break;
    case 4:
        row_tile(type, MIN(4, ROW_QUERIES), keys, q, stride, scores);
        break;
    }
}

// ---- scores of many queries, keys as columns

// The lanes in the order in which sums by halves meet.
static const uint8_t lane_order[LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

// The turned page: lane by lane, in that order, so that the dimensions are read one after the other; floats from one
// lane to the next, with a gap, for else the stores of one key all fall on the same set of the cache.
static int turned_lane(int stride)
{
    return stride / LANES * KV_PAGE + LANES;
}

// VEC keys' rows into the columns of the turned page that begin at `turned`. (The order of the lanes is that of their
// bits reversed, and so its own inverse.)
INLINE void turn_rows(enum dtype type, const char *rows, size_t row_bytes, int stride, float *turned)
{
    int lane = turned_lane(stride);
    for (int d = 0; d < stride; d += LANES, turned += KV_PAGE) {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            vec r[VEC];
            UNROLL_FOR (int i = 0; i < VEC; i++)
                r[i] = weight_load(type, rows + (size_t)i * row_bytes + (size_t)(d + p * VEC) * weight_bytes(type));
            vec_transpose(r);
            UNROLL_FOR (int i = 0; i < VEC; i++)
                vec_store(turned + lane_order[p * VEC + i] * lane, r[i]);
        }
    }
}

// Vectors of keys and queries in a register tile: with the sums of two lanes side by side they leave AVX-512 room for
// those that wait, and are all that AVX2 holds.
enum { SCORE_VECS = 2, SCORE_QUERIES = TILE_SUMS >= 12 ? 3 : 1 };

// The products of dimension d: some queries by some vectors of keys.
INLINE void sum_dimension(int queries, int vecs, const float *const *q, int d, const float *turned,
                          vec sums[SCORE_QUERIES][SCORE_VECS])
{
    vec factor[SCORE_QUERIES];
    UNROLL_FOR (int i = 0; i < queries; i++)
        factor[i] = vec_all(q[i][d]);
    UNROLL_FOR (int v = 0; v < vecs; v++) {
        vec keys = vec_held(vec_load(turned + v * VEC));
        UNROLL_FOR (int i = 0; i < queries; i++)
            sums[i][v] = vec_fma(keys, factor[i], sums[i][v]);
    }
}

// Two lanes that meet first, which are half of LANES apart: the products of their dimensions, and the sum of both.
INLINE void sum_pair(int queries, int vecs, const float *const *q, int lane, int stride, const float *turned,
                     vec sums[SCORE_QUERIES][SCORE_VECS])
{
    vec other[SCORE_QUERIES][SCORE_VECS];
    const float *beside = turned + turned_lane(stride);
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            sums[i][v] = other[i][v] = (vec){0};
    for (int d = 0; d < stride; d += LANES, turned += KV_PAGE, beside += KV_PAGE) {
        sum_dimension(queries, vecs, q, d + lane, turned, sums);
        sum_dimension(queries, vecs, q, d + lane + LANES / 2, beside, other);
    }
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            sums[i][v] += other[i][v];
}

// Scores of some vectors of keys. Sums are added as soon as two of a level are there, so that at most three wait.
INLINE void score_tile(int queries, int vecs, const float *const *query, int stride, const float *turned, float *scores)
{
    vec sums[SCORE_QUERIES][SCORE_VECS], waiting[3][SCORE_QUERIES][SCORE_VECS];
    const float *q[SCORE_QUERIES];
    UNROLL_FOR (int i = 0; i < queries; i++)
        q[i] = query[i];
    UNROLL_FOR (int n = 0, depth = 0; n < LANES / 2; n++, depth++) {
        sum_pair(queries, vecs, q, lane_order[2 * n], stride, turned + 2 * n * turned_lane(stride), sums);
        UNROLL_FOR (int pairs = n; pairs & 1; pairs >>= 1) {
            depth--;
            UNROLL_FOR (int i = 0; i < queries; i++)
                UNROLL_FOR (int v = 0; v < vecs; v++)
                    sums[i][v] = waiting[depth][i][v] + sums[i][v];
        }
        UNROLL_FOR (int i = 0; n < LANES / 2 - 1 && i < queries; i++)
            UNROLL_FOR (int v = 0; v < vecs; v++)
                waiting[depth][i][v] = sums[i][v];
    }
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            vec_store(scores + i * ATTENTION_SPAN + v * VEC, sums[i][v]);
}

static void score_tiles(int queries, int vecs, const float *const *q, int stride, const float *turned, float *scores)
{
    switch (queries * SCORE_VECS + vecs - 1) {
// clang-format off
#define TILE_CASE(n, v)                                                                                                \
    case n * SCORE_VECS + v - 1:                                                                                        \
        score_tile(MIN(n, SCORE_QUERIES), v, q, stride, turned, scores);                                               \
        break;
        TILE_CASE(1, 1) TILE_CASE(2, 1) TILE_CASE(3, 1) TILE_CASE(1, 2) TILE_CASE(2, 2) TILE_CASE(3, 2)
// clang-format on
#undef TILE_CASE
    }
}

// ---- softmax

INLINE quad quad_greater(quad a, quad b)
{
    quadi less = a < b;
    return (quad)((less & (quadi)b) | (~less & (quadi)a));
}

static float greatest(struct lanes x)
{
    quad q[4];
    memcpy(q, &x, sizeof(q));
    quad most = quad_greater(quad_greater(q[0], q[1]), quad_greater(q[2], q[3]));
    float a = most[0] < most[1] ? most[1] : most[0], b = most[2] < most[3] ? most[3] : most[2];
    return a < b ? b : a;
}

INLINE vec score_of(const struct attention_args *a, vec product)
{
    vec s = product * a->scale;
    return a->softcap > 0 ? a->softcap * vec_tanh(s / a->softcap) : s;
}

// The LANES that hold an edge of the slots [lo, hi), `slot`: what is outside becomes -infinity.
static void scale_edge(const struct attention_args *a, float *scores, int slot, int lo, int hi, struct lanes *most)
{
    static const int32_t counting[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int first = slot / LANES * LANES;
    UNROLL_FOR (int p = 0; p < PARTS; p++) {
        float *at = scores + first + p * VEC;
        veci i;
        memcpy(&i, counting + p * VEC, sizeof(i));
        i += first;
        vec s = vec_select((i >= lo) & (i < hi), score_of(a, vec_load(at)), vec_all(-INFINITY));
        vec_store(at, s);
        most->part[p] = vec_at_least(most->part[p], s);
    }
}

// The dot products in the slots [lo, hi) become scores, and what fills these up to whole LANES -infinity. Returns the
// greatest.
static float scale_scores(const struct attention_args *a, float *scores, int lo, int hi)
{
    struct lanes even, odd; // two chains of maxima, which change places
    for (int p = 0; p < PARTS; p++)
        even.part[p] = odd.part[p] = vec_all(-INFINITY);
    int begin = padded(lo), end = hi / LANES * LANES;
    if (lo < begin)
        scale_edge(a, scores, lo, lo, hi, &even);
    if (end < hi && begin <= end)
        scale_edge(a, scores, end, lo, hi, &odd);
    for (int i = begin; i < end; i += LANES) {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            vec s = score_of(a, vec_load(scores + i + p * VEC));
            vec_store(scores + i + p * VEC, s);
            vec most = vec_at_least(even.part[p], s);
            even.part[p] = odd.part[p];
            odd.part[p] = most;
        }
    }
    UNROLL_FOR (int p = 0; p < PARTS; p++)
        even.part[p] = vec_at_least(even.part[p], odd.part[p]);
    return greatest(even);
}

// The scores in the slots [begin, end) become e^(score - top); returns their sum.
static float exp_scores(float *scores, int begin, int end, float top)
{
    struct lanes sums = {{{0}}};
    for (int i = begin; i < end; i += LANES) {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            __builtin_prefetch(scores + i + p * VEC + SOFTMAX_QUERIES * ATTENTION_SPAN); // that come next
            vec e = vec_exp_down(vec_load(scores + i + p * VEC) - top);
            vec_store(scores + i + p * VEC, e);
            sums.part[p] += e;
        }
    }
    return lanes_sum(sums);
}

// ---- values

// Rows of values, in the page or decoded.
struct value_rows {
    const char *rows;
    size_t row_bytes;
    size_t ahead; // so many bytes further on, counted round, lies what is fetched while a row is read; 0: nothing
    enum reading reading;
};

// Adds positions [lo, hi) of a page to `vecs` vectors of the sums of some queries; p and values are the first one's.
INLINE void value_tile(enum dtype type, int queries, int vecs, const struct value_rows *rows, int lo, int hi,
                       const float *p, float *values, int stride)
{
    vec sums[TILE_COLS][VALUE_VECS];
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            sums[i][v] = vec_load(values + i * stride + v * VEC);
    const char *row = rows->rows + (size_t)lo * rows->row_bytes;
    const size_t ahead = vecs > 1 ? rows->ahead : 0;
    for (int at = lo; at < hi; at++, row += rows->row_bytes) {
        vec factor[TILE_COLS];
        UNROLL_FOR (int i = 0; i < queries; i++)
            factor[i] = vec_all(p[i * ATTENTION_SPAN + at]);
        UNROLL_FOR (int v = 0; v < vecs; v++) {
            if (ahead && v * VEC * (int)weight_bytes(type) % 64 == 0)
                fetch_line((const char *)((uintptr_t)row + ahead) + (size_t)(v * VEC) * weight_bytes(type),
                           rows->reading);
            vec value = weight_load(type, row + (size_t)(v * VEC) * weight_bytes(type));
            UNROLL_FOR (int i = 0; i < queries; i++)
                sums[i][v] = vec_fma(factor[i], value, sums[i][v]);
        }
    }
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            vec_store(values + i * stride + v * VEC, sums[i][v]);
}

// All of dim_v, in tiles of as many vectors as the registers hold.
INLINE void value_columns(enum dtype type, int queries, const struct value_rows *rows, int lo, int hi, const float *p,
                          float *values, int stride)
{
    int wide = queries * VALUE_VECS <= TILE_SUMS ? VALUE_VECS : VALUE_VECS / 2;
    for (int d = 0, vecs; d < stride; d += vecs * VEC) {
        struct value_rows part = {rows->rows + (size_t)d * weight_bytes(type), rows->row_bytes, rows->ahead,
                                  rows->reading};
        vecs = d + wide * VEC <= stride ? wide : 1;
        if (vecs == 1)
            value_tile(type, queries, 1, &part, lo, hi, p, values + d, stride);
        else
            value_tile(type, queries, wide, &part, lo, hi, p, values + d, stride);
    }
}

#define VALUES(type, name)                                                                                             \
    static void values_##name(int queries, const struct value_rows *rows, int lo, int hi, const float *p,              \
                              float *values, int stride)                                                               \
    {                                                                                                                  \
        switch (MIN(queries, TILE_COLS)) {                                                                             \
            UP_TO_SIX(VALUES_OF_##name)                                                                                \
        }                                                                                                              \
    }
#define VALUES_CASE(type, n)                                                                                           \
    case n:                                                                                                            \
        value_columns(type, MIN(n, TILE_COLS), rows, lo, hi, p, values, stride);                                       \
        break;
#define VALUES_OF_f32(n) VALUES_CASE(DT_F32, n)
#define VALUES_OF_f16(n) VALUES_CASE(DT_F16, n)
VALUES(DT_F32, f32)
VALUES(DT_F16, f16)
typedef void values_fn(int queries, const struct value_rows *rows, int lo, int hi, const float *p, float *values,
                       int stride);

#endif
