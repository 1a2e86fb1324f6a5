// The peak speed of a CPU: loops that do nothing but the multiply instructions of an ISA level, on registers.
//
// What is counted are products of two numbers, not instructions. Threads: any.
#ifndef QUERN_CEILINGS_H
#define QUERN_CEILINGS_H

#include "kernels/cpu.h"

// Runs `turns` turns of a unit's loop, and returns how many products they computed. 0: the level has no such loop
// (plain C), or is not of this CPU's architecture.
double ceiling_run(const char *level, enum cpu_unit unit, long turns);
// The name of the unit's instructions; "" where ceiling_run returns 0.
const char *ceiling_name(const char *level, enum cpu_unit unit);

#endif
