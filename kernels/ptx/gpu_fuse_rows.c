// Forms chains of nodes that are no products, and makes their launches. See gpu_fuse.h for the interface and emit_row.h for
// the kernel.
//
// A node belongs to a chain if it would have a launch of its own, works on the columns of one row, and is narrow enough for
// one CTA. A chain has the nodes of launches that follow each other, so that nothing changes its place but within the chain.
#include "kernels/ptx/gpu_fuse.h"

// ---- forming chains

static bool is_narrow(const struct tensor *n)
{
    int64_t width = n->op == OP_KV_WRITE ? n->src[0]->width : n->width;
    return width <= PTX_ROW_WIDTH;
}

static bool can_chain(const struct fusion *u, const struct tensor *n)
{
    struct ptx_kv kv;
    struct error none;
    if (fuse_fate(u, n)->how != LAUNCHED || !is_narrow(n))
        return false;
    switch (n->op) {
    case OP_SLICE:
    case OP_JOIN:
    case OP_ROPE:
        return true;
    case OP_NORM:
        return (n->p.norm.group ? n->p.norm.group : n->width) <= PTX_ROW_GROUP;
    case OP_KV_WRITE:
        return !gpu_kv_of(u->p, n, n->p.kv.layer, n->p.kv.part, (int)n->p.kv.head_dim, &kv, &none) && !kv.row_dim;
    default:
        return op_class(n->op) == CLASS_ELEMENT;
    }
}

// An upper bound of a node's parameters.
static int params_of(const struct tensor *n)
{
    return 2 + (n->src[1] != NULL) + (n->op == OP_NORM ? 2 : 0);
}

static bool is_launch(const struct fusion *u, int i)
{
    return u->stages[i] || u->fates[i].how == LAUNCHED;
}

// Collects the nodes of the chain that begins with node i, as many as there is room for.
static void collect(const struct fusion *u, int i, struct chain *c)
{
    const struct program *g = &u->p->program;
    int params = 0;
    *c = (struct chain){0};
    for (; i < g->n && c->n < PTX_ROW_NODES; i++) {
        struct tensor *n = g->nodes[i];
        if (!is_launch(u, i))
            continue;
        params += params_of(n);
        if (u->stages[i] || !can_chain(u, n) || params > PTX_ROW_PARAMS || (c->n && n->rows != c->nodes[0]->rows))
            return;
        c->nodes[c->n++] = n;
    }
}

// All values that the chain computes and reads are alive while it runs.
static void keep_alive(struct fusion *u, const struct chain *c)
{
    const int first = c->nodes[0]->id, last = c->nodes[c->n - 1]->id;
    for (int i = 0; i < c->n; i++) {
        struct fate *f = fuse_fate(u, c->nodes[i]);
        f->how = CHAINED;
        f->made = first;
        f->last = f->last >= 0 ? MAX(f->last, last) : -1;
        for (int j = 0; j < SRC_MAX; j++)
            if (c->nodes[i]->src[j]) {
                struct fate *from = fuse_fate(u, fuse_root(c->nodes[i]->src[j]));
                from->last = MAX(from->last, last);
            }
    }
}

int fuse_chains(struct fusion *u, struct error *err)
{
    struct chain c;
    for (int i = 0; i < u->p->program.n; i++) {
        if (u->fates[i].how != LAUNCHED || u->stages[i])
            continue;
        collect(u, i, &c);
        if (c.n < 2)
            continue;
        if (!(u->chains[i] = ARENA_NEW(&u->p->arena, struct chain)))
            return fail(err, E_MEMORY, "no memory for a plan");
        *u->chains[i] = c;
        keep_alive(u, &c);
    }
    return 0;
}

// ---- launches

struct writer {
    struct plan *p;
    const struct chain *chain;
    struct gpu_launch *l;
    struct ptx_row *row;
};

static int address_param(struct writer *w, uint64_t address)
{
    gpu_add_arg(w->l, ARG_ADDRESS, address);
    return w->row->n_params++;
}

static int floats_param(struct writer *w, const struct weight *weight, int64_t n, int *param, struct error *err)
{
    *param = -1;
    if (!weight)
        return 0;
    if (gpu_add_floats(w->p, w->l, weight->data, n, err))
        return -1;
    *param = w->row->n_params++;
    return 0;
}

