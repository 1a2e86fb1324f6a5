// Runs a step on the GPU: copies the inputs in one transfer, replays the captured graph of the step's bucket, and
// copies the requested logits back. A step with taps, with a profile, or with a flag that may end it early is
// launched kernel by kernel instead.
#include "kernels/ptx/gpu.h"
#include "kernels/ptx/gpu_buckets.h"

#include <stdlib.h>

// Steps of at least WATCHED_ROWS rows read the cancel flag before each group of GROUP launches. At most two groups are
// in flight, so the GPU does not wait for the host. Smaller steps end soon anyway.
enum { GROUP = 16, WATCHED_ROWS = 32 };

struct run {
    const struct step *step;
    int rows[ROWS_KINDS];      // of the bucket
    const struct gpu_top *top; // NULL: all logits of a row are copied back
};

// Offsets of the arrays in the step's block, in bytes, for one bucket. The block starts with a struct ptx_step.
struct layout {
    size_t tokens, positions, tables, state_from, state_to, outputs, last, zeros, last_near, pages;
};

static struct layout layout_of(const struct plan *p, const int rows[ROWS_KINDS])
{
    struct layout l = {.tokens = sizeof(struct ptx_step)};
    size_t n = 4 * (size_t)rows[ROWS_TOKENS];
    l.positions = l.tokens + n;
    l.tables = l.positions + n;
    l.state_from = l.tables + n;
    l.state_to = l.state_from + n;
    l.outputs = l.state_to + n;
    // With attention both ways: the last positions that rows see, the first ones, their own, and the same three through the
    // window, each as far behind the other as the kernels know it (ptx_attend.firsts).
    const size_t seen = p->graph->both_ways ? 4 * (size_t)p->max_rows[ROWS_TOKENS] : 0;
    l.last = l.outputs + 4 * (size_t)rows[ROWS_OUTPUTS];
    l.zeros = l.last + seen;
    l.last_near = l.zeros + MAX(2 * seen, p->reads_zeros ? 4 * (size_t)p->max_rows[ROWS_TOKENS] : 0);
    l.pages = l.last_near + 3 * seen;
    return l;
}

// ---- inputs

// Consecutive rows of one sequence share a page table. Sets p->tables to the table of each row, sets *stride to the
// entries of the longest table, and returns the number of tables.
static int find_tables(struct plan *p, const struct step *s, int *stride)
{
    int n = 0;
    *stride = 0;
    for (int row = 0; row < s->n_tokens; row++) {
        if (row == 0 || s->seqs[row] != s->seqs[row - 1])
            n++;
        p->tables[row] = n - 1;
        *stride = MAX(*stride, s->positions[row] / KV_PAGE + 1);
    }
    return n;
}

// Replaces the block by a larger one. All captured graphs are freed, because they contain the address of the old one.
static int grow_block(struct plan *p, size_t bytes, struct error *err)
{
    struct driver *d = p->gpu->driver;
    for (int i = 0; i < p->n_buckets; i++)
        driver_graph_free(d, p->buckets[i].graph);
    p->n_buckets = 0;
    driver_free(d, p->block);
    driver_pinned_free(d, p->pinned);
    p->block = 0;
    p->pinned = NULL;
    p->block_bytes = 0;
    void *pinned;
    if (driver_reserve(d, bytes, &p->block, err) || driver_pinned(d, bytes, &pinned, err))
        return -1;
    p->pinned = pinned;
    p->block_bytes = bytes;
    return 0;
}

// Writes n numbers, followed by zeros up to `room` numbers.
static void put_rows(uint8_t *to, const int32_t *from, int n, int room)
{
    memset(to, 0, 4 * (size_t)room);
    if (n)
        memcpy(to, from, 4 * (size_t)n);
}

