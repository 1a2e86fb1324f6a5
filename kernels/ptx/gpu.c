// The machine on an NVIDIA GPU: opens it, manages its buffers, and reports its properties.
#include "kernels/ptx/gpu.h"

#include <stdlib.h>

static struct gpu *gpu_of(struct machine *m)
{
    return (struct gpu *)m;
}

static void gpu_close(struct machine *m)
{
    struct gpu *g = gpu_of(m);
    if (!g)
        return;
    if (g->driver) {
        gpu_tuner_close(g);
        gpu_kernels_free(g);
        while (g->n_weights)
            driver_free(g->driver, g->weights[--g->n_weights].at);
        driver_close(g->driver);
    }
    free(g->weights);
    free(g);
}

static int gpu_alloc(struct machine *m, size_t size, struct buffer **out, struct error *err)
{
    struct buffer *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b)
        return fail(err, E_MEMORY, "no memory for a buffer");
    b->size = size;
    if (driver_alloc(gpu_of(m)->driver, MAX(size, (size_t)1), &b->at, err)) {
        free(b);
        return -1;
    }
    *out = b;
    return 0;
}

static void gpu_free(struct machine *m, struct buffer *b)
{
    if (b)
        driver_free(gpu_of(m)->driver, b->at);
    free(b);
}

static int check_range(const struct buffer *b, size_t at, size_t n, struct error *err)
{
    if (at > b->size || n > b->size - at)
        return fail(err, E_MEMORY, "%zu bytes at %zu lie outside of a buffer of %zu", n, at, b->size);
    return 0;
}

static int gpu_put(struct machine *m, struct buffer *b, size_t at, const void *src, size_t n, struct error *err)
{
    if (check_range(b, at, n, err))
        return -1;
    return n ? driver_put(gpu_of(m)->driver, b->at + at, src, n, err) : 0;
}

static int gpu_get(struct machine *m, const struct buffer *b, size_t at, void *dst, size_t n, struct error *err)
{
    if (check_range(b, at, n, err))
        return -1;
    return n ? driver_get(gpu_of(m)->driver, dst, b->at + at, n, err) : 0;
}

static int gpu_memory(struct machine *m, size_t *bytes, struct error *err)
{
    return driver_memory(gpu_of(m)->driver, bytes, err);
}

static size_t gpu_plan_bytes(const struct plan *p)
{
    return p->values_bytes + p->parts.size + p->counters.size + p->block_bytes;
}

static void describe_tuning(struct card_tuning t, struct text *out)
{
    if (!t.measured && !t.known && !t.unmeasured)
        return;
    text_print(out, "choices of kernels: %d measured now in %.1f s, %d measured before, %d not yet%s", t.measured,
               t.seconds, t.known, t.unmeasured, t.no_room ? ", because the card has no memory left for it" : "");
    text_print(out, t.fault ? "; they cannot be kept: %s\n" : "\n", strerror(t.fault));
}

static void gpu_describe(const struct machine *m, const struct plan *p, struct text *out)
{
    const struct gpu *g = (const struct gpu *)m;
    const struct driver_card *c = driver_facts(g->driver);
    if (!p) {
        text_print(out, "gpu: ");
        text_print_name(out, c->name);
        text_print(out, ", compute capability %d.%d, %.1f GiB, driver for CUDA %d.%d; kernels for sm_75 and up%s\n",
                   c->major, c->minor, (double)c->total / (1 << 30), c->version / 1000, c->version / 10 % 100,
                   g->options.exact ? ", exact" : "");
        return;
    }
    size_t bytes = 0;
    for (int i = 0; i < g->n_weights; i++)
        bytes += g->weights[i].bytes;
    text_print(out, "plan: %d nodes (%d dead and %d common ones dropped) in %d launches, ", p->program.n,
               p->program.n_dead, p->program.n_common, p->lists[GPU_ANY_ROWS].n_launches);
    if (p->lists[GPU_ONE_ROW].n_launches)
        text_print(out, "%d for one row, ", p->lists[GPU_ONE_ROW].n_launches);
    text_print(out, "of %d kernels; %zu bytes of weights\n", g->n_kernels, bytes);
    describe_tuning(card_tuning(m), out);
}

static const struct machine_vtable gpu_vtable = {
    .name = "gpu",
    .close = gpu_close,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .put = gpu_put,
    .get = gpu_get,
    .compile = gpu_compile,
    .run = gpu_run,
    .watch = gpu_watch,
    .plan_free = gpu_plan_free,
    .memory = gpu_memory,
    .plan_bytes = gpu_plan_bytes,
    .describe = gpu_describe,
    .profile = gpu_profile,
    .print = gpu_print,
};

int machine_open_gpu(struct machine **out, const struct machine_options *o, const struct gpu_options *options,
                     struct error *err)
{
    *out = NULL;
    if (o->isa || o->blas)
        return fail(err, E_USAGE, "the GPU machine takes neither an ISA of the CPU nor BLAS");
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return fail(err, E_MEMORY, "no memory for a machine");
    g->machine.v = &gpu_vtable;
    g->options = *o;
    g->variant = options->variant;
    // It has the newest driver, and so much memory that no plan is refused.
    const struct driver_card paper = {
        .name = "a card on paper",
        .major = options->paper / 10,
        .minor = options->paper % 10,
        .version = 13000,
        .n_sm = 132,
        .warp = 32,
        .max_shared = (int)(MAX(ptx_shared_of((uint32_t)options->paper), 65u << 10) - PTX_SHARED_RESERVED),
        .total = (size_t)1 << 40};
    struct driver_options d = {.library = options->library,
                               .device = options->device,
                               .cache = options->cache,
                               .paper = options->paper ? &paper : NULL};
    if (driver_open(&g->driver, &d, err)) {
        gpu_close(&g->machine);
        return -1;
    }
    const struct driver_card *c = driver_facts(g->driver);
    if (10 * c->major + c->minor < 75) {
        int status =
            fail(err, E_GPU, "%s has compute capability %d.%d; 7.5 is the least that is served: use --device cpu",
                 c->name, c->major, c->minor);
        gpu_close(&g->machine);
        return status;
    }
    if (gpu_tuner_open(g, options, err)) {
        gpu_close(&g->machine);
        return -1;
    }
    *out = &g->machine;
    return 0;
}
