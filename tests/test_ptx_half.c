// Runs the GPU products with activations of 16 bits on the interpreter: their errors beside sums in double, and the law
// that a row has the same bits in every class of rows and beside any other rows.
//
// The interpreter adds the products of one matrix instruction in double. Cards do that in their own way; that the sums of
// a chain are continued from instruction to instruction, and the chains added in their order, is the same there.
#include "tests/ptx_products.h"

#include <math.h>
#include <unistd.h>

struct halve_params {
    uint64_t x, y;
    uint32_t n_rows;
};

struct matmul_params {
    uint64_t x, w, y, bias, residual, ids, scale;
    uint32_t n_rows;
};

// Rounds n rows, each of `parts` rows of k floats.
static uint64_t halve(struct gpu *g, enum dtype t, uint64_t x, uint32_t n, uint32_t parts, uint32_t k)
{
    struct ptx p;
    struct ptx_launch l;
    const uint32_t bytes = ptx_half_row_bytes(t, k);
    const struct ptx_halve of = {7, t, k, parts, 4 * k * parts, bytes * parts};
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_halve(&p, &of, &l, &g->err), 0, "%s", g->err.text);
    struct halve_params params = {x, simt_alloc(g->s, (size_t)n * parts * bytes), n};
    launch(g, &p, &l, n, &params, 20);
    return params.y;
}

// ---- rounding

static double half_value(uint16_t h, bool bf16)
{
    if (bf16) {
        uint32_t bits = (uint32_t)h << 16;
        float f;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

// The value of element i of a rounded row.
static double rounded(const uint8_t *row, enum dtype t, uint32_t k, uint32_t i)
{
    uint16_t h, l;
    float scale;
    memcpy(&h, row + 2 * i, 2);
    if (t == DT_BF16) {
        memcpy(&l, row + 2 * (k + i), 2);
        return half_value(h, true) + half_value(l, true);
    }
    memcpy(&scale, row + 2 * k, 4);
    return half_value(h, false) * (double)scale;
}

static void check_rounding(enum dtype t, float largest, double error)
{
    enum { K = 96, PARTS = 2, N = 3 };
    uint64_t state = SEED;
    struct gpu *g = gpu_open();
    float *x = random_floats(N * PARTS * K, &state);
    for (int i = 0; i < N * PARTS * K; i++)
        x[i] *= largest;
    const uint32_t bytes = ptx_half_row_bytes(t, K);
    const uint64_t y = halve(g, t, upload(g, x, N * PARTS * K * 4), N, PARTS, K);
    for (int r = 0; r < N * PARTS; r++) {
        uint8_t row[4 * K];
        double top = 0;
        const size_t used = t == DT_F16 ? 2 * K + 4 : bytes;
        cr_assert_eq(simt_get(g->s, y + (uint64_t)r * bytes, row, used, &g->err), 0, "%s", g->err.text);
        for (int i = 0; i < K; i++)
            top = fmax(top, fabs((double)x[r * K + i]));
        for (uint32_t i = 0; i < K; i++) {
            const double want = (double)x[r * K + (int)i], got = rounded(row, t, K, i);
            cr_assert(fabs(got - want) <= error * fmax(fabs(want), 0x1p-28 * top), "%s, %g: %g, not %g",
                      dtype_info[t].name, (double)largest, got, want);
        }
    }
    free(x);
    gpu_close(g);
}

Test(ptx_half, activations_are_rounded_to_16_bits)
{
    static const float largest[] = {1, 0x1p-60f, 0x1p-100f, 0x1p40f, 0x1p120f, 65504, 3e5f};
    for (size_t i = 0; i < COUNT_OF(largest); i++) {
        check_rounding(DT_F16, largest[i], 0x1p-11);
        check_rounding(DT_BF16, largest[i], 0x1p-16);
    }
}

// What is no number, or infinite, must not become a number on its way to the logits.
Test(ptx_half, what_is_no_number_stays_none)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < COUNT_OF(bad); b++)
        for (int t = 0; t < 2; t++) {
            const enum dtype type = t ? DT_BF16 : DT_F16;
            struct gpu *g = gpu_open();
            float x[32] = {1, 2, bad[b]};
            uint8_t row[128];
            const uint64_t y = halve(g, type, upload(g, x, sizeof x), 1, 1, 32);
            cr_assert_eq(simt_get(g->s, y, row, t ? 128 : 68, &g->err), 0, "%s", g->err.text);
            cr_expect(!isfinite(rounded(row, type, 32, 2)), "%s: %g", dtype_info[type].name, rounded(row, type, 32, 2));
            gpu_close(g);
        }
}

