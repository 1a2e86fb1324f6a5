// The tokens of a vocabulary by their bytes, as trees that are walked along with an automaton.
//
// A tree lies in one array: node 0 is its root, and the children of a node lie side by side, in rising order of their
// bytes. What an automaton does not take at a node it need not be asked below it. Tokens that end an answer, control
// tokens and those without text are in no tree. Of what is below a node it is known which kinds of characters it has:
// what an automaton reads all alike is taken whole. Ownership: grammar_vocab_free. Threads: read-only.
#ifndef QUERN_VOCAB_TREE_H
#define QUERN_VOCAB_TREE_H

#include "engine/grammar/expr.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/kinds.h"
#include "engine/grammar/net.h"

// 32 bytes, for a walk waits for little else than nodes that come from memory.
struct token_node {
    uint64_t kinds;       // of the characters below the node, counted from it (kinds.h)
    uint64_t whole;       // of the characters of all tokens at and below it, from their beginnings
    uint32_t child;       // the first of n_child
    uint32_t first, last; // its tokens and those below it: in `order`, first..last - 1
    uint16_t n_child;
    uint8_t byte;  // on the way to the node
    uint8_t reach; // bytes of the longest text below it; REACH_MAX: so many or more
};
enum { REACH_MAX = UINT8_MAX };

struct token_tree {
    uint32_t n;
    struct token_node *at;
    int32_t *order; // all tokens of the tree, in the order of their bytes
    size_t longest; // bytes
};

// Where the tokens begin that are below the node.
static inline uint32_t token_node_mid(const struct token_tree *tree, const struct token_node *node)
{
    return node->n_child ? tree->at[node->child].first : node->last;
}

enum { TREE_SHORT, TREE_LONG, TREE_COUNT }; // tokens of fewer than NET_CHAIN_MIN bytes, and the others

struct grammar_vocab {
    const struct tokenizer *t;
    int32_t n_tokens;
    struct token_tree trees[TREE_COUNT];
    // Masks of tokens of the short tree: [KIND_COUNT] of those that have a character of the kind, one of those that
    // have something that is of no kind, one of all.
    uint32_t *with_kind;
    int32_t *by_length;                  // the tokens of the short tree, the longest first
    int32_t n_longer[NET_CHAIN_MIN + 1]; // of those, how many have more bytes than this
    int32_t *next_same;                  // of each token, another one of the same bytes, -1: none
    int32_t *ends;                       // the tokens that end an answer
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
// The tokens of the short tree that have these kinds of characters only and at most `length` bytes.
void vocab_tree_of_kinds(const struct grammar_vocab *v, uint64_t kinds, unsigned length, uint32_t *mask);

#endif
