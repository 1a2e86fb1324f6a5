// Compares the CPU machine with the reference (ref.c), and with itself: the bits are the same for any number of
// threads, any chunks and any other rows of the step.
#include "kernels/cpu/kernels.h"
#include "kernels/machine.h"
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 90, SEQS_MAX = 3, PAGES_PER_SEQ = 4, LAYERS = 2 };

struct setting {
    const char *machine; // "cpu" or "ref"
    const char *isa;
    int threads;
    bool exact;
    enum dtype kv;
    int chunk;  // rows of a step for one sequence
    int n_seqs; // all run the same tokens, but for their own first token; sequence 0 is looked at
};

struct runner {
    struct machine *machine;
    struct plan *plan;
    struct buffer *kv;
};

static void open_runner(struct runner *r, const struct tiny *t, const struct setting *s)
{
    struct error err = {0};
    struct machine_options o = {.n_threads = s->threads, .isa = s->isa, .exact = s->exact};
    bool ref = !strcmp(s->machine, "ref");
    cr_assert_eq((ref ? machine_open_ref : machine_open_cpu)(&r->machine, &o, &err), 0, "%s", err.text);
    struct compile_options c = {
        .max_tokens = LENGTH * SEQS_MAX, .max_outputs = LENGTH * SEQS_MAX, .kv_type = {s->kv, s->kv}};
    cr_assert_eq(r->machine->v->compile(r->machine, t->graph, &c, &r->plan, &err), 0, "%s", err.text);
    size_t bytes = kv_page_bytes(t->graph, c.kv_type) * SEQS_MAX * PAGES_PER_SEQ;
    cr_assert_eq(r->machine->v->alloc(r->machine, bytes, &r->kv, &err), 0, "%s", err.text);
}

static void close_runner(struct runner *r)
{
    r->machine->v->free(r->machine, r->kv);
    r->machine->v->plan_free(r->machine, r->plan);
    r->machine->v->close(r->machine);
}

static int token_of(int seq, int position)
{
    return position == 0 ? seq : (position * 37 + 11) % TINY_VOCAB;
}

// Pages are dealt out backwards and interleaved, so that a wrong page or slot shows.
static void deal_pages(int32_t *pages)
{
    for (int s = 0; s < SEQS_MAX; s++)
        for (int i = 0; i < PAGES_PER_SEQ; i++)
            pages[s * PAGES_PER_SEQ + i] = SEQS_MAX * PAGES_PER_SEQ - 1 - (i * SEQS_MAX + s);
}

// Logits of sequence 0, all rows: (LENGTH, TINY_VOCAB).
static float *run_all(const struct tiny *t, const struct setting *s)
{
    struct runner r;
    open_runner(&r, t, s);
    float *out = calloc((size_t)LENGTH * TINY_VOCAB, sizeof(float));
    float *logits = calloc((size_t)LENGTH * SEQS_MAX * TINY_VOCAB, sizeof(float));
    int32_t tokens[LENGTH * SEQS_MAX], positions[LENGTH * SEQS_MAX], seqs[LENGTH * SEQS_MAX],
        outputs[LENGTH * SEQS_MAX];
    int32_t pages[SEQS_MAX * PAGES_PER_SEQ];
    deal_pages(pages);
    for (int from = 0; from < LENGTH; from += s->chunk) {
        int n = 0, to = MIN(from + s->chunk, LENGTH), first = -1;
        for (int seq = s->n_seqs - 1; seq >= 0; seq--) // sequence 0 comes last
            for (int p = from; p < to; p++, n++) {
                tokens[n] = token_of(seq, p), positions[n] = p, seqs[n] = seq, outputs[n] = n;
                first = seq == 0 && first < 0 ? n : first;
            }
        struct step step = {n,    n,      tokens, positions, seqs, outputs, pages, PAGES_PER_SEQ,
                            r.kv, logits, 0,      NULL,      NULL, NULL,    NULL,  NULL};
        struct error err = {0};
        cr_assert_eq(r.machine->v->run(r.machine, r.plan, &step, &err), 0, "%s", err.text);
        memcpy(out + (size_t)from * TINY_VOCAB, logits + (size_t)first * TINY_VOCAB,
               (size_t)(to - from) * TINY_VOCAB * sizeof(float));
    }
    free(logits);
    close_runner(&r);
    return out;
}

