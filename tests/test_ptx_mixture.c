// Tests mixtures of experts on the GPU machine, with the tests' libcuda: a layer of each kind of choice, form of weights and
// activation gives the same bits in a step of one row, whose launches are fused, in a step of many rows, whose places are
// grouped, and in a step with a tap, whose nodes have a launch each; it agrees with the CPU; and it takes few launches.
#include "kernels/card.h"
#include "kernels/graph.h"
#include "kernels/machine.h"
#include "tests/golden.h"
#include "tests/ptx_products.h"

#include <math.h>

enum { N_VOCAB = 40, ROWS = 13, WEIGHTS = 32 };
#define LOUDER 4000.0f // makes what the experts add as large as the rest

struct mixture {
    const char *what;
    enum dtype type; // of the experts
    int64_t k, n_ff;
    int experts, used;
    struct route_params route; // n_used is `used`
    enum act_kind act;
    bool by_bias;      // a bias chooses
    bool biases;       // the experts have biases
    bool scales;       // and scales
    bool weighs_first; // the inputs are weighed, not the outputs
    bool no_gate;      // there is no gate
    bool shared;       // an expert that all rows use
    bool gated;        // with a gate of one logit
    int heads;         // of matrices behind all that, one for each part of the row; 0: none
    enum dtype router; // DT_F32 or another
    bool exact;
    int launches; // of one row
};

// ---- weights

struct mixture_weights {
    uint64_t state;
    struct weight all[WEIGHTS];
    int n;
};

static struct weight *matrices(struct mixture_weights *ws, enum dtype type, int64_t k, int64_t rows, int64_t n)
{
    cr_assert(ws->n < WEIGHTS);
    struct weight *w = &ws->all[ws->n++];
    *w = (struct weight){.name = "w", .type = type, .ne = {k, rows, n}, .row_bytes = dtype_row_bytes(type, k)};
    w->data = make_weights(type, (size_t)(rows * n), (size_t)k, false, &ws->state);
    return w;
}

// Floats between -1 and 1.
static struct weight *floats(struct mixture_weights *ws, int64_t k, int64_t rows)
{
    cr_assert(ws->n < WEIGHTS);
    struct weight *w = &ws->all[ws->n++];
    *w = (struct weight){.name = "f", .type = DT_F32, .ne = {k, rows, 1}, .row_bytes = 4 * (size_t)k};
    w->data = random_floats((size_t)(k * rows), &ws->state);
    return w;
}

static void release(struct mixture_weights *ws)
{
    for (int i = 0; i < ws->n; i++) {
        free((void *)(uintptr_t)ws->all[i].data);
        free((void *)(uintptr_t)ws->all[i].scale);
    }
}

// ---- the graph

static struct tensor *project(struct graph *g, struct mixture_weights *ws, const struct mixture *c, const char *name,
                              struct tensor *x, int64_t k, int64_t rows, struct tensor *route)
{
    struct weight *w = matrices(ws, c->type, k, rows, c->experts);
    if (c->scales)
        w->scale = random_floats((size_t)c->experts, &ws->state);
    return graph_expert_matmul(g, name, x, w, c->biases ? floats(ws, rows, c->experts) : NULL, route);
}

static struct tensor *experts(struct graph *g, struct mixture_weights *ws, const struct mixture *c, struct tensor *x)
{
    struct route_params params = c->route;
    params.n_used = c->used;
    struct tensor *logits = graph_matmul(g, "router", x, matrices(ws, c->router, c->k, c->experts, 1), NULL);
    struct tensor *route = graph_route(g, "route", logits, c->by_bias ? floats(ws, c->experts, 1) : NULL, params);
    if (c->weighs_first)
        x = graph_expert_weigh(g, "weighed", x, route);
    struct tensor *y = project(g, ws, c, "up", x, c->k, c->n_ff, route);
    if (c->no_gate)
        y = graph_act(g, "act", y, c->act);
    else
        y = graph_glu(g, "glu", project(g, ws, c, "gate", x, c->k, c->n_ff, route), y, c->act);
    y = project(g, ws, c, "down", y, c->n_ff, c->k, route);
    return (c->weighs_first ? graph_expert_sum : graph_expert_combine)(g, "sum", y, route);
}

