// Chooses the k best of a row of logits, in order.
//
// A greater logit is better; of equal logits the lower id is; -0 is equal to 0. Machines return only the k best of a
// row where a step wants no more, and samplers choose from them. Choosing costs one pass over the row and a heap of
// k. Ownership: arrays are the caller's. Threads: any.
#ifndef QUERN_TOP_K_H
#define QUERN_TOP_K_H

#include "gguf/base.h"

struct candidate {
    float logit;
    int32_t id;
};

// A better candidate has a greater key. Its high half is the float's bits, changed so that they order as the values
// do, with -0 as 0; its low half is the inverted id.
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

// Moves the k best of n to the front, in order, 0 <= k <= n. Each of the others is compared with the worst of the k
// so far; only the few that are better enter the heap.
void candidates_sort_first(struct candidate *c, int n, int k);

// Keeps the k best of a stream of candidates (k >= 1). c[0 .. *n-1] are those kept so far, a heap; *n is 0 at first
// and at most k. candidates_finish sorts them when all were offered.
void candidates_offer(struct candidate *c, int *n, int k, struct candidate offer);
void candidates_finish(struct candidate *c, int n);

// The k best of n logits in order, 1 <= k <= n. Where one of the n is not finite, out[0].id is -1 and the others are
// not valid.
void top_k_of(const float *logits, int64_t n, int k, struct candidate *out);

#endif