// ---- products

struct product {
    enum dtype type;
    uint32_t n_in, n_out, n_rows;
    bool bias, residual;
};

// Computes a product in a class of rows, of the rows of x from `first` on: n of them.
static float *multiply(const struct product *c, const void *w, const float *x, uint32_t first, uint32_t n,
                       uint32_t class)
{
    struct gpu *g = gpu_open();
    struct ptx p;
    struct ptx_launch l;
    uint64_t state = SEED + 1;
    float *bias = random_floats(c->n_out, &state), *residual = random_floats((size_t)c->n_rows * c->n_out, &state);
    const uint32_t bytes = ptx_half_row_bytes(c->type, c->n_in);
    const struct ptx_matmul m = {.node = 7,
                                 .type = c->type,
                                 .n_in = c->n_in,
                                 .n_out = c->n_out,
                                 .rows = class,
                                 .target = 80,
                                 .halves = true,
                                 .bias = c->bias,
                                 .residual = c->residual,
                                 .x_stride = bytes,
                                 .y_stride = 4 * c->n_out,
                                 .residual_stride = 4 * c->n_out};
    struct matmul_params params = {.n_rows = n};
    params.x = halve(g, c->type, upload(g, x + (size_t)first * c->n_in, (size_t)n * c->n_in * 4), n, 1, c->n_in);
    params.w = upload_weights(g, c->type, c->n_in, c->n_out, 1, w);
    params.bias = upload(g, bias, (size_t)c->n_out * 4);
    params.residual = upload(g, residual + (size_t)first * c->n_out, (size_t)n * c->n_out * 4);
    params.y = simt_alloc(g->s, (size_t)n * c->n_out * 4);
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_matmul(&p, &m, &l, &g->err), 0, "%s", g->err.text);
    launch(g, &p, &l, ptx_matmul_grid(&m, n), &params, 60);
    float *y = allocate((size_t)n * c->n_out * 4);
    cr_assert_eq(simt_get(g->s, params.y, y, (size_t)n * c->n_out * 4, &g->err), 0, "%s", g->err.text);
    free(bias);
    free(residual);
    gpu_close(g);
    return y;
}

// The error of all outputs beside the sums in double, of its squares and beside theirs.
static double error_of(const struct product *c, const uint8_t *w, const float *x, const float *y)
{
    uint64_t state = SEED + 1;
    double d = 0, s = 0;
    float *bias = random_floats(c->n_out, &state), *residual = random_floats((size_t)c->n_rows * c->n_out, &state);
    float *row = allocate(c->n_in * sizeof *row);
    for (uint32_t o = 0; o < c->n_out; o++) {
        dtype_decode[c->type](w + o * dtype_row_bytes(c->type, c->n_in), row, c->n_in);
        for (uint32_t r = 0; r < c->n_rows; r++) {
            double sum = 0;
            for (uint32_t k = 0; k < c->n_in; k++)
                sum += (double)row[k] * (double)x[(size_t)r * c->n_in + k];
            sum += c->bias ? (double)bias[o] : 0;
            sum += c->residual ? (double)residual[(size_t)r * c->n_out + o] : 0;
            d += pow((double)y[(size_t)r * c->n_out + o] - sum, 2);
            s += sum * sum;
        }
    }
    free(bias);
    free(residual);
    free(row);
    return d / s;
}

