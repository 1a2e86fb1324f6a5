#include "engine/bandwidth.h"
#include "engine/model.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PASSES = 6, LINE = 16 };  // a line: so many words, on two cache lines

// One thread's part of the memory, in lines.
struct reader {
    pthread_t thread;
    bool started;
    const uint64_t *from;
    size_t n_lines;
    uint64_t sum;  // kept, so that no compiler drops the reads
};

static void *read_part(void *arg)
{
    struct reader *r = arg;
    uint64_t lanes[LINE] = {0};
    for (size_t i = 0; i < r->n_lines; i++)
        for (int j = 0; j < LINE; j++)
            lanes[j] ^= r->from[i * LINE + (size_t)j];
    for (int j = 0; j < LINE; j++)
        r->sum ^= lanes[j];
    return NULL;
}

// One pass of all threads, the caller being the first: the milliseconds, or -1 when a thread cannot be started. To start
// threads costs some microseconds, a pass takes milliseconds.
static double read_all_parts(struct reader *readers, int n)
{
    double start = clock_ms();
    bool all = true;
    for (int i = 1; i < n; i++) {
        readers[i].started = !pthread_create(&readers[i].thread, NULL, read_part, &readers[i]);
        all = all && readers[i].started;
    }
    read_part(&readers[0]);
    for (int i = 1; i < n; i++)
        if (readers[i].started)
            pthread_join(readers[i].thread, NULL);
    return all ? clock_ms() - start : -1;
}

static void share_out(struct reader *readers, int n, const uint64_t *memory, size_t n_lines)
{
    for (int i = 0; i < n; i++) {
        size_t from = n_lines * (size_t)i / (size_t)n, to = n_lines * (size_t)(i + 1) / (size_t)n;
        readers[i].from = memory + from * LINE;
        readers[i].n_lines = to - from;
    }
}

int bandwidth_measure(int n_threads, size_t size, double *bytes_per_second, struct error *err)
{
    int status = 0;
    struct reader *readers = calloc((size_t)n_threads, sizeof *readers);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!readers || memory == MAP_FAILED) {
        status = fail(err, E_MEMORY, "no memory for %zu bytes to read", size);
        goto done;
    }
    madvise(memory, size, MADV_HUGEPAGE);
    memset(memory, 1, size);  // pages that nobody wrote to are all the same page
    share_out(readers, n_threads, memory, size / (LINE * sizeof(uint64_t)));
    double best = 0;
    for (int pass = 0; !status && pass < PASSES; pass++) {
        double ms = read_all_parts(readers, n_threads);
        if (ms < 0)
            status = fail(err, E_MEMORY, "cannot start %d threads", n_threads);
        best = pass ? MIN(best, ms) : ms;
    }
    *bytes_per_second = best > 0 ? (double)size * 1e3 / best : 0;
done:
    if (memory != MAP_FAILED)
        munmap(memory, size);
    free(readers);
    return status;
}
