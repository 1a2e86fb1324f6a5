// Tests that the tests of products on tensor cores detect wrong kernels: emitted kernels are changed in one random place,
// and each change must cause a fault or other bits. See test_ptx_mutations.c for what counts as a change.
//
// A subject is a kernel with sizes that reach its ends: more than one block, outputs and rows that do not fill the last
// CTA, and with a ring more blocks than warps. What has no effect cannot be found: a barrier that only keeps the assembler
// from moving loads, a guard of a copy whose bytes nobody reads, a field of bits that ends where its word ends.
#include "kernels/ptx/emit_dot.h"
#include "tests/ptx_mutate.h"
#include "tests/ptx_products.h"

#ifndef MUTATIONS
#define MUTATIONS 160
#endif

struct subject {
    enum dtype type;
    uint32_t rows, n_in, n_out, n_rows;
};
static const struct subject subjects[] = {
    {DT_Q4_K, PTX_WIDE_ROWS, 768, 168, 140}, {DT_Q6_K, PTX_WIDE_ROWS, 768, 168, 140},
    {DT_Q8_0, PTX_WIDE_ROWS, 768, 168, 140}, {DT_Q5_1, PTX_WIDE_ROWS, 736, 168, 140},
    {DT_Q4_K, 8, 256 * 24, 33, 9},           {DT_Q6_K, 32, 256 * 24, 33, 37},
    {DT_Q5_K, 16, 256 * 24, 33, 19},         {DT_Q8_0, 16, 256 * 16, 33, 19},
    {DT_IQ2_XXS, 8, 256 * 9, 33, 9},         {DT_IQ3_S, 1, 256 * 17, 33, 3},
    {DT_IQ1_M, 4, 256 * 9, 33, 7},           {DT_NVFP4, PTX_MANY_ROWS, 704, 140, 70},
};

struct params {
    uint64_t x, w, y, bias, residual, ids, scale;
    uint32_t n_rows;
};
// What a run of a subject needs; the interpreter has it in memory.
struct bench {
    struct gpu *g;
    struct params params;
    struct ptx_launch launch;
    uint32_t grid1;
    size_t out_size;
};

static struct ptx_matmul product_of(const struct subject *s)
{
    return (struct ptx_matmul){.node = 7,
                               .type = s->type,
                               .n_in = s->n_in,
                               .n_out = s->n_out,
                               .rows = s->rows,
                               .target = 90,
                               .q8 = true,
                               .bias = true,
                               .residual = true,
                               .x_stride = (uint32_t)ptx_q8_row_bytes(s->n_in),
                               .y_stride = 4 * s->n_out,
                               .residual_stride = 4 * s->n_out};
}

// Rounds random floats to rows of 8 bits on the interpreter.
static uint64_t make_x(struct gpu *g, const struct subject *s, uint64_t *state)
{
    struct ptx p;
    struct ptx_launch l;
    float *x = random_floats((size_t)s->n_rows * s->n_in, state);
    const struct ptx_quantize of = {7, s->n_in, 1, 4 * s->n_in, (uint32_t)ptx_q8_row_bytes(s->n_in)};
    struct {
        uint64_t x, q8;
        uint32_t n_rows;
    } params = {upload(g, x, (size_t)s->n_rows * s->n_in * 4), simt_alloc(g->s, (size_t)s->n_rows * of.y_stride),
                s->n_rows};
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_quantize(&p, &of, &l, &g->err), 0, "%s", g->err.text);
    launch(g, &p, &l, s->n_rows, &params, 20);
    free(x);
    return params.q8;
}

static void set_up(struct bench *b, const struct subject *s)
{
    uint64_t state = SEED + (uint64_t)s->type;
    const struct ptx_matmul m = product_of(s);
    struct gpu *g = b->g = gpu_open();
    const size_t out = (size_t)s->n_rows * s->n_out;
    uint8_t *w = make_weights(s->type, s->n_out, s->n_in, false, &state);
    float *bias = random_floats(s->n_out, &state), *residual = random_floats(out, &state);
    b->out_size = 4 * out;
    b->grid1 = ptx_matmul_grid(&m, s->n_rows);
    b->params = (struct params){.n_rows = s->n_rows};
    b->params.x = make_x(g, s, &state);
    b->params.w = upload_weights(g, s->type, s->n_in, s->n_out, 1, w);
    b->params.bias = upload(g, bias, 4 * s->n_out);
    b->params.residual = upload(g, residual, b->out_size);
    free(w);
    free(bias);
    free(residual);
}

// Runs a text. Returns false if it does not parse. *wrong: it has a fault.
static bool run(const struct subject *s, struct str text, const struct ptx_launch *l, uint64_t limit, float *out,
                bool *wrong, uint64_t *instructions)
{
    struct bench b;
    struct error err;
    set_up(&b, s);
    struct simt *m = b.g->s;
    const uint64_t before = simt_count(m).instructions;
    b.params.y = simt_alloc(m, b.out_size);
    simt_set_limit(m, limit);
    const struct simt_kernel *k = simt_load(m, text, &err) ? NULL : simt_find(m, "matmul_7");
    *wrong = k && (simt_launch(m, k, (struct simt_dim){l->grid[0], b.grid1, 1}, (struct simt_dim){l->block[0], 1, 1},
                               l->shared, &b.params, 60, &err) ||
                   simt_get(m, b.params.y, out, b.out_size, &err));
    *instructions = simt_count(m).instructions - before;
    gpu_close(b.g);
    return k;
}

// Makes changes until n of them parse. Returns how many of these are found.
static int found_of(const struct subject *s, int n, uint64_t *state)
{
    static char text[TEXT], changed[TEXT];
    static struct mutate_sites sites;
    const struct ptx_matmul m = product_of(s);
    const size_t size = 4 * (size_t)s->n_rows * s->n_out;
    float *want = allocate(size), *got = allocate(size);
    struct ptx p;
    struct ptx_launch l;
    struct error err;
    bool wrong;
    uint64_t whole, none;
    int counted = 0, found = 0;
    ptx_start(&p, text, TEXT);
    cr_assert_eq(ptx_emit_matmul(&p, &m, &l, &err), 0, "%s", err.text);
    mutate_find_sites(p.data, p.size, &sites);
    cr_assert(run(s, (struct str){p.data, p.size}, &l, 1 << 28, want, &wrong, &whole) && !wrong);
    while (counted < n) {
        const char *what;
        size_t where;
        memcpy(changed, p.data, p.size);
        size_t len = mutate(changed, p.size, sizeof changed, &sites, 0, state, &what, &where);
        if (!len || !run(s, (struct str){changed, len}, &l, 4 * whole, got, &wrong, &none))
            continue;
        const bool differs = wrong || memcmp(got, want, size);
        counted++;
        found += differs;
        if (!differs)
            printf("  not found (%s): %.*s -> %.*s\n", what, (int)strcspn(p.data + where, "\n"), p.data + where,
                   (int)strcspn(changed + where, "\n"), changed + where);
    }
    printf("%s by %u rows: %d of %d\n", dtype_info[s->type].name, s->rows, found, n);
    free(want);
    free(got);
    return found;
}

Test(ptx_product_mutations, changes_are_found, .timeout = 1100)
{
    uint64_t state = SEED;
    const int n = MUTATIONS / (int)COUNT_OF(subjects), all = n * (int)COUNT_OF(subjects);
    int found = 0;
    printf("seed %d\n", SEED);
    for (size_t i = 0; i < COUNT_OF(subjects); i++)
        found += found_of(&subjects[i], n, &state);
    printf("%d of %d changes were found\n", found, all);
    cr_assert_geq(100 * found, 95 * all);
}
