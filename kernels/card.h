// The cards that the GPU machine could use: what they are, and how fast their memory is.
//
// Threads: any; each call loads the driver for itself and leaves nothing behind.
#ifndef QUERN_CARD_H
#define QUERN_CARD_H

#include "gguf/base.h"

struct card {
    char name[128];
    int major, minor;   // compute capability
    int n_sm;           // multiprocessors
    int tier;           // the kernels that it gets: 75, 80 or 90 for those of sm_75, sm_80, sm_90; 0: none run on it
    int driver;         // 1000 * major + 10 * minor of the newest CUDA that its driver serves
    char link[64];      // of its bus, as "32.0 GT/s PCIe x16"; "" where the system does not say
    size_t total, free; // bytes of memory
};
// The number of cards, 1 or more, or E_GPU with the reason why there is none.
int card_count(int *n, struct error *err);
int card_query(int i, struct card *out, struct error *err);

struct card_speed {
    double copy;   // bytes a second that a copy within the card reads and writes, both counted
    double upload; // bytes a second from pinned memory of the host
};
// The best of some passes over at most 1 GiB of the card's free memory.
int card_measure(int i, struct card_speed *out, struct error *err);

// ---- of an open GPU machine

struct machine;
struct plan;
// The card that it runs on.
int card_of(struct machine *m, struct card *out, struct error *err);
// What work costs on its card, measured now, in some milliseconds; kernels of nothing run for it.
struct card_costs {
    double step;   // seconds from a step's inputs to its answer, with one kernel between them
    double launch; // seconds for each kernel more in the recorded step
    double copy;   // as in card_speed, over at most 512 MiB
};
int card_measure_costs(struct machine *m, struct card_costs *out, struct error *err);
// Kernels of a step of one row of a plan, and bytes that all the machine's weights take on the card.
void card_plan(const struct machine *m, const struct plan *p, int *n_launches, size_t *weight_bytes);

// Of a plan made with `profile`: each launch is done n times, and its time is that of one. For graphs without experts and
// keys and values: what a launch of theirs reads, none of it changes.
void card_repeat(struct plan *p, int n);

// The kernels that it has made for its plans, the i-th; false after the last.
struct card_kernel {
    struct str text;  // PTX, until the machine is closed
    const char *name; // of its emitter
    int users;        // launches that it serves
    uint32_t threads; // of a block
    // Instructions of a thread for a weight times a row, in its dearest loop of products; 0: it has no such loop.
    double per_product;
};
bool card_kernel(const struct machine *m, int i, struct card_kernel *out);

#endif
