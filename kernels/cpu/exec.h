// Runs a compiled graph on the threads of a pool: phase by phase, item by item.
//
// Ownership: a plan owns its arena and its memory; it views the graph and the kernels. Threads: exec_run is called by one
// thread at a time, and spreads over the pool.
#ifndef QUERN_EXEC_H
#define QUERN_EXEC_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/share.h"
#include "kernels/machine.h"
#include "kernels/cpu/schedule.h"

enum { FEW_ROWS = 16 }; // up to here a whole-row operation costs less on every thread than a barrier does

// Where a layer's keys and values lie in a page.
struct kv_offset {
    size_t part[2];
};

struct plan {
    const struct graph *graph;
    const struct kernels *kernels;
    enum reading reading; // with them, on this CPU
    bool spare_adders;    // of this CPU
    struct compile_options options;
    bool exact; // as the machine's options say
    bool blas;
    const atomic_bool *cancel;
    struct arena arena;
    struct program program;
    struct schedule schedules[SCHEDULE_KINDS];
    struct sharing sharing[SCHEDULE_KINDS];
    size_t page_bytes;
    struct kv_offset *kv; // [n_kv]
    uint8_t *shared;      // one arena for both schedules
    size_t shared_bytes;
    uint8_t *local; // of thread i: at i * local_stride
    size_t local_stride, local_bytes;
    size_t pointers_at; // within a thread's memory: scratch, then pointers to rows, then its own values
    size_t values_at;
    void *counters;          // [phases of the longer schedule]: items taken
    struct profile *profile; // NULL: nothing is measured
};

// Times of a plan: each thread writes its own, and they are added up when they are asked for.
struct profile;
int profile_new(struct plan *p, int n_threads, struct error *err);
void profile_free(struct profile *p); // NULL is fine
void profile_take(struct plan *p, const struct node_time **times, int *n, double *wait_ns);
uint64_t profile_now(void); // nanoseconds
void profile_add(struct profile *p, int thread, const struct tensor *node, uint64_t since);
void profile_add_wait(struct profile *p, int thread, uint64_t since);

// Whether every node's operation has a kernel here: E_MODEL with the name of the first node whose operation has none.
int exec_check(const struct graph *g, struct error *err);
// Marks what the plan's taps look at, once its program is built: NULL when memory is short.
bool *exec_tapped(struct plan *p);
// False when the step was cancelled.
bool exec_run(struct plan *p, struct pool *pool, const struct step *step);
// Bytes of counters for a plan with that many phases.
size_t exec_counter_bytes(int n_phases);

// OpenBLAS for the float GEMM of many rows, by one thread for its own columns (kernels/cpu/blas.c).
// It is loaded when it is asked for first: E_USAGE, with the library's name, where there is none.
int blas_open(struct error *err);
// After blas_open: y[j][r] as in matmul_fn, for plain float types. False when the shape does not suit, and the own kernel must serve.
bool blas_matmul(const struct matmul_args *a, size_t x_stride, size_t y_stride);

#endif
