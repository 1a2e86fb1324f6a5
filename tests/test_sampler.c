// Tests sampling: each stage against its definition on fully sorted candidates, the random numbers against published
// values, and the frequencies of draws against their probabilities.
#include "engine/sample/sampler.h"
#include "gguf/writer.h"
#include "tests/sanitized.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// --- random numbers ---

// Known answers of Philox4x32-10, as published with the Random123 library.
Test(philox, known_answers)
{
    const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint32_t out[4];
        philox(cases[i].counter, cases[i].key, out);
        cr_expect_arr_eq(out, cases[i].want, sizeof out, "case %zu", i);
    }
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// --- the definition ---

struct token {
    double logit;
    int id;
};

static int by_logit(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

static double sum_exp(const struct token *t, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(t[i].logit - t[0].logit);
    return sum;
}

// The definition: applies the stages one by one to sorted candidates. Returns the number of those that may be drawn,
// in t, most likely first, with their logits divided by the temperature.
static int define(const struct sampler_params *p, const float *logits, int n, const int32_t *history, int n_history,
                  struct token *t)
{
    for (int i = 0; i < n; i++)
        t[i] = (struct token){logits[i], i};
    int last = p->repeat_last < 0 ? n_history : MIN(p->repeat_last, n_history);
    for (int i = 0; i < n; i++)
        for (int j = n_history - last; j < n_history; j++)
            if (history[j] == i) {
                t[i].logit = logits[i] * (logits[i] > 0 ? 1 / p->repeat_penalty : p->repeat_penalty);
                break;
            }
    qsort(t, (size_t)n, sizeof *t, by_logit);
    if (p->top_k > 0)
        n = MIN(n, p->top_k);
    if (p->top_p < 1) {
        double sum = sum_exp(t, n), reached = 0;
        int kept = 0;
        do
            reached += exp(t[kept++].logit - t[0].logit) / sum;
        while (reached < p->top_p && kept < n);
        n = kept;
    }
    if (p->min_p > 0)
        while (n > 1 && exp(t[n - 1].logit - t[0].logit) < p->min_p)
            n--;
    for (int i = n - 1; i >= 0; i--)
        t[i].logit = (t[i].logit - t[0].logit) / p->temperature;
    return n;
}

static int defined(const struct sampler_params *p, const float *logits, int n, const int32_t *history, int n_history,
                   struct token *t, double *probability)
{
    int kept = define(p, logits, n, history, n_history, t);
    double sum = 0;
    for (int i = 0; i < kept; i++)
        sum += probability[i] = exp(t[i].logit);
    for (int i = 0; i < kept; i++)
        probability[i] /= sum;
    return kept;
}

enum { VOCAB_MAX = 3000 };

static void random_logits(float *logits, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++)
        logits[i] = (float)((int)(next(state) % 2000) - 1000) / 100.0f; // steps of a hundredth, so that some are equal
}

// That nothing but what the definition keeps is drawn, and with few kept all of it.
Test(sampler, draws_exactly_what_the_stages_keep)
{
    static float logits[VOCAB_MAX];
    static struct token tokens[VOCAB_MAX];
    static double probability[VOCAB_MAX];
    uint64_t state = 42;
    printf("seed %llu\n", (unsigned long long)state);
    for (int round = 0; round < 300; round++) {
        int n = 1 + (int)(next(&state) % VOCAB_MAX), history_n = (int)(next(&state) % 100);
        int32_t history[100];
        for (int i = 0; i < history_n; i++)
            history[i] = (int32_t)(next(&state) % (uint64_t)n);
        random_logits(logits, n, &state);
        struct sampler_params p = sampler_defaults();
        p.temperature = 0.1f + (float)(next(&state) % 30) / 10;
        p.top_k = (int)(next(&state) % 3) * (int)(next(&state) % 60);
        p.top_p = next(&state) % 2 ? 1 : (float)(next(&state) % 100) / 100;
        p.min_p = next(&state) % 2 ? 0 : (float)(next(&state) % 100) / 200;
        p.repeat_penalty = next(&state) % 2 ? 1 : 1.3f;
        p.repeat_last = (int)(next(&state) % 80) - 1;
        p.seed = next(&state);
        int kept = defined(&p, logits, n, history, history_n, tokens, probability);
        struct sampler *s;
        struct error err;
        cr_assert_eq(sampler_new(&s, &p, n, NULL, &err), 0);
        bool seen[VOCAB_MAX] = {false};
        for (int at = 0; at < 200; at++) {
            int32_t id = sampler_next(s, logits, NULL, history, history_n, at);
            int place = 0;
            while (place < kept && tokens[place].id != id)
                place++;
            // at the edge of top-p and min-p the sums may round either way: a neighbour of the last is let pass
            cr_assert(place < kept || (kept < n && tokens[kept].id == id && (p.top_p < 1 || p.min_p > 0)),
                      "round %d: token %d is not among the %d of %d: top-k %d, top-p %g, min-p %g", round, id, kept, n,
                      p.top_k, (double)p.top_p, (double)p.min_p);
            seen[id] = true;
        }
        for (int i = 0; i < kept; i++)
            if (probability[i] > 0.1) // missed in 200 draws once in 10^9
                cr_assert(seen[tokens[i].id], "round %d: token %d with probability %g never came", round, tokens[i].id,
                          probability[i]);
        sampler_free(s);
    }
}

