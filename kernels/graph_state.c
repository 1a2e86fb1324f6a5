// Builds the nodes of operations with state: their checks, and the places of their states in a slot.
#include "kernels/graph_parts.h"

#include <limits.h>

// Adds so many floats to the state of a sequence, and returns where they begin: at a multiple of a cache line. -1 on a
// fault.
static int64_t add_state(struct graph *g, const struct tensor *n, int64_t heads, int64_t floats)
{
    enum { LINE = 16 }; // floats
    const int64_t at = g->state_floats;
    if (floats > WIDTH_MAX || heads > WIDTH_MAX || heads * floats > WIDTH_MAX ||
        at > INT32_MAX - LINE - heads * floats) {
        graph_refuse(g, "%s: a state of %lld times %lld floats is out of range", n->name, (long long)heads,
                     (long long)floats);
        return -1;
    }
    g->state_floats = (int64_t)align_up((size_t)(at + heads * floats), LINE);
    return at;
}

struct tensor *graph_short_conv(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                                const struct weight *bias)
{
    struct tensor *n = graph_begin_node(g, OP_SHORT_CONV, name);
    if (!graph_take_tokens(g, n, 0, x) || !graph_take_weight(g, n, 0, w, 1) ||
        !graph_take_vector(g, n, 1, bias, x->width))
        return NULL;
    if (w->ne[1] != x->width || w->ne[0] < 2 || w->ne[0] > CONV_KERNEL_MAX || w->type != DT_F32)
        return graph_refuse(g, "%s: weight %s of type %s, wanted are 2 to %d F32 for each of %lld columns", n->name,
                            graph_shape_of(w).s, dtype_info[w->type].name, (int)CONV_KERNEL_MAX, (long long)x->width);
    n->p.conv.kernel = (int)w->ne[0];
    n->p.conv.state = add_state(g, n, w->ne[0] - 1, x->width);
    return n->p.conv.state < 0 ? NULL : graph_finish_node(g, n, x->width);
}

static bool check_delta(struct graph *g, const struct tensor *n, const struct delta_params *p, int64_t n_decays)
{
    const int heads_max = 1 << 14;
    if (p->n_head_k < 1 || p->n_head < 1 || p->n_head > heads_max || p->n_head % p->n_head_k != 0)
        return graph_refuse(g, "%s: %d heads are no multiple of %d heads of keys", n->name, p->n_head, p->n_head_k);
    if (p->dim_k < 1 || p->dim_v < 1 || MAX(p->dim_k, p->dim_v) > DELTA_DIM_MAX)
        return graph_refuse(g, "%s: heads of %d and %d columns; up to %d are served", n->name, p->dim_k, p->dim_v,
                            (int)DELTA_DIM_MAX);
    const int64_t width = 2 * (int64_t)p->n_head_k * p->dim_k + (int64_t)p->n_head * p->dim_v;
    if (n->src[0]->width != width || n->src[1]->width != n_decays || n->src[2]->width != p->n_head)
        return graph_refuse(g, "%s: sources of %lld, %lld and %lld columns, wanted are %lld, %lld and %d", n->name,
                            (long long)n->src[0]->width, (long long)n->src[1]->width, (long long)n->src[2]->width,
                            (long long)width, (long long)n_decays, p->n_head);
    return true;
}

static struct tensor *delta_rule(struct graph *g, const char *name, struct tensor *const src[3],
                                 const struct weight *rate, const struct weight *bias, bool by_channel,
                                 struct delta_params p)
{
    struct tensor *n = graph_begin_node(g, OP_DELTA_RULE, name);
    for (int i = 0; i < 3; i++)
        if (!graph_take_tokens(g, n, i, src[i]))
            return NULL;
    if (!graph_take_number(g, n, "eps", p.eps, 0) ||
        !check_delta(g, n, &p, by_channel ? (int64_t)p.n_head * p.dim_k : p.n_head))
        return NULL;
    if (!rate || (!bias && !by_channel))
        return graph_refuse(g, "%s: its rate or bias is missing", n->name);
    if (!graph_take_vector(g, n, 0, rate, p.n_head) || !graph_take_vector(g, n, 1, bias, p.n_head))
        return NULL;
    n->p.delta.n_head_k = p.n_head_k;
    n->p.delta.n_head = p.n_head;
    n->p.delta.dim_k = p.dim_k;
    n->p.delta.dim_v = p.dim_v;
    n->p.delta.grouped = p.grouped;
    n->p.delta.by_channel = by_channel;
    n->p.delta.eps = p.eps;
    n->p.delta.state = add_state(g, n, p.n_head, (int64_t)p.dim_k * p.dim_v);
    return n->p.delta.state < 0 ? NULL : graph_finish_node(g, n, (int64_t)p.n_head * p.dim_v);
}

