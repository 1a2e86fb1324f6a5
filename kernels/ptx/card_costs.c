// Measures what work costs on the GPU of an open machine. The choice between CPU and GPU uses these figures.
#include "kernels/card.h"
#include "kernels/ptx/emit.h"
#include "kernels/ptx/gpu.h"

#include <time.h>

// PASSES and COPIES: steps and copies of which the fastest counts. LAUNCHES: how many more launches the longer of the
// two measured steps has. ANSWER: bytes of the inputs and of the results.
enum { PASSES = 12, COPIES = 6, LAUNCHES = 64, TEXT = 512, ANSWER = 64, THREADS = 128 };
static const size_t COPY_MOST = (size_t)256 << 20, COPY_LEAST = (size_t)1 << 20;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- steps whose kernels do nothing

struct nothing {
    struct driver *d;
    struct driver_module *module;
    struct driver_kernel *kernel;
    uint64_t at;  // ANSWER bytes of GPU memory
    void *pinned; // ANSWER bytes of pinned host memory
};

static int load_nothing(struct nothing *n, struct error *err)
{
    char text[TEXT];
    struct ptx p;
    ptx_start(&p, text, sizeof text);
    ptx_header(&p, 63, 75);
    PTX_LINES(&p, ".visible .entry nothing()\n"
                  "{\n"
                  "    ret;\n"
                  "}\n");
    if (ptx_finish(&p, err) || driver_load(n->d, (struct str){p.data, p.size}, &n->module, err) ||
        driver_find(n->d, n->module, "nothing", &n->kernel, err))
        return -1;
    return driver_alloc(n->d, ANSWER, &n->at, err) || driver_pinned(n->d, ANSWER, &n->pinned, err) ? -1 : 0;
}

static void free_nothing(struct nothing *n)
{
    driver_pinned_free(n->d, n->pinned);
    driver_free(n->d, n->at);
    if (n->module)
        driver_unload(n->d, n->module);
}

static int record(const struct nothing *n, int launches, struct driver_graph **out, struct error *err)
{
    const struct driver_launch l = {.grid = {(uint32_t)driver_facts(n->d)->n_sm, 1, 1}, .block = {THREADS, 1, 1}};
    if (driver_record(n->d, err))
        return -1;
    for (int i = 0; i < launches; i++)
        if (driver_run(n->d, n->kernel, &l, err)) {
            driver_recorded(n->d, NULL, NULL);
            return -1;
        }
    return driver_recorded(n->d, out, err);
}

// Measures steps that do the same as gpu_run: upload the inputs, replay the graph, copy the results back. *best:
// seconds of the fastest step.
static int time_steps(const struct nothing *n, int launches, double *best, struct error *err)
{
    struct driver_graph *graph = NULL;
    char answer[ANSWER];
    if (record(n, launches, &graph, err))
        return -1;
    int status = 0;
    for (int i = 0; !status && i < PASSES; i++) {
        double start = seconds_now();
        status = driver_put(n->d, n->at, n->pinned, ANSWER, err) || driver_replay(n->d, graph, err) ||
                 driver_get(n->d, answer, n->at, ANSWER, err);
        double took = seconds_now() - start;
        *best = i ? MIN(*best, took) : took;
    }
    driver_graph_free(n->d, graph);
    return status ? -1 : 0;
}

static int time_launches(struct driver *d, struct card_costs *out, struct error *err)
{
    struct nothing n = {.d = d};
    double many;
    int status =
        load_nothing(&n, err) || time_steps(&n, 1, &out->step, err) || time_steps(&n, 1 + LAUNCHES, &many, err);
    if (!status)
        out->launch = MAX(many - out->step, 0) / LAUNCHES;
    free_nothing(&n);
    return status ? -1 : 0;
}

// ---- copies

static int time_copy(struct driver *d, double *bytes_per_second, struct error *err)
{
    size_t free_bytes;
    uint64_t at[2] = {0, 0};
    if (driver_memory(d, &free_bytes, err))
        return -1;
    size_t n = MIN(COPY_MOST, free_bytes / 4) & ~(COPY_LEAST - 1);
    if (!n)
        return fail(err, E_MEMORY, "less than 4 MiB of the card's memory are free");
    int status = driver_alloc(d, n, &at[0], err) || driver_alloc(d, n, &at[1], err);
    double best = 0;
    for (int i = 0; !status && i < COPIES; i++) {
        double took = 0;
        status = driver_mark(d, 0, err) || driver_copy(d, at[0], at[1], n, err) || driver_mark(d, 1, err) ||
                 driver_between(d, &took, err);
        best = best > 0 ? MIN(best, took) : took;
    }
    driver_free(d, at[0]);
    driver_free(d, at[1]);
    if (!status && best <= 0)
        status = fail(err, E_GPU, "the card's clock does not run");
    *bytes_per_second = best > 0 ? 2 * (double)n / best : 0;
    return status ? -1 : 0;
}

int card_measure_costs(struct machine *m, struct card_costs *out, struct error *err)
{
    struct driver *d = ((struct gpu *)m)->driver;
    struct card_costs c = {0};
    if (time_launches(d, &c, err) || time_copy(d, &c.copy, err))
        return -1;
    *out = c;
    return 0;
}

void card_plan(const struct machine *m, const struct plan *p, int *n_launches, size_t *weight_bytes)
{
    const struct gpu *g = (const struct gpu *)m;
    *n_launches = p->lists[gpu_list_of(p, (const int[ROWS_KINDS]){1, 1})].n_launches;
    *weight_bytes = 0;
    for (int i = 0; i < g->n_weights; i++)
        *weight_bytes += g->weights[i].bytes;
}
