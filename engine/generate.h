// One answer: a prompt goes in, text comes out until something ends it.
//
// Ownership: everything is the caller's. Threads: that of the session.
#ifndef QUERN_GENERATE_H
#define QUERN_GENERATE_H

#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/stream.h"

struct generate_options {
    const int32_t *prompt;
    int n_prompt;       // at least 1
    int64_t n_predict;  // tokens at most; below 0: until the model ends or the context is full
    struct sampler_params sampler;
    const struct str *stops;  // the answer ends before the first of them
    int n_stops;
    bool ignore_end;  // the tokens by which a model ends are never chosen
    stream_emit_fn *emit;   // takes an empty text when the prompt is computed, then the answer
    void *arg;
    const atomic_bool *cancel;  // looked at before each token; may be NULL
};

enum stop_reason { STOP_END, STOP_LENGTH, STOP_CONTEXT, STOP_STRING, STOP_INTERRUPTED, STOP_OUTPUT };
extern const char *const stop_reason_name[];

struct generate_result {
    enum stop_reason reason;
    int n_prompt, n_reused;
    int64_t n_steps;      // of one token, after the prompt
    int32_t last_token;   // chosen last
    int64_t n_generated;  // tokens chosen, the one that ended the answer not counted
    double prompt_ms;     // until the logits of the first token
    double first_ms;      // from the start to the first token
    double generate_ms;   // from there to the end
    double start_ms;      // on clock_ms
};

// Continues sequence `seq`, which becomes the prompt and the answer. An error leaves in *r what was done.
int generate(struct session *s, const struct model *m, int seq, const struct generate_options *o,
             struct generate_result *r, struct error *err);

#endif
