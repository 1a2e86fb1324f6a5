// Threads that run one function together, and wait for one another.
//
// The caller is thread 0 and works too. Waiting spins for some microseconds, then sleeps in the kernel, so that a step costs
// no system call while all cores are ours, and a busy neighbour costs no more than its share. Ownership: pool_open starts
// the threads, pool_close ends them. Threads: pool_run is called by one thread at a time; what follows it in this header
// is called from within the function.
#ifndef QUERN_POOL_H
#define QUERN_POOL_H

#include "gguf/base.h"

struct pool;
int pool_open(struct pool **out, int n_threads, struct error *err); // n_threads >= 1
void pool_close(struct pool *p);                                    // NULL is fine
int pool_size(const struct pool *p);
void pool_run(struct pool *p, void (*work)(void *ctx, int thread), void *ctx);
void pool_barrier(struct pool *p); // by all threads

// How far a run has come: numbers that only rise, from 0 at its start. The one is of the run: what is done that others may
// build on. The others are the threads' own: what each has behind it. A thread that is kept from its core holds nobody up
// until somebody needs what it has not done.
void pool_reach(struct pool *p, uint32_t n);
void pool_wait_for(struct pool *p, uint32_t n); // until n is reached, by whomever
bool pool_has_reached(struct pool *p, uint32_t n);
void pool_pass(struct pool *p, int thread, uint32_t n);
uint32_t pool_wait_for_all(struct pool *p, uint32_t n); // until every thread has passed n: what all have passed by then
enum { POOL_END = INT32_MAX };                          // beyond all that is waited for

// How many threads to run: the smallest of the CPUs that this process may use, its CPU quota (control groups v1 and v2, all
// ancestors) and the physical cores; `wanted` > 0 overrides. `root` is "" but in tests, which bring their own /proc and /sys.
struct thread_choice {
    int n;
    int allowed, cores; // CPUs in the affinity mask; physical cores among them
    double quota;       // CPUs' worth of time, 0: none
    char why[96];
};
void threads_choose(const char *root, int wanted, struct thread_choice *out);

#endif
