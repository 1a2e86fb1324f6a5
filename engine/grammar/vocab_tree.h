// The tokens of a vocabulary by their bytes, as trees that are walked along with an automaton.
//
// A tree lies in one array in the order of a walk: a node, then its children, in rising order of their bytes. What an
// automaton does not take at a node it need not be asked below it: `skip` is where the walk goes on. Tokens that end
// an answer, control tokens and those without text are in no tree. Ownership: grammar_vocab_free. Threads: read-only.
#ifndef QUERN_VOCAB_TREE_H
#define QUERN_VOCAB_TREE_H

#include "engine/grammar/expr.h"
#include "engine/grammar/grammar.h"

struct token_tree {
    uint32_t n;
    uint8_t *byte;   // on the way to the node
    uint16_t *depth; // bytes from the root; the first level has 1
    uint32_t *skip;  // the node behind all that is below
    int32_t *token;  // the first token that is spelled so, -1: none
};

enum { TREE_SHORT, TREE_LONG, TREE_COUNT }; // tokens of fewer than NET_CHAIN_MIN bytes, and the others

struct grammar_vocab {
    const struct tokenizer *t;
    int32_t n_tokens;
    struct token_tree trees[TREE_COUNT];
    int32_t *next_same; // of each token, another one of the same bytes, -1: none
    int32_t *ends;      // the tokens that end an answer
    int32_t n_ends;
    struct byte_set available; // bytes that some token consists of
};

// The text of a token that may stand in an answer; empty for all others.
struct str vocab_tree_text(const struct grammar_vocab *v, int32_t token);
// Whether `!<token>` of a grammar may choose it: any token that is one and does not end the answer.
bool vocab_tree_may_stand(const struct grammar_vocab *v, int32_t token);
static inline size_t grammar_vocab_words(const struct grammar_vocab *v)
{
    return ((size_t)v->n_tokens + 31) / 32;
}

#endif
