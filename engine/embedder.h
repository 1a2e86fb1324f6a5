// Embeddings: the tokens of a text in, a vector out.
//
// An embedder computes many texts in a step, as many as have room, since no text sees another. A text that is longer than
// a step is computed in several, unless the model is an encoder, whose rows see the whole text. The vector of a text is
// the same bits whatever else is in its step. Ownership: the embedder owns its plan and memory; the model, opened with
// `hidden`, must outlive it. Threads: one at a time.
#ifndef QUERN_EMBEDDER_H
#define QUERN_EMBEDDER_H

#include "engine/model.h"

#include <stdatomic.h>

// How long vectors are made. EMBED_AS_THEY_ARE: as the model gives them; EMBED_LARGEST: the element that is farthest from 0
// becomes 32760; p from 1 on: the sum of the p-th powers of the elements is 1, so that 2 makes vectors of length 1.
enum { EMBED_AS_THEY_ARE = -1, EMBED_LARGEST = 0, EMBED_UNIT = 2, EMBED_POWER_MAX = 16 };

struct embedder_options {
    enum pooling pooling; // POOLING_RANK: scores of a reranker, which are not normalised
    int normalise;
    int n_longest;             // tokens of the longest text that will come
    int n_batch;               // rows of a step; raised to n_longest for an encoder
    enum dtype kv_type[2];     // of keys and values, which are F32 for encoders in any case
    const atomic_bool *cancel; // true ends embedder_run with E_INTERRUPTED. May be NULL
};

struct embedder;
// E_MODEL if the model lacks the head of a reranker and POOLING_RANK is asked for; E_USAGE for texts longer than the model's
// positions; E_MEMORY.
int embedder_open(struct embedder **out, const struct model *m, const struct embedder_options *o, struct error *err);
void embedder_close(struct embedder *e); // NULL is fine
// Elements of a vector; of a reranker, scores.
int embedder_width(const struct embedder *e);
// What the plan has chosen, for -v.
void embedder_describe(const struct embedder *e, struct text *out);

struct embedder_text {
    const int32_t *ids; // [n], n from 1 to n_longest
    int n;
    float *out; // [embedder_width], with POOLING_NONE one such vector for each token
};
// Fills the vectors of n texts. E_MODEL if one is not finite.
int embedder_run(struct embedder *e, const struct embedder_text *texts, size_t n, struct error *err);

#endif
