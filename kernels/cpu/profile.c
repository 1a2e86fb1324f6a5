// Measures the time that each node of a plan takes, for `quern bench --by-op`.
#include "kernels/cpu/exec.h"

#include <stdlib.h>
#include <time.h>

struct cell {
    uint64_t calls, ns;
};

struct profile {
    int n_threads, n_nodes;
    size_t
        stride; // cells of a thread: [n_nodes], one for waiting, and unused ones, so that threads share no cache line
    struct cell *cells;
    struct node_time *times; // [n_nodes]
};

int profile_new(struct plan *p, int n_threads, struct error *err)
{
    struct profile *f = calloc(1, sizeof *f);
    if (!f)
        return fail(err, E_MEMORY, "no memory for a profile");
    p->profile = f;
    f->n_threads = n_threads;
    for (int i = 0; i < p->program.n; i++)
        f->n_nodes = MAX(f->n_nodes, p->program.nodes[i]->id + 1);
    f->stride = (size_t)f->n_nodes + 16;
    f->cells = calloc(f->stride * (size_t)n_threads, sizeof *f->cells);
    f->times = calloc((size_t)f->n_nodes, sizeof *f->times);
    return f->cells && f->times ? 0 : fail(err, E_MEMORY, "no memory for the times of %d nodes", f->n_nodes);
}

void profile_free(struct profile *p)
{
    if (!p)
        return;
    free(p->cells);
    free(p->times);
    free(p);
}

uint64_t profile_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void add(struct profile *p, int thread, int at, uint64_t since)
{
    struct cell *c = &p->cells[(size_t)thread * p->stride + (size_t)at];
    c->calls++;
    c->ns += profile_now() - since;
}

void profile_add(struct profile *p, int thread, const struct tensor *node, uint64_t since)
{
    add(p, thread, node->id, since);
}

void profile_add_wait(struct profile *p, int thread, uint64_t since)
{
    add(p, thread, p->n_nodes, since);
}

// Sums a cell over all threads and zeroes it.
static struct cell take(struct profile *p, int at)
{
    struct cell sum = {0};
    for (int t = 0; t < p->n_threads; t++) {
        struct cell *c = &p->cells[(size_t)t * p->stride + (size_t)at];
        sum.calls += c->calls;
        sum.ns += c->ns;
        *c = (struct cell){0};
    }
    return sum;
}

void profile_take(struct plan *plan, const struct node_time **times, int *n, double *wait_ns)
{
    struct profile *p = plan->profile;
    *n = plan->program.n;
    *times = p->times;
    *wait_ns = (double)take(p, p->n_nodes).ns;
    for (int i = 0; i < plan->program.n; i++) {
        const struct tensor *node = plan->program.nodes[i];
        struct cell c = take(p, node->id);
        p->times[i] = (struct node_time){node, c.calls, (double)c.ns};
    }
}
