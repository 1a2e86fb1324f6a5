// Tests the attention and the KV cache of the plain-C machine against softmax(q k) v, which is written here
// independently in long double over whole sequences. The sequences are divided into steps and mixed, with every type of
// cache.
#include "tests/ref_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { SEQS = 3, LENGTH = 150, STRIDE = 4, PAGES = SEQS * STRIDE };

struct shape {
    int n_head, n_head_kv, dim_k, dim_v;
    float scale, softcap;
    int window;
    enum dtype kv_type[2];
    float sinks; // their size, 0: none
    bool chunked, both_ways;
    float slopes; // the size of the slopes by distance, 0: none
};
static const struct shape plain = {4, 2, 16, 8, 0.25f, 0, 0, {DT_F32, DT_F32}, 0, false, false, 0};

static struct rig r;
static struct shape shape;
static float *sinks;     // [n_head]
static float *slopes;    // [n_head]
static float *q, *k, *v; // a row for each position of each sequence, sequences one after another
static struct tensor *attention;
static int32_t pages[SEQS][STRIDE];
static int owner[SEQS][LENGTH]; // the sequence whose row was written at that place: its own, but for shared prefixes
static float *out;              // like q, rows of n_head * dim_v

// Keys and queries are large enough that the softmax is far from uniform.
static void start(struct shape s)
{
    rig_init(&r, 777);
    shape = s;
    int rows = SEQS * LENGTH;
    q = rig_noises(&r, (int64_t)rows * s.n_head * s.dim_k, 2);
    k = rig_noises(&r, (int64_t)rows * s.n_head_kv * s.dim_k, 2);
    v = rig_noises(&r, (int64_t)rows * s.n_head_kv * s.dim_v, 2);
    out = rig_noises(&r, (int64_t)rows * s.n_head * s.dim_v, 0);
    for (int i = 0; i < SEQS; i++)
        for (int p = 0; p < LENGTH; p++)
            owner[i][p] = i;
    for (int i = 0; i < PAGES; i++)
        pages[i % SEQS][i / SEQS] = PAGES - 1 - i; // successive pages of a sequence are not adjacent in memory
}

static void compile(int max_rows)
{
    int rows = SEQS * LENGTH;
    struct graph *g = r.graph;
    memcpy(r.kv_type, shape.kv_type, sizeof(r.kv_type));
    graph_kv_layer(g, 1, 32, 32); // a layer before ours, so that our offset is not 0
    int layer = graph_kv_layer(g, shape.n_head_kv, shape.dim_k, shape.dim_v);
    struct tensor *other = rig_rows(&r, "other", rows, 32, rig_noises(&r, (int64_t)rows * 32, 1));
    graph_kv_write(g, "other_k", other, 0, KV_KEY);
    graph_kv_write(g, "other_v", other, 0, KV_VALUE);
    struct tensor *tq = rig_rows(&r, "q", rows, shape.n_head * shape.dim_k, q);
    struct tensor *tk =
        graph_kv_write(g, "kw", rig_rows(&r, "k", rows, shape.n_head_kv * shape.dim_k, k), layer, KV_KEY);
    struct tensor *tv =
        graph_kv_write(g, "vw", rig_rows(&r, "v", rows, shape.n_head_kv * shape.dim_v, v), layer, KV_VALUE);
    struct attention_params p = {.n_head = shape.n_head,
                                 .scale = shape.scale,
                                 .softcap = shape.softcap,
                                 .window = shape.window,
                                 .chunked = shape.chunked,
                                 .both_ways = shape.both_ways};
    sinks = rig_noises(&r, shape.n_head, shape.sinks);
    if (shape.sinks != 0)
        p.sinks = rig_weight(&r, DT_F32, shape.n_head, 1, 1, sinks);
    slopes = rig_noises(&r, shape.n_head, shape.slopes);
    if (shape.slopes != 0)
        p.slopes = rig_weight(&r, DT_F32, shape.n_head, 1, 1, slopes);
    attention = graph_attention(g, "y", tq, tk, tv, p);
    cr_assert_not_null(attention, "%s", g->fault.text);
    rig_compile(&r, attention, max_rows, PAGES);
}