// The number of the node in the chain, or -1.
static int number_of(const struct writer *w, struct tensor *n)
{
    for (int i = 0; n && i < w->row->n_nodes; i++)
        if (w->chain->nodes[i] == fuse_root(n))
            return i;
    return -1;
}

static int norm_of(struct writer *w, const struct tensor *n, struct ptx_row_node *to, struct error *err)
{
    int64_t group = n->p.norm.group ? n->p.norm.group : n->width, gains = n->p.norm.by_column ? n->width : group;
    to->kind = PTX_ROW_NORM;
    to->norm = (struct ptx_norm){
        .group = (uint32_t)group, .kind = n->p.norm.kind, .eps = n->p.norm.eps, .by_column = n->p.norm.by_column};
    return floats_param(w, n->w[0], gains, &to->gain, err) || floats_param(w, n->w[1], gains, &to->bias, err) ? -1 : 0;
}

static int kv_of(struct writer *w, const struct tensor *n, struct ptx_row_node *to, struct error *err)
{
    to->kind = PTX_ROW_KV;
    to->width = (uint32_t)n->src[0]->width;
    if (gpu_kv_of(w->p, n, n->p.kv.layer, n->p.kv.part, (int)n->p.kv.head_dim, &to->kv, err))
        return -1;
    to->y = address_param(w, to->kv.offset); // the same kernel serves equal layers
    to->kv.offset = 0;
    return 0;
}

static int describe(struct writer *w, const struct tensor *n, struct ptx_row_node *to, struct error *err)
{
    switch (n->op) {
    case OP_SLICE:
        to->kind = PTX_ROW_SLICE;
        to->slice = gpu_slice_of(n);
        return 0;
    case OP_JOIN:
        to->kind = PTX_ROW_JOIN;
        to->join = gpu_join_of(n);
        return 0;
    case OP_ROPE:
        to->kind = PTX_ROW_ROPE;
        to->rope = (struct ptx_rope){.head_dim = (uint32_t)n->p.rope.head_dim,
                                     .pairs = (uint32_t)n->src[1]->p.rope_table.n_pairs,
                                     .layout = n->p.rope.layout};
        return 0;
    case OP_NORM:
        return norm_of(w, n, to, err);
    case OP_KV_WRITE:
        return kv_of(w, n, to, err);
    default:
        to->kind = PTX_ROW_ELEMENT;
        to->element = gpu_elements_of(n);
        return 0;
    }
}

static int add_node(struct writer *w, struct tensor *n, struct error *err)
{
    struct ptx_row_node to = {.width = (uint32_t)n->width, .z = -1, .y = -1, .gain = -1, .bias = -1};
    to.a = number_of(w, n->src[0]);
    to.b = number_of(w, n->src[1]);
    to.x = address_param(w, gpu_value(w->p, n->src[0]));
    if (n->src[1])
        to.z = address_param(w, gpu_takes_part(n) ? gpu_second(w->p, n) : gpu_value(w->p, n->src[1]));
    if (n->op != OP_KV_WRITE)
        to.y = address_param(w, gpu_value(w->p, n));
    if (describe(w, n, &to, err))
        return -1;
    w->row->nodes[w->row->n_nodes++] = to;
    return 0;
}

int fuse_launch_chain(struct fusion *u, const struct chain *c, struct error *err)
{
    struct gpu_spec spec = {.kind = GPU_ROW};
    struct writer w = {u->p, c, gpu_launch_new(u->p, c->nodes[c->n - 1], err), &spec.row};
    if (!w.l)
        return -1;
    gpu_add_arg(w.l, ARG_STEP, 0);
    gpu_add_arg(w.l, ARG_POSITIONS, 0);
    gpu_add_arg(w.l, ARG_PAGES, 0);
    for (int i = 0; i < c->n; i++)
        if (add_node(&w, c->nodes[i], err))
            return -1;
    spec.row.dependent = w.l->dependent = gpu_starts_early(u->p);
    return gpu_add_kernel(u->p, w.l, &spec, 1, err);
}
