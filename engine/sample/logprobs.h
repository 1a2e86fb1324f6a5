// Log-probabilities of tokens, as the model gives them: the log-softmax of its logits, before any sampling.
//
// Ownership: everything is the caller's. Threads: any.
#ifndef QUERN_LOGPROBS_H
#define QUERN_LOGPROBS_H

#include "engine/sample/candidates.h"

// The natural logarithm of the probability of `token`, and the n most likely tokens to top[n], most likely first, their
// `logit` made the logarithm likewise. 0 <= n <= n_vocab.
float logprobs_of(const float *logits, int n_vocab, int32_t token, struct candidate *top, int n);

#endif
