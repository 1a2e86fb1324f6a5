// The reference machine: runs the nodes of a graph in order on one thread, with the operations of ref_ops.h. Other
// machines are compared with its results; it is not made for speed.
//
// A plan refers to its graph, which must outlive it.
#include "kernels/cpu/host.h"
#include "kernels/cpu/ref_ops.h"

#include <stdlib.h>

struct plan {
    const struct graph *graph;
    struct compile_options options;
    const atomic_bool *cancel;
    float **values;         // [n_nodes], NULL for a node without a value
    size_t (*kv_offset)[2]; // [n_kv]
    size_t page_bytes;
    float *decoded; // see struct ref_run
    double *sums;   // see struct ref_run
    float *state;   // see struct ref_run
    size_t bytes;   // of all values and scratch
};

static void ref_close(struct machine *m)
{
    free(m);
}

static void ref_plan_free(struct machine *m, struct plan *p)
{
    (void)m;
    if (!p)
        return;
    for (int i = 0; p->values && i < p->graph->n_nodes; i++)
        free(p->values[i]);
    free(p->values);
    free(p->kv_offset);
    free(p->decoded);
    free(p->sums);
    free(p->state);
    free(p);
}

// Allocates `count` zeroed items and adds their bytes to p->bytes. Returns NULL with an error that names `what`.
static void *plan_alloc(struct plan *p, size_t count, size_t size, const char *what, struct error *err)
{
    size_t bytes;
    bool fits = !size_mul(count, size, &bytes) && !size_add(p->bytes, bytes, &p->bytes);
    void *memory = fits ? calloc(MAX(count, (size_t)1), size) : NULL;
    if (!memory)
        fail(err, E_MEMORY, "no memory for %s: %zu items of %zu bytes; fewer tokens a step would help", what, count,
             size);
    return memory;
}

// Each node has a buffer of its own, so that a sanitizer finds reads and writes outside of a value.
static int alloc_values(struct plan *p, struct error *err)
{
    const struct graph *g = p->graph;
    p->values = plan_alloc(p, (size_t)g->n_nodes, sizeof(*p->values), "a plan", err);
    if (!p->values)
        return -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tensor *n = g->nodes[i];
        size_t rows = (size_t)(n->rows == ROWS_TOKENS ? p->options.max_tokens : p->options.max_outputs);
        if (n->width == 0)
            continue;
        p->values[i] = plan_alloc(p, rows, (size_t)n->width * sizeof(float), n->name, err);
        if (!p->values[i])
            return -1;
    }
    return 0;
}

static int alloc_scratch(struct plan *p, struct error *err)
{
    const struct graph *g = p->graph;
    int64_t row = 1, sums = 1, state = CONV_KERNEL_MAX;
    for (int i = 0; i < g->n_nodes; i++) {
        sums = MAX(sums, g->nodes[i]->width);
        if (g->nodes[i]->op == OP_DELTA_RULE)
            state = MAX(state, (int64_t)g->nodes[i]->p.delta.dim_k * g->nodes[i]->p.delta.dim_v);
        if (g->nodes[i]->op == OP_SELECTIVE_SCAN)
            state = MAX(state, (int64_t)g->nodes[i]->p.scan.n_state);
        if (g->nodes[i]->op == OP_ROUTE) // weights, scores, and the scores of groups
            sums = MAX(sums, 3 * route_choices(g->nodes[i]));
        if (g->nodes[i]->w[0])
            row = MAX(row, g->nodes[i]->w[0]->ne[0]);
    }
    for (int i = 0; i < g->n_kv; i++)
        row = MAX(row, MAX(g->kv[i].dim_k, g->kv[i].dim_v));
    p->decoded = plan_alloc(p, (size_t)row, sizeof(*p->decoded), "a row", err);
    p->sums = p->decoded ? plan_alloc(p, (size_t)sums, sizeof(*p->sums), "the sums of a row", err) : NULL;
    p->state = p->sums ? plan_alloc(p, (size_t)state, sizeof(*p->state), "a state", err) : NULL;
    return p->state ? 0 : -1;
}

static int locate_kv(struct plan *p, struct error *err)
{
    const struct graph *g = p->graph;
    const enum dtype *type = p->options.kv_type;
    p->page_bytes = kv_page_bytes(g, type);
    p->kv_offset = plan_alloc(p, (size_t)g->n_kv, sizeof(*p->kv_offset), "a plan", err);
    if (!p->kv_offset)
        return -1;
    for (int layer = 0; layer < g->n_kv; layer++)
        for (int part = 0; part < 2; part++)
            p->kv_offset[layer][part] = kv_layer_offset(g, type, layer, part);
    return 0;
}

