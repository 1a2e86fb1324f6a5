// The sampler: it chooses the next token from logits.
//
// The stages run in a given order, each on the candidates that the stage before has kept: first the mask of allowed
// tokens and the bans, then the biases, then the stages of `order`, then the draw. Random numbers are a function of
// the seed and the position alone. A seed therefore gives the same text on any number of threads, in any batch,
// however the prompt is cut into steps, and with or without speculative decoding. Ownership: a sampler owns what it
// allocates; the arrays of its parameters belong to the caller and must outlive it. Threads: one at a time; samplers
// that share a scratch must run on one thread.
#ifndef QUERN_SAMPLER_H
#define QUERN_SAMPLER_H

#include "engine/sample/candidates.h"
#include "engine/sample/sampler_params.h"

// Work space of the size of the vocabulary, which the samplers of one thread may share.
struct sampler_scratch;
int sampler_scratch_new(struct sampler_scratch **out, int n_vocab, struct error *err);
void sampler_scratch_free(struct sampler_scratch *scratch); // NULL is fine

struct sampler;

// scratch: NULL to allocate one of its own. After this call the sampler allocates nothing. E_MEMORY.
int sampler_new(struct sampler **out, const struct sampler_params *p, int n_vocab, struct sampler_scratch *scratch,
                struct error *err);
void sampler_free(struct sampler *s); // NULL is fine
// Excludes a token: it is never chosen, until it is allowed again.
void sampler_ban(struct sampler *s, int32_t token);
void sampler_unban(struct sampler *s, int32_t token);
// Chooses the token at `position` from its logits. history: the n tokens before it, all of them in the vocabulary.
// allowed: a bit mask of the allowed tokens, in which token i is bit i % 32 of word i / 32; NULL: all tokens. Returns
// -1 when no token can be chosen, because none is allowed or none has a finite logit. To be called once for each
// position, in order, because mirostat adapts to the tokens that it has drawn.
int32_t sampler_next(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *history, int n,
                     int64_t position);

// sampler_top_k: how many of the largest logits (in the order of kernels/top_k.h, banned tokens included) suffice to
// choose the same next token as from all logits; 0: all logits are needed. sampler_next_of chooses from so many logits
// or more, without a mask of allowed tokens, and gives the same token as sampler_next.
int sampler_top_k(const struct sampler *s);
int32_t sampler_next_of(struct sampler *s, const struct candidate *top, int n_top, const int32_t *history, int n,
                        int64_t position);

// The candidates from which the last token was drawn, with their logits after all stages; a view of the scratch. When
// the most likely token was taken without any stage, it is the only candidate.
const struct candidate *sampler_candidates(const struct sampler *s, int *n);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random words from a
// counter.
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
