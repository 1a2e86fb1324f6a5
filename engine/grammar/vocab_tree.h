// The tokens of a vocabulary as byte trees (tries), which are walked in step with an automaton.
//
// A tree is one array: node 0 is the root, and the children of a node are adjacent, in ascending order of their
// bytes. If the automaton rejects a node, everything below it is skipped. Tokens that end an answer, control tokens
// and tokens without text are in no tree. Each node stores which kinds of characters occur below it; where the
// automaton treats all of these alike, the whole subtree is accepted at once. Ownership: grammar_vocab_free. Threads:
// read-only.
#ifndef QUERN_VOCAB_TREE_H
#define QUERN_VOCAB_TREE_H

#include "engine/grammar/expr.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/kinds.h"
#include "engine/grammar/net.h"

// 32 bytes, two per cache line: a walk mostly waits for nodes to arrive from memory.
struct token_node {
    uint64_t kinds;       // kinds (kinds.h) of the characters below the node, counted from it
    uint64_t whole;       // kinds of the characters of all tokens at and below it, counted from their first bytes
    uint32_t child;       // index of the first of n_child children
    uint32_t first, last; // tokens at and below it: order[first .. last - 1]
    uint16_t n_child;
    uint8_t byte;  // byte that leads to the node
    uint8_t reach; // bytes of the longest text below it; REACH_MAX: that many or more
};
enum { REACH_MAX = UINT8_MAX };

struct token_tree {
    uint32_t n;
    struct token_node *at;
    int32_t *order; // all tokens of the tree, sorted by their bytes
    size_t longest; // bytes of the longest token
};

// The index in `order` at which the tokens below the node begin; those at the node itself come before it.
static inline uint32_t token_node_mid(const struct token_tree *tree, const struct token_node *node)
{
    return node->n_child ? tree->at[node->child].first : node->last;
}

enum { TREE_SHORT, TREE_LONG, TREE_COUNT }; // tokens of fewer than NET_CHAIN_MIN bytes, and the others

struct grammar_vocab {
    const struct tokenizer *t;
    int32_t n_tokens;
    struct token_tree trees[TREE_COUNT];
    // Masks over the tokens of the short tree. Rows 0 .. KIND_COUNT - 1: tokens with a character of that kind. Then:
    // tokens with a byte that has no kind; all tokens; tokens with a character of any of four adjacent kinds, for
    // each such group.
    uint32_t *with_kind;
    int32_t *by_length;                  // tokens of the short tree, longest first
    int32_t n_longer[NET_CHAIN_MIN + 1]; // n_longer[n]: how many of these have more than n bytes
    int32_t *ends;                       // tokens that end an answer
    int32_t n_ends;
    struct byte_set available; // bytes that are tokens by themselves
};

// The text of a token if it may occur in an answer; empty for all other tokens.
struct str vocab_tree_text(const struct grammar_vocab *v, int32_t token);
// Whether the token may match `!<token>` in a grammar: any token that exists and does not end the answer.
bool vocab_tree_may_stand(const struct grammar_vocab *v, int32_t token);
static inline size_t grammar_vocab_words(const struct grammar_vocab *v)
{
    return ((size_t)v->n_tokens + 31) / 32;
}
// Fills the mask with the tokens of the short tree that consist of only these kinds of characters and of at most
// `length` bytes.
void vocab_tree_of_kinds(const struct grammar_vocab *v, uint64_t kinds, unsigned length, uint32_t *mask);

#endif
