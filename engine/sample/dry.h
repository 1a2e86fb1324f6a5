// The DRY stage of sampling ("don't repeat yourself"): which tokens would continue a repetition, and how long the
// repetition is.
//
// A token continues a repetition of length n when the last n tokens of the text also precede an earlier occurrence of
// that token. Sequence breakers (line ends, quotes...) end a repetition. Ownership: breakers are made once per
// vocabulary and are shared read-only; a space belongs to one thread.
#ifndef QUERN_DRY_H
#define QUERN_DRY_H

#include "engine/sample/sampler_params.h"
#include "engine/text/tokenizer.h"

enum { DRY_LAST_MAX = 1 << 20 }; // most tokens that are searched

// Finds the tokens of each breaker text: the tokens that contain the whole text, and the tokens at whose end it
// begins, with the tokens that complete it. Texts are cut after 40 bytes. E_MEMORY.
struct dry_breakers;
int dry_breakers_new(struct dry_breakers **out, const struct tokenizer *t, const struct str *texts, int n,
                     struct error *err);
void dry_breakers_free(struct dry_breakers *b); // NULL is fine

struct dry_space {
    int cap;
    int32_t *repeats; // [cap]
    int32_t *tokens;  // [cap] the tokens that would continue a repetition
};
// Reserves room for `last` tokens; below 0: DRY_LAST_MAX, of which the system commits memory only as it is used. False
// when memory is short.
bool dry_reserve(struct dry_space *space, int last);
void dry_space_free(struct dry_space *space);

// Finds the tokens that would continue a repetition of `allowed` tokens or more at the end of the n given tokens. They
// go to space->tokens, each once, and lengths[token], which must be zero before, becomes the length of the repetition
// plus one. Returns their number. Tokens that contain a whole breaker are not among them.
int dry_repeats(struct dry_space *space, const struct dry_breakers *b, const int32_t *tokens, int n, int allowed,
                uint32_t *lengths);
// The penalty, which is subtracted from the logit of a token that continues a repetition of length = length_1 - 1:
// multiplier * base^(length - allowed), limited to a finite value.
double dry_penalty(const struct sampler_params *p, uint32_t length_1);

#endif
