// Runs the GPU products with weights of every type on the interpreter and compares them bit for bit with the CPU's
// scalar level.
//
// Blocks are random bytes with finite scales of moderate size. Device buffers have exactly the size of their contents,
// and outputs start as not written, so the interpreter detects every access beyond them.
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cpu/kernels.h"
#include "kernels/ptx/emit_ops.h"
#include "tests/ptx_products.h"

// ---- look-ups: every type decodes bit for bit

static const enum dtype types[] = {
#define TILE(NAME, ...) DT_##NAME,
#include "kernels/ptx/weight_tile.def"
#undef TILE
};

struct rows_params {
    uint64_t w, ids, y;
    uint32_t n_rows;
};

static void check_rows(enum dtype t, uint32_t n_in, uint32_t n_out, float scale)
{
    uint64_t state = SEED + (uint64_t)t;
    struct gpu *g = gpu_open();
    struct ptx p;
    struct ptx_launch l;
    uint8_t *w = make_weights(t, n_out, n_in, false, &state);
    int32_t ids[] = {(int32_t)n_out - 1, 0, 1, (int32_t)n_out / 2, -1, (int32_t)n_out};
    const uint32_t n = COUNT_OF(ids);
    const struct ptx_get_rows of = {7, t, n_in, n_out, 4 * n_in, scale};
    uint64_t tiles = upload_weights(g, t, n_in, n_out, 1, w);
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_get_rows(&p, &of, &l, &g->err), 0, "%s", g->err.text);
    struct rows_params params = {tiles, upload(g, ids, sizeof(ids)), simt_alloc(g->s, n * n_in * sizeof(float)), n};
    launch(g, &p, &l, n, &params, 28);
    float *got = allocate(n * n_in * sizeof(*got)), *want = allocate(n_in * sizeof(*want));
    cr_assert_eq(simt_get(g->s, params.y, got, n * n_in * sizeof(*got), &g->err), 0, "%s", g->err.text);
    for (uint32_t i = 0; i < n; i++) {
        memset(want, 0, n_in * sizeof(*want));
        bool there = ids[i] >= 0 && ids[i] < (int32_t)n_out;
        if (there)
            dtype_decode[t](w + (size_t)ids[i] * dtype_row_bytes(t, n_in), want, n_in);
        for (uint32_t k = 0; k < n_in; k++) {
            float scaled = there && scale != 1 ? want[k] * scale : want[k];
            cr_assert_eq(memcmp(&scaled, &got[i * n_in + k], 4), 0, "%s, row %d, weight %u: %a, not %a",
                         dtype_info[t].name, ids[i], k, (double)got[i * n_in + k], (double)scaled);
        }
    }
    free(w);
    free(got);
    free(want);
    gpu_close(g);
}

Test(ptx_matmul, every_type_is_looked_up_bit_for_bit)
{
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        uint32_t block = (uint32_t)dtype_info[types[i]].block;
        check_rows(types[i], block == 1 ? 45 : block == 256 ? 768 : 256 + 3 * block, 35, i % 2 ? 1.0f : 3.25f);
    }
}

// ---- activations in 8 bits

struct quantize_params {
    uint64_t x, q8;
    uint32_t n_rows;
};

// Quantises n rows, each of `parts` rows of k floats.
static uint64_t quantize(struct gpu *g, uint64_t x, uint32_t n, uint32_t parts, uint32_t k)
{
    struct ptx p;
    struct ptx_launch l;
    uint32_t bytes = (uint32_t)q8_row_bytes(k);
    const struct ptx_quantize of = {7, k, parts, 4 * k * parts, bytes * parts};
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_quantize(&p, &of, &l, &g->err), 0, "%s", g->err.text);
    struct quantize_params params = {x, simt_alloc(g->s, (size_t)n * parts * bytes), n};
    launch(g, &p, &l, n, &params, 20);
    return params.q8;
}

static void check_quantize(uint32_t n, uint32_t parts, uint32_t k, void (*spoil)(float *))
{
    uint64_t state = SEED;
    struct gpu *g = gpu_open();
    struct error err;
    const struct kernels *cpu = kernels_find("scalar", &err);
    cr_assert_not_null(cpu);
    float *x = random_floats((size_t)n * parts * k, &state);
    if (spoil)
        spoil(x);
    size_t bytes = q8_row_bytes(k), used = (size_t)q8_blocks(k) * Q8_BLOCK_BYTES;
    uint64_t q8 = quantize(g, upload(g, x, (size_t)n * parts * k * 4), n, parts, k);
    uint8_t *got = allocate(used), *want = aligned_alloc(64, bytes);
    for (uint32_t r = 0; r < n * parts; r++) {
        cpu->quantize_q8(x + (size_t)r * k, k, want);
        int16_t *sums = (int16_t *)(want + q8_blocks(k) * Q8_BLOCK);
        for (int64_t i = 0; i < q8_blocks(k) * Q8_SUMS; i++) // the GPU's are times their steps
            sums[i] = (int16_t)(sums[i] * q8_steps(want, k)[i / 2]);
        cr_assert_eq(simt_get(g->s, q8 + r * bytes, got, used, &g->err), 0, "%s", g->err.text);
        for (size_t i = 0; i < used; i++)
            cr_assert_eq(got[i], want[i], "row %u of %u, byte %zu", r, k, i);
    }
    free(x);
    free(got);
    free(want);
    gpu_close(g);
}

