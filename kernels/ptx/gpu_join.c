// Chooses the products of several rows that share a launch, which emit_matmul_joined.c describes.
//
// Products are joined if they read the same value, their weights have one type, and either all have a bias or none: Q, K
// and V, a gate and its up, the projections of a delta net. A product with a weight of another type (V is often stored in
// more bits than K) has a launch of its own, and so have products with experts and those that a sum takes in. The launch
// stands at the place of the first; as all read one value, the others could run there as well.
//
// One class of rows serves all sections, and all have one number of rows. A class has the same bits as any other, so
// products may be joined in one plan and not in another, as in one with taps.
#include "kernels/ptx/gpu.h"

static bool is_alike(const struct tensor *a, const struct tensor *b)
{
    return a->src[0] == b->src[0] && a->w[0]->type == b->w[0]->type && !a->w[1] == !b->w[1];
}

static bool can_join(const struct plan *p, const struct tensor *n)
{
    return n->op == OP_MATMUL && !p->into[n->id] && !p->first[n->id];
}

void gpu_join(struct plan *p)
{
    const struct program *g = &p->program;
    for (int i = 0; i < g->n; i++) {
        const struct tensor *first = g->nodes[i];
        int64_t outputs = first->width;
        if (!can_join(p, first))
            continue;
        for (int j = i + 1, n = 1; j < g->n && n < PTX_SECTIONS; j++) {
            const struct tensor *other = g->nodes[j];
            if (!can_join(p, other) || !is_alike(first, other) || outputs + other->width > PTX_OUTPUTS_MAX)
                continue;
            p->first[i] = p->first[j] = first;
            outputs += other->width;
            n++;
        }
    }
}

const struct tensor *gpu_joined(const struct plan *p, const struct tensor *n, int i)
{
    for (int j = n->id; j < p->program.n; j++)
        if (j == n->id || p->first[j] == n)
            if (!i--)
                return p->program.nodes[j];
    return NULL;
}

static int add_section(struct plan *p, struct gpu_launch *l, const struct tensor *n, struct ptx_matmul *m,
                       struct error *err)
{
    const struct weight *w = n->w[0], *bias = n->w[1];
    if (gpu_add_tiles(p, l, w, err))
        return -1;
    gpu_add_arg(l, ARG_ADDRESS, gpu_value(p, n));
    if (bias ? gpu_add_floats(p, l, bias->data, w->ne[1], err) : (gpu_add_arg(l, ARG_ADDRESS, 0), 0))
        return -1;
    m->n_out += (uint32_t)n->width;
    m->sections[m->n_sections++] = (struct ptx_section){(uint32_t)w->ne[1], (uint32_t)(4 * n->width)};
    return 0;
}

int gpu_join_sections(struct plan *p, struct gpu_launch *l, const struct tensor *n, struct ptx_matmul *m,
                      struct error *err)
{
    const struct tensor *other;
    if (p->list != &p->lists[GPU_ANY_ROWS] || p->first[n->id] != n)
        return 0;
    m->sections[m->n_sections++] = (struct ptx_section){m->n_out, m->y_stride};
    for (int i = 1; (other = gpu_joined(p, n, i)); i++)
        if (add_section(p, l, other, m, err))
            return -1;
    return 0;
}

// The arguments of a product are those of emit_matmul.h: its weights are the second, and of each further section the first
// of three.
void gpu_tiles_of(const struct gpu_launch *l, uint64_t tiles[PTX_SECTIONS])
{
    for (uint32_t i = 0; i < MAX(l->matmul.n_sections, 1u); i++)
        tiles[i] = l->args[i ? 5 + 3 * i : 1].at;
}
