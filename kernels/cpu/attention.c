// Attention of some rows, for one KV head and the query heads that share it.
//
// The naive loop, for each row and head, over the positions that it sees: s = scale q.k, p = e^(s - max), and
// out = sum p v / sum p. What stands below takes the (row, head) pairs of one sequence together, as many as the scratch
// holds, and goes span by span, so that a page of keys or values is fetched and decoded once for all of them:
//   scores    Few queries: four keys by some queries, in lanes over dim_k. Many queries: the page is turned, a vector
//             holds one dimension of many keys, and the lanes of a score are added up one after the other, in the order
//             in which sums by halves meet: the same sums, without the shuffles.
//   softmax   of the span's scores, a query at a time
//   values    o[d] += p v[d] in order of position, in register tiles of some queries by up to 8 vectors of d
//   merge     of the span with what came before
// Which positions a query sees is arithmetic on ranges: what is masked is neither multiplied nor added, but where a
// vector of scores straddles the edge, and there its p is 0.
#include <assert.h>

#include "kernels/cpu/tile.h"
#include "kernels/graph.h"

enum {
    TURN_QUERIES = 24, // from here on, turning a page of keys costs less than the shuffles that it saves
    VALUE_VECS = 8,
    VALUE_ROWS = 8,      // that are decoded at a time
    SOFTMAX_QUERIES = 8, // whose scores the L1 cache holds
    PAGE_AHEAD = 4096,   // bytes of keys and values that are fetched before their use
};

// A case for each number of columns that a tile may have.
#define UP_TO_SIX(X) X(1) X(2) X(3) X(4) X(5) X(6)

// One (row, head) pair. It sees the positions [lo, hi).
struct query {
    int32_t lo, hi;
    float top, sum;           // over all spans so far: the greatest score, and the sum of e^(score - top)
    float span_top, span_sum; // of this span
    float *out;               // [dim_v], divided by `sum` at the end
};

// The scratch of a thread, cut for the dimensions at hand. Strides are in floats and multiples of LANES.
struct work {
    const struct attention_args *a;
    int stride_k, stride_v;
    float *page;           // KV_PAGE rows of keys or values in float32, or the keys turned: [stride_k][KV_PAGE]
    float *rows;           // four rows of keys on their way there
    struct query *queries; // [capacity]
    float *q;              // [capacity][stride_k], padded with zeros
    float *scores;         // [capacity][ATTENTION_SPAN]: of position i at i % ATTENTION_SPAN
    float *values;         // [capacity][stride_v]: this span's sums
    int capacity, n;
    int32_t lo, hi;       // what any of them sees
    const int32_t *pages; // of their sequence
    const uint8_t *next;  // the page after the one at hand; NULL: none
    size_t next_row_bytes;
};

// At the greatest dimensions there must be room for the page, four rows, and the queries of a tile.
enum {
    PAGE_FLOATS_MAX = KV_PAGE * (ATTENTION_DIM_MAX + LANES) + 4 * ATTENTION_DIM_MAX,
    QUERY_FLOATS_MAX = 2 * ATTENTION_DIM_MAX + ATTENTION_SPAN + sizeof(struct query) / sizeof(float),
};
_Static_assert(4 * (PAGE_FLOATS_MAX + TILE_COLS * QUERY_FLOATS_MAX) < SCRATCH_BYTES, "the scratch holds a tile");

static int padded(int dim)
{
    return (dim + LANES - 1) / LANES * LANES;
}

static float *take(char **at, int64_t floats)
{
    float *p = (float *)*at;
    *at += floats * (int64_t)sizeof(float);
    return p;
}

