// Attention of some rows of a step, for one KV head and the query heads that share it. Compiled for every ISA level.
//
// The naive loop, for each row and head, over the positions j that the row sees:
//   s[j] = scale * (q . k[j]) + slope * -|j - position|;  p[j] = exp(s[j] - max of s);  out = (sum over j of p[j] * v[j]) / (sum of p[j])
// This file takes as many (row, head) pairs of one sequence together as the scratch holds, and goes through their
// positions in spans of ATTENTION_SPAN. So a page of keys or values is fetched and decoded once for all pairs. The
// steps for each span:
//   scores    With few queries, keys are read as rows: a tile of 4 keys by some queries accumulates over dim_k in
//             LANES lanes. With many queries, the page is transposed, so that a vector holds one dimension of many
//             keys. The lanes of a score are then added two at a time in the same order as by lanes_sum, so the bits
//             are the same, but no shuffles are needed.
//   softmax   The maxima of some queries are computed, then their powers p.
//   values    o[d] += p[j] * v[j][d] in order of j, in register tiles of some queries by up to 8 vectors of d.
//   merge     The span's maximum, sum of p and o are merged with those of the spans before it.
// 8-bit keys and values (Q8_0) are multiplied as integers instead, for any number of queries, because their pages are
// laid out as the tiles read them (attention_words.h).
//
// Masks are ranges of positions. Masked positions are neither multiplied nor added, except in a vector of scores that
// contains an end of the range; their p is 0 there. The inner loops are in attention_tiles.h and attention_words.h.
#include <assert.h>

#include "kernels/cpu/attention_words.h"
#include "kernels/graph.h"

enum {
    TRANSPOSE_QUERIES = 24, // from that many on, transposing a page of keys costs less than the shuffles that it saves
    VALUE_ROWS = 8,         // rows of values that are decoded at a time
    KEY_ROWS = 16,          // rows of keys that are decoded at a time
};

// One (row, head) pair. It sees the positions [lo, hi).
struct query {
    int32_t lo, hi;
    float slope;              // of the scores by position; 0: none
    int32_t position;         // of the row
    float top, sum;           // over the sink and all spans so far: the maximum score, the sum of e^(score - top)
    float span_top, span_sum; // the same over the current span
    float factor_scale;       // scale of its 16-bit integers (query_factors), if keys are multiplied as integers
    float *out;               // [dim_v], divided by `sum` at the end
};

// The parts of a thread's scratch, sized for the dimensions of one call. Strides are in floats and multiples of
// LANES.
struct work {
    const struct attention_args *a;
    int stride_k, stride_v;
    float *page;           // a page of keys or values in float32, or a transposed page of keys (transpose_rows)
    float *rows;           // VEC decoded rows of keys that are about to be transposed
    struct query *queries; // [capacity]
    const float **q;       // [capacity]: stride_k floats of each query, in attention_args.q or in padded_q
    float *padded_q;       // [capacity][stride_k]: queries padded with zeros, used if dim_k is less than stride_k
    int32_t *q_factors;    // [capacity][dim_k / 2]: queries as integers, if keys are multiplied as integers
    float *scores;         // [capacity][ATTENTION_SPAN]: the score, later p, of position i is at i % ATTENTION_SPAN
    float *values;         // [capacity][stride_v]: sums of p * v over the current span
    int capacity, n;       // the most queries, and the queries at present
    int32_t lo, hi;        // positions [lo, hi) that any of the queries sees
    const int32_t *pages;  // the page table of their sequence
    int end;               // its positions, for attention both ways
    const uint8_t *next;   // the page that is read after the current one; NULL: none
    size_t next_row_bytes;
};

// Returns the floats from one decoded row of values to the next. Wide rows have a gap between them. Without it, the
// same vector of all rows would fall on a few sets of the cache.
static int value_stride(int stride_v)
{
    return stride_v + (stride_v < 256 ? 0 : LANES);
}

static float *take(char **at, int64_t floats)
{
    float *p = (float *)*at;
    *at += floats * (int64_t)sizeof(float);
    return p;
}

