// See ref_rig.h.
#include "tests/ref_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

void rig_init(struct rig *r, uint64_t seed)
{
    struct error err = {0};
    *r = (struct rig){.noise = seed, .kv_type = {DT_F32, DT_F32}};
    printf("seed %llu\n", (unsigned long long)seed);
    r->graph = graph_new();
    cr_assert_not_null(r->graph);
    cr_assert_eq(machine_open_ref(&r->machine, NULL, &err), 0, "%s", err.text);
}

void rig_free(struct rig *r)
{
    r->machine->v->free(r->machine, r->kv);
    r->machine->v->plan_free(r->machine, r->plan);
    r->machine->v->close(r->machine);
    graph_free(r->graph);
    arena_free(&r->arena);
}

// The top 24 bits of a linear congruential generator (Knuth's MMIX constants).
float rig_noise(struct rig *r, float span)
{
    r->noise = r->noise * 6364136223846793005u + 1442695040888963407u;
    return ((float)(r->noise >> 40) * 0x1p-23f - 1) * span;
}

static void *rig_alloc(struct rig *r, int64_t n, size_t size)
{
    void *p = arena_array(&r->arena, (size_t)n, size, 64);
    cr_assert_not_null(p);
    return p;
}

float *rig_noises(struct rig *r, int64_t n, float span)
{
    float *x = rig_alloc(r, n, sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = rig_noise(r, span);
    return x;
}

const struct weight *rig_weight(struct rig *r, enum dtype type, int64_t k, int64_t rows, int64_t n, const float *values)
{
    struct weight *w = rig_alloc(r, 1, sizeof(*w));
    size_t bytes = dtype_row_bytes(type, k);
    uint8_t *data = (uint8_t *)rig_alloc(r, (int64_t)bytes * rows * n + 1, 1) + 1;
    for (int64_t i = 0; i < rows * n; i++)
        dtype_encode[type](values + i * k, data + (size_t)i * bytes, k);
    *w = (struct weight){.name = "weight", .type = type, .ne = {k, rows, n}, .data = data, .row_bytes = bytes};
    return w;
}

const float *rig_decoded(struct rig *r, const struct weight *w)
{
    int64_t rows = w->ne[1] * w->ne[2];
    float *x = rig_alloc(r, rows * w->ne[0], sizeof(*x));
    for (int64_t i = 0; i < rows; i++)
        dtype_decode[w->type]((const uint8_t *)w->data + (size_t)i * w->row_bytes, x + i * w->ne[0], w->ne[0]);
    return x;
}

struct tensor *rig_rows(struct rig *r, const char *name, int64_t n, int64_t width, const float *values)
{
    return graph_embed(r->graph, name, rig_weight(r, DT_F32, width, n, 1, values), INPUT_TOKENS, 1);
}

void rig_compile(struct rig *r, struct tensor *result, int max_rows, int n_pages)
{
    struct error err = {0};
    const struct machine_vtable *v = r->machine->v;
    struct compile_options o = {max_rows, max_rows, {r->kv_type[0], r->kv_type[1]}, false, NULL};
    int rc = graph_finish(r->graph, graph_output_rows(r->graph, "result", result), &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_assert_eq(v->compile(r->machine, r->graph, &o, &r->plan, &err), 0, "%s", err.text);
    size_t bytes = kv_page_bytes(r->graph, o.kv_type) * (size_t)n_pages;
    cr_assert_eq(v->alloc(r->machine, bytes, &r->kv, &err), 0, "%s", err.text);
    uint8_t *ones = rig_alloc(r, (int64_t)bytes, 1);
    memset(ones, 0xFF, bytes); // a NaN, or a scale that is one, in every type of a cache
    cr_assert_eq(v->put(r->machine, r->kv, 0, ones, bytes, &err), 0, "%s", err.text);
}

void rig_step(struct rig *r, int n, const int32_t *tokens, const int32_t *positions, const int32_t *seqs,
              const int32_t *pages, int pages_stride, float *out)
{
    struct error err = {0};
    int32_t *rows = rig_alloc(r, n, sizeof(*rows));
    for (int i = 0; i < n; i++)
        rows[i] = i;
    struct step s = {n,     n,   tokens, positions, seqs, rows, pages, pages_stride,
                     r->kv, out, 0,      NULL,      NULL, NULL, NULL,  NULL};
    cr_assert_eq(r->machine->v->run(r->machine, r->plan, &s, &err), 0, "%s", err.text);
}

float *rig_eval(struct rig *r, struct tensor *result, int n, const int32_t *positions)
{
    int32_t *count = rig_alloc(r, n, sizeof(*count)), *zero = rig_alloc(r, n, sizeof(*zero));
    for (int i = 0; i < n; i++)
        count[i] = i;
    rig_compile(r, result, n, 1);
    float *out = rig_alloc(r, n * result->width, sizeof(*out));
    rig_step(r, n, count, positions ? positions : count, zero, NULL, 0, out);
    return out;
}

// Half a unit in the last place of y, a float32 subnormal's step, and 2^-40 of the terms: thousands of roundings to
// double.
bool rig_rounded(float y, long double exact, long double terms)
{
    long double bound = fabsl(exact) * 0x1p-24L + 0x1p-149L + fabsl(terms) * 0x1p-40L;
    return fabsl((long double)y - exact) <= bound;
}