struct tensor *graph_delta_rule(struct graph *g, const char *name, struct tensor *qkv, struct tensor *alpha,
                                struct tensor *beta, const struct weight *rate, const struct weight *bias,
                                struct delta_params p)
{
    return delta_rule(g, name, (struct tensor *[]){qkv, alpha, beta}, rate, bias, false, p);
}

struct tensor *graph_channel_delta_rule(struct graph *g, const char *name, struct tensor *qkv, struct tensor *steps,
                                        struct tensor *beta, const struct weight *rate, struct delta_params p)
{
    return delta_rule(g, name, (struct tensor *[]){qkv, steps, beta}, rate, NULL, true, p);
}

static bool check_scan(struct graph *g, const struct tensor *n, const struct scan_params *p)
{
    const int heads_max = 1 << 18;
    if (p->n_head < 1 || p->n_head > heads_max || p->n_group < 1 || p->n_head % p->n_group != 0)
        return graph_refuse(g, "%s: %d heads in %d groups", n->name, p->n_head, p->n_group);
    if (p->dim < 1 || p->dim > 1 << 14 || p->n_state < 1 || p->n_state > SCAN_STATE_MAX)
        return graph_refuse(g, "%s: heads of %d columns with %d states; up to %d states are served", n->name, p->dim,
                            p->n_state, (int)SCAN_STATE_MAX);
    const int64_t width = (int64_t)p->n_head * p->dim, states = (int64_t)p->n_group * p->n_state;
    if (n->src[0]->width < width || n->src[1]->width != p->n_head)
        return graph_refuse(g, "%s: sources of %lld and %lld columns, wanted are %lld and %d", n->name,
                            (long long)n->src[0]->width, (long long)n->src[1]->width, (long long)width, p->n_head);
    if (p->b_at < 0 || p->c_at < 0 || p->b_at > n->src[2]->width - states || p->c_at > n->src[3]->width - states)
        return graph_refuse(g, "%s: %lld columns from %lld and %lld on lie outside of sources of %lld and %lld",
                            n->name, (long long)states, (long long)p->b_at, (long long)p->c_at,
                            (long long)n->src[2]->width, (long long)n->src[3]->width);
    return true;
}

// The rates: one for each head, or one for each state of each head.
static bool take_rates(struct graph *g, struct tensor *n, const struct weight *rate, const struct scan_params *p)
{
    const bool by_state = rate && rate->ne[0] != p->n_head && p->dim == 1;
    n->p.scan.rates = by_state;
    if (!rate)
        return graph_refuse(g, "%s: its rates are missing", n->name);
    return graph_take_vector(g, n, 0, rate, by_state ? (int64_t)p->n_head * p->n_state : p->n_head);
}

struct tensor *graph_selective_scan(struct graph *g, const char *name, struct tensor *x, struct tensor *dt,
                                    struct tensor *b, struct tensor *c, const struct weight *rate,
                                    const struct weight *skip, struct scan_params p)
{
    struct tensor *n = graph_begin_node(g, OP_SELECTIVE_SCAN, name);
    if (!graph_take_tokens(g, n, 0, x) || !graph_take_tokens(g, n, 1, dt) || !graph_take_tokens(g, n, 2, b) ||
        !graph_take_tokens(g, n, 3, c) || !check_scan(g, n, &p) || !take_rates(g, n, rate, &p))
        return NULL;
    if (!graph_take_vector(g, n, 1, skip, p.n_head))
        return NULL;
    n->p.scan.n_head = p.n_head;
    n->p.scan.n_group = p.n_group;
    n->p.scan.dim = p.dim;
    n->p.scan.n_state = p.n_state;
    n->p.scan.b_at = p.b_at;
    n->p.scan.c_at = p.c_at;
    n->p.scan.state = add_state(g, n, p.n_head, (int64_t)p.dim * p.n_state);
    return n->p.scan.state < 0 ? NULL : graph_finish_node(g, n, (int64_t)p.n_head * p.dim);
}
