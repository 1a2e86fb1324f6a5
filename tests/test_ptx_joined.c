// Tests joined products (emit_matmul_joined.c): that every section of one has the bits of a launch of its own, in every
// class of rows and for every kind of weights and of cards; what is refused; and that the kernels assemble without spills.
#include "kernels/ptx/emit_dot.h"
#include "tests/ptx_products.h"

#include <unistd.h>

// Sections of uneven sizes, with gaps between their rows; two that are alike; and as many as there can be.
struct shape {
    uint32_t n, n_out[PTX_SECTIONS], gap;
};
static const struct shape shapes[] = {{3, {160, 33, 7}, 8}, {2, {136, 136}, 0}, {4, {32, 128, 1, 300}, 0}};
static const enum dtype types[] = {DT_Q4_K, DT_Q6_K, DT_Q8_0, DT_Q5_1,   DT_Q3_K,
                                   DT_F16,  DT_BF16, DT_F32,  DT_IQ2_XS, DT_NVFP4};
static const uint32_t classes[] = {1, 2, 4, 8, 16, 32, PTX_MANY_ROWS, PTX_WIDE_ROWS};
enum { N_IN = 512 };

struct params {
    uint64_t x, w, y, bias, residual, ids, scale;
    uint32_t n_rows;
    struct {
        uint64_t w, y, bias;
    } more[PTX_SECTIONS - 1];
};

// A product of one of the shapes.
static struct ptx_matmul product_of(enum dtype t, const struct shape *s, uint32_t class, uint32_t target)
{
    struct ptx_matmul m = {.node = 7,
                           .type = t,
                           .n_in = N_IN,
                           .rows = class,
                           .target = target,
                           .q8 = ptx_takes_q8(t),
                           .halves = ptx_takes_halves(t, N_IN, target),
                           .bias = true,
                           .n_sections = s->n};
    m.x_stride = m.q8 ? (uint32_t)ptx_q8_row_bytes(N_IN) : m.halves ? ptx_half_row_bytes(t, N_IN) : 4 * N_IN;
    for (uint32_t i = 0; i < s->n; i++) {
        m.n_out += s->n_out[i];
        m.sections[i] = (struct ptx_section){s->n_out[i], 4 * s->n_out[i] + s->gap};
    }
    m.y_stride = m.sections[0].y_stride;
    return m;
}

// Rounds random floats to the rows that the product takes.
static uint64_t make_x(struct gpu *g, const struct ptx_matmul *m, uint32_t n_rows, uint64_t *state)
{
    struct ptx p;
    struct ptx_launch l;
    float *x = random_floats((size_t)n_rows * m->n_in, state);
    struct {
        uint64_t x, y;
        uint32_t n_rows;
    } params = {upload(g, x, (size_t)n_rows * m->n_in * 4), 0, n_rows};
    free(x);
    if (!m->q8 && !m->halves)
        return params.x;
    params.y = simt_alloc(g->s, (size_t)n_rows * m->x_stride);
    ptx_start(&p, g->text, TEXT);
    const struct ptx_quantize q = {7, m->n_in, 1, 4 * m->n_in, m->x_stride};
    const struct ptx_halve h = {7, m->type, m->n_in, 1, 4 * m->n_in, m->x_stride};
    cr_assert_eq(m->q8 ? ptx_emit_quantize(&p, &q, &l, &g->err) : ptx_emit_halve(&p, &h, &l, &g->err), 0, "%s",
                 g->err.text);
    launch(g, &p, &l, n_rows, &params, 20);
    return params.y;
}

static void run(struct gpu *g, const struct ptx_matmul *m, const struct params *params)
{
    struct ptx p;
    struct ptx_launch l;
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_matmul(&p, m, &l, &g->err), 0, "%s", g->err.text);
    const size_t size = m->n_sections ? 64 + 24 * (m->n_sections - 1) : 60;
    launch(g, &p, &l, ptx_matmul_grid(m, params->n_rows), params, size);
}

