// Chooses the k best of a row of logits and sorts them, best first.
//
// The greater logit is better. Of two equal logits, the one with the lower id is better; -0 equals 0. If a step wants
// only the k best logits of a row, machines return these, and samplers choose from them. Choosing costs one pass over
// the row and a heap of k candidates. Ownership: all arrays belong to the caller. Threads: any.
#ifndef QUERN_TOP_K_H
#define QUERN_TOP_K_H

#include "gguf/base.h"

struct candidate {
    float logit;
    int32_t id; // of the token
};

// A key that is greater for a better candidate. The high 32 bits are the bits of the logit (with -0 as 0), changed such
// that they have the same order as integers as the logits have. The low 32 bits are the inverted id.
static inline uint64_t candidate_key(struct candidate c)
{
    float logit = c.logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~c.id;
}

// Whether a is better than b.
static inline bool candidate_before(struct candidate a, struct candidate b)
{
    return candidate_key(a) > candidate_key(b);
}

// Moves the k best of n candidates to the front, best first; 0 <= k <= n. The first k candidates form a heap. Each of
// the others is compared with the worst in the heap, and replaces it if it is better.
void candidates_sort_first(struct candidate *c, int n, int k);

// Keep the k best of a stream of candidates, k >= 1. candidates_offer takes one candidate. c[0 .. *n-1] are the
// candidates that are kept so far, as a heap. The caller sets *n to 0 before the first call; it grows to at most k.
// After the last call, candidates_finish sorts the n kept candidates, best first.
void candidates_offer(struct candidate *c, int *n, int k, struct candidate offer);
void candidates_finish(struct candidate *c, int n);

// Stores the k best of n logits in out[0 .. k-1], best first; 1 <= k <= n. If any of the n logits is not finite,
// out[0].id is -1 and nothing else in `out` is valid.
void top_k_of(const float *logits, int64_t n, int k, struct candidate *out);

#endif
