// From how many bytes of weights on a token takes less time on a card than on the CPU, by what was measured on this
// machine.
//
// A token reads the weights that it uses once. On the CPU that is all of its time; on a card it takes a step with its
// launches besides. What is asked is the time between tokens: a prompt, whose rows share what is read, gains on a card
// from fewer bytes on. Nothing here is known of any one card: all constants are measured. Threads: pure but for the
// folder, where others may write at the same time.
#ifndef QUERN_CROSSOVER_H
#define QUERN_CROSSOVER_H

#include "gguf/base.h"

struct machine;
struct crossover {
    double step, launch; // seconds on the card: a step with one kernel, each kernel more
    double copy;         // bytes a second that the card copies, read and written both counted
    double read;         // bytes a second that the CPU reads
    int n_threads;       // by which it does
};
// Of an open GPU machine and n_threads of the CPU. With a folder what was measured is kept there for a week, for this
// card, driver and processor, and not measured again; what is found there and is no such measurement is not used.
// E_MEMORY and E_GPU when nothing could be measured.
int crossover_measure(struct machine *card, int n_threads, const char *folder, struct crossover *out,
                      struct error *err);

// Seconds of a token that reads so many bytes.
double crossover_on_cpu(const struct crossover *c, double bytes);
double crossover_on_card(const struct crossover *c, int n_launches, double bytes);
// Where both take equally long: INFINITY when the CPU reads as fast as the card copies.
double crossover_bytes(const struct crossover *c, int n_launches);

#endif
