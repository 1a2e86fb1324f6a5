// A lane of the scheduler: a sample in flight, with its text, its sampler and what is reported of its tokens.
//
// Ownership: a lane owns what it allocates; its request belongs to the caller of the scheduler. Threads: that of the
// session.
#ifndef QUERN_SCHEDULER_LANE_H
#define QUERN_SCHEDULER_LANE_H

#include "engine/scheduler.h"

// A sample in flight. Its text so far is tokens[0 .. n_tokens - 1], and the session has computed a prefix of it. Once
// all of it is computed, the next token is chosen. A prompt, an answer and a preempted answer are therefore the same
// thing: a text that is not yet computed to its end.
struct lane {
    struct request *request;
    int sample;
    int seq; // its sequence; -1: it waits for one
    int32_t *tokens;
    int n_tokens, cap;
    int64_t n_left; // tokens that it may still choose; below 0: any number
    bool started;   // has held a sequence before
    struct sampler *sampler;
    struct answer_stream stream;
    struct detokenizer text;
    int64_t n_texts;   // how many scored texts there were when this one was compared with them
    struct lane *next; // in the queue of waiting lanes
};

// E_MEMORY. The scratch is shared by the samplers of all lanes.
int lane_new(struct lane **out, const struct model *m, struct sampler_scratch *scratch, struct request *r, int sample,
             struct error *err);
void lane_free(struct lane *l); // NULL is fine

// Whether tokens of the request's prompt are still to be scored.
bool request_wants_scores(const struct request *r);
// How much of the lane's text may come from the page pool, apart from its last token: all of it, or what is scored.
int lane_reusable(const struct lane *l);
// Whether the row of the lane's token `at` scores the token behind it, and whether it needs logits at all.
bool lane_is_scored(const struct lane *l, int at);
bool lane_has_logits(const struct lane *l, int at);
// How many of the largest logits suffice to choose the next token; 0: all are needed.
int lane_enough_logits(const struct lane *l);

// Whether the token, when it is chosen, ends the answer.
bool lane_ends(const struct lane *l, const struct model *m, int32_t token);
// Adds a chosen token to the answer: its log-probabilities, its rule, the text of the lane and the text for the caller.
// logits may be NULL where the request wants no log-probabilities.
int lane_add_token(struct lane *l, const struct model *m, const float *logits, int32_t token, struct error *err);
// Ends the answer by a token, which is not part of it.
int lane_end(struct lane *l, const struct model *m, const float *logits, int32_t token, struct error *err);

#endif