static void spoil(float *x)
{
    memset(x, 0, 256 * sizeof(*x)); // all zeros
    x[300] = INFINITY;
    for (int i = 512; i < 768; i++)
        x[i] *= 1e-40f;
    x[768] = 1e30f;
    for (int i = 1024; i < 1280; i++) // ties
        x[i] = (float)(i % 255 - 127) / 2;
    x[1024] = 63.5f;
}

Test(ptx_matmul, activations_become_the_same_8_bits)
{
    check_quantize(3, 1, 256, NULL);
    check_quantize(2, 3, 1312, NULL);
    check_quantize(1, 1, 45, NULL);
    check_quantize(2, 1, 1280, spoil);
}

// ---- products

struct matmul_params {
    uint64_t x, w, y, bias, residual, ids, scale;
    uint32_t n_rows;
};

struct product {
    enum dtype type;
    uint32_t n_in, n_out, n_rows, rows;
    bool q8, epilogue;
};

// Computes the expected output with the scalar level, row by row.
static void expect_product(const struct product *c, const uint8_t *w, const float *x, const float *bias,
                           const float *residual, float *y)
{
    struct error err;
    const struct kernels *cpu = kernels_find("scalar", &err);
    cr_assert_not_null(cpu);
    void *scratch = aligned_alloc(64, SCRATCH_BYTES), *row = aligned_alloc(64, q8_row_bytes(c->n_in));
    for (uint32_t r = 0; r < c->n_rows; r++) {
        const void *from = x + (size_t)r * c->n_in;
        if (c->q8)
            cpu->quantize_q8(from, c->n_in, row), from = row;
        float *to = y + (size_t)r * c->n_out;
        const struct matmul_args a = {.w = w,
                                      .w_stride = dtype_row_bytes(c->type, c->n_in),
                                      .n_rows = (int)c->n_out,
                                      .k = c->n_in,
                                      .type = c->type,
                                      .x = &from,
                                      .n_x = 1,
                                      .y = &to,
                                      .scratch = scratch};
        (c->q8 ? cpu->matmul_q8 : cpu->matmul_f32)[c->type](&a);
        for (uint32_t o = 0; c->epilogue && o < c->n_out; o++)
            to[o] = (to[o] + bias[o]) + residual[(size_t)r * c->n_out + o];
    }
    free(scratch);
    free(row);
}

// Checks a product as on a GPU of that compute capability. extreme: of the largest weights and activations, which all
// have the largest step.
static void check_product_on(uint32_t target, const struct product *c, bool extreme)
{
    uint64_t state = SEED + (uint64_t)c->type;
    struct gpu *g = gpu_open();
    struct ptx p;
    struct ptx_launch l;
    size_t out = (size_t)c->n_rows * c->n_out;
    uint8_t *w = make_weights(c->type, c->n_out, c->n_in, extreme, &state);
    float *x = random_floats((size_t)c->n_rows * c->n_in, &state), *bias = random_floats(c->n_out, &state);
    float *residual = random_floats(out, &state), *got = allocate(out * 4), *want = allocate(out * 4);
    for (size_t i = 0; i < (size_t)c->n_rows * c->n_in && extreme; i++) // minus, plus and mixed
        x[i] = i / c->n_in == 0 || (i / c->n_in > 1 && random_u64(&state) & 1) ? -1 : 1;
    struct ptx_matmul m = {.node = 7,
                           .type = c->type,
                           .n_in = c->n_in,
                           .n_out = c->n_out,
                           .rows = c->rows,
                           .target = target,
                           .q8 = c->q8,
                           .bias = c->epilogue,
                           .residual = c->epilogue,
                           .x_stride = 4 * c->n_in,
                           .y_stride = 4 * c->n_out,
                           .residual_stride = 4 * c->n_out};
    struct matmul_params params = {.n_rows = c->n_rows};
    params.x = upload(g, x, (size_t)c->n_rows * c->n_in * 4);
    if (c->q8) {
        m.x_stride = (uint32_t)q8_row_bytes(c->n_in);
        params.x = quantize(g, params.x, c->n_rows, 1, c->n_in);
    }
    params.w = upload_weights(g, c->type, c->n_in, c->n_out, 1, w);
    params.bias = upload(g, bias, c->n_out * sizeof(float));
    params.residual = upload(g, residual, out * 4);
    params.y = simt_alloc(g->s, out * 4);
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_matmul(&p, &m, &l, &g->err), 0, "%s", g->err.text);
    launch(g, &p, &l, ptx_matmul_grid(&m, c->n_rows), &params, 60);
    cr_assert_eq(simt_get(g->s, params.y, got, out * 4, &g->err), 0, "%s", g->err.text);
    expect_product(c, w, x, bias, residual, want);
    for (size_t i = 0; i < out; i++)
        cr_assert_eq(memcmp(&got[i], &want[i], 4), 0, "%s %u x %u, %u rows by %u, q8 %d: output %zu is %a, not %a",
                     dtype_info[c->type].name, c->n_in, c->n_out, c->n_rows, c->rows, c->q8, i, (double)got[i],
                     (double)want[i]);
    free(w);
    free(x);
    free(bias);
    free(residual);
    free(got);
    free(want);
    gpu_close(g);
}