static struct work work_cut(const struct attention_args *a)
{
    assert(a->dim_k <= ATTENTION_DIM_MAX && a->dim_v <= ATTENTION_DIM_MAX);
    struct work w = {.a = a, .stride_k = padded(a->dim_k), .stride_v = padded(a->dim_v)};
    char *at = a->scratch;
    w.page = take(&at, (int64_t)KV_PAGE * (MAX(w.stride_k, w.stride_v) + LANES)); // with the gaps below
    w.rows = take(&at, 4 * w.stride_k);
    size_t each = sizeof(struct query) + sizeof(float) * (size_t)(w.stride_k + ATTENTION_SPAN + w.stride_v);
    size_t left = SCRATCH_BYTES - (size_t)(at - (char *)a->scratch) - 64;
    w.capacity = (int)(left / each) / TILE_COLS * TILE_COLS;
    w.q = take(&at, (int64_t)w.capacity * w.stride_k);
    w.scores = take(&at, (int64_t)w.capacity * ATTENTION_SPAN);
    w.values = take(&at, (int64_t)w.capacity * w.stride_v);
    w.queries = (struct query *)at;
    return w;
}

// ---- pages

// Rows of the page that holds position `at`.
static const uint8_t *page_rows(const struct work *w, const uint8_t *base, int32_t at)
{
    return base + (size_t)w->pages[at / KV_PAGE] * w->a->page_bytes;
}

// Whether the tiles can take a type's rows as they lie in the page: plain floats with no tail.
static bool plain(enum dtype type, int dim)
{
    return (type == DT_F32 || type == DT_F16) && dim % LANES == 0;
}

// While rows [lo, hi) of a page are at work, those PAGE_AHEAD bytes further on are fetched, be it in the next page.
static void fetch_rows(const struct work *w, const uint8_t *page, size_t row_bytes, int lo, int hi)
{
    const size_t size = KV_PAGE * row_bytes;
    for (size_t i = (size_t)lo * row_bytes + PAGE_AHEAD; i < (size_t)hi * row_bytes + PAGE_AHEAD; i += 64) {
        if (i < size)
            __builtin_prefetch(page + i);
        else if (w->next)
            __builtin_prefetch(w->next + (i - size));
    }
}

// The start of the next page.
static void fetch_next(const struct work *w)
{
    for (size_t i = 0; w->next && i < MIN(PAGE_AHEAD, KV_PAGE * w->next_row_bytes); i += 64)
        __builtin_prefetch(w->next + i);
}

// Rows [row, row + n) of a page, `stride` floats from one to the next, zeros behind each.
static void decode_rows(enum dtype type, const uint8_t *page, int row, int n, int dim, float *out, int stride)
{
    size_t row_bytes = dtype_row_bytes(type, dim);
    page += (size_t)row * row_bytes;
    if (dim == stride) {
        ISA_FN(decode_table)[type](page, out, (int64_t)n * dim);
        return;
    }
    for (int i = 0; i < n; i++, page += row_bytes, out += stride) {
        ISA_FN(decode_table)[type](page, out, dim);
        for (int d = dim; d < padded(dim); d++)
            out[d] = 0;
    }
}

// The positions that any of some queries sees, and those that all of them see.
struct seen {
    int32_t lo, hi, all_lo, all_hi;
};

static struct seen seen_by(const struct query *q, int n)
{
    struct seen s = {q->lo, q->hi, q->lo, q->hi};
    for (int i = 1; i < n; i++) {
        s.lo = MIN(s.lo, q[i].lo);
        s.hi = MAX(s.hi, q[i].hi);
        s.all_lo = MAX(s.all_lo, q[i].lo);
        s.all_hi = MIN(s.all_hi, q[i].hi);
    }
    return s;
}

// ---- scores, few queries

#if defined(VEC_AVX512)
enum { ROW_QUERIES = 4 }; // 4 keys by 4 queries: 16 registers of sums
#else
enum { ROW_QUERIES = 1 };
#endif