static void check_product(struct product c)
{
    static const uint32_t classes[] = {1, 2, 4, 8};
    uint64_t state = SEED;
    uint8_t *w = make_weights(c.type, c.n_out, c.n_in, false, &state);
    float *x = random_floats((size_t)c.n_rows * c.n_in, &state);
    for (uint32_t i = 0; i < c.n_rows * c.n_in; i++)
        x[i] *= i / c.n_in % 2 ? 300 : 0.01f;
    float *all = multiply(&c, w, x, 0, c.n_rows, PTX_MANY_ROWS);
    const double error = error_of(&c, w, x, all);
    printf("%s, %u x %u, %u rows: error of squares %.3g\n", dtype_info[c.type].name, c.n_in, c.n_out, c.n_rows, error);
    cr_expect_leq(error, c.type == DT_F16 ? 1e-7 : 3e-11);
    for (size_t i = 0; i < COUNT_OF(classes); i++)
        for (uint32_t first = 0; first < c.n_rows; first += 1 + (uint32_t)i * 5) {
            const uint32_t n = MIN(c.n_rows - first, classes[i] + 1); // more than the class has, too
            float *few = multiply(&c, w, x, first, n, classes[i]);
            cr_assert_eq(memcmp(few, all + (size_t)first * c.n_out, (size_t)n * c.n_out * 4), 0,
                         "%s, %u x %u: rows %u to %u by %u have other bits", dtype_info[c.type].name, c.n_in, c.n_out,
                         first, first + n - 1, classes[i]);
            free(few);
        }
    free(w);
    free(x);
    free(all);
}

Test(ptx_half, a_row_has_the_same_bits_in_every_class)
{
    check_product((struct product){DT_F16, 32, 33, 3, false, false});
    check_product((struct product){DT_F16, 512, 40, 5, true, false});
    check_product((struct product){DT_BF16, 288, 35, 4, false, true});
    check_product((struct product){DT_F16, 1120, 20, 3, true, true}); // chains of 5 units, the last one of none
    check_product((struct product){DT_BF16, 1536, 129, 2, false, false});
    check_product((struct product){DT_F16, 96, 140, 70, false, false}); // a second CTA of rows and of outputs
}

// ---- ptxas

static bool has_ptxas(void)
{
    return system("ptxas --version >/dev/null 2>&1") == 0;
}

static void assemble(int arch, struct str text, const char *what)
{
    char path[] = "/tmp/quern-half-XXXXXX", command[200], report[4096];
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text.data, text.len), (ssize_t)text.len);
    close(fd);
    snprintf(command, sizeof command, "ptxas -v -arch=sm_%d -o /dev/null %s 2>&1", arch, path);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    report[fread(report, 1, sizeof report - 1, out)] = '\0';
    cr_assert_eq(pclose(out), 0, "%s, sm_%d: %s", what, arch, report);
    unlink(path);
    cr_expect(!strstr(report, "warning") && strstr(report, " 0 bytes spill stores, 0 bytes spill loads"),
              "%s, sm_%d: %s", what, arch, report);
}

Test(ptx_half, every_form_is_assembled_without_spills)
{
    static const int archs[] = {80, 86, 89, 90, 100, 120};
    static const uint32_t classes[] = {1, 4, 8, PTX_MANY_ROWS};
    static char text[TEXT];
    if (!has_ptxas())
        cr_skip_test("skipped: there is no ptxas");
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < COUNT_OF(classes); i++) {
            struct ptx p;
            struct ptx_launch l;
            struct error err;
            char what[80];
            const struct ptx_matmul m = {.type = t ? DT_BF16 : DT_F16,
                                         .n_in = 4096,
                                         .n_out = 4096,
                                         .rows = classes[i],
                                         .target = 80,
                                         .halves = true,
                                         .residual = true,
                                         .x_stride = ptx_half_row_bytes(t ? DT_BF16 : DT_F16, 4096),
                                         .y_stride = 16384,
                                         .residual_stride = 16384};
            snprintf(what, sizeof what, "%s, %u rows", dtype_info[m.type].name, m.rows);
            ptx_start(&p, text, sizeof text);
            cr_assert_eq(ptx_emit_matmul(&p, &m, &l, &err), 0, "%s: %s", what, err.text);
            for (size_t a = 0; a < COUNT_OF(archs); a++)
                assemble(archs[a], (struct str){p.data, p.size}, what);
            ptx_start(&p, text, sizeof text);
            cr_assert_eq(ptx_emit_halve(&p, &(struct ptx_halve){7, m.type, 4096, 1, 16384, m.x_stride}, &l, &err), 0);
            assemble(80, (struct str){p.data, p.size}, "halve");
        }
}