static void check_product(const struct product *c)
{
    check_product_on(80, c, false);
}

static bool takes_wide(enum dtype t)
{
    const struct ptx_matmul m = {.type = t, .n_in = 256, .n_out = 64, .q8 = ptx_takes_q8(t), .target = 80};
    return ptx_has_class(&m, PTX_WIDE_ROWS, UINT32_MAX);
}

static uint32_t odd_size(enum dtype t)
{
    uint32_t block = (uint32_t)dtype_info[t].block;
    return block == 1 ? 300 : block == 256 ? 512 : 256 + 3 * block;
}

Test(ptx_matmul, every_type_times_floats_has_the_bits_of_the_cpu)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        check_product(&(struct product){types[i], odd_size(types[i]), 37, 3, 2, false, i % 2});
}

Test(ptx_matmul, every_type_times_8_bits_has_the_bits_of_the_cpu)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        for (uint32_t rows = 2; rows <= 4 && ptx_takes_q8(types[i]); rows += 2)
            check_product(&(struct product){types[i], odd_size(types[i]), 37, 3, rows, true, i % 2});
}

// Classes of rows, incomplete tiles, and numbers of rows that are not a multiple of the class.
Test(ptx_matmul, every_class_of_rows_gives_the_same_bits)
{
    static const struct {
        enum dtype type;
        bool q8;
    } of[] = {{DT_Q4_K, true},    {DT_Q6_K, true},    {DT_Q8_0, true},  {DT_Q4_1, true},  {DT_F16, false},
              {DT_IQ2_XS, false}, {DT_IQ2_XXS, true}, {DT_IQ3_S, true}, {DT_TQ1_0, true}, {DT_NVFP4, true}};
    static const uint32_t n_rows[] = {1, 2, 3, 7, 8, 9, 33}, n_out[] = {1, 31, 32, 33, 65};
    for (size_t i = 0; i < COUNT_OF(n_rows); i++)
        for (uint32_t rows = 1; rows <= 8; rows *= 2)
            for (size_t t = i + rows, n = 0; n < 2; n++, t++)
                check_product(&(struct product){of[t % COUNT_OF(of)].type, 256, n_out[(i + rows) % COUNT_OF(n_out)],
                                                n_rows[i], rows, of[t % COUNT_OF(of)].q8, true});
}

Test(ptx_matmul, any_length_of_a_row_of_floats)
{
    static const uint32_t n_in[] = {1, 15, 16, 17, 31, 33, 64, 255, 257, 511};
    for (size_t i = 0; i < COUNT_OF(n_in); i++)
        check_product(&(struct product){i % 2 ? DT_F32 : DT_BF16, n_in[i], 33, 3, i % 3 ? 4 : 1, false, true});
}

// On tensor cores: fewer outputs and rows of x than a CTA has, and more.
Test(ptx_matmul, many_rows_have_the_bits_of_one)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (ptx_takes_q8(types[i]))
            check_product(&(struct product){types[i], odd_size(types[i]), 70, 33, PTX_MANY_ROWS, true, i % 2});
    check_product(&(struct product){DT_Q4_K, 512, 130, 65, PTX_MANY_ROWS, true, true});
    check_product(&(struct product){DT_Q5_1, 64, 1, 1, PTX_MANY_ROWS, true, false});
    check_product(&(struct product){DT_IQ4_NL, 256 * 3 + 32, 257, 9, PTX_MANY_ROWS, true, true});
    check_product(&(struct product){DT_Q2_K, 256, 33, 200, PTX_MANY_ROWS, true, false});
    check_product(&(struct product){DT_Q3_K, 768, 129, 127, PTX_MANY_ROWS, true, true});
}

