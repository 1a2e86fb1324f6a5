// Runs the GPU kernels of a graph's operations on the interpreter and compares them with the reference,
// kernels/cpu/ref.c.
//
// Each test gives random rows to both. There are more rows than the step has, and the extra ones must not be written.
// Buffers have exactly the size of their contents, and outputs start as not written, so the interpreter detects every
// access beyond them.
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/ref_ops.h"
#include "kernels/machine.h"
#include "kernels/ptx/emit_ops.h"
#include "tests/ptx/interpreter.h"

enum { SEED = 20261121, TEXT = 1 << 18, ROWS = 5, MORE = 2, N_SEQS = 2, STRIDE = 6, N_PAGES = 12, N_OUTPUTS = 3 };

static const int32_t positions[ROWS] = {0, 63, 200, 64, 301}, seqs[ROWS] = {0, 1, 0, 1, 1},
                     outputs[N_OUTPUTS] = {1, 2, 4};
static const int32_t pages[N_SEQS * STRIDE] = {7, 2, 9, 4, 0, 11, 3, 8, 1, 10, 6, 5};

static uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static float *random_floats(size_t n, double scale)
{
    static uint64_t state = SEED;
    float *x = malloc(n * sizeof(*x));
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(((double)(random_u64(&state) >> 11) * 0x1p-52 - 1) * scale);
    return x;
}

// ---- the card

struct card {
    struct simt *simt;
    char text[TEXT];
    struct ptx p;
    struct ptx_launch launch;
    struct error err;
    uint64_t step, positions, tables, pages, outputs, kv;
    uint64_t args[8];
    int n_args;
};

static uint64_t to_card(struct card *c, const void *data, size_t size)
{
    uint64_t at = simt_alloc(c->simt, size);
    cr_assert(at && (!data || !simt_put(c->simt, at, data, size, &c->err)), "%s", c->err.text);
    return at;
}

static struct card *card_new(const void *kv, size_t kv_bytes)
{
    struct card *c = calloc(1, sizeof(*c));
    cr_assert(c && (c->simt = simt_new()));
    c->kv = kv ? to_card(c, kv, kv_bytes) : 0;
    struct ptx_step step = {.rows = {ROWS, N_OUTPUTS}, .pages_stride = STRIDE, .kv = c->kv};
    c->step = to_card(c, &step, sizeof(step));
    c->positions = to_card(c, positions, sizeof(positions));
    c->tables = to_card(c, seqs, sizeof(seqs));
    c->pages = to_card(c, pages, sizeof(pages));
    c->outputs = to_card(c, outputs, sizeof(outputs));
    ptx_start(&c->p, c->text, TEXT);
    c->args[c->n_args++] = c->step;
    return c;
}

static void card_free(struct card *c)
{
    simt_free(c->simt);
    free(c);
}

static void arg(struct card *c, uint64_t address)
{
    c->args[c->n_args++] = address;
}

// ---- ptxas, if it is found: no warnings, no spills
//
// All texts for all architectures take a minute; they are assembled in the long suite, where EVERY_ARCH is defined.
// Otherwise only the first text of each kernel is assembled, for the oldest architecture.
#ifdef EVERY_ARCH
static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
enum { TEXTS = INT32_MAX };
#else
static const int archs[] = {75};
enum { TEXTS = 1 };
#endif

static void assemble(const struct card *c)
{
    static struct {
        const char *entry;
        int n;
    } seen[32];
    static int found = -1;
    size_t i = 0;
    while (seen[i].entry && strcmp(seen[i].entry, c->launch.entry))
        i++;
    seen[i].entry = c->launch.entry;
    if (found < 0)
        found = system("command -v ptxas > /dev/null 2>&1") == 0;
    if (!found || seen[i].n++ >= TEXTS)
        return;
    char folder[] = "/tmp/quern-ptx-XXXXXX", command[256], path[64], report[4096];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/ptx", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(c->text, 1, c->p.size, f) == c->p.size && !fclose(f));
    const char *target = strstr(c->text, ".target sm_");
    cr_assert_not_null(target);
    for (size_t a = 0; a < COUNT_OF(archs); a++) {
        int arch = MAX(archs[a], atoi(target + strlen(".target sm_")));
        snprintf(command, sizeof(command), "ptxas -v -arch=sm_%d -o %s/cubin %s 2>&1", arch, folder, path);
        FILE *out = popen(command, "r");
        cr_assert_not_null(out);
        report[fread(report, 1, sizeof(report) - 1, out)] = 0;
        cr_assert_eq(pclose(out), 0, "%s, sm_%d: %s", c->launch.entry, arch, report);
        cr_assert(!strstr(report, "warning"), "%s, sm_%d: %s", c->launch.entry, arch, report);
        cr_assert(strstr(report, " 0 bytes spill stores, 0 bytes spill loads"), "%s: %s", c->launch.entry, report);
    }
    snprintf(command, sizeof(command), "%s/cubin", folder);
    remove(command);
    remove(path);
    remove(folder);
}

