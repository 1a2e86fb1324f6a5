// From flags to the form of an answer: --grammar, -j and their files, and --think-budget.
//
// Ownership: the caller closes with constrained_close, before the model. Threads: the main thread.
#ifndef QUERN_CONSTRAINT_OPTIONS_H
#define QUERN_CONSTRAINT_OPTIONS_H

#include "cmd/options.h"
#include "engine/answer_rule.h"
#include "engine/chat/answer.h"

struct constrained {
    struct grammar_vocab *vocab;
    struct grammar *grammar;
    struct constraint *constraint; // behind --grammar-after, or at once; NULL: none
    struct answer_rule *reasoned;  // behind the reasoning, which has its budget; NULL: none
    struct token_rule rule;
};

// Zero-initialise *c; to be closed in any case. `style` says how the model reasons, NULL: not at all; the form is that
// of the answer behind the thoughts. E_USAGE names the flag, and what is wrong with it.
int constrained_open(struct constrained *c, const struct options *o, const struct model *m,
                     const struct answer_style *style, struct error *err);
void constrained_close(struct constrained *c);
// The rule of an answer that begins now, NULL when there is none.
const struct token_rule *constrained_rule(struct constrained *c);
// Says on stderr that an answer was cut before it was whole.
void constrained_note_end(const struct constrained *c);

#endif
