// From logits to the next token.
//
// The stages run in the order of the table in sampler.c, each on the candidates that the one before has left. Random
// numbers are a function of the seed and the position alone, so that a seed gives the same text on any number of
// threads, in any batch and however the prompt was cut. Ownership: a sampler owns its candidates. Threads: one at a
// time, each with its own.
#ifndef QUERN_SAMPLER_H
#define QUERN_SAMPLER_H

#include "gguf/gguf.h"
#include "kernels/text.h"

struct sampler_params {
    float temperature;     // 0 or less: the most likely token
    int top_k;             // the k most likely; 0 or less: all
    float top_p;           // the fewest that have this probability together; 1: all
    float min_p;           // those that have this part of the greatest probability; 0: all
    float repeat_penalty;  // logits of recent tokens are divided (or, when negative, multiplied) by it; 1: none
    int repeat_last;       // how many tokens are recent; -1: all
    uint64_t seed;
};
// What holds where neither the user nor the file says otherwise.
struct sampler_params sampler_defaults(void);
// Takes what the file recommends (general.sampling.*). E_MODEL when such a key has the wrong type.
int sampler_from_file(struct sampler_params *p, const struct gguf *file, struct error *err);

struct sampler;

int sampler_new(struct sampler **out, const struct sampler_params *p, int n_vocab, struct error *err);
void sampler_free(struct sampler *s);  // NULL is fine
// That token is never chosen.
void sampler_ban(struct sampler *s, int32_t token);
// Chooses the token at `position` from its logits; history: the n tokens before it. Every logit is finite.
int32_t sampler_next(struct sampler *s, const float *logits, const int32_t *history, int n, int64_t position);

// The stages by name, and the seed: a line for -v.
void sampler_describe(const struct sampler_params *p, struct text *out);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random words of a counter.
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
