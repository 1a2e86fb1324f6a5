// Tests that the tests of PTX detect wrong kernels, by mutation: emitted kernels are changed in one random place
// (another register, a number off by one, a barrier removed, a comparison or an operation reversed, an instruction
// removed), and each change must cause a fault or a wrong result.
//
// A change that no longer parses is not counted, because any compiler would find it. Some changes have no effect (a
// bound that no size reaches, an equal address) and are never detected, so the required share is below 1.
#include "gguf/dtype.h"
#include "bench/ptx/emitters.h"
#include "tests/ptx/interpreter.h"
#include "tests/ptx_mutate.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef MUTATIONS
#define MUTATIONS 250
#endif
enum { SEED = 20261121, TEXT_SIZE = 1 << 16, MAX_ARGS = 4, NODE = 7, Q4_K_BYTES = 144 };

// ---- subjects

struct subject {
    const char *name;
    char text[TEXT_SIZE];
    size_t len;
    struct ptx_launch launch;
    int n_args;
    void *args[MAX_ARGS];
    size_t sizes[MAX_ARGS], out_size;
    float *want;
    uint32_t unit;  // sizes are multiples of it; 0: any size
    double bound;   // of the error, as a share of the largest expected value
    uint64_t a_cta; // instructions of a CTA of the unchanged kernel
};

// Runs a text. Returns 0 with the result in `out`; -1 if it does not parse (*parsed is false) or has a fault.
static int run(const struct subject *s, const char *text, size_t len, uint64_t limit, float *out, bool *parsed,
               uint64_t *instructions)
{
    struct error err;
    struct simt *m = simt_new();
    uint64_t at[MAX_ARGS + 1];
    char entry[64];
    cr_assert_not_null(m);
    snprintf(entry, sizeof(entry), "%s_%d", s->launch.entry, NODE);
    *parsed = !simt_load(m, (struct str){text, len}, &err) && simt_find(m, entry);
    int rc = *parsed ? 0 : -1;
    for (int i = 0; !rc && i < s->n_args; i++) {
        at[i] = simt_alloc(m, s->sizes[i]);
        rc = simt_put(m, at[i], s->args[i], s->sizes[i], &err);
    }
    const uint32_t *g = s->launch.grid, *b = s->launch.block;
    simt_set_limit(m, limit);
    if (!rc) {
        at[s->n_args] = simt_alloc(m, s->out_size);
        rc = simt_launch(m, simt_find(m, entry), (struct simt_dim){g[0], g[1], g[2]},
                         (struct simt_dim){b[0], b[1], b[2]}, 0, at, (size_t)(s->n_args + 1) * 8, &err) ||
                     simt_get(m, at[s->n_args], out, s->out_size, &err)
                 ? -1
                 : 0;
    }
    *instructions = simt_count(m).instructions;
    simt_free(m);
    return rc;
}

static void *random_bytes(size_t size, uint64_t *state)
{
    uint8_t *p = malloc(size);
    cr_assert_not_null(p);
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)mutate_random(state);
    return p;
}

static float *random_floats(size_t n, uint64_t *state)
{
    float *x = malloc(n * sizeof(*x));
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)(mutate_random(state) >> 11) * 0x1p-52 - 1);
    return x;
}

static uint16_t *random_halves(size_t n, uint64_t *state)
{
    uint16_t *h = malloc(n * sizeof(*h));
    cr_assert_not_null(h);
    for (size_t i = 0; i < n; i++)
        h[i] = f32_to_f16((float)((double)(mutate_random(state) >> 11) * 0x1p-52 - 1));
    return h;
}

static void add_arg(struct subject *s, void *data, size_t size)
{
    s->args[s->n_args] = data;
    s->sizes[s->n_args++] = size;
}

typedef int gemm_emitter(struct ptx *, const struct ptx_gemm *, struct ptx_launch *, struct error *);
enum operand { FLOATS, HALVES, Q4_K };

static int make_gemm(struct subject *s, gemm_emitter *emit, struct ptx_gemm g, enum operand type, struct ptx *p,
                     uint64_t *state, struct error *err)
{
    size_t na = (size_t)g.m * g.k, nb = (size_t)g.k * g.n;
    g.node = NODE;
    if (type == HALVES) {
        add_arg(s, random_halves(na, state), na * 2);
        add_arg(s, random_halves(nb, state), nb * 2);
    } else {
        add_arg(s, random_floats(na, state), na * 4);
        if (type == FLOATS)
            add_arg(s, random_floats(nb, state), nb * 4);
    }
    if (type == Q4_K) {
        uint8_t *q = random_bytes(nb / 256 * Q4_K_BYTES, state);
        for (size_t i = 0; i < nb / 256; i++) {
            const uint16_t scales[2] = {f32_to_f16(0.01f + 0.001f * (float)(i % 7)), f32_to_f16(0.03f)};
            memcpy(q + i * Q4_K_BYTES, scales, sizeof(scales));
        }
        add_arg(s, q, nb / 256 * Q4_K_BYTES);
    }
    s->out_size = (size_t)g.m * g.n * 4;
    s->bound = 4e-6;
    s->unit = emit == ptx_emit_gemm_mma ? 8 : 0;
    return emit(p, &g, &s->launch, err);
}

