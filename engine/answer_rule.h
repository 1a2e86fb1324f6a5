// The token rule of an answer: first reasoning within a budget, if the model reasons, then text that a grammar
// accepts.
//
// When the prompt has not opened the reasoning, the answer may begin either with the mark that opens it or with what
// the grammar allows. Where that mark has several tokens, its first one opens it if it is a special token, and the
// others are then the only ones that may come. The grammar applies to the text after the mark that closes the
// reasoning. When the budget is used up, the closing mark is the only text that may come next. Ownership: a rule owns
// its constraints; the grammar and the tokenizer belong to the caller and must outlive it. Threads: one at a time.
#ifndef QUERN_ANSWER_RULE_H
#define QUERN_ANSWER_RULE_H

#include "engine/generate.h"
#include "engine/grammar/grammar.h"

struct answer_rule_options {
    struct grammar *grammar;              // NULL: any answer is allowed
    const char *think_open, *think_close; // NULL: the model does not reason
    bool in_reasoning;                    // the prompt has opened the reasoning already
    int64_t budget;                       // most tokens of reasoning; below 0: no limit
};
struct answer_rule;

// n_vocab: the number of logits. E_MEMORY; E_MODEL when the closing mark cannot be written with the tokens of the
// vocabulary.
int answer_rule_new(struct answer_rule **out, const struct tokenizer *t, int n_vocab,
                    const struct answer_rule_options *o, struct error *err);
void answer_rule_free(struct answer_rule *r); // NULL is fine
// Begins an answer. The result is for generate_options.rule; its state is r.
struct token_rule answer_rule_begin(struct answer_rule *r);
// Whether the grammar accepts the answer as complete now; true without a grammar.
bool answer_rule_can_end(const struct answer_rule *r);

#endif
