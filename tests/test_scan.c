// Tests the operations with state: short convolution, delta rule and selective scan, in graphs that hold nothing else.
// Several sequences run through steps of one row, of a few and of all rows; the bits must not depend on that, nor on the ISA
// level and the number of threads, and every machine must agree with the reference in plain C.
#include "kernels/cpu/kernels.h"
#include "kernels/text.h"
#include "tests/golden.h"
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 40, SEQS = 4, ROWS = 48 };

struct scene {
    struct graph *graph;
    struct arena arena;
    uint64_t noise;
};

// A weight of noise in [middle - span, middle + span), its data at an odd address where a file may have it.
static const struct weight *weight_of(struct scene *s, int64_t k, int64_t rows, float middle, float span, bool odd)
{
    struct weight *w = ARENA_NEW(&s->arena, struct weight);
    uint8_t *data = arena_alloc(&s->arena, (size_t)(k * rows) * sizeof(float) + 4, 8);
    cr_assert(w && data);
    data += odd ? 1 : 0;
    for (int64_t i = 0; i < k * rows; i++) {
        float v = middle + span * tiny_noise(&s->noise);
        memcpy(data + (size_t)i * sizeof v, &v, sizeof v);
    }
    *w = (struct weight){
        .name = "w", .type = DT_F32, .ne = {k, rows, 1}, .data = data, .row_bytes = (size_t)k * sizeof(float)};
    return w;
}

static struct tensor *rows_of_noise(struct scene *s, const char *name, int64_t width, float span)
{
    return graph_embed(s->graph, name, weight_of(s, width, TOKENS, 0, span, false), INPUT_TOKENS, 1);
}

static void scene_open(struct scene *s, uint64_t seed)
{
    *s = (struct scene){.graph = graph_new(), .noise = seed};
    cr_assert(s->graph);
}

static void scene_finish(struct scene *s, struct tensor *y)
{
    struct error err = {0};
    cr_assert(graph_finish(s->graph, graph_output_rows(s->graph, "out", y), &err) == 0, "%s", err.text);
}

static void scene_close(struct scene *s)
{
    graph_free(s->graph);
    arena_free(&s->arena);
}

// ---- Running

// The rows of a sequence: tokens, and the lengths that its steps bring it to.
static const int lengths[SEQS] = {ROWS, 1, 17, 30};

static int32_t token_of(int seq, int at)
{
    return (int32_t)((at * 7 + seq * 11 + at * at % 5) % TOKENS);
}

// Runs all sequences, up to `chunk` rows of each in a step, and brings out the rows sequence by sequence. The state of a
// sequence moves from slot to slot. Sequence SEQS - 1 begins with the state of sequence 0 after its first ROWS - 30 rows,
// in a slot of its own, if `fork` is set: its rows are then those of sequence 0 from there on.
static void run(struct machine *m, const struct graph *g, int chunk, bool fork, float *out)
{
    struct compile_options o = {.max_tokens = SEQS * ROWS, .max_outputs = SEQS * ROWS, .kv_type = {DT_F32, DT_F32}};
    struct plan *plan;
    struct buffer *states;
    struct error err = {0};
    const size_t width = (size_t)g->logits->width;
    cr_assert(m->v->compile(m, g, &o, &plan, &err) == 0, "%s", err.text);
    cr_assert(m->v->alloc(m, (2 * SEQS + 1) * state_bytes(g), &states, &err) == 0, "%s", err.text);
    float *got = malloc(SEQS * ROWS * width * sizeof *got);
    const int split = ROWS - lengths[SEQS - 1];
    for (int at = 0; at < ROWS; at += chunk) {
        int32_t tokens[SEQS * ROWS], positions[SEQS * ROWS], seqs[SEQS * ROWS], from[SEQS * ROWS], to[SEQS * ROWS];
        int32_t outputs[SEQS * ROWS];
        int n = 0;
        for (int seq = 0; seq < SEQS; seq++) {
            const bool forked = fork && seq == SEQS - 1;
            const int begin = forked ? split : 0, end = begin + lengths[seq];
            for (int i = MAX(at, begin); i < MIN(at + chunk, end); i++, n++) {
                tokens[n] = token_of(forked ? 0 : seq, i), positions[n] = i, seqs[n] = seq, outputs[n] = n;
                const bool shared = fork && i == split && (forked || seq == 0);
                from[n] = i == 0 ? -1 : shared ? 2 * SEQS : 2 * seq + (at / chunk + 1) % 2;
                to[n] = i + 1 == MIN(at + chunk, end) ? 2 * seq + at / chunk % 2 : -1;
                if (fork && seq == 0 && i + 1 == split)
                    to[n] = 2 * SEQS;
            }
        }
        if (!n)
            continue;
        struct step s = {.n_tokens = n,
                         .n_outputs = n,
                         .tokens = tokens,
                         .positions = positions,
                         .seqs = seqs,
                         .outputs = outputs,
                         .pages = outputs,
                         .pages_stride = 1,
                         .logits = got,
                         .state_from = from,
                         .state_to = to,
                         .states = states};
        cr_assert(m->v->run(m, plan, &s, &err) == 0, "%s", err.text);
        for (int i = 0; i < n; i++)
            memcpy(out + ((size_t)seqs[i] * ROWS + (size_t)positions[i]) * width, got + (size_t)i * width,
                   width * sizeof *out);
    }
    free(got);
    m->v->free(m, states);
    m->v->plan_free(m, plan);
}