// Scores of TILE_ROWS keys, of which the first n count.
INLINE void row_tile(enum dtype type, int queries, const char *const keys[TILE_ROWS], const float *q, int stride, int n,
                     float *scores)
{
    struct lanes sums[TILE_ROWS][ROW_QUERIES];
    UNROLL for (int r = 0; r < TILE_ROWS; r++)
        UNROLL for (int i = 0; i < queries; i++)
            UNROLL for (int p = 0; p < PARTS; p++)
                sums[r][i].part[p] = (vec){0};
    for (int d = 0; d < stride; d += LANES) {
        UNROLL for (int p = 0; p < PARTS; p++) {
            vec query[ROW_QUERIES];
            UNROLL for (int i = 0; i < queries; i++)
                query[i] = vec_load(q + i * stride + d + p * VEC);
            UNROLL for (int r = 0; r < TILE_ROWS; r++) {
                vec key = weight_load(type, keys[r] + (size_t)(d + p * VEC) * weight_bytes(type));
                UNROLL for (int i = 0; i < queries; i++)
                    sums[r][i].part[p] = vec_fma(key, query[i], sums[r][i].part[p]);
            }
        }
    }
    quad four[ROW_QUERIES];
#if defined(VEC_AVX512)
    if (queries == ROW_QUERIES)
        lanes_sum4x4(sums, four);
    else
#endif
        UNROLL for (int i = 0; i < queries; i++)
            four[i] = lanes_sum4(sums[0][i], sums[1][i], sums[2][i], sums[3][i]);
    UNROLL for (int i = 0; i < queries; i++)
        memcpy(scores + i * ATTENTION_SPAN, &four[i], (size_t)MIN(n, TILE_ROWS) * sizeof(float));
}

INLINE void row_tiles(enum dtype type, int queries, const char *const keys[TILE_ROWS], const float *q, int stride,
                      int n, float *scores)
{
    switch (MIN(queries, ROW_QUERIES)) {
    case 1:
        row_tile(type, 1, keys, q, stride, n, scores);
        break;
    case 2:
        row_tile(type, MIN(2, ROW_QUERIES), keys, q, stride, n, scores);
        break;
    case 3:
        row_tile(type, MIN(3, ROW_QUERIES), keys, q, stride, n, scores);
        break;
    case 4:
        row_tile(type, MIN(4, ROW_QUERIES), keys, q, stride, n, scores);
        break;
    }
}

// Of the keys [lo, hi) of the page that begins at position `at`, for all queries.
static void scores_by_rows(const struct work *w, int32_t at, int lo, int hi)
{
    const struct attention_args *a = w->a;
    const uint8_t *page = page_rows(w, a->k, at);
    bool as_is = plain(a->k_type, a->dim_k);
    size_t row_bytes = as_is ? dtype_row_bytes(a->k_type, a->dim_k) : (size_t)w->stride_k * sizeof(float);
    const char *rows = as_is ? (const char *)page : (const char *)w->page;
    if (!as_is)
        decode_rows(a->k_type, page, lo, hi - lo, a->dim_k, w->page + lo * w->stride_k, w->stride_k);
    for (int row = lo; row < hi; row += TILE_ROWS) {
        const char *keys[TILE_ROWS];
        fetch_rows(w, page, dtype_row_bytes(a->k_type, a->dim_k), row, MIN(row + TILE_ROWS, hi));
        for (int r = 0; r < TILE_ROWS; r++)
            keys[r] = rows + (size_t)MIN(row + r, hi - 1) * row_bytes;
        for (int t = 0, i; (i = tile_cut(t, w->n, ROW_QUERIES)) < w->n; t++) {
            int n = tile_cut(t + 1, w->n, ROW_QUERIES) - i;
            float *scores = w->scores + i * ATTENTION_SPAN + (at + row) % ATTENTION_SPAN;
            if (as_is && a->k_type == DT_F16)
                row_tiles(DT_F16, n, keys, w->q + i * w->stride_k, w->stride_k, hi - row, scores);
            else
                row_tiles(DT_F32, n, keys, w->q + i * w->stride_k, w->stride_k, hi - row, scores);
        }
    }
}

// ---- scores, many queries

