// What a CPU could do at best: as many products as an ISA level's instructions form when nothing else is done.
//
// Counted are products of pairs of numbers, not instructions. Threads: pure.
#ifndef QUERN_CEILINGS_H
#define QUERN_CEILINGS_H

#include <stdbool.h>

// Forms the products of 8-bit numbers, or of floats, that `turns` turns form; returns how many. 0: the level has no
// such ceiling (plain C), or is not of this CPU's architecture.
double ceiling_run(const char *level, bool f32, long turns);

#endif