// Chi-square of draws at successive positions. With 19 degrees of freedom 60.2 is passed by chance once in 3 x 10^6.
Test(sampler, draws_follow_the_probabilities)
{
    enum { N = 20, DRAWS = 40000 };
    float logits[N];
    struct token tokens[N];
    double probability[N];
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t state = seed;
        printf("seed %llu\n", (unsigned long long)seed);
        for (int i = 0; i < N; i++)
            logits[i] = (float)(next(&state) % 300) / 100;
        struct sampler_params p = sampler_defaults();
        p.temperature = 0.7f + 0.2f * (float)seed;
        p.top_p = 1;
        p.min_p = 0;
        p.top_k = seed % 2 ? N : 0; // as many as there are: the same candidates by another way
        p.seed = seed;
        cr_assert_eq(defined(&p, logits, N, NULL, 0, tokens, probability), N);
        struct sampler *s;
        struct error err;
        cr_assert_eq(sampler_new(&s, &p, N, NULL, &err), 0);
        int count[N] = {0};
        for (int at = 0; at < DRAWS; at++)
            count[sampler_next(s, logits, NULL, NULL, 0, at)]++;
        double chi2 = 0;
        for (int i = 0; i < N; i++) {
            double expected = probability[i] * DRAWS, d = count[tokens[i].id] - expected;
            chi2 += d * d / expected;
        }
        cr_expect_lt(chi2, 60.2, "seed %llu: chi-square %g", (unsigned long long)seed, chi2);
        cr_expect_gt(chi2, 2.8, "seed %llu: chi-square %g is too good to be random", (unsigned long long)seed, chi2);
        sampler_free(s);
    }
}

Test(sampler, a_draw_depends_on_seed_and_position_alone)
{
    float logits[50] = {0};
    struct sampler_params p = sampler_defaults();
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    p.seed = 99;
    struct sampler *a, *b, *other;
    struct error err;
    cr_assert_eq(sampler_new(&a, &p, 50, NULL, &err), 0);
    cr_assert_eq(sampler_new(&b, &p, 50, NULL, &err), 0);
    p.seed = 100;
    cr_assert_eq(sampler_new(&other, &p, 50, NULL, &err), 0);
    int32_t forwards[100];
    int differ = 0;
    for (int at = 0; at < 100; at++)
        forwards[at] = sampler_next(a, logits, NULL, NULL, 0, at);
    for (int at = 99; at >= 0; at--) {
        cr_expect_eq(sampler_next(b, logits, NULL, NULL, 0, at), forwards[at]);
        differ += sampler_next(other, logits, NULL, NULL, 0, at) != forwards[at];
    }
    cr_expect_gt(differ, 80, "another seed draws otherwise");
    sampler_free(a);
    sampler_free(b);
    sampler_free(other);
}

Test(sampler, no_temperature_takes_the_most_likely_and_of_equals_the_first)
{
    float logits[] = {1, 5, -3, 5, 2};
    struct sampler_params p = sampler_defaults();
    p.temperature = 0;
    struct sampler *s;
    struct error err;
    cr_assert_eq(sampler_new(&s, &p, 5, NULL, &err), 0);
    cr_expect_eq(sampler_next(s, logits, NULL, NULL, 0, 0), 1);
    sampler_ban(s, 1);
    sampler_ban(s, -1);
    sampler_ban(s, 5);
    cr_expect_eq(sampler_next(s, logits, NULL, NULL, 0, 0), 3);
    sampler_free(s);
    p.repeat_penalty = 3;
    cr_assert_eq(sampler_new(&s, &p, 5, NULL, &err), 0);
    cr_expect_eq(sampler_next(s, logits, NULL, (int32_t[]){1, 3}, 2, 0), 4,
                 "the penalty comes before the choice: 5/3 < 2");
    cr_expect_eq(sampler_next(s, logits, NULL, (int32_t[]){3}, 1, 0), 1);
    cr_expect_eq(sampler_next(s, logits, NULL, NULL, 0, 0), 1, "and leaves nothing behind");
    float negative[] = {-1, -2};
    sampler_free(s);
    cr_assert_eq(sampler_new(&s, &p, 2, NULL, &err), 0);
    cr_expect_eq(sampler_next(s, negative, NULL, (int32_t[]){0}, 1, 0), 1, "negative logits are multiplied");
    sampler_free(s);
}

