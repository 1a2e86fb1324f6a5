// Tests the float kernels of every ISA level that this CPU runs: against a formula in double, and bit for bit against
// the scalar level. Sizes are odd, buffers end at guard pages, and outputs are surrounded by poison.
#include "tests/kernel_test.h"

#include <float.h>

static const int64_t sizes[] = {1, 3, 15, 16, 17, 31, 64, 100, 255, 1000, 4097};

// ---- levels

Test(kernels, levels_come_best_first_and_end_with_scalar)
{
    cr_assert_geq(kernels_count(), 1);
    cr_assert_eq(kernels_at(0), kernels_best());
    cr_assert_str_eq(scalar_level()->name, "scalar");
    cr_assert_null(kernels_at(kernels_count()));
    EACH_LEVEL (k) {
        struct error err;
        printf("level %s\n", k->name);
        cr_assert_eq(kernels_find(k->name, &err), k);
    }
}

Test(kernels, an_unknown_level_is_refused_with_the_list)
{
    struct error err;
    cr_assert_null(kernels_find("sse9", &err));
    cr_assert_eq(err.code, E_USAGE);
    cr_assert_not_null(strstr(err.text, "sse9"));
    cr_assert_not_null(strstr(err.text, "scalar"));
}

// ---- operations on one row

// One call of a kernel, and what it must give.
struct row_case {
    const char *what;
    int64_t n, n_out;
    const float *a, *b, *c; // inputs
    int kind;
    float arg;
};

typedef void run_fn(const struct kernels *k, const struct row_case *c, float *y);
typedef void expect_fn(const struct row_case *c, double *y);

// Runs a case on every level: the output is within the bound of the formula and has the bits of the scalar level, and
// nothing else is written.
static void check_row(const struct row_case *c, run_fn *run, expect_fn *expect, double bound)
{
    double *want = calloc((size_t)c->n_out, sizeof(double));
    struct guarded first = guarded_new((size_t)c->n_out * sizeof(float), 0);
    expect(c, want);
    run(scalar_level(), c, floats_of(first));
    EACH_LEVEL (k) {
        struct guarded y = guarded_new((size_t)c->n_out * sizeof(float), 0);
        run(k, c, floats_of(y));
        double error = nmse(floats_of(y), want, c->n_out);
        cr_assert_leq(error, bound, "%s %s, n %lld, kind %d: NMSE %g", k->name, c->what, (long long)c->n, c->kind,
                      error);
        expect_same_bits(floats_of(y), floats_of(first), c->n_out, k->name);
        guarded_check(y, c->what);
        guarded_free(y);
    }
    guarded_free(first);
    free(want);
}

static void run_norm(const struct kernels *k, const struct row_case *c, float *y)
{
    k->norm(c->kind, c->a, c->b, c->c, c->arg, c->n, y);
}

static void expect_norm(const struct row_case *c, double *y)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < c->n; i++)
        mean += (double)c->a[i] / (double)c->n;
    if (c->kind == NORM_RMS)
        mean = 0;
    for (int64_t i = 0; i < c->n; i++)
        square += ((double)c->a[i] - mean) * ((double)c->a[i] - mean) / (double)c->n;
    for (int64_t i = 0; i < c->n; i++)
        y[i] = ((double)c->a[i] - mean) / sqrt(square + (double)c->arg) * (c->b ? (double)c->b[i] : 1) +
               (c->c ? (double)c->c[i] : 0);
}

Test(kernels, norm_is_within_bound_with_and_without_gain_and_bias)
{
    struct random r = seeded("norm");
    const float magnitudes[] = {1, 1e-4f, 1e18f, 1e37f};
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (int variant = 0; variant < 16; variant++) {
            struct guarded x = random_floats(&r, sizes[s], magnitudes[variant / 4]);
            struct guarded gain = random_floats(&r, sizes[s], 1), bias = random_floats(&r, sizes[s], 1);
            if (variant / 4 == 0) // a mean far above the spread
                for (int64_t i = 0; i < sizes[s]; i++)
                    floats_of(x)[i] += 50;
            struct row_case c = {.what = "norm",
                                 .n = sizes[s],
                                 .n_out = sizes[s],
                                 .a = floats_of(x),
                                 .arg = 1e-5f,
                                 .b = variant & 1 ? floats_of(gain) : NULL,
                                 .c = variant & 2 ? floats_of(bias) : NULL};
            for (c.kind = NORM_RMS; c.kind <= NORM_LAYER; c.kind++)
                check_row(&c, run_norm, expect_norm, 1e-10);
            guarded_free(x);
            guarded_free(gain);
            guarded_free(bias);
        }
    }
}

