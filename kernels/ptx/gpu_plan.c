// Compiles a program for the GPU: assigns memory to values, uploads weights, and builds the lists of launches.
#include "kernels/ptx/emit_dot.h"
#include "kernels/ptx/gpu.h"

#include <stdio.h>
#include <stdlib.h>

// PAGES_AT_FIRST: entries of page tables for which the step's block has room before it first grows.
enum { VALUE_ALIGN = 256, PAGES_AT_FIRST = 1 << 14 };

// Weights of 8 bits and less take activations of 8 bits where there are such kernels, those of 16 bits activations of 16,
// on cards with the tensor cores for it, and everything takes floats where the options ask for exact results.
static enum act_form form_of(const void *ctx, enum dtype type, int64_t k)
{
    const struct gpu *g = ctx;
    if (g->options.exact)
        return ACT_F32;
    if (ptx_takes_q8(type))
        return ACT_Q8;
    if (!ptx_takes_halves(type, (uint32_t)k, gpu_target(g)))
        return ACT_F32;
    return type == DT_BF16 ? ACT_BF16 : ACT_F16;
}

static size_t row_bytes(enum act_form form, int64_t k)
{
    return form == ACT_Q8 ? ptx_q8_row_bytes(k) : ptx_half_row_bytes(form == ACT_BF16 ? DT_BF16 : DT_F16, (uint32_t)k);
}

uint64_t gpu_value(const struct plan *p, const struct tensor *n)
{
    return p->values + p->list->offsets[n->id];
}

uint64_t gpu_value_in(const struct plan *p, enum gpu_list_kind list, const struct tensor *n)
{
    return p->values + p->lists[list].offsets[n->id];
}

enum gpu_list_kind gpu_list_of(const struct plan *p, const int rows[ROWS_KINDS])
{
    return rows[ROWS_TOKENS] == 1 && p->lists[GPU_ONE_ROW].n_launches ? GPU_ONE_ROW : GPU_ANY_ROWS;
}

int gpu_scratch(struct plan *p, size_t size, uint64_t *at, struct error *err)
{
    uint64_t *grown = gpu_grow(p->owned, p->n_owned, &p->cap_owned, sizeof *grown);
    if (!grown)
        return fail(err, E_MEMORY, "no memory for a plan");
    p->owned = grown;
    if (driver_reserve(p->gpu->driver, MAX(size, (size_t)1), at, err))
        return -1;
    p->owned[p->n_owned++] = *at;
    return 0;
}

int gpu_own(struct plan *p, const void *data, size_t size, uint64_t *at, struct error *err)
{
    if (gpu_scratch(p, size, at, err))
        return -1;
    return data ? driver_put(p->gpu->driver, *at, data, size, err)
                : driver_zero(p->gpu->driver, *at, MAX(size, (size_t)1), err);
}

static int mark_taps(struct plan *p, struct error *err)
{
    const struct taps *taps = p->options.taps;
    for (int i = 0; taps && i < taps->n; i++) {
        const struct tensor *n = p->program.of[taps->nodes[i]->id];
        if (!n)
            return fail(err, E_USAGE, "%s: nothing needs this node, so it is not computed", taps->nodes[i]->name);
        p->tapped[n->id] = true;
    }
    return 0;
}

// A product that only a sum reads is computed together with the sum, by one kernel at the position of the sum. A sum
// takes in one product at most.
static void join_sums(struct plan *p, const int *readers)
{
    const struct program *g = &p->program;
    for (int i = 0; i < g->n; i++) {
        struct tensor *n = g->nodes[i];
        for (int s = 1; n->op == OP_ADD && s >= 0; s--) {
            const struct tensor *m = n->src[s];
            if (m->op != OP_MATMUL || readers[m->id] != 1 || p->tapped[m->id])
                continue;
            p->into[m->id] = n;
            break;
        }
    }
}

static size_t value_bytes(const struct plan *p, const struct tensor *n)
{
    if (n->op == OP_KV_WRITE || p->into[n->id])
        return 0;
    size_t row = n->op == OP_QUANTIZE ? program_row_bytes(&p->program, n) : (size_t)n->width * sizeof(float);
    return align_up(row * (size_t)p->max_rows[n->rows], VALUE_ALIGN);
}

// Returns the lowest offset at which the value of node `id` overlaps no earlier value that is read when it is written or
// later: at position `id`, or at that of the launch which computes it. last: [n] position of the last reader of each value.
static size_t find_offset(const struct plan *p, int id, const int *last)
{
    const int from = p->first[id] ? p->first[id]->id : id;
    size_t at = 0, size = value_bytes(p, p->program.nodes[id]);
    for (int i = 0; size && i < id; i++) {
        size_t bytes = value_bytes(p, p->program.nodes[i]);
        if (!bytes || last[i] < from || p->list->offsets[i] + bytes <= at || at + size <= p->list->offsets[i])
            continue;
        at = p->list->offsets[i] + bytes;
        i = -1;
    }
    return at;
}