static double nmse(const float *a, const float *b, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return error / size;
}

enum kind { PLAIN, EXPERTS, LATENT };

static void make_tiny(struct tiny *t, enum dtype type, enum kind kind, int window)
{
    *t = (struct tiny){.n_layer = LAYERS,
                       .experts = kind == EXPERTS,
                       .latent = kind == LATENT,
                       .with_data = true,
                       .type = type,
                       .window = window,
                       .seed = 7};
    printf("seed %llu\n", (unsigned long long)t->seed);
    tiny_build(t);
}

static void compare_with_law(enum dtype type, enum kind kind, bool exact, enum dtype kv, int window, double bound)
{
    struct tiny t;
    make_tiny(&t, type, kind, window);
    float *reference = run_all(&t, &(struct setting){"ref", NULL, 1, true, kv, LENGTH, 1});
    for (int level = 0; level < kernels_count(); level++)
        for (int chunk = 1; chunk <= LENGTH; chunk += LENGTH - 1) {
            struct setting s = {"cpu", kernels_at(level)->name, 2, exact, kv, chunk, 1};
            float *got = run_all(&t, &s);
            double e = nmse(got, reference, (size_t)LENGTH * TINY_VOCAB);
            cr_expect(e <= bound, "%s on %s, chunk %d, %s%s: NMSE %.3g over %.3g", dtype_info[type].name, s.isa, chunk,
                      exact ? "exact" : "8-bit activations", (const char *const[]){"", ", experts", ", latent"}[kind],
                      e, bound);
            free(got);
        }
    free(reference);
    tiny_free(&t);
}

static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_K, DT_Q5_K, DT_Q6_K};

Test(machines, exact_agrees_with_the_law_on_every_level)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        compare_with_law(types[i], PLAIN, true, DT_F32, 0, 1e-9);
    compare_with_law(DT_F32, EXPERTS, true, DT_F32, 0, 1e-9);
    compare_with_law(DT_Q4_K, EXPERTS, true, DT_F32, 40, 1e-9);
    compare_with_law(DT_Q4_K, LATENT, true, DT_F32, 0, 1e-9);
}

Test(machines, quantised_activations_stay_close_to_the_law)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        compare_with_law(types[i], PLAIN, false, DT_F32, 0, 1e-3);
}

Test(machines, every_kv_type_agrees_with_the_law)
{
    static const enum dtype kv[] = {DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0};
    for (size_t i = 0; i < COUNT_OF(kv); i++)
        compare_with_law(DT_F32, PLAIN, true, kv[i], i % 2 ? 33 : 0, 1e-6);
    for (size_t i = 0; i < COUNT_OF(kv); i++)
        compare_with_law(DT_F32, LATENT, true, kv[i], 0, 1e-6);
}

static void expect_same(const struct tiny *t, const float *want, struct setting s, const char *type)
{
    float *got = run_all(t, &s);
    cr_expect(!memcmp(got, want, (size_t)LENGTH * TINY_VOCAB * sizeof(float)),
              "%s on %s: other bits with %d threads, chunks of %d, %d sequences", type, s.isa, s.threads, s.chunk,
              s.n_seqs);
    free(got);
}

