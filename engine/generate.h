// One answer: a prompt goes in, text comes out until something ends it.
//
// What comes out: whole characters by `emit`, and each token by `on_token`. What may come is the sampler's choice
// within `rule`. The session's sequence becomes the prompt and the answer, so that a next prompt that begins with
// them computes only what is new. Ownership: everything is the caller's. Threads: that of the session.
#ifndef QUERN_GENERATE_H
#define QUERN_GENERATE_H

#include "engine/chat/answer.h"
#include "engine/sample/logprobs.h"
#include "engine/sample/sampler.h"
#include "engine/session.h"
#include "engine/speculate.h"
#include "engine/answer_stream.h"

// What may come next, token by token: a grammar, a budget of thinking, or one within the other.
struct token_rule {
    void *state;
    // The tokens that may come now, as for sampler_next, those that end the answer among them where it may end;
    // *allowed NULL: all. The words last until the next call.
    int (*mask)(void *state, const uint32_t **allowed, struct error *err);
    // That token, which was allowed, has come. Not called for one that ends the answer.
    int (*accept)(void *state, int32_t token, struct error *err);
};

struct generate_token {
    int32_t id;
    int64_t index;               // in the answer, from 0
    struct str piece;            // its bytes, which may end within a character; lasts for the call
    float logprob;               // of itself and of the most likely ones, where n_logprobs asks for them
    const struct candidate *top; // [n_top], most likely first: id, and log-probability for a logit
    int n_top;
};
// Anything but 0 ends the answer.
typedef int generate_token_fn(void *arg, const struct generate_token *token);

struct generate_options {
    const int32_t *prompt;
    int n_prompt;      // at least 1
    int64_t n_predict; // tokens at most; below 0: until the model ends or the context is full
    struct sampler_params sampler;
    const struct token_rule *rule; // NULL: anything may come
    const struct str *stops;       // the answer ends before the first of them
    int n_stops;
    bool ignore_end;                  // the tokens by which a model ends are never chosen
    bool special;                     // control tokens of the answer are part of its text
    int n_logprobs;                   // on_token is told the N most likely ones of each; below 0: none, nor its own
    generate_token_fn *on_token;      // each token of the answer, before the text that it brings; may be NULL
    answer_stream_emit_fn *emit;      // takes an empty text when the prompt is computed, then the answer
    const struct answer_style *style; // split like that: emit takes the content, in which stop strings are looked for;
    answer_emit_fn *emit_aside;       // and this, unless NULL, reasoning and tool calls. NULL: emit takes all
    void *arg;                        // of both
    struct speculator *speculator;    // guesses tokens ahead, for the same text sooner; NULL: nobody does
    const atomic_bool *cancel;        // looked at before each token; may be NULL
};

enum stop_reason { STOP_END, STOP_LENGTH, STOP_CONTEXT, STOP_STRING, STOP_INTERRUPTED, STOP_OUTPUT };
extern const char *const stop_reason_name[];

struct generate_result {
    enum stop_reason reason;
    int n_prompt, n_reused;
    int64_t n_steps;            // after the prompt
    int64_t n_drafted, n_right; // tokens that were computed ahead, and those that came
    int32_t last_token;         // chosen last, but for end_token
    int32_t end_token;          // by which the model ended the answer, -1 when it did not
    int64_t n_generated;        // tokens chosen, the one that ended the answer not counted
    double prompt_ms;           // until the logits of the first token
    double first_ms;            // from the start to the first token
    double generate_ms;         // from there to the end
    double start_ms;            // on clock_ms
};

// Continues sequence `seq`, which becomes the prompt and the answer, all but its last token at least. An error leaves
// in *r what was done.
int generate(struct session *s, const struct model *m, int seq, const struct generate_options *o,
             struct generate_result *r, struct error *err);

#endif