static int ref_compile(struct machine *m, const struct graph *g, const struct compile_options *o, struct plan **out,
                       struct error *err)
{
    *out = NULL;
    if (compile_check(g, o, err))
        return -1;
    struct plan *p = calloc(1, sizeof(*p));
    if (!p)
        return fail(err, E_MEMORY, "no memory for a plan");
    p->graph = g;
    p->options = *o;
    if (alloc_values(p, err) || alloc_scratch(p, err) || locate_kv(p, err)) {
        ref_plan_free(m, p);
        return -1;
    }
    *out = p;
    return 0;
}

static void show_taps(const struct plan *p, const struct step *s, const struct tensor *n)
{
    const struct taps *taps = p->options.taps;
    for (int i = 0; taps && i < taps->n; i++)
        if (taps->nodes[i] == n)
            taps->see(taps->arg, i, p->values[n->id], (size_t)n->width,
                      n->rows == ROWS_TOKENS ? s->n_tokens : s->n_outputs);
}

static int ref_run(struct machine *m, struct plan *p, const struct step *s, struct error *err)
{
    (void)m;
    const struct graph *g = p->graph;
    if (step_check(g, &p->options, s, err) ||
        (g->n_kv > 0 && step_check_pages(g, s, buffer_size(s->kv) / p->page_bytes, err)) ||
        (g->state_floats && step_check_slots(g, s, buffer_size(s->states) / state_bytes(g), err)))
        return -1;
    struct ref_run r = {.step = s,
                        .values = p->values,
                        .kv_type = p->options.kv_type,
                        .kv_layers = p->graph->kv,
                        .kv = buffer_data(s->kv),
                        .page_bytes = p->page_bytes,
                        .kv_offset = (const size_t(*)[2])p->kv_offset,
                        .states = g->state_floats ? (float *)buffer_data(s->states) : NULL,
                        .state_floats = state_bytes(g) / sizeof(float),
                        .state = p->state,
                        .decoded = p->decoded,
                        .sums = p->sums};
    for (int i = 0; i < g->n_nodes; i++) {
        if (p->cancel && atomic_load_explicit(p->cancel, memory_order_relaxed))
            return fail(err, E_INTERRUPTED, "interrupted");
        ref_node(&r, g->nodes[i]);
        if (s->part)
            atomic_store_explicit(s->part, i * STEP_WHOLE / g->n_nodes, memory_order_relaxed);
        show_taps(p, s, g->nodes[i]);
    }
    if (s->n_outputs > 0)
        memcpy(s->logits, p->values[g->logits->id], (size_t)s->n_outputs * (size_t)g->logits->width * sizeof(float));
    step_choose(g, s);
    return 0;
}

static void ref_watch(struct plan *p, const atomic_bool *cancel)
{
    p->cancel = cancel;
}

static size_t ref_plan_bytes(const struct plan *p)
{
    return p->bytes;
}

static void ref_describe(const struct machine *m, const struct plan *p, struct text *out)
{
    (void)m;
    if (!p)
        text_print(out, "ref: plain C on one thread, sums in double, activations never quantised\n");
    else
        text_print(out, "plan: %d nodes in order, nothing fused; %zu bytes of values\n", p->graph->n_nodes, p->bytes);
}

static void ref_print(const struct plan *p, struct text *out)
{
    graph_print(p->graph, out);
}

int machine_open_ref(struct machine **out, const struct machine_options *o, struct error *err)
{
    static const struct machine_vtable vtable = {
        .name = "ref",
        .close = ref_close,
        .alloc = host_alloc,
        .free = host_free,
        .put = host_put,
        .get = host_get,
        .compile = ref_compile,
        .run = ref_run,
        .watch = ref_watch,
        .plan_free = ref_plan_free,
        .plan_bytes = ref_plan_bytes,
        .describe = ref_describe,
        .print = ref_print,
    };
    *out = NULL;
    if (o && (o->isa || o->blas || o->n_threads > 1))
        return fail(err, E_USAGE,
                    "the reference machine is plain C on one thread: it takes no ISA, BLAS or thread count");
    struct machine *m = malloc(sizeof(*m));
    if (!m)
        return fail(err, E_MEMORY, "no memory for a machine");
    m->v = &vtable;
    *out = m;
    return 0;
}
