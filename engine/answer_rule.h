// What an answer may be: reasoning within its budget, where the model reasons, then a form that a grammar asks for.
//
// Where the prompt has not opened the reasoning, the answer may begin with the mark that does, besides what the grammar
// allows. The grammar holds for what comes behind the mark that closes it. When the budget is spent that mark is what
// must come next. Ownership: a rule owns its constraints; grammar and tokenizer are the caller's and outlive it.
// Threads: one at a time.
#ifndef QUERN_ANSWER_RULE_H
#define QUERN_ANSWER_RULE_H

#include "engine/generate.h"
#include "engine/grammar/grammar.h"

struct answer_rule_options {
    struct grammar *grammar;              // NULL: any answer
    const char *think_open, *think_close; // NULL: the model does not reason
    bool in_reasoning;                    // the prompt has opened it
    int64_t budget;                       // tokens of reasoning at most; below 0: as many as it likes
};
struct answer_rule;

// n_vocab: how many logits there are. E_MEMORY; E_MODEL when the mark that closes reasoning cannot be spelled.
int answer_rule_new(struct answer_rule **out, const struct tokenizer *t, int n_vocab,
                    const struct answer_rule_options *o, struct error *err);
void answer_rule_free(struct answer_rule *r); // NULL is fine
// An answer begins: what generate_options.rule is to point to; r is its state.
struct token_rule answer_rule_begin(struct answer_rule *r);
// Whether the form is complete where the answer is now; true without one.
bool answer_rule_can_end(const struct answer_rule *r);

#endif
