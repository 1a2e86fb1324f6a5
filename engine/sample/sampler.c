// The stages of sampling, and how candidates are selected from the logits. The naive way sorts the whole vocabulary and
// runs each stage over it. Here nothing sorts the vocabulary, and few stages look at all of it:
//
// One pass over the logits finds the maximum of each block of 64. The blocks are joined into at least 3 k groups. The
// k-th greatest maximum of a group is a lower bound of the k largest logits, so only blocks whose maximum reaches it
// are read again: about 50 of 2048 blocks with k = 40 and 128k tokens. Until a stage selects candidates, penalties
// and biases change a copy of the logits; from then on they change the candidates.
#include "engine/sample/sampler.h"
#include "engine/sample/dry.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK = 64 }; // logits of a block; two words of a bit mask

struct sampler_scratch {
    int n_vocab, n_blocks;
    float *maxima;           // [n_blocks]
    float *logits;           // [n_vocab] the copy that biases and penalties change
    uint32_t *count;         // [n_vocab] counts or lengths per token; zero between calls
    struct candidate *all;   // [n_all] the candidates
    struct candidate *spare; // [n_spare] work space of keep_typical
    int n_all, n_spare;
    struct dry_space dry;
};

struct sampler {
    struct sampler_params p;
    int n_vocab;
    uint32_t *banned; // a bit for each token
    int n_banned;
    struct sampler_scratch *scratch;
    bool owns_scratch;
    double mu; // the state of mirostat: the surprise, in bits, above which candidates are dropped
    // The token that is being chosen.
    const float *logits; // those given, or the copy in the scratch
    const uint32_t *allowed;
    const int32_t *history;
    int n_history;
    int64_t position;
    bool gathered;         // whether a stage has selected candidates
    struct candidate *all; // in the scratch
    int n;                 // number of candidates, all[0 .. n-1]
    double offset;         // what divide_by has subtracted from the logits of all candidates
    int n_sorted;          // the first n_sorted candidates are in order, and no later one comes before them
};

// --- making ---

// Makes *array at least n long. Its content is lost when it grows.
static bool grow(struct candidate **array, int *cap, int n)
{
    if (n <= *cap)
        return true;
    struct candidate *grown = malloc((size_t)n * sizeof *grown);
    if (!grown)
        return false;
    free(*array);
    *array = grown;
    *cap = n;
    return true;
}

// Allocates all that a sampler with these parameters will need.
static int reserve(struct sampler_scratch *scratch, const struct sampler_params *p, struct error *err)
{
    size_t n_vocab = (size_t)scratch->n_vocab;
    bool penalises = sampler_stage_acts(p, STAGE_PENALTIES), has_dry = sampler_stage_acts(p, STAGE_DRY);
    int n = MAX(sampler_most_candidates(p, scratch->n_vocab), MIN(p->top_k > 0 ? p->top_k : 0, scratch->n_vocab));
    bool ok = grow(&scratch->all, &scratch->n_all, n);
    if (ok && sampler_stage_acts(p, STAGE_TYPICAL))
        ok = grow(&scratch->spare, &scratch->n_spare, n);
    if (ok && !scratch->logits && (penalises || has_dry || p->n_biases))
        ok = (scratch->logits = malloc(n_vocab * sizeof *scratch->logits));
    if (ok && !scratch->count && (penalises || has_dry))
        ok = (scratch->count = calloc(n_vocab, sizeof *scratch->count));
    if (ok && has_dry)
        ok = dry_reserve(&scratch->dry, p->dry_last);
    return ok ? 0 : fail(err, E_MEMORY, "no memory to sample from %d tokens", scratch->n_vocab);
}

int sampler_scratch_new(struct sampler_scratch **out, int n_vocab, struct error *err)
{
    struct sampler_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return fail(err, E_MEMORY, "no memory for a sampler");
    scratch->n_vocab = n_vocab;
    scratch->n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
    scratch->maxima = calloc((size_t)scratch->n_blocks, sizeof *scratch->maxima);
    if (!scratch->maxima) {
        sampler_scratch_free(scratch);
        return fail(err, E_MEMORY, "no memory to sample from %d tokens", n_vocab);
    }
    *out = scratch;
    return 0;
}

