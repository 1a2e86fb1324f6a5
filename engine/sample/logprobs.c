// Log-softmax of a whole row of logits: one pass for the maximum, one that keeps the n best in a heap (if n > 0), and
// one that sums the exponentials in double. Only the values that are returned are normalised.
#include "engine/sample/logprobs.h"
#include "engine/sample/candidates.h"

#include <math.h>
#include <stdlib.h>

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

int logprobs_rank(const float *logits, int n_vocab, int32_t token)
{
    int rank = 1;
    for (int32_t id = 0; id < token; id++)
        rank += logits[id] >= logits[token];
    for (int32_t id = token + 1; id < n_vocab; id++)
        rank += logits[id] > logits[token];
    return rank;
}

// --- the scores of a text ---

int text_scores_new(struct text_scores *s, int n_tokens, int n_top, struct error *err)
{
    size_t n = (size_t)n_tokens, n_all = n * (size_t)n_top;
    s->n_tokens = n_tokens;
    s->n_top = n_top;
    s->n_scored = 0;
    s->logprobs = calloc(n + 1, sizeof *s->logprobs);
    s->ranks = calloc(n + 1, sizeof *s->ranks);
    s->top = calloc(n_all + 1, sizeof *s->top);
    if (s->logprobs && s->ranks && s->top)
        return 0;
    text_scores_free(s);
    return fail(err, E_MEMORY, "no memory for the log-probabilities of %d tokens", n_tokens);
}

void text_scores_free(struct text_scores *s)
{
    free(s->logprobs);
    free(s->ranks);
    free(s->top);
    *s = (struct text_scores){0};
}

void text_scores_add(struct text_scores *s, const float *logits, int n_vocab, int32_t token)
{
    int at = ++s->n_scored;
    s->logprobs[at] = logprobs_of(logits, n_vocab, token, s->top + (ptrdiff_t)at * s->n_top, s->n_top);
    s->ranks[at] = logprobs_rank(logits, n_vocab, token);
}

bool text_scores_done(const struct text_scores *s)
{
    return s->n_scored >= s->n_tokens - 1;
}
