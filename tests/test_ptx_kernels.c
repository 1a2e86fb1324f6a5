// Runs the textbook kernels of bench/ptx on the interpreter and compares them with plain C in double precision.
//
// Device buffers have exactly the size of their contents, and outputs start as not written, so the interpreter detects
// every access beyond them, and reading back detects every element that no thread has stored.
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gguf/dtype.h"
#include "bench/ptx/emitters.h"
#include "tests/ptx/interpreter.h"

enum { SEED = 20261121, BUFFER = 1 << 17, MAX_ARGS = 4, Q4_K_BYTES = 144 };

static uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static float *random_floats(size_t n, uint64_t *state)
{
    float *x = malloc(n * sizeof(*x));
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)(random_u64(state) >> 11) * 0x1p-52 - 1);
    return x;
}

// ---- running: the last argument is the output

struct arg {
    const void *data;
    size_t size;
};

static float *run_kernel(const char *text, size_t len, const struct ptx_launch *launch, const struct arg *args,
                         int n_args, size_t out_size)
{
    struct error err;
    struct simt *s = simt_new();
    uint64_t address[MAX_ARGS + 1];
    char entry[64];
    cr_assert_not_null(s);
    cr_assert_eq(simt_load(s, (struct str){text, len}, &err), 0, "%s: %s", launch->entry, err.text);
    for (int i = 0; i < n_args; i++) {
        address[i] = simt_alloc(s, args[i].size);
        cr_assert_eq(simt_put(s, address[i], args[i].data, args[i].size, &err), 0, "%s", err.text);
    }
    address[n_args] = simt_alloc(s, out_size);
    snprintf(entry, sizeof(entry), "%s_7", launch->entry);
    const struct simt_kernel *kernel = simt_find(s, entry);
    cr_assert_not_null(kernel, "%s", entry);
    const uint32_t *g = launch->grid, *b = launch->block;
    cr_assert_eq(simt_launch(s, kernel, (struct simt_dim){g[0], g[1], g[2]}, (struct simt_dim){b[0], b[1], b[2]}, 0,
                             address, (size_t)(n_args + 1) * sizeof(address[0]), &err),
                 0, "%s", err.text);
    float *out = malloc(out_size);
    cr_assert_not_null(out);
    cr_assert_eq(simt_get(s, address[n_args], out, out_size, &err), 0, "%s: %s", entry, err.text);
    simt_free(s);
    return out;
}

// Differences must be less than `bound` times the largest expected value.
static void expect_near(const char *what, const float *got, const double *want, size_t n, double bound)
{
    double largest = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        cr_assert(isfinite(got[i]), "%s: element %zu is %g", what, i, (double)got[i]);
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    cr_assert_leq(worst, bound * largest, "%s: %g of %g", what, worst, largest);
}

// ---- products

typedef int gemm_emitter(struct ptx *, const struct ptx_gemm *, struct ptx_launch *, struct error *);

static float *run_gemm(gemm_emitter *emit, const struct ptx_gemm *g, struct arg a, struct arg b)
{
    static char text[BUFFER];
    struct ptx p;
    struct ptx_launch launch;
    struct error err;
    ptx_start(&p, text, sizeof(text));
    cr_assert_eq(emit(&p, g, &launch, &err), 0, "%s", err.text);
    return run_kernel(text, p.size, &launch, (struct arg[]){a, b}, 2, sizeof(float) * g->m * g->n);
}

// b is (k, n), or (n, k) if `by_columns`.
static void expect_product(const char *what, const struct ptx_gemm *g, const float *a, const float *b, bool by_columns,
                           const float *got)
{
    double *want = calloc((size_t)g->m * g->n, sizeof(*want));
    cr_assert_not_null(want);
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++)
            for (size_t k = 0; k < g->k; k++)
                want[i * g->n + j] += (double)a[i * g->k + k] * b[by_columns ? j * g->k + k : k * g->n + j];
    expect_near(what, got, want, (size_t)g->m * g->n, 4e-6);
    free(want);
}

static void check_gemm(const char *what, gemm_emitter *emit, struct ptx_gemm g)
{
    uint64_t state = SEED;
    size_t na = (size_t)g.m * g.k, nb = (size_t)g.k * g.n;
    float *a = random_floats(na, &state), *b = random_floats(nb, &state);
    g.node = 7;
    float *got = run_gemm(emit, &g, (struct arg){a, na * sizeof(*a)}, (struct arg){b, nb * sizeof(*b)});
    expect_product(what, &g, a, b, false, got);
    free(a);
    free(b);
    free(got);
}

// Rounds the values of x to 16 bits, in place.
static uint16_t *halves(float *x, size_t n, bool bf16)
{
    uint16_t *h = malloc(n * sizeof(*h));
    cr_assert_not_null(h);
    for (size_t i = 0; i < n; i++) {
        if (bf16) {
            uint32_t bits = ptx_float_bits(x[i]) & 0xffff0000;
            memcpy(&x[i], &bits, sizeof(bits));
            h[i] = (uint16_t)(bits >> 16);
        } else {
            h[i] = f32_to_f16(x[i]);
            x[i] = f16_to_f32(h[i]);
        }
    }
    return h;
}

