// Threads read one buffer together, in blocks of 1 MiB that they take from a shared counter. The buffer is on huge
// pages where the system provides them, and every page is written first. The result is the fastest of 8 passes.
#include "engine/measure/bandwidth.h"
#include "engine/clock.h"
#include "kernels/thread_start.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PASSES = 8, LINE = 64, PAGE = 4096 };
static const size_t BLOCK = (size_t)1 << 20; // the piece of memory that a thread reads at a time

// The state that the threads share.
struct reading {
    const char *memory;
    size_t n_blocks;
    atomic_size_t next;
    atomic_ullong sum; // kept, so that no compiler drops the reads
};

// Reads one word of every cache line. Memory delivers whole lines, and further loads from a line would only occupy the
// load queue. Loads of 16 bytes at a time reach little more than half of the rate (measured,
// bench/results/tried.md).
static uint64_t read_block(const char *from)
{
    uint64_t sum = 0, word;
    for (size_t i = 0; i < BLOCK; i += LINE) {
        memcpy(&word, from + i, sizeof word);
        sum ^= word;
    }
    return sum;
}

// Takes blocks from a shared counter, so that no thread waits for one that the system has descheduled.
static void *read_blocks(void *arg)
{
    struct reading *r = arg;
    uint64_t sum = 0;
    for (size_t i; (i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed)) < r->n_blocks;)
        sum ^= read_block(r->memory + i * BLOCK);
    atomic_fetch_xor_explicit(&r->sum, sum, memory_order_relaxed);
    return NULL;
}

// Runs one pass of all threads, the caller being the first. Returns its milliseconds, or -1 when a thread cannot be
// started. Starting the threads costs some microseconds, a pass takes milliseconds.
static double read_all(struct reading *r, pthread_t *threads, int n)
{
    int started = 1;
    double start = clock_ms();
    atomic_store(&r->next, 0);
    while (started < n && !thread_start(&threads[started], read_blocks, r))
        started++;
    read_blocks(r);
    for (int i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    return started == n ? clock_ms() - start : -1;
}

int bandwidth_measure(int n_threads, size_t size, double *bytes_per_second, struct error *err)
{
    int status = 0;
    struct reading r = {.n_blocks = MAX(size / BLOCK, (size_t)1)};
    pthread_t *threads = calloc((size_t)n_threads, sizeof *threads);
    size = r.n_blocks * BLOCK;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!threads || memory == MAP_FAILED) {
        status = fail(err, E_MEMORY, "no memory for %zu bytes to read", size);
        goto done;
    }
    madvise(memory, size, MADV_HUGEPAGE);
    for (size_t i = 0; i < size; i += PAGE) // pages that were never written all map to the same zero page
        ((char *)memory)[i] = 1;
    r.memory = memory;
    double best = 0;
    for (int pass = 0; !status && pass < PASSES; pass++) {
        double ms = read_all(&r, threads, n_threads);
        if (ms < 0)
            status = fail(err, E_MEMORY, "cannot start %d threads", n_threads);
        best = pass ? MIN(best, ms) : ms;
    }
    *bytes_per_second = best > 0 ? (double)size * 1e3 / best : 0;
done:
    if (memory != MAP_FAILED)
        munmap(memory, size);
    free(threads);
    return status;
}