static struct tensor *shared_expert(struct graph *g, struct mixture_weights *ws, const struct mixture *c,
                                    struct tensor *x)
{
    struct tensor *up = graph_matmul(g, "shared_up", x, matrices(ws, c->type, c->k, c->n_ff, 1), NULL);
    struct tensor *gate = graph_matmul(g, "shared_gate", x, matrices(ws, c->type, c->k, c->n_ff, 1), NULL);
    struct tensor *y = graph_glu(g, "shared_glu", gate, up, c->act);
    y = graph_matmul(g, "shared_down", y, matrices(ws, c->type, c->n_ff, c->k, 1), NULL);
    if (!c->gated)
        return y;
    const struct route_params sigmoid = {.kind = ROUTE_SIGMOID, .n_used = 1, .scale = 1};
    struct tensor *logit = graph_matmul(g, "shared_logit", x, matrices(ws, DT_F32, c->k, 1, 1), NULL);
    return graph_expert_combine(g, "gated", y, graph_route(g, "shared_route", logit, NULL, sigmoid));
}

// Each part of the row times a matrix of its own.
static struct tensor *heads(struct graph *g, struct mixture_weights *ws, const struct mixture *c, struct tensor *x)
{
    struct tensor *each = graph_route_each(g, "heads", x, c->heads);
    struct weight *w = matrices(ws, c->type, c->k / c->heads, c->k / c->heads, c->heads);
    return graph_expert_matmul(g, "of_heads", x, w, NULL, each);
}

static struct graph *build(struct mixture_weights *ws, const struct mixture *c)
{
    struct error err = {0};
    struct graph *g = graph_new();
    struct tensor *x = graph_embed(g, "embed", floats(ws, c->k, N_VOCAB), INPUT_TOKENS, 1);
    struct tensor *normed = graph_norm(g, "norm", x, NULL, NULL, NORM_RMS, 1e-5f, 0);
    struct tensor *y = experts(g, ws, c, normed);
    if (c->shared)
        y = graph_add(g, "both", y, shared_expert(g, ws, c, normed));
    x = graph_add(g, "residual", graph_scale(g, "louder", y, LOUDER), x);
    if (c->heads)
        x = heads(g, ws, c, x);
    x = graph_norm(g, "out_norm", graph_output_rows(g, "rows", x), NULL, NULL, NORM_RMS, 1e-5f, 0);
    x = graph_matmul(g, "out", x, matrices(ws, DT_F32, c->k, N_VOCAB, 1), NULL);
    cr_assert_eq(graph_finish(g, x, &err), 0, "%s: %s", c->what, err.text);
    return g;
}

// ---- runs

static void look_away(void *arg, int i, const float *rows, size_t stride, int n_rows)
{
    (void)arg, (void)i, (void)rows, (void)stride, (void)n_rows;
}

// Computes the logits of all rows, `at_once` in a step. Returns the launches of a step of one row.
static int run(struct machine *m, const struct graph *g, int at_once, const struct taps *taps, float *logits)
{
    struct error err = {0};
    struct plan *p;
    struct compile_options o = {at_once, at_once, {DT_F16, DT_F16}, false, taps};
    int launches = 0;
    size_t bytes;
    cr_assert_eq(m->v->compile(m, g, &o, &p, &err), 0, "%s", err.text);
    for (int i = 0, n; i < ROWS; i += n) {
        int32_t tokens[ROWS], outputs[ROWS], zeros[ROWS] = {0};
        n = MIN(at_once, ROWS - i);
        for (int j = 0; j < n; j++) {
            tokens[j] = (7 * (i + j) + 3) % N_VOCAB;
            outputs[j] = j;
        }
        struct step s = {n, n,    tokens, zeros, zeros, outputs, NULL, 0, NULL, logits + (size_t)i * N_VOCAB,
                         0, NULL, NULL,   NULL,  NULL,  NULL};
        cr_assert_eq(m->v->run(m, p, &s, &err), 0, "%s", err.text);
    }
    if (strcmp(m->v->name, "cpu") != 0)
        card_plan(m, p, &launches, &bytes);
    m->v->plan_free(m, p);
    return launches;
}

// Rounding to 8 bits or 16 changes with the last bit of a norm; floats differ by the approximations of a card.
static double bound_of(const struct mixture *c)
{
    return c->exact || c->type == DT_F32 ? 1e-9 : c->type == DT_F16 || c->type == DT_BF16 ? 1e-5 : 1e-3;
}

