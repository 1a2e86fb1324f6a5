// Speculative decoding: tokens are drafted ahead, and one step of the model verifies several of them. The text is the
// same as without it, but is generated faster.
//
// A draft is either what followed the same tokens earlier in the text (lookup), or the output of a smaller model with
// the same vocabulary. A step computes the next token and the drafted tokens together. The sampler then runs on the
// true logits of each position, as it would without a draft; the draft decides only how many of those positions are
// computed already. Random numbers are a function of the position, so the text is the same at any temperature and
// under any rule. The length of a draft is chosen from the measured cost of steps of so many rows and from how often
// drafts of its kind were accepted. Where no draft pays, none is made.
//
// Ownership: a speculator owns its text and tables; the session of the draft model belongs to the caller. Threads:
// that of the session.
#ifndef QUERN_SPECULATE_H
#define QUERN_SPECULATE_H

#include "engine/sample/sampler.h"
#include "engine/session.h"

enum { DRAFT_MAX = 64 };

struct speculate_options {
    bool lookup;                     // draft from earlier text
    struct session *draft;           // a session with one sequence on the draft model; NULL: no draft model
    const struct model *draft_model; // the model of that session
    int most, least;                 // tokens of a draft, most up to DRAFT_MAX; a draft of fewer than least is not made
    float p_min;                     // the draft model continues while its choice has at least this probability
    bool always;                     // draft always, whether it pays or not
};

struct speculator;

// n_ctx: the positions that a text may have. E_MEMORY.
int speculator_new(struct speculator **out, const struct speculate_options *o, int n_ctx, struct error *err);
void speculator_free(struct speculator *s); // NULL is fine
// Checks that the draft model has the same vocabulary: E_USAGE when a token differs. One vocabulary may be up to 128
// tokens longer than the other.
int speculate_check_vocab(const struct tokenizer *t, const struct tokenizer *draft, struct error *err);

// Starts a text with these n tokens; p are the sampling parameters of the text, n_vocab is the number of logits of the
// model. E_MEMORY.
int speculator_begin(struct speculator *s, const int32_t *tokens, int n, const struct sampler_params *p, int n_vocab,
                     struct error *err);
// Appends the next token of the text.
void speculator_push(struct speculator *s, int32_t token);
// Drafts up to `room` tokens that may follow, into out[DRAFT_MAX]. Returns their number, which may be 0.
int speculator_draft(struct speculator *s, int room, int32_t *out);
// Records that a step of n_rows rows took `ms` milliseconds.
void speculator_note_step(struct speculator *s, int n_rows, double ms);
// Makes no more drafts for this text.
void speculator_stop(struct speculator *s);
// All tokens of the text, in order.
const int32_t *speculator_tokens(const struct speculator *s, int *n);

#endif