static double act_of(int kind, double x)
{
    switch (kind) {
    case ACT_NONE:
        return x;
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2));
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_RELU2:
        return x > 0 ? x * x : 0;
    case ACT_SOFTPLUS:
        return fmax(x, 0) + log1p(exp(-fabs(x)));
    default:
        return 1 / (1 + exp(-x));
    }
}

static void run_act(const struct kernels *k, const struct row_case *c, float *y)
{
    k->act(c->kind, c->a, y, c->n);
}

static void expect_act(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        y[i] = act_of(c->kind, (double)c->a[i]);
}

static void run_glu(const struct kernels *k, const struct row_case *c, float *y)
{
    k->glu(c->kind, c->a, c->b, y, c->n);
}

static double clamped_of(double gate, double up)
{
    gate = fmin(gate, SWIGLU_LIMIT);
    return gate / (1 + exp(-SWIGLU_ALPHA * gate)) * (fmax(-SWIGLU_LIMIT, fmin(up, SWIGLU_LIMIT)) + 1);
}

static void expect_glu(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        y[i] = c->kind == ACT_SWIGLU_CLAMPED ? clamped_of((double)c->a[i], (double)c->b[i])
                                             : act_of(c->kind, (double)c->a[i]) * (double)c->b[i];
}

Test(kernels, activations_are_within_bound_at_every_size)
{
    struct random r = seeded("act");
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        struct guarded x = random_floats(&r, sizes[s], 3), up = random_floats(&r, sizes[s], 2);
        struct row_case c = {.what = "act", .n = sizes[s], .n_out = sizes[s], .a = floats_of(x), .b = floats_of(up)};
        for (c.kind = ACT_SILU; c.kind <= ACT_SOFTPLUS; c.kind++) {
            check_row(&c, run_act, expect_act, 1e-10);
            check_row(&c, run_glu, expect_glu, 1e-10);
        }
        c.kind = ACT_SWIGLU_CLAMPED;
        for (int64_t i = 0; i < c.n; i++)
            floats_of(x)[i] *= 2, floats_of(up)[i] *= 4; // some beyond the limits
        check_row(&c, run_glu, expect_glu, 1e-10);
        guarded_free(x);
        guarded_free(up);
    }
}

Test(kernels, a_clamped_gate_keeps_what_is_no_number)
{
    const float gate[] = {NAN, 1, INFINITY, -INFINITY, 100, 1, 1}, up[] = {1, NAN, 1, 1, 100, INFINITY, -INFINITY};
    EACH_LEVEL (k) {
        float y[COUNT_OF(gate)], first[COUNT_OF(gate)];
        k->glu(ACT_SWIGLU_CLAMPED, gate, up, y, COUNT_OF(gate));
        scalar_level()->glu(ACT_SWIGLU_CLAMPED, gate, up, first, COUNT_OF(gate));
        expect_same_bits(y, first, COUNT_OF(gate), k->name);
        cr_assert(isnan(y[0]) && isnan(y[1]) && isfinite(y[2]) && isfinite(y[4]) && isfinite(y[5]) && isfinite(y[6]));
    }
}

// An average over mixed values would hide errors of small ones, so each case has a narrow range, down to the tails.
Test(kernels, activations_are_within_bound_on_every_range)
{
    struct random r = seeded("act ranges");
    for (float from = -80; from < 80; from += from >= -8 && from < 8 ? 0.25f : 4) {
        enum { N = 67 };
        struct guarded x = guarded_new(N * sizeof(float), 0);
        for (int i = 0; i < N; i++)
            floats_of(x)[i] = from + 0.25f * (float)random_unit(&r);
        struct row_case c = {.what = "act range", .n = N, .n_out = N, .a = floats_of(x)};
        for (c.kind = ACT_SILU; c.kind <= ACT_SOFTPLUS; c.kind++) {
            bool cancels = c.kind == ACT_GELU_TANH && from < -4; // here the formula in double does, not the kernel
            bool vanishes = c.kind == ACT_GELU_ERF && from < -12;
            if (!cancels && !vanishes)
                check_row(&c, run_act, expect_act, 1e-10);
        }
        guarded_free(x);
    }
}

