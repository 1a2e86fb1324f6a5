// Prompts whose log-probabilities were computed lately, so that one that begins alike computes only those of its rest.
//
// The likelihoods of several answers to one question are asked for with prompts that share the question. Pages of keys
// and values hold no logits, so that what is known of the tokens is kept here. A log-probability depends on the tokens
// before it alone, to the bit, so that it does not matter where it comes from.
// Ownership: copies everything. Zero-initialise the struct. Threads: one at a time.
#ifndef QUERN_SCORED_TEXTS_H
#define QUERN_SCORED_TEXTS_H

#include "engine/sample/logprobs.h"

enum { SCORED_TEXTS_KEPT = 32, SCORED_TEXTS_BYTES = 64 << 20 };

struct scored_text {
    int32_t *tokens; // [scores.n_tokens]; NULL: an empty slot
    struct text_scores scores;
    int64_t last_use;
};
struct scored_texts {
    struct scored_text kept[SCORED_TEXTS_KEPT];
    int64_t n_added, n_uses;
    size_t n_bytes;
};

// Keeps a text all of whose tokens are scored, in place of those that were not used for longest. Without memory for it
// it is not kept.
void scored_texts_add(struct scored_texts *t, const int32_t *tokens, const struct text_scores *s);
// Scores the tokens of a text as far as the same beginning is known.
void scored_texts_find(struct scored_texts *t, const int32_t *tokens, struct text_scores *s);
void scored_texts_free(struct scored_texts *t);

#endif