// Counts the readers of each value and finds the position of the last one. A product that is computed together with a
// sum reads its sources at the position of the sum.
static void find_readers(const struct plan *p, int *readers, int *last)
{
    const struct program *g = &p->program;
    memset(readers, 0, (size_t)g->n * sizeof *readers);
    for (int i = 0; i < g->n; i++) {
        last[i] = i;
        for (int s = 0; s < SRC_MAX; s++) {
            const struct tensor *src = g->nodes[i]->src[s];
            if (!src)
                continue;
            readers[src->id]++;
            last[src->id] = MAX(last[src->id], p->into[i] ? p->into[i]->id : i);
        }
    }
    readers[g->logits->id]++;
    last[g->logits->id] = g->n;
}

static int lay_out(struct plan *p, struct error *err)
{
    const struct program *g = &p->program;
    size_t n = (size_t)g->n;
    int *readers = ARENA_ARRAY(&p->arena, int, n), *last = ARENA_ARRAY(&p->arena, int, n);
    p->into = ARENA_ARRAY(&p->arena, struct tensor *, n);
    p->first = ARENA_ARRAY(&p->arena, const struct tensor *, n);
    p->tapped = ARENA_ARRAY(&p->arena, bool, n);
    p->list->offsets = ARENA_ARRAY(&p->arena, size_t, n);
    if (!readers || !last || !p->into || !p->first || !p->tapped || !p->list->offsets)
        return fail(err, E_MEMORY, "no memory for a plan of %d nodes", g->n);
    if (mark_taps(p, err))
        return -1;
    find_readers(p, readers, last);
    join_sums(p, readers);
    find_readers(p, readers, last);
    if (!p->options.taps) // taps are shown a value when its node has been launched
        gpu_join(p);
    for (int i = 0; i < g->n; i++) {
        p->list->offsets[i] = find_offset(p, i, last);
        p->values_bytes = MAX(p->values_bytes, p->list->offsets[i] + value_bytes(p, g->nodes[i]));
    }
    if (!p->options.taps && gpu_fuse(p, err)) // taps may read any node, and fused launches do not store all of them
        return -1;
    return gpu_scratch(p, p->values_bytes, &p->values, err);
}

static int make_block(struct plan *p, struct error *err)
{
    size_t rows = (size_t)p->max_rows[ROWS_TOKENS];
    const size_t arrays = p->graph->both_ways ? 5 + 6 : 5;
    p->block_bytes = sizeof(struct ptx_step) + 4 * (arrays * rows + (size_t)p->max_rows[ROWS_OUTPUTS] + PAGES_AT_FIRST);
    p->tables = ARENA_ARRAY(&p->arena, int32_t, rows);
    if (!p->tables)
        return fail(err, E_MEMORY, "no memory for a plan");
    void *pinned;
    if (driver_reserve(p->gpu->driver, p->block_bytes, &p->block, err) ||
        driver_pinned(p->gpu->driver, p->block_bytes, &pinned, err))
        return -1;
    p->pinned = pinned;
    return 0;
}

// Allocates host memory for the largest tapped value. Values are shown one at a time.
static int make_seen(struct plan *p, struct error *err)
{
    size_t floats = 0;
    for (int i = 0; p->options.taps && i < p->options.taps->n; i++) {
        const struct tensor *n = p->options.taps->nodes[i];
        floats = MAX(floats, (size_t)n->width * (size_t)p->max_rows[n->rows]);
    }
    if (floats && !(p->seen = malloc(floats * sizeof(float))))
        return fail(err, E_MEMORY, "no memory for %zu floats", floats);
    return 0;
}

// Finds the window of the layers that have one: the inputs of a step of attention both ways are made for a single one.
static int find_window(struct plan *p, struct error *err)
{
    for (int i = 0; p->graph->both_ways && i < p->graph->n_nodes; i++) {
        const struct tensor *n = p->graph->nodes[i];
        if (n->op != OP_ATTENTION || !n->p.attn.window)
            continue;
        if (p->window && p->window != n->p.attn.window)
            return fail(err, E_GPU, "%s: windows of %d and of %d positions", n->name, p->window, n->p.attn.window);
        p->window = n->p.attn.window;
    }
    return 0;
}

static int build(struct plan *p, struct error *err)
{
    struct act_rules acts = {.form = form_of, .row_bytes = row_bytes, .ctx = p->gpu};
    if (program_build(&p->arena, p->graph, acts, &p->program, err) || find_window(p, err) || lay_out(p, err) ||
        make_block(p, err) || make_seen(p, err) || (p->options.profile && gpu_profile_new(p, err)))
        return -1;
    for (int i = 0; i < p->program.n; i++)
        if (gpu_node(p, p->program.nodes[i], err))
            return -1;
    if (gpu_tune_products(p, err) || (p->fusion && gpu_fuse_launches(p, err)))
        return -1;
    gpu_tuned(p->gpu);
    return driver_wait(p->gpu->driver, err);
}

