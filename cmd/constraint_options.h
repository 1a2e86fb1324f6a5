// From flags to the form of an answer: --grammar, -j and their files.
//
// Ownership: the caller closes with constrained_close, before the model. Threads: the main thread.
#ifndef QUERN_CONSTRAINT_OPTIONS_H
#define QUERN_CONSTRAINT_OPTIONS_H

#include "cmd/options.h"
#include "engine/generate.h"
#include "engine/grammar/grammar.h"

struct constrained {
    struct grammar_vocab *vocab;
    struct grammar *grammar;
    struct constraint *constraint; // NULL: anything may come
    struct token_rule rule;
};

// Zero-initialise *c; to be closed in any case. `prompt` is the text that the answer follows: where it leaves the model
// thinking, the form is that of the answer behind the thoughts. E_USAGE names the flag, and what is wrong with it.
int constrained_open(struct constrained *c, const struct options *o, const struct model *m, struct str prompt,
                     struct error *err);
void constrained_close(struct constrained *c);
// The rule of an answer that begins now, NULL when there is none.
const struct token_rule *constrained_rule(struct constrained *c);
// Says on stderr that an answer was cut before it was whole.
void constrained_note_end(const struct constrained *c);

#endif
