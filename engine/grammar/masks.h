// Computes which tokens may follow a set of readings, with a cache that works state by state.
//
// For almost all tokens, the state on top of the stack alone decides: the token is either read within the rule or
// rejected. The remaining tokens leave the rule in the middle of the token. A *partial mask* holds the tokens that
// one state allows, and the nodes of the token tree at which a text left the rule; from there, further partial masks
// continue with the state that the rule returns to. Partial masks do not depend on what lies deeper in the stack, so
// each is computed by one walk of the tree and then holds in every context. A mask is the union of a few partial
// masks. When the cache exceeds its limit it is cleared, and partial masks are computed again. A walk accepts a whole
// subtree at once if the state treats all its kinds of characters alike. Inside a string this covers most of the
// vocabulary. Ownership: masks_free. Threads: one at a time.
#ifndef QUERN_MASKS_H
#define QUERN_MASKS_H

#include "engine/grammar/readings.h"
#include "engine/grammar/vocab_tree.h"

struct partial_mask {
    uint64_t key;    // tree and state, or an earlier partial mask and the state returned to
    uint32_t *bits;  // the tokens as a bit mask, or NULL and
    uint32_t *ids;   // as a list
    uint32_t *nodes; // nodes at which the rule ended before the token did
    uint32_t n_ids, n_nodes;
    uint32_t deepest; // maximum number of frames that any reading had or needed on the way
    uint8_t tree;
};

struct masks {
    const struct grammar_vocab *v;
    struct readings *r;
    struct partial_mask *partials;
    uint32_t n, cap, *table, table_size;
    size_t bytes;
    // state of the walk in progress
    uint32_t *found, n_found; // tokens found, as a mask, and an upper bound of their number
    uint32_t *nodes;          // may contain duplicates
    size_t n_nodes, cap_nodes;
    uint32_t reach_long;     // bytes of the longest token, + 1
    uint32_t *sets, **rows;  // [depth]: the set that the text has become, and its cached steps
    uint32_t (*children)[2]; // [depth]: range of nodes that are still to be visited
    bool failed;
    uint64_t n_computed, n_visited; // statistics: partial masks computed, nodes visited
};

int masks_init(struct masks *m, const struct grammar_vocab *v, struct readings *r, struct error *err);
void masks_free(struct masks *m);
// Computes the mask of a set: grammar_vocab_words(v) words. False if memory runs out or work is given up.
bool masks_of(struct masks *m, uint32_t set, uint32_t *mask);

#endif
