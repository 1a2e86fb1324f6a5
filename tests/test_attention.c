// Tests the attention kernel of every ISA level that this CPU runs: against the formula in double on the decoded keys
// and values, bit for bit against the scalar level, and all rows together against each row alone. Everything that no
// row may read is NaN.
#include "tests/kernel_test.h"

#include "kernels/cpu/kv_words.h"

enum { MAX_SEQS = 5, MAX_ROWS = 80 };

struct shape {
    const char *what;
    enum dtype k_type, v_type;
    int dim_k, dim_v, n_head, window;
    float softcap, magnitude; // of the queries
    float sinks;              // their size, 0: none
    float slopes;             // the size of the slopes by distance, 0: none
    bool chunked, both_ways;
    bool exact;
    bool keys_only; // values are the first dim_v columns of the keys
};

// Sequences of given lengths in pages that are scattered over the pool, and rows at some of their positions.
struct scene {
    struct shape shape;
    int n_seqs, length[MAX_SEQS];
    int n_rows;
    int32_t positions[MAX_ROWS], seqs[MAX_ROWS];
    int32_t *pages;
    int pages_stride, n_pages;
    size_t page_bytes, v_offset;
    struct guarded pool, q;
    double *want;          // [n_rows][n_head][dim_v]
    struct guarded sinks;  // [n_head], where the shape has sinks
    struct guarded slopes; // the same
};

static float scale_of(const struct shape *s)
{
    return 1.0f / sqrtf((float)s->dim_k);
}

// The part of a page that has the keys or values.
static enum kv_part stored(const struct scene *s, enum kv_part part)
{
    return s->shape.keys_only ? KV_KEY : part;
}

static enum dtype type_of(const struct scene *s, enum kv_part part)
{
    return part == KV_KEY ? s->shape.k_type : s->shape.v_type;
}

// Of a row in its page.
static int dim_of(const struct scene *s, enum kv_part part)
{
    return stored(s, part) == KV_KEY ? s->shape.dim_k : s->shape.dim_v;
}

static uint8_t *page_of(const struct scene *s, int seq, int position, enum kv_part part)
{
    int32_t page = s->pages[seq * s->pages_stride + position / KV_PAGE];
    return s->pool.data + (size_t)page * s->page_bytes + (part == KV_KEY ? 0 : s->v_offset);
}

// Of types whose rows lie as in a file.
static uint8_t *slot_of(const struct scene *s, int seq, int position, enum kv_part part)
{
    return page_of(s, seq, position, part) +
           (size_t)(position % KV_PAGE) * dtype_row_bytes(type_of(s, part), dim_of(s, part));
}

static void put_row(const struct scene *s, int seq, int position, enum kv_part part, const float *x)
{
    uint8_t row[4 * ATTENTION_DIM_MAX];
    enum dtype type = type_of(s, part);
    int dim = dim_of(s, part);
    dtype_encode[type](x, row, dim);
    if (kv_in_words(type))
        kv_words_put(row, dim, part, position % KV_PAGE, page_of(s, seq, position, part));
    else
        memcpy(slot_of(s, seq, position, part), row, dtype_row_bytes(type, dim));
}

static void get_row(const struct scene *s, int seq, int position, enum kv_part part, float *x)
{
    uint8_t row[ATTENTION_DIM_MAX / KV_BLOCK * KV_BLOCK_BYTES];
    enum dtype type = type_of(s, part);
    int dim = dim_of(s, part);
    if (kv_in_words(type))
        kv_words_get(page_of(s, seq, position, part), dim, stored(s, part), position % KV_PAGE, row);
    dtype_decode[type](kv_in_words(type) ? row : slot_of(s, seq, position, part), x, dim);
}

static void put_random(struct random *r, const struct scene *s, int seq, int position, enum kv_part part)
{
    float x[ATTENTION_DIM_MAX];
    for (int i = 0; i < dim_of(s, part); i++)
        x[i] = random_normal(r);
    put_row(s, seq, position, part, x);
}