// sm_75 has tensor core products of 8 x 8.
Test(ptx_matmul, many_rows_on_older_cards_have_the_same_bits)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (ptx_takes_q8(types[i]))
            check_product_on(75, &(struct product){types[i], odd_size(types[i]), 33, 67, PTX_MANY_ROWS, true, true},
                             false);
}

// The classes of 8, 16 and 32 rows on tensor cores: whole classes and parts of them, several of them, one block and more
// than a round has, on newer cards and on older ones.
Test(ptx_matmul, some_rows_have_the_bits_of_one)
{
    static const uint32_t classes[] = {8, 16, 32}, n_rows[] = {5, 8, 13, 16, 17, 32, 37, 70};
    for (size_t i = 0, n = 0; i < COUNT_OF(types); i++)
        for (size_t c = 0; c < COUNT_OF(classes) && ptx_takes_q8(types[i]); c++, n++)
            check_product_on(n % 4 == 3 ? 75 : 80,
                             &(struct product){types[i], odd_size(types[i]), n % 2 ? 33 : 70,
                                               n_rows[n % COUNT_OF(n_rows)], classes[c], true, n % 3},
                             false);
    check_product(&(struct product){DT_Q4_K, 256 * 9, 32, 9, 16, true, true});
    check_product(&(struct product){DT_Q8_0, 256 * 17 + 32, 31, 3, 8, true, false});
    check_product(&(struct product){DT_Q6_K, 256 * 8, 1, 32, 32, true, false});
}

// 128 outputs by 128 rows: fewer of them than a CTA has, and more; one block, two and more, and the last one in part.
Test(ptx_matmul, the_widest_class_has_the_bits_of_one_row)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (takes_wide(types[i]))
            check_product(&(struct product){types[i], odd_size(types[i]), 70, 65, PTX_WIDE_ROWS, true, i % 2});
    check_product(&(struct product){DT_Q4_K, 256 * 5, 130, 129, PTX_WIDE_ROWS, true, true});
    check_product(&(struct product){DT_Q5_1, 64, 1, 1, PTX_WIDE_ROWS, true, false});
    check_product(&(struct product){DT_Q6_K, 256 * 4, 33, 200, PTX_WIDE_ROWS, true, false});
}

// float32 activations: k that is a multiple of 64 or not, a single step, and fewer rows and outputs than a CTA has.
Test(ptx_matmul, many_rows_of_floats_have_the_bits_of_one)
{
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        uint32_t n_in = dtype_info[types[i]].block == 1 ? 288 : odd_size(types[i]);
        check_product_on(i % 3 ? 80 : 75,
                         &(struct product){types[i], n_in, 37, i % 2 ? 9 : 70, PTX_MANY_ROWS, false, i % 2}, false);
    }
    check_product(&(struct product){DT_F16, 32, 65, 129, PTX_MANY_ROWS, false, true});
    check_product_on(75, &(struct product){DT_BF16, 96, 1, 64, PTX_MANY_ROWS, false, false}, false);
    check_product(&(struct product){DT_F32, 64, 32, 200, PTX_MANY_ROWS, false, true});
}

Test(ptx_matmul, the_largest_sums_do_not_overflow)
{
    static const uint32_t rows[] = {1, 2, 4, PTX_MANY_ROWS, PTX_MANY_ROWS, 8, PTX_WIDE_ROWS};
    for (size_t i = 0; i < COUNT_OF(types); i++)
        for (size_t n = 0; n < COUNT_OF(rows) && ptx_takes_q8(types[i]); n++)
            if (rows[n] != PTX_WIDE_ROWS || takes_wide(types[i]))
                check_product_on(n == 4 ? 75 : 80, &(struct product){types[i], 256, 64, 3, rows[n], true, false}, true);
}

// So many blocks that shared memory holds the sums of only a part of them.
Test(ptx_matmul, long_rows_go_in_rounds)
{
    check_product(&(struct product){DT_Q4_0, 256 * 70 + 32, 2, 3, 8, true, false});
    check_product(&(struct product){DT_Q4_K, 256 * 17, 2, 1, 1, true, false});
}

// ---- experts

struct choice {
    enum dtype type;
    uint32_t n_in, n_out;
    bool q8, shared;
    uint32_t rows, tokens; // rows: the class
};

