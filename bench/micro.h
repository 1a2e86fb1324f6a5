// What the halves of quern-micro share: a run's settings, and a row of its answer.
#ifndef QUERN_MICRO_H
#define QUERN_MICRO_H

#include "gguf/base.h"

struct micro {
    bool json, quick;
    bool first; // no row has been printed
    int card;   // -1: the CPU
};

struct micro_row {
    const char *what, *by;
    int64_t size;
    double work;      // products or elements
    const char *unit; // of them a second, in thousand millions
    const char *seed; // what was asked for, or measured there; "" where there is no figure
};

void micro_print(struct micro *o, const struct micro_row *r, double seconds);
void *micro_must(void *p);                     // ends the program when memory is short
float *micro_floats(int64_t n, uint32_t seed); // in -1 .. 1, aligned to 64; to be freed

// Everything on a card: the exit status.
int micro_card(struct micro *o);

#endif