Test(sampler, extreme_logits_and_temperatures_give_a_token)
{
    float logits[] = {3e38f, -3e38f, 3e38f, 0};
    const float temperatures[] = {1e-38f, 1e-10f, 1, 100};
    for (size_t i = 0; i < COUNT_OF(temperatures); i++) {
        struct sampler_params p = sampler_defaults();
        p.temperature = temperatures[i];
        p.top_p = 0.9f;
        p.min_p = 0.01f;
        p.repeat_penalty = 100;
        p.seed = i;
        struct sampler *s;
        struct error err;
        cr_assert_eq(sampler_new(&s, &p, 4, NULL, &err), 0);
        for (int at = 0; at < 50; at++) {
            int32_t id = sampler_next(s, logits, NULL, (int32_t[]){1}, 1, at);
            cr_expect(id == 0 || id == 2, "%d", id);
        }
        sampler_free(s);
    }
}

// 128k tokens: that nothing sorts them all shows in the time. A full sort takes 10 ms and more.
Test(sampler, a_large_vocabulary_is_not_sorted)
{
    enum { N = 131072, ROUNDS = 50 };
    float *logits = malloc(N * sizeof *logits);
    uint64_t state = 3;
    for (int i = 0; i < N; i++)
        logits[i] = (float)(next(&state) >> 40) * 0x1p-20f;
    struct sampler_params p = sampler_defaults();
    struct sampler *s;
    struct error err;
    cr_assert_eq(sampler_new(&s, &p, N, NULL, &err), 0);
    clock_t start = clock();
    for (int at = 0; at < ROUNDS; at++)
        sampler_next(s, logits, NULL, NULL, 0, at);
    double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC / ROUNDS;
    printf("%.3f ms a token\n", ms);
    if (!sanitized && !getenv("QUERN_WATCHED")) // times mean nothing where every access is watched
        cr_expect_lt(ms, 5);
    sampler_free(s);
    free(logits);
}

Test(sampler, nothing_that_may_come_is_no_token)
{
    enum { N = 100 };
    float logits[N];
    uint32_t none[4] = {0}, one[4] = {0, 0, 1u << 5, 0};
    const float temperatures[] = {0, 1};
    for (size_t i = 0; i < 2 * COUNT_OF(temperatures); i++) {
        struct sampler_params p = sampler_defaults();
        p.temperature = temperatures[i / 2];
        p.mirostat = i % 2 ? 2 : 0;
        struct sampler *s;
        struct error err;
        cr_assert_eq(sampler_new(&s, &p, N, NULL, &err), 0);
        for (int j = 0; j < N; j++)
            logits[j] = (float)(j % 7) - 3e38f;
        cr_expect_eq(sampler_next(s, logits, none, NULL, 0, 0), -1);
        cr_expect_eq(sampler_next(s, logits, one, NULL, 0, 1), 69);
        sampler_ban(s, 69);
        cr_expect_eq(sampler_next(s, logits, one, NULL, 0, 2), -1);
        for (int j = 0; j < N; j++)
            logits[j] = -INFINITY;
        cr_expect_eq(sampler_next(s, logits, NULL, NULL, 0, 3), -1);
        logits[99] = -3e38f;
        cr_expect_eq(sampler_next(s, logits, NULL, NULL, 0, 4), 99);
        sampler_free(s);
    }
}

// The surprise of each draw against the distribution as it stood: mirostat holds its mean.
static double mean_surprise(int version, float tau, const float *logits, int n)
{
    struct sampler_params p = sampler_defaults();
    p.mirostat = version;
    p.mirostat_tau = tau;
    p.temperature = 1;
    p.seed = 4;
    struct sampler *s;
    struct error err;
    cr_assert_eq(sampler_new(&s, &p, n, NULL, &err), 0);
    double sum = 0;
    enum { DRAWS = 3000, SETTLED = 300 };
    for (int at = 0; at < DRAWS; at++) {
        int32_t id = sampler_next(s, logits, NULL, NULL, 0, at);
        int kept;
        const struct candidate *c = sampler_candidates(s, &kept);
        double total = 0, own = 0;
        for (int i = 0; i < kept; i++) {
            total += exp((double)c[i].logit);
            own = c[i].id == id ? exp((double)c[i].logit) : own;
        }
        sum += at >= SETTLED ? -log2(own / total) : 0;
    }
    sampler_free(s);
    return sum / (DRAWS - SETTLED);
}

