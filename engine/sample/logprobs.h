// Log-probabilities of tokens: the log-softmax of the logits of the model, before any stage of sampling.
//
// Ownership: everything belongs to the caller. Threads: any.
#ifndef QUERN_LOGPROBS_H
#define QUERN_LOGPROBS_H

#include "engine/sample/candidates.h"

// Returns the natural logarithm of the probability of `token`. Writes the n most likely tokens to top[n], most likely
// first; their `logit` fields hold log-probabilities too. 0 <= n <= n_vocab.
float logprobs_of(const float *logits, int n_vocab, int32_t token, struct candidate *top, int n);

#endif
