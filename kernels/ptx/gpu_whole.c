// Makes one kernel of the launches of a step of one row (emit_whole.h), and the table of steps that it goes through.
//
// The list of one row stays what it is: it says what the steps are, and a profile times its launches one by one. A step
// that is recorded as a graph launches the whole kernel instead, for each run of launches that are parts of it. A launch of
// too many threads for a part is between two runs, and one that would be a run alone is launched as before.
#include "kernels/ptx/gpu.h"

// Whether a launch is a step of the part: it has the part's kernel, or one that differs in numbers alone.
static bool joins(struct ptx_whole_part *part, const struct gpu_kernel *k, bool loops)
{
    const struct str text = {k->key, k->key_size};
    if (part->threads != k->launch.block[0] || part->shared != k->launch.shared || part->loops != loops)
        return false;
    return part->text.data == text.data || ptx_whole_joins(part, text);
}

// Finds the part of which a launch is a step, and makes one if there is none. Returns -1 if the launch can be none.
static int part_of(struct ptx_whole *w, const struct gpu_launch *l, const struct gpu_kernel *k)
{
    const uint32_t *block = k->launch.block;
    const bool loops = l->most_ctas > 0;
    if (block[0] > PTX_WHOLE_THREADS || block[0] % 32 || block[1] != 1 || block[2] != 1 || l->n_args > PTX_WHOLE_PARAMS)
        return -1;
    for (int i = 0; i < w->n_parts; i++)
        if (joins(&w->parts[i], k, loops))
            return i;
    if (w->n_parts == PTX_WHOLE_PARTS)
        return -1;
    w->parts[w->n_parts] = (struct ptx_whole_part){
        .text = {k->key, k->key_size}, .threads = block[0], .shared = k->launch.shared, .loops = loops};
    return w->n_parts++;
}

static void find_parts(const struct plan *p, struct gpu_whole *w)
{
    static const int rows[ROWS_KINDS] = {1, 1};
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    struct gpu_shape shape;
    for (int i = 0; i < list->n_launches; i++) {
        const bool there = gpu_shape_of(p, &list->launches[i], rows, &shape);
        w->part_of[i] = there ? part_of(w->parts, &list->launches[i], shape.kernel) : -1;
    }
}

// Returns the number of the launch behind the run of parts that begins with launch i, and sets *n to its steps. Launches
// that a step with these rows leaves out are passed over.
static int run_from(const struct plan *p, int i, const int rows[ROWS_KINDS], int *n)
{
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    struct gpu_shape shape;
    for (*n = 0; i < list->n_launches; i++) {
        if (!gpu_shape_of(p, &list->launches[i], rows, &shape))
            continue;
        if (p->whole.part_of[i] < 0)
            break;
        ++*n;
    }
    return i;
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
    find_parts(p, &w);
    if (!w.parts->n_parts)
        return 0;
    if (gpu_kernel_get(p->gpu, &spec, &w.kernel, &why)) {
        if (why.code == E_MEMORY)
            return fail(err, why.code, "%s", why.text);
        return 0;
    }
    p->whole = w;
    return 0;
}

bool gpu_whole_step(const struct plan *p, int i, const int rows[ROWS_KINDS], bool *begins)
{
    int n = 0, end = 0, from = 0;
    *begins = false;
    if (!p->whole.kernel)
        return false;
    for (; end <= i; end = MAX(end, from + 1)) {
        from = end;
        end = run_from(p, from, rows, &n);
    }
    *begins = n > 1 && i == from;
    return n > 1;
}

// Writes the step of launch l to the table at `to`. next: where the step behind it is, in bytes from the run's first one.
static void put_step(const struct plan *p, const struct gpu_launch *l, int part, const struct gpu_shape *shape,
                     const int rows[ROWS_KINDS], uint32_t next, uint8_t *to)
{
    const struct ptx_whole_part *of = &p->whole.parts->parts[part];
    const struct str text = {shape->kernel->key, shape->kernel->key_size};
    struct ptx_whole_step step = {.part = (uint32_t)part, .grid = {shape->grid[0], shape->grid[1], shape->grid[2]}};
    uint64_t args[GPU_ARGS], numbers[PTX_WHOLE_NUMBERS];
    if (l->most_ctas)
        step.grid[0] = MIN(step.grid[0], MIN(l->most_ctas, gpu_whole_ctas(p)));
    step.ctas = step.grid[0] * step.grid[1] * step.grid[2];
    step.next = next;
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

// Writes the steps of the run from launch `i` to `end`.
static uint8_t *put_run(struct plan *p, int i, int end, const int rows[ROWS_KINDS], uint8_t *at)
{
    struct ptx_whole_step step;
    struct gpu_shape shape;
    const uint8_t *first = at;
    for (; i < end; i++) {
        const struct gpu_launch *l = &p->lists[GPU_ONE_ROW].launches[i];
        if (!gpu_shape_of(p, l, rows, &shape))
            continue;
        const uint32_t next = (uint32_t)(at - first) + PTX_WHOLE_STRIDE;
        put_step(p, l, p->whole.part_of[i], &shape, rows, next, at);
        at += PTX_WHOLE_STRIDE;
    }
    memcpy(&step, at - PTX_WHOLE_STRIDE, sizeof step);
    step.last = 1;
    memcpy(at - PTX_WHOLE_STRIDE, &step, sizeof step);
    return at;
}

int gpu_whole_put(struct plan *p, const int rows[ROWS_KINDS], struct error *err)
{
    uint8_t *at = p->whole.host;
    memset(at, 0, p->whole.bytes);
    for (int i = 0, end, n; i < p->lists[GPU_ONE_ROW].n_launches; i = MAX(end, i + 1)) {
        end = run_from(p, i, rows, &n);
        at = n ? put_run(p, i, end, rows, at) : at;
    }
    return driver_put(p->gpu->driver, p->whole.tables[rows[ROWS_OUTPUTS] > 0], p->whole.host, p->whole.bytes, err);
}

// Launches the steps from byte `at` of the table.
static int launch_run(const struct plan *p, const int rows[ROWS_KINDS], uint64_t at, struct error *err)
{
    const struct ptx_launch *of = &p->whole.kernel->launch;
    uint64_t table = p->whole.tables[rows[ROWS_OUTPUTS] > 0] + at, arrivals = p->whole.arrivals;
    void *params[] = {&table, &arrivals};
    const struct driver_launch l = {.grid = {gpu_whole_ctas(p), 1, 1},
                                    .block = {of->block[0], 1, 1},
                                    .params = params,
                                    .shared = of->shared,
                                    .cooperative = true};
    return driver_run(p->gpu->driver, p->whole.kernel->kernel, &l, err) ? fail_prefix(err, "a whole step") : 0;
}

int gpu_whole_launch(const struct plan *p, const int rows[ROWS_KINDS], struct error *err)
{
    const struct gpu_list *list = &p->lists[GPU_ONE_ROW];
    uint64_t at = 0;
    for (int i = 0, end, n; i < list->n_launches; i = MAX(end, i + 1)) {
        end = run_from(p, i, rows, &n);
        if (n > 1 && launch_run(p, rows, at, err))
            return -1;
        for (int j = i; n < 2 && j < MAX(end, i + 1); j++)
            if (gpu_launch_one(p, &list->launches[j], rows, err))
                return -1;
        at += (uint64_t)n * PTX_WHOLE_STRIDE;
    }
    return 0;
}