Test(sampler, mirostat_holds_the_surprise)
{
    enum { N = 5000 };
    static float logits[N];
    for (int i = 0; i < N; i++)
        logits[i] = -1.1f * logf((float)(i + 1)); // Zipf's law, of more than 9 bits as it is
    for (int version = 1; version <= 2; version++)
        for (float tau = 2; tau <= 6; tau += 2) {
            double mean = mean_surprise(version, tau, logits, N);
            printf("mirostat %d, tau %g: %g\n", version, (double)tau, mean);
            cr_expect_float_eq(mean, (double)tau, 0.1);
        }
}

// XTC removes four of five likely tokens, with the given probability.
Test(sampler, xtc_leaves_out_as_often_as_asked)
{
    float logits[20] = {3, 2.8f, 2.6f, 2.5f, 2.4f};
    struct sampler_params p = sampler_defaults();
    p.xtc_probability = 0.3f;
    p.xtc_threshold = 0.1f;
    struct sampler *s;
    struct error err;
    cr_assert_eq(sampler_new(&s, &p, 20, NULL, &err), 0);
    int excluded = 0;
    enum { DRAWS = 10000 };
    for (int at = 0; at < DRAWS; at++) {
        sampler_next(s, logits, NULL, NULL, 0, at);
        int n;
        const struct candidate *c = sampler_candidates(s, &n);
        bool first = false, fifth = false;
        for (int i = 0; i < n; i++) {
            first |= c[i].id == 0;
            fifth |= c[i].id == 4;
        }
        cr_assert(fifth);
        excluded += !first;
    }
    // five standard deviations
    cr_expect_float_eq((double)excluded / DRAWS, 0.3, 5 * sqrt(0.3 * 0.7 / DRAWS));
    sampler_free(s);
}

Test(sampler, one_scratch_serves_several_samplers)
{
    enum { N = 3000 };
    static float logits[N];
    uint64_t state = 8;
    struct error err;
    struct sampler_scratch *scratch;
    struct sampler *shared[3], *own[3];
    cr_assert_eq(sampler_scratch_new(&scratch, N, &err), 0);
    for (int i = 0; i < 3; i++) {
        struct sampler_params p = sampler_defaults();
        p.seed = (uint64_t)i;
        p.top_k = i == 1 ? 0 : 40;
        p.repeat_penalty = i == 2 ? 1.3f : 1;
        p.typical_p = i == 1 ? 0.8f : 1;
        cr_assert_eq(sampler_new(&shared[i], &p, N, scratch, &err), 0);
        cr_assert_eq(sampler_new(&own[i], &p, N, NULL, &err), 0);
    }
    for (int at = 0; at < 200; at++) {
        random_logits(logits, N, &state);
        int32_t history[] = {(int32_t)(next(&state) % N), 5, 6};
        for (int i = 0; i < 3; i++)
            cr_assert_eq(sampler_next(shared[i], logits, NULL, history, 3, at),
                         sampler_next(own[i], logits, NULL, history, 3, at));
    }
    for (int i = 0; i < 3; i++) {
        sampler_free(shared[i]);
        sampler_free(own[i]);
    }
    sampler_scratch_free(scratch);
}

// --- parameters ---