static void check(const struct mixture *c)
{
    enum { N = ROWS * N_VOCAB };
    static float one[N], many[N], some[N], single[N], host[N];
    struct mixture_weights ws = {.state = SEED};
    struct error err = {0};
    struct machine *card, *cpu;
    const struct machine_options options = {.exact = c->exact, .n_threads = 1};
    struct graph *g = build(&ws, c);
    const struct tensor *tapped[] = {g->nodes[1]};
    struct taps taps = {tapped, 1, look_away, NULL};
    cr_assert_eq(machine_open_gpu(&card, &options, &(struct gpu_options){0}, &err), 0, "%s", err.text);
    cr_assert_eq(machine_open_cpu(&cpu, &options, &err), 0, "%s", err.text);
    int launches = run(card, g, 1, NULL, one);
    run(card, g, 1, &taps, single);
    run(card, g, ROWS, NULL, many);
    run(card, g, 5, NULL, some);
    run(cpu, g, ROWS, NULL, host);
    fprintf(stderr, "%s: %d launches, NMSE %.2g\n", c->what, launches, nmse(one, host, N));
    cr_expect(!memcmp(one, single, sizeof one), "%s: fused launches have other bits", c->what);
    cr_expect(!memcmp(one, many, sizeof one), "%s: many rows have other bits", c->what);
    cr_expect(!memcmp(one, some, sizeof one), "%s: some rows have other bits", c->what);
    cr_expect(nmse(one, host, N) <= bound_of(c), "%s: NMSE %.3g", c->what, nmse(one, host, N));
    cr_expect_eq(launches, c->launches, "%s: %d launches, not %d", c->what, launches, c->launches);
    cpu->v->close(cpu);
    card->v->close(card);
    graph_free(g);
    release(&ws);
}

// Beside the table of tokens and the head: the router with the choice, the gates with what they multiply, the outputs with
// their sum and the residual; and one for the outputs of a shared expert.
enum { LAUNCHES = 5 };
// clang-format off
#define SOFTMAX {ROUTE_SOFTMAX, 0, true, 1, 0, 0}
#define SIGMOID {ROUTE_SIGMOID, 0, true, 2.5f, 0, 0}
// clang-format on

static void check_all(const struct mixture *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(&cases[i]);
}