enum { EXPERTS = 5, USED = 3 };

// Each row has different experts; every fourth row has an invalid id in place of one. Expert 3 is chosen least.
static int32_t *choose_experts(uint32_t tokens, uint64_t *state)
{
    int32_t *ids = allocate(tokens * USED * sizeof(*ids));
    for (uint32_t t = 0; t < tokens; t++) {
        int32_t first = (int32_t)(random_u64(state) % EXPERTS);
        for (int32_t j = 0; j < USED; j++)
            ids[t * USED + (uint32_t)j] = first % 4 == 3 && t ? 4 : (first + j) % EXPERTS;
        if (t % 4 == 1)
            ids[t * USED + t % USED] = t % 8 == 1 ? -1 : EXPERTS;
    }
    return ids;
}

// Checks the groups: each place with a valid expert is in exactly one, and a group has one expert.
static uint64_t group_places(struct gpu *g, uint64_t ids, const int32_t *chosen, uint32_t tokens, uint32_t group)
{
    enum { GROUPS = 256 };
    struct ptx p;
    struct ptx_launch l;
    size_t bytes = ptx_group_bytes(USED, EXPERTS, tokens), places = 0;
    const struct ptx_step step = {.rows = {99, tokens}};
    struct {
        uint64_t step, ids, groups;
        uint32_t n_rows;
    } params = {upload(g, &step, sizeof(step)), ids, simt_alloc(g->s, bytes), tokens + 1};
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_group(&p, &(struct ptx_group){7, ROWS_OUTPUTS, USED, EXPERTS, 4 * USED, group}, &l, &g->err),
                 0, "%s", g->err.text);
    launch(g, &p, &l, 1, &params, 28);
    uint32_t head[4 * GROUPS], list[PTX_MANY_ROWS], n;
    bool *seen = allocate(tokens * USED);
    cr_assert_eq(simt_get(g->s, params.groups, &n, 4, &g->err), 0, "%s", g->err.text);
    cr_assert(n <= ptx_groups(USED, EXPERTS, tokens, group) && n <= GROUPS);
    cr_assert_eq(simt_get(g->s, params.groups + 16, head, 16 * (size_t)n, &g->err), 0, "%s", g->err.text);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert(head[4 * i + 2] >= 1 && head[4 * i + 2] <= group && head[4 * i + 1] < bytes / 4);
        size_t size = 4 * (size_t)head[4 * i + 2];
        cr_assert_eq(simt_get(g->s, params.groups + 4 * (size_t)head[4 * i + 1], list, size, &g->err), 0, "%s",
                     g->err.text);
        for (uint32_t j = 0; j < head[4 * i + 2]; j++, places++) {
            cr_assert(list[j] < tokens * USED && !seen[list[j]] && chosen[list[j]] == (int32_t)head[4 * i]);
            seen[list[j]] = true;
        }
    }
    for (uint32_t i = 0; i < tokens * USED; i++)
        places += chosen[i] < 0 || chosen[i] >= EXPERTS;
    cr_assert_eq(places, tokens * USED);
    free(seen);
    return params.groups;
}

