// Perplexity and divergence: how well a model predicts a text, and how far it is from a base model. Both are computed
// from the logits of rows and the tokens that actually follow.
//
// Formulas (llama-perplexity's): nll = -ln p(token); PPL = exp(mean nll). Against a base model: KLD = sum p_base ln
// (p_base / p); delta-p = p(token) - p_base(token). The error of a mean is its standard deviation over sqrt(n - 1);
// that of a function of means follows by its derivatives, with the covariance of the two models' nll in the ratio.
// Ownership: struct divergence owns its lists. Threads: one at a time.
#ifndef QUERN_DIVERGENCE_H
#define QUERN_DIVERGENCE_H

#include "gguf/base.h"

struct estimate {
    double value, error;
};

// Sums over scored tokens; zero-initialise.
struct perplexity {
    int64_t n;
    double nll, nll2;
};
// ln of the probability of each token: logits[i] - the result. n_vocab > 0, all finite.
double log_sum_exp(const float *logits, int n_vocab);
void perplexity_add(struct perplexity *p, double nll);
struct estimate perplexity_mean_nll(const struct perplexity *p);
struct estimate perplexity_value(const struct perplexity *p);

// Of a model against a base, over the same tokens; zero-initialise.
struct divergence {
    struct perplexity model, base;
    double nll_nll;        // sum of nll * nll_base
    double delta2, delta4; // sums of delta-p to those powers
    double kld_sum, kld_sum2, delta_sum;
    int64_t n_same_top;
    float *kld, *delta; // [model.n] of each token, in order until divergence_sort
    size_t cap;
};
int divergence_add(struct divergence *d, const float *logits, const float *base, int n_vocab, int32_t token,
                   struct error *err);
void divergence_sort(struct divergence *d); // before divergence_percentile
void divergence_free(struct divergence *d);

struct estimate divergence_kld(const struct divergence *d);
struct estimate divergence_ln_ratio(const struct divergence *d); // ln(PPL / PPL(base))
struct estimate divergence_ratio(const struct divergence *d);    // PPL / PPL(base)
struct estimate divergence_difference(const struct divergence *d);
double divergence_correlation(const struct divergence *d); // of the two nll, -1 .. 1
struct estimate divergence_mean_delta(const struct divergence *d);
struct estimate divergence_rms_delta(const struct divergence *d);
struct estimate divergence_same_top(const struct divergence *d); // part of the tokens, 0 .. 1
// At `fraction` (0 .. 1) of the sorted values, between neighbours in proportion. The error is half the way between the
// values one standard deviation of the rank below and above; 0 at the ends, of which a sample says nothing.
struct estimate divergence_percentile(const float *sorted, int64_t n, double fraction);

#endif