static struct machine *cpu(const char *isa, int n_threads)
{
    struct machine *m;
    struct error err = {0};
    struct machine_options o = {.n_threads = n_threads, .isa = isa};
    cr_assert(machine_open_cpu(&m, &o, &err) == 0, "%s", err.text);
    return m;
}

static struct machine *gpu(void)
{
    struct machine *m;
    struct error err = {0};
    struct machine_options o = {0};
    struct gpu_options go = {0};
    cr_assert(machine_open_gpu(&m, &o, &go, &err) == 0, "%s", err.text);
    return m;
}

static float *values_of(const struct graph *g)
{
    float *v = calloc(SEQS * ROWS * (size_t)g->logits->width, sizeof *v);
    cr_assert(v);
    return v;
}

// Runs a machine with chunks of several sizes: the same bits each time, and near the reference.
static void check_machine(struct machine *m, const struct graph *g, const float *want, double bound, float *bits)
{
    static const int chunks[] = {ROWS, 1, 3, 16};
    const size_t n = SEQS * ROWS * (size_t)g->logits->width;
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        float *got = values_of(g);
        run(m, g, chunks[i], false, got);
        double error = nmse(got, want, n);
        cr_expect(error <= bound, "%s, chunks of %d: NMSE %.3g, bound %.3g", m->v->name, chunks[i], error, bound);
        if (i)
            cr_expect(memcmp(got, bits, n * sizeof *got) == 0, "%s: chunks of %d change bits", m->v->name, chunks[i]);
        else
            memcpy(bits, got, n * sizeof *got);
        free(got);
    }
    m->v->close(m);
}

// A sequence that goes on from the state of another computes the same.
static void check_fork(struct machine *m, const struct graph *g)
{
    const size_t width = (size_t)g->logits->width;
    float *got = values_of(g);
    run(m, g, ROWS - lengths[SEQS - 1], true, got);
    cr_expect(memcmp(got + (size_t)(ROWS - lengths[SEQS - 1]) * width,
                     got + (size_t)((SEQS - 1) * ROWS + ROWS - lengths[SEQS - 1]) * width,
                     (size_t)lengths[SEQS - 1] * width * sizeof *got) == 0,
              "%s: a fork computes something else", m->v->name);
    free(got);
    m->v->close(m);
}