// Returns whether keys or values of a type are multiplied as integers.
static bool by_words(const struct attention_args *a, enum dtype type)
{
    return kv_in_words(type) && !a->exact;
}

static struct work work_cut(const struct attention_args *a)
{
    assert(a->dim_k <= ATTENTION_DIM_MAX && a->dim_v <= ATTENTION_DIM_MAX);
    struct work w = {.a = a, .stride_k = padded(a->dim_k), .stride_v = padded(a->dim_v)};
    char *at = a->scratch;
    int64_t keys = w.stride_k + LANES; // includes the gaps of transposed_lane
    w.page = take(&at, KV_PAGE * MAX(keys, value_stride(w.stride_v)));
    w.rows = take(&at, VEC * w.stride_k);
    w.capacity = attention_pairs(a->dim_k, a->dim_v);
    w.padded_q = take(&at, a->dim_k == w.stride_k ? 0 : (int64_t)w.capacity * w.stride_k);
    w.q_factors = (int32_t *)take(&at, by_words(a, a->k_type) ? (int64_t)w.capacity * a->dim_k / 2 : 0);
    w.scores = take(&at, (int64_t)w.capacity * ATTENTION_SPAN);
    w.values = take(&at, (int64_t)w.capacity * w.stride_v);
    w.queries = (struct query *)at;
    w.q = (const float **)(w.queries + w.capacity);
    assert((char *)(w.q + w.capacity) <= (char *)a->scratch + SCRATCH_BYTES);
    return w;
}

// ---- pages

// Returns the rows of the page that holds position `at`. base: a->k or a->v, in page 0.
static const uint8_t *page_rows(const struct work *w, const uint8_t *base, int32_t at)
{
    return base + (size_t)w->pages[at / KV_PAGE] * w->a->page_bytes;
}

static size_t k_row_bytes(const struct attention_args *a)
{
    return dtype_row_bytes(a->k_type, a->dim_k);
}

// Returns whether the tiles can read a type's rows in place in the page: floats, in whole LANES.
static bool plain(enum dtype type, int dim)
{
    return (type == DT_F32 || type == DT_F16) && dim % LANES == 0;
}

// Sets w->next to the page that is read after the page at position `at`. A span, positions [first, hi), reads all
// pages of its keys, then all pages of its values; then come the keys of the next span.
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
    w->next_row_bytes = next_part == KV_KEY ? k_row_bytes(a) : a->v_row_bytes;
}

// Returns how many bytes ahead of the row that is read data is prefetched: a whole page at most.
static size_t page_ahead(const struct work *w, size_t row_bytes)
{
    const size_t most = reads_streams(w->a->reading) ? PAGE_AHEAD_L2 : PAGE_AHEAD_L1;
    return MIN(most, KV_PAGE * row_bytes);
}

// Prefetches as many bytes as rows [lo, hi) of a page have, page_ahead bytes after these rows, in this page or the
// next.
static void fetch_rows(const struct work *w, const uint8_t *page, size_t row_bytes, int lo, int hi)
{
    const size_t size = KV_PAGE * row_bytes, ahead = page_ahead(w, row_bytes);
    for (size_t i = (size_t)lo * row_bytes + ahead; i < (size_t)hi * row_bytes + ahead; i += 64) {
        if (i < size)
            fetch_line((const char *)page + i, w->a->reading);
        else if (w->next)
            fetch_line((const char *)w->next + (i - size), w->a->reading);
    }
}

// Decodes rows [row, row + n) of a page in the layout of kv_words.h, to rows that are `stride` floats apart.
static void decode_words(const uint8_t *page, enum kv_part part, int row, int n, int dim, float *out, int stride)
{
    uint8_t blocks[ATTENTION_DIM_MAX / KV_BLOCK * KV_BLOCK_BYTES];
    for (int i = row; i < row + n; i++, out += stride) {
        kv_words_get(page, dim, part, i, blocks);
        ISA_FN(decode_table)[DT_Q8_0](blocks, out, dim);
    }
}

