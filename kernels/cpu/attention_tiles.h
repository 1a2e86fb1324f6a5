// The inner loops of attention with floats: register tiles for scores, softmax, and register tiles for values. They
// know queries, rows of keys and values, and slots of a span, but no pages; see attention.c for the loops around
// them.
//
// A query has ATTENTION_SPAN scores, one for each slot of a span, and the next query's scores follow. A tile takes as
// many queries and vectors as the registers hold, with all loops over them unrolled; smaller tiles serve the
// remainder. The bits of a score do not depend on the tile that computed it.
//
// Compiled for every ISA level, within attention.c. Ownership: none. Threads: no state.
#ifndef QUERN_ATTENTION_TILES_H
#define QUERN_ATTENTION_TILES_H

#include "kernels/cpu/matmul_f32_tile.h"
#include "kernels/graph.h"

enum {
    VALUE_VECS = 8,
    PLAIN_QUERIES = TILE_COLS > 1 ? 12 : 2, // most queries that read 16-bit values in place; each tile widens them
    SOFTMAX_QUERIES = 8,                    // queries whose scores the L1 cache holds
};

// How far ahead keys and values are prefetched, in bytes: into L1 on CPUs that read by row, into L2 on CPUs that read
// streams, because L2 can have far more misses in flight. On Zen 4, F16 is 1.25 to 1.9 times as fast with 16 KB into
// L2 as with 4 KB into L1.
enum { PAGE_AHEAD_L1 = 4096, PAGE_AHEAD_L2 = 16384 };

INLINE void fetch_line(const char *at, enum reading reading)
{
    if (reads_streams(reading))
        __builtin_prefetch(at, 0, 2);
    else
        __builtin_prefetch(at);
}

// Rounds up to whole LANES.
static int padded(int dim)
{
    return (dim + LANES - 1) / LANES * LANES;
}

// UP_TO_SIX(X): X(n) for each number of columns n that a tile may have.
#define UP_TO_SIX(X) X(1) X(2) X(3) X(4) X(5) X(6)

// ---- scores of few queries, keys as rows

#if defined(VEC_PLAIN)
enum { ROW_QUERIES = 1 };
#else
enum { ROW_QUERIES = TILE_SUMS >= 16 ? 4 : TILE_SUMS / TILE_ROWS }; // 4 keys by 4 queries are 16 accumulators
#endif

// Accumulates the scores of TILE_ROWS keys and some queries, for parts [first, end) of the lanes. The caller adds up
// the lanes.
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