// Launches with more rows than the step has.
static void launch(struct card *c)
{
    char entry[64];
    cr_assert_eq(simt_load(c->simt, (struct str){c->text, c->p.size}, &c->err), 0, "%s\n%s", c->err.text, c->text);
    snprintf(entry, sizeof(entry), "%s_7", c->launch.entry);
    const struct simt_kernel *kernel = simt_find(c->simt, entry);
    cr_assert_not_null(kernel, "%s", entry);
    assemble(c);
    const uint32_t *g = c->launch.grid, *b = c->launch.block;
    cr_assert_eq(simt_launch(c->simt, kernel, (struct simt_dim){g[0] * (ROWS + MORE), g[1], g[2]},
                             (struct simt_dim){b[0], b[1], b[2]}, 0, c->args, (size_t)c->n_args * 8, &c->err),
                 0, "%s", c->err.text);
}

static void expect_near(struct card *c, uint64_t at, const float *want, size_t n, double bound, const char *what)
{
    float *got = malloc(n * sizeof(*got));
    double largest = 0, worst = 0;
    cr_assert_eq(simt_get(c->simt, at, got, n * sizeof(*got), &c->err), 0, "%s: %s", what, c->err.text);
    for (size_t i = 0; i < n; i++) {
        cr_assert(isfinite(got[i]), "%s: element %zu is %g, not %g", what, i, (double)got[i], (double)want[i]);
        largest = fmax(largest, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    cr_expect(worst <= bound * largest, "%s: %g of %g", what, worst, largest);
    free(got);
}

// ---- the reference

struct reference {
    struct tensor src[SRC_MAX], node;
    float *values[SRC_MAX + 1];
    struct ref_run run;
    struct step step;
    size_t kv_offset[1][2];
    struct kv_layer kv_layer;
    double sums[4096];
    float decoded[4096];
    enum dtype kv_type[2];
};

// Makes a node with up to SOURCES sources of those widths; values[SRC_MAX] is its output.
enum { SOURCES = 3 };

static struct reference *reference_new(enum op op, enum rows rows, int64_t width, const int64_t *widths, double scale)
{
    struct reference *l = calloc(1, sizeof(*l));
    cr_assert_not_null(l);
    l->node = (struct tensor){.op = op, .id = SRC_MAX, .name = "node", .rows = rows, .width = width};
    for (int s = 0; s < SOURCES; s++) {
        if (!widths[s])
            continue;
        l->src[s] = (struct tensor){.id = s, .rows = rows, .width = widths[s]};
        l->node.src[s] = &l->src[s];
        l->values[s] = random_floats((size_t)ROWS * (size_t)widths[s], scale);
    }
    l->values[SRC_MAX] = calloc((size_t)ROWS * (size_t)MAX(width, 1), sizeof(float));
    l->step = (struct step){.n_tokens = ROWS,
                            .n_outputs = N_OUTPUTS,
                            .positions = positions,
                            .seqs = seqs,
                            .outputs = outputs,
                            .pages = pages,
                            .pages_stride = STRIDE};
    l->run = (struct ref_run){.step = &l->step,
                              .values = l->values,
                              .kv_type = l->kv_type,
                              .kv_layers = &l->kv_layer,
                              .kv_offset = (const size_t(*)[2])l->kv_offset,
                              .decoded = l->decoded,
                              .sums = l->sums};
    return l;
}

static void reference_free(struct reference *l)
{
    for (int i = 0; i <= SRC_MAX; i++)
        free(l->values[i]);
    free(l);
}

static uint64_t source(struct card *c, const struct reference *l, int s)
{
    return to_card(c, l->values[s], (size_t)ROWS * (size_t)l->src[s].width * sizeof(float));
}

// Launches the kernel and compares the rows that the step has.
static void finish(struct card *c, struct reference *l, int emitted, double bound, const char *what)
{
    size_t n = (size_t)(l->node.rows == ROWS_TOKENS ? ROWS : N_OUTPUTS) * (size_t)l->node.width;
    cr_assert_eq(emitted, 0, "%s: %s", what, c->err.text);
    uint64_t y = to_card(c, NULL, n * sizeof(float));
    arg(c, y);
    launch(c);
    ref_node(&l->run, &l->node);
    expect_near(c, y, l->values[SRC_MAX], n, bound, what);
    card_free(c);
    reference_free(l);
}

// ---- elements

static void check_element(struct ptx_elements e, enum op op, double scale)
{
    static const uint32_t widths[] = {1, 30, 516, 1030};
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        struct card *c = card_new(NULL, 0);
        int64_t w = e.width = widths[i];
        bool two = op == OP_ADD || op == OP_GLU;
        struct reference *l =
            reference_new(op, i % 2 ? ROWS_OUTPUTS : ROWS_TOKENS, w, (int64_t[]){w, two ? w : 0, 0}, scale);
        if (op == OP_XIELU)
            l->node.p.xielu = e.xielu;
        else if (op == OP_SCALE || op == OP_SOFTCAP || op == OP_CLAMP)
            l->node.p.scale.factor = e.factor;
        else
            l->node.p.act.kind = e.act;
        e.rows = l->node.rows;
        e.node = 7;
        arg(c, source(c, l, 0));
        if (two)
            arg(c, source(c, l, 1));
        finish(c, l, ptx_emit_elements(&c->p, &e, &c->launch, &c->err), 1e-6, op_name(op));
    }
}

// Rows of b are longer than those of y, and begin anywhere in them.
Test(ptx_ops, a_gate_takes_some_columns_of_a_wider_value)
{
    static const struct {
        uint32_t width, wide, first;
    } cases[] = {{4, 12, 4}, {516, 1032, 516}, {8, 12, 3}, {8, 13, 4}, {30, 61, 31}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct card *c = card_new(NULL, 0);
        const uint32_t w = cases[i].width, wide = cases[i].wide, first = cases[i].first;
        struct reference *l = reference_new(OP_GLU, ROWS_TOKENS, w, (int64_t[]){w, wide, 0}, 3);
        struct ptx_elements e = {.node = 7, .width = w, .op = PTX_GLU, .act = ACT_GELU_TANH, .b_width = wide};
        e.b_loose = first % 4;
        l->node.p.act.kind = e.act;
        l->node.p.act.first = first;
        arg(c, source(c, l, 0));
        arg(c, source(c, l, 1) + 4 * first);
        finish(c, l, ptx_emit_elements(&c->p, &e, &c->launch, &c->err), 1e-6, "part");
    }
}

Test(ptx_ops, elements_are_those_of_the_law)
{
    for (int kind = 0; kind <= ACT_SOFTPLUS; kind++) {
        check_element((struct ptx_elements){.op = PTX_ACT, .act = kind}, OP_ACT, 6);
        check_element((struct ptx_elements){.op = PTX_GLU, .act = kind}, OP_GLU, 3);
    }
    check_element((struct ptx_elements){.op = PTX_GLU, .act = ACT_SWIGLU_CLAMPED}, OP_GLU, 12);
    check_element((struct ptx_elements){.op = PTX_ADD}, OP_ADD, 1);
    check_element((struct ptx_elements){.op = PTX_SCALE, .factor = 0.3f}, OP_SCALE, 1);
    check_element((struct ptx_elements){.op = PTX_SOFTCAP, .factor = 30}, OP_SOFTCAP, 100);
    check_element((struct ptx_elements){.op = PTX_SOFTCAP, .factor = 50}, OP_SOFTCAP, 1);
    check_element((struct ptx_elements){.op = PTX_CLAMP, .factor = 3}, OP_CLAMP, 5);
    check_element((struct ptx_elements){.op = PTX_XIELU, .xielu = {1.3f, 0.8f, 0.5f, -1e-6f}}, OP_XIELU, 6);
    check_element((struct ptx_elements){.op = PTX_XIELU, .xielu = {1.3f, 0.8f, 0.5f, -0.2f}}, OP_XIELU, 0.1);
}

Test(ptx_ops, columns_of_a_head_share_a_gate)
{
    static const struct {
        uint32_t heads, dim;
    } cases[] = {{3, 8}, {129, 4}, {2, 260}, {5, 3}, {1, 7}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (enum act_kind kind = ACT_SIGMOID; kind <= ACT_SOFTPLUS; kind++) {
            struct card *c = card_new(NULL, 0);
            const uint32_t w = cases[i].heads * cases[i].dim;
            struct reference *l = reference_new(OP_HEAD_GLU, ROWS_TOKENS, w, (int64_t[]){cases[i].heads, w, 0}, 3);
            struct ptx_elements e = {.node = 7, .width = w, .op = PTX_GLU, .act = kind, .a_share = cases[i].dim};
            l->node.p.act.kind = kind;
            arg(c, source(c, l, 0));
            arg(c, source(c, l, 1));
            finish(c, l, ptx_emit_elements(&c->p, &e, &c->launch, &c->err), 1e-6, "head glu");
        }
}

Test(ptx_ops, a_gain_is_one_row_for_all_rows)
{
    for (uint32_t width = 7; width <= 516; width += 509) {
        struct card *c = card_new(NULL, 0);
        struct reference *l = reference_new(OP_GAIN, ROWS_TOKENS, width, (int64_t[]){width, 0, 0}, 3);
        float gains[516];
        for (uint32_t i = 0; i < width; i++)
            gains[i] = (float)i / 100 - 2;
        struct weight w = {.type = DT_F32, .ne = {width, 1, 1}, .data = gains, .row_bytes = width * sizeof(float)};
        struct ptx_elements e = {.node = 7, .width = width, .op = PTX_GLU, .act = ACT_NONE, .b_one_row = true};
        l->node.w[0] = &w;
        arg(c, source(c, l, 0));
        arg(c, to_card(c, gains, width * sizeof(float)));
        finish(c, l, ptx_emit_elements(&c->p, &e, &c->launch, &c->err), 1e-6, "gain");
    }
}

Test(ptx_ops, rows_that_want_logits_are_picked)
{
    for (int width = 7; width <= 1024; width += 1017) {
        struct card *c = card_new(NULL, 0);
        struct reference *l = reference_new(OP_ROWS, ROWS_OUTPUTS, width, (int64_t[]){width, 0, 0}, 1);
        arg(c, c->outputs);
        arg(c, source(c, l, 0));
        struct ptx_pick k = {7, (uint32_t)width};
        finish(c, l, ptx_emit_pick(&c->p, &k, &c->launch, &c->err), 0, "pick");
    }
}

// ---- norms

static void check_norm(uint32_t width, uint32_t group, enum norm_kind kind, bool gain, bool bias)
{
    struct card *c = card_new(NULL, 0);
    struct reference *l = reference_new(OP_NORM, ROWS_TOKENS, width, (int64_t[]){width, 0, 0}, 1);
    struct weight w[2];
    l->node.p.norm.kind = kind;
    l->node.p.norm.eps = 1e-5f;
    l->node.p.norm.group = group == width ? 0 : group;
    arg(c, source(c, l, 0));
    for (int i = 0; i < 2; i++) {
        w[i] = (struct weight){.type = DT_F32, .ne = {group, 1, 1}, .data = random_floats(group, 1)};
        if (!(i ? bias : gain))
            continue;
        l->node.w[i] = &w[i];
        arg(c, to_card(c, w[i].data, group * sizeof(float)));
    }
    struct ptx_norm n = {7, ROWS_TOKENS, width, group, kind, 1e-5f, gain, bias, false};
    finish(c, l, ptx_emit_norm(&c->p, &n, &c->launch, &c->err), 2e-6, "norm");
    free((void *)(uintptr_t)w[0].data);
    free((void *)(uintptr_t)w[1].data);
}

Test(ptx_ops, norms_are_those_of_the_law)
{
    static const uint32_t widths[] = {5, 32, 288, 1500, 2048};
    for (size_t i = 0; i < COUNT_OF(widths); i++)
        for (int mask = 0; mask < 4; mask++) {
            check_norm(widths[i], widths[i], NORM_RMS, mask & 1, mask & 2);
            check_norm(widths[i], widths[i], NORM_LAYER, mask & 1, mask & 2);
        }
    check_norm(96, 8, NORM_RMS, true, false);
    check_norm(512, 128, NORM_RMS, true, false);
}

// ---- rope

static void check_rope_table(float growth)
{
    enum { PAIRS = 70 };
    double frequencies[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        frequencies[i] = 1.5 * pow(10000, -i / (double)PAIRS);
    struct card *c = card_new(NULL, 0);
    struct reference *l = reference_new(OP_ROPE_TABLE, ROWS_TOKENS, 2 * PAIRS, (int64_t[]){0, 0, 0}, 1);
    int32_t far[ROWS] = {0, 1, 131071, 1000003, 77777};
    l->step.positions = far;
    l->node.p.rope_table.n_pairs = PAIRS;
    l->node.p.rope_table.inv_freq = frequencies;
    l->node.p.rope_table.mscale = 1.25f;
    arg(c, to_card(c, far, sizeof(far)));
    arg(c, to_card(c, frequencies, sizeof(frequencies)));
    l->node.p.rope_table.growth = growth;
    l->node.p.rope_table.period = 5000;
    l->node.p.rope_table.offset = 3;
    struct ptx_rope_table t = {7, PAIRS, 1.25f, growth, 5000, 3};
    finish(c, l, ptx_emit_rope_table(&c->p, &t, &c->launch, &c->err), growth != 0 ? 3e-7 : 1e-7, "rope table");
}

Test(ptx_ops, angles_are_those_of_the_law)
{
    check_rope_table(0);
}

Test(ptx_ops, tables_grow_with_the_position_as_by_the_law)
{
    check_rope_table(0.1f);
    check_rope_table(2);
}

Test(ptx_ops, heads_turn_as_the_law_has_it)
{
    static const struct {
        int64_t heads, dim, pairs;
    } cases[] = {{1, 2, 1}, {4, 8, 4}, {3, 64, 32}, {5, 96, 16}, {2, 10, 3}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int layout = ROPE_NORM; layout <= ROPE_NEOX; layout++) {
            int64_t pairs = cases[i].pairs, width = cases[i].heads * cases[i].dim;
            struct card *c = card_new(NULL, 0);
            struct reference *l = reference_new(OP_ROPE, ROWS_TOKENS, width, (int64_t[]){width, 2 * pairs, 0}, 1);
            l->src[1].p.rope_table.n_pairs = pairs;
            l->node.p.rope.head_dim = cases[i].dim;
            l->node.p.rope.layout = layout;
            arg(c, source(c, l, 0));
            arg(c, source(c, l, 1));
            struct ptx_rope r = {7, ROWS_TOKENS, (uint32_t)width, (uint32_t)cases[i].dim, (uint32_t)pairs, layout};
            finish(c, l, ptx_emit_rope(&c->p, &r, &c->launch, &c->err), 3e-7, "rope");
        }
}

// ---- the cache

static const enum dtype kv_types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};

static void check_write(enum dtype type, int64_t dim)
{
    enum { HEADS = 3, OFFSET = 64 };
    size_t page = align_up(OFFSET + HEADS * KV_PAGE * dtype_row_bytes(type, dim), 64), all = page * N_PAGES;
    uint8_t *kv = calloc(1, all), *got = malloc(all);
    struct card *c = card_new(kv, all);
    struct reference *l = reference_new(OP_KV_WRITE, ROWS_TOKENS, 0, (int64_t[]){HEADS * dim, 0, 0}, 3);
    l->kv_type[KV_KEY] = type;
    l->kv_layer = (struct kv_layer){HEADS, (int)dim, (int)dim, false};
    l->kv_offset[0][KV_KEY] = OFFSET;
    l->run.kv = kv;
    l->run.page_bytes = page;
    l->node.p.kv.part = KV_KEY;
    l->node.p.kv.head_dim = dim;
    float *x = l->values[0];
    for (int i = 0; i < dim; i++)
        x[i] = 0; // a block of zeros; then an infinity, a NaN, and values at the limits of half precision
    x[dim] = type == DT_F32 ? 1 : INFINITY;
    x[2 * dim] = dtype_info[type].block > 1 ? NAN : 0; // float types may store a different NaN
    x[3 * dim] = 1e9f;
    x[4 * dim] = 1e-9f;
    for (int i = 0; i < dim; i++)
        x[5 * dim + i] *= 1e-8f;
    uint64_t args[] = {c->positions, c->tables, c->pages, source(c, l, 0)};
    for (size_t i = 0; i < COUNT_OF(args); i++)
        arg(c, args[i]);
    struct ptx_kv_write w = {7, HEADS, {(uint32_t)page, OFFSET, (uint32_t)dim, type, 0}};
    cr_assert_eq(ptx_emit_kv_write(&c->p, &w, &c->launch, &c->err), 0, "%s", c->err.text);
    launch(c);
    ref_node(&l->run, &l->node);
    cr_assert_eq(simt_get(c->simt, c->kv, got, all, &c->err), 0, "%s", c->err.text);
    for (size_t i = 0; i < all; i++)
        cr_assert_eq(got[i], kv[i], "%s, heads of %d: byte %zu is %d, not %d", dtype_info[type].name, (int)dim, i,
                     got[i], kv[i]);
    free(kv);
    free(got);
    card_free(c);
    reference_free(l);
}

Test(ptx_ops, the_cache_gets_the_bytes_of_the_law)
{
    for (size_t i = 0; i < COUNT_OF(kv_types); i++) {
        check_write(kv_types[i], 64);
        if (dtype_info[kv_types[i]].block == 1)
            check_write(kv_types[i], 10);
    }
}

struct heads {
    int n, n_kv, dim_k, dim_v, window;
    float softcap;
};

static void check_attend(enum dtype type, struct heads h)
{
    size_t k_row = dtype_row_bytes(type, h.dim_k), v_row = dtype_row_bytes(type, h.dim_v);
    size_t v_at = align_up((size_t)h.n_kv * KV_PAGE * k_row, 64);
    size_t page = align_up(v_at + (size_t)h.n_kv * KV_PAGE * v_row, 64), all = page * N_PAGES;
    uint8_t *kv = calloc(1, all);
    for (size_t at = 0; at + page <= all; at += page)
        for (int part = 0; part < 2; part++) {
            int64_t n = (int64_t)h.n_kv * KV_PAGE * (part ? h.dim_v : h.dim_k);
            float *x = random_floats((size_t)n, 2);
            dtype_encode[type](x, kv + at + (part ? v_at : 0), n);
            free(x);
        }
    struct card *c = card_new(kv, all);
    struct reference *l = reference_new(OP_ATTENTION, ROWS_TOKENS, h.n * h.dim_v, (int64_t[]){h.n * h.dim_k, 0, 0}, 2);
    l->kv_type[0] = l->kv_type[1] = type;
    l->kv_layer = (struct kv_layer){h.n_kv, h.dim_k, h.dim_v, false};
    l->kv_offset[0][1] = v_at;
    l->run.kv = kv;
    l->run.page_bytes = page;
    l->node.p.attn.n_head = h.n;
    l->node.p.attn.n_head_kv = h.n_kv;
    l->node.p.attn.dim_k = h.dim_k;
    l->node.p.attn.dim_v = h.dim_v;
    l->node.p.attn.scale = 0.3f;
    l->node.p.attn.softcap = h.softcap;
    l->node.p.attn.window = h.window;
    struct ptx_attend a = {.node = 7,
                           .rows = ROWS_TOKENS,
                           .heads = (uint32_t)h.n,
                           .heads_kv = (uint32_t)h.n_kv,
                           .k = {(uint32_t)page, 0, (uint32_t)h.dim_k, type, 0},
                           .v = {(uint32_t)page, (uint32_t)v_at, (uint32_t)h.dim_v, type, 0},
                           .scale = 0.3f,
                           .softcap = h.softcap,
                           .window = (uint32_t)h.window,
                           .form = PTX_ATTEND_ROWS,
                           .splits = 2};
    size_t counters = ptx_attend_counters(&a, ROWS);
    void *zeros = calloc(1, counters);
    uint64_t args[] = {c->positions,
                       c->tables,
                       c->pages,
                       source(c, l, 0),
                       to_card(c, NULL, ptx_attend_partials(&a, ROWS)),
                       to_card(c, zeros, counters)};
    for (size_t i = 0; i < COUNT_OF(args); i++)
        arg(c, args[i]);
    free(zeros);
    finish(c, l, ptx_emit_attend(&c->p, &a, &c->launch, &c->err), 3e-6, dtype_info[type].name);
    free(kv);
}

Test(ptx_ops, attention_is_that_of_the_law)
{
    static const struct heads cases[] = {{4, 2, 32, 32, 0, 0},   {2, 1, 64, 64, 0, 0},   {2, 2, 96, 160, 0, 20},
                                         {3, 1, 128, 256, 0, 0}, {2, 1, 64, 64, 100, 5}, {2, 1, 32, 64, 1, 0}};
    for (size_t i = 0; i < COUNT_OF(kv_types); i++)
        for (size_t j = 0; j < COUNT_OF(cases); j++)
            check_attend(kv_types[i], cases[j]);
    for (size_t i = 0; i < 3; i++) {
        check_attend(kv_types[i], (struct heads){2, 1, 8, 8, 0, 0});
        check_attend(kv_types[i], (struct heads){2, 1, 10, 6, 0, 0});
    }
}

// ---- mixtures

struct route_case {
    int experts, used;
    bool normalise, bias;
    int groups, groups_used;
};

// Runs the kernel for a compute capability, with the arguments that follow the step.
static void run_route(const struct ptx_route *r, uint32_t target, const struct reference *l, const float *bias,
                      float *got)
{
    struct card *c = card_new(NULL, 0);
    struct ptx_route on = *r;
    size_t bytes = sizeof(float) * 2 * r->used * ROWS;
    on.target = target;
    arg(c, source(c, l, 0));
    if (r->bias)
        arg(c, to_card(c, bias, (size_t)r->experts * 4));
    cr_assert_eq(ptx_emit_route(&c->p, &on, &c->launch, &c->err), 0, "%s", c->err.text);
    uint64_t y = to_card(c, NULL, bytes);
    arg(c, y);
    launch(c);
    cr_assert_eq(simt_get(c->simt, y, got, bytes, &c->err), 0, "%s", c->err.text);
    card_free(c);
}

// odd: some logits are no numbers, infinite, or -0; only that both kernels agree is checked then.
static void check_route_of(enum route_kind kind, struct route_case k, bool ties, bool odd, int share)
{
    const int experts = k.experts, used = k.used;
    struct reference *l =
        reference_new(OP_ROUTE, ROWS_TOKENS, 2 * used, (int64_t[]){experts, 0, 0}, k.bias || k.groups ? 1 : 4);
    float *bias = random_floats((size_t)experts, 0.3);
    const struct weight w = {.type = DT_F32, .ne = {experts, 1, 1}, .data = bias, .row_bytes = 4 * (size_t)experts};
    for (int i = 0; ties && i < ROWS * experts; i++)
        l->values[0][i] = rintf(l->values[0][i]);
    for (int i = 0; ties && i < experts; i++)
        bias[i] = 0.25f * rintf(8 * bias[i]);
    static const float values[] = {NAN, -INFINITY, INFINITY, -0.0f, -NAN};
    for (int i = 0; odd && i < ROWS * experts; i += i / experts % 2 ? 1 : 3)
        l->values[0][i] = values[(i * 7 / 3) % (int)COUNT_OF(values)];
    l->node.w[0] = k.bias ? &w : NULL;
    l->node.p.route.n_group = k.groups;
    l->node.p.route.n_group_used = k.groups_used;
    l->node.p.route.kind = kind;
    l->node.p.route.n_used = used;
    l->node.p.route.normalise = k.normalise;
    l->node.p.route.scale = 1.5f;
    l->node.p.route.share = share;
    struct ptx_route r = {.node = 7,
                          .rows = ROWS_TOKENS,
                          .experts = (uint32_t)experts,
                          .used = (uint32_t)used,
                          .kind = kind,
                          .normalise = k.normalise,
                          .scale = 1.5f,
                          .bias = k.bias,
                          .groups = (uint32_t)k.groups,
                          .groups_used = (uint32_t)k.groups_used,
                          .share = (uint32_t)share};
    size_t n = (size_t)(2 * used * ROWS);
    float *got = malloc(n * sizeof(*got)), *again = malloc(n * sizeof(*got)), *want = l->values[SRC_MAX];
    run_route(&r, 75, l, bias, got);
    run_route(&r, 80, l, bias, again);
    cr_expect(!memcmp(got, again, n * sizeof(*got)), "%d of %d experts: keys give other bits", used, experts);
    ref_node(&l->run, &l->node);
    for (size_t i = 0; i < n && !odd; i++) {
        bool is_id = i % (size_t)(2 * used) >= (size_t)used;
        bool same = is_id ? !memcmp(&got[i], &want[i], 4) : fabsf(got[i] - want[i]) <= 2e-6f * fabsf(want[i]);
        cr_expect(same, "%d of %d experts: number %zu is %g, not %g", used, experts, i, (double)got[i],
                  (double)want[i]);
    }
    free(got);
    free(again);
    free(bias);
    reference_free(l);
}

static void check_route(enum route_kind kind, struct route_case k, bool ties)
{
    check_route_of(kind, k, ties, false, 0);
    check_route_of(kind, k, ties, true, 0);
}

Test(ptx_ops, experts_are_chosen_as_by_the_law)
{
    for (int kind = ROUTE_SOFTMAX; kind <= ROUTE_SIGMOID; kind++)
        for (int ties = 0; ties < 2; ties++) {
            check_route(kind, (struct route_case){4, 2, true, false, 0, 0}, ties);
            check_route(kind, (struct route_case){8, 8, false, false, 0, 0}, ties);
            check_route(kind, (struct route_case){1, 1, true, false, 0, 0}, ties);
            check_route(kind, (struct route_case){130, 9, true, false, 0, 0}, ties);
        }
}

Test(ptx_ops, experts_are_chosen_by_biases_and_groups_as_by_the_law)
{
    for (int kind = ROUTE_SOFTMAX; kind <= ROUTE_SIGMOID; kind++)
        for (int ties = 0; ties < 2; ties++) {
            check_route(kind, (struct route_case){5, 2, true, true, 0, 0}, ties);
            check_route(kind, (struct route_case){130, 9, false, true, 0, 0}, ties);
            check_route(kind, (struct route_case){8, 4, true, false, 2, 1}, ties);
            check_route(kind, (struct route_case){256, 8, true, true, 8, 4}, ties);
            check_route(kind, (struct route_case){99, 6, true, true, 33, 33}, ties);
            check_route(kind, (struct route_case){105, 3, false, true, 35, 2}, ties);
        }
}

Test(ptx_ops, experts_that_share_one_take_its_number_as_by_the_law)
{
    for (int kind = ROUTE_SOFTMAX; kind <= ROUTE_SIGMOID; kind++)
        for (int odd = 0; odd < 2; odd++) {
            check_route_of(kind, (struct route_case){8, 4, true, false, 0, 0}, odd, odd, 2);
            check_route_of(kind, (struct route_case){128, 8, true, false, 0, 0}, !odd, odd, 2);
            check_route_of(kind, (struct route_case){600, 3, false, false, 0, 0}, false, odd, 5);
            check_route_of(kind, (struct route_case){12, 5, true, true, 0, 0}, false, odd, 3);
        }
}

Test(ptx_ops, parts_of_experts_are_summed_in_order)
{
    for (int width = 6; width <= 600; width = width == 6 ? 10 : width + 590) {
        struct card *c = card_new(NULL, 0);
        struct reference *l = reference_new(OP_EXPERT_COMBINE, ROWS_TOKENS, width, (int64_t[]){3 * width, 6, 0}, 1);
        l->node.p.expert.n_used = 3;
        l->src[1].p.route.n_used = 3;
        arg(c, source(c, l, 0));
        arg(c, source(c, l, 1));
        l->node.p.expert.plain = width == 10;
        struct ptx_combine k = {7, ROWS_TOKENS, (uint32_t)width, 3, width == 10};
        finish(c, l, ptx_emit_combine(&c->p, &k, &c->launch, &c->err), 3e-7, "combine");
    }
}

Test(ptx_ops, inputs_of_experts_are_weighed)
{
    for (int width = 6; width <= 600; width += 594) {
        struct card *c = card_new(NULL, 0);
        struct reference *l = reference_new(OP_EXPERT_WEIGH, ROWS_TOKENS, 3 * width, (int64_t[]){width, 6, 0}, 1);
        l->node.p.expert.n_used = 3;
        l->src[1].p.route.n_used = 3;
        arg(c, source(c, l, 0));
        arg(c, source(c, l, 1));
        struct ptx_combine k = {7, ROWS_TOKENS, (uint32_t)width, 3, false};
        finish(c, l, ptx_emit_weigh(&c->p, &k, &c->launch, &c->err), 1e-7, "weigh");
    }
}

// ---- the first logits

// Runs all launches for N_OUTPUTS rows and some more that the step does not have, and compares the candidates with
// top_k_of.
static void check_top(uint32_t n, uint32_t keep, uint32_t k, bool ties, bool odd)
{
    struct card *c = card_new(NULL, 0);
    float *x = random_floats((size_t)N_OUTPUTS * n, 8);
    for (size_t i = 0; ties && i < (size_t)N_OUTPUTS * n; i++)
        x[i] = rintf(x[i]) * (i % 3 ? 1.0f : -1.0f);
    if (odd)
        x[n + n / 2] = ties ? NAN : -INFINITY;
    struct ptx_step step = {.rows = {ROWS, N_OUTPUTS}, .top_k = k};
    cr_assert_eq(simt_put(c->simt, c->step, &step, sizeof(step), &c->err), 0);
    uint64_t from = to_card(c, x, (size_t)N_OUTPUTS * n * sizeof(*x)), to;
    struct ptx_top t = {7, n, keep, false};
    do {
        ptx_start(&c->p, c->text, TEXT);
        cr_assert_eq(ptx_emit_top(&c->p, &t, &c->launch, &c->err), 0, "%s", c->err.text);
        bool last = c->launch.grid[1] == 1;
        to = to_card(c, NULL, (size_t)N_OUTPUTS * 8 * (last ? k : c->launch.grid[1] * keep));
        c->n_args = 1;
        arg(c, from);
        arg(c, to);
        launch(c);
        from = to;
        t.n = c->launch.grid[1] * keep;
        t.keys = true;
    } while (c->launch.grid[1] > 1);
    struct candidate got[TOP_K_MAX * N_OUTPUTS], want[TOP_K_MAX];
    cr_assert_eq(simt_get(c->simt, to, got, N_OUTPUTS * k * sizeof(*got), &c->err), 0, "%s", c->err.text);
    for (size_t row = 0; row < N_OUTPUTS; row++) {
        top_k_of(x + row * n, n, (int)k, want);
        bool bad = odd && row == 1;
        cr_expect(bad ? got[k].id == -1 && want[0].id == -1 : memcmp(got + row * k, want, k * sizeof(*want)) == 0,
                  "the %u first of %u, row %zu%s: %d (%g), not %d (%g)", k, n, row, ties ? ", ties" : "",
                  got[row * k].id, (double)got[row * k].logit, want[0].id, (double)want[0].logit);
    }
    free(x);
    card_free(c);
}

Test(ptx_ops, first_logits_are_those_of_the_host)
{
    static const struct {
        uint32_t n, keep, k;
    } cases[] = {{1, 1, 1},   {512, 1, 1},  {1024, 1, 1},   {5000, 1, 1},    {70001, 1, 1},     {40, 64, 40},
                 {513, 2, 2}, {3001, 4, 3}, {4097, 64, 40}, {10000, 64, 64}, {20000, 256, 200}, {300, 256, 256}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int ties = 0; ties < 2; ties++)
            for (int odd = 0; odd < 2; odd++)
                check_top(cases[i].n, cases[i].keep, cases[i].k, ties, odd);
}

// ---- refused sizes

Test(ptx_ops, sizes_that_cannot_be_are_refused)
{
    struct card *c = card_new(NULL, 0);
    struct ptx_kv kv = {1 << 20, 0, 33, DT_Q8_0, 0};
    cr_expect(ptx_emit_norm(&c->p, &(struct ptx_norm){.width = 10, .group = 4, .eps = 1}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_norm(&c->p, &(struct ptx_norm){.width = 8, .group = 4, .eps = NAN}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_kv_write(&c->p, &(struct ptx_kv_write){7, 1, kv}, &c->launch, &c->err) < 0);
    kv.type = DT_Q6_K;
    cr_expect(ptx_emit_kv_write(&c->p, &(struct ptx_kv_write){7, 1, kv}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_rope(&c->p, &(struct ptx_rope){7, 0, 8, 4, 3, 0}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_route(&c->p, &(struct ptx_route){7, 0, 2, 3, 0, false, 1, false, 0, 0, 0, 75}, &c->launch,
                             &c->err) < 0);
    cr_expect(ptx_emit_top(&c->p, &(struct ptx_top){7, 1000, 3, false}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_top(&c->p, &(struct ptx_top){7, 1000, 512, false}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_top(&c->p, &(struct ptx_top){7, 1000, 64, true}, &c->launch, &c->err) < 0);
    cr_expect(ptx_emit_elements(&c->p, &(struct ptx_elements){.node = 7}, &c->launch, &c->err) < 0);
    card_free(c);
}