// Decodes rows [row, row + n) of a page to float32 rows that are `stride` floats apart, padded with zeros to whole
// LANES. row_bytes: from a row of the page to the next.
static void decode_rows(enum dtype type, enum kv_part part, const uint8_t *page, size_t row_bytes, int row, int n,
                        int dim, float *out, int stride)
{
    if (kv_in_words(type)) {
        decode_words(page, part, row, n, dim, out, stride);
        return;
    }
    page += (size_t)row * row_bytes;
    if (dim == stride && row_bytes == dtype_row_bytes(type, dim)) {
        ISA_FN(decode_table)[type](page, out, (int64_t)n * dim);
        return;
    }
    for (int i = 0; i < n; i++, page += row_bytes, out += stride) {
        ISA_FN(decode_table)[type](page, out, dim);
        for (int d = dim; d < padded(dim); d++)
            out[d] = 0;
    }
}

// [lo, hi): the range of all positions that any of some queries sees. [all_lo, all_hi): the positions that all of
// them see; it may be empty.
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

// Rows of keys as the tiles read them: in place in the page, or decoded. `page` is set if the rows are read for the
// first time, so that later rows are prefetched; otherwise it is NULL.
struct key_rows {
    enum dtype type;
    const char *rows;
    int first; // the number of the first row within the page
    const uint8_t *page;
};

// Computes the scores of the keys [lo, hi), TILE_ROWS at a time, for `queries` queries from i on, at most
// ROW_QUERIES. The last tile repeats the last key if it has too few; the additional scores are masked later.
static void score_rows(const struct work *w, const struct key_rows *k, int lo, int hi, int i, int queries,
                       float *scores)
{
    const size_t row_bytes = (size_t)w->stride_k * weight_bytes(k->type);
    const size_t page_row = dtype_row_bytes(w->a->k_type, w->a->dim_k);
    for (int row = lo; row < hi; row += TILE_ROWS) {
        const char *keys[TILE_ROWS];
        if (k->page)
            fetch_rows(w, k->page, page_row, row, MIN(row + TILE_ROWS, hi));
        for (int r = 0; r < TILE_ROWS; r++)
            keys[r] = k->rows + (size_t)(MIN(row + r, hi - 1) - k->first) * row_bytes;
        if (k->type == DT_F16)
            row_tiles(DT_F16, queries, keys, w->q + i, w->stride_k, scores + row);
        else
            row_tiles(DT_F32, queries, keys, w->q + i, w->stride_k, scores + row);
    }
}

// Computes the scores of the keys [lo, hi) of the page that begins at position `at`, for all queries. The rows are
// prefetched for the first tile of queries only.
static void score_tiles_of_rows(const struct work *w, struct key_rows k, int32_t at, int lo, int hi)
{
    for (int t = 0, i; (i = tile_cut(t, w->n, ROW_QUERIES)) < w->n; t++, k.page = NULL)
        score_rows(w, &k, lo, hi, i, tile_cut(t + 1, w->n, ROW_QUERIES) - i,
                   w->scores + i * ATTENTION_SPAN + at % ATTENTION_SPAN);
}

// Keys that must be decoded are decoded a few rows at a time, so that they stay in the L1 cache until all queries
// have read them.
static void scores_by_rows(const struct work *w, int32_t at, int lo, int hi)
{
    const struct attention_args *a = w->a;
    const uint8_t *page = page_rows(w, a->k, at);
    lo = lo / TILE_ROWS * TILE_ROWS;
    if (plain(a->k_type, a->dim_k)) {
        score_tiles_of_rows(w, (struct key_rows){a->k_type, (const char *)page, 0, page}, at, lo, hi);
        return;
    }
    for (int row = lo, end; row < hi; row = end) {
        end = MIN(row + KEY_ROWS, hi);
        decode_rows(a->k_type, KV_KEY, page, k_row_bytes(a), row, end - row, a->dim_k, w->page, w->stride_k);
        score_tiles_of_rows(w, (struct key_rows){DT_F32, (const char *)w->page, row, page}, at, row, end);
    }
}

// ---- scores, many queries

