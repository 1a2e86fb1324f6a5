// Which tokens may follow a set of readings, learned state by state.
//
// What a token may be is decided, for almost all tokens, by the state on top of the stack alone: either it is read
// within the rule, or not at all. The rest leave the rule within the token; for them a *lesson* remembers the node of
// the token tree at which they left, and goes on from there with the state that the rule returns to. Both are
// independent of what lies deeper, so that a lesson is learned by a walk once and then holds in every context: a mask
// is the sum of a few lessons. Lessons are forgotten when they take too much memory, and learned again.
// A walk takes whole what a state reads all alike: most of a vocabulary, where a text of many kinds of characters may
// stand. Ownership: masks_free. Threads: one at a time.
#ifndef QUERN_MASKS_H
#define QUERN_MASKS_H

#include "engine/grammar/readings.h"
#include "engine/grammar/vocab_tree.h"

struct lesson {
    uint64_t key;    // what it is about: tree and state, or an earlier lesson and the state returned to
    uint32_t *bits;  // the tokens as a mask, or NULL:
    uint32_t *ids;   // as a list
    uint32_t *nodes; // where the rule was left with more of the token to come
    uint32_t n_ids, n_nodes;
    uint32_t deepest; // frames that any reading had or needed on the way
    uint8_t tree;
};

struct masks {
    const struct grammar_vocab *v;
    struct readings *r;
    struct lesson *lessons;
    uint32_t n, cap, *table, table_size;
    size_t bytes;
    // of the walk under way
    uint32_t *found, n_found; // the tokens, as a mask, and how many at most
    uint32_t *nodes;          // some may come twice
    size_t n_nodes, cap_nodes;
    uint32_t reach_long;     // bytes of the longest token, and one
    uint32_t *sets, **rows;  // by depth: what the text has become, and its steps that are known
    uint32_t (*children)[2]; // by depth: the nodes that are yet to be seen
    bool failed;
    uint64_t n_learned, n_visited; // nodes of trees
};

int masks_init(struct masks *m, const struct grammar_vocab *v, struct readings *r, struct error *err);
void masks_free(struct masks *m);
// The mask of a set: grammar_vocab_words(v) words. False when memory is short.
bool masks_of(struct masks *m, uint32_t set, uint32_t *mask);

#endif