// Bounds: a few hundred products in float32, of relative errors of 2^-24 each, leave a mean square of some 1e-14; a GPU's
// approximations of 2^x and of logarithms are off by 2^-22.
static void check(struct scene *s)
{
    struct machine *ref;
    struct error err = {0};
    cr_assert(machine_open_ref(&ref, NULL, &err) == 0, "%s", err.text);
    float *want = values_of(s->graph), *bits = values_of(s->graph), *first = values_of(s->graph);
    const size_t bytes = SEQS * ROWS * (size_t)s->graph->logits->width * sizeof *want;
    run(ref, s->graph, ROWS, false, want);
    check_machine(ref, s->graph, want, 0, bits);
    for (int i = 0; i < kernels_count(); i++) {
        check_machine(cpu(kernels_at(i)->name, 1 + i % 3), s->graph, want, 1e-11, i ? bits : first);
        cr_expect(!i || memcmp(bits, first, bytes) == 0, "%s has other bits than %s", kernels_at(i)->name,
                  kernels_at(0)->name);
    }
    check_machine(gpu(), s->graph, want, 1e-10, bits);
    check_fork(cpu(NULL, 2), s->graph);
    check_fork(gpu(), s->graph);
    free(want);
    free(bits);
    free(first);
}

// ---- The operations

static void check_conv(int64_t width, int kernel, bool bias, uint64_t seed)
{
    struct scene s;
    printf("convolution over %d of %lld columns, seed %llu\n", kernel, (long long)width, (unsigned long long)seed);
    scene_open(&s, seed);
    struct tensor *x = rows_of_noise(&s, "x", width, 1);
    struct tensor *y = graph_short_conv(s.graph, "conv", x, weight_of(&s, kernel, width, 0, 1, seed % 2),
                                        bias ? weight_of(&s, width, 1, 0, 1, false) : NULL);
    scene_finish(&s, graph_act(s.graph, "act", y, ACT_SILU));
    check(&s);
    scene_close(&s);
}

Test(scan, short_convolution)
{
    check_conv(64, 4, false, 1);
    check_conv(200, 3, true, 2);
    check_conv(37, 2, true, 3);
    check_conv(9, 7, false, 4);
    check_conv(130, CONV_KERNEL_MAX, true, 5);
}

static void check_delta(struct delta_params p, uint64_t seed)
{
    struct scene s;
    printf("delta rule, %d heads of %d by %d, seed %llu\n", p.n_head, p.dim_k, p.dim_v, (unsigned long long)seed);
    scene_open(&s, seed);
    struct tensor *qkv = rows_of_noise(&s, "qkv", 2 * p.n_head_k * p.dim_k + p.n_head * p.dim_v, 1);
    struct tensor *alpha = rows_of_noise(&s, "alpha", p.n_head, 4), *beta = rows_of_noise(&s, "beta", p.n_head, 4);
    scene_finish(&s,
                 graph_delta_rule(s.graph, "delta", qkv, alpha, beta, weight_of(&s, p.n_head, 1, -0.5f, 0.5f, false),
                                  weight_of(&s, p.n_head, 1, 0, 1, false), p));
    check(&s);
    scene_close(&s);
}

Test(scan, delta_rule)
{
    check_delta((struct delta_params){2, 4, 32, 32, false, 1e-6f}, 11);
    check_delta((struct delta_params){2, 4, 32, 32, true, 1e-6f}, 12);
    check_delta((struct delta_params){1, 3, 20, 24, true, 1e-6f}, 13);
    check_delta((struct delta_params){2, 2, 50, 47, false, 1e-6f}, 14);
    check_delta((struct delta_params){1, 1, 1, 1, false, 1e-6f}, 15);
    check_delta((struct delta_params){1, 1, 200, 33, false, 1e-6f}, 16);
    check_delta((struct delta_params){1, 1, 128, 64, false, 1e-6f}, 17);
}

static void check_channel_delta(struct delta_params p, uint64_t seed)
{
    struct scene s;
    printf("delta rule by channel, %d heads of %d by %d, seed %llu\n", p.n_head, p.dim_k, p.dim_v,
           (unsigned long long)seed);
    scene_open(&s, seed);
    struct tensor *qkv = rows_of_noise(&s, "qkv", 2 * p.n_head_k * p.dim_k + p.n_head * p.dim_v, 1);
    struct tensor *steps = rows_of_noise(&s, "steps", p.n_head * p.dim_k, 4);
    struct tensor *beta = rows_of_noise(&s, "beta", p.n_head, 4);
    steps = graph_act(s.graph, "positive", steps, ACT_SOFTPLUS);
    scene_finish(&s, graph_channel_delta_rule(s.graph, "delta", qkv, steps, beta,
                                              weight_of(&s, p.n_head, 1, -0.5f, 0.5f, false), p));
    check(&s);
    scene_close(&s);
}

