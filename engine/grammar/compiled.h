// The internals of a grammar and of a constraint. Only engine/grammar includes this file.
//
// Ownership: grammar_free, constraint_free. Threads: `readings` and `masks` are accessed only while `lock` is held.
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
    struct text passed_over;             // see grammar_passed_over; each name behind a comma
};

struct constraint {
    struct grammar *g;
    uint32_t *history; // [n + 1]: before each token the set of readings, or, before the trigger is complete, the
                       // number of its bytes that have matched
    size_t n, cap;
    size_t n_waiting; // number of tokens accepted before the grammar started; SIZE_MAX while it has not started
    uint32_t *mask;
    char *trigger;
    size_t trigger_len;
    uint32_t *fallback;      // [trigger_len + 1]: matched bytes that remain matched if the next byte differs (KMP
                             // failure function)
    uint32_t **waiting_mask; // [trigger_len + 1]: the mask at each position in the trigger, NULL until needed
};

// Compiles these expressions into a grammar. Takes ownership of them, even on failure.
int grammar_compile(struct grammar **out, const struct grammar_vocab *v, struct exprs *x, uint32_t root,
                    struct error *err);

#endif
