// Candidates for the next token and their weights: selecting by total weight, and sums of exponentials. The order of
// candidates is defined in kernels/top_k.h.
//
// Ownership: arrays belong to the caller. Threads: any.
#ifndef QUERN_CANDIDATES_H
#define QUERN_CANDIDATES_H

#include "kernels/top_k.h"

// Moves the fewest first candidates whose weights add up to `want` (with `beyond`: to more than `want`) to the front,
// in no particular order. Returns their number, which is n when all candidates together do not reach it. `weigh`
// returns at least 0. The time is linear for any logits.
typedef double candidate_weight_fn(const void *arg, struct candidate c);
int candidates_select_mass(struct candidate *c, int n, double want, bool beyond, candidate_weight_fn *weigh,
                           const void *arg);

// e^x for x <= 0 with a relative error within 1e-7; 0 for x below -87. The result has the same bits with any compiler
// and library, and the compiler can vectorise loops of it.
static inline float exp_negative(float x)
{
    // x = n ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^23 rounds to a whole number
    float rounded = x * 0x1.715476p0f + 0x1.8p23f, n = rounded - 0x1.8p23f;
    float r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    // e^r = 1 + r + r^2 p(r), where p is fitted to minimise the largest relative error
    float p = 0x1.6a23cep-10f;
    p = p * r + 0x1.123a2p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    // unions instead of memcpy: with memcpy and locals that are zeroed by a compiler flag, gcc does not vectorise this
    union {
        float value;
        uint32_t bits;
    } power = {p * r * r + r + 1.0f}, exponent = {rounded};
    power.bits = (power.bits + (exponent.bits << 23)) & -(uint32_t)(x > -87.0f);
    return power.value;
}

// The sum of e^(x - max) over n numbers, none of which is greater than max. The order of summation depends only on n.
double logits_sum_exp(const float *x, int n, float max);
// The sum of e^(logit - max) over n candidates. The order of summation depends only on n.
double candidates_sum_exp(const struct candidate *c, int n, float max);

#endif
