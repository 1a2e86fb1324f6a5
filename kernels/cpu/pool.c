#include "kernels/cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// About 20 us: most waits in a decode step are shorter, a sleep and a wake cost about 10.
enum { SPINS = 600, CACHE_LINE = 128 };

// Something that grows, and that threads wait for.
struct signal_count {
    _Alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct pool {
    struct signal_count job;      // runs started
    struct signal_count barrier;  // barriers passed
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived;
    int n;                        // threads, the caller included
    int started;                  // of them, by us
    void (*work)(void *ctx, int thread);
    void *ctx;
    _Atomic bool quit;
    pthread_t *threads;
    struct member *members;
};

struct member {
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

// Returns when s->value is no longer `old`. The sleeper announces itself before the kernel compares the value again, and
// the waker changes the value before it looks for sleepers: one of the two sees the other.
static void signal_wait(struct signal_count *s, uint32_t old)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&s->value, memory_order_acquire) != old)
            return;
        pause_cpu();
    }
    atomic_fetch_add(&s->sleepers, 1);
    while (atomic_load(&s->value) == old)
        syscall(SYS_futex, &s->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&s->sleepers, 1);
}

static void signal_raise(struct signal_count *s)
{
    atomic_fetch_add(&s->value, 1);
    if (atomic_load(&s->sleepers))
        syscall(SYS_futex, &s->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *p)
{
    if (p->n == 1)
        return;
    uint32_t now = atomic_load_explicit(&p->barrier.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)p->n) {
        signal_wait(&p->barrier, now);
        return;
    }
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    signal_raise(&p->barrier);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct pool *p = m->pool;
    for (uint32_t seen = 0;; seen++) {
        signal_wait(&p->job, seen);
        if (atomic_load(&p->quit))
            return NULL;
        p->work(p->ctx, m->index);
        pool_barrier(p);
    }
}

void pool_run(struct pool *p, void (*work)(void *ctx, int thread), void *ctx)
{
    p->work = work;
    p->ctx = ctx;
    if (p->n > 1)
        signal_raise(&p->job);
    work(ctx, 0);
    pool_barrier(p);  // so that no member still reads ctx when the caller goes on
}

// Signals are the main thread's business: members start with all of them blocked.
static int start_members(struct pool *p, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    while (p->started < p->n - 1 && rc == 0) {
        struct member *m = &p->members[p->started];
        *m = (struct member){p, p->started + 1};
        rc = pthread_create(&p->threads[p->started], NULL, member_main, m);
        p->started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? fail(err, E_MEMORY, "cannot start thread %d of %d: %s", p->started + 2, p->n, strerror(rc)) : 0;
}

int pool_open(struct pool **out, int n_threads, struct error *err)
{
    *out = NULL;
    struct pool *p = aligned_alloc(CACHE_LINE, align_up(sizeof(*p), CACHE_LINE));
    if (!p)
        return fail(err, E_MEMORY, "no memory for a pool of %d threads", n_threads);
    memset(p, 0, sizeof(*p));
    p->n = n_threads;
    p->threads = calloc((size_t)n_threads, sizeof(*p->threads));
    p->members = calloc((size_t)n_threads, sizeof(*p->members));
    if (!p->threads || !p->members) {
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
    signal_raise(&p->job);
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
