// Tests the thread pool: barriers hold, all work is done, and the number of threads respects affinity and control
// groups.
#include "kernels/cpu/pool.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 2000, THREADS_MAX = 16 };

struct ladder {
    struct pool *pool;
    _Atomic int step[THREADS_MAX];
    _Atomic int errors;
    int n;
};

// Between two barriers every thread must see every other on the same rung.
static void climb(void *ctx, int thread)
{
    struct ladder *l = ctx;
    for (int i = 1; i <= ROUNDS; i++) {
        atomic_store_explicit(&l->step[thread], i, memory_order_relaxed);
        pool_barrier(l->pool);
        for (int t = 0; t < l->n; t++)
            if (atomic_load_explicit(&l->step[t], memory_order_relaxed) != i)
                atomic_fetch_add(&l->errors, 1);
        pool_barrier(l->pool);
    }
}

Test(pool, barriers_hold_for_any_number_of_threads)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    for (size_t c = 0; c < COUNT_OF(counts); c++) {
        struct ladder l = {.n = counts[c]};
        struct error err;
        cr_assert_eq(pool_open(&l.pool, counts[c], &err), 0, "%s", err.text);
        cr_expect_eq(pool_size(l.pool), counts[c]);
        pool_run(l.pool, climb, &l);
        cr_expect_eq(l.errors, 0, "%d of the looks across the barrier were wrong with %d threads", l.errors, counts[c]);
        pool_close(l.pool);
    }
}

// Threads pass rungs each at its own pace; who reaches a rung last lets all beyond it.
struct race {
    struct pool *pool;
    _Atomic int on[ROUNDS];
    _Atomic int errors;
    int n, lag;
};

static void run_race(void *ctx, int thread)
{
    struct race *l = ctx;
    for (int i = 0; i < ROUNDS; i++) {
        pool_wait_for(l->pool, (uint32_t)i);
        if (i && atomic_load_explicit(&l->on[i - 1], memory_order_relaxed) != l->n)
            atomic_fetch_add(&l->errors, 1);
        pool_pass(l->pool, thread, (uint32_t)i);
        if (i > l->lag) {
            uint32_t all = pool_wait_for_all(l->pool, (uint32_t)(i - l->lag));
            if (all < (uint32_t)(i - l->lag) || all > (uint32_t)i)
                atomic_fetch_add(&l->errors, 1);
        }
        if (thread == i % l->n && i % 97 == 0)
            usleep(100); // late, and the others asleep
        if (atomic_fetch_add_explicit(&l->on[i], 1, memory_order_acq_rel) + 1 == l->n)
            pool_reach(l->pool, (uint32_t)i + 1);
    }
    pool_pass(l->pool, thread, POOL_END);
}

Test(pool, nobody_goes_on_before_what_it_waits_for)
{
    static struct race l;
    for (int n = 1; n <= 5; n++) {
        memset(&l, 0, sizeof(l));
        l.n = n, l.lag = 3;
        cr_assert_eq(pool_open(&l.pool, n, NULL), 0);
        for (int run = 0; run < 2; run++) { // numbers begin at 0 again
            memset(l.on, 0, sizeof(l.on));
            pool_run(l.pool, run_race, &l);
        }
        cr_expect_eq(l.errors, 0, "%d errors with %d threads", l.errors, n);
        pool_close(l.pool);
    }
}

static void one_does_all(void *ctx, int thread)
{
    struct race *l = ctx;
    if (thread == 1) {
        pool_wait_for(l->pool, 99); // what others do without it
        l->on[0]++;
        return;
    }
    for (uint32_t i = 1; i <= 99; i++)
        pool_reach(l->pool, i);
    pool_reach(l->pool, 3); // lowers nothing
}

Test(pool, a_thread_that_waits_holds_nobody_up)
{
    static struct race l;
    cr_assert_eq(pool_open(&l.pool, 2, NULL), 0);
    for (int i = 1; i <= 50; i++) {
        pool_run(l.pool, one_does_all, &l);
        cr_assert_eq(l.on[0], i);
    }
    pool_close(l.pool);
}

