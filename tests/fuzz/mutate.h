// The random numbers of mutators: a linear congruential generator, so that a seed repeats a change.
#ifndef QUERN_MUTATE_H
#define QUERN_MUTATE_H

#include <stdint.h>

// The next number, of 24 bits.
static inline uint32_t mutate_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

#endif