int gpu_compile(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                struct error *err)
{
    *out = NULL;
    if (compile_check(g, o, err))
        return -1;
    if (o->max_tokens > UINT16_MAX || o->max_outputs > UINT16_MAX)
        return fail(err, E_USAGE, "the GPU machine takes up to %d rows a step", (int)UINT16_MAX);
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return fail(err, E_MEMORY, "no memory for a plan");
    p->graph = g;
    p->gpu = (struct gpu *)m;
    p->list = &p->lists[GPU_ANY_ROWS];
    p->options = *o;
    p->max_rows[ROWS_TOKENS] = o->max_tokens;
    p->max_rows[ROWS_OUTPUTS] = o->max_outputs;
    p->page_bytes = kv_page_bytes(g, o->kv_type);
    if (build(p, err)) {
        gpu_plan_free(m, p);
        return -1;
    }
    *out = p;
    return 0;
}

void gpu_plan_free(struct machine *m, struct plan *p)
{
    struct gpu *g = (struct gpu *)m;
    if (!p)
        return;
    for (int i = 0; i < p->n_buckets; i++)
        driver_graph_free(g->driver, p->buckets[i].graph);
    for (int i = 0; i < p->n_weights; i++)
        gpu_weight_release(g, p->weights[i]);
    for (int i = 0; i < p->n_owned; i++)
        driver_free(g->driver, p->owned[i]);
    driver_free(g->driver, p->block);
    driver_pinned_free(g->driver, p->pinned);
    free(p->buckets);
    free(p->weights);
    free(p->owned);
    for (int i = 0; i < GPU_LISTS; i++)
        free(p->lists[i].launches);
    free(p->seen);
    arena_free(&p->arena);
    free(p);
}

static void print_list(const struct plan *p, const struct gpu_list *list, struct text *out)
{
    for (int i = 0; i < list->n_launches; i++) {
        const struct gpu_launch *l = &list->launches[i];
        if (l->matmul.n_sections) // the names of all sections
            text_print(out, "%5d  %s", i, l->node->name);
        else
            text_print(out, "%5d  %-28s", i, l->node->name);
        for (uint32_t s = 1; s < l->matmul.n_sections; s++)
            text_print(out, " + %s", gpu_joined(p, l->node, (int)s)->name);
        for (int k = 0; k < l->n_kernels; k++)
            text_print(out, " %s, %u rows a CTA of %u threads;", l->kernels[k]->launch.entry, l->classes[k],
                       l->kernels[k]->launch.block[0]);
        text_print(out, "\n");
    }
}

// The number of the layer that a node belongs to by its name, "blk.3.attn_q"; -1: to none.
static int layer_of(const struct tensor *n)
{
    int layer = -1;
    return sscanf(n->name, "blk.%d.", &layer) == 1 ? layer : -1;
}

// How many launches the layers of a list have: the least and the most. Layers without launches do not count.
static void print_layers(const struct gpu_list *list, struct text *out)
{
    int least = INT32_MAX, most = 0, before = -1;
    for (int i = 0; i < list->n_launches; i++) {
        int layer = layer_of(list->launches[i].node), n = 0;
        for (int j = 0; layer > before && j < list->n_launches; j++)
            n += layer_of(list->launches[j].node) == layer;
        least = n ? MIN(least, n) : least;
        most = MAX(most, n);
        before = MAX(before, layer);
    }
    if (most && least < most)
        text_print(out, ", %d to %d a layer", least, most);
    else if (most)
        text_print(out, ", %d a layer", most);
}

void gpu_print(const struct plan *p, struct text *out)
{
    text_print(
        out,
        "%d nodes (%d dead and %d common ones dropped), %d launches, %d kernels on the card, %zu bytes of values\n",
        p->program.n, p->program.n_dead, p->program.n_common, p->lists[GPU_ANY_ROWS].n_launches, p->gpu->n_kernels,
        p->values_bytes);
    print_list(p, &p->lists[GPU_ANY_ROWS], out);
    if (!p->lists[GPU_ONE_ROW].n_launches)
        return;
    text_print(out, "one row: %d launches", p->lists[GPU_ONE_ROW].n_launches);
    print_layers(&p->lists[GPU_ONE_ROW], out);
    if (p->whole.kernel)
        text_print(out, ", as steps of one kernel of %d parts", p->whole.parts->n_parts);
    text_print(out, "\n");
    print_list(p, &p->lists[GPU_ONE_ROW], out);
}