// Page i of a sequence is any page that is still free.
static void scatter_pages(struct random *r, struct scene *s)
{
    int32_t *order = malloc((size_t)s->n_pages * sizeof(*order));
    for (int i = 0; i < s->n_pages; i++) {
        int j = random_below(r, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    memcpy(s->pages, order, (size_t)s->n_pages * sizeof(*order));
    free(order);
}

static void fill_pool(struct random *r, struct scene *s)
{
    memset(s->pool.data, 0xff, s->pool.size); // NaN as any type
    for (int seq = 0; seq < s->n_seqs; seq++) {
        for (int i = 0; i < s->length[seq]; i++) {
            put_random(r, s, seq, i, KV_KEY);
            if (!s->shape.keys_only)
                put_random(r, s, seq, i, KV_VALUE);
        }
    }
}

static void expect_head(const struct scene *s, int row, const float *q, double sink, double slope, double *out)
{
    const struct shape *h = &s->shape;
    int position = s->positions[row], lo = h->window > 0 ? MAX(0, position - h->window + 1) : 0;
    int end = position + 1, length = s->length[s->seqs[row]], half = h->window / 2;
    lo = h->chunked ? position - position % h->window : lo;
    if (h->both_ways) {
        lo = h->window ? MAX(0, position - half) : 0;
        end = h->window ? MIN(length, position + half + 1) : length;
    }
    double *score = malloc((size_t)end * sizeof(double)), top = -INFINITY, total = 0;
    float x[1024];
    for (int i = lo; i < end; i++) {
        score[i] = 0;
        get_row(s, s->seqs[row], i, KV_KEY, x);
        for (int d = 0; d < h->dim_k; d++)
            score[i] += (double)q[d] * (double)x[d];
        score[i] *= (double)scale_of(h);
        if (h->softcap > 0)
            score[i] = (double)h->softcap * tanh(score[i] / (double)h->softcap);
        score[i] -= slope * abs(i - position);
        top = fmax(top, score[i]);
    }
    top = fmax(top, sink);
    total = exp(sink - top);
    memset(out, 0, (size_t)h->dim_v * sizeof(double));
    for (int i = lo; i < end; i++) {
        double p = exp(score[i] - top);
        total += p;
        get_row(s, s->seqs[row], i, KV_VALUE, x);
        for (int d = 0; d < h->dim_v; d++)
            out[d] += p * (double)x[d];
    }
    for (int d = 0; d < h->dim_v; d++)
        out[d] /= total;
    free(score);
}

// The rows are given; pages, keys, values, queries and the expected outputs are made.
static void scene_fill(struct random *r, struct scene *s)
{
    const struct shape *h = &s->shape;
    for (int i = 0; i < s->n_seqs; i++)
        s->pages_stride = MAX(s->pages_stride, (s->length[i] + KV_PAGE - 1) / KV_PAGE);
    s->n_pages = s->n_seqs * s->pages_stride;
    s->pages = malloc((size_t)s->n_pages * sizeof(*s->pages));
    scatter_pages(r, s);
    s->v_offset = h->keys_only ? 0 : KV_PAGE * dtype_row_bytes(h->k_type, h->dim_k);
    s->page_bytes = s->v_offset + KV_PAGE * dtype_row_bytes(h->v_type, dim_of(s, KV_VALUE));
    s->pool = guarded_new((size_t)s->n_pages * s->page_bytes, 0);
    fill_pool(r, s);
    s->q = random_floats(r, s->n_rows * h->n_head * h->dim_k, h->magnitude);
    if (h->sinks > 0)
        s->sinks = random_floats(r, h->n_head, h->sinks);
    if (h->slopes > 0)
        s->slopes = random_floats(r, h->n_head, h->slopes);
    s->want = malloc((size_t)(s->n_rows * h->n_head * h->dim_v) * sizeof(double));
    for (int i = 0; i < s->n_rows * h->n_head; i++)
        expect_head(s, i / h->n_head, floats_of(s->q) + i * h->dim_k,
                    h->sinks > 0 ? (double)floats_of(s->sinks)[i % h->n_head] : -INFINITY,
                    h->slopes > 0 ? (double)floats_of(s->slopes)[i % h->n_head] : 0, s->want + i * h->dim_v);
}

static void scene_free(struct scene *s)
{
    guarded_free(s->pool);
    guarded_free(s->q);
    if (s->shape.sinks > 0)
        guarded_free(s->sinks);
    if (s->shape.slopes > 0)
        guarded_free(s->slopes);
    free(s->pages);
    free(s->want);
}

// Rows [first, first + n) to out, whose bits do not depend on how memory is read.
static void scene_run(const struct kernels *k, const struct scene *s, int first, int n, struct guarded out)
{
    const struct shape *h = &s->shape;
    struct attention_args a = {.q = floats_of(s->q) + first * h->n_head * h->dim_k,
                               .q_stride = (size_t)(h->n_head * h->dim_k),
                               .out = floats_of(out),
                               .out_stride = (size_t)(h->n_head * h->dim_v),
                               .n_rows = n,
                               .n_head = h->n_head,
                               .dim_k = h->dim_k,
                               .dim_v = h->dim_v,
                               .scale = scale_of(h),
                               .softcap = h->softcap,
                               .window = h->window,
                               .chunked = h->chunked,
                               .both_ways = h->both_ways,
                               .end = s->length[s->seqs[first + n - 1]],
                               .sinks = h->sinks > 0 ? floats_of(s->sinks) : NULL,
                               .slopes = h->slopes > 0 ? floats_of(s->slopes) : NULL,
                               .positions = s->positions + first,
                               .seqs = s->seqs + first,
                               .pages = s->pages,
                               .pages_stride = s->pages_stride,
                               .k = s->pool.data,
                               .v = s->pool.data + s->v_offset,
                               .page_bytes = s->page_bytes,
                               .v_row_bytes = dtype_row_bytes(h->v_type, dim_of(s, KV_VALUE)),
                               .v_part = stored(s, KV_VALUE),
                               .k_type = h->k_type,
                               .v_type = h->v_type,
                               .exact = h->exact,
                               .scratch = scratch_new(),
                               .reading = k->reading == READING_BY_ROW ? READING_STREAMS : READING_BY_ROW};
    int floats = n * h->n_head * h->dim_v;
    float *other = malloc((size_t)floats * sizeof(*other));
    k->attention(&a);
    memcpy(other, floats_of(out), (size_t)floats * sizeof(*other));
    a.reading = k->reading;
    k->attention(&a);
    expect_same_bits(floats_of(out), other, floats, h->what);
    guarded_check(out, h->what);
    free(other);
    free(a.scratch);
}

static void check_scene(const struct kernels *k, const struct scene *s, const float *first)
{
    const struct shape *h = &s->shape;
    int per_row = h->n_head * h->dim_v;
    struct guarded y = guarded_new((size_t)(s->n_rows * per_row) * sizeof(float), 0);
    struct guarded one = guarded_new((size_t)per_row * sizeof(float), 0);
    scene_run(k, s, 0, s->n_rows, y);
    double error = nmse(floats_of(y), s->want, s->n_rows * per_row);
    const bool words =
        !h->exact && (kv_in_words(h->k_type) || kv_in_words(h->v_type)); // what multiplies these has 16 bits
    cr_assert_leq(error, words ? 1e-7 : 1e-10, "%s %s: NMSE %g", k->name, h->what, error);
    expect_same_bits(floats_of(y), first, s->n_rows * per_row, h->what);
    for (int row = 0; row < s->n_rows; row += 1 + s->n_rows / 7) {
        scene_run(k, s, row, 1, one);
        expect_same_bits(floats_of(one), floats_of(y) + row * per_row, per_row, h->what);
    }
    guarded_free(y);
    guarded_free(one);
}

static void check(struct random *r, struct scene s)
{
    scene_fill(r, &s);
    struct guarded first = guarded_new((size_t)(s.n_rows * s.shape.n_head * s.shape.dim_v) * sizeof(float), 0);
    scene_run(scalar_level(), &s, 0, s.n_rows, first);
    EACH_LEVEL (k)
        check_scene(k, &s, floats_of(first));
    guarded_free(first);
    scene_free(&s);
}

// A chunk of n rows at the end of one sequence.
static struct scene chunk(struct shape shape, int length, int n)
{
    struct scene s = {.shape = shape, .n_seqs = 1, .length = {length}, .n_rows = n};
    for (int i = 0; i < n; i++)
        s.positions[i] = length - n + i;
    return s;
}

Test(attention, every_pair_of_cache_types_is_within_bound)
{
    struct random r = seeded("types");
    const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        for (size_t j = 0; j < COUNT_OF(types); j++) {
            struct shape h = {.what = "types",
                              .k_type = types[i],
                              .v_type = types[j],
                              .dim_k = 64,
                              .dim_v = 96,
                              .n_head = 3,
                              .magnitude = 1};
            check(&r, chunk(h, 150, 1));
            check(&r, chunk(h, 150, 9));
        }
    }
}

// As integers, and with `exact` as floats.
Test(attention, any_dimension_of_8_bits_is_within_bound)
{
    struct random r = seeded("words");
    const int dims[][2] = {{32, 32}, {32, 160}, {64, 64}, {96, 32}, {128, 128}, {256, 192}, {576, 512}, {1024, 1024}};
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        for (int exact = 0; exact < 2; exact++) {
            struct shape h = {.what = exact ? "exact" : "words",
                              .k_type = DT_Q8_0,
                              .v_type = DT_Q8_0,
                              .dim_k = dims[i][0],
                              .dim_v = dims[i][1],
                              .n_head = 1 + (int)i,
                              .magnitude = 2,
                              .window = i % 3 ? 0 : 70,
                              .exact = exact};
            check(&r, chunk(h, 150, 1));
            check(&r, chunk(h, 590, 20));
        }
    }
}

