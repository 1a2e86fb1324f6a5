// Threads that run one function together and meet at barriers.
//
// The caller is thread 0 and works too. Waiting spins for some microseconds, then sleeps in the kernel, so that a step costs
// no system call while all cores are ours, and a busy neighbour costs no more than its share. Ownership: pool_open starts
// the threads, pool_close ends them. Threads: pool_run is called by one thread at a time, pool_barrier by all n from
// within the function.
#ifndef QUERN_POOL_H
#define QUERN_POOL_H

#include "gguf/base.h"

struct pool;
int pool_open(struct pool **out, int n_threads, struct error *err);  // n_threads >= 1
void pool_close(struct pool *p);                                     // NULL is fine
int pool_size(const struct pool *p);
void pool_run(struct pool *p, void (*work)(void *ctx, int thread), void *ctx);
void pool_barrier(struct pool *p);

// How many threads to run: the smallest of the CPUs that this process may use, its CPU quota (control groups v1 and v2, all
// ancestors) and the physical cores; `wanted` > 0 overrides. `root` is "" but in tests, which bring their own /proc and /sys.
struct thread_choice {
    int n;
    int allowed, cores;   // CPUs in the affinity mask; physical cores among them
    double quota;         // CPUs' worth of time, 0: none
    char why[96];
};
void threads_choose(const char *root, int wanted, struct thread_choice *out);

#endif