void sampler_scratch_free(struct sampler_scratch *scratch)
{
    if (!scratch)
        return;
    dry_space_free(&scratch->dry);
    void *const parts[] = {scratch->maxima, scratch->logits, scratch->count, scratch->all, scratch->spare, scratch};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        free(parts[i]);
}

int sampler_new(struct sampler **out, const struct sampler_params *p, int n_vocab, struct sampler_scratch *scratch,
                struct error *err)
{
    if (sampler_check(p, n_vocab, err))
        return -1;
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return fail(err, E_MEMORY, "no memory for a sampler");
    s->p = *p;
    s->n_vocab = n_vocab;
    s->mu = 2.0 * (double)p->mirostat_tau;
    s->owns_scratch = !scratch;
    s->scratch = scratch;
    s->banned = calloc((size_t)(n_vocab + 31) / 32, sizeof *s->banned);
    if (!s->banned) {
        fail(err, E_MEMORY, "no memory for a sampler of %d tokens", n_vocab);
        goto failed;
    }
    if ((!scratch && sampler_scratch_new(&s->scratch, n_vocab, err)) || reserve(s->scratch, p, err))
        goto failed;
    *out = s;
    return 0;
failed:
    sampler_free(s);
    return -1;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    if (s->owns_scratch)
        sampler_scratch_free(s->scratch);
    free(s->banned);
    free(s);
}

static bool is_banned(const struct sampler *s, int32_t token)
{
    return s->banned[token / 32] >> (token % 32) & 1;
}

void sampler_ban(struct sampler *s, int32_t token)
{
    if (token < 0 || token >= s->n_vocab || is_banned(s, token))
        return;
    s->banned[token / 32] |= 1u << (token % 32);
    s->n_banned++;
}

void sampler_unban(struct sampler *s, int32_t token)
{
    if (token < 0 || token >= s->n_vocab || !is_banned(s, token))
        return;
    s->banned[token / 32] &= ~(1u << (token % 32));
    s->n_banned--;
}

// --- the vocabulary, block by block ---

// A bit for each token of block b: whether it is allowed and not banned.
static uint64_t allowed_in(const struct sampler *s, int b)
{
    uint64_t bits = ~(uint64_t)0;
    int words = (s->n_vocab + 31) / 32, w = 2 * b;
    if (s->allowed)
        bits = s->allowed[w] | (w + 1 < words ? (uint64_t)s->allowed[w + 1] << 32 : 0);
    if (s->n_banned)
        bits &= ~(s->banned[w] | (w + 1 < words ? (uint64_t)s->banned[w + 1] << 32 : 0));
    int n = s->n_vocab - b * BLOCK;
    return n < BLOCK ? bits & (((uint64_t)1 << n) - 1) : bits;
}

// The logits of block b, in which excluded tokens have -INFINITY. The result is a view, or `copy` when a token is
// excluded.
static const float *block_logits(const struct sampler *s, int b, float copy[BLOCK])
{
    uint64_t bits = allowed_in(s, b);
    const float *logits = s->logits + (size_t)b * BLOCK;
    if (bits == ~(uint64_t)0)
        return logits;
    for (int i = 0; i < BLOCK; i++)
        copy[i] = bits >> i & 1 ? logits[i] : -INFINITY;
    return copy;
}

static float max_of_block(const float *x)
{
    enum { LANES = 16 };
    float m[LANES];
    memcpy(m, x, sizeof m);
    for (int i = LANES; i < BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++)
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            m[j] = m[j + half] > m[j] ? m[j + half] : m[j];
    return m[0];
}

// Finds the maximum of each block and returns the maximum of all; -INFINITY when all tokens are excluded.
static float find_maxima(struct sampler *s)
{
    float copy[BLOCK], max = -INFINITY, *maxima = s->scratch->maxima;
    for (int b = 0; b < s->scratch->n_blocks; b++) {
        bool none = s->allowed && !allowed_in(s, b);
        maxima[b] = none ? -INFINITY : max_of_block(block_logits(s, b, copy));
        max = maxima[b] > max ? maxima[b] : max;
    }
    return max;
}

