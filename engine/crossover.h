// The crossover between CPU and GPU: from how many bytes of weights on a token takes less time on the GPU than on the
// CPU, by measurements on this computer.
//
// A token reads each weight that it uses once. On the CPU this is all of its time; on the GPU the cost of a step and
// of its kernel launches is added. The question is the time between tokens; a prompt, whose rows share the weights
// that are read, gains on a GPU from fewer bytes on. No constant here depends on a GPU model: all of them are
// measured. Threads: pure functions, except that crossover_measure uses the folder, to which other processes may write
// at the same time.
#ifndef QUERN_CROSSOVER_H
#define QUERN_CROSSOVER_H

#include "gguf/base.h"

struct machine;
struct crossover {
    double step, launch; // seconds on the GPU: a step with one kernel, and each further kernel
    double copy;         // bytes per second that the GPU copies, reads and writes both counted
    double read;         // bytes per second that the CPU reads
    int n_threads;       // threads with which the CPU reads so fast
};
// Measures an open GPU machine and n_threads threads of the CPU. With a folder, the result is kept there for a week,
// for this GPU, driver and processor, and is not measured again; a file there that is not such a measurement is
// ignored. E_MEMORY or E_GPU when the measurement fails.
int crossover_measure(struct machine *card, int n_threads, const char *folder, struct crossover *out,
                      struct error *err);

// The seconds that a token takes which reads so many bytes.
double crossover_on_cpu(const struct crossover *c, double bytes);
double crossover_on_card(const struct crossover *c, int n_launches, double bytes);
// The number of bytes at which both take equally long; INFINITY when the CPU reads as fast as the GPU copies.
double crossover_bytes(const struct crossover *c, int n_launches);

#endif