Test(ptx_mixture, has_the_same_bits_in_few_launches_with_activations_of_8_bits)
{
    // clang-format off
    static const struct mixture cases[] = {
        {.what = "softmax", .type = DT_Q4_K, .k = 256, .n_ff = 512, .experts = 4, .used = 2, .route = SOFTMAX,
         .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "odd sizes", .type = DT_Q8_0, .k = 96, .n_ff = 160, .experts = 9, .used = 3, .route = SOFTMAX,
         .act = ACT_GELU_TANH, .launches = LAUNCHES},
        {.what = "all experts", .type = DT_Q4_0, .k = 64, .n_ff = 32, .experts = 5, .used = 5, .route = SOFTMAX,
         .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "100 experts", .type = DT_Q4_0, .k = 32, .n_ff = 32, .experts = 100, .used = 4, .route = SOFTMAX,
         .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "300 experts", .type = DT_Q4_0, .k = 64, .n_ff = 32, .experts = 300, .used = 2, .route = SIGMOID,
         .act = ACT_SILU, .by_bias = true, .launches = LAUNCHES},
        {.what = "one expert", .type = DT_Q5_1, .k = 64, .n_ff = 96, .experts = 9, .used = 1, .route = SOFTMAX,
         .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "groups and a bias", .type = DT_Q6_K, .k = 256, .n_ff = 256, .experts = 8, .used = 3,
         .route = {ROUTE_SIGMOID, 0, true, 2.5f, 4, 2}, .act = ACT_SILU, .by_bias = true, .launches = LAUNCHES},
        {.what = "biases, clamped", .type = DT_MXFP4, .k = 96, .n_ff = 64, .experts = 6, .used = 4,
         .route = {ROUTE_SOFTMAX, 0, true, 1, 0, 0}, .act = ACT_SWIGLU_CLAMPED, .biases = true, .launches = LAUNCHES},
        {.what = "scales and biases", .type = DT_Q4_1, .k = 64, .n_ff = 128, .experts = 8, .used = 3,
         .route = SIGMOID, .act = ACT_SILU, .biases = true, .scales = true, .launches = LAUNCHES},
        {.what = "shared", .type = DT_Q4_K, .k = 256, .n_ff = 256, .experts = 4, .used = 2, .route = SOFTMAX,
         .act = ACT_SILU, .shared = true, .launches = LAUNCHES + 1},
        {.what = "shared with a gate", .type = DT_Q5_K, .k = 256, .n_ff = 256, .experts = 5, .used = 3,
         .route = SOFTMAX, .act = ACT_SILU, .shared = true, .gated = true, .launches = LAUNCHES + 1},
        {.what = "no gate, quantised router", .type = DT_Q8_0, .k = 64, .n_ff = 64, .experts = 8, .used = 2,
         .route = SOFTMAX, .act = ACT_RELU2, .no_gate = true, .router = DT_Q8_0, .launches = LAUNCHES},
        {.what = "weighed inputs", .type = DT_Q4_0, .k = 64, .n_ff = 64, .experts = 8, .used = 1,
         .route = {ROUTE_SIGMOID, 0, false, 1, 0, 0}, .act = ACT_SILU, .weighs_first = true, .launches = LAUNCHES + 1},
        {.what = "several weighed inputs", .type = DT_Q4_0, .k = 64, .n_ff = 64, .experts = 8, .used = 3,
         .route = SIGMOID, .act = ACT_SILU, .weighs_first = true, .launches = LAUNCHES + 1},
        {.what = "heads", .type = DT_Q8_0, .k = 192, .n_ff = 64, .experts = 8, .used = 2, .route = SOFTMAX,
         .act = ACT_SILU, .heads = 2, .launches = LAUNCHES + 1},
    };
    // clang-format on
    check_all(cases, COUNT_OF(cases));
}

Test(ptx_mixture, has_the_same_bits_in_few_launches_with_activations_of_16_bits)
{
    // clang-format off
    static const struct mixture cases[] = {
        {.what = "F16", .type = DT_F16, .k = 64, .n_ff = 96, .experts = 8, .used = 3, .route = SOFTMAX,
         .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "BF16, biases", .type = DT_BF16, .k = 96, .n_ff = 64, .experts = 8, .used = 2, .route = SIGMOID,
         .act = ACT_SILU, .biases = true, .shared = true, .launches = LAUNCHES + 1},
        {.what = "F16 router, scales, heads", .type = DT_F16, .k = 128, .n_ff = 32, .experts = 40, .used = 2,
         .route = SOFTMAX, .act = ACT_SILU, .scales = true, .heads = 4, .router = DT_F16, .launches = LAUNCHES + 1},
    };
    // clang-format on
    check_all(cases, COUNT_OF(cases));
}

Test(ptx_mixture, has_the_same_bits_in_few_launches_with_float_activations)
{
    // clang-format off
    static const struct mixture cases[] = {
        {.what = "F32", .type = DT_F32, .k = 48, .n_ff = 40, .experts = 8, .used = 3, .route = SOFTMAX,
         .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "F32, rows of odd length", .type = DT_F32, .k = 50, .n_ff = 37, .experts = 8, .used = 3,
         .route = SIGMOID, .act = ACT_SILU, .biases = true, .launches = LAUNCHES},
        {.what = "a row without room", .type = DT_F32, .k = 16, .n_ff = 1040, .experts = 4, .used = 4,
         .route = SOFTMAX, .act = ACT_SILU, .launches = LAUNCHES},
        {.what = "exact", .type = DT_Q4_K, .k = 256, .n_ff = 256, .experts = 4, .used = 2, .route = SOFTMAX,
         .act = ACT_SILU, .scales = true, .shared = true, .gated = true, .exact = true, .launches = LAUNCHES + 1},
        {.what = "a type of codebooks", .type = DT_IQ2_XS, .k = 256, .n_ff = 256, .experts = 4, .used = 2,
         .route = SOFTMAX, .act = ACT_SILU, .heads = 1, .launches = LAUNCHES + 1},
    };
    // clang-format on
    check_all(cases, COUNT_OF(cases));
}
