// Makes a speculator from the flags: lookup in earlier text, and a draft model (-md).
//
// Ownership: the caller calls speculation_close before it closes the target model. Threads: the main thread.
#ifndef QUERN_SPECULATION_H
#define QUERN_SPECULATION_H

#include "cmd/load.h"
#include "engine/speculate.h"

struct speculation {
    struct loaded draft;
    struct speculator *speculator; // NULL: no speculation
};

// How many rows of logits per step a session needs for these flags; an argument of load_session.
int speculation_rows(const struct options *o);
// Opens the draft model if -md names one. *s must be zero-initialised. E_USAGE if its vocabulary differs from the
// target model's.
int speculation_open(struct speculation *s, const struct options *o, const struct loaded *l, struct error *err);
void speculation_close(struct speculation *s);

#endif
