// Tests the stages of sampling in random orders and settings, with masks, ties and logits of -inf, against a plain
// reference that sorts and sums the candidates in double. The sets of kept candidates must be equal, and draws must
// follow their probabilities.
#include "engine/sample/dry.h"
#include "engine/sample/sampler.h"
#include "kernels/machine.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_MAX = 700, HISTORY_MAX = 200 };

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(uint64_t *state)
{
    return (double)(next(state) >> 11) * 0x1p-53;
}

// --- the definitions ---

struct token {
    double logit, p;
    int id;
};

struct reference {
    struct token t[N_MAX];
    int n;
    double margin; // how near any decision was to going the other way
    const int32_t *history;
    int n_history;
    int64_t position;
    const struct sampler_params *p;
};

static void decide(struct reference *r, double a, double b)
{
    r->margin = fmin(r->margin, fabs(a - b));
}

static int by_logit(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

static void soften(struct reference *r)
{
    qsort(r->t, (size_t)r->n, sizeof *r->t, by_logit);
    double sum = 0;
    for (int i = 0; i < r->n; i++)
        sum += r->t[i].p = exp(r->t[i].logit - r->t[0].logit);
    for (int i = 0; i < r->n; i++)
        r->t[i].p /= sum;
}

static void penalties(struct reference *r)
{
    int last = r->p->repeat_last < 0 ? r->n_history : MIN(r->p->repeat_last, r->n_history);
    for (int i = 0; i < r->n; i++) {
        int count = 0;
        for (int j = r->n_history - last; j < r->n_history; j++)
            count += r->history[j] == r->t[i].id;
        double *l = &r->t[i].logit;
        if (count) {
            *l = *l > 0 ? *l / (double)r->p->repeat_penalty : *l * (double)r->p->repeat_penalty;
            *l -= count * (double)r->p->frequency_penalty + (double)r->p->presence_penalty;
        }
    }
}

// For every place where the token stood before: how many tokens before it are those at the end of the text.
static void dry(struct reference *r)
{
    int n = r->p->dry_last < 0 ? r->n_history : MIN(r->p->dry_last, r->n_history);
    const int32_t *h = r->history + r->n_history - n;
    if (n <= r->p->dry_allowed_length)
        return;
    for (int i = 0; i < r->n; i++) {
        int longest = -1;
        for (int at = 1; at < n; at++) {
            int length = 0;
            while (h[at] == r->t[i].id && length < at && h[at - 1 - length] == h[n - 1 - length])
                length++;
            longest = h[at] == r->t[i].id ? MAX(longest, length) : longest;
        }
        if (longest >= r->p->dry_allowed_length)
            r->t[i].logit -=
                (double)r->p->dry_multiplier * pow((double)r->p->dry_base, longest - r->p->dry_allowed_length);
    }
}

static void top_n_sigma(struct reference *r)
{
    double mean = 0, variance = 0, max = -INFINITY;
    for (int i = 0; i < r->n; i++) {
        mean += r->t[i].logit / r->n;
        max = fmax(max, r->t[i].logit);
    }
    for (int i = 0; i < r->n; i++)
        variance += (r->t[i].logit - mean) * (r->t[i].logit - mean) / r->n;
    double least = max - (double)r->p->top_n_sigma * sqrt(variance);
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        if (r->t[i].logit != max)
            decide(r, r->t[i].logit, least);
        if (r->t[i].logit >= least)
            r->t[n++] = r->t[i];
    }
    r->n = n;
}

static void top_k(struct reference *r)
{
    soften(r);
    // a tie that other stages have made may be none in single precision
    if (r->p->top_k < r->n && r->t[r->p->top_k - 1].logit != r->t[r->p->top_k].logit)
        decide(r, r->t[r->p->top_k - 1].logit, r->t[r->p->top_k].logit);
    r->n = MIN(r->n, r->p->top_k);
}

static int by_distance(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    return (x->logit > y->logit) - (x->logit < y->logit);
}