Test(kernels, activations_of_extremes_are_the_same_on_every_level)
{
    const float x[] = {0.0f,     -0.0f,     1e-45f, -1e-45f, 1e-38f,  -1e-38f, 87.0f,   -87.0f,
                       88.8f,    -88.8f,    103.9f, -103.9f, 1e10f,   -1e10f,  FLT_MAX, -FLT_MAX,
                       INFINITY, -INFINITY, NAN,    0.625f,  -0.625f, 15.0f,   -15.0f};
    EACH_LEVEL (k) {
        for (int kind = ACT_SILU; kind <= ACT_SOFTPLUS; kind++) {
            float y[COUNT_OF(x)], first[COUNT_OF(x)];
            k->act(kind, x, y, COUNT_OF(x));
            scalar_level()->act(kind, x, first, COUNT_OF(x));
            expect_same_bits(y, first, COUNT_OF(x), k->name);
            cr_assert(isnan(y[18]), "%s: NaN becomes %g", k->name, (double)y[18]);
            cr_assert_eq(y[12], kind == ACT_SIGMOID ? 1 : kind == ACT_RELU2 ? 1e20f : 1e10f);
            cr_assert_eq(y[13], 0.0f);
        }
    }
}

static void run_add(const struct kernels *k, const struct row_case *c, float *y)
{
    k->add(c->a, c->b, y, c->n);
}

static void expect_add(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        y[i] = (double)c->a[i] + (double)c->b[i];
}

static void run_scale(const struct kernels *k, const struct row_case *c, float *y)
{
    k->scale(c->a, c->arg, y, c->n);
}

static void expect_scale(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        y[i] = (double)c->a[i] * (double)c->arg;
}

static void run_softcap(const struct kernels *k, const struct row_case *c, float *y)
{
    k->softcap(c->a, c->arg, y, c->n);
}

static void expect_softcap(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        y[i] = (double)c->arg * tanh((double)c->a[i] / (double)c->arg);
}

static void run_clamp(const struct kernels *k, const struct row_case *c, float *y)
{
    k->clamp(c->a, c->arg, y, c->n);
}

static void expect_clamp(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        y[i] = fmax(-(double)c->arg, fmin((double)c->a[i], (double)c->arg));
}

static const struct xielu_params xielu = {1.3f, 0.8f, 0.5f, -1e-6f};

static void run_xielu(const struct kernels *k, const struct row_case *c, float *y)
{
    k->xielu(&xielu, c->a, y, c->n);
}

static void expect_xielu(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double x = (double)c->a[i];
        const double curve =
            x > 0 ? (double)xielu.alpha_p * x * x : (double)xielu.alpha_n * (expm1(fmin(x, (double)xielu.eps)) - x);
        y[i] = curve + (double)xielu.beta * x;
    }
}

static void run_combine(const struct kernels *k, const struct row_case *c, float *y)
{
    k->combine(c->a, c->b, c->kind, c->n, y);
}

static void expect_combine(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        for (int j = 0; j < c->kind; j++)
            y[i] += (double)c->b[j] * (double)c->a[j * c->n + i];
}

static void run_plain_sum(const struct kernels *k, const struct row_case *c, float *y)
{
    k->combine(c->a, NULL, c->kind, c->n, y);
}

static void expect_plain_sum(const struct row_case *c, double *y)
{
    for (int64_t i = 0; i < c->n; i++)
        for (int j = 0; j < c->kind; j++)
            y[i] += (double)c->a[j * c->n + i];
}

