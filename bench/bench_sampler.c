// Times the sampling of a token on one core: bench_sampler [N_VOCAB...]
//
// Logits are normally distributed with a standard deviation of 2.5, and a few are much larger, as in a model. The calls
// use 8 sets of logits in turn, so that they are read from the L2 cache or beyond. For each way of sampling the program
// prints the median and the 95th percentile of CPU time, in microseconds per token. The mask allows 200 random tokens.
#include "engine/sample/logprobs.h"
#include "engine/sample/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SETS = 8, ROUNDS = 400, HISTORY = 512 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill(float *logits, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++) {
        double u = ((double)(next(state) >> 12) + 1) * 0x1p-52, v = (double)(next(state) >> 11) * 0x1p-53;
        logits[i] = (float)(2.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
    for (int i = 0; i < 12; i++)
        logits[next(state) % (uint64_t)n] = 14 - 0.7f * (float)i;
}

struct way {
    const char *name;
    void (*set)(struct sampler_params *p);
    bool masked;
};

// clang-format off
static void plain(struct sampler_params *p) { (void)p; }
static void greedy(struct sampler_params *p) { p->temperature = 0; }
static void penalties(struct sampler_params *p) { p->repeat_penalty = 1.1f; }
static void dry(struct sampler_params *p) { p->dry_multiplier = 0.8f; p->dry_last = -1; }
static void all_top_p(struct sampler_params *p) { p->top_k = 0; p->min_p = 0; }
static void all_min_p(struct sampler_params *p) { p->top_k = 0; p->top_p = 1; }
static void sigma(struct sampler_params *p) { p->top_n_sigma = 1; }
static void typical(struct sampler_params *p) { p->typical_p = 0.9f; p->top_k = 0; }
static void xtc(struct sampler_params *p) { p->xtc_probability = 1; }
static void nothing(struct sampler_params *p) { p->n_order = 0; }
static void mirostat(struct sampler_params *p) { p->mirostat = 2; }
// clang-format on

static const struct way ways[] = {
    {"defaults (top-k 40, top-p, min-p, temperature)", plain, false},
    {"defaults within a mask", plain, true},
    {"the most likely (--temp 0)", greedy, false},
    {"defaults, repeat penalty", penalties, false},
    {"defaults, DRY over 512", dry, false},
    {"defaults, XTC", xtc, false},
    {"defaults, top-n-sigma", sigma, false},
    {"min-p of all, temperature", all_min_p, false},
    {"top-p of all, temperature", all_top_p, false},
    {"typical and top-p of all", typical, false},
    {"no stage at all", nothing, false},
    {"mirostat 2", mirostat, false},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(double *took)
{
    qsort(took, ROUNDS, sizeof *took, by_value);
    printf(" %8.1f %8.1f\n", 1e6 * took[ROUNDS / 2], 1e6 * took[ROUNDS * 95 / 100]);
}

static int time_way(const struct way *way, float *const logits[SETS], int n, const uint32_t *mask,
                    const int32_t *history)
{
    struct sampler_params p = sampler_defaults();
    struct sampler *s;
    struct error err;
    double took[ROUNDS];
    way->set(&p);
    if (sampler_new(&s, &p, n, NULL, &err))
        return fprintf(stderr, "bench_sampler: %s\n", err.text);
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        sampler_next(s, logits[i % SETS], way->masked ? mask : NULL, history, HISTORY, i);
        took[i] = seconds() - start;
    }
    printf("  %-48s", way->name);
    print_times(took);
    sampler_free(s);
    return 0;
}

static void time_logprobs(float *const logits[SETS], int n)
{
    struct candidate top[5];
    double took[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        logprobs_of(logits[i % SETS], n, 0, top, 5);
        took[i] = seconds() - start;
    }
    printf("  %-48s", "log-probabilities, top 5");
    print_times(took);
}

static int time_vocabulary(int n)
{
    uint64_t state = 1;
    float *logits[SETS];
    uint32_t *mask = calloc((size_t)n / 32 + 1, sizeof *mask);
    int32_t history[HISTORY];
    int status = mask ? 0 : 1;
    for (int i = 0; i < SETS; i++) {
        logits[i] = malloc((size_t)n * sizeof *logits[i]);
        if (!logits[i])
            exit(E_MEMORY);
        fill(logits[i], n, &state);
    }
    for (int i = 0; i < HISTORY; i++)
        history[i] = (int32_t)(next(&state) % (uint64_t)MIN(n, 300));
    for (int i = 0; mask && i < 200; i++) {
        uint64_t t = next(&state) % (uint64_t)n;
        mask[t / 32] |= 1u << (t % 32);
    }
    printf("%d tokens: median and 95th percentile, us a token\n", n);
    for (size_t i = 0; !status && i < COUNT_OF(ways); i++)
        status = time_way(&ways[i], logits, n, mask, history);
    time_logprobs(logits, n);
    for (int i = 0; i < SETS; i++)
        free(logits[i]);
    free(mask);
    return status;
}

int main(int argc, char **argv)
{
    static const int usual[] = {32000, 128256, 262144};
    int status = 0;
    for (int i = 1; i < argc; i++)
        status |= atoi(argv[i]) > 0 ? time_vocabulary(atoi(argv[i])) : E_USAGE;
    for (size_t i = 0; argc < 2 && i < COUNT_OF(usual); i++)
        status |= time_vocabulary(usual[i]);
    return status ? E_USAGE : E_OK;
}