// Transposes the keys [lo, hi) of a page to w->page; the range is widened to whole vectors of VEC keys.
static void transpose_page(const struct work *w, const uint8_t *page, int lo, int hi)
{
    const struct attention_args *a = w->a;
    size_t row_bytes = dtype_row_bytes(a->k_type, a->dim_k);
    bool as_is = plain(a->k_type, a->dim_k);
    for (int key = lo / VEC * VEC; key < hi; key += VEC) {
        const char *rows = (const char *)page + (size_t)key * row_bytes;
        if (as_is && a->k_type == DT_F16) {
            transpose_rows(DT_F16, rows, row_bytes, w->stride_k, w->page + key);
        } else if (as_is) {
            transpose_rows(DT_F32, rows, row_bytes, w->stride_k, w->page + key);
        } else {
            decode_rows(a->k_type, KV_KEY, page, k_row_bytes(a), key, VEC, a->dim_k, w->rows, w->stride_k);
            transpose_rows(DT_F32, (const char *)w->rows, (size_t)w->stride_k * sizeof(float), w->stride_k,
                           w->page + key);
        }
    }
}

// Computes the scores of queries [i, i + n), for those keys of [lo, hi) that at least one of them sees. The
// transposed page begins at position `at`.
static void score_seen(const struct work *w, int i, int n, int32_t at, int lo, int hi)
{
    struct seen seen = seen_by(w->queries + i, n);
    int begin = MAX(lo, seen.lo - at), end = MIN(hi, seen.hi - at);
    for (int key = begin / VEC * VEC, vecs; key < end; key += vecs * VEC) {
        vecs = end - key > VEC ? SCORE_VECS : 1;
        for (int j = i; j < i + n; j += SCORE_QUERIES)
            score_tiles(MIN(SCORE_QUERIES, i + n - j), vecs, w->q + j, w->stride_k, w->page + key,
                        w->scores + j * ATTENTION_SPAN + at % ATTENTION_SPAN + key);
    }
}

static void fetch_query(const float *q, int dim)
{
    for (int d = 0; d < dim; d += 64 / (int)sizeof(float))
        __builtin_prefetch(q + d);
}

static void scores_by_columns(const struct work *w, int32_t at, int lo, int hi)
{
    transpose_page(w, page_rows(w, w->a->k, at), lo, hi);
    bool is_first = at <= w->lo;
    for (int i = 0; i < w->n; i += TILE_COLS) {
        for (int j = i + TILE_COLS; is_first && j < MIN(w->n, i + 2 * TILE_COLS); j++)
            fetch_query(w->q[j], w->a->dim_k);
        score_seen(w, i, MIN(TILE_COLS, w->n - i), at, lo, hi);
    }
}

// ---- scores, keys as integers

// Computes the scores of queries [i, i + n), for those keys of [lo, hi) that at least one of them sees. The page
// begins at position `at`. The number of vectors of a tile is halved while half of them suffices or all would exceed
// the page.
static void score_words_seen(const struct work *w, const uint8_t *page, int i, int n, int32_t at, int lo, int hi)
{
    const struct seen seen = seen_by(w->queries + i, n);
    const int dim = w->a->dim_k, begin = MAX(lo, seen.lo - at), end = MIN(hi, seen.hi - at);
    const int32_t *q[KEY_QUERIES];
    float scale[KEY_QUERIES];
    for (int j = 0; j < n; j++) {
        q[j] = w->q_factors + (i + j) * (dim / 2);
        scale[j] = w->queries[i + j].factor_scale;
    }
    for (int key = begin / VEC * VEC, vecs; key < end; key += vecs * VEC) {
        vecs = KEY_VECS;
        while (vecs > 1 && (end - key <= vecs / 2 * VEC || key + vecs * VEC > KV_PAGE))
            vecs /= 2;
        key_tiles(n, vecs, q, scale, dim, page, key, w->scores + i * ATTENTION_SPAN + at % ATTENTION_SPAN);
    }
}