// The lanes in the order in which sums by halves meet.
static const uint8_t lane_order[LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

// The turned page: lane by lane, in that order, so that the dimensions are read one after the other; floats from one
// lane to the next, with a gap, for else the stores of one key all fall on the same set of the cache.
static int turned_lane(int stride)
{
    return stride / LANES * KV_PAGE + LANES;
}

// Where the keys of dimension d stand. (The order is that of the bits reversed: it is its own inverse.)
static int turned_at(int d, int stride)
{
    return lane_order[d % LANES] * turned_lane(stride) + d / LANES * KV_PAGE;
}

// Four keys' rows into columns `key` to `key` + 3 of the turned page.
static void turn_rows(const float *rows, int stride, int key, float *turned)
{
    for (int d = 0; d < stride; d += VEC) {
        vec r[4];
        UNROLL for (int i = 0; i < 4; i++)
            r[i] = vec_load(rows + i * stride + d);
        vec_turn4(r);
        UNROLL for (int i = 0; i < VEC; i++)
            memcpy(turned + turned_at(d + i, stride) + key, (const char *)&r[i % 4] + i / 4 * 16, 16);
    }
}

// The keys [lo, hi) of a page, and what fills these up to whole vectors.
static void turn_page(const struct work *w, const uint8_t *page, int lo, int hi)
{
    const struct attention_args *a = w->a;
    for (int key = lo / 4 * 4; key < hi; key += 4) {
        decode_rows(a->k_type, page, key, 4, a->dim_k, w->rows, w->stride_k);
        turn_rows(w->rows, w->stride_k, key, w->page);
    }
}

// Vectors of keys and queries in a register tile: with the sums of two lanes side by side they leave AVX-512 room for
// those that wait, and are all that AVX2 holds.
enum { SCORE_VECS = 2, SCORE_QUERIES = TILE_SUMS >= 12 ? 3 : 1 };

// The products of one dimension: some queries by some vectors of keys.
INLINE void sum_dimension(int queries, int vecs, const float *q, int stride, const float *turned,
                          vec sums[SCORE_QUERIES][SCORE_VECS])
{
    vec factor[SCORE_QUERIES];
    UNROLL for (int i = 0; i < queries; i++)
        factor[i] = vec_all(q[i * stride]);
    UNROLL for (int v = 0; v < vecs; v++) {
        vec keys = vec_held(vec_load(turned + v * VEC));
        UNROLL for (int i = 0; i < queries; i++)
            sums[i][v] = vec_fma(keys, factor[i], sums[i][v]);
    }
}

// Two lanes that meet first, which are half of LANES apart: the products of their dimensions, and the sum of both.
INLINE void sum_pair(int queries, int vecs, const float *q, int stride, const float *turned,
                     vec sums[SCORE_QUERIES][SCORE_VECS])
{
    vec other[SCORE_QUERIES][SCORE_VECS];
    const float *beside = turned + turned_lane(stride);
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            sums[i][v] = other[i][v] = (vec){0};
    for (int d = 0; d < stride; d += LANES, turned += KV_PAGE, beside += KV_PAGE) {
        sum_dimension(queries, vecs, q + d, stride, turned, sums);
        sum_dimension(queries, vecs, q + d + LANES / 2, stride, beside, other);
    }
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            sums[i][v] += other[i][v];
}

// Scores of some vectors of keys. Sums are added as soon as two of a level are there, so that at most three wait.
INLINE void score_tile(int queries, int vecs, const float *q, int stride, const float *turned, float *scores)
{
    vec sums[SCORE_QUERIES][SCORE_VECS], waiting[3][SCORE_QUERIES][SCORE_VECS];
    UNROLL for (int n = 0, depth = 0; n < LANES / 2; n++, depth++) {
        sum_pair(queries, vecs, q + lane_order[2 * n], stride, turned + 2 * n * turned_lane(stride), sums);
        UNROLL for (int pairs = n; pairs & 1; pairs >>= 1) {
            depth--;
            UNROLL for (int i = 0; i < queries; i++)
                UNROLL for (int v = 0; v < vecs; v++)
                    sums[i][v] = waiting[depth][i][v] + sums[i][v];
        }
        UNROLL for (int i = 0; n < LANES / 2 - 1 && i < queries; i++)
            UNROLL for (int v = 0; v < vecs; v++)
                waiting[depth][i][v] = sums[i][v];
    }
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            vec_store(scores + i * ATTENTION_SPAN + v * VEC, sums[i][v]);
}

static void score_tiles(int queries, int vecs, const float *q, int stride, const float *turned, float *scores)
{
    switch (queries * SCORE_VECS + vecs - 1) {
#define TILE_CASE(n, v)                                                                                                \
    case n * SCORE_VECS + v - 1:                                                                                       \
        score_tile(MIN(n, SCORE_QUERIES), v, q, stride, turned, scores);                                               \
        break;
        TILE_CASE(1, 1) TILE_CASE(2, 1) TILE_CASE(3, 1) TILE_CASE(1, 2) TILE_CASE(2, 2) TILE_CASE(3, 2)
#undef TILE_CASE
    }
}

// Queries [i, i + n), for the keys of [lo, hi) of the turned page at position `at` that any of them sees.
static void score_seen(const struct work *w, int i, int n, int32_t at, int lo, int hi)
{
    struct seen seen = seen_by(w->queries + i, n);
    int begin = MAX(lo, seen.lo - at), end = MIN(hi, seen.hi - at);
    for (int key = begin / VEC * VEC, vecs; key < end; key += vecs * VEC) {
        vecs = end - key > VEC ? SCORE_VECS : 1;
        for (int j = i; j < i + n; j += SCORE_QUERIES)
            score_tiles(MIN(SCORE_QUERIES, i + n - j), vecs, w->q + j * w->stride_k, w->stride_k, w->page + key,
                        w->scores + j * ATTENTION_SPAN + at % ATTENTION_SPAN + key);
    }
}

static void scores_by_columns(const struct work *w, int32_t at, int lo, int hi)
{
    turn_page(w, page_rows(w, w->a->k, at), lo, hi);
    for (int i = 0; i < w->n; i += TILE_COLS)
        score_seen(w, i, MIN(TILE_COLS, w->n - i), at, lo, hi);
}

// ---- softmax

// Slots outside [lo, hi), in the LANES that hold `slot`, become x.
static void fill_around(float *scores, int slot, int lo, int hi, float x)
{
    static const int32_t counting[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int first = slot / LANES * LANES;
    UNROLL for (int p = 0; p < PARTS; p++) {
        veci at;
        memcpy(&at, counting + p * VEC, sizeof(at));
        at += first;
        float *each = scores + first + p * VEC;
        vec_store(each, vec_select((at >= lo) & (at < hi), vec_load(each), vec_all(x)));
    }
}

// What fills the slots [lo, hi) up to whole LANES becomes x.
static void fill_edges(float *scores, int lo, int hi, float x)
{
    if (lo % LANES)
        fill_around(scores, lo, lo, hi, x);
    if (hi % LANES)
        fill_around(scores, hi, lo, hi, x);
}

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

// The dot products in the slots [begin, end) become scores; returns the greatest.
static float scale_scores(const struct attention_args *a, float *scores, int begin, int end)
{
    struct lanes even, odd; // two chains of maxima, which change places
    for (int p = 0; p < PARTS; p++)
        even.part[p] = odd.part[p] = vec_all(-INFINITY);
    for (int i = begin; i < end; i += LANES) {
        UNROLL for (int p = 0; p < PARTS; p++) {
            vec s = vec_load(scores + i + p * VEC) * a->scale;
            if (a->softcap > 0)
                s = a->softcap * vec_tanh(s / a->softcap);
            vec_store(scores + i + p * VEC, s);
            vec most = vec_at_least(even.part[p], s);
            even.part[p] = odd.part[p];
            odd.part[p] = most;
        }
    }
    UNROLL for (int p = 0; p < PARTS; p++)
        even.part[p] = vec_at_least(even.part[p], odd.part[p]);
    return greatest(even);
}

// The scores in the slots [begin, end) become e^(score - top); returns their sum.
static float exp_scores(float *scores, int begin, int end, float top)
{
    struct lanes sums = {{{0}}};
    for (int i = begin; i < end; i += LANES) {
        UNROLL for (int p = 0; p < PARTS; p++) {
            vec e = vec_exp_down(vec_load(scores + i + p * VEC) - top);
            vec_store(scores + i + p * VEC, e);
            sums.part[p] += e;
        }
    }
    return lanes_sum(sums);
}

// What a query sees of the span that begins at a position.
static int span_lo(const struct query *q, int32_t begin)
{
    return MAX(0, q->lo - begin);
}

static int span_hi(const struct query *q, int32_t begin)
{
    return MIN(ATTENTION_SPAN, q->hi - begin);
}

// The dot products of a span that some queries see become e^(score - greatest). What fills them up to whole LANES is
// like one of them for the maximum, and then becomes 0. First all maxima: no query's powers wait for its own.
static void softmax(const struct attention_args *a, struct query *q, int n, float *scores, int32_t begin)
{
    for (int i = 0; i < n; i++) {
        int lo = span_lo(&q[i], begin), hi = span_hi(&q[i], begin);
        float *s = scores + i * ATTENTION_SPAN;
        if (lo >= hi)
            continue;
        fill_edges(s, lo, hi, s[lo]);
        q[i].span_top = scale_scores(a, s, lo / LANES * LANES, padded(hi));
        fill_edges(s, lo, hi, -INFINITY);
    }
    for (int i = 0; i < n; i++) {
        int lo = span_lo(&q[i], begin), hi = span_hi(&q[i], begin);
        if (lo < hi)
            q[i].span_sum = exp_scores(scores + i * ATTENTION_SPAN, lo / LANES * LANES, padded(hi), q[i].span_top);
    }
}

// ---- values

// Rows of values, in the page or decoded.
struct value_rows {
    const char *rows;
    size_t row_bytes;
};

// Adds positions [lo, hi) of a page to `vecs` vectors of the sums of some queries; p and values are the first one's.
INLINE void value_tile(enum dtype type, int queries, int vecs, const struct value_rows *rows, int lo, int hi,
                       const float *p, float *values, int stride)
{
    vec sums[TILE_COLS][VALUE_VECS];
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            sums[i][v] = vec_load(values + i * stride + v * VEC);
    const char *row = rows->rows + (size_t)lo * rows->row_bytes;
    for (int at = lo; at < hi; at++, row += rows->row_bytes) {
        vec factor[TILE_COLS];
        UNROLL for (int i = 0; i < queries; i++)
            factor[i] = vec_all(p[i * ATTENTION_SPAN + at]);
        UNROLL for (int v = 0; v < vecs; v++) {
            if (vecs > 1 && v * VEC * (int)weight_bytes(type) % 64 == 0)
                __builtin_prefetch(row + (size_t)(v * VEC) * weight_bytes(type) + PAGE_AHEAD);
            vec value = weight_load(type, row + (size_t)(v * VEC) * weight_bytes(type));
            UNROLL for (int i = 0; i < queries; i++)
                sums[i][v] = vec_fma(factor[i], value, sums[i][v]);
        }
    }
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            vec_store(values + i * stride + v * VEC, sums[i][v]);
}

// All of dim_v, in tiles of as many vectors as the registers hold.
INLINE void value_columns(enum dtype type, int queries, const struct value_rows *rows, int lo, int hi, const float *p,
                          float *values, int stride)
{
    int wide = queries * VALUE_VECS <= TILE_SUMS ? VALUE_VECS : VALUE_VECS / 2;
    for (int d = 0, vecs; d < stride; d += vecs * VEC) {
        struct value_rows part = {rows->rows + (size_t)d * weight_bytes(type), rows->row_bytes};
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

// Slots [lo, hi) of the page at position `at`, and where the p and the sums of the queries are.
struct value_step {
    values_fn *f;
    struct value_rows rows;
    int32_t at;
    int lo, hi;
    const float *p; // of slot 0
    float *values;
    int stride;
};

// The slots [lo, hi), which queries [first, first + n) all see.
static void add_slots(const struct value_step *s, int first, int n, int lo, int hi)
{
    if (lo < hi)
        s->f(n, &s->rows, lo, hi, s->p + first * ATTENTION_SPAN, s->values + first * s->stride, s->stride);
}

// Up to TILE_COLS queries: what all of them see together, and the edges, before and after it, one by one.
static void add_slots_seen(const struct value_step *s, const struct query *q, int n)
{
    struct seen seen = seen_by(q, n);
    int lo = MIN(MAX(s->lo, seen.all_lo - s->at), s->hi), hi = MAX(lo, MIN(s->hi, seen.all_hi - s->at));
    for (int i = 0; lo > s->lo && i < n; i++)
        add_slots(s, i, 1, MAX(s->lo, q[i].lo - s->at), MIN(lo, q[i].hi - s->at));
    add_slots(s, 0, n, lo, hi);
    for (int i = 0; hi < MIN(s->hi, seen.hi - s->at) && i < n; i++)
        add_slots(s, i, 1, MAX(hi, q[i].lo - s->at), MIN(s->hi, q[i].hi - s->at));
}

static void add_step(const struct work *w, struct value_step step)
{
    int n_tiles = (w->n + TILE_COLS - 1) / TILE_COLS, size = w->n / n_tiles, n_larger = w->n % n_tiles;
    for (int t = 0, i = 0, n; t < n_tiles; t++, i += n) {
        n = size + (t < n_larger);
        step.p = w->scores + i * ATTENTION_SPAN + step.at % ATTENTION_SPAN;
        step.values = w->values + i * w->stride_v;
        add_slots_seen(&step, w->queries + i, n);
    }
}

// Floats from one decoded row of values to the next: with a gap where else a vector of all rows falls on a few sets of
// the cache.
static int value_stride(const struct work *w)
{
    return w->stride_v + (w->stride_v < 256 ? 0 : LANES);
}

// The values [lo, hi) of the page that begins at position `at`, for all queries. For few of them in small steps,
// between which the next page is fetched.
static void add_values(const struct work *w, int32_t at, int lo, int hi)
{
    const struct attention_args *a = w->a;
    const uint8_t *page = page_rows(w, a->v, at);
    bool as_is = plain(a->v_type, a->dim_v) && (a->v_type == DT_F32 || w->n <= 2 * TILE_COLS);
    struct value_rows in_page = {(const char *)page, dtype_row_bytes(a->v_type, a->dim_v)};
    struct value_rows decoded = {(const char *)w->page, (size_t)value_stride(w) * sizeof(float)};
    struct value_step step = {.f = as_is && a->v_type == DT_F16 ? values_f16 : values_f32,
                              .rows = as_is ? in_page : decoded,
                              .at = at,
                              .lo = lo,
                              .hi = hi,
                              .stride = w->stride_v};
    for (int i = lo, n; !as_is && i < hi; i += n) {
        n = MIN(hi - i, VALUE_ROWS);
        fetch_rows(w, page, in_page.row_bytes, i, i + n);
        decode_rows(a->v_type, page, i, n, a->dim_v, w->page + i * value_stride(w), value_stride(w));
    }
    if (as_is)
        fetch_next(w);
    add_step(w, step);
}

// ---- spans

// out = old * out + new * values
static void blend(float old, float *out, float new, const float *values, int dim)
{
    for (int d = 0; d < dim; d += VEC) {
        int n = MIN(dim - d, VEC);
        vec_store_n(out + d, vec_fma(vec_load(values + d), vec_all(new), vec_load_n(out + d, n) * old), n);
    }
}

static void merge(struct query *q, const float *values, int dim)
{
    if (q->sum == 0) { // the first span
        q->top = q->span_top;
        q->sum = q->span_sum;
        memcpy(q->out, values, (size_t)dim * sizeof(float));
        return;
    }
    float top = q->top < q->span_top ? q->span_top : q->top;
    vec e = vec_exp((vec){q->top - top, q->span_top - top});
    float old = e[0], new = e[1];
    blend(old, q->out, new, values, dim);
    q->sum = vec_fma(vec_all(q->span_sum), vec_all(new), vec_all(q->sum * old))[0];
    q->top = top;
}

// Which page comes after the one at `at`, of those of a span: keys, then values, then the next span's keys.
static void set_next(struct work *w, int32_t at, int32_t first, int32_t hi, enum kv_part part)
{
    const struct attention_args *a = w->a;
    int32_t next = at + KV_PAGE;
    enum kv_part next_part = part;
    if (next >= hi) {
        next = part == KV_KEY ? first : hi;
        next_part = part == KV_KEY ? KV_VALUE : KV_KEY;
    }
    w->next = next < w->hi ? page_rows(w, next_part == KV_KEY ? a->k : a->v, next) : NULL;
    w->next_row_bytes =
        next_part == KV_KEY ? dtype_row_bytes(a->k_type, a->dim_k) : dtype_row_bytes(a->v_type, a->dim_v);
}

static void attend_span(struct work *w, int32_t begin)
{
    int32_t lo = MAX(w->lo, begin), hi = MIN(w->hi, begin + ATTENTION_SPAN);
    int32_t first = lo / KV_PAGE * KV_PAGE;
    for (int32_t at = first; at < hi; at += KV_PAGE) {
        set_next(w, at, first, hi, KV_KEY);
        (w->n < TURN_QUERIES ? scores_by_rows : scores_by_columns)(w, at, MAX(0, lo - at), MIN(KV_PAGE, hi - at));
    }
    for (int i = 0; i < w->n; i += SOFTMAX_QUERIES)
        softmax(w->a, w->queries + i, MIN(SOFTMAX_QUERIES, w->n - i), w->scores + i * ATTENTION_SPAN, begin);
    memset(w->values, 0, (size_t)(w->n * w->stride_v) * sizeof(float));
    for (int32_t at = first; at < hi; at += KV_PAGE) {
        set_next(w, at, first, hi, KV_VALUE);
        add_values(w, at, MAX(0, lo - at), MIN(KV_PAGE, hi - at));
    }
    for (int i = 0; i < w->n; i++) {
        struct query *q = &w->queries[i];
        if (q->lo < begin + ATTENTION_SPAN && q->hi > begin)
            merge(q, w->values + i * w->stride_v, w->a->dim_v);
    }
}

// ---- rows

// Pairs [first, first + n), counting heads within rows.
static void load_queries(struct work *w, int first, int n)
{
    const struct attention_args *a = w->a;
    w->n = n;
    w->lo = INT32_MAX;
    w->hi = 0;
    int row = first / a->n_head, head = first % a->n_head;
    for (int i = 0; i < n; i++) {
        int32_t position = a->positions[row], lo = a->window > 0 ? MAX(0, position - a->window + 1) : 0;
        w->queries[i] = (struct query){.lo = lo,
                                       .hi = position + 1,
                                       .out = a->out + (size_t)row * a->out_stride + (size_t)(head * a->dim_v)};
        w->lo = MIN(w->lo, lo);
        w->hi = MAX(w->hi, position + 1);
        float *vector = w->q + i * w->stride_k;
        const float *q = a->q + (size_t)row * a->q_stride + (size_t)(head * a->dim_k);
        for (int d = 0; d < a->dim_k; d += VEC)
            vec_store(vector + d, vec_load_n(q + d, MIN(VEC, a->dim_k - d)));
        for (int d = (a->dim_k + VEC - 1) / VEC * VEC; d < w->stride_k; d += VEC)
            vec_store(vector + d, (vec){0});
        row += head + 1 == a->n_head;
        head = head + 1 == a->n_head ? 0 : head + 1;
    }
}

// Pairs [first, first + n), all of one sequence.
static void attend(struct work *w, int first, int n)
{
    load_queries(w, first, n);
    for (int32_t begin = w->lo / ATTENTION_SPAN * ATTENTION_SPAN; begin < w->hi; begin += ATTENTION_SPAN)
        attend_span(w, begin);
    for (int i = 0; i < n; i++)
        ISA_FN(scale)(w->queries[i].out, 1.0f / w->queries[i].sum, w->queries[i].out, w->a->dim_v);
}

void ISA_FN(attention)(const struct attention_args *a)
{
    struct work w = work_cut(a);
    for (int row = 0, end; row < a->n_rows; row = end) {
        for (end = row + 1; end < a->n_rows && a->seqs[end] == a->seqs[row];)
            end++;
        w.pages = a->pages + (size_t)a->seqs[row] * (size_t)a->pages_stride;
        for (int i = row * a->n_head; i < end * a->n_head; i += w.capacity)
            attend(&w, i, MIN(w.capacity, end * a->n_head - i));
    }
}