Test(kernels, sums_scales_and_caps_are_within_bound)
{
    struct random r = seeded("elements");
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (float magnitude = 1e-3f; magnitude < 1e4f; magnitude *= 30) {
            int64_t n = sizes[s];
            struct guarded a = random_floats(&r, 8 * n, magnitude), b = random_floats(&r, MAX(n, 8), magnitude);
            struct row_case c = {
                .what = "elements", .n = n, .n_out = n, .a = floats_of(a), .b = floats_of(b), .arg = 30};
            check_row(&c, run_add, expect_add, 1e-10);
            check_row(&c, run_scale, expect_scale, 1e-10);
            check_row(&c, run_softcap, expect_softcap, 1e-10);
            check_row(&c, run_clamp, expect_clamp, 0);
            check_row(&c, run_xielu, expect_xielu, 1e-12);
            for (c.kind = 1; c.kind <= 8; c.kind += 7)
                check_row(&c, run_combine, expect_combine, 1e-10);
            c.kind = 3;
            check_row(&c, run_plain_sum, expect_plain_sum, 1e-10);
            guarded_free(a);
            guarded_free(b);
        }
    }
}

// Two terms make fma(w1, x1, w0 x0): on random bits, with subnormals, overflow and NaN, it must be the library's.
Test(kernels, every_level_rounds_a_product_and_sum_once)
{
    struct random r = seeded("fma");
    for (int round = 0; round < 200000; round++) {
        enum { N = 19 };
        float x[2 * N], w[2], y[N], want[N];
        uint32_t spread = round % 2 ? 0xffffffff : 0x83ffffff; // all exponents, or near 1, where terms meet
        for (int i = 0; i < 2 * N; i++)
            x[i] = float_of_bits(((uint32_t)random_u64(&r) & spread) | (round % 2 ? 0 : 0x3c000000));
        for (int j = 0; j < 2; j++)
            w[j] = float_of_bits(((uint32_t)random_u64(&r) & spread) | (round % 2 ? 0 : 0x3c000000));
        if (round % 3 == 0) // an exact tie, or one bit away from it
            w[1] = 1, w[0] = 0x1p-24f;
        for (int i = 0; i < N; i++)
            want[i] = fmaf(w[1], x[N + i], fmaf(w[0], x[i], 0));
        EACH_LEVEL (k) {
            k->combine(x, w, 2, N, y);
            expect_same_bits(y, want, N, k->name);
        }
    }
}

Test(kernels, outputs_may_lie_on_the_inputs)
{
    struct random r = seeded("in place");
    enum { N = 333 };
    EACH_LEVEL (k) {
        float x[N], up[N], y[N], in_place[N], table[64];
        for (int i = 0; i < N; i++) {
            x[i] = random_normal(&r);
            up[i] = random_normal(&r);
        }
        for (int i = 0; i < 64; i++)
            table[i] = random_normal(&r);
        for (int op = 0; op < 7; op++) {
            for (int place = 0; place < 2; place++) {
                float *out = place ? in_place : y;
                const float *in = place ? in_place : x;
                memcpy(in_place, x, sizeof(x));
                if (op == 0)
                    k->norm(NORM_LAYER, in, up, NULL, 1e-5f, N, out);
                else if (op == 1)
                    k->act(ACT_SILU, in, out, N);
                else if (op == 2)
                    k->glu(ACT_GELU_TANH, in, up, out, N);
                else if (op == 3)
                    k->add(in, up, out, N);
                else if (op == 4)
                    k->softcap(in, 2, out, N);
                else
                    k->rope(in, table, 32, 111, 3, op == 5 ? ROPE_NORM : ROPE_NEOX, out);
                if (place)
                    expect_same_bits(in_place, y, N, k->name);
            }
        }
    }
}

// ---- rope

static void run_rope(const struct kernels *k, const struct row_case *c, float *y)
{
    int64_t n_pairs = (int64_t)c->arg, head_dim = c->n_out / 3;
    k->rope(c->a, c->b, n_pairs, head_dim, 3, c->kind, y);
}

static void expect_rope(const struct row_case *c, double *y)
{
    int64_t n_pairs = (int64_t)c->arg, head_dim = c->n_out / 3;
    for (int64_t i = 0; i < c->n_out; i++)
        y[i] = (double)c->a[i];
    for (int64_t at = 0; at < c->n_out; at += head_dim) {
        for (int64_t i = 0; i < n_pairs; i++) {
            int64_t first = at + (c->kind == ROPE_NEOX ? i : 2 * i),
                    second = first + (c->kind == ROPE_NEOX ? n_pairs : 1);
            double cosine = (double)c->b[i], sine = (double)c->b[n_pairs + i];
            double a = (double)c->a[first], b = (double)c->a[second];
            y[first] = a * cosine - b * sine;
            y[second] = a * sine + b * cosine;
        }
    }
}