// Values that are the beginnings of keys, with every way to read them.
Test(attention, values_may_be_the_first_columns_of_keys)
{
    struct random r = seeded("keys alone");
    const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};
    const int dims[][2] = {{64, 32}, {96, 64}, {128, 128}, {576, 512}};
    for (size_t i = 0; i < COUNT_OF(types) * COUNT_OF(dims) * 2; i++) {
        const enum dtype type = types[i / 2 % COUNT_OF(types)];
        const int *dim = dims[i / 2 / COUNT_OF(types)];
        struct shape h = {.what = "keys alone",
                          .k_type = type,
                          .v_type = type,
                          .dim_k = dim[0],
                          .dim_v = dim[1],
                          .n_head = 3,
                          .magnitude = 1,
                          .exact = i % 2,
                          .keys_only = true};
        check(&r, chunk(h, 150, 1));
        if (dim[0] < 100) // the others only take longer
            check(&r, chunk(h, 600, 9));
    }
}

// Sinks below and above all scores, with every way to read keys and values.
Test(attention, sinks_take_a_part_of_the_sum)
{
    struct random r = seeded("sinks");
    const enum dtype types[] = {DT_F32, DT_F16, DT_Q8_0, DT_Q4_0};
    for (size_t i = 0; i < COUNT_OF(types); i++)
        for (int window = 0; window < 200; window += 70) {
            struct shape h = {.what = "sinks",
                              .k_type = types[i],
                              .v_type = types[i],
                              .dim_k = 64,
                              .dim_v = i ? 32 : 20,
                              .n_head = 5,
                              .magnitude = 2,
                              .window = window,
                              .sinks = window == 70 ? 20 : 3};
            check(&r, chunk(h, 1, 1));
            check(&r, chunk(h, 600, 1));
            check(&r, chunk(h, 1100, 30));
        }
}

