// What a CPU could do at best: as many products as an ISA level's instructions form when nothing else is done.
//
// Counted are products of pairs of numbers, not instructions. Threads: pure.
#ifndef QUERN_CEILINGS_H
#define QUERN_CEILINGS_H

#include "kernels/cpu.h"

// Forms the products of a unit that `turns` turns form; returns how many. 0: the level has no such ceiling (plain C),
// or is not of this CPU's architecture.
double ceiling_run(const char *level, enum cpu_unit unit, long turns);
// The unit's instructions; "" where ceiling_run gives 0.
const char *ceiling_name(const char *level, enum cpu_unit unit);

#endif