static void typical(struct reference *r)
{
    double entropy = 0, sum = 0;
    soften(r);
    for (int i = 0; i < r->n; i++)
        entropy -= r->t[i].p > 0 ? r->t[i].p * log(r->t[i].p) : 0;
    static struct token near[N_MAX];
    for (int i = 0; i < r->n; i++)
        near[i] = (struct token){.logit = fabs(-log(r->t[i].p) - entropy), .p = r->t[i].p, .id = i};
    qsort(near, (size_t)r->n, sizeof *near, by_distance);
    static struct token kept[N_MAX];
    int n = 0;
    do {
        if (n + 1 < r->n && r->n > 1)
            decide(r, near[n].logit, near[n + 1].logit); // who comes first may matter
        kept[n] = r->t[near[n].id];
        sum += near[n++].p;
        decide(r, sum, (double)r->p->typical_p);
    } while (n < r->n && sum <= (double)r->p->typical_p);
    memcpy(r->t, kept, sizeof kept);
    r->n = n;
}

static void top_p(struct reference *r)
{
    double sum = 0;
    int n = 0;
    soften(r);
    do {
        sum += r->t[n++].p;
        decide(r, sum, (double)r->p->top_p);
        if (n < r->n && r->t[n].logit != r->t[n - 1].logit)
            decide(r, r->t[n].logit, r->t[n - 1].logit);
    } while (n < r->n && sum < (double)r->p->top_p);
    r->n = n;
}

static void min_p(struct reference *r)
{
    soften(r);
    int n = 0;
    while (n < r->n && r->t[n].p >= (double)r->p->min_p * r->t[0].p)
        decide(r, r->t[n].logit - r->t[0].logit, log((double)r->p->min_p) + (n == 0)), n++;
    if (n < r->n)
        decide(r, r->t[n].logit - r->t[0].logit, log((double)r->p->min_p));
    r->n = n;
}