// A lower bound that at least k logits reach: the k-th greatest of the maxima of at least 3 k groups of blocks, which
// few more than k logits reach. -INFINITY when there are fewer than k groups. Uses `all` as the heap.
static float lower_bound(struct sampler *s, int k)
{
    const float *maxima = s->scratch->maxima;
    int n_blocks = s->scratch->n_blocks, size = MAX(1, n_blocks / (3 * MIN(k, n_blocks))), n = 0;
    for (int b = 0; b < n_blocks; b += size) {
        float max = maxima[b];
        for (int i = b + 1; i < MIN(b + size, n_blocks); i++)
            max = maxima[i] > max ? maxima[i] : max;
        candidates_offer(s->all, &n, k, (struct candidate){max, b});
    }
    return n < k ? -INFINITY : s->all[0].logit;
}

// Selects the tokens whose logits are at least `least` as candidates; with k above 0 only the k first of them.
// find_maxima must have run. Tokens with a logit of -INFINITY never become candidates.
static void gather(struct sampler *s, float least, int k)
{
    float copy[BLOCK];
    least = MAX(least, -FLT_MAX);
    if (k > 0)
        least = MAX(least, lower_bound(s, k));
    s->n = 0;
    for (int b = 0; b < s->scratch->n_blocks; b++) {
        if (!(s->scratch->maxima[b] >= least))
            continue;
        const float *logits = block_logits(s, b, copy);
        for (int i = 0; i < BLOCK; i++) {
            if (!(logits[i] >= least))
                continue;
            struct candidate c = {logits[i], b * BLOCK + i};
            if (k > 0)
                candidates_offer(s->all, &s->n, k, c);
            else
                s->all[s->n++] = c;
        }
    }
    if (k > 0)
        candidates_finish(s->all, s->n);
    s->n_sorted = k > 0 ? s->n : 0;
    s->gathered = true;
}

static void gather_all(struct sampler *s)
{
    if (s->gathered)
        return;
    find_maxima(s);
    gather(s, -INFINITY, 0);
}

// --- candidates ---

// Sorts at least the k first candidates to the front.
static void sort_first(struct sampler *s, int k)
{
    k = MIN(k, s->n);
    if (k <= s->n_sorted)
        return;
    candidates_sort_first(s->all + s->n_sorted, s->n - s->n_sorted, k - s->n_sorted);
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

static void keep_first(struct sampler *s, int k)
{
    s->n = MIN(s->n, k);
    s->n_sorted = MIN(s->n_sorted, s->n);
}

static void keep_at_least(struct sampler *s, float least)
{
    int n = 0, n_sorted = 0;
    for (int i = 0; i < s->n; i++)
        if (s->all[i].logit >= least) {
            n_sorted += i < s->n_sorted;
            s->all[n++] = s->all[i];
        }
    s->n = n;
    s->n_sorted = n_sorted;
}

// --- stages ---

// A changed logit, limited to finite values. -INFINITY, the logit of an excluded token, stays as it is.
static float bounded(double logit)
{
    return logit > -INFINITY ? (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, logit)) : -INFINITY;
}

// The copy of the logits, which may be changed. The first call makes it.
static float *own_logits(struct sampler *s)
{
    float *copy = s->scratch->logits;
    if (s->logits != copy) {
        memcpy(copy, s->logits, (size_t)s->n_vocab * sizeof *copy);
        s->logits = copy;
    }
    return copy;
}

static void add_biases(struct sampler *s)
{
    if (!s->p.n_biases)
        return;
    float *logits = own_logits(s);
    for (int i = 0; i < s->p.n_biases; i++) {
        const struct logit_bias *b = &s->p.biases[i];
        logits[b->token] = bounded((double)logits[b->token] + (double)b->bias);
    }
}

// The last `want` tokens of the history; all of it when it is shorter or `want` is below 0.
static const int32_t *recent(const struct sampler *s, int want, int *n)
{
    *n = want < 0 ? s->n_history : MIN(want, s->n_history);
    return *n ? s->history + (s->n_history - *n) : s->history; // the history may be NULL when it is empty
}