static void check_experts(const struct choice *c)
{
    uint64_t state = SEED + (uint64_t)c->type;
    struct gpu *g = gpu_open();
    struct ptx p;
    struct ptx_launch l;
    const size_t out = (size_t)c->tokens * USED * c->n_out, matrix = c->n_out * dtype_row_bytes(c->type, c->n_in);
    const uint32_t parts = c->shared ? 1 : USED, n_x = c->tokens * parts;
    int32_t *chosen = choose_experts(c->tokens, &state);
    uint8_t *w = make_weights(c->type, (size_t)EXPERTS * c->n_out, c->n_in, false, &state);
    float *x = random_floats((size_t)n_x * c->n_in, &state), *scale = random_floats(EXPERTS, &state);
    float *bias = random_floats((size_t)EXPERTS * c->n_out, &state);
    float *got = allocate(out * 4), *want = allocate(out * 4);
    uint32_t x_part = 4 * c->n_in;
    struct matmul_params params = {.n_rows = c->tokens};
    params.x = upload(g, x, (size_t)n_x * x_part);
    if (c->q8) {
        params.x = quantize(g, params.x, c->tokens, parts, c->n_in);
        x_part = (uint32_t)q8_row_bytes(c->n_in);
    }
    const struct ptx_matmul m = {.node = 7,
                                 .type = c->type,
                                 .n_in = c->n_in,
                                 .n_out = c->n_out,
                                 .rows = c->rows,
                                 .target = 80,
                                 .q8 = c->q8,
                                 .bias = c->tokens % 2,
                                 .scale = true,
                                 .x_stride = parts * x_part,
                                 .y_stride = 4 * USED * c->n_out,
                                 .n_used = USED,
                                 .n_experts = EXPERTS,
                                 .x_part = c->shared ? 0 : x_part,
                                 .ids_stride = 4 * USED};
    params.w = upload_weights(g, c->type, c->n_in, c->n_out, EXPERTS, w);
    params.ids = upload(g, chosen, c->tokens * USED * sizeof(*chosen));
    if (c->rows > 1)
        params.ids = group_places(g, params.ids, chosen, c->tokens, c->rows);
    params.scale = upload(g, scale, EXPERTS * sizeof(float));
    params.bias = upload(g, bias, (size_t)EXPERTS * c->n_out * sizeof(float));
    params.y = upload(g, got, out * 4); // zeros, which remain for invalid ids
    ptx_start(&p, g->text, TEXT);
    cr_assert_eq(ptx_emit_matmul(&p, &m, &l, &g->err), 0, "%s", g->err.text);
    launch(g, &p, &l, ptx_matmul_grid(&m, c->tokens), &params, 60);
    cr_assert_eq(simt_get(g->s, params.y, got, out * 4, &g->err), 0, "%s", g->err.text);
    for (uint32_t i = 0; i < c->tokens * USED; i++) {
        int32_t e = chosen[i];
        if (e < 0 || e >= EXPERTS)
            continue;
        const struct product one = {c->type, c->n_in, c->n_out, 1, 1, c->q8, false};
        float *y = want + (size_t)i * c->n_out;
        expect_product(&one, w + (size_t)e * matrix, x + (size_t)(c->shared ? i / USED : i) * c->n_in, NULL, NULL, y);
        for (uint32_t o = 0; o < c->n_out; o++)
            y[o] = y[o] * scale[e] + (m.bias ? bias[(size_t)e * c->n_out + o] : 0);
    }
    for (size_t i = 0; i < out; i++)
        cr_assert_eq(memcmp(&got[i], &want[i], 4), 0, "%s: output %zu is %a, not %a", dtype_info[c->type].name, i,
                     (double)got[i], (double)want[i]);
    free(w);
    free(x);
    free(chosen);
    free(scale);
    free(bias);
    free(got);
    free(want);
    gpu_close(g);
}

Test(ptx_matmul, rows_go_to_the_experts_that_their_ids_name)
{
    check_experts(&(struct choice){DT_Q4_K, 256, 40, true, true, 1, 3});
    check_experts(&(struct choice){DT_Q8_0, 96, 33, true, false, 1, 6});
    check_experts(&(struct choice){DT_F32, 40, 33, false, false, 1, 3});
    check_experts(&(struct choice){DT_IQ4_XS, 256, 7, false, true, 1, 5});
    check_experts(&(struct choice){DT_IQ2_S, 256, 40, true, true, 1, 3});
}

// Products grouped by expert, with full, incomplete and missing groups.
Test(ptx_matmul, groups_of_places_have_the_bits_of_single_ones)
{
    check_experts(&(struct choice){DT_Q4_K, 256, 40, true, true, PTX_MANY_ROWS, 1});
    check_experts(&(struct choice){DT_Q6_K, 512, 130, true, false, PTX_MANY_ROWS, 40});
    check_experts(&(struct choice){DT_Q8_0, 96, 70, true, false, PTX_MANY_ROWS, 131});
    check_experts(&(struct choice){DT_F32, 96, 40, false, true, PTX_MANY_ROWS, 131});
    check_experts(&(struct choice){DT_IQ4_XS, 256, 7, true, true, PTX_MANY_ROWS, 200});
    check_experts(&(struct choice){DT_IQ2_XS, 256, 33, false, true, PTX_MANY_ROWS, 50});
    check_experts(&(struct choice){DT_IQ3_XXS, 512, 70, true, false, PTX_MANY_ROWS, 40});
    check_experts(&(struct choice){DT_NVFP4, 192, 33, true, true, PTX_MANY_ROWS, 50});
}

