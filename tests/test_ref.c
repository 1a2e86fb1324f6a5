// Tests the plain-C machine (ref.c), the reference of all others: each operation against its formula, which is written
// here independently and computed in long double.
#include "tests/ref_rig.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

static struct rig r;
static void setup(void)
{
    rig_init(&r, 20260101);
}
static void teardown(void)
{
    rig_free(&r);
}
TestSuite(ref, .init = setup, .fini = teardown, .timeout = 120);

#define EXPECT_ROUNDED(y, exact, terms, what, at)                                                                      \
    cr_expect(rig_rounded(y, exact, terms), "%s at %lld: %.9g, exact is %.12Lg", what, (long long)(at), (double)(y),   \
              (long double)(exact))

// ---- Rows picked by an input

static void check_embed(enum dtype type, int64_t width)
{
    enum { ROWS = 5 };
    const struct weight *table = rig_weight(&r, type, width, ROWS, 1, rig_noises(&r, ROWS * width, 2));
    const float *values = rig_decoded(&r, table);
    float *y = rig_eval(&r, graph_embed(r.graph, "x", table, INPUT_TOKENS, 3.5f), ROWS, NULL);
    for (int64_t i = 0; i < ROWS * width; i++)
        EXPECT_ROUNDED(y[i], 3.5L * values[i], 0, dtype_info[type].name, i);
}
Test(ref, embed_scales_rows_of_floats)
{
    check_embed(DT_F32, 7);
}
Test(ref, embed_scales_rows_of_blocks)
{
    check_embed(DT_Q6_K, 512);
}

Test(ref, embed_reads_by_position_where_it_is_asked)
{
    float positions[4] = {10, 11, 12, 13}, tokens[3] = {1, 2, 3};
    struct tensor *p = graph_embed(r.graph, "p", rig_weight(&r, DT_F32, 1, 4, 1, positions), INPUT_POSITIONS, 1);
    struct tensor *t = rig_rows(&r, "t", 3, 1, tokens);
    float *y = rig_eval(&r, graph_add(r.graph, "y", p, t), 3, (int32_t[]){3, 0, 2});
    cr_expect_eq(y[0], 14);
    cr_expect_eq(y[1], 12);
    cr_expect_eq(y[2], 15);
}

Test(ref, only_the_wanted_rows_come_out)
{
    struct tensor *x = rig_rows(&r, "x", 5, 1, (float[]){0, 10, 20, 30, 40});
    rig_compile(&r, x, 5, 1);
    int32_t tokens[5] = {4, 3, 2, 1, 0}, zero[5] = {0}, rows[2] = {1, 4};
    float out[3] = {-1, -1, -1};
    struct step s = {5, 2, tokens, zero, zero, rows, NULL, 0, r.kv, out, 0, NULL, NULL, NULL, NULL, NULL};
    cr_assert_eq(r.machine->v->run(r.machine, r.plan, &s, NULL), 0);
    cr_expect_eq(out[0], 30);
    cr_expect_eq(out[1], 0);
    cr_expect_eq(out[2], -1, "only two rows were asked for");
    s.n_outputs = 0;
    cr_assert_eq(r.machine->v->run(r.machine, r.plan, &s, NULL), 0);
}

// ---- Norms

struct norm_case {
    enum norm_kind kind;
    int64_t width, group;
    bool gain, bias;
    float span; // of the input
};

static void check_norm(struct norm_case c)
{
    enum { ROWS = 3 };
    const float eps = 1e-5f;
    int64_t length = c.group ? c.group : c.width;
    float *x = rig_noises(&r, ROWS * c.width, c.span), *gain = rig_noises(&r, length, 2),
          *bias = rig_noises(&r, length, 2);
    struct tensor *n = graph_norm(r.graph, "y", rig_rows(&r, "x", ROWS, c.width, x),
                                  c.gain ? rig_weight(&r, DT_F32, length, 1, 1, gain) : NULL,
                                  c.bias ? rig_weight(&r, DT_F32, length, 1, 1, bias) : NULL, c.kind, eps, c.group);
    float *y = rig_eval(&r, n, ROWS, NULL);
    for (int64_t at = 0; at < ROWS * c.width; at += length) {
        long double mean = 0, square = 0;
        for (int64_t i = 0; i < length; i++) {
            mean += (long double)x[at + i] / length;
            square += (long double)x[at + i] * x[at + i] / length;
        }
        // The variance as E[x^2] - E[x]^2: a different formula than in ref.c, precise enough in long double.
        long double centre = c.kind == NORM_LAYER ? mean : 0;
        long double root = sqrtl(square - centre * centre + (long double)eps);
        for (int64_t i = 0; i < length; i++) {
            long double z = (x[at + i] - centre) / root, m = c.gain ? gain[i] : 1, b = c.bias ? bias[i] : 0;
            EXPECT_ROUNDED(y[at + i], z * m + b, fabsl(z * m) + fabsl(b), "norm", at + i);
        }
    }
}

