// The stages, and the way to them. Nothing sorts the vocabulary, and few stages look at all of it:
//
// The logits are read once, for the greatest of each block of 64. Of those of groups of blocks the k-th greatest is a
// bound that the k first candidates reach, so that only the blocks that hold one are read again: with k = 40 and 128k
// tokens about 50 of 2048. Until a stage asks for candidates, penalties and biases change a copy of the logits; from
// then on they change the candidates.
#include "engine/sample/sampler.h"
#include "engine/sample/dry.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK = 64 }; // two words of a mask

struct sampler_scratch {
    int n_vocab, n_blocks;
    float *maxima;           // [n_blocks]
    float *logits;           // [n_vocab] the copy that is changed
    uint32_t *count;         // [n_vocab] zero between tokens
    struct candidate *all;   // [n_all]
    struct candidate *spare; // [n_spare] of typical
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
    double mu; // of mirostat
    // of the token that is being chosen
    const float *logits; // as given, or the scratch's copy
    const uint32_t *allowed;
    const int32_t *history;
    int n_history;
    int64_t position;
    bool gathered;         // whether there are candidates yet
    struct candidate *all; // the scratch's
    int n;                 // candidates left, all[0 .. n-1]
    double offset;         // that temperatures have taken off all candidates' logits
    int n_sorted;          // so many at the front are in order, and no later one comes before them
};

// --- making ---

// Makes *array at least n long; what was in it is forgotten.
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

// Room for all that a sampler with these parameters will need.
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

// --- the vocabulary, block by block ---

// Which tokens of block b may come, a bit each.
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

// The logits of block b, -INFINITY for what may not come: as they lie, or in `copy`.
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

// The greatest of each block, and of all; -INFINITY where nothing may come.
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

// A logit that at least k are no less than: the k-th greatest maximum of 3 k groups of blocks or more, which leaves few
// more than k; -INFINITY where there are fewer groups. `all` serves as the heap.
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

// Makes the tokens candidates whose logits are at least `least`, with k above 0 only the k first of them. The maxima
// are found. A logit of -INFINITY is no candidate's.
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

// Puts at least the k first of the candidates in order.
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

// Whatever is put on it, a logit stays finite, and -INFINITY, which may never come, what it is.
static float bounded(double logit)
{
    return logit > -INFINITY ? (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, logit)) : -INFINITY;
}

// The logits as a copy that may be changed.
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

// The last `want` tokens of the history, all of it when it is shorter or want is below 0.
static const int32_t *recent(const struct sampler *s, int want, int *n)
{
    *n = want < 0 ? s->n_history : MIN(want, s->n_history);
    return *n ? s->history + (s->n_history - *n) : s->history; // NULL at first
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
    for (int i = 0; i < n; i++) { // each token once, and the counts are zero again
        if (logits && count[tokens[i]])
            logits[tokens[i]] = penalised(s, logits[tokens[i]], count[tokens[i]]);
        count[tokens[i]] = 0;
    }
    s->n_sorted = 0;
}

static void apply_dry(struct sampler *s)
{
    uint32_t *lengths = s->scratch->count; // of the repetition that the token would continue
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

// Of the logits that are finite. shift: taken off each, so that squares lose nothing.
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

// "Top-n-sigma" (Tang et al., 2024): the noise of the logits is normal, and what stands out of it is meant.
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
    const struct candidate *all; // of typical, whose candidates' ids are indices
};

static double weigh(const void *arg, struct candidate c)
{
    const struct weighing *w = arg;
    return (double)exp_negative((w->all ? w->all[c.id].logit : c.logit) - w->max);
}

// The fewest whose probability together reaches top_p, always one.
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
    float below = s->p.min_p >= 1 ? 0 : logf(s->p.min_p); // the greatest logit less this is the bound
    if (s->gathered && s->n)
        keep_at_least(s, greatest_logit(s) + below);
    else if (!s->gathered)
        gather(s, find_maxima(s) + below, 0);
}

// How far a candidate's logit is below the greatest on average: the entropy less log(sum).
static double expected_distance(const struct sampler *s, float max, double sum)
{
    double expected = 0;
    for (int i = 0; i < s->n; i++) {
        float p = exp_negative(s->all[i].logit - max);
        expected += p > 0 ? (double)p / sum * (double)(max - s->all[i].logit) : 0;
    }
    return expected;
}

// Locally typical sampling (Meister et al., 2022): those whose surprise is nearest to the expected one.
static void keep_typical(struct sampler *s)
{
    gather_all(s);
    if (s->n <= 1)
        return;
    struct candidate *near = s->scratch->spare; // minus the distance, and the index
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

// Random numbers of a position: one for the draw, one for xtc.
enum random_use { RANDOM_DRAW, RANDOM_XTC };

// Uniform in [0, 1), 53 bits of it.
static double uniform(const struct sampler *s, enum random_use use)
{
    uint64_t seed = s->p.seed, at = (uint64_t)s->position;
    uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)use, 0}, out[4];
    philox(counter, (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

// Exclude top choices: of those that are likely enough only the least likely stays.
static void exclude_top_choices(struct sampler *s)
{
    gather_all(s);
    if (s->n < 2 || uniform(s, RANDOM_XTC) >= (double)s->p.xtc_probability)
        return;
    float max = greatest_logit(s);
    double least = (double)s->p.xtc_threshold * candidates_sum_exp(s->all, s->n, max);
    struct candidate last = {INFINITY, -1}; // of those that are likely enough; before all there are
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

// The temperature between its bounds that the entropy, as a part of the greatest possible, asks for.
static float dynamic_temperature(const struct sampler *s, float max)
{
    float low = MAX(0, s->p.temperature - s->p.dynatemp_range), high = s->p.temperature + s->p.dynatemp_range;
    if (s->n == 1)
        return high;
    double sum = candidates_sum_exp(s->all, s->n, max);
    double part = (log(sum) + expected_distance(s, max, sum)) / log(s->n);
    return low + (high - low) * (float)pow(fmin(fmax(part, 0), 1), (double)s->p.dynatemp_exponent);
}

// The greatest is taken off first, so that no temperature makes a number infinite.
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

// The index of a candidate by its probability: the first at which the sum passes a random part of the whole, which goes
// to *sum.
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
    // the two sums may round otherwise: the last that has any probability
    int last = s->n - 1;
    while (last > 0 && exp_negative(s->all[last].logit - max) == 0)
        last--;
    return last;
}

// Of the k first candidates, which Zipf's law makes about as surprising on average as mu asks (Basu et al., 2021): its
// exponent is estimated from the 100 most likely ones.
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
    // epsilon / (1 - n^-epsilon), and what it goes to at 0
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
        // surprise: log2 of the sum, less the logit in bits
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

// Runs the stages and draws from what they leave.
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