// One step of the places (seq[i], position[i]); their results go to `out`.
static void step(int n, const int32_t *seq, const int32_t *position)
{
    int32_t tokens[SEQS * LENGTH] = {0};
    for (int i = 0; i < n; i++)
        tokens[i] = seq[i] * LENGTH + position[i];
    float *y = malloc((size_t)n * (size_t)attention->width * sizeof(float));
    rig_step(&r, n, tokens, position, seq, pages[0], STRIDE, y);
    for (int i = 0; i < n; i++)
        memcpy(out + (int64_t)tokens[i] * attention->width, y + i * attention->width,
               (size_t)attention->width * sizeof(float));
    free(y);
}

// Positions from .. to-1 of n_seqs sequences, a step for every `chunk` positions of all of them.
static void run(int from, int to, int chunk, int first_seq, int n_seqs)
{
    int32_t seq[SEQS * LENGTH], position[SEQS * LENGTH];
    for (int at = from; at < to; at += chunk) {
        int n = 0;
        for (int p = at; p < MIN(at + chunk, to); p++)
            for (int s = first_seq; s < first_seq + n_seqs; s++, n++)
                seq[n] = s, position[n] = p;
        step(n, seq, position);
    }
}

// A row of the cache as it is read: through its type.
static void stored(enum kv_part part, int seq, int position, int head, float *to)
{
    uint8_t blocks[4 * 512];
    int dim = part == KV_KEY ? shape.dim_k : shape.dim_v;
    const float *rows = part == KV_KEY ? k : v;
    const float *row = rows + ((int64_t)(owner[seq][position] * LENGTH + position) * shape.n_head_kv + head) * dim;
    dtype_encode[shape.kv_type[part]](row, blocks, dim);
    dtype_decode[shape.kv_type[part]](blocks, to, dim);
}

static void check_head(int seq, int position, int head)
{
    int kv_head = head * shape.n_head_kv / shape.n_head;
    const float *query = q + ((int64_t)(seq * LENGTH + position) * shape.n_head + head) * shape.dim_k;
    long double total = shape.sinks != 0 ? expl(sinks[head]) : 0, sum[512] = {0};
    float row[512];
    for (int p = 0; p < (shape.both_ways ? LENGTH : position + 1); p++) {
        if (shape.window > 0 && (shape.both_ways ? abs(position - p) > shape.window / 2 : position - p >= shape.window))
            continue;
        if (shape.chunked && p / shape.window != position / shape.window)
            continue;
        long double s = 0;
        stored(KV_KEY, seq, p, kv_head, row);
        for (int i = 0; i < shape.dim_k; i++)
            s += (long double)query[i] * row[i];
        s *= shape.scale;
        if (shape.softcap > 0)
            s = shape.softcap * tanhl(s / shape.softcap);
        s -= (long double)slopes[head] * abs(position - p);
        long double weight = expl(s); // long double needs no greatest score
        total += weight;
        stored(KV_VALUE, seq, p, kv_head, row);
        for (int i = 0; i < shape.dim_v; i++)
            sum[i] += weight * row[i];
    }
    const float *y = out + ((int64_t)(seq * LENGTH + position) * shape.n_head + head) * shape.dim_v;
    for (int i = 0; i < shape.dim_v; i++)
        cr_assert(rig_rounded(y[i], sum[i] / total, 2),
                  "sequence %d, position %d, head %d, column %d: %.9g, exact is %.12Lg", seq, position, head, i,
                  (double)y[i], sum[i] / total);
}

static void check(int seq, int from, int to)
{
    for (int p = from; p < to; p++)
        for (int h = 0; h < shape.n_head; h++)
            check_head(seq, p, h);
}

static void check_shape(struct shape s)
{
    start(s);
    compile(SEQS * LENGTH);
    run(0, LENGTH, LENGTH, 0, SEQS);
    for (int i = 0; i < SEQS; i++)
        check(i, 0, LENGTH);
    rig_free(&r);
}