// The same on tensor cores for groups of 8, 16 and 32: types with scales of each kind, several rounds of blocks.
Test(ptx_matmul, small_groups_of_places_have_the_bits_of_single_ones)
{
    static const enum dtype kinds[] = {DT_Q4_K,  DT_Q6_K,    DT_Q8_0,  DT_Q4_1,  DT_IQ4_XS,
                                       DT_MXFP4, DT_IQ2_XXS, DT_IQ1_M, DT_TQ2_0, DT_NVFP4};
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const uint32_t block = (uint32_t)dtype_info[kinds[i]].block, group = 8u << i % 3;
        const uint32_t n_in = block == 256 ? 512 : block == 64 ? 192 : 96;
        check_experts(&(struct choice){kinds[i], n_in, 40, true, i % 2 == 0, group, 1});
        check_experts(&(struct choice){kinds[i], n_in, 70, true, i % 2 == 1, 8, 40});
        check_experts(&(struct choice){kinds[i], n_in, 33, true, i % 2 == 0, 16, 41});
        check_experts(&(struct choice){kinds[i], n_in, 7, true, i % 2 == 1, 32, 131});
    }
    check_experts(&(struct choice){DT_Q4_K, 256 * 11, 33, true, false, 8, 13});
}

// The class of experts by the average number of places that each has.
Test(ptx_matmul, small_batches_read_an_expert_once)
{
    static const struct {
        uint32_t rows, class;
    } cases[] = {
        {1, 1}, {8, 1}, {12, 8}, {16, 8}, {32, 8}, {64, 8}, {176, 16}, {384, PTX_MANY_ROWS}, {4096, PTX_MANY_ROWS}};
    struct ptx_matmul m = {.type = DT_Q4_K, .n_in = 2048, .n_out = 768, .q8 = true, .n_used = 8, .n_experts = 128};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        cr_expect_eq(ptx_matmul_rows(&m, cases[i].rows, 90), cases[i].class, "%u rows: class %u", cases[i].rows,
                     ptx_matmul_rows(&m, cases[i].rows, 90));
    m.q8 = false;
    cr_expect_eq(ptx_matmul_rows(&m, 32, 90), 1);
    cr_expect_eq(ptx_matmul_rows(&m, 64, 90), PTX_MANY_ROWS);
    cr_expect_eq(ptx_matmul_rows(&m, 512, 70), 1);
}

// ---- sizes

static int try_matmul(struct ptx_matmul m)
{
    static char text[TEXT];
    struct ptx p;
    struct ptx_launch l;
    struct error err = {.code = E_OK};
    ptx_start(&p, text, sizeof(text));
    int rc = ptx_emit_matmul(&p, &m, &l, &err);
    cr_assert(rc == 0 || (err.code == E_GPU && p.size == 0), "nothing is written where a size is refused");
    return rc;
}

