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
// The logarithm of the sum of e^logit. The log-probability of token i is logits[i] minus this. n_vocab > 0; all logits
// are finite.
double log_sum_exp(const float *logits, int n_vocab);
// Adds one token.
void perplexity_add(struct perplexity *p, double nll);
struct estimate perplexity_mean_nll(const struct perplexity *p);
struct estimate perplexity_value(const struct perplexity *p);

// Sums for a model and a base model over the same scored tokens; zero-initialise.
struct divergence {
    struct perplexity model, base;
    double nll_nll;        // sum of nll * nll_base
    double delta2, delta4; // sums of (delta-p)^2 and (delta-p)^4
    double kld_sum, kld_sum2, delta_sum;
    int64_t n_same_top; // tokens for which both models have the same most likely token
    float *kld, *delta; // [model.n] KLD and delta-p of each token, in order of the text until divergence_sort
    size_t cap;
};
// Adds one token. E_MEMORY.
int divergence_add(struct divergence *d, const float *logits, const float *base, int n_vocab, int32_t token,
                   struct error *err);
void divergence_sort(struct divergence *d); // sorts kld and delta, for divergence_percentile
void divergence_free(struct divergence *d);

struct estimate divergence_kld(const struct divergence *d);
struct estimate divergence_ln_ratio(const struct divergence *d); // ln(PPL / PPL(base))
struct estimate divergence_ratio(const struct divergence *d);    // PPL / PPL(base)
struct estimate divergence_difference(const struct divergence *d);
double divergence_correlation(const struct divergence *d); // correlation of the nll of both models, -1 .. 1
struct estimate divergence_mean_delta(const struct divergence *d);
struct estimate divergence_rms_delta(const struct divergence *d);
struct estimate divergence_same_top(const struct divergence *d); // fraction of the tokens, 0 .. 1
// The value at `fraction` (0 .. 1) of the sorted values, interpolated between neighbours. The error is half the
// distance between the values one standard deviation of the rank below and above it. At both ends it is 0, because a
// sample says nothing about the error there.
struct estimate divergence_percentile(const float *sorted, int64_t n, double fraction);

#endif
