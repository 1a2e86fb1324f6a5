// "Don't repeat yourself": which tokens would go on with a repetition, and how long that is.
//
// A token repeats when what stands before it, up to the end of the text, stood before it earlier on. Sequence breakers
// (line ends, quotes...) end what counts as the repetition. Ownership: breakers are made once for a vocabulary and
// shared read-only; a space belongs to one thread.
#ifndef QUERN_DRY_H
#define QUERN_DRY_H

#include "engine/sample/sampler_params.h"
#include "engine/text/tokenizer.h"

enum { DRY_LAST_MAX = 1 << 20 }; // tokens that are looked through at most

// The texts as tokens: those that hold one whole, and those at whose end one begins, with the tokens that go on with
// it. Texts are cut after 40 bytes. E_MEMORY.
struct dry_breakers;
int dry_breakers_new(struct dry_breakers **out, const struct tokenizer *t, const struct str *texts, int n,
                     struct error *err);
void dry_breakers_free(struct dry_breakers *b); // NULL is fine

struct dry_space {
    int cap;
    int32_t *repeats; // [cap]
    int32_t *tokens;  // [cap] those that would repeat
};
// Room for `last` tokens; below 0: DRY_LAST_MAX, of which memory is taken as it is used. False: no memory.
bool dry_reserve(struct dry_space *space, int last);
void dry_space_free(struct dry_space *space);

// Which tokens would go on with a repetition of `allowed` tokens or more at the end of the n given ones: space->tokens,
// each once, and lengths[token], which were zero, its length and one. Returns how many there are. No single token that
// is a breaker is among them.
int dry_repeats(struct dry_space *space, const struct dry_breakers *b, const int32_t *tokens, int n, int allowed,
                uint32_t *lengths);
// What is taken off the logit of a token that goes on with a repetition of length_1 - 1: multiplier * base^(length -
// allowed), finite.
double dry_penalty(const struct sampler_params *p, uint32_t length_1);

#endif