// Section i as a product by itself, which writes to `y`.
static void run_alone(struct gpu *g, const struct ptx_matmul *m, const struct params *joined, uint32_t i, uint64_t y)
{
    struct ptx_matmul alone = *m;
    struct params params = *joined;
    alone.n_sections = 0;
    alone.n_out = m->sections[i].n_out;
    alone.y_stride = m->sections[i].y_stride;
    params.y = y;
    if (i) {
        params.w = joined->more[i - 1].w;
        params.bias = joined->more[i - 1].bias;
    }
    run(g, &alone, &params);
}

static float *result_of(struct gpu *g, const struct ptx_matmul *m, uint32_t i, uint64_t y, uint32_t n_rows)
{
    const size_t n = m->sections[i].n_out, stride = m->sections[i].y_stride;
    float *out = allocate(n_rows * n * 4);
    for (uint32_t r = 0; r < n_rows; r++)
        cr_assert_eq(simt_get(g->s, y + r * stride, out + r * n, 4 * n, &g->err), 0, "%s", g->err.text);
    return out;
}

static void expect_same(struct gpu *g, const struct ptx_matmul *m, const struct params *p, uint32_t i)
{
    const uint64_t other = simt_alloc(g->s, (size_t)p->n_rows * m->sections[i].y_stride);
    run_alone(g, m, p, i, other);
    float *got = result_of(g, m, i, i ? p->more[i - 1].y : p->y, p->n_rows),
          *want = result_of(g, m, i, other, p->n_rows);
    cr_expect_eq(memcmp(got, want, (size_t)p->n_rows * m->sections[i].n_out * 4), 0,
                 "%s, %u rows a CTA, sm_%u: section %u of %u outputs differs", dtype_info[m->type].name, m->rows,
                 m->target, i, m->sections[i].n_out);
    free(got);
    free(want);
}

// Multiplies with all sections at once and with each alone.
static void check_joined(const struct ptx_matmul *m, uint32_t n_rows)
{
    struct gpu *g = gpu_open();
    uint64_t state = SEED + (uint64_t)m->type;
    struct params p = {.n_rows = n_rows};
    p.x = make_x(g, m, n_rows, &state);
    for (uint32_t i = 0; i < m->n_sections; i++) {
        const uint32_t n_out = m->sections[i].n_out;
        uint8_t *w = make_weights(m->type, n_out, m->n_in, false, &state);
        float *bias = random_floats(n_out, &state);
        const uint64_t weights = upload_weights(g, m->type, m->n_in, n_out, 1, w), b = upload(g, bias, 4 * n_out),
                       y = simt_alloc(g->s, (size_t)n_rows * m->sections[i].y_stride);
        if (i)
            p.more[i - 1].w = weights, p.more[i - 1].y = y, p.more[i - 1].bias = b;
        else
            p.w = weights, p.y = y, p.bias = b;
        free(w);
        free(bias);
    }
    run(g, m, &p);
    for (uint32_t i = 0; i < m->n_sections; i++)
        expect_same(g, m, &p, i);
    gpu_close(g);
}

// Checks all classes of a type; each with one of the shapes, in turn.
static void check_type(enum dtype t, uint32_t target, size_t turn)
{
    for (size_t c = 0; c < COUNT_OF(classes); c++) {
        const struct ptx_matmul m = product_of(t, &shapes[(turn + c) % COUNT_OF(shapes)], classes[c], target);
        const uint32_t shared = MAX(ptx_shared_of(target), 65u << 10) - PTX_SHARED_RESERVED;
        if (ptx_has_class(&m, classes[c], shared))
            check_joined(&m, classes[c] + 1);
    }
}

Test(ptx_joined, sections_have_the_bits_of_launches_of_their_own)
{
    printf("seed %d\n", SEED);
    for (size_t t = 0; t < COUNT_OF(types); t++)
        check_type(types[t], 90, t);
}

Test(ptx_joined, sections_on_older_cards_have_them_too)
{
    static const uint32_t targets[] = {75, 86, 120};
    printf("seed %d\n", SEED);
    for (size_t t = 0; t < COUNT_OF(types); t += 2)
        check_type(types[t], targets[t / 2 % COUNT_OF(targets)], t + 1);
}

// ---- sizes

