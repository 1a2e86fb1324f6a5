// The CPU machine's plan, and how a step of it runs on the threads of a pool: phase by phase, item by item.
//
// Ownership: a plan owns its arena and its memory; it views the graph and the kernels. Threads: exec_run is called by
// one thread at a time and does its work on all threads of the pool.
#ifndef QUERN_EXEC_H
#define QUERN_EXEC_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/share.h"
#include "kernels/machine.h"
#include "kernels/cpu/schedule.h"

enum {
    FEW_ROWS = 16
}; // up to so many rows, work that every thread repeats costs less than waiting for one that does it

// Where a layer's keys and values lie in a page.
struct kv_offset {
    size_t part[2];
};

struct plan {
    const struct graph *graph;
    const struct kernels *kernels;
    enum reading reading; // how these kernels read memory on this CPU
    bool spare_adders;    // whether this CPU has them, see kernels_spare_adders
    struct compile_options options;
    bool exact; // as machine_options
    bool blas;
    const atomic_bool *cancel; // a run ends early once it is true; NULL: runs are not cancelled
    struct arena arena;
    struct program program;
    struct schedule schedules[SCHEDULE_KINDS];
    struct sharing sharing[SCHEDULE_KINDS];
    size_t page_bytes;
    struct kv_offset *kv; // [n_kv]
    uint8_t *shared;      // SHARED values; one memory for both schedules
    size_t shared_bytes;
    uint8_t *local; // each thread's own memory: thread i's begins at i * local_stride
    size_t local_stride, local_bytes;
    size_t pointers_at; // a thread's memory holds scratch, then pointers to rows, then the thread's own values
    size_t values_at;
    void *counters;          // [phases of the longer schedule]: which items are taken and done
    struct profile *profile; // NULL: nothing is measured
};

// Times of a plan's nodes. Each thread adds to its own; profile_take sums them, hands them out and starts again from
// zero.
struct profile;
int profile_new(struct plan *p, int n_threads, struct error *err);
void profile_free(struct profile *p); // NULL is fine
void profile_take(struct plan *p, const struct node_time **times, int *n, double *wait_ns);
uint64_t profile_now(void); // nanoseconds
void profile_add(struct profile *p, int thread, const struct tensor *node, uint64_t since);
void profile_add_wait(struct profile *p, int thread, uint64_t since);

// Whether every node's operation has a kernel here: E_MODEL with the name of the first node whose operation has none.
int exec_check(const struct graph *g, struct error *err);
// [program.n]: which nodes the plan's taps look at. For a plan with taps whose program is built. NULL: no memory.
bool *exec_tapped(struct plan *p);
// Runs one step. False: it was cancelled.
bool exec_run(struct plan *p, struct pool *pool, const struct step *step);
// Bytes of plan.counters for so many phases.
size_t exec_counter_bytes(int n_phases);

// OpenBLAS for float products of many rows; each thread calls it for the columns of its own items (kernels/cpu/blas.c).
// The first call of blas_open loads the library. E_USAGE with the library's name where there is none.
int blas_open(struct error *err);
// After blas_open: computes y as matmul_fn does, for weights of F32, F16 and BF16; strides are bytes between rows of
// x and of y. False: it does not take these arguments, and the caller uses its own kernel.
bool blas_matmul(const struct matmul_args *a, size_t x_stride, size_t y_stride);

#endif
