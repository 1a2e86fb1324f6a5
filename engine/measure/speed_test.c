// The timed run of a test, and the statistics of its samples. The random tokens and the resampling come from the
// counter-based generator Philox, so equal seeds give equal runs. Two samples are compared by a bootstrap: the ratio
// of their means over 2000 rounds of resampling.
#include "engine/measure/speed_test.h"
#include "engine/clock.h"
#include "engine/sample/sampler.h"

#include <math.h>
#include <stdlib.h>

// --- tokens ---

// The i-th token of sequence `seq`. Random tokens are a function of the seed.
static int32_t token_at(const struct speed_test_text *text, int n_vocab, int seq, int i)
{
    if (text->tokens)
        return text->tokens[i % text->n];
    uint32_t counter[4] = {(uint32_t)i, (uint32_t)seq, 0, 0}, out[4];
    philox(counter, (uint32_t[2]){(uint32_t)text->seed, (uint32_t)(text->seed >> 32)}, out);
    return (int32_t)(out[0] % (uint32_t)n_vocab);
}

// --- a test ---

struct run {
    struct session *s;
    const struct speed_test *t;
    const struct speed_test_text *text;
    struct session_row *rows; // [n_batch]
    int n_vocab, n_batch;
};

static int check_cancel(const struct run *r, struct error *err)
{
    const atomic_bool *cancel = session_settings(r->s).cancel;
    return cancel && atomic_load_explicit(cancel, memory_order_relaxed) ? fail(err, E_INTERRUPTED, "interrupted") : 0;
}

// Computes tokens from .. to - 1 of every sequence, one sequence after the other, in steps of n_batch rows. With
// `logits`, the last token of each sequence produces logits.
static int feed(const struct run *r, int from, int to, bool logits, struct error *err)
{
    int n = 0;
    for (int seq = 0; seq < r->t->n_seqs; seq++)
        for (int i = from; i < to; i++) {
            r->rows[n++] = (struct session_row){token_at(r->text, r->n_vocab, seq, i), seq, logits && i == to - 1};
            bool last = seq == r->t->n_seqs - 1 && i == to - 1;
            if ((n == r->n_batch || last) && (check_cancel(r, err) || session_step(r->s, r->rows, n, err)))
                return -1;
            n = n == r->n_batch ? 0 : n;
        }
    return 0;
}

static int generate_all(const struct run *r, double *step_ms, struct error *err)
{
    int at = r->t->n_depth + r->t->n_prompt;
    for (int i = 0; i < r->t->n_gen; i++) {
        double start = clock_ms();
        if (feed(r, at + i, at + i + 1, true, err))
            return -1;
        if (step_ms)
            step_ms[i] = clock_ms() - start;
    }
    return 0;
}

static int time_parts(const struct run *r, struct speed_test_result *out, struct error *err)
{
    const struct speed_test *t = r->t;
    if (t->n_depth && feed(r, 0, t->n_depth, false, err))
        return -1;
    double start = clock_ms();
    if (t->n_prompt && feed(r, t->n_depth, t->n_depth + t->n_prompt, true, err))
        return -1;
    double middle = clock_ms();
    if (generate_all(r, out->step_ms, err))
        return -1;
    out->prompt_ms = middle - start;
    out->gen_ms = clock_ms() - middle;
    return 0;
}

struct session_options speed_test_needs(const struct speed_test *t, struct session_options o)
{
    o.n_seqs = MAX(o.n_seqs, t->n_seqs);
    o.n_ctx = MAX(o.n_ctx, t->n_depth + t->n_prompt + t->n_gen);
    o.n_batch = MAX(o.n_batch, t->n_seqs);
    o.n_outputs = MAX(o.n_outputs, t->n_seqs);
    o.no_reuse = true;
    return o;
}

int speed_test_run(struct session *s, const struct model *m, const struct speed_test *t,
                   const struct speed_test_text *text, struct speed_test_result *r, struct error *err)
{
    struct run run = {.s = s, .t = t, .text = text, .n_vocab = m->info.n_vocab, .n_batch = session_n_batch(s)};
    run.rows = calloc((size_t)run.n_batch, sizeof *run.rows);
    if (!run.rows)
        return fail(err, E_MEMORY, "no memory for %d rows", run.n_batch);
    int status = time_parts(&run, r, err);
    for (int seq = 0; seq < t->n_seqs; seq++)
        session_truncate(s, seq, 0);
    free(run.rows);
    return status;
}

// --- samples ---

double samples_mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return n ? sum / n : 0;
}

double samples_deviation(const double *x, int n)
{
    double mean = samples_mean(x, n), sum = 0;
    for (int i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_quantile(double *x, int n, double q)
{
    if (!n)
        return 0;
    qsort(x, (size_t)n, sizeof *x, by_size);
    double at = q * (n - 1);
    int low = (int)at;
    return low + 1 < n ? x[low] + (at - low) * (x[low + 1] - x[low]) : x[n - 1];
}

// The mean of n samples drawn from x with replacement, in the given round.
static double resampled_mean(const double *x, int n, uint64_t seed, uint32_t round, uint32_t which)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        uint32_t out[4];
        philox((uint32_t[4]){(uint32_t)i, round, which, 0}, (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
        sum += x[out[0] % (uint32_t)n];
    }
    return n ? sum / n : 0;
}

void samples_compare(const double *a, int n_a, const double *b, int n_b, double level, uint64_t seed, double *low,
                     double *high)
{
    enum { ROUNDS = 2000 };
    double ratios[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        double below = resampled_mean(b, n_b, seed, i, 1);
        ratios[i] = below > 0 ? resampled_mean(a, n_a, seed, i, 0) / below : 0;
    }
    *low = samples_quantile(ratios, ROUNDS, (1 - level) / 2);
    *high = samples_quantile(ratios, ROUNDS, (1 + level) / 2);
}