static int try_product(struct ptx_matmul m)
{
    static char text[TEXT];
    struct ptx p;
    struct ptx_launch l;
    struct error err = {.code = E_OK};
    ptx_start(&p, text, sizeof text);
    int rc = ptx_emit_matmul(&p, &m, &l, &err);
    cr_assert(rc == 0 || (err.code == E_GPU && p.size == 0), "nothing is written where sections are refused");
    return rc;
}

Test(ptx_joined, sections_that_there_cannot_be_are_refused)
{
    const struct ptx_matmul good = product_of(DT_Q4_K, &shapes[0], 8, 90);
    cr_assert_eq(try_product(good), 0);
#define REFUSED(field, value)                                                                                          \
    do {                                                                                                               \
        struct ptx_matmul m = good;                                                                                    \
        m.field = value;                                                                                               \
        cr_assert_eq(try_product(m), -1, #field " = " #value);                                                         \
    } while (0)
    REFUSED(n_sections, 1);
    REFUSED(n_sections, 2); // its outputs are not all
    REFUSED(n_sections, PTX_SECTIONS + 1);
    REFUSED(sections[1].n_out, 0);
    REFUSED(sections[1].n_out, 34);
    REFUSED(sections[1].n_out, UINT32_MAX);
    REFUSED(sections[2].y_stride, 30);
    REFUSED(residual, true);
    REFUSED(n_used, 2);
#undef REFUSED
}

// ---- ptxas

static void assemble(const char *folder, const struct ptx_matmul *m)
{
    static char text[TEXT];
    char path[64], command[256], report[4096];
    struct ptx p;
    struct ptx_launch l;
    struct error err;
    ptx_start(&p, text, sizeof text);
    cr_assert_eq(ptx_emit_matmul(&p, m, &l, &err), 0, "%s", err.text);
    snprintf(path, sizeof path, "%s/ptx", folder);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fwrite(text, 1, p.size, f);
    cr_assert_eq(fclose(f), 0);
    snprintf(command, sizeof command, "ptxas -v -arch=sm_%u -o %s/cubin %s 2>&1", m->target, folder, path);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    size_t n = fread(report, 1, sizeof report - 1, out);
    report[n] = 0;
    cr_assert_eq(pclose(out), 0, "%s: %s", dtype_info[m->type].name, report);
    cr_expect(strstr(report, " 0 bytes spill stores, 0 bytes spill loads") && !strstr(report, "warning"),
              "%s, %u rows a CTA, sm_%u: %s", dtype_info[m->type].name, m->rows, m->target, report);
}

// All types, classes and architectures take minutes; they run in the long suite, where EVERY_ARCH is defined.
#ifdef EVERY_ARCH
static const uint32_t archs[] = {75, 80, 86, 89, 90, 100, 120};
enum { STEP = 1 };
#else
static const uint32_t archs[] = {75, 90, 120};
enum { STEP = 13 };
#endif

Test(ptx_joined, kernels_assemble_without_spills, .timeout = 3000)
{
    static const struct shape llama = {3, {4096, 1024, 1024}, 0};
    char folder[] = "/tmp/quern-ptx-XXXXXX", path[64];
    size_t turn = 0, bytes;
    struct error err;
    if (system("command -v ptxas > /dev/null 2>&1") != 0)
        cr_skip_test("ptxas is not found: kernels are not assembled");
    cr_assert_not_null(mkdtemp(folder));
    for (int t = 0; t < DT_COUNT; t++)
        for (size_t c = 0; c < COUNT_OF(classes) && !ptx_tiles_bytes((enum dtype)t, N_IN, 32, &bytes, &err); c++)
            for (size_t a = 0; a < COUNT_OF(archs); a++) {
                struct ptx_matmul m = product_of((enum dtype)t, &llama, classes[c], archs[a]);
                const uint32_t shared = MAX(ptx_shared_of(archs[a]), 65u << 10) - PTX_SHARED_RESERVED;
                if (ptx_has_class(&m, classes[c], shared) && turn++ % STEP == 0)
                    assemble(folder, &m);
            }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "cubin" : "ptx");
        unlink(path);
    }
    rmdir(folder);
}