static float penalised(const struct sampler *s, float logit, uint32_t count)
{
    double whole = (double)logit + s->offset, factor = (double)s->p.repeat_penalty;
    double changed = whole > 0 ? whole / factor : whole * factor;
    changed -= (double)count * (double)s->p.frequency_penalty + (double)s->p.presence_penalty;
    return bounded(changed - s->offset);
}

static void apply_penalties(struct sampler *s)
{
    uint32_t *count = s->scratch->count;
    int n;
    const int32_t *tokens = recent(s, s->p.repeat_last, &n);
    for (int i = 0; i < n; i++)
        count[tokens[i]]++;
    for (int i = 0; s->gathered && i < s->n; i++)
        if (count[s->all[i].id])
            s->all[i].logit = penalised(s, s->all[i].logit, count[s->all[i].id]);
    float *logits = s->gathered ? NULL : own_logits(s);
    for (int i = 0; i < n; i++) { // each token is penalised once, because its count is zeroed here
        if (logits && count[tokens[i]])
            logits[tokens[i]] = penalised(s, logits[tokens[i]], count[tokens[i]]);
        count[tokens[i]] = 0;
    }
    s->n_sorted = 0;
}

static void apply_dry(struct sampler *s)
{
    uint32_t *lengths = s->scratch->count; // length of the repetition that a token would continue, plus one
    int n, n_tokens;
    const int32_t *tokens = recent(s, s->p.dry_last, &n);
    n_tokens = dry_repeats(&s->scratch->dry, s->p.dry_breakers, tokens, n, s->p.dry_allowed_length, lengths);
    const int32_t *repeated = s->scratch->dry.tokens;
    for (int i = 0; s->gathered && i < s->n; i++)
        if (lengths[s->all[i].id])
            s->all[i].logit = bounded((double)s->all[i].logit - dry_penalty(&s->p, lengths[s->all[i].id]));
    float *logits = s->gathered || !n_tokens ? NULL : own_logits(s);
    for (int i = 0; i < n_tokens; i++) {
        if (logits)
            logits[repeated[i]] = bounded((double)logits[repeated[i]] - dry_penalty(&s->p, lengths[repeated[i]]));
        lengths[repeated[i]] = 0;
    }
    s->n_sorted = 0;
}

struct moments {
    double n, sum, squares;
    float max;
};

// Adds logits to the sums, except those of -INFINITY. `shift` is subtracted from each logit, so that no precision is
// lost in the squares.
static struct moments add_up(const float *logits, int n, double shift, struct moments m)
{
    for (int i = 0; i < n; i++) {
        if (!(logits[i] > -INFINITY))
            continue;
        double x = (double)logits[i] - shift;
        m.n++;
        m.sum += x;
        m.squares += x * x;
        m.max = logits[i] > m.max ? logits[i] : m.max;
    }
    return m;
}

static struct moments moments_of_all(const struct sampler *s, double shift)
{
    struct moments m = {.max = -INFINITY};
    float copy[BLOCK];
    for (int i = 0; s->gathered && i < s->n; i++)
        m = add_up(&s->all[i].logit, 1, shift, m);
    for (int b = 0; !s->gathered && b < s->scratch->n_blocks; b++)
        if (s->scratch->maxima[b] > -INFINITY)
            m = add_up(block_logits(s, b, copy), MIN(BLOCK, s->n_vocab - b * BLOCK), shift, m);
    return m;
}

// Top-n-sigma (Tang et al., 2024): most logits are noise with a normal distribution, and only those near the maximum,
// by n standard deviations, are kept.
static void keep_top_n_sigma(struct sampler *s)
{
    if (!s->gathered)
        find_maxima(s);
    struct moments m = moments_of_all(s, 0);
    double mean = m.n > 0 ? m.sum / m.n : 0;
    m = moments_of_all(s, mean);
    double sigma = m.n > 0 ? sqrt(m.squares / m.n) : 0;
    float least = (float)((double)m.max - (double)s->p.top_n_sigma * sigma);
    if (s->gathered)
        keep_at_least(s, least);
    else
        gather(s, least, 0);
}