// Writes the page tables, which the caller has zeroed: for each table, the entries up to the page of its last position.
// A row is skipped if the next row shares its table and reaches at least as far.
static void put_pages(const struct plan *p, const struct step *s, uint8_t *to, int stride)
{
    for (int row = 0; row < s->n_tokens; row++) {
        int32_t *table = (int32_t *)(void *)to + (size_t)p->tables[row] * (size_t)stride;
        size_t n = (size_t)(s->positions[row] / KV_PAGE) + 1;
        bool more =
            row + 1 < s->n_tokens && p->tables[row + 1] == p->tables[row] && s->positions[row + 1] >= s->positions[row];
        if (!more)
            memcpy(table, s->pages + (size_t)s->seqs[row] * (size_t)s->pages_stride, n * sizeof *table);
    }
}

// Writes where the states of sequences come from and go to. The rows behind the first of a sequence are marked.
static void put_states(const struct plan *p, const struct step *s, uint8_t *from, uint8_t *to, int room)
{
    const bool states = p->graph->state_floats;
    put_rows(from, s->state_from, states ? s->n_tokens : 0, room);
    put_rows(to, s->state_to, states ? s->n_tokens : 0, room);
    for (int row = 0; states && row < s->n_tokens; row++)
        if (!step_begins(s, row))
            ((int32_t *)(void *)from)[row] = PTX_STATE_GOES_ON;
}

// Writes which positions each row sees with attention both ways, in all layers and in those with a window.
static void put_seen(const struct plan *p, const struct step *s, uint8_t *to)
{
    int32_t *last = (int32_t *)(void *)to;
    const int n = p->max_rows[ROWS_TOKENS];
    for (int row = 0, end = 0; row < s->n_tokens; row++) {
        end = step_begins(s, row) ? step_end(s, row) : end;
        struct seen_positions near = attention_sees(s->positions[row], end, p->window, false, true);
        last[row] = end - 1;
        last[3 * n + row] = near.hi - 1;
        last[4 * n + row] = near.lo;
        last[2 * n + row] = last[5 * n + row] = s->positions[row];
    }
}

static int put_inputs(struct plan *p, const struct step *s, const int rows[ROWS_KINDS], struct error *err)
{
    struct layout l = layout_of(p, rows);
    int stride = 0, tables = p->graph->n_kv ? find_tables(p, s, &stride) : 0;
    size_t bytes = l.pages + 4 * (size_t)tables * (size_t)stride;
    if (bytes > p->block_bytes && grow_block(p, 2 * bytes, err))
        return -1;
    struct ptx_step head = {.rows = {(uint32_t)s->n_tokens, (uint32_t)s->n_outputs},
                            .pages_stride = (uint32_t)stride,
                            .top_k = (uint32_t)s->top_k,
                            .kv = s->kv ? s->kv->at : 0,
                            .states = s->states ? s->states->at : 0};
    memcpy(p->pinned, &head, sizeof head);
    put_rows(p->pinned + l.tokens, s->tokens, s->n_tokens, rows[ROWS_TOKENS]);
    put_rows(p->pinned + l.positions, s->positions, s->n_tokens, rows[ROWS_TOKENS]);
    put_rows(p->pinned + l.tables, p->tables, tables ? s->n_tokens : 0, rows[ROWS_TOKENS]);
    put_states(p, s, p->pinned + l.state_from, p->pinned + l.state_to, rows[ROWS_TOKENS]);
    put_rows(p->pinned + l.outputs, s->outputs, s->n_outputs, rows[ROWS_OUTPUTS]);
    memset(p->pinned + l.last, 0, bytes - l.last);
    if (p->graph->both_ways)
        put_seen(p, s, p->pinned + l.last);
    if (tables)
        put_pages(p, s, p->pinned + l.pages, stride);
    return driver_put(p->gpu->driver, p->block, p->pinned, bytes, err);
}

// ---- launches

static uint64_t logits_of(const struct plan *p, const int rows[ROWS_KINDS])
{
    return gpu_value_in(p, gpu_list_of(p, rows), p->program.logits);
}