// Rows of an encoder: the last ones of a text see all of it, or half a window on either side.
Test(attention, both_ways_rows_see_what_is_behind_them)
{
    struct random r = seeded("both ways");
    const int windows[] = {0, 0, 1, 32, 129, 800};
    const enum dtype types[] = {DT_F32, DT_F16, DT_Q8_0};
    for (size_t i = 0; i < COUNT_OF(windows); i++) {
        struct shape h = {.what = "both ways",
                          .k_type = types[i % 3],
                          .v_type = types[i % 3],
                          .dim_k = 64,
                          .dim_v = 64,
                          .n_head = 1 + (int)i % 3,
                          .magnitude = 2,
                          .window = windows[i],
                          .slopes = i % 2 ? 0.1f : 0,
                          .both_ways = true};
        check(&r, chunk(h, 7, 7));
        check(&r, chunk(h, 130, 70));
        check(&r, chunk(h, 1200, 70));
    }
}

// Slopes that let keys of a few and of a thousand positions before count, with every way to read keys, with a window that
// begins within a vector, and for rows by themselves.
Test(attention, slopes_lower_the_scores_of_far_keys)
{
    struct random r = seeded("slopes");
    const enum dtype types[] = {DT_F32, DT_F16, DT_Q8_0, DT_Q4_0};
    for (size_t i = 0; i < COUNT_OF(types); i++)
        for (int window = 0; window < 200; window += 71) {
            struct shape h = {.what = "slopes",
                              .k_type = types[i],
                              .v_type = types[i],
                              .dim_k = 64,
                              .dim_v = i ? 32 : 20,
                              .n_head = 5,
                              .magnitude = 2,
                              .window = window,
                              .softcap = window == 71 ? 5 : 0,
                              .sinks = window == 71 ? 3 : 0,
                              .slopes = window ? 0.5f : 0.01f};
            check(&r, chunk(h, 1, 1));
            check(&r, chunk(h, 600, 1));
            check(&r, chunk(h, 1100, 30));
        }
}