static void scores_by_words(const struct work *w, int32_t at, int lo, int hi)
{
    const uint8_t *page = page_rows(w, w->a->k, at);
    fetch_rows(w, page, dtype_row_bytes(w->a->k_type, w->a->dim_k), 0, KV_PAGE);
    for (int t = 0, i; (i = tile_cut(t, w->n, KEY_QUERIES)) < w->n; t++)
        score_words_seen(w, page, i, tile_cut(t + 1, w->n, KEY_QUERIES) - i, at, lo, hi);
}

// ---- softmax

// The slots [span_lo, span_hi) that a query sees of the span that begins at position `begin`.
static int span_lo(const struct query *q, int32_t begin)
{
    return MAX(0, q->lo - begin);
}

static int span_hi(const struct query *q, int32_t begin)
{
    return MIN(ATTENTION_SPAN, q->hi - begin);
}

// Turns the dot products of a span into p = e^(score - maximum) for n queries. Slots that fill the seen range up to
// whole LANES become 0. The maxima of all queries come first, so that the powers of a query need not wait for its
// maximum.
static void softmax(const struct attention_args *a, struct query *q, int n, float *scores, int32_t begin)
{
    for (int i = 0; i < n; i++) {
        int lo = span_lo(&q[i], begin), hi = span_hi(&q[i], begin);
        if (lo < hi)
            q[i].span_top = scale_scores(a, scores + i * ATTENTION_SPAN, lo, hi, q[i].slope, begin - q[i].position);
    }
    for (int i = 0; i < n; i++) {
        int lo = span_lo(&q[i], begin), hi = span_hi(&q[i], begin);
        if (lo < hi)
            q[i].span_sum = exp_scores(scores + i * ATTENTION_SPAN, lo / LANES * LANES, padded(hi), q[i].span_top);
    }
}

// ---- values

// The slots [lo, hi) of the page at position `at`, which are to be added to the sums of some queries.
struct value_step {
    values_fn *f;
    struct value_rows rows;
    int32_t at;
    int lo, hi;
    const float *p; // of the first query and slot 0; queries are ATTENTION_SPAN floats apart
    float *values;  // the sums of the first query; queries are `stride` floats apart
    int stride;
};

// Adds the slots [lo, hi), which all of the queries [first, first + n) see.
static void add_slots(const struct value_step *s, int first, int n, int lo, int hi)
{
    if (lo < hi)
        s->f(n, &s->rows, lo, hi, s->p + first * ATTENTION_SPAN, s->values + first * s->stride, s->stride);
}

// Returns how many of n queries, from the first on, see the same positions.
static int alike(const struct query *q, int n)
{
    int i = 1;
    while (i < n && q[i].lo == q->lo && q[i].hi == q->hi)
        i++;
    return i;
}

// Adds a step for up to TILE_COLS queries. Slots that all of them see are added for all at once. The slots before and
// after these are added for as many queries at once as see the same positions.
static void add_slots_seen(const struct value_step *s, const struct query *q, int n)
{
    struct seen seen = seen_by(q, n);
    int lo = MIN(MAX(s->lo, seen.all_lo - s->at), s->hi), hi = MAX(lo, MIN(s->hi, seen.all_hi - s->at));
    for (int i = 0, m; lo > s->lo && i < n; i += m) {
        m = alike(q + i, n - i);
        add_slots(s, i, m, MAX(s->lo, q[i].lo - s->at), MIN(lo, q[i].hi - s->at));
    }
    add_slots(s, 0, n, lo, hi);
    for (int i = 0, m; hi < MIN(s->hi, seen.hi - s->at) && i < n; i += m) {
        m = alike(q + i, n - i);
        add_slots(s, i, m, MAX(hi, q[i].lo - s->at), MIN(s->hi, q[i].hi - s->at));
    }
}

// Adds a step for all queries, in tiles of nearly equal size. Only the first tile prefetches.
static void add_step(const struct work *w, struct value_step step)
{
    int n_tiles = (w->n + TILE_COLS - 1) / TILE_COLS, size = w->n / n_tiles, n_larger = w->n % n_tiles;
    for (int t = 0, i = 0, n; t < n_tiles; t++, i += n) {
        n = size + (t < n_larger);
        step.p = w->scores + i * ATTENTION_SPAN + step.at % ATTENTION_SPAN;
        step.values = w->values + i * w->stride_v;
        add_slots_seen(&step, w->queries + i, n);
        step.rows.ahead = 0;
    }
}

