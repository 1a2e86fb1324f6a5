// Rotary positions of every kind of scaling, from position 0 to 131,071, on the CPU machine beside formulas in long double
// that are written here anew. The everyday suite takes every 211th position, the long one (EVERY_POSITION) all of them.
#include "kernels/machine.h"
#include "models/rope.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#ifdef EVERY_POSITION
enum { STRIDE = 1 };
#else
enum { STRIDE = 211 };
#endif
enum { DIM = 128, PAIRS = DIM / 2, POSITIONS = 131072, STEP = 512 };

struct scaling {
    const char *name;
    struct rope rope;
    bool factors; // each pair has a divisor, as in Llama 3 and longrope
};

static float divisor_of(int pair)
{
    return 1.0f + (float)(pair * pair) / 300.0f;
}

// ---- The formulas

static long double plain_frequency(const struct rope *r, int pair)
{
    return powl((long double)r->base, -2.0L * pair / r->n_rot);
}

// The share of a pair that keeps its frequency in YaRN (Peng et al. 2023, section 3.2): 1 for pairs that turn more than
// beta_fast times over the original context, 0 below beta_slow, and between them a ramp over the pairs' numbers.
static long double kept_by_yarn(const struct rope *r, int pair)
{
    const long double pi = acosl(-1.0L);
    long double ends[2];
    const double betas[] = {r->beta_fast, r->beta_slow};
    for (int i = 0; i < 2; i++)
        ends[i] = r->n_rot * logl(r->n_ctx_orig / ((long double)betas[i] * 2 * pi)) / (2 * logl((long double)r->base));
    const long double low = fmaxl(0, floorl(ends[0])), high = fminl(r->n_rot - 1, ceill(ends[1]));
    return 1 - fminl(1, fmaxl(0, (pair - low) / fmaxl(0.001L, high - low)));
}

static long double frequency(const struct scaling *s, int pair)
{
    const struct rope *r = &s->rope;
    long double f = plain_frequency(r, pair) / (s->factors ? (long double)divisor_of(pair) : 1);
    if (r->scaling == ROPE_SCALING_LINEAR)
        return f / (long double)r->factor;
    if (r->scaling != ROPE_SCALING_YARN)
        return f;
    const long double kept = kept_by_yarn(r, pair);
    return kept * f + (1 - kept) * f / (long double)r->factor;
}

static long double magnitude(const struct rope *r)
{
    if (r->scaling != ROPE_SCALING_YARN)
        return (long double)r->attn_factor;
    const long double all = 1 + 0.1L * logl((long double)r->factor);
    const long double out = 1 + 0.1L * (long double)r->log_multiplier * logl((long double)r->factor);
    return (long double)r->attn_factor * all / out;
}

// ---- The machine

// A graph that turns a head of (1, 0) in each pair, so that it becomes the cosines and the sines.
static struct graph *graph_of(const struct scaling *s, const double *inv_freq)
{
    static float ones[DIM];
    static struct weight table = {
        .name = "x", .type = DT_F32, .ne = {DIM, 1, 1}, .data = ones, .row_bytes = sizeof ones};
    struct error err = {0};
    struct graph *g = graph_new();
    cr_assert_not_null(g);
    for (int i = 0; i < DIM; i++)
        ones[i] = i < PAIRS;
    struct tensor *x = graph_embed(g, "x", &table, INPUT_ZERO, 1);
    struct tensor *angles = graph_rope_table(g, "angles", PAIRS, inv_freq, rope_magnitude(&s->rope));
    struct tensor *y = graph_rope(g, "y", x, angles, DIM, ROPE_NEOX);
    cr_assert_eq(graph_finish(g, graph_output_rows(g, "rows", y), &err), 0, "%s", err.text);
    return g;
}

struct errors {
    double sum, size, worst; // squares; the largest difference
    int worst_at;
};

static void compare(const struct scaling *s, const long double *freq, int position, const float *got, struct errors *e)
{
    const long double m = magnitude(&s->rope);
    for (int i = 0; i < PAIRS; i++) {
        const long double angle = position * freq[i], want[2] = {m * cosl(angle), m * sinl(angle)};
        for (int k = 0; k < 2; k++) {
            const double off = fabs((double)((long double)got[k * PAIRS + i] - want[k]));
            e->sum += off * off;
            e->size += (double)(want[k] * want[k]);
            e->worst_at = off > e->worst ? position : e->worst_at;
            e->worst = fmax(e->worst, off);
        }
    }
}