static uint64_t arg_of(const struct plan *p, const struct gpu_arg *a, const struct layout *l, int n_rows,
                       uint32_t class)
{
    switch (a->kind) {
    case ARG_STEP:
        return p->block;
    case ARG_TOKENS:
        return p->block + l->tokens;
    case ARG_POSITIONS:
        return p->block + l->positions;
    case ARG_TABLES:
        return p->block + l->tables;
    case ARG_OUTPUTS:
        return p->block + l->outputs;
    case ARG_STATE_FROM:
        return p->block + l->state_from;
    case ARG_STATE_TO:
        return p->block + l->state_to;
    case ARG_PAGES:
        return p->block + l->pages;
    case ARG_LAST:
        return p->block + l->last;
    case ARG_ZEROS:
        return p->block + l->zeros;
    case ARG_LAST_NEAR:
        return p->block + l->last_near;
    case ARG_N_ROWS:
        return (uint64_t)n_rows;
    case ARG_PLACES:
        return class > 1 ? p->groups : a->at;
    default:
        return a->at;
    }
}

// Returns the class of a launch: the rows per CTA of its product, or of the product for which it groups rows;
// PTX_ATTEND_MANY for attention row by row with at least that many rows; otherwise 1.
static uint32_t class_of(const struct plan *p, const struct gpu_launch *g, int n_rows)
{
    if (g->splits && n_rows >= PTX_ATTEND_MANY)
        return PTX_ATTEND_MANY;
    if (!g->matmul.n_in)
        return 1;
    return gpu_class_of(p->gpu, &g->matmul, (uint32_t)n_rows);
}

// Returns the index of the launch's kernel for a class, or 0 if it has none for it.
static int pick(const struct gpu_launch *g, uint32_t class)
{
    for (int i = 0; i < g->n_kernels; i++)
        if (g->classes[i] == class)
            return i;
    return 0;
}

bool gpu_shape_of(const struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct gpu_shape *out)
{
    int n_rows = rows[g->rows];
    uint32_t class = class_of(p, g, n_rows);
    if (!n_rows || (g->groups && class == 1) || (g->tile && n_rows < PTX_ATTEND_MANY))
        return false;
    *out = (struct gpu_shape){.class = class, .kernel = g->kernels[pick(g, class)]};
    struct ptx_matmul m = g->matmul;
    m.rows = class;
    memcpy(out->grid, out->kernel->launch.grid, sizeof out->grid);
    if (g->rows_in_y)
        out->grid[1] = m.n_in && !g->groups ? ptx_matmul_grid(&m, (uint32_t)n_rows) : (uint32_t)n_rows;
    else if (!g->groups)
        out->grid[0] *= ptx_tiles((uint32_t)n_rows, MAX(g->tile, 1u));
    if (g->splits)
        out->grid[2] = ptx_attend_lanes(g->splits, (uint32_t)n_rows);
    return true;
}

void gpu_args_of(const struct plan *p, const struct gpu_launch *g, const struct gpu_shape *shape,
                 const int rows[ROWS_KINDS], uint64_t args[GPU_ARGS])
{
    const struct layout layout = layout_of(p, rows);
    for (int i = 0; i < g->n_args; i++) {
        bool logits = g->args[i].kind == ARG_LOGITS;
        args[i] = logits ? logits_of(p, rows) : arg_of(p, &g->args[i], &layout, rows[g->rows], shape->class);
    }
}

int gpu_launch_one(const struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct error *err)
{
    struct gpu_shape shape;
    if (!gpu_shape_of(p, g, rows, &shape))
        return 0;
    uint64_t args[GPU_ARGS];
    void *params[GPU_ARGS];
    gpu_args_of(p, g, &shape, rows, args);
    for (int i = 0; i < g->n_args; i++)
        params[i] = &args[i];
    struct driver_launch l = {.params = params, .dependent = g->dependent, .shared = shape.kernel->launch.shared};
    memcpy(l.grid, shape.grid, sizeof l.grid);
    memcpy(l.block, shape.kernel->launch.block, sizeof l.block);
    if (g->most_ctas)
        l.grid[0] = MIN(l.grid[0], g->most_ctas);
    if (driver_run(p->gpu->driver, shape.kernel->kernel, &l, err))
        return fail_prefix(err, g->node->name);
    return 0;
}

static bool is_whole(const struct plan *p, const int rows[ROWS_KINDS])
{
    return p->whole.kernel && gpu_list_of(p, rows) == GPU_ONE_ROW;
}

