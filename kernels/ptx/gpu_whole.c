// Makes one kernel of the launches of a step of one row (emit_whole.h), and the table of steps that it goes through.
//
// The list of one row stays what it is: it says what the steps are, and a profile times its launches one by one. A step
// that is recorded as a graph launches the whole kernel instead. A list that cannot be one kernel is launched as before.
#include "kernels/ptx/gpu.h"

// Whether a launch is a step of the part: it has the part's kernel, or one that differs in numbers alone.
static bool joins(struct ptx_whole_part *part, const struct gpu_kernel *k, bool loops)
{
    const struct str text = {k->key, k->key_size};
    if (part->threads != k->launch.block[0] || part->shared != k->launch.shared || part->loops != loops)
        return false;
    return part->text.data == text.data || ptx_whole_joins(part, text);
}

// Finds the part of which a launch is a step, and makes one if there is none. Returns -1 if there are too many.
static int part_of(struct ptx_whole *w, const struct gpu_launch *l, const struct gpu_kernel *k)
{
    const bool loops = l->most_ctas > 0;
    for (int i = 0; i < w->n_parts; i++)
        if (joins(&w->parts[i], k, loops))
            return i;
    if (w->n_parts == PTX_WHOLE_PARTS || k->launch.block[1] != 1 || k->launch.block[2] != 1)
        return -1;
    w->parts[w->n_parts] = (struct ptx_whole_part){.text = {k->key, k->key_size},
                                                   .threads = k->launch.block[0],
                                                   .shared = k->launch.shared,
                                                   .loops = loops};
    return w->n_parts++;
}

// Sets the part of each launch of the list. Returns false if a launch can be none.
static bool find_parts(const struct plan *p, struct gpu_whole *w)
{
    static const int rows[ROWS_KINDS] = {1, 1};
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    struct gpu_shape shape;
    for (int i = 0; i < list->n_launches; i++) {
        w->part_of[i] = -1;
        if (!gpu_shape_of(p, &list->launches[i], rows, &shape))
            continue;
        w->part_of[i] = part_of(w->parts, &list->launches[i], shape.kernel);
        if (w->part_of[i] < 0 || list->launches[i].n_args > PTX_WHOLE_PARAMS)
            return false;
    }
    return true;
}

static int alloc(struct plan *p, struct gpu_whole *w, struct error *err)
{
    const size_t n = (size_t)p->lists[GPU_ONE_ROW].n_launches + 1; // with room behind the last step
    w->bytes = n * PTX_WHOLE_STRIDE;
    w->parts = ARENA_NEW(&p->arena, struct ptx_whole);
    w->part_of = ARENA_ARRAY(&p->arena, int, n);
    w->host = ARENA_ARRAY(&p->arena, uint8_t, w->bytes);
    if (!w->parts || !w->part_of || !w->host)
        return fail(err, E_MEMORY, "no memory for a plan");
    *w->parts = (struct ptx_whole){.most_shared = (uint32_t)driver_facts(p->gpu->driver)->max_shared};
    for (int i = 0; i < 2; i++)
        if (gpu_own(p, NULL, w->bytes, &w->tables[i], err))
            return -1;
    return gpu_own(p, NULL, sizeof(uint64_t), &w->arrivals, err);
}

int gpu_whole_make(struct plan *p, struct error *err)
{
    struct gpu_whole w = {0};
    struct error why = {0};
    p->whole = w;
    if (p->variant != GPU_WHOLE_STEP)
        return 0;
    if (alloc(p, &w, err))
        return -1;
    const struct gpu_spec spec = {.kind = GPU_WHOLE, .whole.of = w.parts};
    if (!find_parts(p, &w))
        return 0;
    if (gpu_kernel_get(p->gpu, &spec, &w.kernel, &why)) {
        if (why.code == E_MEMORY)
            return fail(err, why.code, "%s", why.text);
        return 0;
    }
    p->whole = w;
    return 0;
}

// Writes step l to the table at `to`.
static void put_step(const struct plan *p, const struct gpu_launch *l, int part, const struct gpu_shape *shape,
                     const int rows[ROWS_KINDS], uint8_t *to)
{
    const struct ptx_whole_part *of = &p->whole.parts->parts[part];
    const struct str text = {shape->kernel->key, shape->kernel->key_size};
    struct ptx_whole_step step = {.part = (uint32_t)part, .grid = {shape->grid[0], shape->grid[1], shape->grid[2]}};
    uint64_t args[GPU_ARGS], numbers[PTX_WHOLE_NUMBERS];
    if (l->most_ctas)
        step.grid[0] = MIN(step.grid[0], MIN(l->most_ctas, gpu_whole_ctas(p)));
    step.ctas = step.grid[0] * step.grid[1] * step.grid[2];
    gpu_args_of(p, l, shape, rows, args);
    ptx_whole_numbers(of, text, numbers);
    memcpy(to, &step, sizeof step);
    memcpy(to + PTX_WHOLE_HEAD, args, (size_t)l->n_args * sizeof *args);
    memcpy(to + PTX_WHOLE_HEAD + (size_t)l->n_args * sizeof *args, numbers, (size_t)of->n_numbers * sizeof *numbers);
}

uint32_t gpu_whole_ctas(const struct plan *p)
{
    return (uint32_t)MAX(driver_facts(p->gpu->driver)->n_sm, 1);
}

int gpu_whole_put(struct plan *p, const int rows[ROWS_KINDS], struct error *err)
{
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    struct gpu_shape shape;
    uint8_t *last = NULL, *at = p->whole.host;
    const uint32_t one = 1;
    memset(p->whole.host, 0, p->whole.bytes);
    for (int i = 0; i < list->n_launches; i++) {
        if (!gpu_shape_of(p, &list->launches[i], rows, &shape))
            continue;
        put_step(p, &list->launches[i], p->whole.part_of[i], &shape, rows, at);
        last = at;
        at += PTX_WHOLE_STRIDE;
    }
    if (last)
        memcpy(last + offsetof(struct ptx_whole_step, last), &one, sizeof one);
    return driver_put(p->gpu->driver, p->whole.tables[rows[ROWS_OUTPUTS] > 0], p->whole.host, p->whole.bytes, err);
}

int gpu_whole_launch(const struct plan *p, const int rows[ROWS_KINDS], struct error *err)
{
    const struct ptx_launch *of = &p->whole.kernel->launch;
    uint64_t table = p->whole.tables[rows[ROWS_OUTPUTS] > 0], arrivals = p->whole.arrivals;
    void *params[] = {&table, &arrivals};
    const struct driver_launch l = {.grid = {gpu_whole_ctas(p), 1, 1},
                                    .block = {of->block[0], 1, 1},
                                    .params = params,
                                    .shared = of->shared,
                                    .cooperative = true};
    if (driver_run(p->gpu->driver, p->whole.kernel->kernel, &l, err))
        return fail_prefix(err, "a whole step");
    return 0;
}