Test(ref, rms_norm)
{
    check_norm((struct norm_case){NORM_RMS, 96, 0, true, false, 3});
}
Test(ref, rms_norm_without_gain)
{
    check_norm((struct norm_case){NORM_RMS, 7, 0, false, false, 3});
}
Test(ref, rms_norm_of_groups_shares_its_gain)
{
    check_norm((struct norm_case){NORM_RMS, 96, 32, true, false, 3});
}
Test(ref, layer_norm)
{
    check_norm((struct norm_case){NORM_LAYER, 65, 0, true, true, 3});
}
Test(ref, layer_norm_of_groups)
{
    check_norm((struct norm_case){NORM_LAYER, 60, 20, true, true, 3});
}
Test(ref, norms_of_huge_numbers_stay_finite)
{
    check_norm((struct norm_case){NORM_RMS, 64, 0, true, false, 1e38f});
}
Test(ref, norms_of_tiny_numbers_are_held_by_eps)
{
    check_norm((struct norm_case){NORM_RMS, 64, 0, true, false, 1e-30f});
}

// ---- Products with weights

static void check_matmul(enum dtype type, int64_t k, int64_t columns, bool with_bias)
{
    enum { ROWS = 3 };
    const float *x = rig_noises(&r, ROWS * k, 1), *bias = rig_noises(&r, columns, 1);
    const struct weight *w = rig_weight(&r, type, k, columns, 1, rig_noises(&r, k * columns, 1));
    const struct weight *b = with_bias ? rig_weight(&r, DT_F32, columns, 1, 1, bias) : NULL;
    const float *decoded = rig_decoded(&r, w);
    float *y = rig_eval(&r, graph_matmul(r.graph, "y", rig_rows(&r, "x", ROWS, k, x), w, b), ROWS, NULL);
    for (int64_t i = 0; i < ROWS * columns; i++) {
        long double sum = with_bias ? bias[i % columns] : 0, terms = fabsl(sum);
        for (int64_t j = 0; j < k; j++) {
            long double term = (long double)x[i / columns * k + j] * decoded[i % columns * k + j];
            sum += term;
            terms += fabsl(term);
        }
        EXPECT_ROUNDED(y[i], sum, terms, dtype_info[type].name, i);
    }
}