// Whole sequences, one after another, as attention both ways takes them.
static void check_both_ways(struct shape s)
{
    int32_t seq[SEQS * LENGTH], position[SEQS * LENGTH];
    start(s);
    compile(SEQS * LENGTH);
    for (int i = 0; i < SEQS * LENGTH; i++)
        seq[i] = (i / LENGTH + 1) % SEQS, position[i] = i % LENGTH;
    step(SEQS * LENGTH, seq, position);
    for (int i = 0; i < SEQS; i++)
        check(i, 0, LENGTH);
    rig_free(&r);
}

TestSuite(ref_attention, .timeout = 120);

Test(ref_attention, both_ways_over_several_pages_and_sequences)
{
    check_both_ways((struct shape){4, 2, 16, 8, 0.25f, 0, 0, {DT_F32, DT_F32}, 0, false, true, 0});
}
Test(ref_attention, both_ways_through_a_window)
{
    check_both_ways((struct shape){4, 2, 16, 8, 0.25f, 0, 20, {DT_F32, DT_F32}, 0, false, true, 0});
    check_both_ways((struct shape){4, 2, 16, 8, 0.25f, 0, 40, {DT_F32, DT_F32}, 0, false, true, 0.3f});
    check_both_ways((struct shape){4, 4, 16, 8, 0.25f, 0, 129, {DT_F32, DT_F32}, 0, false, true, 0});
}

Test(ref_attention, causal_over_several_pages_and_sequences)
{
    check_shape(plain);
}
Test(ref_attention, one_kv_head_serves_all_queries)
{
    check_shape((struct shape){6, 1, 8, 8, 0.3f, 0, 0, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, one_kv_head_a_query_head)
{
    check_shape((struct shape){3, 3, 5, 7, 0.3f, 0, 0, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, softcap)
{
    check_shape((struct shape){4, 2, 16, 8, 1.5f, 5, 0, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, window_within_a_page)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 10, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, window_over_pages)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 100, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, window_of_just_a_page)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, KV_PAGE, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, window_longer_than_the_text_is_none)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 100000, {DT_F32, DT_F32}, 0, false, false, 0});
}
Test(ref_attention, scores_that_would_overflow_an_exponential)
{
    check_shape((struct shape){4, 2, 16, 8, 50, 0, 0, {DT_F32, DT_F32}, 0, false, false, 0});
}

Test(ref_attention, sinks)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 0, {DT_F32, DT_F32}, 3, false, false, 0});
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 5, 10, {DT_F32, DT_F32}, 20, false, false, 0});
}

Test(ref_attention, slopes_by_distance)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 0, {DT_F32, DT_F32}, 0, false, false, 0.5f});
    check_shape((struct shape){4, 1, 16, 8, 0.25f, 5, 100, {DT_F32, DT_F16}, 3, false, false, 0.05f});
}

Test(ref_attention, chunks)
{
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 30, {DT_F32, DT_F32}, 0, true, false, 0});
    check_shape((struct shape){4, 2, 16, 8, 0.25f, 0, 64, {DT_F32, DT_F32}, 2, true, false, 0});
}