Test(ptx_matmul, products_that_there_are_not_are_refused)
{
    const struct ptx_matmul good = {.type = DT_Q4_K, .n_in = 256, .n_out = 8, .rows = 8, .q8 = true};
    cr_assert_eq(try_matmul(good), 0);
#define REFUSED(field, value)                                                                                          \
    do {                                                                                                               \
        struct ptx_matmul m = good;                                                                                    \
        m.field = value;                                                                                               \
        cr_assert_eq(try_matmul(m), -1, #field " = " #value);                                                          \
    } while (0)
    REFUSED(type, DT_I32);
    REFUSED(type, DT_COUNT);
    REFUSED(type, DT_F16);
    REFUSED(n_in, 0);
    REFUSED(n_in, 128);
    REFUSED(n_in, 1 << 21);
    REFUSED(n_out, 0);
    REFUSED(n_out, (1 << 20) + 1);
    REFUSED(rows, 0);
    REFUSED(rows, 3);
    REFUSED(rows, PTX_MANY_ROWS); // for no target
    REFUSED(x_stride, 260);
    REFUSED(y_stride, 2);
    REFUSED(n_used, 2);
    REFUSED(scale, true);
#undef REFUSED
}

// ---- ptxas

// Emits a text if it is written for GPUs from `target` on, else nothing.
typedef int emit_any(struct ptx *p, enum dtype type, uint32_t rows, uint32_t target, struct ptx_launch *l,
                     struct error *err);

static int emit_floats(struct ptx *p, enum dtype t, uint32_t rows, uint32_t target, struct ptx_launch *l,
                       struct error *err)
{
    const struct ptx_matmul m = {
        .type = t, .n_in = 4096, .n_out = 4096, .rows = rows, .target = target, .x_stride = 16384, .y_stride = 16384};
    return ptx_has_class(&m, rows, 0) ? ptx_emit_matmul(p, &m, l, err) : 0;
}

static int emit_8_bits(struct ptx *p, enum dtype t, uint32_t rows, uint32_t target, struct ptx_launch *l,
                       struct error *err)
{
    const struct ptx_matmul m = {.type = t,
                                 .n_in = 4096,
                                 .n_out = 4096,
                                 .rows = rows,
                                 .target = target,
                                 .q8 = true,
                                 .x_stride = 4800,
                                 .y_stride = 16384};
    return ptx_takes_q8(t) && ptx_has_class(&m, rows, MAX(ptx_shared_of(target), 65u << 10) - PTX_SHARED_RESERVED)
               ? ptx_emit_matmul(p, &m, l, err)
               : 0;
}

static int emit_grouped(struct ptx *p, enum dtype t, uint32_t rows, uint32_t target, struct ptx_launch *l,
                        struct error *err)
{
    const struct ptx_matmul m = {.type = t,
                                 .n_in = 4096,
                                 .n_out = 4096,
                                 .rows = rows,
                                 .target = target,
                                 .q8 = ptx_takes_q8(t),
                                 .scale = true,
                                 .x_stride = 8 * 4800,
                                 .y_stride = 8 * 16384,
                                 .n_used = 8,
                                 .n_experts = 128,
                                 .x_part = 4800,
                                 .ids_stride = 64};
    if (rows == 1)
        return ptx_emit_group(p, &(struct ptx_group){0, ROWS_TOKENS, 8, 128, 64, 8}, l, err);
    return rows >= PTX_GROUP_LEAST && ptx_has_class(&m, rows, 0) ? ptx_emit_matmul(p, &m, l, err) : 0;
}

static int emit_look_up(struct ptx *p, enum dtype t, uint32_t rows, uint32_t target, struct ptx_launch *l,
                        struct error *err)
{
    (void)target;
    return rows > 1 ? 0 : ptx_emit_get_rows(p, &(struct ptx_get_rows){0, t, 4096, 32000, 16384, 1}, l, err);
}

static int emit_tiles(struct ptx *p, enum dtype t, uint32_t rows, uint32_t target, struct ptx_launch *l,
                      struct error *err)
{
    (void)target;
    return rows > 1 ? 0 : ptx_emit_repack(p, &(struct ptx_repack){0, t, 4096}, l, err);
}

static void assemble(const char *folder, int arch, const char *what)
{
    char command[512], report[4096];
    snprintf(command, sizeof(command), "ptxas -v -arch=sm_%d -o %s/cubin %s/ptx 2>&1", arch, folder, folder);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    size_t n = fread(report, 1, sizeof(report) - 1, out);
    report[n] = 0;
    cr_assert_eq(pclose(out), 0, "%s, sm_%d: %s", what, arch, report);
    cr_assert(!strstr(report, "warning"), "%s, sm_%d: %s", what, arch, report);
    cr_assert(strstr(report, " 0 bytes spill stores, 0 bytes spill loads"), "%s, sm_%d: %s", what, arch, report);
}

// All architectures and classes take minutes; they run in the long suite, where EVERY_ARCH is defined.
#ifdef EVERY_ARCH
static const uint32_t archs[] = {75, 80, 86, 89, 90, 100, 120},
                      classes[] = {1, 2, 4, 8, 16, 32, PTX_MANY_ROWS, PTX_WIDE_ROWS};
enum { TYPE_STEP = 1 };
#else
static const uint32_t archs[] = {75, 90}, classes[] = {1, 32, PTX_MANY_ROWS, PTX_WIDE_ROWS};
enum { TYPE_STEP = 7 };
#endif

static void assemble_for(const char *folder, emit_any *emit, enum dtype type, uint32_t rows, uint32_t arch)
{
    static char text[TEXT];
    char path[64];
    struct ptx p;
    struct ptx_launch l = {.entry = "nothing"};
    struct error err;
    ptx_start(&p, text, sizeof(text));
    cr_assert_eq(emit(&p, type, rows, arch, &l, &err), 0, "%s", err.text);
    if (!p.size)
        return;
    snprintf(path, sizeof(path), "%s/ptx", folder);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fwrite(text, 1, p.size, f);
    cr_assert_eq(fclose(f), 0);
    assemble(folder, (int)arch, dtype_info[type].name);
}

Test(ptx_matmul, kernels_assemble_without_spills, .timeout = 3000)
{
    static emit_any *const emitters[] = {emit_floats, emit_8_bits, emit_grouped, emit_look_up, emit_tiles};
    if (system("command -v ptxas > /dev/null 2>&1") != 0)
        cr_skip_test("ptxas is not found: kernels are not assembled");
    char folder[] = "/tmp/quern-ptx-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    for (size_t t = 1; t < COUNT_OF(types); t += TYPE_STEP)
        for (size_t c = 0; c < COUNT_OF(classes); c++)
            for (size_t e = 0; e < COUNT_OF(emitters); e++)
                for (size_t a = 0; a < COUNT_OF(archs); a++)
                    assemble_for(folder, emitters[e], types[t], classes[c], archs[a]);
    snprintf(path, sizeof(path), "%s/ptx", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/cubin", folder);
    unlink(path);
    rmdir(folder);
}