Test(kernels, rope_turns_the_leading_pairs_of_each_head)
{
    struct random r = seeded("rope");
    const int64_t heads[][2] = {{1, 2},   {1, 3},   {4, 8},   {16, 64},  {20, 80},
                                {32, 64}, {33, 66}, {48, 96}, {64, 128}, {128, 256}};
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct guarded x = random_floats(&r, 3 * heads[i][1], 2), table = guarded_new((size_t)heads[i][0] * 8, 0);
        for (int64_t j = 0; j < heads[i][0]; j++) {
            double angle = random_unit(&r) * 100;
            floats_of(table)[j] = (float)cos(angle);
            floats_of(table)[heads[i][0] + j] = (float)sin(angle);
        }
        struct row_case c = {.what = "rope",
                             .n = 3 * heads[i][1],
                             .n_out = 3 * heads[i][1],
                             .a = floats_of(x),
                             .b = floats_of(table),
                             .arg = (float)heads[i][0]};
        for (c.kind = ROPE_NORM; c.kind <= ROPE_NEOX; c.kind++)
            check_row(&c, run_rope, expect_rope, 1e-10);
        guarded_free(x);
        guarded_free(table);
    }
}

// ---- conversions

Test(kernels, decode_equals_gguf_bit_for_bit)
{
    struct random r = seeded("decode");
    for (int t = 0; t < DT_COUNT; t++) {
        EACH_LEVEL (k) {
            cr_assert_eq(!k->decode[t], !dtype_decode[t], "%s %s", k->name, dtype_info[t].name);
            if (!dtype_decode[t])
                continue;
            for (int64_t blocks = 1; blocks <= 23; blocks += 1 + blocks / 5) {
                int64_t n = blocks * dtype_info[t].block;
                struct guarded in = guarded_new(dtype_row_bytes((enum dtype)t, n), 0),
                               out = guarded_new((size_t)n * 4, 0);
                float *want = malloc((size_t)n * 4);
                for (size_t i = 0; i < in.size; i++)
                    in.data[i] = (uint8_t)random_u64(&r);
                k->decode[t](in.data, floats_of(out), n);
                dtype_decode[t](in.data, want, n);
                int64_t at = first_difference(floats_of(out), want, n);
                cr_assert_lt(at, 0, "%s %s, element %lld", k->name, dtype_info[t].name, (long long)at);
                guarded_check(out, "decode");
                free(want);
                guarded_free(in);
                guarded_free(out);
            }
        }
    }
}

Test(kernels, decode_of_every_16_bit_float_equals_gguf)
{
    static uint16_t all[65536];
    static float out[65536], want[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    EACH_LEVEL (k) {
        for (int t = DT_F16; t <= DT_BF16; t++) {
            k->decode[t](all, out, 65536);
            dtype_decode[t](all, want, 65536);
            cr_assert_eq(memcmp(out, want, sizeof(out)), 0, "%s %s", k->name, dtype_info[t].name);
        }
    }
}

// Random bits, and for the halves all values that lie at, and a bit beside, the middle of two; normal numbers; zeros of one
// sign and of both, and small integers, among which the largest magnitude is met again with another sign.
static void fill_for_encode(struct random *r, float *x, int64_t n, int round)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)random_u64(r);
        if (round % 4 == 1)
            bits = (bits & ~0x1fffu) + 0x1000 + (uint32_t)random_below(r, 3) - 1;
        else if (round % 4 == 2)
            bits = (bits & 0x80ffffff) | 0x37000000; // around the smallest halves
        x[i] = round % 4 == 3 ? random_normal(r) : float_of_bits(bits);
        if (round % 8 == 7)
            x[i] = copysignf((float)random_below(r, 1 + round / 8 % 5), round % 16 == 7 ? random_normal(r) : 1);
    }
}