static void keep_top_k(struct sampler *s)
{
    if (!s->gathered && s->p.top_k < s->n_vocab) {
        find_maxima(s);
        gather(s, -INFINITY, s->p.top_k);
    }
    gather_all(s);
    if (s->p.top_k < s->n) {
        sort_first(s, s->p.top_k);
        keep_first(s, s->p.top_k);
    }
}

struct weighing {
    float max;
    const struct candidate *all; // of keep_typical, where the id of a candidate is an index into this; else NULL
};

static double weigh(const void *arg, struct candidate c)
{
    const struct weighing *w = arg;
    return (double)exp_negative((w->all ? w->all[c.id].logit : c.logit) - w->max);
}

// Keeps the fewest most likely candidates whose probabilities add up to top_p; at least one.
static void keep_top_p(struct sampler *s)
{
    gather_all(s);
    if (!s->n)
        return;
    float max = greatest_logit(s);
    double want = (double)s->p.top_p * candidates_sum_exp(s->all, s->n, max), reached = 0;
    if (s->n_sorted < s->n) {
        s->n = candidates_select_mass(s->all, s->n, want, false, weigh, &(struct weighing){.max = max});
        s->n_sorted = 0;
        return;
    }
    for (int i = 0; i < s->n; i++) {
        reached += (double)exp_negative(s->all[i].logit - max);
        if (reached >= want)
            keep_first(s, i + 1);
    }
}

static void keep_min_p(struct sampler *s)
{
    float below = s->p.min_p >= 1 ? 0 : logf(s->p.min_p); // the bound minus the greatest logit
    if (s->gathered && s->n)
        keep_at_least(s, greatest_logit(s) + below);
    else if (!s->gathered)
        gather(s, find_maxima(s) + below, 0);
}

// The mean distance of a logit from the greatest one, weighted by probability: the entropy minus log(sum).
static double expected_distance(const struct sampler *s, float max, double sum)
{
    double expected = 0;
    for (int i = 0; i < s->n; i++) {
        float p = exp_negative(s->all[i].logit - max);
        expected += p > 0 ? (double)p / sum * (double)(max - s->all[i].logit) : 0;
    }
    return expected;
}

// Locally typical sampling (Meister et al., 2022): keeps the candidates whose surprise is nearest to the entropy.
static void keep_typical(struct sampler *s)
{
    gather_all(s);
    if (s->n <= 1)
        return;
    struct candidate *near = s->scratch->spare; // logit: minus the distance; id: the index in s->all
    float max = greatest_logit(s);
    double sum = candidates_sum_exp(s->all, s->n, max), expected = expected_distance(s, max, sum);
    for (int i = 0; i < s->n; i++)
        near[i] = (struct candidate){(float)-fabs((double)(max - s->all[i].logit) - expected), i};
    int n =
        candidates_select_mass(near, s->n, (double)s->p.typical_p * sum, true, weigh, &(struct weighing){max, s->all});
    for (int i = 0; i < n; i++)
        near[i] = s->all[near[i].id];
    memcpy(s->all, near, (size_t)n * sizeof *near);
    s->n = n;
    s->n_sorted = 0;
}

// A position has two independent random numbers: one for the draw and one for XTC.
enum random_use { RANDOM_DRAW, RANDOM_XTC };