#define KV_TYPE(KEY, VALUE)                                                                                            \
    Test(ref_attention, cache_of_##KEY##_and_##VALUE)                                                                  \
    {                                                                                                                  \
        check_shape((struct shape){4, 2, 64, 32, 0.125f, 0, 0, {DT_##KEY, DT_##VALUE}, 0, false, false, 0});           \
    }
KV_TYPE(F16, F16)
KV_TYPE(BF16, BF16)
KV_TYPE(Q8_0, Q8_0)
KV_TYPE(Q4_0, Q4_0)
KV_TYPE(F32, Q4_0)
KV_TYPE(Q8_0, F16)

// ---- Cases whose answer is plain

Test(ref_attention, a_window_of_one_sees_itself_alone)
{
    struct shape s = plain;
    s.window = 1;
    start(s);
    compile(LENGTH);
    run(0, LENGTH, LENGTH, 0, 1);
    for (int p = 0; p < LENGTH; p++)
        for (int h = 0; h < 4; h++)
            for (int i = 0; i < 8; i++)
                cr_assert_eq(out[(p * 4 + h) * 8 + i], v[(p * 2 + h / 2) * 8 + i]);
    rig_free(&r);
}

Test(ref_attention, queries_of_zero_take_the_mean_of_what_they_see)
{
    struct shape s = {1, 1, 4, 1, 1, 0, 3, {DT_F32, DT_F32}, 0, false, false, 0};
    start(s);
    memset(q, 0, LENGTH * 4 * sizeof(float));
    for (int p = 0; p < LENGTH; p++)
        v[p] = (float)(6 * p);
    compile(LENGTH);
    run(0, LENGTH, LENGTH, 0, 1);
    cr_expect_eq(out[0], 0);
    cr_expect_eq(out[1], 3);
    for (int p = 2; p < LENGTH; p++)
        cr_assert_eq(out[p], 6 * p - 6, "position %d", p);
    rig_free(&r);
}

Test(ref_attention, query_heads_share_kv_heads_in_groups_of_neighbours)
{
    struct shape s = {6, 3, 4, 1, 1, 0, 0, {DT_F32, DT_F32}, 0, false, false, 0};
    start(s);
    for (int p = 0; p < LENGTH; p++)
        for (int h = 0; h < 3; h++)
            v[p * 3 + h] = (float)(h + 1);
    compile(LENGTH);
    run(0, LENGTH, LENGTH, 0, 1);
    for (int h = 0; h < 6; h++)
        cr_expect_eq(out[(LENGTH - 1) * 6 + h], h / 2 + 1);
    rig_free(&r);
}

// ---- The same bits however the work is cut

// Returns all outputs of the given sequences, computed in steps of `chunk` positions. The caller frees them.
static float *run_cut(int chunk, int first_seq, int n_seqs)
{
    struct shape s = plain;
    s.kv_type[0] = DT_F16, s.kv_type[1] = DT_BF16;
    s.window = 70;
    start(s);
    compile(SEQS * LENGTH);
    run(0, LENGTH, chunk, first_seq, n_seqs);
    size_t bytes = (size_t)SEQS * LENGTH * 32 * sizeof(float);
    float *copy = malloc(bytes);
    memcpy(copy, out, bytes);
    rig_free(&r);
    return copy;
}

Test(ref_attention, steps_of_any_length_give_the_same_bits)
{
    float *whole = run_cut(LENGTH, 0, SEQS);
    static const int chunks[] = {1, 7, 64, 149};
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        float *cut = run_cut(chunks[i], 0, SEQS);
        cr_expect_eq(memcmp(whole, cut, SEQS * LENGTH * 32 * sizeof(float)), 0, "chunks of %d", chunks[i]);
        free(cut);
    }
    free(whole);
}

Test(ref_attention, a_sequence_alone_gives_the_same_bits)
{
    float *whole = run_cut(LENGTH, 0, SEQS);
    for (int s = 0; s < SEQS; s++) {
        float *alone = run_cut(16, s, 1);
        size_t at = (size_t)s * LENGTH * 32;
        cr_expect_eq(memcmp(whole + at, alone + at, LENGTH * 32 * sizeof(float)), 0, "sequence %d", s);
        free(alone);
    }
    free(whole);
}

Test(ref_attention, sequences_share_a_page_of_their_prefix)
{
    start(plain);
    compile(SEQS * LENGTH);
    pages[1][0] = pages[0][0];
    for (int p = 0; p < KV_PAGE; p++)
        owner[1][p] = 0;
    run(0, LENGTH, 50, 0, 1);
    run(KV_PAGE, LENGTH, 30, 1, 1);
    check(0, 0, LENGTH);
    check(1, KV_PAGE, LENGTH);
    rig_free(&r);
}

Test(ref_attention, a_place_written_again_takes_the_new_key)
{
    start(plain);
    compile(SEQS * LENGTH);
    memcpy(pages[1], pages[0], sizeof(pages[0]));
    for (int p = 0; p < 100; p++)
        owner[1][p] = 0;
    run(0, LENGTH, 50, 0, 1); // 0 .. 149, then back to 100, and on with other tokens
    run(100, LENGTH, 50, 1, 1);
    check(0, 0, LENGTH);
    check(1, 100, LENGTH);
    rig_free(&r);
}

// ---- The machine

Test(ref_machine, a_page_outside_of_the_cache_is_refused)
{
    struct error err = {0};
    start(plain);
    compile(1);
    int32_t zero = 0, page = PAGES;
    struct step s = {1, 0, &zero, &zero, &zero, NULL, &page, 1, r.kv, NULL, 0, NULL, NULL, NULL, NULL, NULL};
    cr_assert_eq(r.machine->v->run(r.machine, r.plan, &s, &err), -1);
    cr_assert_eq(err.code, E_USAGE);
    cr_assert_str_eq(err.text, "row 0: page 0 of sequence 0 is number 12 of 12");
    page = PAGES - 1;
    cr_assert_eq(r.machine->v->run(r.machine, r.plan, &s, &err), 0);
    s.n_tokens = 2;
    cr_assert_eq(r.machine->v->run(r.machine, r.plan, &s, &err), -1, "the plan is for one row");
    rig_free(&r);
}

Test(ref_machine, an_unsuitable_cache_is_refused_when_compiling)
{
    struct error err = {0};
    struct plan *p = NULL;
    start(plain);
    compile(1);
    struct compile_options o = {1, 1, {DT_Q8_0, DT_F16}, false, NULL};
    cr_assert_eq(r.machine->v->compile(r.machine, r.graph, &o, &p, &err), -1);
    cr_assert_eq(err.code, E_USAGE);
    cr_assert_null(p);
    rig_free(&r);
}

// Lets the sanitizer's malloc fail as malloc does.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

Test(ref_machine, a_plan_that_memory_cannot_hold_is_refused)
{
    struct error err = {0};
    struct plan *p = NULL;
    rig_init(&r, 1);
    static const uint8_t data[1 << 20];
    struct weight w = {.name = "w", .type = DT_Q4_0, .ne = {32, 58254, 1}, .data = data, .row_bytes = 18};
    struct weight tall = {.name = "tall", .type = DT_F32, .ne = {1, 1 << 18, 1}, .data = data, .row_bytes = 4};
    struct tensor *x = graph_embed(r.graph, "x", &w, INPUT_TOKENS, 1);
    x = graph_norm(r.graph, "n", x, NULL, NULL, NORM_RMS, 0, 0);
    struct weight one = {.name = "one", .type = DT_F32, .ne = {32, 1, 1}, .data = data, .row_bytes = 128};
    x = graph_matmul(r.graph, "wide", graph_matmul(r.graph, "one", x, &one, NULL), &tall, NULL);
    cr_assert_eq(graph_finish(r.graph, graph_output_rows(r.graph, "out", x), &err), 0, "%s", err.text);
    struct compile_options o = {INT32_MAX, INT32_MAX, {DT_F16, DT_F16}, false, NULL};
    cr_assert_eq(r.machine->v->compile(r.machine, r.graph, &o, &p, &err), -1);
    cr_assert_eq(err.code, E_MEMORY);
    cr_assert_null(p);
    rig_free(&r);
}

Test(ref_machine, says_what_it_is_and_what_it_holds)
{
    struct text text = {0};
    start(plain);
    compile(10);
    r.machine->v->describe(r.machine, NULL, &text);
    r.machine->v->describe(r.machine, r.plan, &text);
    cr_assert_not_null(strstr(text.data, "ref: plain C on one thread"));
    cr_assert_not_null(strstr(text.data, "nothing fused"));
    cr_assert_geq(r.machine->v->plan_bytes(r.plan), 10u * (64 + 32 + 16 + 32 + 32) * sizeof(float));
    text_free(&text);
    rig_free(&r);
}

Test(ref_machine, takes_no_option_that_it_would_ignore)
{
    struct machine *m;
    struct error err = {0};
    cr_assert_eq(machine_open_ref(&m, &(struct machine_options){.isa = "avx2"}, &err), -1);
    cr_assert_eq(err.code, E_USAGE);
    cr_assert_null(m);
    cr_assert_eq(machine_open_ref(&m, &(struct machine_options){.blas = true}, NULL), -1);
    cr_assert_eq(machine_open_ref(&m, &(struct machine_options){.n_threads = 4}, NULL), -1);
    cr_assert_eq(machine_open_ref(&m, &(struct machine_options){.n_threads = 1, .exact = true}, NULL), 0);
    m->v->close(m);
}