// Rows on both sides of the borders of chunks, which are pages, parts of them, and more than a span.
Test(attention, chunks_hide_what_was_before_them)
{
    struct random r = seeded("chunks");
    const int sizes[] = {1, 50, 64, 128, 576};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct shape h = {.what = "chunks",
                          .k_type = i % 2 ? DT_F16 : DT_Q8_0,
                          .v_type = i % 2 ? DT_F16 : DT_Q8_0,
                          .dim_k = 64,
                          .dim_v = 64,
                          .n_head = 3,
                          .magnitude = 2,
                          .window = sizes[i],
                          .chunked = true};
        check(&r, chunk(h, 129, 1));
        check(&r, chunk(h, 600, 60));
        check(&r, chunk(h, 1200, 70));
    }
}

// Powers of two beyond which numbers are not scaled up, or down, any more; and queries of nothing.
Test(attention, queries_of_any_magnitude_meet_keys_of_8_bits)
{
    struct random r = seeded("magnitudes");
    const float magnitudes[] = {0, 1e-42f, 1e-38f, 1e-20f, 1e-3f, 30, 3000};
    for (size_t i = 0; i < COUNT_OF(magnitudes); i++) {
        struct shape h = {.what = "magnitudes",
                          .k_type = DT_Q8_0,
                          .v_type = DT_Q8_0,
                          .dim_k = 64,
                          .dim_v = 64,
                          .n_head = 3,
                          .magnitude = magnitudes[i]};
        check(&r, chunk(h, 200, 7));
    }
}