// A random number, uniform in [0, 1), with 53 bits.
static double uniform(const struct sampler *s, enum random_use use)
{
    uint64_t seed = s->p.seed, at = (uint64_t)s->position;
    uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)use, 0}, out[4];
    philox(counter, (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

// XTC, "exclude top choices": with xtc_probability, of all candidates above xtc_threshold only the least likely is
// kept.
static void exclude_top_choices(struct sampler *s)
{
    gather_all(s);
    if (s->n < 2 || uniform(s, RANDOM_XTC) >= (double)s->p.xtc_probability)
        return;
    float max = greatest_logit(s);
    double least = (double)s->p.xtc_threshold * candidates_sum_exp(s->all, s->n, max);
    struct candidate last = {INFINITY, -1}; // the last candidate above the threshold; at first it comes before all
    int n = 0, n_sorted = 0;
    for (int i = 0; i < s->n; i++)
        if ((double)exp_negative(s->all[i].logit - max) >= least && candidate_before(last, s->all[i]))
            last = s->all[i];
    for (int i = 0; i < s->n; i++)
        if (!candidate_before(s->all[i], last)) {
            n_sorted += i < s->n_sorted;
            s->all[n++] = s->all[i];
        }
    if (n) {
        s->n = n;
        s->n_sorted = n_sorted;
    }
}

// The temperature between temperature - range and temperature + range that corresponds to the entropy, as a fraction of
// the greatest possible entropy.
static float dynamic_temperature(const struct sampler *s, float max)
{
    float low = MAX(0, s->p.temperature - s->p.dynatemp_range), high = s->p.temperature + s->p.dynatemp_range;
    if (s->n == 1)
        return high;
    double sum = candidates_sum_exp(s->all, s->n, max);
    double part = (log(sum) + expected_distance(s, max, sum)) / log(s->n);
    return low + (high - low) * (float)pow(fmin(fmax(part, 0), 1), (double)s->p.dynatemp_exponent);
}

// Divides the logits by the temperature. The greatest logit is subtracted first, so that no quotient becomes +INFINITY.
static void divide_by(struct sampler *s, float temperature, float max)
{
    if (temperature <= 0) {
        sort_first(s, 1);
        keep_first(s, 1);
        return;
    }
    s->offset = fmin(fmax((s->offset + (double)max) / (double)temperature, -1e300), 1e300);
    for (int i = 0; i < s->n; i++)
        s->all[i].logit = (s->all[i].logit - max) / temperature;
}

static void apply_temperature(struct sampler *s)
{
    gather_all(s);
    if (!s->n)
        return;
    float max = greatest_logit(s);
    divide_by(s, s->p.dynatemp_range > 0 ? dynamic_temperature(s, max) : s->p.temperature, max);
}

static void (*const stages[STAGE_COUNT])(struct sampler *s) = {
    [STAGE_PENALTIES] = apply_penalties, [STAGE_DRY] = apply_dry,           [STAGE_TOP_N_SIGMA] = keep_top_n_sigma,
    [STAGE_TOP_K] = keep_top_k,          [STAGE_TYPICAL] = keep_typical,    [STAGE_TOP_P] = keep_top_p,
    [STAGE_MIN_P] = keep_min_p,          [STAGE_XTC] = exclude_top_choices, [STAGE_TEMPERATURE] = apply_temperature,
};

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

// Draws the index of a candidate by its probability: the first one at which the running sum of weights exceeds a random
// fraction of the total. The total goes to *sum.
static int draw(const struct sampler *s, float max, double *sum)
{
    double reached = 0;
    *sum = candidates_sum_exp(s->all, s->n, max);
    double want = uniform(s, RANDOM_DRAW) * *sum;
    for (int i = 0; i < s->n; i++) {
        reached += (double)exp_negative(s->all[i].logit - max);
        if (reached > want)
            return i;
    }
    // the two sums may round differently: take the last candidate with a probability above 0
    int last = s->n - 1;
    while (last > 0 && exp_negative(s->all[last].logit - max) == 0)
        last--;
    return last;
}

// Mirostat 1 (Basu et al., 2021): the number k of first candidates whose expected surprise is about mu, if
// probabilities follow Zipf's law. The exponent of the law is estimated from the 100 most likely candidates.
static int mirostat_k(struct sampler *s)
{
    enum { M = 100 };
    double tb = 0, tt = 0;
    sort_first(s, M);
    for (int i = 0; i + 1 < MIN(M, s->n); i++) {
        double t = log((double)(i + 2) / (double)(i + 1));
        tb += t * (double)(s->all[i].logit - s->all[i + 1].logit);
        tt += t * t;
    }
    double exponent = tt > 0 ? tb / tt : 0, epsilon = exponent - 1, log_n = log((double)s->n_vocab);
    // epsilon / (1 - n^-epsilon), or its limit at 0
    double factor = fabs(epsilon) < 1e-9 ? 1 / log_n : epsilon / -expm1(-epsilon * log_n);
    double k = pow(factor * exp2(s->mu), 1 / exponent);
    return k < s->n ? (int)fmax(k, 1) : s->n; // NaN: all
}

static int32_t mirostat(struct sampler *s)
{
    gather_all(s);
    if (!s->n)
        return -1;
    divide_by(s, s->p.temperature, greatest_logit(s));
    float max = 0;
    if (s->p.mirostat == 1) {
        int k = mirostat_k(s);
        sort_first(s, k);
        keep_first(s, k);
    } else {
        // keep candidates with a surprise of at most mu; the surprise is log2(sum) minus the logit in bits
        keep_at_least(s, (float)fmin(0, log(candidates_sum_exp(s->all, s->n, max)) - s->mu * log(2)));
    }
    double sum;
    int i = draw(s, max, &sum);
    double surprise = log2(sum) - (double)s->all[i].logit / log(2);
    s->mu -= (double)s->p.mirostat_eta * (surprise - (double)s->p.mirostat_tau);
    return s->all[i].id;
}

static int32_t most_likely(struct sampler *s)
{
    float max = find_maxima(s), copy[BLOCK];
    for (int b = 0; max > -INFINITY && b < s->scratch->n_blocks; b++) {
        if (s->scratch->maxima[b] != max)
            continue;
        const float *logits = block_logits(s, b, copy);
        for (int i = 0; i < BLOCK; i++)
            if (logits[i] == max) {
                s->all[s->n++] = (struct candidate){max, b * BLOCK + i};
                return b * BLOCK + i;
            }
    }
    return -1;
}

const struct candidate *sampler_candidates(const struct sampler *s, int *n)
{
    *n = s->n;
    return s->all;
}

static void begin(struct sampler *s, const int32_t *history, int n, int64_t position)
{
    s->history = history;
    s->n_history = n;
    s->position = position;
    s->all = s->scratch->all;
    s->n = s->n_sorted = 0;
    s->gathered = false;
    s->offset = 0;
}

// Runs the stages and draws from the candidates that they keep.
static int32_t choose(struct sampler *s)
{
    bool first = sampler_takes_first(&s->p);
    if (s->p.mirostat && !first)
        return mirostat(s);
    for (int i = 0; !s->p.mirostat && i < s->p.n_order; i++) {
        enum sampler_stage stage = s->p.order[i];
        bool changes = stage == STAGE_PENALTIES || stage == STAGE_DRY;
        if (sampler_stage_acts(&s->p, stage) && (!first || changes))
            stages[stage](s);
    }
    if (first && !s->gathered)
        return most_likely(s);
    gather_all(s);
    if (!s->n)
        return -1;
    double sum;
    if (sampler_is_greedy(&s->p)) {
        sort_first(s, 1);
        return s->all[0].id;
    }
    return s->all[draw(s, greatest_logit(s), &sum)].id;
}

int32_t sampler_next(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *history, int n,
                     int64_t position)
{
    s->logits = logits;
    s->allowed = allowed;
    begin(s, history, n, position);
    add_biases(s);
    return choose(s);
}

int sampler_top_k(const struct sampler *s)
{
    int k = sampler_first_wanted(&s->p, s->n_vocab);
    return k && k <= s->n_vocab - s->n_banned ? k + s->n_banned : 0;
}

int32_t sampler_next_of(struct sampler *s, const struct candidate *top, int n_top, const int32_t *history, int n,
                        int64_t position)
{
    int k = sampler_first_wanted(&s->p, s->n_vocab);
    s->logits = NULL;
    s->allowed = NULL;
    begin(s, history, n, position);
    for (int i = 0; i < n_top && s->n < k; i++)
        if (!is_banned(s, top[i].id))
            s->all[s->n++] = top[i];
    s->n_sorted = s->n;
    s->gathered = true;
    return choose(s);
}