static int make_rows(struct subject *s, bool layernorm, uint32_t width, struct ptx *p, uint64_t *state,
                     struct error *err)
{
    enum { ROWS = 7 };
    const struct ptx_rows r = {.node = NODE, .rows = ROWS, .width = width, .eps = layernorm ? 1e-2f : 0};
    const size_t row = sizeof(float) * width;
    float *x = random_floats(ROWS * (size_t)width, state);
    // One value of every other row is so large that exponentials overflow if it is not found as the maximum.
    for (size_t i = 0; !layernorm && i < ROWS; i += 2)
        x[i * width + mutate_below(state, width)] = 200;
    add_arg(s, x, ROWS * row);
    for (int i = 0; layernorm && i < 2; i++)
        add_arg(s, random_floats(width, state), row);
    s->out_size = ROWS * row;
    s->bound = 4e-6;
    return (layernorm ? ptx_emit_layernorm : ptx_emit_softmax)(p, &r, &s->launch, err);
}

static int make_attention(struct subject *s, bool causal, uint32_t positions, struct ptx *p, uint64_t *state,
                          struct error *err)
{
    const struct ptx_attention a = {
        .node = NODE, .heads = 2, .positions = positions, .dim = 36, .scale = 0.5f, .causal = causal};
    size_t n = (size_t)a.heads * a.positions * a.dim;
    float *x[3];
    for (int i = 0; i < 3; i++)
        add_arg(s, x[i] = random_floats(n, state), n * 4);
    // Some keys are so large that the exponentials of their scores overflow if the maximum is not found.
    for (size_t i = 0; i < n; i++) {
        x[0][i] = x[0][i] + 1.5f;
        x[1][i] = (x[1][i] + 1) * (i / a.dim % 9 == 4 ? 8 : 1);
    }
    s->out_size = n * 4;
    s->bound = 0x1p-24 * (64 + 36 * 20 * a.scale);
    return ptx_emit_attention(p, &a, &s->launch, err);
}

enum { N_SUBJECTS = 11, N_SIZES = 4 };

// Makes a kernel in one of several sizes. Their texts differ only in numbers, and a bound that one size does not reach
// is reached by another.
static void make_subject(struct subject *s, int which, int size)
{
    static const struct {
        const char *name;
        gemm_emitter *emit;
        enum operand type;
        struct ptx_gemm g[N_SIZES];
    } gemms[] = {
        {"gemm naive", ptx_emit_gemm_naive, FLOATS, {{.m = 19, .n = 35, .k = 7}, {.m = 3, .n = 40, .k = 9}}},
        {"gemm tiled 8",
         ptx_emit_gemm_tiled,
         FLOATS,
         {{.m = 19, .n = 21, .k = 13, .tile = 8},
          {.m = 9, .n = 11, .k = 9, .tile = 8},
          {.m = 9, .n = 11, .k = 17, .tile = 8}}},
        {"gemm tiled 16",
         ptx_emit_gemm_tiled,
         FLOATS,
         {{.m = 37, .n = 41, .k = 45, .tile = 16}, {.m = 17, .n = 19, .k = 33, .tile = 16}}},
        {"gemm mma",
         ptx_emit_gemm_mma,
         HALVES,
         {{.m = 37, .n = 72, .k = 88},
          {.m = 45, .n = 80, .k = 72},
          {.m = 53, .n = 88, .k = 40},
          {.m = 61, .n = 48, .k = 56}}},
        {"gemm mma bf16",
         ptx_emit_gemm_mma,
         HALVES,
         {{.m = 70, .n = 72, .k = 40, .bf16 = true},
          {.m = 78, .n = 80, .k = 72, .bf16 = true},
          {.m = 21, .n = 24, .k = 88, .bf16 = true},
          {.m = 29, .n = 56, .k = 56, .bf16 = true}}},
        {"gemm wmma",
         ptx_emit_gemm_wmma,
         HALVES,
         {{.m = 37, .n = 35, .k = 43},
          {.m = 29, .n = 43, .k = 37},
          {.m = 33, .n = 51, .k = 51},
          {.m = 45, .n = 59, .k = 34}}},
        {"gemm Q4_K",
         ptx_emit_gemm_q4_k,
         Q4_K,
         {{.m = 37, .n = 35, .k = 512}, {.m = 30, .n = 38, .k = 512}, {.m = 33, .n = 33, .k = 512}}},
    };
    static const char *const others[] = {"softmax", "layernorm", "attention", "attention causal"};
    static const uint32_t widths[N_SIZES] = {1001, 999, 1023, 1025}, positions[N_SIZES] = {39, 38, 37, 36};
    uint64_t state = SEED + (uint64_t)which, count;
    struct error err = {0};
    struct ptx p;
    bool parsed;
    const int n_gemms = (int)COUNT_OF(gemms), other = which - n_gemms;
    *s = (struct subject){.name = other < 0 ? gemms[which].name : others[other]};
    if (other < 0 && !gemms[which].g[size].m)
        return; // it has fewer sizes
    ptx_start(&p, s->text, sizeof(s->text));
    int rc = other < 0   ? make_gemm(s, gemms[which].emit, gemms[which].g[size], gemms[which].type, &p, &state, &err)
             : other < 2 ? make_rows(s, other == 1, widths[size], &p, &state, &err)
                         : make_attention(s, other == 3, positions[size], &p, &state, &err);
    cr_assert(!rc && !ptx_finish(&p, &err), "%s: %s", s->name, err.text);
    s->len = p.size;
    s->want = malloc(s->out_size);
    cr_assert_not_null(s->want);
    cr_assert_eq(run(s, s->text, s->len, 1 << 28, s->want, &parsed, &count), 0, "%s", s->name);
    const uint32_t *g = s->launch.grid;
    s->a_cta = count / ((uint64_t)g[0] * g[1] * g[2]);
}