// Computes the scores of TILE_ROWS keys and some queries. With several queries, one part of the lanes is accumulated
// after the other, because the registers hold no more.
INLINE void row_tile(enum dtype type, int queries, const char *const keys[TILE_ROWS], const float *const *q, int stride,
                     float *scores)
{
    struct lanes sums[TILE_ROWS][ROW_QUERIES];
    if (PARTS == 1 || queries == 1) {
        row_sums(type, queries, 0, PARTS, keys, q, stride, sums);
    } else {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            row_sums(type, queries, p, p + 1, keys, q, stride, sums);
            __asm__("" : "+m"(sums)); // else the compiler keeps finished sums in registers and spills accumulators
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

// The order of lanes in a transposed page: two lanes that lanes_sum adds first are neighbours, then two such pairs,
// and so on. An entry is its index with the bits reversed, so the table is its own inverse.
static const uint8_t lane_order[LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

// Returns the floats from one lane of a transposed page to the next. The layout of the page is [LANES, in lane_order]
// [stride / LANES][KV_PAGE keys], so that a lane's dimensions are read one after the other. A gap of LANES floats
// after each lane prevents that all stores of one key fall on the same set of the cache.
static int transposed_lane(int stride)
{
    return stride / LANES * KV_PAGE + LANES;
}

// Transposes the rows of VEC keys into the columns of a transposed page that begin at `transposed`.
INLINE void transpose_rows(enum dtype type, const char *rows, size_t row_bytes, int stride, float *transposed)
{
    int lane = transposed_lane(stride);
    for (int d = 0; d < stride; d += LANES, transposed += KV_PAGE) {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            vec r[VEC];
            UNROLL_FOR (int i = 0; i < VEC; i++)
                r[i] = weight_load(type, rows + (size_t)i * row_bytes + (size_t)(d + p * VEC) * weight_bytes(type));
            vec_transpose(r);
            UNROLL_FOR (int i = 0; i < VEC; i++)
                vec_store(transposed + lane_order[p * VEC + i] * lane, r[i]);
        }
    }
}

// Vectors of keys and queries in a register tile. Two lanes are accumulated at a time, so there are 12 accumulators
// at most. They are all that AVX2 holds; AVX-512 also has registers for the sums that wait for their partner.
enum { SCORE_VECS = 2, SCORE_QUERIES = TILE_SUMS >= 12 ? 3 : 1 };

// Adds the products of dimension d, of some queries and some vectors of keys.
INLINE void sum_dimension(int queries, int vecs, const float *const *q, int d, const float *transposed,
                          vec sums[SCORE_QUERIES][SCORE_VECS])
{
    vec factor[SCORE_QUERIES];
    UNROLL_FOR (int i = 0; i < queries; i++)
        factor[i] = vec_all(q[i][d]);
    UNROLL_FOR (int v = 0; v < vecs; v++) {
        vec keys = vec_held(vec_load(transposed + v * VEC));
        UNROLL_FOR (int i = 0; i < queries; i++)
            sums[i][v] = vec_fma(keys, factor[i], sums[i][v]);
    }
}

// Accumulates lane `lane` and lane `lane + LANES / 2`, which lanes_sum adds first, and returns their sum in `sums`.
INLINE void sum_pair(int queries, int vecs, const float *const *q, int lane, int stride, const float *transposed,
                     vec sums[SCORE_QUERIES][SCORE_VECS])
{
    vec other[SCORE_QUERIES][SCORE_VECS];
    const float *beside = transposed + transposed_lane(stride);
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            sums[i][v] = other[i][v] = (vec){0};
    for (int d = 0; d < stride; d += LANES, transposed += KV_PAGE, beside += KV_PAGE) {
        sum_dimension(queries, vecs, q, d + lane, transposed, sums);
        sum_dimension(queries, vecs, q, d + lane + LANES / 2, beside, other);
    }
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            sums[i][v] += other[i][v];
}

// Computes the scores of some vectors of keys. Two sums of the same level of the tree of lanes_sum are added as soon
// as both exist, so that at most three sums wait.
INLINE void score_tile(int queries, int vecs, const float *const *query, int stride, const float *transposed,
                       float *scores)
{
    vec sums[SCORE_QUERIES][SCORE_VECS], waiting[3][SCORE_QUERIES][SCORE_VECS];
    const float *q[SCORE_QUERIES];
    UNROLL_FOR (int i = 0; i < queries; i++)
        q[i] = query[i];
    UNROLL_FOR (int n = 0, depth = 0; n < LANES / 2; n++, depth++) {
        sum_pair(queries, vecs, q, lane_order[2 * n], stride, transposed + 2 * n * transposed_lane(stride), sums);
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

static void score_tiles(int queries, int vecs, const float *const *q, int stride, const float *transposed,
                        float *scores)
{
    switch (queries * SCORE_VECS + vecs - 1) {
// clang-format off
#define TILE_CASE(n, v)                                                                                                \
    case n * SCORE_VECS + v - 1:                                                                                       \
        score_tile(MIN(n, SCORE_QUERIES), v, q, stride, transposed, scores);                                           \
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

// The numbers 0 to LANES - 1.
static const int32_t counting[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

INLINE veci counted(int p)
{
    veci i;
    memcpy(&i, counting + p * VEC, sizeof(i));
    return i;
}

// What turns the dot products of a query into scores. Slot 0 is at the position `from` behind the query's own.
struct scoring {
    const struct attention_args *a;
    float slope; // 0: scores do not depend on the distance
    int32_t from;
};

// The scores of the products of the slots from `slot` on. A slope changes nothing of the others' arithmetic: it is added
// last, by an fma.
INLINE vec score_of(const struct scoring *s, vec product, int slot, int p)
{
    vec score = product * s->a->scale;
    score = s->a->softcap > 0 ? s->a->softcap * vec_tanh(score / s->a->softcap) : score;
    if (s->slope == 0)
        return score;
    veci behind = counted(p) + (slot + s->from); // 0 or less, but with attention both ways
    const veci after = behind > 0;               // all bits set where true
    if (s->a->both_ways)
        behind = (behind ^ after) - after;
    return vec_fma(vec_all(s->slope), veci_to_vec(behind), score);
}

// Scales the LANES dot products around `slot`, which is an end of the range [lo, hi). Slots outside of the range
// become -infinity. *most: running maxima.
static void scale_edge(const struct scoring *how, float *scores, int slot, int lo, int hi, struct lanes *most)
{
    int first = slot / LANES * LANES;
    UNROLL_FOR (int p = 0; p < PARTS; p++) {
        float *at = scores + first + p * VEC;
        const veci i = counted(p) + first;
        vec s = vec_select((i >= lo) & (i < hi), score_of(how, vec_load(at), first, p), vec_all(-INFINITY));
        vec_store(at, s);
        most->part[p] = vec_at_least(most->part[p], s);
    }
}

// Turns the dot products in the slots [lo, hi) into scores: scaled, capped if there is a softcap, and with the slope of
// their distance added. Slots that fill up the range to whole LANES become -infinity. Returns the maximum score.
INLINE float scale_range(const struct scoring *how, float *scores, int lo, int hi)
{
    struct lanes even, odd; // two independent chains of maxima, which swap names in every turn
    for (int p = 0; p < PARTS; p++)
        even.part[p] = odd.part[p] = vec_all(-INFINITY);
    int begin = padded(lo), end = hi / LANES * LANES;
    if (lo < begin)
        scale_edge(how, scores, lo, lo, hi, &even);
    if (end < hi && begin <= end)
        scale_edge(how, scores, end, lo, hi, &odd);
    for (int i = begin; i < end; i += LANES) {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            vec s = score_of(how, vec_load(scores + i + p * VEC), i, p);
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

// The same, compiled by itself for queries without a slope. from: the position of slot 0 minus that of the query.
static float scale_scores(const struct attention_args *a, float *scores, int lo, int hi, float slope, int32_t from)
{
    if (slope == 0)
        return scale_range(&(struct scoring){a, 0, 0}, scores, lo, hi);
    return scale_range(&(struct scoring){a, slope, from}, scores, lo, hi);
}

// Replaces the scores in the slots [begin, end) by e^(score - top) and returns their sum. Prefetches the scores of
// the query SOFTMAX_QUERIES further on.
static float exp_scores(float *scores, int begin, int end, float top)
{
    struct lanes sums = {{{0}}};
    for (int i = begin; i < end; i += LANES) {
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            __builtin_prefetch(scores + i + p * VEC + SOFTMAX_QUERIES * ATTENTION_SPAN);
            vec e = vec_exp_down(vec_load(scores + i + p * VEC) - top);
            vec_store(scores + i + p * VEC, e);
            sums.part[p] += e;
        }
    }
    return lanes_sum(sums);
}

// ---- values

// Rows of values, in place in the page or decoded.
struct value_rows {
    const char *rows;
    size_t row_bytes;
    size_t ahead; // bytes from a row to the memory that is prefetched while it is read, modulo 2^64; 0: none is
    enum reading reading;
};

// Adds the slots [lo, hi) of a page to `vecs` vectors of the sums of some queries. p and values are those of the
// first query: p of slot 0, and the sums, which are `stride` floats apart.
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

// Adds the slots [lo, hi) to all of dim_v, in tiles of as many vectors as the registers hold.
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

// VALUES(type, name): defines values_NAME, which selects the tile for the number of queries.
//   type   the type of the rows; it only documents, because VALUES_OF_NAME contains it
//   name   f32 or f16
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
