// Log-softmax of a whole row of logits: one pass for the maximum, one that keeps the n best in a heap (if n > 0), and
// one that sums the exponentials in double. Only the values that are returned are normalised.
#include "engine/sample/logprobs.h"
#include "engine/sample/candidates.h"

#include <math.h>

float logprobs_of(const float *logits, int n_vocab, int32_t token, struct candidate *top, int n)
{
    float max = logits[0], least = -INFINITY; // least: the smallest logit kept, once n are kept
    int kept = 0;
    for (int32_t id = 0; id < n_vocab; id++)
        max = logits[id] > max ? logits[id] : max;
    for (int32_t id = 0; n > 0 && id < n_vocab; id++) {
        if (!(logits[id] > least) && kept == n)
            continue;
        candidates_offer(top, &kept, n, (struct candidate){logits[id], id});
        least = top[0].logit;
    }
    candidates_finish(top, kept);
    double total = (double)max + log(logits_sum_exp(logits, n_vocab, max));
    for (int i = 0; i < kept; i++)
        top[i].logit = (float)(top[i].logit - total);
    return (float)(logits[token] - total);
}