// Returns whether values are read in place in the page. Every tile of queries then widens 16-bit values again, which
// is worth it for few queries only.
static bool values_lie_plain(const struct work *w)
{
    const struct attention_args *a = w->a;
    return plain(a->v_type, a->dim_v) && (a->v_type == DT_F32 || w->n <= PLAIN_QUERIES);
}

// Returns the step for positions [lo, hi) of the page at position `at`, whose values are decoded in w->page.
static struct value_step value_step(const struct work *w, int32_t at, int32_t lo, int32_t hi)
{
    return (struct value_step){
        .f = values_f32,
        .rows = {(const char *)w->page, (size_t)value_stride(w->stride_v) * sizeof(float), 0, w->a->reading},
        .at = at,
        .lo = MAX(0, lo - at),
        .hi = hi - at,
        .stride = w->stride_v};
}

// Adds the values of positions [lo, hi), read in place, page by page. A page has two steps: while the first slots are
// read, later slots of the same page are prefetched, and while the last slots are read, the next page is.
static void add_plain_values(struct work *w, int32_t lo, int32_t hi)
{
    const struct attention_args *a = w->a;
    const size_t row_bytes = a->v_row_bytes, ahead = page_ahead(w, row_bytes);
    const int turn = KV_PAGE - (int)(ahead / row_bytes);
    int32_t first = lo / KV_PAGE * KV_PAGE;
    for (int32_t at = first; at < hi; at += KV_PAGE) {
        const uint8_t *page = page_rows(w, a->v, at);
        struct value_step step = value_step(w, at, lo, MIN(hi, at + KV_PAGE));
        step.f = a->v_type == DT_F16 ? values_f16 : values_f32;
        step.rows = (struct value_rows){(const char *)page, row_bytes, ahead, a->reading};
        struct value_step rest = step;
        step.hi = MIN(step.hi, turn);
        rest.lo = MAX(rest.lo, turn);
        set_next(w, at, first, hi, KV_VALUE);
        rest.rows.ahead = w->next ? ahead - KV_PAGE * row_bytes + (size_t)((uintptr_t)w->next - (uintptr_t)page) : 0;
        if (step.lo < step.hi)
            add_step(w, step);
        if (rest.lo < rest.hi)
            add_step(w, rest);
    }
}

// Decodes the slots [lo, hi) of the page at position `at` to w->page.
static void decode_values(const struct work *w, int32_t at, int lo, int hi)
{
    const struct attention_args *a = w->a;
    const uint8_t *page = page_rows(w, a->v, at);
    int stride = value_stride(w->stride_v);
    for (int i = lo, n; i < hi; i += n) {
        n = MIN(hi - i, VALUE_ROWS);
        fetch_rows(w, page, a->v_row_bytes, i, i + n);
        decode_rows(a->v_type, a->v_part, page, a->v_row_bytes, i, n, a->dim_v, w->page + i * stride, stride);
    }
}

// Decodes and adds one page at a time. Two decoded pages of 64 columns would fill an L1 cache of 32 KB, so that the
// first would be evicted before it is read.
static void add_decoded_values(struct work *w, int32_t lo, int32_t hi)
{
    int32_t first = lo / KV_PAGE * KV_PAGE;
    for (int32_t at = first; at < hi; at += KV_PAGE) {
        int32_t end = MIN(hi, at + KV_PAGE);
        set_next(w, at, first, hi, KV_VALUE);
        decode_values(w, at, MAX(0, lo - at), end - at);
        add_step(w, value_step(w, at, lo, end));
    }
}

// ---- values as integers