static void xtc(struct reference *r)
{
    uint32_t out[4], counter[4] = {(uint32_t)r->position, (uint32_t)((uint64_t)r->position >> 32), 1, 0};
    philox(counter, (uint32_t[2]){(uint32_t)r->p->seed, (uint32_t)(r->p->seed >> 32)}, out);
    double u = (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
    if (r->n < 2 || u >= (double)r->p->xtc_probability)
        return;
    soften(r);
    int n = 0;
    while (n < r->n && r->t[n].p >= (double)r->p->xtc_threshold)
        decide(r, r->t[n++].p, (double)r->p->xtc_threshold);
    if (n < r->n)
        decide(r, r->t[n].p, (double)r->p->xtc_threshold);
    for (int i = 0; n > 1 && i + 1 < r->n; i++)
        if (r->t[i].logit != r->t[i + 1].logit)
            decide(r, r->t[i].logit, r->t[i + 1].logit);
    if (n > 1) {
        r->n -= n - 1;
        memmove(r->t, r->t + n - 1, (size_t)r->n * sizeof *r->t);
    }
}

static void temperature(struct reference *r)
{
    double t = (double)r->p->temperature, range = (double)r->p->dynatemp_range;
    if (range > 0) {
        double low = fmax(0, t - range), entropy = 0;
        soften(r);
        for (int i = 0; i < r->n; i++)
            entropy -= r->t[i].p > 0 ? r->t[i].p * log(r->t[i].p) : 0;
        double part = r->n > 1 ? fmin(1, entropy / log(r->n)) : 1;
        t = low + (t + range - low) * pow(fmax(part, 0), (double)r->p->dynatemp_exponent);
    }
    for (int i = 0; i < r->n; i++)
        r->t[i].logit /= t;
}

static void (*const definitions[STAGE_COUNT])(struct reference *r) = {
    [STAGE_PENALTIES] = penalties, [STAGE_DRY] = dry,         [STAGE_TOP_N_SIGMA] = top_n_sigma,
    [STAGE_TOP_K] = top_k,         [STAGE_TYPICAL] = typical, [STAGE_TOP_P] = top_p,
    [STAGE_MIN_P] = min_p,         [STAGE_XTC] = xtc,         [STAGE_TEMPERATURE] = temperature,
};

// --- one case ---

struct scene {
    float logits[N_MAX];
    uint32_t allowed[(N_MAX + 31) / 32];
    int32_t history[HISTORY_MAX];
    struct logit_bias biases[3];
    int n, n_history;
    bool masked;
    struct sampler_params p;
};

static void random_scene(struct scene *s, uint64_t *state)
{
    *s = (struct scene){.p = sampler_defaults()};
    const int sizes[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 128, 500, N_MAX};
    s->n = sizes[next(state) % COUNT_OF(sizes)];
    s->n_history = (int)(next(state) % HISTORY_MAX);
    int variety = next(state) % 2 ? 3 : 20;
    for (int i = 0; i < s->n_history; i++)
        s->history[i] = (int32_t)(next(state) % (uint64_t)MIN(s->n, variety));
    int shape = (int)(next(state) % 5);
    for (int i = 0; i < s->n; i++) {
        s->logits[i] = shape == 0 ? 1.5f : (float)(unit(state) * 12 - 6);
        s->logits[i] = shape == 1 ? roundf(s->logits[i]) : s->logits[i]; // many ties
        s->logits[i] = shape == 2 && next(state) % 3 ? -INFINITY : s->logits[i];
        s->logits[i] = shape == 3 ? s->logits[i] * 20 : s->logits[i];
    }
    s->masked = next(state) % 3 == 0;
    for (int i = 0; i < s->n; i++)
        s->allowed[i / 32] |= (next(state) % 3 ? 1u : 0u) << (i % 32);
    struct sampler_params *p = &s->p;
    p->seed = next(state);
    p->temperature = (float)(0.2 + 2 * unit(state));
    p->dynatemp_range = next(state) % 3 ? 0 : (float)(0.15 * unit(state));
    p->dynatemp_exponent = next(state) % 2 ? 1 : (float)(2 * unit(state));
    p->top_k = next(state) % 2 ? 0 : 1 + (int)(next(state) % 60);
    p->top_p = next(state) % 2 ? 1 : (float)unit(state);
    p->min_p = next(state) % 2 ? 0 : (float)(0.3 * unit(state));
    p->typical_p = next(state) % 3 ? 1 : (float)unit(state);
    p->top_n_sigma = next(state) % 3 ? -1 : (float)(2 * unit(state));
    p->xtc_probability = next(state) % 2 ? 0 : (float)unit(state);
    p->xtc_threshold = (float)(0.6 * unit(state));
    p->repeat_penalty = next(state) % 2 ? 1 : (float)(0.5 + unit(state));
    p->frequency_penalty = next(state) % 2 ? 0 : (float)(unit(state) - 0.5);
    p->presence_penalty = next(state) % 2 ? 0 : (float)(unit(state) - 0.5);
    p->repeat_last = (int)(next(state) % 100) - 1;
    p->dry_multiplier = next(state) % 2 ? 0 : (float)unit(state);
    p->dry_allowed_length = (int)(next(state) % 4);
    p->dry_last = (int)(next(state) % 100) - 1;
    if (next(state) % 2) { // another order, with some of them missing
        for (int i = STAGE_COUNT - 1; i > 0; i--) {
            int j = (int)(next(state) % (uint64_t)(i + 1));
            uint8_t t = p->order[i];
            p->order[i] = p->order[j];
            p->order[j] = t;
        }
        p->n_order = (int)(next(state) % (STAGE_COUNT + 1));
    }
    p->n_biases = (int)(next(state) % 4);
    p->biases = s->biases;
    for (int i = 0; i < p->n_biases; i++)
        s->biases[i] = (struct logit_bias){(int32_t)(next(state) % (uint64_t)s->n),
                                           next(state) % 3 ? (float)(unit(state) - 0.5) : -INFINITY};
}

static void define(const struct scene *s, int64_t position, struct reference *r)
{
    *r = (struct reference){
        .margin = INFINITY, .history = s->history, .n_history = s->n_history, .position = position, .p = &s->p};
    for (int i = 0; i < s->n; i++) {
        double logit = (double)s->logits[i];
        for (int j = 0; j < s->p.n_biases; j++)
            logit += s->biases[j].token == i ? (double)s->biases[j].bias : 0;
        if (logit > -INFINITY && (!s->masked || s->allowed[i / 32] >> (i % 32) & 1))
            r->t[r->n++] = (struct token){.logit = logit, .id = i};
    }
    for (int i = 0; i < s->p.n_order && r->n; i++)
        if (sampler_stage_acts(&s->p, s->p.order[i]))
            definitions[s->p.order[i]](r);
    soften(r);
}

static const struct token *find(const struct reference *r, int32_t id)
{
    for (int i = 0; i < r->n; i++)
        if (r->t[i].id == id)
            return &r->t[i];
    return NULL;
}

Test(sampler_stages, every_order_and_setting_keeps_what_the_definitions_keep)
{
    uint64_t state = 2026;
    printf("seed %llu\n", (unsigned long long)state);
    static struct scene s;
    static struct reference r;
    int n_checked = 0, n_near = 0;
    for (int round = 0; round < 20000; round++) {
        random_scene(&s, &state);
        struct sampler *sampler;
        struct error err;
        cr_assert_eq(sampler_new(&sampler, &s.p, s.n, NULL, &err), 0, "%s", err.text);
        int64_t position = (int64_t)(next(&state) % 100000);
        define(&s, position, &r);
        int32_t id = sampler_next(sampler, s.logits, s.masked ? s.allowed : NULL, s.history, s.n_history, position);
        int n;
        const struct candidate *c = sampler_candidates(sampler, &n);
        cr_assert_eq(id < 0, r.n == 0, "round %d: token %d of %d", round, id, r.n);
        // a decision within the rounding of single precision may go either way
        bool near = r.margin < 2e-4;
        n_near += near;
        for (int i = 0; !near && i < n; i++) {
            const struct token *t = find(&r, c[i].id);
            cr_assert(t, "round %d: token %d should not be there (%d, defined %d)", round, c[i].id, n, r.n);
            const struct token *first = find(&r, c[0].id);
            cr_assert(first);
            double got = (double)c[i].logit - (double)c[0].logit, want = t->logit - (first ? first->logit : 0);
            cr_assert_float_eq(got, want, 1e-3 + 1e-4 * fabs(want), "round %d: token %d: %g, defined %g", round,
                               c[i].id, got, want);
        }
        if (!near) {
            cr_assert_eq(n, r.n, "round %d: %d candidates, defined %d", round, n, r.n);
            cr_assert(id < 0 || find(&r, id));
            n_checked++;
        }
        sampler_free(sampler);
    }
    printf("%d checked, %d too near to an edge\n", n_checked, n_near);
    cr_expect_gt(n_checked, 10000);
}

// --- from the first logits alone ---

// Most scenes with a chain that a top-k or the greatest logit may serve: what changes logits before is seldom on.
static void random_short_scene(struct scene *s, uint64_t *state)
{
    do
        random_scene(s, state);
    while (isinf(s->logits[0] + s->logits[s->n / 2] + s->logits[s->n - 1]));
    for (int i = 0; i < s->n; i++)
        s->logits[i] = isinf(s->logits[i]) ? -7 : s->logits[i];
    struct sampler_params *p = &s->p;
    p->n_biases = next(state) % 8 ? 0 : p->n_biases;
    p->repeat_penalty = next(state) % 4 ? 1 : p->repeat_penalty;
    p->frequency_penalty = next(state) % 4 ? 0 : p->frequency_penalty;
    p->presence_penalty = next(state) % 4 ? 0 : p->presence_penalty;
    p->dry_multiplier = next(state) % 4 ? 0 : p->dry_multiplier;
    p->mirostat = next(state) % 8 ? 0 : (int)(next(state) % 3);
    p->temperature = next(state) % 3 ? p->temperature : 0;
    p->dynatemp_range = p->temperature > 0 ? p->dynatemp_range : 0;
}

Test(sampler_stages, the_first_logits_choose_the_same_token_where_they_are_said_to_suffice)
{
    uint64_t state = 44;
    printf("seed %llu\n", (unsigned long long)state);
    static struct scene s;
    struct candidate top[N_MAX];
    int n_checked = 0, n_greedy = 0;
    for (int round = 0; round < 20000; round++) {
        random_short_scene(&s, &state);
        struct sampler *whole, *some;
        struct error err;
        cr_assert(!sampler_new(&whole, &s.p, s.n, NULL, &err) && !sampler_new(&some, &s.p, s.n, NULL, &err));
        for (int i = (int)(next(&state) % 4); i > 0; i--) {
            int32_t banned = next(&state) % 2 ? (int32_t)(next(&state) % (uint64_t)s.n) : 0;
            sampler_ban(whole, banned);
            sampler_ban(some, banned);
        }
        int k = sampler_top_k(some), n_whole, n_some;
        cr_assert(k >= 0 && k <= s.n);
        if (k) {
            k = MIN(s.n, k + (int)(next(&state) % 3)); // another row of the step may want more
            top_k_of(s.logits, s.n, k, top);
            int64_t position = (int64_t)(next(&state) % 100000);
            int32_t want = sampler_next(whole, s.logits, NULL, s.history, s.n_history, position);
            int32_t got = sampler_next_of(some, top, k, s.history, s.n_history, position);
            cr_assert_eq(got, want, "round %d: token %d, not %d", round, got, want);
            const struct candidate *a = sampler_candidates(whole, &n_whole), *b = sampler_candidates(some, &n_some);
            for (int i = 0; i < n_whole; i++)
                cr_assert(n_some == n_whole && a[i].id == b[i].id && a[i].logit == b[i].logit, "round %d", round);
            n_checked++;
            n_greedy += sampler_takes_first(&s.p);
        }
        sampler_free(whole);
        sampler_free(some);
    }
    printf("%d of 20000 need no more than the first logits, %d of them one\n", n_checked, n_greedy);
    cr_expect_gt(n_greedy, 1000);
    cr_expect_gt(n_checked - n_greedy, 1000);
}

// Against a full sort, with ties, both zeros, and numbers that are none.
Test(sampler_stages, the_first_of_a_row_are_those_of_a_full_sort)
{
    uint64_t state = 45;
    printf("seed %llu\n", (unsigned long long)state);
    enum { N = 700 };
    float x[N];
    struct candidate got[TOP_K_MAX], want[N];
    for (int round = 0; round < 2000; round++) {
        int n = 1 + (int)(next(&state) % N), k = 1 + (int)(next(&state) % (uint64_t)MIN(n, TOP_K_MAX));
        for (int i = 0; i < n; i++) {
            x[i] = (float)(unit(&state) * 8 - 4);
            x[i] = round % 2 ? roundf(x[i]) : x[i];
            want[i] = (struct candidate){x[i] == 0 ? 0 : x[i], i};
        }
        candidates_sort_first(want, n, n);
        top_k_of(x, n, k, got);
        cr_assert(memcmp(got, want, (size_t)k * sizeof *got) == 0, "round %d: the %d first of %d", round, k, n);
        const float odd[] = {NAN, INFINITY, -INFINITY};
        x[next(&state) % (uint64_t)n] = odd[round % 3];
        top_k_of(x, n, k, got);
        cr_assert_eq(got[0].id, -1, "round %d", round);
    }
}
