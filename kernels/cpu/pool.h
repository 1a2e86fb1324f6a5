// A pool of threads that run one function together and wait for each other, and the choice of how many threads to use.
//
// The caller of pool_run is thread 0 and works too. A waiting thread spins for some microseconds and then sleeps in
// the kernel. So a step makes no system call while every thread has a core, and where other processes use cores,
// waiting threads leave them theirs. Ownership: pool_open starts the threads, pool_close ends them. Threads: pool_run
// is called by one thread at a time; the functions declared after it are called from within `work`.
#ifndef QUERN_POOL_H
#define QUERN_POOL_H

#include "gguf/base.h"

struct pool;
int pool_open(struct pool **out, int n_threads, struct error *err); // n_threads >= 1
void pool_close(struct pool *p);                                    // NULL is fine
int pool_size(const struct pool *p);
// Calls work(ctx, i) on every thread i of the pool; returns when all are done.
void pool_run(struct pool *p, void (*work)(void *ctx, int thread), void *ctx);
void pool_barrier(struct pool *p); // returns when all threads have called it

// Progress of a run, as numbers that begin at 0 and only rise. One number belongs to the run: the work up to it is
// complete, whoever did it. Every thread also has one of its own: it has passed that point. So a thread that is kept
// from its core delays others only when they need what it has not done.
void pool_reach(struct pool *p, uint32_t n);            // raises the run's number to n
void pool_wait_for(struct pool *p, uint32_t n);         // returns when the run's number is n or more
bool pool_has_reached(struct pool *p, uint32_t n);      // whether it is
void pool_pass(struct pool *p, int thread, uint32_t n); // raises the thread's own number to n
// Waits until every thread has passed n; returns the least number of all threads.
uint32_t pool_wait_for_all(struct pool *p, uint32_t n);
enum { POOL_END = INT32_MAX }; // greater than any number that is waited for

// Chooses how many threads to run: one for each physical core among the CPUs that the process may use, but no more
// than its CPU quota (control groups v1 and v2, with all ancestors). wanted > 0 overrides this. `root` is "", except
// in tests, which have their own /proc and /sys below it.
struct thread_choice {
    int n;
    int allowed, cores; // CPUs in the affinity mask; physical cores among them
    double quota;       // CPUs' worth of time, 0: none
    char why[96];       // the reason for n, for -v
};
void threads_choose(const char *root, int wanted, struct thread_choice *out);

#endif