// Adds one block of KV_BLOCK dimensions, from dimension `first` on, of the 8-bit values of the page at position `at`,
// for all queries. Only slots in [lo, hi) are seen by any query.
static void add_block(const struct work *w, const uint8_t *block, int first, int32_t at, int lo, int hi)
{
    _Alignas(64) float scales[KV_PAGE];
    const bool finite = value_scales(block, scales);
    struct weighted tile; // left uninitialised except for n: the rest is written before it is read
    tile.n = 0;
    for (int i = 0; i < w->n; i++) {
        const struct query *q = &w->queries[i];
        const int begin = MAX(lo, q->lo - at), end = MIN(hi, q->hi - at);
        if (begin < end) {
            const float *p = w->scores + i * ATTENTION_SPAN + at % ATTENTION_SPAN;
            tile.scale[tile.n] = weigh(p, scales, finite, begin, end, tile.factors[tile.n]);
            tile.sums[tile.n++] = w->values + i * w->stride_v + first;
        }
        if (tile.n == WEIGHTED_QUERIES || (i == w->n - 1 && tile.n > 0)) {
            weighted_tiles(&tile, block, lo / 4, (hi + 3) / 4);
            tile.n = 0;
        }
    }
}

static void add_value_words(struct work *w, int32_t lo, int32_t hi)
{
    const struct attention_args *a = w->a;
    const int32_t first = lo / KV_PAGE * KV_PAGE;
    _Alignas(64) uint8_t turned[KV_BLOCK_PART];
    for (int32_t at = first; at < hi; at += KV_PAGE) {
        const uint8_t *page = page_rows(w, a->v, at);
        set_next(w, at, first, hi, KV_VALUE);
        fetch_rows(w, page, a->v_row_bytes, 0, KV_PAGE);
        for (int d = 0; d < a->dim_v; d += KV_BLOCK) {
            const uint8_t *block = page + d / KV_BLOCK * KV_BLOCK_PART;
            if (a->v_part == KV_KEY)
                block = turn_block(block, turned);
            add_block(w, block, d, at, MAX(0, lo - at), MIN(KV_PAGE, hi - at));
        }
    }
}

// ---- spans

// out = (old * out + new * values) * factor
static void blend(float old, float *out, float new, const float *values, float factor, int dim)
{
    for (int d = 0; d < dim; d += VEC) {
        int n = MIN(dim - d, VEC);
        vec_store_n(out + d, vec_fma(vec_load(values + d), vec_all(new), vec_load_n(out + d, n) * old) * factor, n);
    }
}

static void copy_scaled(float *out, const float *values, float factor, int dim)
{
    for (int d = 0; d < dim; d += VEC)
        vec_store_n(out + d, vec_load(values + d) * factor, MIN(dim - d, VEC));
}

// Merges the sums of a span with those of the sink and the spans before it. After the last span, the output is divided by the sum.
static void merge(struct query *q, const float *values, bool is_last, int dim)
{
    if (q->sum == 0) { // the first span, and there is no sink
        q->top = q->span_top;
        q->sum = q->span_sum;
        copy_scaled(q->out, values, is_last ? 1.0f / q->sum : 1.0f, dim);
        return;
    }
    float top = q->top < q->span_top ? q->span_top : q->top;
    vec e = vec_exp((vec){q->top - top, q->span_top - top});
    float old = e[0], new = e[1];
    q->sum = vec_fma(vec_all(q->span_sum), vec_all(new), vec_all(q->sum * old))[0];
    q->top = top;
    blend(old, q->out, new, values, is_last ? 1.0f / q->sum : 1.0f, dim);
}

typedef void scores_fn(const struct work *w, int32_t at, int lo, int hi);
static scores_fn *scores_of(const struct work *w)
{
    if (by_words(w->a, w->a->k_type))
        return scores_by_words;
    return w->n < TRANSPOSE_QUERIES ? scores_by_rows : scores_by_columns;
}

typedef void add_values_fn(struct work *w, int32_t lo, int32_t hi);
static add_values_fn *values_of(const struct work *w)
{
    if (by_words(w->a, w->a->v_type))
        return add_value_words;
    return values_lie_plain(w) ? add_plain_values : add_decoded_values;
}

