// Many requests on one session at once: continuous batching.
//
// Requests wait in the order in which they came. A step of the session holds a row of every answer that is being
// written, and, in what room is left, pieces of prompts, the oldest first: so answers never wait for prompts, and the
// weights are read once for all. What a request gets does not depend on what runs beside it.
//
// Memory: a request starts when the pages that are free hold its prompt and the near future of all answers. When they
// run out none the less, the youngest answer gives its pages back and is computed again later, to the same bits; a
// session has room for one whole sequence at least, so the oldest always goes on. Nothing fails late for want of
// memory.
//
// Prefixes: the pages of a session are a tree of texts. A prompt takes from it what is there, waits for a beginning
// that another one is computing just now, and computes the rest. Samples of one request share the whole prompt.
//
// Ownership: a scheduler uses the sequences of a session, all of them, and owns what it needs for requests under way.
// Requests are the caller's and stay where they are until they come back. Threads: that of the session.
#ifndef QUERN_SCHEDULER_H
#define QUERN_SCHEDULER_H

#include "engine/generate.h"

// One answer.
struct sample {
    enum stop_reason reason;
    struct text text; // up to a stop string
    int32_t *tokens;  // [n_tokens], the one that ended it not among them
    int n_tokens;
    // where log-probabilities were asked for
    float *logprobs;       // [n_tokens]
    struct candidate *top; // [n_tokens][n_logprobs]
    int cap;
};

struct request {
    // What is asked; views last until the request comes back.
    const int32_t *prompt;
    int n_prompt;
    int n_samples;                  // 1 or more
    int64_t n_predict;              // tokens of a sample at most; below 0: until the model ends or the context is full
    struct sampler_params sampler;  // its seed is that of sample 0; see scheduler_sample_seed
    const struct token_rule *rules; // [n_samples]; NULL: anything may come
    const struct str *stops;
    int n_stops;
    bool ignore_end;
    int n_logprobs;    // the most likely tokens beside each chosen one; below 0: no log-probabilities
    double timeout_ms; // from when its first row is computed; 0: none. Its error then has the code E_ITEMS
    void *user;
    // What came of it.
    struct sample *samples; // [n_samples]
    struct error error;     // code E_OK: all samples are there
    int n_reused;           // prompt tokens, over all samples, that were not computed for it
    // The scheduler's.
    int n_open; // samples that are not done
    double start_ms;
    struct request *next;
};
// Frees what came of it.
void request_free(struct request *r);

// Sample 0 has the seed itself, the others have seeds made from it.
uint64_t scheduler_sample_seed(uint64_t seed, int sample);

struct scheduler_stats {
    int64_t n_steps, n_rows;
    int64_t n_prompt, n_reused; // tokens of prompts that have started, a sample at a time; those taken from pages
    int64_t n_generated;
    int64_t n_preempted, n_recomputed; // answers put off, and their tokens computed again
    double step_ms;                    // within the session
    double own_ms;                     // within scheduler_step, but outside the session
};

struct scheduler;

// The session needs as many outputs a step as it has sequences, and as many rows. n_seqs: sequences to use.
int scheduler_new(struct scheduler **out, struct session *s, const struct model *m, int n_seqs, struct error *err);
// Requests under way stay where they are, unanswered. NULL is fine.
void scheduler_free(struct scheduler *q);

// Takes a request. What cannot be served (an empty or too long prompt: "N tokens, limit M") comes back at once with its
// error. -1: E_MEMORY, and the request was not taken.
int scheduler_add(struct scheduler *q, struct request *r, struct error *err);
// Whether another request would find work: fewer samples wait than sequences may take soon.
bool scheduler_is_hungry(const struct scheduler *q);
// Whether nothing is under way.
bool scheduler_is_idle(const struct scheduler *q);
// Requests of which nothing has begun come back with E_INTERRUPTED; the others go on.
void scheduler_stop(struct scheduler *q);
// One step of the session. -1 when all is lost; what concerns one request is that request's error.
int scheduler_step(struct scheduler *q, struct error *err);
// A request that is done, in the order of their ends; NULL when there is none.
struct request *scheduler_take(struct scheduler *q);
struct scheduler_stats scheduler_stats(const struct scheduler *q);

#endif
