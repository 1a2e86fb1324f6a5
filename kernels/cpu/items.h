// Where the items of a phase begin: how the columns of its chains are cut, for any number of rows.
#ifndef QUERN_ITEMS_H
#define QUERN_ITEMS_H

#include "kernels/cpu/schedule.h"

// Sets items, n_items and widest of all chains of a phase; what it makes lies in the arena. False: no memory.
bool items_cut(struct arena *arena, struct phase *phase, const struct schedule_options *o);

#endif
