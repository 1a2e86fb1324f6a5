// The inside of a grammar and of a constraint. For engine/grammar alone.
//
// Ownership: grammar_free, constraint_free. Threads: what learns in a grammar is touched with `lock` held.
#ifndef QUERN_COMPILED_H
#define QUERN_COMPILED_H

#include "engine/grammar/masks.h"

#include <pthread.h>

struct grammar {
    const struct grammar_vocab *v;
    struct exprs x;
    struct net net;
    struct readings readings;
    struct masks masks;
    pthread_mutex_t lock;
    bool has_lock;
    uint32_t start, start_after_trigger; // sets of readings
};

struct constraint {
    struct grammar *g;
    uint32_t *history; // [n + 1]: the set of readings before each token; of those before the trigger, the place in it
    size_t n, cap;
    size_t n_waiting; // so many tokens were accepted before the grammar started; SIZE_MAX while it has not
    uint32_t *mask;
    char *trigger;
    size_t trigger_len;
    uint32_t *fallback;      // of each place in the trigger: how much of it remains when the next byte differs
    uint32_t **waiting_mask; // of each place, NULL until asked for
};

// A grammar of these expressions, which it takes over even when it fails.
int grammar_compile(struct grammar **out, const struct grammar_vocab *v, struct exprs *x, uint32_t root,
                    struct error *err);

#endif