Test(attention, any_dimension_is_within_bound)
{
    struct random r = seeded("dimensions");
    const int dims[][2] = {{1, 1},    {2, 17},    {15, 16},   {17, 5},    {40, 40},   {80, 80},  {96, 100},
                           {112, 48}, {128, 128}, {192, 128}, {256, 256}, {512, 512}, {576, 512}};
    for (size_t i = 0; i < COUNT_OF(dims); i++) {
        for (int f16 = 0; f16 < 2; f16++) {
            enum dtype type = f16 ? DT_F16 : DT_F32;
            struct shape h = {.what = "dimensions",
                              .k_type = type,
                              .v_type = type,
                              .dim_k = dims[i][0],
                              .dim_v = dims[i][1],
                              .n_head = 2,
                              .magnitude = 2};
            check(&r, chunk(h, 75, 1));
            check(&r, chunk(h, 75, 20));
        }
    }
}

static bool all_finite(const float *x, int n)
{
    int i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    return i == n;
}

// The last row's key or value is no number, in the page of the others.
Test(attention, an_infinity_in_8_bits_is_seen_by_those_alone_who_see_its_position)
{
    struct random r = seeded("infinity");
    enum { ROWS = 6, HEADS = 3, DIM = 64, PER_ROW = HEADS * DIM, LENGTH = 70 };
    struct shape h = {.what = "infinity",
                      .k_type = DT_Q8_0,
                      .v_type = DT_Q8_0,
                      .dim_k = DIM,
                      .dim_v = DIM,
                      .n_head = HEADS,
                      .magnitude = 1};
    for (int part = KV_KEY; part <= KV_VALUE; part++) {
        struct scene s = chunk(h, LENGTH, ROWS);
        scene_fill(&r, &s);
        struct guarded before = guarded_new(ROWS * PER_ROW * sizeof(float), 0),
                       after = guarded_new(ROWS * PER_ROW * sizeof(float), 0);
        float infinite[DIM] = {1, 2, INFINITY};
        EACH_LEVEL (k) {
            put_random(&r, &s, 0, LENGTH - 1, part);
            scene_run(k, &s, 0, ROWS, before);
            put_row(&s, 0, LENGTH - 1, part, infinite);
            scene_run(k, &s, 0, ROWS, after);
            expect_same_bits(floats_of(after), floats_of(before), (ROWS - 1) * PER_ROW, k->name);
            cr_expect(!all_finite(floats_of(after) + (ROWS - 1) * PER_ROW, PER_ROW), "%s: hidden", k->name);
        }
        guarded_free(before);
        guarded_free(after);
        scene_free(&s);
    }
}

// A query that is no number gives none, and disturbs no other.
Test(attention, a_query_that_is_no_number_gives_none)
{
    struct random r = seeded("nan");
    enum { ROWS = 9, DIM = 64 };
    struct shape h = {
        .what = "nan", .k_type = DT_Q8_0, .v_type = DT_Q8_0, .dim_k = DIM, .dim_v = DIM, .n_head = 1, .magnitude = 1};
    struct scene s = chunk(h, 100, ROWS);
    scene_fill(&r, &s);
    struct guarded before = guarded_new(ROWS * DIM * sizeof(float), 0),
                   after = guarded_new(ROWS * DIM * sizeof(float), 0);
    const float kinds[] = {NAN, -NAN, INFINITY, -INFINITY};
    EACH_LEVEL (k)
        for (size_t i = 0; i < COUNT_OF(kinds); i++) {
            float *odd = floats_of(s.q) + 4 * DIM + 7, kept = *odd;
            scene_run(k, &s, 0, ROWS, before);
            *odd = kinds[i];
            scene_run(k, &s, 0, ROWS, after);
            *odd = kept;
            expect_same_bits(floats_of(after), floats_of(before), 4 * DIM, k->name);
            expect_same_bits(floats_of(after) + 5 * DIM, floats_of(before) + 5 * DIM, (ROWS - 5) * DIM, k->name);
            for (int d = 0; d < DIM; d++)
                cr_expect(isnan(floats_of(after)[4 * DIM + d]), "%s: %g: %d", k->name, (double)kinds[i], d);
        }
    guarded_free(before);
    guarded_free(after);
    scene_free(&s);
}

