// Generates one answer: a prompt goes in, and text comes out until something ends it.
//
// The text is passed to `emit` in whole characters, and each token to `on_token`. The sampler chooses each token among
// those that `rule` allows. Afterwards the sequence of the session holds the prompt and the answer, and a next prompt
// that begins with both computes only its new tokens. Ownership: everything belongs to the caller. Threads: that of
// the session.
#ifndef QUERN_GENERATE_H
#define QUERN_GENERATE_H

#include "engine/chat/answer.h"
#include "engine/sample/logprobs.h"
#include "engine/sample/sampler.h"
#include "engine/session.h"
#include "engine/speculate.h"
#include "engine/answer_stream.h"

// A rule that says, token by token, what may come next: a grammar, a budget for reasoning, or both.
struct token_rule {
    void *state;
    // Gives the bit mask of the tokens that may come now, as sampler_next takes it. Tokens that end the answer are in
    // it where the answer may end. *allowed NULL: all tokens. The mask is valid until the next call.
    int (*mask)(void *state, const uint32_t **allowed, struct error *err);
    // Advances the rule by a token that was allowed. Not called for a token that ends the answer.
    int (*accept)(void *state, int32_t token, struct error *err);
};

struct generate_token {
    int32_t id;
    int64_t index;               // in the answer, from 0
    struct str piece;            // its bytes, which may end within a character; valid during the call
    float logprob;               // of this token, when n_logprobs >= 0
    const struct candidate *top; // [n_top] most likely first; their logit fields hold log-probabilities
    int n_top;
};
// A return value other than 0 ends the answer.
typedef int generate_token_fn(void *arg, const struct generate_token *token);

struct generate_options {
    const int32_t *prompt;
    int n_prompt;      // at least 1
    int64_t n_predict; // most tokens of the answer; below 0: until the model ends it or the context is full
    struct sampler_params sampler;
    const struct token_rule *rule; // NULL: every token may come
    const struct str *stops;       // the answer ends before the first stop string
    int n_stops;
    bool ignore_end;                  // never choose the tokens with which the model ends an answer
    bool special;                     // include control tokens in the text
    int n_logprobs;                   // on_token gets so many log-probabilities per token; below 0: none at all
    generate_token_fn *on_token;      // called for each token, before emit gets its text; may be NULL
    answer_stream_emit_fn *emit;      // gets an empty text once the prompt is computed, then the answer
    const struct answer_style *style; // splits the answer: emit gets the content, in which stop strings count;
    answer_emit_fn *emit_aside;       // emit_aside, unless NULL, gets reasoning and tool calls. NULL: no split
    // Called with false before the prompt is computed, and with true when that is over, also by an error; may be NULL.
    void (*on_prompt)(void *arg, bool over);
    void *arg;                     // first argument of the callbacks
    struct speculator *speculator; // drafts tokens for speculative decoding; NULL: none
    const atomic_bool *cancel;     // read before each token, true ends the answer; may be NULL
};

enum stop_reason { STOP_END, STOP_LENGTH, STOP_CONTEXT, STOP_STRING, STOP_INTERRUPTED, STOP_OUTPUT };
extern const char *const stop_reason_name[];

struct generate_result {
    enum stop_reason reason;
    int n_prompt, n_reused;
    int64_t n_steps;            // steps of the model after the prompt
    int64_t n_drafted, n_right; // drafted tokens that were computed, and those that were accepted
    int32_t last_token;         // the last token chosen, other than end_token
    int32_t end_token;          // the token with which the model ended the answer; -1: it did not
    int64_t n_generated;        // tokens chosen, without end_token
    double prompt_ms;           // from the start to the logits of the first token
    double first_ms;            // from the start to the first token
    double generate_ms;         // from the end of prompt_ms to the end of the answer
    double start_ms;            // the start, as clock_ms gives it
};

// Sets sequence `seq` to the prompt and generates an answer on it. Afterwards the sequence holds the prompt and at
// least all of the answer but its last token. On an error *r holds what was done until then.
int generate(struct session *s, const struct model *m, int seq, const struct generate_options *o,
             struct generate_result *r, struct error *err);

#endif
