// Cuts the columns of a phase's chains into items, once for all numbers of rows that a step may have.
#ifndef QUERN_ITEMS_H
#define QUERN_ITEMS_H

#include "kernels/cpu/schedule.h"

// Sets items, n_items and widest of all chains of a phase; the items are in the arena. False: no memory.
bool items_cut(struct arena *arena, struct phase *phase, const struct schedule_options *o);

#endif
