// The GPUs that the GPU machine could use, called cards: their properties and the speed of their memory.
//
// Ownership: results are copies, except for those of card_kernel. Threads: any for the first three functions, each of
// which opens the driver for itself and closes it again. The functions that take a machine or a plan follow the
// machine's rule: one thread at a time.
#ifndef QUERN_CARD_H
#define QUERN_CARD_H

#include "gguf/base.h"

struct card {
    char name[128];
    int major, minor;   // compute capability
    int n_sm;           // multiprocessors
    int tier;           // the kernels that it gets: 75, 80 or 90 for those of sm_75, sm_80 or sm_90; 0: it is too old
    int driver;         // 1000 * major + 10 * minor of the newest CUDA that its driver supports
    char link[64];      // speed and width of its bus, such as "32.0 GT/s PCIe x16"; "" if the system does not tell
    size_t total, free; // bytes of memory
};
// Sets *n to the number of cards, 1 or more, or fails with E_GPU and the reason why there is none.
int card_count(int *n, struct error *err);
int card_query(int i, struct card *out, struct error *err);

struct card_speed {
    double copy;   // bytes per second of a copy within the card, bytes read and bytes written both counted
    double upload; // bytes per second of a copy from pinned host memory to the card
};
// Measures the speeds as the best of some passes. It allocates at most 1 GiB of the card's free memory.
int card_measure(int i, struct card_speed *out, struct error *err);

// ---- of an open GPU machine

struct machine;
struct plan;
// Describes the card that the machine runs on.
int card_of(struct machine *m, struct card *out, struct error *err);
// What work costs on the machine's card.
struct card_costs {
    double step;   // seconds of a step with one kernel, from the upload of its inputs to the arrival of its results
    double launch; // seconds that each further kernel adds to a replayed step
    double copy;   // as in card_speed
};
// Measures the costs with kernels that do nothing. It takes some milliseconds and at most 512 MiB of the card's memory.
int card_measure_costs(struct machine *m, struct card_costs *out, struct error *err);
// Reports how many launches a step of one row of the plan has, and the bytes of all the machine's weights on the card.
void card_plan(const struct machine *m, const struct plan *p, int *n_launches, size_t *weight_bytes);

// The class of rows that was chosen for a product by measuring (struct gpu_options), now or at an earlier start. Of type
// "step" it is the variant of the kernels of a step of one row; n_in and n_out then tell such steps apart.
struct card_choice {
    const char *type, *form; // of the weights; of the activations: "f32", "q8" or "f16"
    uint32_t n_in, n_out, rows;
    uint32_t class; // rows of a thread block; of a step the variant, below CARD_VARIANTS
    double us;      // the time of the product
    // What was measured by this machine; none if the choice was kept from an earlier start.
    int n_tried;
    struct card_class {
        uint32_t class;
        double us;
    } tried[8];
};
// The variants of a step of one row (docs/gpu.md).
enum { CARD_VARIANTS = 5 };
// The i-th choice that the machine's plans use. Returns false if i is out of range.
bool card_choice(const struct machine *m, int i, struct card_choice *out);
struct card_tuning {
    int measured;     // products and steps that were measured since the machine was opened
    int known;        // those that were kept from an earlier start
    int unmeasured;   // those for which no time or no memory was left
    bool no_room;     // the card had no memory left for measuring
    double seconds;   // that measuring took
    const char *file; // where the choices are kept; NULL: nowhere. It lives as long as the machine
    int fault;        // the errno of the last attempt to keep them; 0: none failed
};
// All zero where nothing is measured.
struct card_tuning card_tuning(const struct machine *m);

// Makes a plan compiled with `profile` run each launch n times; the reported time is still the time of one run. It is
// meant for graphs without experts and without keys and values, whose launches change nothing that they read.
void card_repeat(struct plan *p, int n);

// A kernel that the machine has loaded for its plans.
struct card_kernel {
    struct str text;  // its PTX; it lives until the machine is closed
    const char *name; // the entry's name without the number of the node
    int users;        // launches and uploads of weights that were made with it
    uint32_t threads; // of a thread block
    uint32_t shared;  // bytes of dynamic shared memory of a thread block
    // Instructions of a thread for each product of a weight and an element of x, in the most expensive loop of products
    // (kernels/ptx/loop_cost.h); 0: the kernel has no such loop.
    double per_product;
    int ahead;  // bytes that a thread requests at once in such a loop (kernels/ptx/loads_ahead.h); 0: not known
    bool turns; // the threads of a block wait for each other between the loads and the products of such a loop
    int ring;   // bytes that copies of a thread block keep in flight; 0: it has none
    bool early; // the next launch may begin before it ends, and it may itself begin beside the one ahead
};
// Describes the i-th kernel. Returns false if i is out of range.
bool card_kernel(const struct machine *m, int i, struct card_kernel *out);

// A launch of a step, and the products with weights that it computes.
struct card_launch {
    int kernel;          // for card_kernel
    double ctas;         // pieces of work of one thread block each
    double most_ctas;    // the launch has at most so many thread blocks, which take the pieces in turn; 0: one for each
    double weight_bytes; // read, as cost_of_node counts them
    double products;     // of a weight and an element of x
    int whole;           // for card_kernel: the kernel of which it is a step, instead of a launch; -1: it is a launch
    bool begins;         // it is the first step of that kernel's launch
};
// Describes the i-th launch of a step that has this many rows and one output. Returns false if i is out of range. A
// launch that such a step leaves out has kernel -1.
bool card_launch(const struct plan *p, int n_rows, int i, struct card_launch *out);

#endif
