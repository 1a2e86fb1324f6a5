// Shared by the tests of the CPU kernels: seeded random numbers, buffers that end at a guard page, and comparisons.
//
// A buffer owns its mapping until guarded_free. Threads: one.
#ifndef QUERN_KERNEL_TEST_H
#define QUERN_KERNEL_TEST_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/kernels.h"

enum { SEED = 20240817, POISON = 0xa5 };

// ---- numbers

struct random {
    uint64_t state;
    double normal; // the second of a pair, where it is not 0
};

static inline uint64_t random_u64(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline int random_below(struct random *r, int n)
{
    return (int)(random_u64(r) % (uint64_t)n);
}

static inline double random_unit(struct random *r)
{
    return (double)(random_u64(r) >> 11) * 0x1p-53;
}

// Marsaglia's polar method: a point within the circle gives two, by one logarithm, and logarithms are what counts under
// an emulator.
static inline float random_normal(struct random *r)
{
    double x = r->normal, y, square;
    r->normal = 0;
    if (x != 0)
        return (float)x;
    do {
        x = 2 * random_unit(r) - 1;
        y = 2 * random_unit(r) - 1;
        square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = sqrt(-2 * log(square) / square);
    r->normal = y * factor;
    return (float)(x * factor);
}

static inline float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline struct random seeded(const char *test)
{
    printf("%s: seed %d\n", test, SEED);
    return (struct random){.state = SEED};
}

// ---- buffers

// `size` bytes: behind them lie `slack` bytes of poison and then memory that faults, before them poison.
struct guarded {
    uint8_t *data;
    size_t size, slack;
    uint8_t *base;
    size_t mapped;
};

static inline struct guarded guarded_new(size_t size, size_t slack)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + slack + 2 * page - 1) / page * page;
    struct guarded g = {.size = size, .slack = slack, .mapped = room + page};
    g.base = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)g.base, MAP_FAILED);
    cr_assert_eq(mprotect(g.base + room, page, PROT_NONE), 0);
    memset(g.base, POISON, room);
    g.data = g.base + room - slack - size;
    return g;
}

static inline float *floats_of(struct guarded g)
{
    return (float *)(void *)g.data;
}

// Fails when the poison around the buffer was written to.
static inline void guarded_check(struct guarded g, const char *what)
{
    for (const uint8_t *p = g.base; p < g.data; p++)
        cr_assert_eq(*p, POISON, "%s: written %zu bytes before the start", what, (size_t)(g.data - p));
    for (size_t i = 0; i < g.slack; i++)
        cr_assert_eq(g.data[g.size + i], POISON, "%s: written behind the end", what);
}

static inline void guarded_free(struct guarded g)
{
    munmap(g.base, g.mapped);
}

// n floats, filled by `fill`, that end at the guard page.
static inline struct guarded random_floats(struct random *r, int64_t n, float magnitude)
{
    struct guarded g = guarded_new((size_t)n * sizeof(float), 0);
    for (int64_t i = 0; i < n; i++)
        floats_of(g)[i] = random_normal(r) * magnitude;
    return g;
}

static inline void *scratch_new(void)
{
    void *p = aligned_alloc(64, SCRATCH_BYTES);
    memset(p, 0xff, SCRATCH_BYTES); // NaN: what a kernel does not fill must not reach an output
    return p;
}

// ---- comparison

static inline double square_error(const float *a, const double *b, int64_t n)
{
    double error = 0;
    for (int64_t i = 0; i < n; i++)
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return error;
}

static inline double nmse(const float *a, const double *b, int64_t n)
{
    double power = 0;
    for (int64_t i = 0; i < n; i++)
        power += b[i] * b[i];
    return square_error(a, b, n) / (power > 0 ? power : 1);
}

// The first element whose bits differ (any NaN equals any other), or -1.
static inline int64_t first_difference(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return i;
    return -1;
}

static inline void expect_same_bits(const float *a, const float *b, int64_t n, const char *what)
{
    int64_t i = first_difference(a, b, n);
    cr_assert_lt(i, 0, "%s: element %lld of %lld is %a, not %a", what, (long long)i, (long long)n, (double)a[MAX(i, 0)],
                 (double)b[MAX(i, 0)]);
}

// The levels that this CPU runs, asked once: under a hypervisor each cpuid costs microseconds. Ended by NULL.
static inline const struct kernels *const *levels(void)
{
    static const struct kernels *found[16];
    if (!found[0])
        for (int i = 0; i < kernels_count(); i++)
            found[i] = kernels_at(i);
    return found;
}

// The last, that all others are compared with.
static inline const struct kernels *scalar_level(void)
{
    int i = 0;
    while (levels()[i + 1])
        i++;
    return levels()[i];
}

#define EACH_LEVEL(k)                                                                                                  \
    for (int level_ = 0; levels()[level_]; level_++)                                                                   \
        for (const struct kernels *k = levels()[level_]; k; k = NULL)

#endif
