// The sums over the vocabulary are taken in floats with a polynomial for e^x, 4096 values at a time; these partial
// sums are added up in doubles. The statistics over tokens are kept as running sums, and the lists of divergences are
// sorted only for percentiles.
#include "engine/measure/divergence.h"

#include <math.h>
#include <stdlib.h>

// --- sums over a vocabulary ---
//
// The sums run in 16 lanes that are added up at the end. The result is therefore the same for any width of vectors that
// the compiler uses.

enum { LANES = 16 };

// e^x for x <= 0, within 2 units of the last place: 2^n times a polynomial of the remainder r, |r| <= ln 2 / 2. For x
// below -87 it is 0, which is lost in a sum whose largest term is 1 anyway.
static inline float exp_negative(float x)
{
    float n = x * 1.442695041f, rounded = (n + 12582912.0f) - 12582912.0f; // to the nearest whole number
    float r = (x - rounded * 0.693359375f) + rounded * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)rounded + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x > -87.0f ? p * scale : 0.0f;
}

static int index_of_largest(const float *x, int n)
{
    float top[LANES];
    for (int l = 0; l < LANES; l++)
        top[l] = x[0];
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    float most = top[0];
    for (int l = 1; l < LANES; l++)
        most = MAX(most, top[l]);
    for (; i < n; i++)
        most = MAX(most, x[i]);
    for (i = 0; x[i] < most; i++)
        ;
    return i;
}

static double sum_of_exp(const float *x, int n, float most)
{
    double sum = 0;
    for (int i = 0; i < n;) {
        int end = MIN(n, i + 4096);
        float lane[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++)
                lane[l] += exp_negative(MAX(x[i + l] - most, -88.0f));
        for (; i < end; i++)
            lane[0] += exp_negative(MAX(x[i] - most, -88.0f));
        for (int l = 0; l < LANES; l++)
            sum += lane[l];
    }
    return sum;
}

double log_sum_exp(const float *logits, int n_vocab)
{
    float most = logits[index_of_largest(logits, n_vocab)];
    return most + log(sum_of_exp(logits, n_vocab, most));
}

// sum p_base (ln p_base - ln p), where ln p = x - norm and ln p_base = base - base_norm. Equal logits give exactly 0.
static double kl_divergence(const float *x, double norm, const float *base, double base_norm, int n)
{
    double sum = 0;
    float shift = (float)(norm - base_norm), most = (float)base_norm;
    for (int i = 0; i < n;) {
        int end = MIN(n, i + 4096);
        float lane[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++)
                lane[l] += exp_negative(MIN(MAX(base[i + l] - most, -88.0f), 0.0f)) * (base[i + l] - x[i + l] + shift);
        for (; i < end; i++)
            lane[0] += exp_negative(MIN(MAX(base[i] - most, -88.0f), 0.0f)) * (base[i] - x[i] + shift);
        for (int l = 0; l < LANES; l++)
            sum += lane[l];
    }
    return sum;
}

// --- estimates ---

static struct estimate mean_of(double sum, double sum2, int64_t n)
{
    if (n < 1)
        return (struct estimate){NAN, NAN};
    double mean = sum / (double)n, variance = sum2 / (double)n - mean * mean;
    return (struct estimate){mean, n > 1 && variance > 0 ? sqrt(variance / (double)(n - 1)) : 0};
}

void perplexity_add(struct perplexity *p, double nll)
{
    p->n++;
    p->nll += nll;
    p->nll2 += nll * nll;
}

struct estimate perplexity_mean_nll(const struct perplexity *p)
{
    return mean_of(p->nll, p->nll2, p->n);
}

static struct estimate exp_of(struct estimate e)
{
    double value = exp(e.value);
    return (struct estimate){value, value * e.error};
}

struct estimate perplexity_value(const struct perplexity *p)
{
    return exp_of(perplexity_mean_nll(p));
}

static int make_room(struct divergence *d, struct error *err)
{
    if ((size_t)d->model.n < d->cap)
        return 0;
    size_t cap = d->cap ? 2 * d->cap : 4096;
    float *kld = realloc(d->kld, cap * sizeof *kld);
    d->kld = kld ? kld : d->kld;
    float *delta = realloc(d->delta, cap * sizeof *delta);
    d->delta = delta ? delta : d->delta;
    if (!kld || !delta)
        return fail(err, E_MEMORY, "no memory for the divergences of %zu tokens", cap);
    d->cap = cap;
    return 0;
}

