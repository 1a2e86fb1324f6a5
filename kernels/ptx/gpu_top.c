// The launches that find the `keep` largest logits of each row, for steps that want only their top_k largest logits
// (step.top_k is not 0); keep is top_k rounded up to a power of two. They run after the step's other launches.
//
// The first launch reduces each chunk of a row to its `keep` largest. Each further launch reduces the results of the
// one before in the same way, until one chunk is left. At most GPU_TOP_LEVELS launches are possible; longer rows are an
// error. emit_top.c describes the kernel and its cost. The launches for a `keep` are made when a step first needs them,
// with memory of their own for each launch's results, and stay in the plan.
#include "kernels/ptx/gpu.h"

// Returns the index of `keep`, a power of two, in plan.tops.
static int level_of(uint32_t keep)
{
    return __builtin_ctz(keep);
}

// Appends the launch of one level. *y is the address of the previous level's results, which the launch reads unless it
// reads the logits; it becomes the address of the launch's own results.
static int add_level(struct plan *p, struct gpu_top *top, struct ptx_top sizes, uint64_t *y, struct error *err)
{
    struct gpu_spec spec = {.kind = GPU_TOP, .top = sizes};
    struct gpu_launch *l = &top->launches[top->n_launches];
    uint32_t parts = ptx_tiles(sizes.n, ptx_top_chunk(sizes.n, sizes.keep));
    size_t bytes = (size_t)p->max_rows[ROWS_OUTPUTS] * parts * sizes.keep * sizeof(uint64_t);
    uint64_t x = *y;
    *l = (struct gpu_launch){.node = p->program.logits, .rows = ROWS_OUTPUTS};
    spec.node = (uint32_t)p->program.logits->id;
    if (gpu_kernel_get(p->gpu, &spec, &l->kernels[0], err) || gpu_scratch(p, bytes, y, err))
        return -1;
    l->classes[l->n_kernels++] = 1;
    l->args[l->n_args++] = (struct gpu_arg){ARG_STEP, 0};
    l->args[l->n_args++] = (struct gpu_arg){sizes.keys ? ARG_ADDRESS : ARG_LOGITS, x};
    l->args[l->n_args++] = (struct gpu_arg){ARG_ADDRESS, *y};
    top->n_launches++;
    return 0;
}

static int make(struct plan *p, uint32_t keep, struct gpu_top *top, struct error *err)
{
    struct ptx_top sizes = {.n = (uint32_t)p->program.logits->width, .keep = keep};
    uint32_t parts;
    *top = (struct gpu_top){.keep = keep};
    do {
        parts = ptx_tiles(sizes.n, ptx_top_chunk(sizes.n, keep));
        if (top->n_launches == GPU_TOP_LEVELS)
            return fail(err, E_GPU, "%s: rows of %u logits are too long for the card's top-k", p->program.logits->name,
                        sizes.n);
        if (add_level(p, top, sizes, &top->out, err))
            return -1;
        sizes.n = parts * keep;
        sizes.keys = true;
    } while (parts > 1);
    return 0;
}

int gpu_top_get(struct plan *p, int top_k, const struct gpu_top **out, struct error *err)
{
    uint32_t keep = 1;
    while (keep < (uint32_t)top_k)
        keep *= 2;
    struct gpu_top *top = &p->tops[level_of(keep)];
    if (!top->n_launches && make(p, keep, top, err)) {
        top->n_launches = 0;
        return -1;
    }
    *out = top;
    return 0;
}
