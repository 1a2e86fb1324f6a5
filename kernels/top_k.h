// The first few of a row of logits, and the order that says which come first.
//
// Order: the greater logit first, of equals the lower id; -0 counts as 0. Machines give the k first of a row where a step
// asks for no more, and samplers choose from them. Ownership: arrays are the caller's. Threads: any.
#ifndef QUERN_TOP_K_H
#define QUERN_TOP_K_H

#include "gguf/base.h"

struct candidate {
    float logit;
    int32_t id;
};

// The greater key comes first: the bits of a float in the order of its value, -0 as 0, then those of the id turned
// round.
static inline uint64_t candidate_key(struct candidate c)
{
    float logit = c.logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~c.id;
}

static inline bool candidate_before(struct candidate a, struct candidate b)
{
    return candidate_key(a) > candidate_key(b);
}

// The k first of n to the front, in order, 0 <= k <= n: one look at each of the others, and a place in a heap for few.
void candidates_sort_first(struct candidate *c, int n, int k);

// Keeps the k first of a stream (k >= 1). c[0 .. *n-1] is what was kept so far, *n <= k, zero at first; only
// candidates_finish puts it in order.
void candidates_offer(struct candidate *c, int *n, int k, struct candidate offer);
void candidates_finish(struct candidate *c, int n);

// The k first of n logits in order, 1 <= k <= n. Where one of the n is not finite, out[0].id is -1 and the rest means
// nothing.
void top_k_of(const float *logits, int64_t n, int k, struct candidate *out);

#endif