Test(kernels, encode_equals_gguf_bit_for_bit)
{
    struct random r = seeded("encode");
    const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        for (int round = 0; round < 400; round++) {
            int64_t block = dtype_info[types[t]].block,
                    n = block == 1 ? 1 + random_below(&r, 300) : block * (1 + round % 5);
            struct guarded x = guarded_new((size_t)n * 4, 0);
            fill_for_encode(&r, floats_of(x), n, round);
            size_t size = dtype_row_bytes(types[t], n);
            uint8_t *want = malloc(size);
            dtype_encode[types[t]](floats_of(x), want, n);
            EACH_LEVEL (k) {
                struct guarded out = guarded_new(size, 0);
                k->encode[types[t]](floats_of(x), out.data, n);
                cr_assert_eq(memcmp(out.data, want, size), 0, "%s %s", k->name, dtype_info[types[t]].name);
                guarded_check(out, "encode");
                guarded_free(out);
            }
            free(want);
            guarded_free(x);
        }
    }
}

// ---- matmul with float activations

struct product {
    enum dtype type;
    int n_rows, n_x;
    int64_t k;
    size_t slack;         // bytes behind the weights: an odd number puts them at odd addresses
    struct guarded w, *x; // [n_x]
    double *want;         // [n_x][n_rows]
    double *power;        // [n_x] the sum of squares of a column's products: the expected sum of squares of its outputs
};

static struct guarded random_weights(struct random *r, const struct product *p)
{
    struct guarded w = guarded_new((size_t)p->n_rows * dtype_row_bytes(p->type, p->k), p->slack);
    float *row = malloc((size_t)p->k * sizeof(float));
    for (int i = 0; i < p->n_rows; i++) {
        uint8_t *to = w.data + (size_t)i * dtype_row_bytes(p->type, p->k);
        for (int64_t j = 0; j < p->k; j++)
            row[j] = random_normal(r);
        if (dtype_encode[p->type])
            dtype_encode[p->type](row, to, p->k);
        else
            memset(to, 0x30 + i % 8, dtype_row_bytes(p->type, p->k)); // any bytes whose scales are finite
    }
    free(row);
    return w;
}

static struct product product_new(struct random *r, struct product p)
{
    p.w = random_weights(r, &p);
    p.x = calloc((size_t)p.n_x, sizeof(*p.x));
    p.want = calloc((size_t)(p.n_x * p.n_rows), sizeof(double));
    p.power = calloc((size_t)p.n_x, sizeof(double));
    float *row = malloc((size_t)p.k * sizeof(float));
    for (int j = 0; j < p.n_x; j++)
        p.x[j] = random_floats(r, p.k, j % 5 == 4 ? 1e15f : 1);
    for (int i = 0; i < p.n_rows; i++) {
        dtype_decode[p.type](p.w.data + (size_t)i * dtype_row_bytes(p.type, p.k), row, p.k);
        for (int j = 0; j < p.n_x; j++)
            for (int64_t l = 0; l < p.k; l++) {
                double product = (double)row[l] * (double)floats_of(p.x[j])[l];
                p.want[j * p.n_rows + i] += product;
                p.power[j] += product * product;
            }
    }
    free(row);
    return p;
}

static void product_free(struct product p)
{
    for (int j = 0; j < p.n_x; j++)
        guarded_free(p.x[j]);
    guarded_free(p.w);
    free(p.x);
    free(p.want);
    free(p.power);
}

// The bits do not depend on how weights are read.
static void product_read_otherwise(const struct kernels *k, struct matmul_args a, struct guarded y)
{
    void *before = malloc(y.size);
    memcpy(before, y.data, y.size);
    for (int i = 1; i < READING_COUNT; i++) {
        memset(y.data, POISON, y.size);
        a.reading = (enum reading)((a.reading + 1) % READING_COUNT);
        k->matmul_f32[a.type](&a);
        cr_assert_arr_eq(before, y.data, y.size, "%s %s: reading %d changes bits", k->name, dtype_info[a.type].name,
                         (int)a.reading);
    }
    free(before);
}

