// From flags to guesses ahead: lookup in the text, and a draft model (-md).
//
// Ownership: the caller closes with speculation_close, before the model that guesses are made for. Threads: the main
// thread.
#ifndef QUERN_SPECULATION_H
#define QUERN_SPECULATION_H

#include "cmd/load.h"
#include "engine/speculate.h"

struct speculation {
    struct loaded draft;
    struct speculator *speculator; // NULL: no guesses
};

// How many rows of logits a session needs for the flags, for load_session.
int speculation_rows(const struct options *o);
// Zero-initialise *s. Opens the draft model, when there is one. E_USAGE when its vocabulary is another.
int speculation_open(struct speculation *s, const struct options *o, const struct loaded *l, struct error *err);
void speculation_close(struct speculation *s);

#endif
