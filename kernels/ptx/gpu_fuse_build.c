// Describes the kernel of a stage, and adds the arguments of its launch. See gpu_fuse.h for the interface.
#include "kernels/ptx/gpu_fuse.h"

// ---- parameters

// Counts a parameter and returns its number. Sets `full` if there are too many.
static int added(struct builder *b)
{
    b->full = b->full || b->f->n_params == FUSED_PARAMS;
    return b->full ? 0 : b->f->n_params++;
}

static int address_param(struct builder *b, uint64_t address)
{
    if (b->l && b->f->n_params < FUSED_PARAMS)
        gpu_add_arg(b->l, ARG_ADDRESS, address);
    return added(b);
}

static int value_param(struct builder *b, const struct tensor *n)
{
    return address_param(b, gpu_value(b->u->p, n));
}

static int floats_param(struct builder *b, const struct weight *w, int64_t n, int *param, struct error *err)
{
    *param = -1;
    if (!w)
        return 0;
    if (b->l && b->f->n_params < FUSED_PARAMS && gpu_add_floats(b->u->p, b->l, w->data, n, err))
        return -1;
    *param = added(b);
    return 0;
}

static int tiles_param(struct builder *b, const struct weight *w, int *param, struct error *err)
{
    if (b->l && b->f->n_params < FUSED_PARAMS && gpu_add_tiles(b->u->p, b->l, w, err))
        return -1;
    *param = added(b);
    return 0;
}

static int norm_params(struct builder *b, const struct tensor *n, struct ptx_fused_node *to, struct error *err)
{
    int64_t group = n->p.norm.group ? n->p.norm.group : n->width;
    to->kind = FUSED_NORM;
    to->norm.kind = n->p.norm.kind;
    to->norm.group = (uint32_t)group;
    to->norm.eps = n->p.norm.eps;
    return floats_param(b, n->w[0], group, &to->param, err) || floats_param(b, n->w[1], group, &to->other, err) ? -1
                                                                                                                : 0;
}

static bool in_prologue(const struct builder *b, const struct tensor *n)
{
    const struct fate *f = fuse_fate(b->u, n);
    return f->how == INLINED || (f->how == CARRIED && f->stage == b->stage);
}

// Sets *at to the index of n in the prologue. Adds n and everything that it needs, unless they are there already;
// values that other launches compute are loaded from memory.
static int row_node(struct builder *b, struct tensor *n, int *at, struct error *err)
{
    struct ptx_fused_node to = {.param = -1, .other = -1, .store = -1};
    n = fuse_root(n);
    for (*at = 0; *at < b->f->n_prologue; ++*at)
        if (b->rows[*at] == n)
            return 0;
    if (!in_prologue(b, n)) {
        to.kind = FUSED_LOAD;
        to.param = value_param(b, n);
    } else {
        if (row_node(b, n->src[0], &to.a, err) || (n->src[1] && row_node(b, n->src[1], &to.b, err)))
            return -1;
        if (n->op == OP_NORM) {
            if (norm_params(b, n, &to, err))
                return -1;
        } else {
            to.kind = FUSED_ELEMENT;
            to.element = gpu_elements_of(n);
        }
        if (fuse_fate(b->u, n)->how == CARRIED)
            to.store = value_param(b, n);
    }
    b->full = b->full || b->f->n_prologue == FUSED_NODES;
    *at = b->full ? 0 : b->f->n_prologue++;
    b->rows[*at] = n;
    b->f->prologue[*at] = to;
    return 0;
}

static int build_prologue(struct builder *b, struct error *err)
{
    struct tensor *x = b->stage->x;
    int at;
    b->f->q8 = x->op == OP_QUANTIZE && x->p.quantize.form == ACT_Q8;
    b->f->halves = x->op == OP_QUANTIZE && !b->f->q8;
    if (!in_prologue(b, x)) {
        b->f->source = value_param(b, x);
        return 0;
    }
    return row_node(b, x->op == OP_QUANTIZE ? x->src[0] : x, &at, err);
}

// ---- the description of a section

static int scale_param(struct builder *b, const struct weight *w, int *param, struct error *err)
{
    *param = -1;
    if (!w->scale)
        return 0;
    if (b->l && b->f->n_params < FUSED_PARAMS && gpu_add_floats(b->u->p, b->l, w->scale, w->ne[2], err))
        return -1;
    *param = added(b);
    return 0;
}

static int add_leg(struct builder *b, struct ptx_fused_section *to, const struct tensor *n, struct ptx_fused_node *node,
                   struct error *err)
{
    struct ptx_fused_leg *leg = &to->legs[to->n_legs];
    const struct weight *w = n->w[0];
    leg->type = w->type;
    leg->scale = -1;
    node->kind = FUSED_SUM;
    node->a = to->n_legs++;
    if (tiles_param(b, w, &leg->w, err) || floats_param(b, n->w[1], w->ne[1] * w->ne[2], &leg->bias, err))
        return -1;
    return n->op == OP_EXPERT_MATMUL ? scale_param(b, w, &leg->scale, err) : 0;
}

// The experts of a section's legs. The weights of a sum come with the ids.
static void describe_experts(struct builder *b, const struct section *s, struct ptx_fused_section *to)
{
    const struct tensor *e = s->expert, *route = e->src[1];
    to->experts = (struct ptx_fused_experts){.n_used = (uint32_t)e->p.expert.n_used,
                                             .n_experts = (uint32_t)e->w[0]->ne[2],
                                             .each = route->p.route.kind == ROUTE_EACH,
                                             .apart = b->stage->parts > 1,
                                             .summed = s->combine,
                                             .plain = s->combine && s->combine->p.expert.plain,
                                             .route = -1};
    if (!to->experts.each || (to->experts.summed && !to->experts.plain))
        to->experts.route = value_param(b, route);
}