int gpu_ready(struct plan *p, const int rows[ROWS_KINDS], struct error *err)
{
    return is_whole(p, rows) ? gpu_whole_put(p, rows, err) : 0;
}

int gpu_launch_list(const struct plan *p, const int rows[ROWS_KINDS], struct error *err)
{
    const struct gpu_list *list = &p->lists[gpu_list_of(p, rows)];
    if (is_whole(p, rows))
        return gpu_whole_launch(p, rows, err);
    for (int i = 0; i < list->n_launches; i++)
        if (gpu_launch_one(p, &list->launches[i], rows, err))
            return -1;
    return 0;
}

// Copies a tapped node's value to the host and passes it to the taps. The launches of the node must have been issued.
static int show(struct plan *p, const struct step *s, const struct tensor *n, struct error *err)
{
    const struct taps *taps = p->options.taps;
    int rows = n->rows == ROWS_TOKENS ? s->n_tokens : s->n_outputs;
    size_t width = (size_t)n->width;
    if (!p->tapped[n->id] || !rows)
        return 0;
    if (driver_get(p->gpu->driver, p->seen, gpu_value_in(p, GPU_ANY_ROWS, n), (size_t)rows * width * sizeof(float),
                   err))
        return -1;
    for (int i = 0; i < taps->n; i++)
        if (p->program.of[taps->nodes[i]->id] == n)
            taps->see(taps->arg, i, p->seen, width, rows);
    return 0;
}

// Returns the i-th launch of a run, or NULL after the last. The launches of the top-k search follow those of the list.
static const struct gpu_launch *launch_at(const struct plan *p, const struct run *r, int i)
{
    const struct gpu_list *list = &p->lists[gpu_list_of(p, r->rows)];
    if (i < list->n_launches)
        return &list->launches[i];
    return r->top && i - list->n_launches < r->top->n_launches ? &r->top->launches[i - list->n_launches] : NULL;
}

static int launch_all(struct plan *p, const struct run *r, struct error *err)
{
    if (gpu_launch_list(p, r->rows, err))
        return -1;
    for (int i = 0; r->top && i < r->top->n_launches; i++)
        if (gpu_launch_one(p, &r->top->launches[i], r->rows, err))
            return -1;
    return 0;
}

// ---- steps that are launched kernel by kernel: with taps, with a profile, or with a cancel flag

static bool is_watched(const struct plan *p, const struct run *r)
{
    return p->cancel && !p->times && r->rows[ROWS_TOKENS] >= WATCHED_ROWS;
}

// Is called before the i-th launch. At the start of a group, it waits until the group before the previous one has
// ended, and fails if the flag is set.
static int pace(struct plan *p, int i, struct error *err)
{
    struct driver *d = p->gpu->driver;
    int group = i / GROUP;
    if (i % GROUP != 0)
        return 0;
    if ((group > 0 && driver_mark(d, (group - 1) % 2, err)) || (group > 1 && driver_reach(d, group % 2, err)))
        return -1;
    if (!atomic_load_explicit(p->cancel, memory_order_relaxed))
        return 0;
    if (driver_wait(d, err)) // after this, the pinned block may be overwritten
        return -1;
    return fail(err, E_INTERRUPTED, "interrupted");
}

// Shows the node of the i-th launch to the taps if no further launch of that node follows.
static int show_made(struct plan *p, const struct run *r, int i, struct error *err)
{
    const struct gpu_list *list = &p->lists[gpu_list_of(p, r->rows)];
    if (!p->options.taps || i >= list->n_launches)
        return 0;
    const struct tensor *n = list->launches[i].node;
    bool made = i + 1 == list->n_launches || list->launches[i + 1].node != n;
    return made ? show(p, r->step, n, err) : 0;
}

static int launch_followed(struct plan *p, const struct run *r, struct error *err)
{
    const struct gpu_launch *l;
    for (int i = 0; (l = launch_at(p, r, i)); i++)
        if ((is_watched(p, r) && pace(p, i, err)) ||
            (p->times ? gpu_profile_launch(p, l, r->rows, err) : gpu_launch_one(p, l, r->rows, err)) ||
            show_made(p, r, i, err))
            return -1;
    return 0;
}