Test(scan, delta_rule_with_a_decay_for_each_channel)
{
    check_channel_delta((struct delta_params){4, 4, 32, 32, false, 1e-6f}, 51);
    check_channel_delta((struct delta_params){2, 4, 32, 32, true, 1e-6f}, 52);
    check_channel_delta((struct delta_params){1, 3, 20, 24, true, 1e-6f}, 53);
    check_channel_delta((struct delta_params){2, 2, 50, 47, false, 1e-6f}, 54);
    check_channel_delta((struct delta_params){1, 1, 1, 1, false, 1e-6f}, 55);
    check_channel_delta((struct delta_params){1, 1, 200, 33, false, 1e-6f}, 56);
    check_channel_delta((struct delta_params){1, 1, 128, 64, false, 1e-6f}, 57);
}

static void check_scan(struct scan_params p, bool rates, bool skip, uint64_t seed)
{
    struct scene s;
    const int64_t width = (int64_t)p.n_head * p.dim, states = (int64_t)p.n_group * p.n_state;
    printf("selective scan, %d heads of %d with %d states, seed %llu\n", p.n_head, p.dim, p.n_state,
           (unsigned long long)seed);
    scene_open(&s, seed);
    struct tensor *x = rows_of_noise(&s, "x", width + (p.b_at ? 2 * states : 0), 1);
    struct tensor *dt = rows_of_noise(&s, "dt", p.n_head, 3);
    struct tensor *b = p.b_at ? x : rows_of_noise(&s, "b", states, 1),
                  *c = p.b_at ? x : rows_of_noise(&s, "c", states, 1);
    const struct weight *rate =
        rates ? weight_of(&s, p.n_state * p.n_head, 1, -1, 1, false) : weight_of(&s, p.n_head, 1, -1, 1, false);
    scene_finish(&s, graph_selective_scan(s.graph, "scan", x, dt, b, c, rate,
                                          skip ? weight_of(&s, p.n_head, 1, 0, 1, false) : NULL, p));
    check(&s);
    scene_close(&s);
}

Test(scan, selective_scan)
{
    check_scan((struct scan_params){64, 1, 1, 16, 0, 0}, true, true, 21);
    check_scan((struct scan_params){50, 1, 1, 7, 0, 0}, true, false, 22);
    check_scan((struct scan_params){4, 2, 32, 64, 128, 256}, false, true, 23);
    check_scan((struct scan_params){6, 3, 20, 33, 120, 219}, false, true, 24);
    check_scan((struct scan_params){3, 1, 24, 128, 0, 0}, false, false, 25);
    check_scan((struct scan_params){2, 1, 33, 250, 0, 0}, false, true, 26);
    check_scan((struct scan_params){1, 1, 1, 1, 0, 0}, false, true, 27);
}

// ---- Slices and joined columns

// Runs a graph without attention and states on both machines, and compares with `want`: (TOKENS, width). Values may be off by `bound`.
static void check_values(struct scene *s, const float *want, size_t width, float bound)
{
    struct machine *machines[] = {cpu(NULL, 2), gpu()};
    for (size_t i = 0; i < COUNT_OF(machines); i++) {
        float *got = values_of(s->graph);
        // states are not read by this graph, but a machine allocates buffers of any size
        struct machine *m = machines[i];
        struct compile_options o = {.max_tokens = ROWS, .max_outputs = ROWS, .kv_type = {DT_F32, DT_F32}};
        struct plan *plan;
        struct error err = {0};
        int32_t numbers[TOKENS], seqs[TOKENS] = {0};
        for (int t = 0; t < TOKENS; t++)
            numbers[t] = t;
        cr_assert(m->v->compile(m, s->graph, &o, &plan, &err) == 0, "%s", err.text);
        struct step step = {.n_tokens = TOKENS,
                            .n_outputs = TOKENS,
                            .tokens = numbers,
                            .positions = numbers,
                            .seqs = seqs,
                            .outputs = numbers,
                            .pages = numbers,
                            .pages_stride = 1,
                            .logits = got};
        cr_assert(m->v->run(m, plan, &step, &err) == 0, "%s", err.text);
        for (size_t j = 0; j < TOKENS * width; j++)
            cr_assert(fabsf(got[j] - want[j]) <= bound, "%s: row %zu, column %zu", m->v->name, j / width, j % width);
        free(got);
        m->v->plan_free(m, plan);
        m->v->close(m);
    }
}