static void check_gemm_halves(const char *what, gemm_emitter *emit, struct ptx_gemm g)
{
    uint64_t state = SEED;
    size_t na = (size_t)g.m * g.k, nb = (size_t)g.k * g.n;
    float *a = random_floats(na, &state), *b = random_floats(nb, &state);
    uint16_t *ha = halves(a, na, g.bf16), *hb = halves(b, nb, g.bf16);
    g.node = 7;
    float *got = run_gemm(emit, &g, (struct arg){ha, na * sizeof(*ha)}, (struct arg){hb, nb * sizeof(*hb)});
    expect_product(what, &g, a, b, false, got);
    free(a);
    free(b);
    free(ha);
    free(hb);
    free(got);
}

Test(ptx_kernels, gemm_naive_is_the_product)
{
    check_gemm("64", ptx_emit_gemm_naive, (struct ptx_gemm){.m = 64, .n = 64, .k = 64});
    check_gemm("cut", ptx_emit_gemm_naive, (struct ptx_gemm){.m = 19, .n = 5, .k = 7});
    check_gemm("one", ptx_emit_gemm_naive, (struct ptx_gemm){.m = 1, .n = 1, .k = 1});
}

Test(ptx_kernels, gemm_tiled_is_the_product)
{
    check_gemm("128, 32", ptx_emit_gemm_tiled, (struct ptx_gemm){.m = 128, .n = 128, .k = 128, .tile = 32});
    check_gemm("64, 16", ptx_emit_gemm_tiled, (struct ptx_gemm){.m = 64, .n = 64, .k = 64, .tile = 16});
    for (uint32_t tile = 8; tile <= 32; tile *= 2)
        check_gemm("cut", ptx_emit_gemm_tiled, (struct ptx_gemm){.m = 37, .n = 41, .k = 45, .tile = tile});
}

Test(ptx_kernels, gemm_mma_is_the_product)
{
    check_gemm_halves("64", ptx_emit_gemm_mma, (struct ptx_gemm){.m = 64, .n = 64, .k = 64});
    check_gemm_halves("cut", ptx_emit_gemm_mma, (struct ptx_gemm){.m = 37, .n = 72, .k = 88});
    check_gemm_halves("bf16", ptx_emit_gemm_mma, (struct ptx_gemm){.m = 70, .n = 136, .k = 8, .bf16 = true});
}

Test(ptx_kernels, gemm_wmma_is_the_product)
{
    check_gemm_halves("64", ptx_emit_gemm_wmma, (struct ptx_gemm){.m = 64, .n = 64, .k = 64});
    check_gemm_halves("cut", ptx_emit_gemm_wmma, (struct ptx_gemm){.m = 37, .n = 71, .k = 83});
    check_gemm_halves("one", ptx_emit_gemm_wmma, (struct ptx_gemm){.m = 1, .n = 1, .k = 1});
}

static void check_q4_k(const char *what, struct ptx_gemm g)
{
    uint64_t state = SEED;
    size_t na = (size_t)g.m * g.k, nb = (size_t)g.k * g.n, blocks = nb / 256;
    float *a = random_floats(na, &state), *w = malloc(nb * sizeof(*w));
    uint8_t *q = malloc(blocks * Q4_K_BYTES);
    cr_assert(w && q);
    for (size_t i = 0; i < blocks; i++) {
        for (size_t j = 0; j < Q4_K_BYTES; j++)
            q[i * Q4_K_BYTES + j] = (uint8_t)random_u64(&state);
        const uint16_t scales[2] = {f32_to_f16(0.01f + 0.001f * (float)(i % 7)), f32_to_f16(0.03f)};
        memcpy(q + i * Q4_K_BYTES, scales, sizeof(scales));
    }
    dtype_decode[DT_Q4_K](q, w, (int64_t)nb);
    g.node = 7;
    float *got =
        run_gemm(ptx_emit_gemm_q4_k, &g, (struct arg){a, na * sizeof(*a)}, (struct arg){q, blocks * Q4_K_BYTES});
    expect_product(what, &g, a, w, true, got);
    free(a);
    free(w);
    free(q);
    free(got);
}

Test(ptx_kernels, gemm_q4_k_reads_blocks_as_they_lie_in_a_file)
{
    check_q4_k("32", (struct ptx_gemm){.m = 32, .n = 32, .k = 256});
    check_q4_k("cut", (struct ptx_gemm){.m = 37, .n = 71, .k = 512});
    check_q4_k("one", (struct ptx_gemm){.m = 1, .n = 1, .k = 256});
}

// ---- rows