void gpu_watch(struct plan *p, const atomic_bool *cancel)
{
    p->cancel = cancel;
}

// ---- steps that are replayed as a graph

static int record(struct plan *p, const struct run *r, struct driver_graph **out, struct error *err)
{
    struct gpu_bucket *grown = gpu_grow(p->buckets, p->n_buckets, &p->cap_buckets, sizeof *grown);
    if (!grown)
        return fail(err, E_MEMORY, "no memory for a graph");
    p->buckets = grown;
    if (gpu_ready(p, r->rows, err) || driver_record(p->gpu->driver, err))
        return -1;
    if (launch_all(p, r, err)) {
        driver_recorded(p->gpu->driver, NULL, NULL);
        return -1;
    }
    if (driver_recorded(p->gpu->driver, out, err))
        return -1;
    p->buckets[p->n_buckets++] = (struct gpu_bucket){{r->rows[0], r->rows[1]}, r->top ? r->top->keep : 0, *out};
    return 0;
}

static int replay(struct plan *p, const struct run *r, struct error *err)
{
    struct driver_graph *graph = NULL;
    for (int i = 0; i < p->n_buckets && !graph; i++)
        if (!memcmp(p->buckets[i].rows, r->rows, sizeof r->rows) && p->buckets[i].keep == (r->top ? r->top->keep : 0))
            graph = p->buckets[i].graph;
    if (!graph && record(p, r, &graph, err))
        return -1;
    return driver_replay(p->gpu->driver, graph, err);
}

// ---- a step

// Zeroes all values before the first step with fewer rows than its bucket. Products compute all rows of a bucket. The
// results of the padding rows are never used, but what they are computed from must be initialised: it is zeros, or
// values of an earlier step. Until such a step comes, only kernels write to the values.
static int pad(struct plan *p, const struct step *s, const int rows[ROWS_KINDS], struct error *err)
{
    if (p->padded || (rows[ROWS_TOKENS] == s->n_tokens && rows[ROWS_OUTPUTS] == s->n_outputs))
        return 0;
    p->padded = true;
    return driver_zero(p->gpu->driver, p->values, MAX(p->values_bytes, (size_t)1), err);
}

// Copies the results to the host. This waits for the step, after which the pinned block may be overwritten.
static int get_outputs(struct plan *p, const struct run *r, struct error *err)
{
    const struct step *s = r->step;
    size_t n = (size_t)s->n_outputs;
    if (!n)
        return driver_wait(p->gpu->driver, err);
    if (r->top)
        return driver_get(p->gpu->driver, s->top, r->top->out, n * (size_t)s->top_k * sizeof *s->top, err);
    return driver_get(p->gpu->driver, s->logits, logits_of(p, r->rows),
                      n * (size_t)p->program.logits->width * sizeof(float), err);
}

int gpu_run(struct machine *m, struct plan *p, const struct step *s, struct error *err)
{
    size_t n_pages = p->page_bytes && s->kv ? s->kv->size / p->page_bytes : 0;
    struct run r = {.step = s};
    (void)m;
    size_t slot = state_bytes(p->graph), n_slots = slot && s->states ? s->states->size / slot : 0;
    if (step_check(p->graph, &p->options, s, err) || step_check_pages(p->graph, s, n_pages, err) ||
        step_check_slots(p->graph, s, n_slots, err))
        return -1;
    r.rows[ROWS_TOKENS] = gpu_bucket_of(s->n_tokens, p->max_rows[ROWS_TOKENS]);
    r.rows[ROWS_OUTPUTS] = gpu_bucket_of(s->n_outputs, p->max_rows[ROWS_OUTPUTS]);
    if (s->top_k && s->n_outputs && gpu_top_get(p, s->top_k, &r.top, err))
        return -1;
    if (put_inputs(p, s, r.rows, err) || pad(p, s, r.rows, err))
        return -1;
    bool followed = p->options.taps || p->times || is_watched(p, &r);
    if (followed ? launch_followed(p, &r, err) : replay(p, &r, err))
        return -1;
    return get_outputs(p, &r, err);
}