// Computes the span that begins at position `begin`, for all queries.
static void attend_span(struct work *w, int32_t begin)
{
    int32_t lo = MAX(w->lo, begin), hi = MIN(w->hi, begin + ATTENTION_SPAN);
    int32_t first = lo / KV_PAGE * KV_PAGE;
    for (int32_t at = first; at < hi; at += KV_PAGE) {
        set_next(w, at, first, hi, KV_KEY);
        scores_of(w)(w, at, MAX(0, lo - at), MIN(KV_PAGE, hi - at));
    }
    for (int i = 0; i < w->n; i += SOFTMAX_QUERIES)
        softmax(w->a, w->queries + i, MIN(SOFTMAX_QUERIES, w->n - i), w->scores + i * ATTENTION_SPAN, begin);
    memset(w->values, 0, (size_t)(w->n * w->stride_v) * sizeof(float));
    values_of(w)(w, lo, hi);
    for (int i = 0; i < w->n; i++) {
        struct query *q = &w->queries[i];
        if (q->lo < begin + ATTENTION_SPAN && q->hi > begin)
            merge(q, w->values + i * w->stride_v, q->hi <= begin + ATTENTION_SPAN, w->a->dim_v);
    }
}

// ---- rows

// What a query has before its first span: the score of its sink, with a value of 0.
static void start_at_sink(struct query *q, float sink, int dim)
{
    q->top = sink;
    q->sum = 1;
    memset(q->out, 0, (size_t)dim * sizeof(float));
}

// Loads the (row, head) pairs [first, first + n); pair i is head i % n_head of row i / n_head.
static void load_queries(struct work *w, int first, int n)
{
    const struct attention_args *a = w->a;
    w->n = n;
    w->lo = INT32_MAX;
    w->hi = 0;
    int row = first / a->n_head, head = first % a->n_head;
    for (int i = 0; i < n; i++) {
        const struct seen_positions seen =
            attention_sees(a->positions[row], w->end, a->window, a->chunked, a->both_ways);
        w->queries[i] = (struct query){
            .lo = seen.lo, .hi = seen.hi, .out = a->out + (size_t)row * a->out_stride + (size_t)(head * a->dim_v)};
        w->queries[i].slope = a->slopes ? a->slopes[head] : 0;
        w->queries[i].position = a->positions[row];
        if (a->sinks)
            start_at_sink(&w->queries[i], a->sinks[head], a->dim_v);
        w->lo = MIN(w->lo, seen.lo);
        w->hi = MAX(w->hi, seen.hi);
        w->q[i] = a->q + (size_t)row * a->q_stride + (size_t)(head * a->dim_k);
        if (a->dim_k < w->stride_k) {
            float *wide = w->padded_q + i * w->stride_k;
            memset(wide, 0, (size_t)w->stride_k * sizeof(float));
            w->q[i] = memcpy(wide, w->q[i], (size_t)a->dim_k * sizeof(float));
        }
        if (by_words(a, a->k_type))
            w->queries[i].factor_scale = query_factors(w->q[i], a->dim_k, w->q_factors + i * (a->dim_k / 2));
        row += head + 1 == a->n_head;
        head = head + 1 == a->n_head ? 0 : head + 1;
    }
}

// Computes the (row, head) pairs [first, first + n), all of one sequence.
static void attend(struct work *w, int first, int n)
{
    load_queries(w, first, n);
    for (int32_t begin = w->lo / ATTENTION_SPAN * ATTENTION_SPAN; begin < w->hi; begin += ATTENTION_SPAN)
        attend_span(w, begin);
}

// Consecutive rows of one sequence are processed together, in as few parts of equal size as the scratch allows.
void ISA_FN(attention)(const struct attention_args *a)
{
    struct work w = work_cut(a);
    for (int row = 0, end; row < a->n_rows; row = end) {
        for (end = row + 1; end < a->n_rows && a->seqs[end] == a->seqs[row];)
            end++;
        w.pages = a->pages + (size_t)a->seqs[row] * (size_t)a->pages_stride;
        w.end = end < a->n_rows ? a->positions[end - 1] + 1 : a->end;
        int first = row * a->n_head, n = (end - row) * a->n_head;
        for (int t = 0, i; (i = tile_cut(t, n, w.capacity)) < n; t++)
            attend(&w, first + i, tile_cut(t + 1, n, w.capacity) - i);
    }
}
