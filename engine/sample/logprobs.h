// Log-probabilities of tokens: the log-softmax of the logits of the model, before any stage of sampling.
//
// Ownership: everything belongs to the caller; a struct text_scores owns its arrays. Threads: any, one at a time on a
// struct text_scores.
#ifndef QUERN_LOGPROBS_H
#define QUERN_LOGPROBS_H

#include "engine/sample/candidates.h"
#include "gguf/base.h"

// Returns the natural logarithm of the probability of `token`. Writes the n most likely tokens to top[n], most likely
// first; their `logit` fields hold log-probabilities too. 0 <= n <= n_vocab.
float logprobs_of(const float *logits, int n_vocab, int32_t token, struct candidate *top, int n);
// How many tokens are at least as likely as `token`, where of two equal ones the lower id comes first: 1 for the most
// likely one.
int logprobs_rank(const float *logits, int n_vocab, int32_t token);

// The log-probabilities of the tokens of a text, each behind the tokens before it. The first token has none.
struct text_scores {
    int n_tokens, n_top;
    int n_scored;          // tokens 1 .. n_scored are scored
    float *logprobs;       // [n_tokens]
    int32_t *ranks;        // [n_tokens] see logprobs_rank
    struct candidate *top; // [n_tokens][n_top] as from logprobs_of
};
// E_MEMORY. *s must be zero-initialised.
int text_scores_new(struct text_scores *s, int n_tokens, int n_top, struct error *err);
void text_scores_free(struct text_scores *s);
// Scores the next token by the logits of the row before it.
void text_scores_add(struct text_scores *s, const float *logits, int n_vocab, int32_t token);
// Whether all tokens are scored.
bool text_scores_done(const struct text_scores *s);

#endif