Test(sampler, an_order_is_read_by_names_and_by_letters)
{
    struct sampler_params p = sampler_defaults();
    struct error err = {0};
    const struct {
        const char *text;
        int n;
        uint8_t order[9];
    } cases[] = {
        {"top_k;temperature", 2, {STAGE_TOP_K, STAGE_TEMPERATURE}},
        {"kt", 2, {STAGE_TOP_K, STAGE_TEMPERATURE}},
        {"penalties;dry;top-n-sigma;topk;typ_p;nucleus;Min_P;xtc;temp", 9, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
        {"edskypmxt", 9, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
        {"dry", 1, {STAGE_DRY}},
        {"xtc", 1, {STAGE_XTC}},
        {"", 0, {0}},
        {"min_p;min_p", 2, {STAGE_MIN_P, STAGE_MIN_P}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert_eq(sampler_parse_order(&p, cases[i].text, &err), 0, "%s: %s", cases[i].text, err.text);
        cr_expect_eq(p.n_order, cases[i].n, "%s", cases[i].text);
        cr_expect_arr_eq(p.order, cases[i].order, (size_t)cases[i].n, "%s", cases[i].text);
    }
    const char *bad[] = {"top_q", "kz", "top_k;infill", "kkkkkkkkkkkkkkkkk"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        cr_expect_eq(sampler_parse_order(&p, bad[i], &err), -1, "%s", bad[i]);
        cr_expect_eq(err.code, E_USAGE);
    }
}

Test(sampler, parameters_that_mean_nothing_are_refused)
{
    struct sampler *s;
    struct error err;
    struct logit_bias bias = {100, 1};
    struct sampler_params p = sampler_defaults();
    p.biases = &bias;
    p.n_biases = 1;
    cr_expect_eq(sampler_new(&s, &p, 100, NULL, &err), -1);
    cr_expect(strstr(err.text, "token 100"), "%s", err.text);
    bias = (struct logit_bias){3, NAN};
    cr_expect_eq(sampler_new(&s, &p, 100, NULL, &err), -1);
    bias.bias = INFINITY;
    cr_expect_eq(sampler_new(&s, &p, 100, NULL, &err), -1);
    p = sampler_defaults();
    p.temperature = NAN;
    cr_expect_eq(sampler_new(&s, &p, 100, NULL, &err), -1);
    p = sampler_defaults();
    p.mirostat = 3;
    cr_expect_eq(sampler_new(&s, &p, 100, NULL, &err), -1);
    cr_expect_eq(err.code, E_USAGE);
}

// --- what the file recommends ---

static struct gguf *file_with(const char *key, float value, const char *text)
{
    char path[] = "/tmp/quern-sampler-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    struct gguf_writer *w;
    struct error err = {0};
    cr_assert_eq(gguf_writer_open(&w, path, &err), 0, "%s", err.text);
    gguf_write_str(w, "general.architecture", STR_LIT("llama"));
    if (text)
        gguf_write_str(w, key, str_from(text));
    else
        gguf_write_f32(w, key, value);
    gguf_write_u32(w, "general.sampling.top_k", 7);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    struct gguf *g;
    cr_assert_eq(gguf_open(&g, path, 0, &err), 0, "%s", err.text);
    unlink(path);
    return g;
}

Test(sampler, the_order_that_a_file_recommends_is_taken_and_checked)
{
    static const char long_name[] =
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
    struct error err = {0};
    struct sampler_params p = sampler_defaults(), wanted = sampler_defaults();
    const int n_usual = p.n_order;
    struct gguf *g = file_with("general.sampling.sequence", 0, "temperature;top_k");
    cr_expect_eq(sampler_from_file(&p, g, false, &err), 0);
    cr_expect_eq(p.n_order, n_usual, "the user's order comes first");
    cr_expect_eq(sampler_from_file(&p, g, true, &err), 0, "%s", err.text);
    cr_assert_eq(sampler_parse_order(&wanted, "temperature;top_k", &err), 0);
    cr_expect_eq(p.n_order, 2);
    cr_expect(!memcmp(p.order, wanted.order, 2));
    gguf_close(g);
    const char *const bad[] = {"temperature;nonsense", long_name};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        g = file_with("general.sampling.sequence", 0, bad[i]);
        cr_expect_eq(sampler_from_file(&p, g, true, &err), -1);
        cr_expect(err.code == E_MODEL && strstr(err.text, "general.sampling.sequence"), "%s", err.text);
        gguf_close(g);
    }
}

Test(sampler, recommendations_of_the_file_are_taken_and_checked)
{
    struct error err = {0};
    struct sampler_params p = sampler_defaults();
    struct gguf *g = file_with("general.sampling.temp", 0.3f, NULL);
    cr_expect_eq(sampler_from_file(&p, g, true, &err), 0, "%s", err.text);
    cr_expect_eq(p.temperature, 0.3f);
    cr_expect_eq(p.top_k, 7);
    cr_expect_eq(p.top_p, 0.95f, "what it does not say stays");
    gguf_close(g);
    const float bad[] = {NAN, INFINITY, -1};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        g = file_with("general.sampling.top_p", bad[i], NULL);
        cr_expect_eq(sampler_from_file(&p, g, true, &err), -1);
        cr_expect_eq(err.code, E_MODEL);
        gguf_close(g);
    }
    g = file_with("general.sampling.min_p", 0, "much");
    cr_expect_eq(sampler_from_file(&p, g, true, &err), -1);
    cr_expect(strstr(err.text, "general.sampling.min_p"), "%s", err.text);
    gguf_close(g);
}