static void check_bits(enum dtype type, enum kind kind, enum dtype kv)
{
    static const int chunks[] = {1, 3, 7, 16, LENGTH};
    struct tiny t;
    make_tiny(&t, type, kind, 0);
    for (int level = 0; level < kernels_count(); level++) {
        const char *isa = kernels_at(level)->name, *name = dtype_info[type].name;
        float *want = run_all(&t, &(struct setting){"cpu", isa, 1, false, kv, LENGTH, 1});
        for (int threads = 1; threads <= 4; threads++)
            for (size_t c = 0; c < COUNT_OF(chunks); c++)
                if (level == 0 || threads == 2)
                    expect_same(&t, want, (struct setting){"cpu", isa, threads, false, kv, chunks[c], 1}, name);
        for (int n_seqs = 2; n_seqs <= SEQS_MAX; n_seqs++)
            expect_same(&t, want, (struct setting){"cpu", isa, 3, false, kv, n_seqs == 2 ? 1 : 7, n_seqs}, name);
        free(want);
    }
    tiny_free(&t);
}

Test(machines, bits_depend_on_no_thread_chunk_or_neighbour)
{
    check_bits(DT_F32, PLAIN, DT_F16);
    check_bits(DT_F16, PLAIN, DT_Q8_0);
    check_bits(DT_Q8_0, PLAIN, DT_F16);
    check_bits(DT_Q4_K, PLAIN, DT_F32);
    check_bits(DT_Q4_K, EXPERTS, DT_F16);
    check_bits(DT_Q4_K, LATENT, DT_Q8_0);
}

// One and two threads quantise in the items of gates and of attention, and share the ninth block of columns out by rows; three
// threads and few rows quantise whole rows.
Test(machines, bits_do_not_depend_on_where_activations_are_quantised)
{
    struct tiny t = {.n_layer = LAYERS, .with_data = true, .type = DT_Q4_K, .seed = 7, .n_ff = 9 * 256, .n_head_kv = 1};
    printf("seed %llu\n", (unsigned long long)t.seed);
    tiny_build(&t);
    for (int level = 0; level < kernels_count(); level++) {
        const char *isa = kernels_at(level)->name;
        float *want = run_all(&t, &(struct setting){"cpu", isa, 3, false, DT_F16, LENGTH, 1});
        for (int threads = 1; threads <= 2; threads++)
            expect_same(&t, want, (struct setting){"cpu", isa, threads, false, DT_F16, LENGTH, 1}, "Q4_K");
        expect_same(&t, want, (struct setting){"cpu", isa, 2, false, DT_F16, LENGTH, 2}, "Q4_K");
        expect_same(&t, want, (struct setting){"cpu", isa, 2, false, DT_F16, 1, 1}, "Q4_K");
        free(want);
    }
    tiny_free(&t);
}

Test(machines, levels_agree_bit_for_bit)
{
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct tiny t;
        make_tiny(&t, types[i], PLAIN, 0);
        float *want = NULL;
        for (int level = 0; level < kernels_count(); level++) {
            float *got = run_all(&t, &(struct setting){"cpu", kernels_at(level)->name, 2, false, DT_F16, 16, 1});
            cr_expect(!want || !memcmp(got, want, (size_t)LENGTH * TINY_VOCAB * sizeof(float)),
                      "%s: %s differs from %s", dtype_info[types[i]].name, kernels_at(level)->name,
                      kernels_at(0)->name);
            free(want);
            want = got;
        }
        free(want);
        tiny_free(&t);
    }
}

Test(machines, refuse_an_operation_without_a_kernel)
{
    struct tiny t;
    struct machine *m;
    struct plan *p;
    struct error err = {0};
    make_tiny(&t, DT_F32, PLAIN, 0);
    cr_assert_eq(machine_open_cpu(&m, &(struct machine_options){.n_threads = 1}, &err), 0, "%s", err.text);
    const struct compile_options o = {.max_tokens = 1, .max_outputs = 1, .kv_type = {DT_F16, DT_F16}};
    struct tensor *n = t.graph->nodes[2];
    n->op = OP_COUNT;
    cr_assert_eq(m->v->compile(m, t.graph, &o, &p, &err), -1);
    cr_expect_eq(err.code, E_MODEL);
    cr_expect(strstr(err.text, n->name) && strstr(err.text, "no kernel for operation ?"), "%s", err.text);
    cr_expect_null(p);
    m->v->close(m);
    tiny_free(&t);
}
