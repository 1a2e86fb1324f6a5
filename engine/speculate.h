// Guessing tokens ahead, so that one step computes several of them: the same text sooner.
//
// A guess is what followed the same tokens earlier in the text (lookup), or what a smaller model of the same vocabulary
// says. A step then computes the next token and the guess together, and the sampler runs on the true logits of each
// position, as it would have without: the guess only decides how many of those positions are there already. Since
// random numbers are a function of the position, the text is the same at any temperature and under any rule. How long a
// guess is worth its rows is weighed by what steps cost and how often guesses of its kind came true; where none is,
// nothing is guessed.
//
// Ownership: a speculator owns its text and tables; the draft's session is the caller's. Threads: that of the session.
#ifndef QUERN_SPECULATE_H
#define QUERN_SPECULATE_H

#include "engine/sample/sampler.h"
#include "engine/session.h"

enum { DRAFT_MAX = 64 };

struct speculate_options {
    bool lookup;
    struct session *draft;           // of one sequence on the draft model; NULL: none
    const struct model *draft_model; // of that session
    int most, least;                 // tokens of a guess, up to DRAFT_MAX; a shorter one is not made
    float p_min;                     // the draft goes on while its choice is at least this likely
    bool always;                     // whether it pays or not
};

struct speculator;

// n_ctx: the positions that a text may have. E_MEMORY.
int speculator_new(struct speculator **out, const struct speculate_options *o, int n_ctx, struct error *err);
void speculator_free(struct speculator *s); // NULL is fine
// E_USAGE when a token of one is not that of the other; vocabularies may be up to 128 tokens longer than each other.
int speculate_check_vocab(const struct tokenizer *t, const struct tokenizer *draft, struct error *err);

// A text begins with these tokens, to be sampled like that from n_vocab tokens. E_MEMORY.
int speculator_begin(struct speculator *s, const int32_t *tokens, int n, const struct sampler_params *p, int n_vocab,
                     struct error *err);
// The next token of the text.
void speculator_push(struct speculator *s, int32_t token);
// What may follow, up to `room` tokens, to out[DRAFT_MAX]: returns how many.
int speculator_draft(struct speculator *s, int room, int32_t *out);
// A step of that many rows took so long.
void speculator_note_step(struct speculator *s, int n_rows, double ms);
// No more guesses for this text.
void speculator_stop(struct speculator *s);
// All tokens of the text, in order.
const int32_t *speculator_tokens(const struct speculator *s, int *n);

#endif
