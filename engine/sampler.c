#include "engine/sampler.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_params p;
    int n_vocab;
    uint8_t *banned, *recent;  // [n_vocab]
    struct candidate *all;     // [n_vocab]
    // of the token that is being chosen
    const int32_t *history;
    int n_history;
    int n;         // candidates left, all[0 .. n-1]
    int n_sorted;  // so many at the front are in order, and no later one comes before them
};

struct sampler_params sampler_defaults(void)
{
    return (struct sampler_params){
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.0f, .repeat_last = 64};
}

int sampler_from_file(struct sampler_params *p, const struct gguf *file, struct error *err)
{
    int64_t top_k = p->top_k, last = p->repeat_last;
    if (gguf_get_f32(file, "general.sampling.temp", &p->temperature, err) < 0 ||
        gguf_get_i64(file, "general.sampling.top_k", &top_k, err) < 0 ||
        gguf_get_f32(file, "general.sampling.top_p", &p->top_p, err) < 0 ||
        gguf_get_f32(file, "general.sampling.min_p", &p->min_p, err) < 0 ||
        gguf_get_f32(file, "general.sampling.penalty_repeat", &p->repeat_penalty, err) < 0 ||
        gguf_get_i64(file, "general.sampling.penalty_last_n", &last, err) < 0)
        return -1;
    p->top_k = (int)MAX(0, MIN(top_k, INT32_MAX));
    p->repeat_last = (int)MAX(-1, MIN(last, INT32_MAX));
    const float values[] = {p->temperature, p->top_p, p->min_p, p->repeat_penalty};
    for (size_t i = 0; i < COUNT_OF(values); i++)
        if (!isfinite(values[i]) || values[i] < 0)
            return fail(err, E_MODEL, "general.sampling: %g is no value of temp, top_p, min_p or penalty_repeat",
                        (double)values[i]);
    if (p->repeat_penalty <= 0)
        return fail(err, E_MODEL, "general.sampling.penalty_repeat: %g is not above 0", (double)p->repeat_penalty);
    return 0;
}

int sampler_new(struct sampler **out, const struct sampler_params *p, int n_vocab, struct error *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return fail(err, E_MEMORY, "no memory for a sampler");
    s->p = *p;
    s->n_vocab = n_vocab;
    s->banned = calloc((size_t)n_vocab, 1);
    s->recent = calloc((size_t)n_vocab, 1);
    s->all = calloc((size_t)n_vocab, sizeof *s->all);
    if (!s->banned || !s->recent || !s->all) {
        sampler_free(s);
        return fail(err, E_MEMORY, "no memory for a sampler of %d tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->banned);
    free(s->recent);
    free(s->all);
    free(s);
}

void sampler_ban(struct sampler *s, int32_t token)
{
    if (token >= 0 && token < s->n_vocab)
        s->banned[token] = 1;
}

// --- order: the greater logit first, of equals the lower id ---

static bool before(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

// A heap whose top comes last of all: what stands in it are the k first so far.
static void sift_down_last(struct candidate *heap, int i, int n)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child], heap[child + 1]))
            child++;
        if (!before(heap[i], heap[child]))
            return;
        swap(&heap[i], &heap[child]);
    }
}

// The k first of n, in order, to the front: one look at each of the others, and a place in the heap for few of them.
static void select_first(struct candidate *c, int n, int k)
{
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_down_last(c, i, k);
    for (int i = k; i < n; i++) {
        if (!before(c[i], c[0]))
            continue;
        swap(&c[i], &c[0]);
        sift_down_last(c, 0, k);
    }
    for (int end = k - 1; end > 0; end--) {
        swap(&c[0], &c[end]);
        sift_down_last(c, 0, end);
    }
}

// Puts at least the k first of the candidates in order.
static void sort_first(struct sampler *s, int k)
{
    k = MIN(k, s->n);
    if (k <= s->n_sorted)
        return;
    select_first(s->all + s->n_sorted, s->n - s->n_sorted, k - s->n_sorted);
    s->n_sorted = k;
}

static float greatest_logit(const struct sampler *s)
{
    if (s->n_sorted)
        return s->all[0].logit;
    float max = s->all[0].logit;
    for (int i = 1; i < s->n; i++)
        max = s->all[i].logit > max ? s->all[i].logit : max;
    return max;
}

// --- stages ---

