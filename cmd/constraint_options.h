// Makes the constraint on an answer from the flags --grammar, -j, their file forms, --grammar-after and
// --think-budget.
//
// Ownership: the caller calls constrained_close before it closes the model. Threads: the main thread.
#ifndef QUERN_CONSTRAINT_OPTIONS_H
#define QUERN_CONSTRAINT_OPTIONS_H

#include "cmd/options.h"
#include "engine/answer_rule.h"
#include "engine/chat/answer.h"

struct constrained {
    struct grammar_vocab *vocab;
    struct grammar *grammar;
    struct constraint *constraint; // constrains the text after --grammar-after, or from the start; NULL: none
    struct answer_rule *reasoned;  // constrains reasoning (its budget) and then the answer; NULL: none
    struct token_rule rule;
};

// Opens what the flags ask for. *c must be zero-initialised, and is to be closed also after an error. `style`
// describes how the model marks its reasoning (NULL: it does not reason): the constraint then applies to the answer
// after the reasoning. E_USAGE names the flag and the fault.
int constrained_open(struct constrained *c, const struct options *o, const struct model *m,
                     const struct answer_style *style, struct error *err);
void constrained_close(struct constrained *c);
// The rule for an answer that begins now; NULL if there is no constraint.
const struct token_rule *constrained_rule(struct constrained *c);
// Notes on stderr that an answer was cut off before it satisfied its constraint.
// Returns whether there was something to note.
bool constrained_note_end(const struct constrained *c);

#endif