// Columns [first, first + n) of y, [n][n_rows].
static void product_run(const struct kernels *k, const struct product *p, int first, int n, struct guarded y)
{
    const void **x = malloc((size_t)n * sizeof(*x));
    float **out = malloc((size_t)n * sizeof(*out));
    void *scratch = scratch_new();
    for (int j = 0; j < n; j++) {
        x[j] = p->x[first + j].data;
        out[j] = floats_of(y) + j * p->n_rows;
    }
    struct matmul_args a = {.w = p->w.data,
                            .w_stride = dtype_row_bytes(p->type, p->k),
                            .n_rows = p->n_rows,
                            .k = p->k,
                            .type = p->type,
                            .x = x,
                            .n_x = n,
                            .y = out,
                            .scratch = scratch,
                            .reading = k->reading};
    k->matmul_f32[p->type](&a);
    product_read_otherwise(k, a, y);
    free(scratch);
    free(out);
    free(x);
}

static void check_product(const struct kernels *k, const struct product *p, const float *first, const char *what)
{
    size_t size = (size_t)(p->n_x * p->n_rows) * sizeof(float);
    struct guarded y = guarded_new(size, 0), one = guarded_new((size_t)p->n_rows * sizeof(float), 0);
    product_run(k, p, 0, p->n_x, y);
    guarded_check(y, what);
    expect_same_bits(floats_of(y), first, p->n_x * p->n_rows, what);
    for (int j = 0; j < p->n_x; j++) {
        double error = square_error(floats_of(y) + j * p->n_rows, p->want + j * p->n_rows, p->n_rows) / p->power[j];
        cr_assert_leq(error, 1e-10, "%s: column %d: NMSE %g", what, j, error);
    }
    for (int j = 0; j < p->n_x; j += 1 + p->n_x / 3) {
        product_run(k, p, j, 1, one);
        expect_same_bits(floats_of(one), floats_of(y) + j * p->n_rows, p->n_rows, what);
        guarded_check(one, what);
    }
    guarded_free(one);
    guarded_free(y);
}

static void check_shape(struct random *r, enum dtype type, int n_rows, int64_t k, int n_x)
{
    struct product p = product_new(
        r, (struct product){.type = type, .n_rows = n_rows, .n_x = n_x, .k = k, .slack = (size_t)random_below(r, 4)});
    struct guarded first = guarded_new((size_t)(n_x * n_rows) * sizeof(float), 0);
    product_run(scalar_level(), &p, 0, n_x, first);
    EACH_LEVEL (l) {
        char what[96];
        snprintf(what, sizeof(what), "%s %s, %d rows of %lld, %d columns", l->name, dtype_info[type].name, n_rows,
                 (long long)k, n_x);
        check_product(l, &p, floats_of(first), what);
    }
    guarded_free(first);
    product_free(p);
}

Test(kernels, matmul_f32_of_plain_floats_is_within_bound_and_alike_for_one_column_and_many)
{
    struct random r = seeded("matmul");
    const int64_t ks[] = {1, 15, 16, 17, 40, 511, 512, 513, 1040, 1501};
    const int rows[] = {1, 2, 3, 4, 5, 31, 33, 70}, columns[] = {1, 2, 3, 4, 5, 6, 7, 12, 13, 25, 96, 101};
    for (int t = DT_F32; t <= DT_BF16; t++) {
        for (size_t i = 0; i < COUNT_OF(ks); i++)
            for (size_t j = 0; j < COUNT_OF(columns); j++)
                check_shape(&r, (enum dtype)t, rows[(i + j) % COUNT_OF(rows)], ks[i], columns[j]);
        check_shape(&r, (enum dtype)t, 70, 2075, 101); // more than one piece of k, of rows and of columns
        check_shape(&r, (enum dtype)t, 30, 2075, 150); // the same where 32 bits are copied
    }
}

Test(kernels, matmul_f32_serves_every_type_that_decodes)
{
    struct random r = seeded("matmul types");
    for (int t = 0; t < DT_COUNT; t++) {
        EACH_LEVEL (l)
            cr_assert_eq(!l->matmul_f32[t], !dtype_decode[t], "%s %s", l->name, dtype_info[t].name);
        if (!dtype_decode[t] || (enum dtype)t == DT_F64)
            continue;
        check_shape(&r, (enum dtype)t, 5, 256, 1);
        check_shape(&r, (enum dtype)t, 37, 768, 7);
        check_shape(&r, (enum dtype)t, 27, 256, 101); // decoded, then copied
    }
    check_shape(&r, DT_Q4_K, 70, 1280, 53);
}