struct tally {
    _Atomic int seen;
};

static void count_in(void *ctx, int thread)
{
    atomic_fetch_add(&((struct tally *)ctx)->seen, 1 << (4 * thread));
}

Test(pool, every_run_reaches_every_thread_once_also_after_sleep)
{
    struct pool *p;
    cr_assert_eq(pool_open(&p, 4, NULL), 0);
    for (int i = 0; i < 200; i++) {
        struct tally t = {0};
        pool_run(p, count_in, &t);
        cr_assert_eq(t.seen, 0x1111, "run %d: %x", i, t.seen);
        if (i % 20 == 0)
            usleep(2000); // long enough that the members sleep in the kernel
    }
    pool_close(p);
}

Test(pool, closes_half_built)
{
    pool_close(NULL);
    struct pool *p;
    cr_assert_eq(pool_open(&p, 3, NULL), 0);
    pool_close(p); // never run
}

// ---- choosing a number, on made-up /proc and /sys

static char root[64];

static void put_file(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        cr_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    cr_assert(f != NULL, "%s", full);
    fputs(text, f);
    fclose(f);
}

static void make_root(void)
{
    snprintf(root, sizeof(root), "/tmp/quern-pool-XXXXXX");
    cr_assert(mkdtemp(root) != NULL);
}

static void remove_root(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    cr_expect_eq(system(command), 0);
}

TestSuite(threads, .init = make_root, .fini = remove_root);

Test(threads, asked_for_overrides)
{
    struct thread_choice c;
    threads_choose(root, 7, &c);
    cr_expect_eq(c.n, 7);
    cr_expect_str_eq(c.why, "asked for");
}

Test(threads, no_files_means_all_allowed_cpus)
{
    struct thread_choice c;
    threads_choose(root, 0, &c);
    cr_expect_eq(c.n, c.allowed);
    cr_expect_eq(c.quota, 0);
}

Test(threads, v2_quota_of_an_ancestor_counts)
{
    struct thread_choice c;
    put_file("/proc/self/cgroup", "0::/outer/inner\n");
    put_file("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    put_file("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
    threads_choose(root, 0, &c);
    cr_expect_float_eq(c.quota, 0.5, 1e-9);
    cr_expect_eq(c.n, 1);
}

Test(threads, the_least_quota_of_all_ancestors_wins)
{
    struct thread_choice c;
    put_file("/proc/self/cgroup", "0::/a/b\n");
    put_file("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
    put_file("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    threads_choose(root, 0, &c);
    cr_expect_float_eq(c.quota, 1.5, 1e-9);
    cr_expect_eq(c.n, 1, "a thread more than the quota allows would be throttled: %d", c.n);
}

Test(threads, v1_quota_is_read_from_the_cpu_controller)
{
    struct thread_choice c;
    put_file("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/y\n");
    put_file("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "100000\n");
    put_file("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    threads_choose(root, 0, &c);
    cr_expect_float_eq(c.quota, 1.0, 1e-9);
    cr_expect_eq(c.n, 1);
}

Test(threads, v1_without_a_limit_is_no_limit)
{
    struct thread_choice c;
    put_file("/proc/self/cgroup", "4:cpu:/\n");
    put_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    threads_choose(root, 0, &c);
    cr_expect_eq(c.quota, 0);
}

Test(threads, hardware_threads_of_one_core_count_once)
{
    struct thread_choice c;
    for (int cpu = 0; cpu < 64; cpu++) {
        char path[96];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        put_file(path, cpu / 2 % 2 ? "2-3\n" : "0,1\n");
    }
    threads_choose(root, 0, &c);
    if (c.allowed < 2)
        cr_skip("one CPU alone");
    cr_expect_lt(c.cores, c.allowed);
}
