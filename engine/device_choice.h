// The choice that --device auto makes: the CPU, or a GPU that is present, has enough free memory and takes less time per
// token.
//
// The expected times of a token come from crossover.h; the demand for memory comes from a plan that is compiled for a GPU
// of the same compute capability "on paper", which uploads nothing. Ownership: when a GPU is chosen, its open machine
// belongs to the caller, who closes it. Threads: one at a time per CPU machine.
#ifndef QUERN_DEVICE_CHOICE_H
#define QUERN_DEVICE_CHOICE_H

#include "kernels/machine.h"

// What the choice depends on. All of it is only read.
struct device_question {
    const struct machine *cpu;             // an open CPU machine, the alternative
    const struct machine_options *machine; // as the user gave them; with threads, an ISA or BLAS given, the CPU is kept
    const struct graph *graph;             // of the loaded model
    int n_ctx;                             // positions of the KV cache that must fit
    enum dtype kv_type[2];                 // of its keys and values
    int card;                              // number of the GPU
    const char *kernel_cache;              // folder of compiled kernels and measured speeds; NULL: nothing is kept
    double tune_seconds;                   // how long the kernels of the GPU may be measured, see struct gpu_options
};

struct device_choice {
    struct machine *gpu; // the chosen GPU machine, open; NULL: the CPU
    bool found_gpu;      // a GPU was found, whether it was chosen or not
    char why[512];       // the reason, as a clause
};

// Makes the choice. It cannot fail: a GPU that does not work is not chosen, and `why` holds the error.
void device_choose(const struct device_question *q, struct device_choice *out);

#endif
