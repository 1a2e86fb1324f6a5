// Golden models: their paths, their expected logits, and a run of a model on a machine.
//
// The small ones are copied to tests/data/arch; the whole set is in $QUERN_SHARED/golden. A logits file holds int32
// n_tokens, int32 n_vocab, int32 ids[n_tokens], float32 logits[n_tokens][n_vocab].
// Each test links its own copy. Threads: no shared state.
#ifndef QUERN_GOLDEN_H
#define QUERN_GOLDEN_H

#include "kernels/machine.h"
#include "models/arch.h"

#include <assert.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct logits {
    int32_t n_tokens, n_vocab;
    int32_t *ids;  // [n_tokens]
    float *values; // [n_tokens][n_vocab]
};

// The path of "arch/NAME.gguf" or "quant/NAME.gguf"; false when the file is nowhere.
static inline bool golden_path(const char *name, char path[512])
{
    const char *shared = getenv("QUERN_SHARED"), *tests = getenv("QUERN_TESTS");
    snprintf(path, 512, "%s/data/%s", tests ? tests : "tests", name);
    if (access(path, R_OK) == 0)
        return true;
    snprintf(path, 512, "%s/golden/%s", shared ? shared : "../shared", name);
    return access(path, R_OK) == 0;
}

static inline struct logits logits_read(const char *model_path)
{
    char path[544];
    snprintf(path, sizeof path, "%s.logits", model_path);
    FILE *f = fopen(path, "rb");
    struct logits l = {0};
    bool good = f && fread(&l.n_tokens, 4, 1, f) == 1 && fread(&l.n_vocab, 4, 1, f) == 1;
    assert(good && l.n_tokens > 0 && l.n_tokens < 4096 && l.n_vocab > 0 && l.n_vocab < 1 << 20);
    size_t n = (size_t)l.n_tokens, all = n * (size_t)l.n_vocab;
    l.ids = malloc(n * sizeof *l.ids);
    l.values = malloc(all * sizeof *l.values);
    good = l.ids && l.values && fread(l.ids, 4, n, f) == n && fread(l.values, 4, all, f) == all;
    assert(good);
    fclose(f);
    return l;
}

static inline void logits_free(struct logits *l)
{
    free(l->ids);
    free(l->values);
}

// sum (a - b)^2 / sum b^2
static inline double nmse(const float *a, const float *b, size_t n)
{
    double error = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        sum += (double)b[i] * (double)b[i];
    }
    return error / sum;
}

// Runs the ids through the graph, `chunk` a step, with a cache of a type, and brings out the logits of every row: -1 on
// an error.
static inline int golden_run_cached(struct machine *m, const struct graph *g, const struct logits *want, int chunk,
                                    enum dtype cache, float *out, struct error *err)
{
    enum { PAGES = 64 };
    struct compile_options o = {chunk, chunk, {cache, cache}, false, NULL};
    struct plan *plan = NULL;
    struct buffer *kv = NULL, *states = NULL;
    int n = want->n_tokens, status = -1;
    int32_t *numbers = malloc((size_t)n * sizeof *numbers), *seqs = calloc((size_t)n, sizeof *seqs), pages[PAGES];
    int32_t *from = malloc((size_t)n * sizeof *from), *to = malloc((size_t)n * sizeof *to);
    assert(numbers && seqs && from && to && n <= PAGES * KV_PAGE);
    for (int i = 0; i < n; i++)
        numbers[i] = i, from[i] = to[i] = -1;
    for (int at = 0, slot = 0; at < n; at += chunk, slot = 1 - slot) { // the state goes from slot to slot
        from[at] = at ? 1 - slot : -1;
        to[MIN(at + chunk, n) - 1] = slot;
    }
    for (int i = 0; i < PAGES; i++) // not in order, so that a machine that takes them for one stretch is found out
        pages[i] = (i * 5 + 3) % PAGES;
    if (m->v->compile(m, g, &o, &plan, err) != 0 ||
        m->v->alloc(m, kv_page_bytes(g, o.kv_type) * PAGES, &kv, err) != 0 ||
        (g->state_floats && m->v->alloc(m, 2 * state_bytes(g), &states, err) != 0))
        goto done;
    for (int at = 0; at < n; at += chunk) {
        int rows = MIN(chunk, n - at);
        struct step s = {.n_tokens = rows,
                         .n_outputs = rows,
                         .tokens = want->ids + at,
                         .positions = numbers + at,
                         .seqs = seqs,
                         .outputs = numbers,
                         .pages = pages,
                         .pages_stride = PAGES,
                         .kv = kv,
                         .state_from = from + at,
                         .state_to = to + at,
                         .states = states,
                         .logits = out + (size_t)at * (size_t)want->n_vocab};
        if (m->v->run(m, plan, &s, err) != 0)
            goto done;
    }
    status = 0;
done:
    if (kv)
        m->v->free(m, kv);
    if (states)
        m->v->free(m, states);
    if (plan)
        m->v->plan_free(m, plan);
    free(numbers);
    free(seqs);
    free(from);
    free(to);
    return status;
}

// The same with an F32 cache.
static inline int golden_run(struct machine *m, const struct graph *g, const struct logits *want, int chunk, float *out,
                             struct error *err)
{
    return golden_run_cached(m, g, want, chunk, DT_F32, out, err);
}

// Checks a graph against the logits in a file: NMSE of at most `bound`, and the same bits in one step, in steps of 7 rows, and
// row by row. `name` is for messages.
static inline void golden_check(struct machine *m, const struct graph *g, const char *want_path, double bound,
                                const char *name)
{
    struct error err = {0};
    struct logits want = logits_read(want_path);
    const size_t size = (size_t)want.n_tokens * (size_t)want.n_vocab;
    float *whole = malloc(size * sizeof *whole), *parts = malloc(size * sizeof *parts);
    cr_assert(whole && parts);
    cr_assert_eq(golden_run(m, g, &want, want.n_tokens, whole, &err), 0, "%s: %s", name, err.text);
    const double error = nmse(whole, want.values, size);
    cr_expect_leq(error, bound, "%s on %s: NMSE %.3g, bound %.3g", name, m->v->name, error, bound);
    for (int chunk = 7; chunk >= 1; chunk -= 6) {
        cr_assert_eq(golden_run(m, g, &want, chunk, parts, &err), 0, "%s: %s", name, err.text);
        cr_expect_arr_eq(whole, parts, size * sizeof(float), "%s on %s: steps of %d rows change bits", name, m->v->name,
                         chunk);
    }
    free(whole);
    free(parts);
    logits_free(&want);
}

#endif
