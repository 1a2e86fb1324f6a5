// From logits to the next token.
//
// Stages run in a given order, each on the candidates that the one before has left: what may come at all (an allowed
// mask, bans), then biases, then the stages of `order`, then the draw. Random numbers are a function of the seed and
// the position alone, so that a seed gives the same text on any number of threads, in any batch, however the prompt was
// cut and whether or not tokens were guessed ahead. Ownership: a sampler owns what it allocated; its parameters' arrays
// stay the caller's and must last. Threads: one at a time, each with its own, or with a scratch that is its thread's.
#ifndef QUERN_SAMPLER_H
#define QUERN_SAMPLER_H

#include "engine/sample/candidates.h"
#include "engine/sample/sampler_params.h"

// Work space as large as the vocabulary, which the samplers of one thread may share.
struct sampler_scratch;
int sampler_scratch_new(struct sampler_scratch **out, int n_vocab, struct error *err);
void sampler_scratch_free(struct sampler_scratch *scratch); // NULL is fine

struct sampler;

// scratch: NULL for one of its own. Nothing is allocated later.
int sampler_new(struct sampler **out, const struct sampler_params *p, int n_vocab, struct sampler_scratch *scratch,
                struct error *err);
void sampler_free(struct sampler *s); // NULL is fine
// That token is never chosen.
void sampler_ban(struct sampler *s, int32_t token);
// Chooses the token at `position` from its logits; history: the n tokens before it, all of the vocabulary. allowed: a
// bit for each token, that of token i is bit i % 32 of word i / 32; NULL: all. -1 when no token may come: none is
// allowed, or none has a finite logit. To be called once for each position in turn: mirostat follows what it has drawn.
int32_t sampler_next(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *history, int n,
                     int64_t position);

// How many of the first logits (as kernels/top_k.h orders them) the next token can be chosen from as if all were there,
// those of banned tokens among them; 0: it cannot. sampler_next_of chooses from that many or more: the same token, with
// no mask of allowed ones.
int sampler_top_k(const struct sampler *s);
int32_t sampler_next_of(struct sampler *s, const struct candidate *top, int n_top, const int32_t *history, int n,
                        int64_t position);

// What the last token was drawn from, with logits as the stages have left them: views the scratch. Of the most likely
// token taken as it comes, that one.
const struct candidate *sampler_candidates(const struct sampler *s, int *n);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random words of a counter.
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