static void check_rows(bool layernorm, uint32_t rows, uint32_t width)
{
    static char text[BUFFER];
    uint64_t state = SEED;
    size_t n = (size_t)rows * width;
    const struct ptx_rows r = {.node = 7, .rows = rows, .width = width, .eps = layernorm ? 1e-5f : 0};
    float *x = random_floats(n, &state), *w = random_floats(width, &state), *b = random_floats(width, &state);
    double *want = malloc(n * sizeof(*want));
    cr_assert_not_null(want);
    struct ptx p;
    struct ptx_launch launch;
    struct error err;
    ptx_start(&p, text, sizeof(text));
    cr_assert_eq((layernorm ? ptx_emit_layernorm : ptx_emit_softmax)(&p, &r, &launch, &err), 0, "%s", err.text);
    for (uint32_t i = 0; i < rows; i++) {
        const float *row = x + (size_t)i * width;
        double mean = 0, square = 0, sum = 0;
        for (uint32_t j = 0; j < width; j++) {
            mean += row[j] / (double)width;
            sum += exp(row[j]);
        }
        for (uint32_t j = 0; j < width; j++)
            square += (row[j] - mean) * (row[j] - mean) / width;
        for (uint32_t j = 0; j < width; j++)
            want[(size_t)i * width + j] =
                layernorm ? (row[j] - mean) / sqrt(square + r.eps) * w[j] + b[j] : exp(row[j]) / sum;
    }
    const size_t bytes = width * sizeof(*w);
    const struct arg args[] = {{x, n * sizeof(*x)}, {w, bytes}, {b, bytes}};
    float *got = run_kernel(text, p.size, &launch, args, layernorm ? 3 : 1, n * sizeof(*x));
    expect_near(layernorm ? "layernorm" : "softmax", got, want, n, 4e-6);
    free(x);
    free(w);
    free(b);
    free(want);
    free(got);
}

Test(ptx_kernels, softmax_and_layernorm_of_rows)
{
    static const uint32_t widths[] = {1, 4, 20, 33, 1001, 1024, 4100, 8191, 32764, 32768};
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        check_rows(false, 2, widths[i]);
        check_rows(true, 2, widths[i]);
    }
}

// ---- attention

static void attend(const struct ptx_attention *a, const float *q, const float *k, const float *v, double *out)
{
    double *s = malloc(a->positions * sizeof(*s));
    cr_assert_not_null(s);
    for (uint32_t i = 0; i < a->positions; i++) {
        uint32_t keys = a->causal ? i + 1 : a->positions;
        double largest = -INFINITY, sum = 0;
        for (uint32_t j = 0; j < keys; j++) {
            s[j] = 0;
            for (uint32_t d = 0; d < a->dim; d++)
                s[j] += (double)q[i * a->dim + d] * k[j * a->dim + d] * a->scale;
            largest = fmax(largest, s[j]);
        }
        for (uint32_t j = 0; j < keys; j++)
            sum += s[j] = exp(s[j] - largest);
        for (uint32_t d = 0; d < a->dim; d++) {
            out[i * a->dim + d] = 0;
            for (uint32_t j = 0; j < keys; j++)
                out[i * a->dim + d] += s[j] / sum * v[j * a->dim + d];
        }
    }
    free(s);
}

static void check_attention(const char *what, struct ptx_attention a)
{
    static char text[BUFFER];
    uint64_t state = SEED;
    size_t head = (size_t)a.positions * a.dim, n = a.heads * head;
    float *q = random_floats(n, &state), *k = random_floats(n, &state), *v = random_floats(n, &state);
    double *want = malloc(n * sizeof(*want));
    cr_assert_not_null(want);
    struct ptx p;
    struct ptx_launch launch;
    struct error err;
    a.node = 7;
    ptx_start(&p, text, sizeof(text));
    cr_assert_eq(ptx_emit_attention(&p, &a, &launch, &err), 0, "%s", err.text);
    for (size_t h = 0; h < a.heads; h++)
        attend(&a, q + h * head, k + h * head, v + h * head, want + h * head);
    const size_t bytes = n * sizeof(*q);
    float *got = run_kernel(text, p.size, &launch, (struct arg[]){{q, bytes}, {k, bytes}, {v, bytes}}, 3, bytes);
    // A score is a sum of dim products up to scale: its error is that of a weight's logarithm.
    expect_near(what, got, want, n, 0x1p-24 * (64 + (double)a.scale * a.dim));
    free(q);
    free(k);
    free(v);
    free(want);
    free(got);
}

Test(ptx_kernels, attention_is_that_of_all_keys_at_once)
{
    check_attention("64 of 64", (struct ptx_attention){.heads = 1, .positions = 64, .dim = 64, .scale = 0.125f});
    check_attention("cut", (struct ptx_attention){.heads = 2, .positions = 45, .dim = 80, .scale = 0.5f});
    check_attention("causal",
                    (struct ptx_attention){.heads = 2, .positions = 70, .dim = 36, .scale = 2, .causal = true});
    check_attention("one", (struct ptx_attention){.heads = 2, .positions = 1, .dim = 32, .scale = 1, .causal = true});
    check_attention("128", (struct ptx_attention){.heads = 1, .positions = 33, .dim = 128, .scale = 3});
}
