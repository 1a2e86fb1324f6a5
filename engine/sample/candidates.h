// Candidates for the next token, by what they weigh; kernels/top_k.h has their order.
//
// Ownership: arrays are the caller's. Threads: any.
#ifndef QUERN_CANDIDATES_H
#define QUERN_CANDIDATES_H

#include "kernels/top_k.h"

// Puts the fewest first ones to the front, in no order, whose weights reach `want` (beyond: are more than it), and
// returns how many they are; n when all together do not. weigh: at least 0. Time is linear, whatever the logits.
typedef double candidate_weight_fn(const void *arg, struct candidate c);
int candidates_select_mass(struct candidate *c, int n, double want, bool beyond, candidate_weight_fn *weigh,
                           const void *arg);

// e^x for x <= 0, the relative error within 1e-7, 0 below -87: the same bits with any compiler and library, and in
// loops that become vectors.
static inline float exp_negative(float x)
{
    // x = n ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^23 rounds to a whole number
    float rounded = x * 0x1.715476p0f + 0x1.8p23f, n = rounded - 0x1.8p23f;
    float r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    // e^r = 1 + r + r^2 p(r), p fitted for the least greatest relative error
    float p = 0x1.6a23cep-10f;
    p = p * r + 0x1.123a2p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    // unions, for with memcpy of gcc's zeroed locals no vectors are made of this
    union {
        float value;
        uint32_t bits;
    } power = {p * r * r + r + 1.0f}, exponent = {rounded};
    power.bits = (power.bits + (exponent.bits << 23)) & -(uint32_t)(x > -87.0f);
    return power.value;
}

// The sum of e^(x - max) over n numbers, max at least the greatest, in an order that depends on n alone.
double logits_sum_exp(const float *x, int n, float max);
// The sum of e^(logit - max) over candidates, max at least the greatest logit, in an order that depends on n alone.
double candidates_sum_exp(const struct candidate *c, int n, float max);

#endif
