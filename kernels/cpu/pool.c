// The pool of threads, and how they wait: they spin first, then sleep on a futex.
#include "kernels/cpu/pool.h"
#include "kernels/thread_start.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// SPINS take about 20 us. Most waits in a decode step are shorter; a sleep and a wake cost about 10 us.
enum { SPINS = 600, CACHE_LINE = 128 };

// A number that threads wait for. It only rises, and may wrap around: numbers are compared by their difference.
struct gauge {
    _Alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct pool {
    struct gauge job;                              // runs started
    struct gauge barrier;                          // barriers passed
    struct gauge reached;                          // the run's progress
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived; // threads that wait at the barrier
    int n;                                         // threads, with the caller
    int started;                                   // threads that were created
    void (*work)(void *ctx, int thread);
    void *ctx;
    _Atomic bool quit;
    pthread_t *threads;
    struct member *members; // [n], the caller's first
};

struct member {
    struct gauge passed; // the thread's progress in this run
    struct pool *pool;
    int index;
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool is_below(uint32_t value, uint32_t n)
{
    return (int32_t)(value - n) < 0;
}

// Waits until the value is n or more, and returns it. No wake is lost: a sleeper raises `sleepers` before the kernel
// compares the value again, and gauge_raise changes the value before it reads `sleepers`, so one of the two sees the
// other.
static uint32_t gauge_wait(struct gauge *g, uint32_t n)
{
    uint32_t value;
    for (int i = 0; i < SPINS; i++) {
        value = atomic_load_explicit(&g->value, memory_order_acquire);
        if (!is_below(value, n))
            return value;
        pause_cpu();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (is_below(value = atomic_load(&g->value), n))
        syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
    return value;
}

// Raises the value to `to`, unless it is greater already, and wakes all who sleep.
static void gauge_raise(struct gauge *g, uint32_t to)
{
    uint32_t value = atomic_load_explicit(&g->value, memory_order_relaxed);
    while (is_below(value, to) && !atomic_compare_exchange_weak(&g->value, &value, to))
        ;
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *p)
{
    if (p->n == 1)
        return;
    uint32_t now = atomic_load_explicit(&p->barrier.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)p->n) {
        gauge_wait(&p->barrier, now + 1);
        return;
    }
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    gauge_raise(&p->barrier, now + 1);
}

void pool_reach(struct pool *p, uint32_t n)
{
    gauge_raise(&p->reached, n);
}

void pool_wait_for(struct pool *p, uint32_t n)
{
    gauge_wait(&p->reached, n);
}

bool pool_has_reached(struct pool *p, uint32_t n)
{
    return !is_below(atomic_load_explicit(&p->reached.value, memory_order_acquire), n);
}

void pool_pass(struct pool *p, int thread, uint32_t n)
{
    gauge_raise(&p->members[thread].passed, n);
}

uint32_t pool_wait_for_all(struct pool *p, uint32_t n)
{
    uint32_t least = POOL_END;
    for (int i = 0; i < p->n; i++)
        least = MIN(least, gauge_wait(&p->members[i].passed, n));
    return least;
}

static void work(struct member *m)
{
    struct pool *p = m->pool;
    p->work(p->ctx, m->index);
    pool_barrier(p); // so that no member still reads ctx when the caller goes on
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    for (uint32_t run = 1;; run++) {
        gauge_wait(&m->pool->job, run);
        if (atomic_load(&m->pool->quit))
            return NULL;
        work(m);
    }
}

static void start_run(struct pool *p)
{
    gauge_raise(&p->job, atomic_load_explicit(&p->job.value, memory_order_relaxed) + 1);
}

void pool_run(struct pool *p, void (*function)(void *ctx, int thread), void *ctx)
{
    p->work = function;
    p->ctx = ctx;
    atomic_store_explicit(&p->reached.value, 0, memory_order_relaxed);
    for (int i = 0; i < p->n; i++)
        atomic_store_explicit(&p->members[i].passed.value, 0, memory_order_relaxed);
    if (p->n > 1)
        start_run(p);
    work(&p->members[0]);
}

static int start_members(struct pool *p, struct error *err)
{
    int rc = 0;
    while (p->started < p->n - 1 && rc == 0) {
        rc = thread_start(&p->threads[p->started], member_main, &p->members[p->started + 1]);
        p->started += rc == 0;
    }
    return rc ? fail(err, E_MEMORY, "cannot start thread %d of %d: %s", p->started + 2, p->n, strerror(rc)) : 0;
}

static int allocate(struct pool *p)
{
    size_t n = (size_t)p->n;
    p->threads = calloc(n, sizeof(*p->threads));
    p->members = aligned_alloc(CACHE_LINE, n * sizeof(*p->members));
    if (!p->threads || !p->members)
        return -1;
    memset(p->members, 0, n * sizeof(*p->members));
    for (int i = 0; i < p->n; i++) {
        p->members[i].pool = p;
        p->members[i].index = i;
    }
    return 0;
}

int pool_open(struct pool **out, int n_threads, struct error *err)
{
    *out = NULL;
    struct pool *p = aligned_alloc(CACHE_LINE, align_up(sizeof(*p), CACHE_LINE));
    if (!p)
        return fail(err, E_MEMORY, "no memory for a pool of %d threads", n_threads);
    memset(p, 0, sizeof(*p));
    p->n = n_threads;
    if (allocate(p)) {
        fail(err, E_MEMORY, "no memory for a pool of %d threads", n_threads);
        goto failed;
    }
    if (start_members(p, err))
        goto failed;
    *out = p;
    return 0;
failed:
    pool_close(p);
    return -1;
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    start_run(p);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    free(p->members);
    free(p);
}

int pool_size(const struct pool *p)
{
    return p->n;
}
