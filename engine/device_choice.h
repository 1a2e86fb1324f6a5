// Which machine --device auto takes: the CPU, or a card that is there, has room and takes less time for a token.
//
// Ownership: an opened card is the caller's to close. Threads: those of a model while it is opened.
#ifndef QUERN_DEVICE_CHOICE_H
#define QUERN_DEVICE_CHOICE_H

#include "engine/model.h"

// A model that is loaded, its machine the CPU's: a card's machine that should take its place, or NULL. Why stands in
// m->device_why, and m->device_news is set where a card was met. A choice cannot fail: what does not work is not taken.
struct machine *device_choose(struct model *m, const struct model_options *o);

#endif