static void penalise_repeats(struct sampler *s)
{
    if (s->p.repeat_penalty == 1 || s->p.repeat_last == 0)
        return;
    int last = s->p.repeat_last < 0 ? s->n_history : MIN(s->p.repeat_last, s->n_history);
    const int32_t *history = s->history + (s->n_history - last);
    for (int i = 0; i < last; i++)
        s->recent[history[i]] = 1;
    for (int i = 0; i < s->n; i++) {
        if (!s->recent[s->all[i].id])
            continue;
        float logit = s->all[i].logit * (s->all[i].logit > 0 ? 1 / s->p.repeat_penalty : s->p.repeat_penalty);
        s->all[i].logit = fmaxf(-FLT_MAX, fminf(FLT_MAX, logit));
    }
    for (int i = 0; i < last; i++)
        s->recent[history[i]] = 0;
}

static void keep_top_k(struct sampler *s)
{
    if (s->p.top_k <= 0 || s->p.top_k >= s->n)
        return;
    sort_first(s, s->p.top_k);
    s->n = s->p.top_k;
}

// The fewest whose probability together reaches top_p, always one. Few are needed as a rule: so twice as many are put
// in order each time that they do not suffice.
static void keep_top_p(struct sampler *s)
{
    if (s->p.top_p >= 1)
        return;
    float max = greatest_logit(s);
    double sum = 0, reached = 0;
    for (int i = 0; i < s->n; i++)
        sum += exp((double)s->all[i].logit - max);
    for (int i = 0; i < s->n; i++) {
        if (i == s->n_sorted)
            sort_first(s, MAX(64, 2 * i));
        reached += exp((double)s->all[i].logit - max);
        if (reached >= s->p.top_p * sum)
            s->n = i + 1;
    }
    s->n_sorted = MIN(s->n_sorted, s->n);
}

static void keep_min_p(struct sampler *s)
{
    if (s->p.min_p <= 0)
        return;
    double least = greatest_logit(s) + log((double)s->p.min_p);
    if (s->p.min_p > 1)
        least = greatest_logit(s);
    int n = 0, n_sorted = 0;
    for (int i = 0; i < s->n; i++)
        if (s->all[i].logit >= least) {
            n_sorted += i < s->n_sorted;
            s->all[n++] = s->all[i];
        }
    s->n = n;
    s->n_sorted = n_sorted;
}

static void apply_temperature(struct sampler *s)
{
    float max = greatest_logit(s);  // taken off first, so that no temperature makes a number infinite
    for (int i = 0; i < s->n; i++)
        s->all[i].logit = (s->all[i].logit - max) / s->p.temperature;
}

// In this order. A stage that comes later does so in a row of its own.
static const struct stage {
    const char *name;
    void (*apply)(struct sampler *s);
    bool greedy;  // also before the most likely token is taken
} stages[] = {
    {"penalties", penalise_repeats, true},
    {"top-k", keep_top_k, false},
    {"top-p", keep_top_p, false},
    {"min-p", keep_min_p, false},
    {"temperature", apply_temperature, false},
};

void sampler_describe(const struct sampler_params *p, struct text *out)
{
    text_print(out, "sampling:");
    for (size_t i = 0; i < COUNT_OF(stages); i++)
        if (stages[i].greedy || p->temperature > 0)
            text_print(out, " %s", stages[i].name);
    text_print(out, p->temperature > 0 ? ", seed %" PRIu64 "\n" : ", the most likely token\n", p->seed);
}

// --- the choice ---

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

// Uniform in [0, 1), 53 bits of it.
static double uniform(uint64_t seed, int64_t position)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)((uint64_t)position >> 32), 0, 0}, out[4];
    philox(counter, (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

static int32_t most_likely(const struct sampler *s)
{
    struct candidate best = s->all[0];
    for (int i = 1; i < s->n; i++)
        if (before(s->all[i], best))
            best = s->all[i];
    return best.id;
}

// A candidate by its probability: the first at which the sum passes a random part of the whole.
static int32_t draw(const struct sampler *s, double u)
{
    float max = greatest_logit(s);
    double sum = 0, reached = 0;
    for (int i = 0; i < s->n; i++)
        sum += exp((double)s->all[i].logit - max);
    for (int i = 0; i < s->n; i++) {
        reached += exp((double)s->all[i].logit - max);
        if (reached > u * sum)
            return s->all[i].id;
    }
    return s->all[s->n - 1].id;
}

int32_t sampler_next(struct sampler *s, const float *logits, const int32_t *history, int n, int64_t position)
{
    s->history = history;
    s->n_history = n;
    s->n = s->n_sorted = 0;
    for (int32_t id = 0; id < s->n_vocab; id++) {
        s->all[s->n] = (struct candidate){logits[id], id};
        s->n += !s->banned[id];
    }
    if (!s->n)
        return 0;
    bool greedy = s->p.temperature <= 0;
    for (size_t i = 0; i < COUNT_OF(stages); i++)
        if (stages[i].greedy || !greedy)
            stages[i].apply(s);
    return greedy ? most_likely(s) : draw(s, uniform(s->p.seed, position));
}