Test(scan, slices_of_groups)
{
    struct scene s;
    scene_open(&s, 31);
    struct tensor *x = rows_of_noise(&s, "x", 60, 1);
    struct tensor *a = graph_slice(s.graph, "a", x, 20, 0, 7), *b = graph_slice(s.graph, "b", x, 20, 13, 7);
    scene_finish(&s, graph_glu(s.graph, "y", a, b, ACT_NONE));
    const float *table = s.graph->nodes[0]->w[0]->data;
    float want[TOKENS * 21];
    for (int i = 0; i < TOKENS * 21; i++) {
        const float *row = table + i / 21 * 60 + i % 21 / 7 * 20 + i % 7;
        want[i] = row[0] * row[13];
    }
    check_values(&s, want, 21, 0);
    scene_close(&s);
}

// A gate for each of 4 heads of 15 columns, on both machines.
Test(scan, a_gate_for_each_head)
{
    enum { HEADS = 4, DIM = 15, WIDTH = HEADS * DIM };
    struct scene s;
    scene_open(&s, 34);
    struct tensor *gate = rows_of_noise(&s, "gate", HEADS, 4), *x = rows_of_noise(&s, "x", WIDTH, 1);
    scene_finish(&s, graph_head_glu(s.graph, "y", gate, x, ACT_SOFTPLUS));
    struct text out = {0};
    cr_assert(graph_print(s.graph, &out) == 0 && strstr(out.data, "head_glu       (tokens, 60) <- gate, x softplus\n"));
    text_free(&out);
    const float *gates = gate->w[0]->data, *rows = x->w[0]->data;
    float want[TOKENS * WIDTH];
    for (int i = 0; i < TOKENS * WIDTH; i++)
        want[i] = (float)(log1p(exp((double)gates[i / DIM])) * (double)rows[i]);
    check_values(&s, want, WIDTH, 2e-6f);
    scene_close(&s);
}

// Three parts of 70 columns, each with 5 of its own behind it, or with the same 5.
Test(scan, columns_in_turns)
{
    enum { PARTS = 3, A = 70, B = 5, WIDTH = PARTS * (A + B) };
    for (int same = 0; same < 2; same++) {
        struct scene s;
        scene_open(&s, 32);
        struct tensor *a = rows_of_noise(&s, "a", PARTS * A, 1), *b = rows_of_noise(&s, "b", same ? B : PARTS * B, 1);
        scene_finish(&s, graph_join(s.graph, "y", a, A, b, B));
        const float *of_a = a->w[0]->data, *of_b = b->w[0]->data;
        static float want[TOKENS * WIDTH];
        for (int i = 0; i < TOKENS * WIDTH; i++) {
            const int row = i / WIDTH, part = i % WIDTH / (A + B), c = i % (A + B);
            want[i] =
                c < A ? of_a[row * PARTS * A + part * A + c] : of_b[row * b->width + (same ? 0 : part * B) + c - A];
        }
        check_values(&s, want, WIDTH, 0);
        scene_close(&s);
    }
}

