// Shared by the two parts of quern-micro, for the CPU (micro.c) and the GPU (micro_card.c): the settings of a run, and
// a row of its output.
#ifndef QUERN_MICRO_H
#define QUERN_MICRO_H

#include "gguf/base.h"

struct micro {
    bool json, quick;
    bool first; // no row has been printed
    int card;   // number of the GPU; -1: the CPU
};

struct micro_row {
    const char *what, *by; // what is measured; the level, type or device that does it
    int64_t size;
    double work;        // products or elements
    const char *unit;   // of the speed, in 10^9 of them per second
    const char *target; // the goal that was set at the start, or a speed measured then; "": none
};

void micro_print(struct micro *o, const struct micro_row *r, double seconds);
void *micro_must(void *p);                     // ends the program if p is NULL
float *micro_floats(int64_t n, uint32_t seed); // random, -1 to 1, aligned to 64 bytes; the caller frees them

// Measures everything on the GPU. Returns the exit status.
int micro_card(struct micro *o);

#endif