static void free_subject(struct subject *s)
{
    for (int i = 0; i < s->n_args; i++)
        free(s->args[i]);
    free(s->want);
}

static bool same_numbers(const struct subject *s, const float *got)
{
    double largest = 0, worst = 0;
    for (size_t i = 0; i < s->out_size / 4; i++) {
        if (!isfinite(got[i]))
            return false;
        largest = fmax(largest, fabs((double)s->want[i]));
        worst = fmax(worst, fabs((double)got[i] - s->want[i]));
    }
    return worst <= s->bound * largest;
}

// ---- changes

// Makes and runs one change. Returns 1 if it is detected (*fault: by the interpreter), 0 if not, and -1 if it does not
// parse or was not made.
static int try_change(const struct subject *s, const struct mutate_sites *sites, uint64_t *state, char *text,
                      size_t *where, const char **what, bool *fault)
{
    uint64_t instructions;
    bool parsed;
    memcpy(text, s->text, s->len);
    size_t size = mutate(text, s->len, TEXT_SIZE, sites, s->unit, state, what, where);
    float *got = size ? malloc(s->out_size) : NULL;
    if (!got)
        return -1;
    *fault = run(s, text, size, 8 * s->a_cta + 1000, got, &parsed, &instructions);
    bool found = *fault || !same_numbers(s, got);
    free(got);
    return parsed ? found : -1;
}

struct score {
    int counted, caught, faults;
};

static void change_kernel(int which, int goal, uint64_t *state, struct score *score)
{
    static struct subject s[N_SIZES];
    static struct mutate_sites sites[N_SIZES];
    static char text[TEXT_SIZE];
    struct score before = *score;
    for (int i = 0; i < N_SIZES; i++) {
        make_subject(&s[i], which, i);
        mutate_find_sites(s[i].text, s[i].len, &sites[i]);
    }
    while (score->counted < goal) {
        uint64_t draw = *state, again;
        const char *what;
        size_t where, elsewhere;
        bool fault;
        int found = try_change(&s[0], &sites[0], state, text, &where, &what, &fault);
        if (found < 0)
            continue;
        size_t changed = strcspn(text + where, "\n");
        char line[128];
        snprintf(line, sizeof(line), "%.*s", (int)changed, text + where);
        for (int i = 1; !found && i < N_SIZES && s[i].len; i++) {
            again = draw;
            if (sites[i].n_lines == sites[0].n_lines)
                found = try_change(&s[i], &sites[i], &again, text, &elsewhere, &what, &fault) > 0;
        }
        score->counted++;
        score->caught += found;
        score->faults += found && fault;
        if (!found)
            printf("  not found in %s: %.*s -> %s\n", s[0].name, (int)strcspn(s[0].text + where, "\n"),
                   s[0].text + where, line);
    }
    printf("%-18s %4d of %4d\n", s[0].name, score->caught - before.caught, score->counted - before.counted);
    for (int i = 0; i < N_SIZES; i++)
        free_subject(&s[i]);
}

Test(ptx_mutations, most_changes_of_a_kernel_are_found, .timeout = 1000)
{
    uint64_t state = SEED;
    struct score score = {0};
    printf("seed %d\n", SEED);
    for (int which = 0; which < N_SUBJECTS; which++)
        change_kernel(which, MUTATIONS * (which + 1) / N_SUBJECTS, &state, &score);
    printf("%d of %d changes were found, %d of them as faults\n", score.caught, score.counted, score.faults);
    cr_assert_geq(score.caught, score.counted * 95 / 100);
}