Test(attention, any_number_of_heads_is_within_bound)
{
    struct random r = seeded("heads");
    const int heads[] = {1, 2, 4, 5, 7, 8, 13, 71};
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct shape h = {.what = "heads",
                          .k_type = DT_F16,
                          .v_type = DT_F16,
                          .dim_k = 32,
                          .dim_v = 64,
                          .n_head = heads[i],
                          .magnitude = 1};
        check(&r, chunk(h, 100, 1));
        check(&r, chunk(h, 100, 11));
    }
}

Test(attention, spans_are_merged_and_edges_of_pages_and_spans_are_seen)
{
    struct random r = seeded("lengths");
    const int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 128, 511, 512, 513, 576, 1024, 1030, 1700};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct shape h = {.what = "lengths",
                          .k_type = DT_F16,
                          .v_type = DT_F16,
                          .dim_k = 32,
                          .dim_v = 32,
                          .n_head = 2,
                          .magnitude = 1 + (float)i};
        check(&r, chunk(h, lengths[i], 1));
        check(&r, chunk(h, lengths[i], MIN(lengths[i], 40)));
    }
}

Test(attention, windows_and_caps_are_kept)
{
    struct random r = seeded("windows");
    const int windows[] = {1, 2, 7, 16, 63, 64, 65, 300, 512, 700};
    for (size_t i = 0; i < COUNT_OF(windows); i++) {
        struct shape h = {.what = "windows",
                          .k_type = DT_F32,
                          .v_type = DT_F16,
                          .dim_k = 64,
                          .dim_v = 32,
                          .n_head = 2,
                          .magnitude = 3,
                          .window = windows[i],
                          .softcap = i % 2 ? 5 : 0};
        check(&r, chunk(h, 900, 1));
        check(&r, chunk(h, 600, 64));
    }
}

Test(attention, rows_of_many_sequences_in_any_order_do_not_disturb_each_other)
{
    struct random r = seeded("sequences");
    for (int round = 0; round < 12; round++) {
        struct shape h = {.what = "sequences",
                          .k_type = DT_F16,
                          .v_type = round % 2 ? DT_Q8_0 : DT_F16,
                          .dim_k = 64,
                          .dim_v = 64,
                          .n_head = 1 + round % 5,
                          .magnitude = 2,
                          .window = round % 3 ? 0 : 50};
        struct scene s = {.shape = h, .n_seqs = MAX_SEQS, .n_rows = 30 + round};
        for (int i = 0; i < MAX_SEQS; i++)
            s.length[i] = 1 + random_below(&r, 700);
        for (int i = 0; i < s.n_rows; i++) {
            s.seqs[i] = i > 0 && random_below(&r, 4) ? s.seqs[i - 1] : random_below(&r, MAX_SEQS);
            s.positions[i] = random_below(&r, s.length[s.seqs[i]]);
        }
        check(&r, s);
    }
}

// Scores of some thousands: e^(s - max) spans the whole range of floats, and most of it vanishes.
Test(attention, scores_of_large_magnitude_stay_finite)
{
    struct random r = seeded("large");
    for (float magnitude = 100; magnitude < 1e5f; magnitude *= 7) {
        struct shape h = {.what = "large",
                          .k_type = DT_F16,
                          .v_type = DT_F16,
                          .dim_k = 1,
                          .dim_v = 64,
                          .n_head = 2,
                          .magnitude = magnitude};
        check(&r, chunk(h, 1200, 1));
        check(&r, chunk(h, 1200, 30));
    }
}

