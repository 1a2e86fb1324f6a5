// Continuous batching: many requests on one session at once.
//
// Requests wait in the order of their arrival. Each step of the session has one row for every answer in flight and
// fills the remaining rows with pieces of prompts, the oldest prompt first. Answers therefore never wait for prompts,
// and the weights are read once for all rows. The result of a request does not depend on the other requests.
//
// Memory: a request starts when the free pages suffice for its prompt and for the next tokens of all answers. When the
// pages run out nevertheless, the youngest answer is preempted: it releases its pages and is computed again later, to
// the same bits. A session has room for at least one whole sequence, so the oldest answer always continues. No request
// fails late for lack of memory.
//
// Prefixes: the pages of a session form a tree of texts. A prompt reuses the part of itself that is in this tree,
// waits for a part that another prompt is computing at this moment, and computes the rest. The samples of one request
// share the whole prompt. Pages hold no logits: a prompt whose log-probabilities are wanted reuses only what is known
// of prompts that were scored lately, see scored_texts.h.
//
// Ownership: a scheduler uses all sequences of its session and owns what it needs for requests in flight. Requests
// belong to the caller and must not move until they are returned. Threads: that of the session.
#ifndef QUERN_SCHEDULER_H
#define QUERN_SCHEDULER_H

#include "engine/generate.h"

// One answer to a request.
struct sample {
    enum stop_reason reason;
    struct text text; // the answer, up to a stop string
    int32_t *tokens;  // [n_tokens], without the token that ended the answer
    int n_tokens;
    int32_t end_token; // the token that ended the answer; -1: none did
    // With n_logprobs >= 0; end_token, where there is one, has an entry behind the others:
    float *logprobs;       // [n_tokens]
    struct candidate *top; // [n_tokens][n_logprobs]
    int cap;
};

struct request {
    // The request. What it points at must stay valid until the request is returned.
    const int32_t *prompt;
    int n_prompt;
    int n_samples;                  // 1 or more
    int64_t n_predict;              // most tokens of a sample; below 0: until the model ends it or the context is full
    struct sampler_params sampler;  // with the seed of sample 0, see scheduler_sample_seed
    const struct token_rule *rules; // [n_samples]; NULL: every token may come
    const struct str *stops;
    int n_stops;
    bool ignore_end;
    const int32_t *stop_tokens; // [n_stop_tokens] each ends the answer, as the model's end tokens do
    int n_stop_tokens;
    // A sample has at least so many tokens: before them neither end tokens nor stop_tokens are chosen, and stop strings
    // count only in the text behind them.
    int64_t n_least;
    // Takes the log-probabilities of the prompt, whose length it has; NULL: not wanted. The prompt is computed even if
    // n_predict is 0.
    struct text_scores *scores;
    int n_logprobs;    // most likely tokens to report for each chosen one; below 0: no log-probabilities
    double timeout_ms; // from the step of its first row; 0: none. After it the error has the code E_ITEMS
    double spent_ms;   // what it took to make the request, which the timeout counts, too
    void *user;
    // The result.
    struct sample *samples; // [n_samples]
    struct error error;     // with the code E_OK, all samples are complete
    int n_reused;           // prompt tokens, summed over the samples, that were taken from the page pool
    // Private to the scheduler.
    int n_open; // samples that are not finished
    double start_ms;
    struct request *next;
};
// Frees the result of a request.
void request_free(struct request *r);

// The seed of a sample: for sample 0 the seed itself, for the others one that is derived from it.
uint64_t scheduler_sample_seed(uint64_t seed, int sample);

struct scheduler_stats {
    int64_t n_steps, n_rows;
    int64_t n_prompt, n_reused; // prompt tokens of started samples, and how many of them came from pages
    int64_t n_generated;
    int64_t n_preempted, n_recomputed; // preempted answers, and the tokens computed again for them
    double step_ms;                    // spent within session_step
    double own_ms;                     // spent within scheduler_step, but outside of session_step
};

struct scheduler;

// n_seqs: the number of sequences to use. The session must allow at least so many rows and outputs per step as it has
// sequences.
int scheduler_new(struct scheduler **out, struct session *s, const struct model *m, int n_seqs, struct error *err);
// Requests in flight stay unanswered and still belong to the caller. NULL is fine.
void scheduler_free(struct scheduler *q);

// Queues a request. A request that cannot be served (an empty prompt, or a too long one: "N tokens, limit M") is
// finished at once, with its error. -1: E_MEMORY, and the request was not queued.
int scheduler_add(struct scheduler *q, struct request *r, struct error *err);
// Whether more requests should be added: fewer samples are waiting than free sequences could soon take.
bool scheduler_is_hungry(const struct scheduler *q);
// Whether no request is in flight.
bool scheduler_is_idle(const struct scheduler *q);
// How many samples are not finished of the requests of which one has started: those that scheduler_stop lets continue.
int scheduler_n_begun(const struct scheduler *q);
// Finishes with E_INTERRUPTED all requests of which no sample has started; the others continue.
void scheduler_stop(struct scheduler *q);
// Runs one step of the session. An error of a single request is stored in that request; -1 means that no request can
// continue.
int scheduler_step(struct scheduler *q, struct error *err);
// The next finished request, in the order in which they finished; NULL when there is none.
struct request *scheduler_take(struct scheduler *q);
struct scheduler_stats scheduler_stats(const struct scheduler *q);

#endif