static void run_step(struct machine *m, struct plan *p, const int32_t *positions, int n, float *out)
{
    static int32_t tokens[STEP], seqs[STEP], outputs[STEP];
    struct error err = {0};
    for (int i = 0; i < n; i++)
        outputs[i] = i;
    const struct step step = {.n_tokens = n,
                              .n_outputs = n,
                              .tokens = tokens,
                              .positions = positions,
                              .seqs = seqs,
                              .outputs = outputs,
                              .logits = out};
    cr_assert_eq(m->v->run(m, p, &step, &err), 0, "%s", err.text);
}

static void sweep(struct machine *m, const struct scaling *s)
{
    static float out[STEP * DIM];
    double inv_freq[PAIRS];
    float divisors[PAIRS];
    long double freq[PAIRS];
    struct error err = {0};
    struct errors e = {0};
    struct plan *plan;
    for (int i = 0; i < PAIRS; i++)
        divisors[i] = divisor_of(i), freq[i] = frequency(s, i);
    rope_frequencies(&s->rope, s->factors ? divisors : NULL, inv_freq);
    for (int i = 0; i < PAIRS; i++)
        cr_assert_leq(fabsl((long double)inv_freq[i] / freq[i] - 1), 1e-14L, "%s: pair %d", s->name, i);
    struct graph *g = graph_of(s, inv_freq);
    const struct compile_options o = {.max_tokens = STEP, .max_outputs = STEP, .kv_type = {DT_F32, DT_F32}};
    cr_assert_eq(m->v->compile(m, g, &o, &plan, &err), 0, "%s", err.text);
    for (int at = 0; at < POSITIONS;) {
        int32_t positions[STEP];
        int n = 0;
        for (; n < STEP && at < POSITIONS; n++, at += STRIDE)
            positions[n] = at;
        run_step(m, plan, positions, n, out);
        for (int i = 0; i < n; i++)
            compare(s, freq, positions[i], out + (ptrdiff_t)i * DIM, &e);
    }
    m->v->plan_free(m, plan);
    graph_free(g);
    fprintf(stderr, "%-8s NMSE %.2g, off by %.2g at most\n", s->name, e.sum / e.size, e.worst);
    cr_expect_leq(e.sum / e.size, 1e-14, "%s", s->name);
    cr_expect_leq(e.worst, 1.3e-7 * (double)magnitude(&s->rope), "%s: off by %g at position %d", s->name, e.worst,
                  e.worst_at);
}

Test(rope_sweep, every_scaling_is_exact_at_every_position, .timeout = 1800)
{
    const struct rope plain = {
        .n_rot = DIM, .base = 1e4, .factor = 1, .n_ctx_orig = 4096, .attn_factor = 1, .beta_fast = 32, .beta_slow = 1};
    struct scaling all[] = {{"plain", plain, false},  {"base", plain, false},     {"linear", plain, false},
                            {"yarn", plain, false},   {"yarn-mla", plain, false}, {"llama3", plain, true},
                            {"longrope", plain, true}};
    all[1].rope.base = 1e6;
    all[2].rope.scaling = ROPE_SCALING_LINEAR, all[2].rope.factor = 8;
    all[3].rope.scaling = ROPE_SCALING_YARN, all[3].rope.factor = 32, all[3].rope.base = 150000;
    all[4].rope.scaling = ROPE_SCALING_YARN, all[4].rope.factor = 40, all[4].rope.log_multiplier = 0.707;
    all[5].rope.base = 5e5;
    all[6].rope.scaling = ROPE_SCALING_LONGROPE, all[6].rope.attn_factor = 1.19;
    struct machine *m;
    struct error err = {0};
    cr_assert_eq(machine_open_cpu(&m, &(struct machine_options){.n_threads = 2}, &err), 0, "%s", err.text);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        sweep(m, &all[i]);
    m->v->close(m);
}