int divergence_add(struct divergence *d, const float *logits, const float *base, int n_vocab, int32_t token,
                   struct error *err)
{
    if (make_room(d, err))
        return -1;
    double norm = log_sum_exp(logits, n_vocab), base_norm = log_sum_exp(base, n_vocab);
    double nll = norm - logits[token], base_nll = base_norm - base[token];
    double kld = kl_divergence(logits, norm, base, base_norm, n_vocab), delta = exp(-nll) - exp(-base_nll);
    d->kld[d->model.n] = (float)kld;
    d->delta[d->model.n] = (float)delta;
    perplexity_add(&d->model, nll);
    perplexity_add(&d->base, base_nll);
    d->nll_nll += nll * base_nll;
    d->kld_sum += kld;
    d->kld_sum2 += kld * kld;
    d->delta_sum += delta;
    d->delta2 += delta * delta;
    d->delta4 += delta * delta * delta * delta;
    d->n_same_top += index_of_largest(logits, n_vocab) == index_of_largest(base, n_vocab);
    return 0;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void divergence_sort(struct divergence *d)
{
    if (d->model.n == 0)
        return;
    qsort(d->kld, (size_t)d->model.n, sizeof *d->kld, ascending);
    qsort(d->delta, (size_t)d->model.n, sizeof *d->delta, ascending);
}

void divergence_free(struct divergence *d)
{
    free(d->kld);
    free(d->delta);
    *d = (struct divergence){0};
}

struct estimate divergence_kld(const struct divergence *d)
{
    return mean_of(d->kld_sum, d->kld_sum2, d->model.n);
}

// The covariance of the mean nll of both models.
static double covariance(const struct divergence *d)
{
    double n = (double)d->model.n;
    return n > 1 ? (d->nll_nll / n - d->model.nll / n * (d->base.nll / n)) / (n - 1) : 0;
}

// The error of a difference of two correlated estimates with errors a and b.
static double error_of_difference(double a, double b, double covariance_ab)
{
    return sqrt(fmax(0, a * a + b * b - 2 * covariance_ab));
}

struct estimate divergence_ln_ratio(const struct divergence *d)
{
    struct estimate a = perplexity_mean_nll(&d->model), b = perplexity_mean_nll(&d->base);
    return (struct estimate){a.value - b.value, error_of_difference(a.error, b.error, covariance(d))};
}

struct estimate divergence_ratio(const struct divergence *d)
{
    return exp_of(divergence_ln_ratio(d));
}

struct estimate divergence_difference(const struct divergence *d)
{
    struct estimate a = perplexity_value(&d->model), b = perplexity_value(&d->base);
    return (struct estimate){a.value - b.value,
                             error_of_difference(a.error, b.error, a.value * b.value * covariance(d))};
}

double divergence_correlation(const struct divergence *d)
{
    double errors = perplexity_mean_nll(&d->model).error * perplexity_mean_nll(&d->base).error;
    return errors > 0 ? covariance(d) / errors : 1;
}

struct estimate divergence_mean_delta(const struct divergence *d)
{
    return mean_of(d->delta_sum, d->delta2, d->model.n);
}

struct estimate divergence_rms_delta(const struct divergence *d)
{
    struct estimate square = mean_of(d->delta2, d->delta4, d->model.n);
    double rms = sqrt(square.value);
    return (struct estimate){rms, rms > 0 ? square.error / (2 * rms) : 0};
}

struct estimate divergence_same_top(const struct divergence *d)
{
    double n = (double)d->model.n, part = (double)d->n_same_top / n;
    return (struct estimate){part, n > 1 ? sqrt(part * (1 - part) / (n - 1)) : 0};
}

static double value_at(const float *sorted, int64_t n, double fraction)
{
    double at = fmax(0, fmin(1, fraction)) * (double)(n - 1);
    int64_t i = (int64_t)at, next = MIN(i + 1, n - 1);
    return sorted[i] + (at - (double)i) * ((double)sorted[next] - sorted[i]);
}

struct estimate divergence_percentile(const float *sorted, int64_t n, double fraction)
{
    double deviation = sqrt(fraction * (1 - fraction) / (double)n);
    double low = value_at(sorted, n, fraction - deviation), high = value_at(sorted, n, fraction + deviation);
    return (struct estimate){value_at(sorted, n, fraction), (high - low) / 2};
}