// The values are so great that a power of e^-88 would show: one row alone, and as many as are taken by columns.
Test(attention, what_scores_87_below_the_greatest_counts_nothing)
{
    struct random r = seeded("below");
    struct shape h = {.what = "below", .k_type = DT_F32, .v_type = DT_F32, .dim_k = 1, .dim_v = 1, .n_head = 1};
    struct scene s = chunk(h, 40, 30);
    scene_fill(&r, &s);
    for (int i = 0; i < s.length[0]; i++) {
        *(float *)(void *)slot_of(&s, 0, i, KV_KEY) = i == 3   ? 10
                                                      : i == 5 ? -76
                                                      : i % 2  ? -77.5f
                                                               : -80 - (float)i * 100;
        *(float *)(void *)slot_of(&s, 0, i, KV_VALUE) = i == 3 ? 1 : i == 5 ? 1e30f : -1e38f;
    }
    for (int i = 0; i < s.n_rows; i++)
        floats_of(s.q)[i] = 1;
    EACH_LEVEL (k) {
        struct guarded out = guarded_new(sizeof(float) * (size_t)s.n_rows, 0);
        scene_run(k, &s, 0, s.n_rows, out);
        for (int i = 0; i < s.n_rows; i++)
            cr_expect_float_eq(floats_of(out)[i], 1.0f, 1e-6f, "%s: row %d: %g", k->name, i, (double)floats_of(out)[i]);
        scene_run(k, &s, 0, 1, out);
        cr_expect_float_eq(floats_of(out)[0], 1.0f, 1e-6f, "%s: alone: %g", k->name, (double)floats_of(out)[0]);
        guarded_free(out);
    }
    scene_free(&s);
}

Test(attention, strides_wider_than_the_heads_leave_the_gaps_alone)
{
    struct random r = seeded("strides");
    enum { ROWS = 5, HEADS = 2, DIM = 48, GAP = 7 };
    struct shape h = {.what = "strides",
                      .k_type = DT_F16,
                      .v_type = DT_F16,
                      .dim_k = DIM,
                      .dim_v = DIM,
                      .n_head = HEADS,
                      .magnitude = 1};
    struct scene s = chunk(h, 70, ROWS);
    scene_fill(&r, &s);
    EACH_LEVEL (k) {
        float q[ROWS][HEADS * DIM + GAP], out[ROWS][HEADS * DIM + GAP], want[ROWS * HEADS * DIM];
        memset(out, POISON, sizeof(out));
        for (int i = 0; i < ROWS; i++)
            memcpy(q[i], floats_of(s.q) + i * HEADS * DIM, HEADS * DIM * sizeof(float));
        struct guarded packed = guarded_new(sizeof(want), 0);
        scene_run(k, &s, 0, ROWS, packed);
        struct attention_args a = {.q = q[0],
                                   .q_stride = HEADS * DIM + GAP,
                                   .out = out[0],
                                   .out_stride = HEADS * DIM + GAP,
                                   .n_rows = ROWS,
                                   .n_head = HEADS,
                                   .dim_k = DIM,
                                   .dim_v = DIM,
                                   .scale = scale_of(&h),
                                   .positions = s.positions,
                                   .seqs = s.seqs,
                                   .pages = s.pages,
                                   .pages_stride = s.pages_stride,
                                   .k = s.pool.data,
                                   .v = s.pool.data + s.v_offset,
                                   .page_bytes = s.page_bytes,
                                   .v_row_bytes = dtype_row_bytes(DT_F16, DIM),
                                   .v_part = KV_VALUE,
                                   .k_type = DT_F16,
                                   .v_type = DT_F16,
                                   .scratch = scratch_new()};
        k->attention(&a);
        for (int i = 0; i < ROWS; i++) {
            expect_same_bits(out[i], floats_of(packed) + i * HEADS * DIM, HEADS * DIM, k->name);
            for (size_t b = HEADS * DIM * sizeof(float); b < sizeof(out[i]); b++)
                cr_assert_eq(((uint8_t *)out[i])[b], POISON, "%s: row %d: gap written to", k->name, i);
        }
        free(a.scratch);
        guarded_free(packed);
    }
    scene_free(&s);
}