Test(ref, matmul_of_an_odd_shape)
{
    check_matmul(DT_F32, 37, 5, true);
}
Test(ref, matmul_of_one_element)
{
    check_matmul(DT_F32, 1, 1, false);
}
#define MATMUL(NAME)                                                                                                   \
    Test(ref, matmul_##NAME)                                                                                           \
    {                                                                                                                  \
        check_matmul(DT_##NAME, 512, 6, true);                                                                         \
    }
MATMUL(F16)
MATMUL(BF16)
MATMUL(Q8_0)
MATMUL(Q4_0)
MATMUL(Q4_K)
MATMUL(Q5_K)
MATMUL(Q6_K)

// ---- Rotary positions

// x is (1, 0) in each pair, so that a head becomes its cosines and sines.
static void check_rope_angles(enum rope_layout layout)
{
    enum { PAIRS = 64, DIM = 2 * PAIRS, N = 5 };
    static const int32_t positions[N] = {0, 1, 8191, 32767, 131071};
    double freq[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        freq[i] = pow(10000, -(double)i / PAIRS);
    float *x = rig_noises(&r, N * DIM, 0);
    for (int i = 0; i < N * PAIRS; i++)
        x[i / PAIRS * DIM + (layout == ROPE_NORM ? 2 * (i % PAIRS) : i % PAIRS)] = 1;
    struct tensor *table = graph_rope_table(r.graph, "table", PAIRS, freq, 1);
    struct tensor *y = graph_rope(r.graph, "y", rig_rows(&r, "x", N, DIM, x), table, DIM, layout);
    float *out = rig_eval(&r, y, N, positions);
    for (int row = 0; row < N; row++)
        for (int i = 0; i < PAIRS; i++) {
            const float *head = out + row * DIM;
            float c = layout == ROPE_NORM ? head[2 * i] : head[i],
                  s = layout == ROPE_NORM ? head[2 * i + 1] : head[i + PAIRS];
            long double angle = (long double)positions[row] * (long double)freq[i];
            // An angle of up to 2^17 in double is off by 2^-36 at the most.
            EXPECT_ROUNDED(c, cosl(angle), 0x1p4L, "cosine", positions[row]);
            EXPECT_ROUNDED(s, sinl(angle), 0x1p4L, "sine", positions[row]);
        }
}
Test(ref, rope_angles_are_exact_far_out_for_neighbours)
{
    check_rope_angles(ROPE_NORM);
}
Test(ref, rope_angles_are_exact_far_out_for_halves)
{
    check_rope_angles(ROPE_NEOX);
}

// Two heads of 6 columns, 4 of which are rotated: one pair by 90 degrees per position, (a, b) -> (-b, a), the other
// not at all.
static void check_rope_pairs(enum rope_layout layout, const float want[12])
{
    static const float x[12] = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};
    struct tensor *table = graph_rope_table(r.graph, "table", 2, (double[]){M_PI / 2, 0}, 1);
    float *y = rig_eval(&r, graph_rope(r.graph, "y", rig_rows(&r, "x", 1, 12, x), table, 6, layout), 1, (int32_t[]){1});
    for (int i = 0; i < 12; i++)
        cr_expect_float_eq(y[i], want[i], 1e-14, "column %d: %g, wanted %g", i, (double)y[i], (double)want[i]);
}
Test(ref, rope_turns_neighbours_and_leaves_the_rest)
{
    check_rope_pairs(ROPE_NORM, (float[]){-2, 1, 3, 4, 5, 6, -20, 10, 30, 40, 50, 60});
}
Test(ref, rope_turns_halves_and_leaves_the_rest)
{
    check_rope_pairs(ROPE_NEOX, (float[]){-3, 2, 1, 4, 5, 6, -30, 20, 10, 40, 50, 60});
}

Test(ref, rope_scales_what_it_turns)
{
    struct tensor *table = graph_rope_table(r.graph, "table", 1, (double[]){0.5}, 1.25f);
    struct tensor *x = rig_rows(&r, "x", 1, 3, (float[]){2, 3, 4});
    float *y = rig_eval(&r, graph_rope(r.graph, "y", x, table, 3, ROPE_NORM), 1, (int32_t[]){4});
    // The table is stored in float32, so the products carry its rounding.
    cr_expect_float_eq(y[0], 1.25 * (2 * cos(2) - 3 * sin(2)), 6 * FLT_EPSILON);
    cr_expect_float_eq(y[1], 1.25 * (2 * sin(2) + 3 * cos(2)), 6 * FLT_EPSILON);
    cr_expect_eq(y[2], 4, "what does not turn is not scaled");
}

Test(ref, rope_grows_with_the_position)
{
    static const int32_t positions[] = {0, 5, 6, 7, 1000};
    struct tensor *table = graph_growing_rope_table(r.graph, "table", 1, (double[]){0}, 1.5f, 0.25f, 7, 1);
    struct tensor *x = rig_rows(&r, "x", 5, 2, (float[]){1, 2, 1, 2, 1, 2, 1, 2, 1, 2});
    float *y = rig_eval(&r, graph_rope(r.graph, "y", x, table, 2, ROPE_NORM), 5, positions);
    for (int i = 0; i < 5; i++) {
        const double factor = 1.5 * (1 + 0.25 * log(1 + floor((positions[i] + 1) / 7.0)));
        cr_expect_float_eq(y[2 * i], factor, 4 * FLT_EPSILON * factor);
        cr_expect_float_eq(y[2 * i + 1], 2 * factor, 8 * FLT_EPSILON * factor);
    }
}

// ---- Element by element

static long double sigmoid_exact(long double x)
{
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}
static long double act_exact(enum act_kind kind, long double x)
{
    const long double pi = 3.14159265358979323846264338327950288L;
    switch (kind) {
    case ACT_NONE:
        return x;
    case ACT_SILU:
        return x * sigmoid_exact(x);
    case ACT_GELU_TANH:
        return 0.5L * x * (1 + tanhl(sqrtl(2 / pi) * (x + 0.044715L * x * x * x)));
    case ACT_GELU_ERF:
        return 0.5L * x * (1 + erfl(x / sqrtl(2)));
    case ACT_RELU:
        return fmaxl(x, 0);
    case ACT_RELU2:
        return fmaxl(x, 0) * fmaxl(x, 0);
    case ACT_SIGMOID:
        return sigmoid_exact(x);
    case ACT_SOFTPLUS:
        return fmaxl(x, 0) + log1pl(expl(-fabsl(x)));
    case ACT_SWIGLU_CLAMPED:
        break;
    }
    return NAN;
}

enum { SWEEP = 801 };
static const float *sweep(void) // -20 .. 20, then numbers whose exponentials overflow
{
    float *x = rig_noises(&r, SWEEP, 0);
    for (int i = 0; i < SWEEP; i++)
        x[i] = (float)(i - 400) / 20;
    x[0] = -1e4f, x[SWEEP - 1] = 1e4f;
    return x;
}

// The bounds allow for the cancellation in 1 + tanh and 1 + erf, and for the double precision of ref.c.
static void check_act(enum act_kind kind, double at_one)
{
    const float *x = sweep();
    float *y = rig_eval(&r, graph_act(r.graph, "y", rig_rows(&r, "x", 1, SWEEP, x), kind), 1, NULL);
    for (int i = 0; i < SWEEP; i++)
        EXPECT_ROUNDED(y[i], act_exact(kind, x[i]), 0x1p-17L, "act", i);
    cr_expect_float_eq(y[420], at_one, 1e-7, "act(%g) is %.9g, tables say %.9g", (double)x[420], (double)y[420],
                       at_one);
}

static void check_glu(enum act_kind kind)
{
    const float *x = sweep(), *up = rig_noises(&r, SWEEP, 3);
    struct tensor *gate = rig_rows(&r, "gate", 1, SWEEP, x);
    float *y = rig_eval(&r, graph_glu(r.graph, "y", gate, rig_rows(&r, "up", 1, SWEEP, up), kind), 1, NULL);
    for (int i = 0; i < SWEEP; i++)
        EXPECT_ROUNDED(y[i], act_exact(kind, x[i]) * up[i], 0x1p-15L, "glu", i);
}

Test(ref, glu_takes_some_columns_of_a_wider_value)
{
    enum { ROWS = 3, N = 5, WIDE = 11, FIRST = 4 };
    const float *x = rig_noises(&r, ROWS * N, 3), *up = rig_noises(&r, ROWS * WIDE, 3);
    struct tensor *gate = rig_rows(&r, "gate", ROWS, N, x), *wide = rig_rows(&r, "up", ROWS, WIDE, up);
    float *y = rig_eval(&r, graph_glu_from(r.graph, "y", gate, wide, ACT_SILU, FIRST), ROWS, NULL);
    for (int i = 0; i < ROWS * N; i++)
        EXPECT_ROUNDED(y[i], act_exact(ACT_SILU, x[i]) * up[i / N * WIDE + FIRST + i % N], 0x1p-15L, "glu", i);
}

Test(ref, a_gate_for_each_head)
{
    enum { ROWS = 3, HEADS = 4, DIM = 5, N = HEADS * DIM };
    const float *gates = rig_noises(&r, ROWS * HEADS, 3), *x = rig_noises(&r, ROWS * N, 3);
    struct tensor *gate = rig_rows(&r, "gate", ROWS, HEADS, gates), *rows = rig_rows(&r, "x", ROWS, N, x);
    float *y = rig_eval(&r, graph_head_glu(r.graph, "y", gate, rows, ACT_SIGMOID), ROWS, NULL);
    for (int i = 0; i < ROWS * N; i++)
        EXPECT_ROUNDED(y[i], act_exact(ACT_SIGMOID, gates[i / DIM]) * x[i], 0x1p-15L, "head glu", i);
}

Test(ref, clamped_swiglu)
{
    const float *x = sweep(), *up = rig_noises(&r, SWEEP, 10);
    struct tensor *gate = rig_rows(&r, "gate", 1, SWEEP, x), *other = rig_rows(&r, "up", 1, SWEEP, up);
    float *y = rig_eval(&r, graph_glu(r.graph, "y", gate, other, ACT_SWIGLU_CLAMPED), 1, NULL);
    for (int i = 0; i < SWEEP; i++) {
        long double g = x[i] > 7 ? 7 : x[i], u = up[i] > 7 ? 7 : up[i] < -7 ? -7 : up[i];
        EXPECT_ROUNDED(y[i], g * sigmoid_exact(1.702L * g) * (u + 1), 0x1p-15L, "glu", i);
    }
}

// With its value at 1, from tables: Phi(1), the tanh form of it, 1 / (1 + 1/e).
#define ACT(KIND, at_one)                                                                                              \
    Test(ref, act_##KIND)                                                                                              \
    {                                                                                                                  \
        check_act(ACT_##KIND, at_one);                                                                                 \
    }                                                                                                                  \
    Test(ref, glu_##KIND)                                                                                              \
    {                                                                                                                  \
        check_glu(ACT_##KIND);                                                                                         \
    }
ACT(SILU, 0.73105858)
ACT(GELU_TANH, 0.84119199)
ACT(GELU_ERF, 0.84134475)
ACT(RELU, 1)
ACT(RELU2, 1)
ACT(SIGMOID, 0.73105858)
ACT(SOFTPLUS, 1.31326169)

Test(ref, act_keeps_a_nan)
{
    struct tensor *x = rig_rows(&r, "x", 1, 1, (float[]){NAN});
    float *y = rig_eval(&r, graph_act(r.graph, "y", x, ACT_RELU), 1, NULL);
    cr_expect(isnan(y[0]));
}

Test(ref, add_scale_and_softcap)
{
    enum { N = 100 };
    const float *a = rig_noises(&r, N, 50), *b = rig_noises(&r, N, 50);
    struct tensor *sum = graph_add(r.graph, "sum", rig_rows(&r, "a", 1, N, a), rig_rows(&r, "b", 1, N, b));
    float *y = rig_eval(&r, graph_softcap(r.graph, "y", graph_scale(r.graph, "scaled", sum, 0.75f), 30), 1, NULL);
    for (int i = 0; i < N; i++) {
        float s = a[i] + b[i], t = s * 0.75f; // each is rounded to float32, as between the nodes
        EXPECT_ROUNDED(y[i], 30 * tanhl((long double)t / 30), 30, "softcap", i);
    }
}

Test(ref, clamp_and_gain)
{
    enum { N = 100 };
    const float *a = rig_noises(&r, N, 50), *gains = rig_noises(&r, N, 3);
    struct tensor *within = graph_clamp(r.graph, "within", rig_rows(&r, "a", 1, N, a), 20);
    struct tensor *y = graph_gain(r.graph, "y", within, rig_weight(&r, DT_F32, N, 1, 1, gains));
    const float *out = rig_eval(&r, y, 1, NULL);
    for (int i = 0; i < N; i++)
        EXPECT_ROUNDED(out[i], (long double)(a[i] > 20 ? 20 : a[i] < -20 ? -20 : a[i]) * gains[i], 60, "gain", i);
}

Test(ref, clamp_keeps_a_nan)
{
    struct tensor *x = rig_rows(&r, "x", 1, 3, (float[]){NAN, INFINITY, -INFINITY});
    float *y = rig_eval(&r, graph_clamp(r.graph, "y", x, 2), 1, NULL);
    cr_expect(isnan(y[0]) && y[1] == 2 && y[2] == -2);
}

Test(ref, xielu)
{
    const struct xielu_params p = {1.3f, 0.8f, 0.5f, -1e-3f};
    const float x[] = {-30, -2, -1e-2f, -1e-4f, 0, 1e-3f, 3, NAN};
    float *y = rig_eval(&r, graph_xielu(r.graph, "y", rig_rows(&r, "x", 1, 8, x), p), 1, NULL);
    for (int i = 0; i < 7; i++) {
        const long double v = x[i], near = v < p.eps ? v : p.eps;
        EXPECT_ROUNDED(y[i], (v > 0 ? p.alpha_p * v * v : p.alpha_n * (expm1l(near) - v)) + p.beta * v, 0, "xielu", i);
    }
    cr_expect(isnan(y[7]));
}

Test(ref, a_limit_of_nothing_is_refused)
{
    struct tensor *x = rig_rows(&r, "x", 1, 3, (float[]){1, 2, 3});
    cr_expect_null(graph_clamp(r.graph, "y", x, 0));
    cr_expect(strstr(r.graph->fault.text, "y: limit of 0 is out of range"), "%s", r.graph->fault.text);
}

Test(ref, gains_of_other_columns_are_refused)
{
    struct tensor *x = rig_rows(&r, "x", 1, 3, (float[]){1, 2, 3});
    cr_expect_null(graph_gain(r.graph, "y", x, rig_weight(&r, DT_F32, 2, 1, 1, (float[]){1, 2})));
    cr_expect(strstr(r.graph->fault.text, "(2), wanted are 3 elements"), "%s", r.graph->fault.text);
}

// ---- Mixture of experts

// Makes the experts' weights visible as a dense row, 0 for experts that are not chosen: the matrix of each expert
// outputs its own unit vector, and the results are combined.
static float *route_dense(const float *logits, int n_expert, int rows, enum route_kind kind, int n_used, bool normalise,
                          float scale)
{
    float *units = rig_noises(&r, (int64_t)n_expert * n_expert, 0);
    for (int e = 0; e < n_expert; e++)
        units[e * n_expert + e] = 1;
    float *one = rig_noises(&r, rows, 0);
    for (int i = 0; i < rows; i++)
        one[i] = 1;
    struct tensor *l = rig_rows(&r, "logits", rows, n_expert, logits), *x = rig_rows(&r, "x", rows, 1, one);
    struct tensor *route =
        graph_route(r.graph, "route", l, NULL, (struct route_params){kind, n_used, normalise, scale, 0, 0});
    const struct weight *w = rig_weight(&r, DT_F32, 1, n_expert, n_expert, units);
    struct tensor *parts = graph_expert_matmul(r.graph, "parts", x, w, NULL, route);
    return rig_eval(&r, graph_expert_combine(r.graph, "y", parts, route), rows, NULL);
}

// Sorts all experts instead of choosing one after another.
static void check_route(enum route_kind kind, int n_used, bool normalise)
{
    enum { E = 16, ROWS = 4 };
    const float *logits = rig_noises(&r, E * ROWS, 4);
    float *y = route_dense(logits, E, ROWS, kind, n_used, normalise, 2.5f);
    for (int row = 0; row < ROWS; row++) {
        const float *l = logits + row * E;
        long double p[E], total = 0, used = 0;
        int rank[E] = {0};
        for (int e = 0; e < E; e++) {
            p[e] = kind == ROUTE_SOFTMAX ? expl(l[e]) : sigmoid_exact(l[e]);
            total += p[e];
            for (int o = 0; o < E; o++)
                rank[e] += l[o] > l[e];
        }
        for (int e = 0; e < E; e++) {
            p[e] /= kind == ROUTE_SOFTMAX ? total : 1;
            used += rank[e] < n_used ? p[e] : 0;
        }
        for (int e = 0; e < E; e++) {
            long double want = rank[e] < n_used ? 2.5L * p[e] / (normalise ? used : 1) : 0;
            EXPECT_ROUNDED(y[row * E + e], want, 2.5L, "expert", e);
        }
    }
}
Test(ref, route_by_softmax_of_all_experts)
{
    check_route(ROUTE_SOFTMAX, 3, false);
}
Test(ref, route_by_softmax_normalised)
{
    check_route(ROUTE_SOFTMAX, 3, true);
}
Test(ref, route_by_sigmoid)
{
    check_route(ROUTE_SIGMOID, 4, false);
}
Test(ref, route_by_sigmoid_normalised)
{
    check_route(ROUTE_SIGMOID, 4, true);
}
Test(ref, route_to_all_experts)
{
    check_route(ROUTE_SOFTMAX, 16, false);
}

Test(ref, route_prefers_the_lower_id_on_a_tie)
{
    float *y = route_dense((float[]){1, 3, 2, 3, 2, 3}, 6, 1, ROUTE_SOFTMAX, 4, true, 1);
    for (int e = 0; e < 6; e++)
        cr_expect_eq(y[e] > 0, e == 1 || e == 2 || e == 3 || e == 5, "expert %d has %g", e, (double)y[e]);
}

Test(ref, route_tells_saturated_experts_apart)
{
    float *y = route_dense((float[]){60, 50, 70, 40}, 4, 1, ROUTE_SIGMOID, 2, false, 1);
    for (int e = 0; e < 4; e++)
        cr_expect_eq(y[e], e == 0 || e == 2 ? 1 : 0, "expert %d has %g", e, (double)y[e]);
}

Test(ref, route_divides_by_no_less_than_the_smallest_normal_half)
{
    float *y = route_dense((float[]){-20, -21, -30}, 3, 1, ROUTE_SIGMOID, 2, true, 1);
    EXPECT_ROUNDED(y[0], sigmoid_exact(-20) * 0x1p14L, 1, "expert", 0);
    EXPECT_ROUNDED(y[1], sigmoid_exact(-21) * 0x1p14L, 1, "expert", 1);
}

Test(ref, route_of_huge_logits_stays_finite)
{
    float *y = route_dense((float[]){2000, -3000, 2001}, 3, 1, ROUTE_SOFTMAX, 2, false, 1);
    EXPECT_ROUNDED(y[0], sigmoid_exact(-1), 1, "expert", 0);
    EXPECT_ROUNDED(y[2], sigmoid_exact(1), 1, "expert", 2);
}

// Six experts in three groups, of which two are used; the biases are written so that the first group, with the greatest
// expert, is left out.
Test(ref, route_by_groups_and_biases)
{
    const float logits[] = {3, -9, 0, 0.5f, 1, -1}, bias[] = {0, -1, 0.2f, 0, 0, 0.4f};
    struct tensor *l = rig_rows(&r, "logits", 1, 6, logits);
    const struct weight *w = rig_weight(&r, DT_F32, 6, 1, 1, bias);
    struct route_params p = {ROUTE_SIGMOID, 3, true, 2, 3, 2};
    struct tensor *route = graph_route(r.graph, "route", l, w, p), *one = rig_rows(&r, "x", 1, 1, (float[]){1});
    float units[36] = {0};
    for (int e = 0; e < 6; e++)
        units[7 * e] = 1;
    const struct weight *u = rig_weight(&r, DT_F32, 1, 6, 6, units);
    struct tensor *parts = graph_expert_matmul(r.graph, "parts", one, u, NULL, route);
    float *y = rig_eval(&r, graph_expert_combine(r.graph, "y", parts, route), 1, NULL);
    // the scores: 0.95 and -1 | 0.7 and 0.62 | 0.73 and 0.67
    const long double sum = sigmoid_exact(0) + sigmoid_exact(1) + sigmoid_exact(-1);
    const int chosen[] = {0, 0, 1, 0, 1, 1};
    for (int e = 0; e < 6; e++)
        EXPECT_ROUNDED(y[e], chosen[e] ? 2 * sigmoid_exact(logits[e]) / sum : 0, 1, "expert", e);
}

Test(ref, route_of_nans_keeps_to_its_experts)
{
    float *y = route_dense((float[]){NAN, NAN, NAN}, 3, 1, ROUTE_SOFTMAX, 3, true, 1);
    cr_expect(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
}

// Products with an input shared by all chosen experts, then with an input for each of them, against a chain of nodes
// for each expert.
static void check_experts(enum dtype type, bool scaled)
{
    enum { E = 5, USED = 3, K = 256, INNER = 32, ROWS = 4 };
    const float *x = rig_noises(&r, ROWS * K, 1), *logits = rig_noises(&r, ROWS * E, 3);
    struct weight *up = arena_alloc(&r.arena, sizeof(*up), 64);
    *up = *rig_weight(&r, type, K, INNER, E, rig_noises(&r, (int64_t)K * INNER * E, 1));
    const struct weight *down = rig_weight(&r, DT_Q8_0, INNER, 8, E, rig_noises(&r, INNER * 8 * E, 1));
    const float *u = rig_decoded(&r, up), *d = rig_decoded(&r, down), *scale = rig_noises(&r, E, 2);
    up->scale = scaled ? scale : NULL;
    const float *b = rig_noises(&r, E * INNER, scaled ? 1 : 0);
    const struct weight *bias = scaled ? rig_weight(&r, DT_F32, INNER, E, 1, b) : NULL;
    struct tensor *route = graph_route(r.graph, "route", rig_rows(&r, "logits", ROWS, E, logits), NULL,
                                       (struct route_params){ROUTE_SIGMOID, USED, false, 1, 0, 0});
    struct tensor *inner = graph_expert_matmul(r.graph, "up", rig_rows(&r, "x", ROWS, K, x), up, bias, route);
    struct tensor *outer = graph_expert_matmul(r.graph, "down", inner, down, NULL, route);
    float *y = rig_eval(&r, graph_expert_combine(r.graph, "y", outer, route), ROWS, NULL);
    for (int row = 0; row < ROWS; row++) {
        const float *l = logits + row * E;
        long double sum[8] = {0}, terms = 0;
        for (int e = 0; e < E; e++) {
            int better = 0;
            for (int o = 0; o < E; o++)
                better += l[o] > l[e];
            if (better >= USED)
                continue;
            for (int i = 0; i < INNER; i++) {
                long double h = 0;
                for (int k = 0; k < K; k++)
                    h += (long double)x[row * K + k] * u[(e * INNER + i) * K + k];
                h = h * (scaled ? scale[e] : 1) + b[e * INNER + i];
                for (int c = 0; c < 8; c++) {
                    sum[c] += sigmoid_exact(l[e]) * h * d[(e * 8 + c) * INNER + i];
                    terms += fabsl(h * d[(e * 8 + c) * INNER + i]);
                }
            }
        }
        for (int c = 0; c < 8; c++) // between the nodes three values are rounded to float32
            cr_expect(fabsl(y[row * 8 + c] - sum[c]) <= terms * 3 * 0x1p-24L, "row %d: %g, exact is %Lg", row,
                      (double)y[row * 8 + c], sum[c]);
    }
}
// Weights before the experts, whose matrices multiply by 1, 2, 3 and so on, and a sum of what they make.
Test(ref, weights_before_experts)
{
    enum { E = 4, USED = 2, K = 3, ROWS = 2 };
    const float *x = rig_noises(&r, ROWS * K, 1), *logits = rig_noises(&r, ROWS * E, 2);
    float *w = rig_noises(&r, E * K * K, 0);
    for (int e = 0; e < E; e++)
        for (int i = 0; i < K; i++)
            w[(e * K + i) * K + i] = (float)(e + 1);
    struct tensor *route = graph_route(r.graph, "route", rig_rows(&r, "logits", ROWS, E, logits), NULL,
                                       (struct route_params){ROUTE_SIGMOID, USED, false, 1, 0, 0});
    struct tensor *in = graph_expert_weigh(r.graph, "in", rig_rows(&r, "x", ROWS, K, x), route);
    struct tensor *out = graph_expert_matmul(r.graph, "out", in, rig_weight(&r, DT_F32, K, K, E, w), NULL, route);
    float *y = rig_eval(&r, graph_expert_sum(r.graph, "y", out, route), ROWS, NULL);
    for (int row = 0; row < ROWS; row++) {
        long double factor = 0;
        for (int e = 0; e < E; e++) {
            int better = 0;
            for (int o = 0; o < E; o++)
                better += logits[row * E + o] > logits[row * E + e];
            factor += better < USED ? (e + 1) * sigmoid_exact(logits[row * E + e]) : 0;
        }
        for (int i = 0; i < K; i++)
            cr_expect(fabsl(y[row * K + i] - factor * x[row * K + i]) <= 16 * 0x1p-24L, "row %d: %g, exact is %Lg", row,
                      (double)y[row * K + i], factor * x[row * K + i]);
    }
}

Test(ref, experts_of_floats)
{
    check_experts(DT_F32, false);
}
Test(ref, experts_of_blocks)
{
    check_experts(DT_Q4_K, false);
}
Test(ref, experts_with_a_scale_and_a_bias_each)
{
    check_experts(DT_F16, true);
}
