#include "engine/logprobs.h"
#include "engine/candidates.h"

#include <math.h>

// log of the sum of e^logit
static double log_sum_exp(const float *logits, int n, float max)
{
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sums[j] += (double)exp_negative(logits[i + j] - max);
    for (; i < n; i++)
        sum += (double)exp_negative(logits[i] - max);
    for (int j = 0; j < LANES; j++)
        sum += sums[j];
    return max + log(sum);
}

float logprobs_of(const float *logits, int n_vocab, int32_t token, struct candidate *top, int n)
{
    float max = logits[0];
    int kept = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        max = logits[id] > max ? logits[id] : max;
        if (n > 0)
            candidates_offer(top, &kept, n, (struct candidate){logits[id], id});
    }
    candidates_finish(top, kept);
    double total = log_sum_exp(logits, n_vocab, max);
    for (int i = 0; i < kept; i++)
        top[i].logit = (float)(top[i].logit - total);
    return (float)(logits[token] - total);
}