// Adds a node that loads a value from memory to the section. made: the node of the program that each node of the section
// computes or loads whole.
static int column_load(struct builder *b, struct ptx_fused_section *to, struct tensor **made, struct tensor *whole,
                       uint64_t address)
{
    if (to->n_nodes == FUSED_NODES) {
        b->full = true;
        return 0;
    }
    made[to->n_nodes] = whole;
    to->nodes[to->n_nodes] = (struct ptx_fused_node){.kind = FUSED_LOAD, .other = -1, .store = -1};
    to->nodes[to->n_nodes].param = address_param(b, address);
    return to->n_nodes++;
}

// Returns the index of source i of n among the section's nodes; it is loaded if it is not there.
static int column_source(struct builder *b, struct ptx_fused_section *to, struct tensor **made, const struct tensor *n,
                         int i)
{
    struct tensor *src = fuse_root(n->src[i]);
    if (i && gpu_takes_part(n))
        return column_load(b, to, made, NULL, gpu_second(b->u->p, n));
    for (int j = 0; j < to->n_nodes; j++)
        if (made[j] == src)
            return j;
    return column_load(b, to, made, src, gpu_value(b->u->p, src));
}

// The layer's offset in a page is a parameter of the kernel, so that equal layers share a kernel.
static int kv_param(struct builder *b, const struct tensor *n, struct ptx_fused_node *to, struct error *err)
{
    if (gpu_kv_of(b->u->p, n, n->p.kv.layer, n->p.kv.part, (int)n->p.kv.head_dim, &to->kv, err))
        return -1;
    if (b->l && b->f->n_params < FUSED_PARAMS)
        gpu_add_arg(b->l, ARG_ADDRESS, to->kv.offset);
    to->kv.offset = 0;
    to->param = added(b);
    return 0;
}

static int column_params(struct builder *b, const struct tensor *n, struct ptx_fused_node *to, struct error *err)
{
    switch (n->op) {
    case OP_NORM:
        return norm_params(b, n, to, err);
    case OP_ROPE:
        to->kind = FUSED_ROPE;
        to->rope.head_dim = (uint32_t)n->p.rope.head_dim;
        to->rope.pairs = (uint32_t)n->src[1]->p.rope_table.n_pairs;
        to->rope.layout = n->p.rope.layout;
        to->param = value_param(b, n->src[1]);
        return 0;
    case OP_KV_WRITE:
        to->kind = FUSED_KV;
        return kv_param(b, n, to, err);
    case OP_EXPERT_COMBINE:
        to->kind = FUSED_WEIGH;
        to->param = value_param(b, n->src[1]);
        return 0;
    default:
        to->kind = FUSED_ELEMENT;
        to->element = gpu_elements_of(n);
        return 0;
    }
}

// Describes node n of a section. The sum of experts' products is described in the place of the products.
static int column_node(struct builder *b, const struct section *s, struct ptx_fused_section *to, struct tensor **made,
                       struct tensor *n, struct ptx_fused_node *node, struct error *err)
{
    if (n->op == OP_MATMUL || n->op == OP_EXPERT_MATMUL)
        return add_leg(b, to, n, node, err);
    if (n == s->combine) {
        node->kind = FUSED_SUM;
        node->a = 0;
        return 0;
    }
    node->a = column_source(b, to, made, n, 0);
    if (n->src[1] && n->op != OP_ROPE && n->op != OP_EXPERT_COMBINE)
        node->b = column_source(b, to, made, n, 1);
    return column_params(b, n, node, err);
}

static int build_section(struct builder *b, const struct section *s, struct ptx_fused_section *to, struct error *err)
{
    struct tensor *made[FUSED_NODES];
    to->n_out = (uint32_t)s->n_out;
    to->unit = s->unit;
    if (s->expert)
        describe_experts(b, s, to);
    for (int i = 0; i < s->n_nodes; i++) {
        struct tensor *n = s->nodes[i];
        struct ptx_fused_node node = {.param = -1, .other = -1, .store = -1};
        if (column_node(b, s, to, made, n, &node, err))
            return -1;
        if (s->combine && n == s->expert)
            continue;
        if (n->op != OP_KV_WRITE && fuse_fate(b->u, n)->last >= 0)
            node.store = value_param(b, n);
        b->full = b->full || to->n_nodes == FUSED_NODES;
        if (b->full)
            return 0;
        made[to->n_nodes] = n;
        to->nodes[to->n_nodes++] = node;
    }
    return 0;
}

static int build_route(struct builder *b, const struct tensor *n, struct ptx_fused_route *to, struct error *err)
{
    to->route = gpu_route_of(n);
    to->logits = value_param(b, fuse_root(n->src[0]));
    to->y = value_param(b, n);
    return floats_param(b, n->w[0], n->src[0]->width, &to->bias, err);
}

static int build_routes(struct builder *b, struct error *err)
{
    const struct stage *s = b->stage;
    for (int i = 0; i < s->n_routes; i++)
        if (build_route(b, s->routes[i], &b->f->routes[b->f->n_routes++], err))
            return -1;
    if (s->n_routes)
        b->f->arrivals = address_param(b, b->u->p->arrivals);
    return 0;
}

int fuse_build(struct builder *b, struct error *err)
{
    const struct stage *s = b->stage;
    *b->f = (struct ptx_fused){.n_in = (uint32_t)s->sections[0].nodes[0]->w[0]->ne[0], .parts = (uint32_t)s->parts};
    if (build_prologue(b, err))
        return -1;
    for (int i = 0; i < s->n_sections; i++)
        if (build_section(b, &s->sections[i], &b->f->sections[b->f->n_sections++], err))
            return -1;
    return build_routes(b, err);
}