// A matrix of each head times its columns.
Test(scan, a_route_to_all_heads)
{
    enum { HEADS = 40, K = 2, N = 3 };
    struct scene s;
    scene_open(&s, 33);
    struct tensor *x = rows_of_noise(&s, "x", HEADS * K, 1);
    struct weight w = *weight_of(&s, K, HEADS * N, 0, 1, false);
    w.ne[1] = N, w.ne[2] = HEADS;
    scene_finish(&s, graph_expert_matmul(s.graph, "y", x, &w, NULL, graph_route_each(s.graph, "heads", x, HEADS)));
    const float *of_x = x->w[0]->data, *of_w = w.data;
    static float want[TOKENS * HEADS * N];
    for (int i = 0; i < TOKENS * HEADS * N; i++) {
        const float *row = of_x + i / N * K, *column = of_w + i % (HEADS * N) * K;
        want[i] = row[0] * column[0] + row[1] * column[1];
    }
    check_values(&s, want, HEADS * N, 1e-6f);
    scene_close(&s);
}

// ---- Shapes and steps that do not fit

Test(scan, gates_that_do_not_fit_are_refused)
{
    struct scene s;
    scene_open(&s, 35);
    const struct delta_params p = {2, 2, 4, 4, false, 1e-6f};
    struct tensor *qkv = rows_of_noise(&s, "qkv", 24, 1), *by_head = rows_of_noise(&s, "by_head", 2, 1);
    cr_expect_null(graph_channel_delta_rule(s.graph, "y", qkv, by_head, by_head, weight_of(&s, 2, 1, 0, 1, false), p));
    cr_expect(strstr(s.graph->fault.text, "sources of 24, 2 and 2 columns, wanted are 24, 8 and 2"), "%s",
              s.graph->fault.text);
    scene_close(&s);
    scene_open(&s, 36);
    cr_expect_null(
        graph_head_glu(s.graph, "y", rows_of_noise(&s, "gate", 5, 1), rows_of_noise(&s, "x", 24, 1), ACT_SILU));
    cr_expect(strstr(s.graph->fault.text, "no multiple of the 5 gates"), "%s", s.graph->fault.text);
    scene_close(&s);
    scene_open(&s, 37);
    struct tensor *x = rows_of_noise(&s, "x", 24, 1);
    cr_expect_null(graph_head_glu(s.graph, "y", x, x, ACT_SWIGLU_CLAMPED));
    cr_expect(strstr(s.graph->fault.text, "a clamped SwiGLU is of two values of one shape"), "%s", s.graph->fault.text);
    scene_close(&s);
}

Test(scan, rows_that_do_not_follow_each_other_are_refused)
{
    struct scene s;
    struct error err = {0};
    scene_open(&s, 41);
    scene_finish(
        &s, graph_short_conv(s.graph, "conv", rows_of_noise(&s, "x", 8, 1), weight_of(&s, 3, 8, 0, 1, false), NULL));
    int32_t tokens[3] = {0}, positions[3] = {0, 0, 1}, seqs[3] = {0, 1, 0}, from[3] = {-1, -1, -1}, to[3] = {0, 1, 2};
    struct compile_options o = {.max_tokens = 3, .max_outputs = 3};
    struct step step = {.n_tokens = 3,
                        .tokens = tokens,
                        .positions = positions,
                        .seqs = seqs,
                        .pages_stride = 1,
                        .pages = to,
                        .state_from = from,
                        .state_to = to,
                        .states = (struct buffer *)(uintptr_t)64}; // is not looked into
    cr_expect_eq(step_check(s.graph, &o, &step, &err), -1);
    cr_expect_str_eq(err.text, "row 2: the rows of sequence 0 do not follow each other");
    seqs[1] = 0;
    cr_expect_eq(step_check(s.graph, &o, &step, &err), -1);
    cr_expect_str_eq(err.text, "row 1: position 0 after 0 of its sequence");
    positions[1] = 1, positions[2] = 2;
    cr_expect_eq(step_check(s.graph, &o, &step, &err), 0, "%s", err.text);
    cr_expect_eq(step_check_slots(s.graph, &step, 2, &err), -1);
    cr_expect_str_eq(err.text, "row 2: states -1 and 2 of 2");
    step.states = NULL;
    cr_expect_eq(step_check(s.graph, &o, &step, &err), -1);
    scene_close(&s);
}
