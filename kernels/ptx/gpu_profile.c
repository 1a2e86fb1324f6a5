// Measures the time of each node by the GPU's clock, for plans compiled with `profile`. The steps of such plans are
// not replayed as a graph; each launch is made by itself between two events.
//
// A launch that waits for nothing has an overhead of some microseconds, which a replayed step does not have. The
// times of small nodes are therefore upper bounds, unless each launch is repeated (card_repeat).
#include "kernels/card.h"
#include "kernels/ptx/gpu.h"

int gpu_profile_new(struct plan *p, struct error *err)
{
    p->repeats = 1;
    p->times = ARENA_ARRAY(&p->arena, struct node_time, p->program.n);
    p->taken = ARENA_ARRAY(&p->arena, struct node_time, p->program.n);
    return p->times && p->taken ? 0 : fail(err, E_MEMORY, "no memory for a profile");
}

// Returns the node to which the time of a launch is added. A product and a sum in one launch count as the product,
// which takes most of the time.
static const struct tensor *owner(const struct plan *p, const struct gpu_launch *g)
{
    for (int i = 0; g->matmul.n_in && i < SRC_MAX; i++)
        if (g->node->src[i] && p->into[g->node->src[i]->id] == g->node)
            return g->node->src[i];
    return g->node;
}

// Adds the time of a launch. That of a joined product is divided by the outputs of its sections.
static void add_time(struct plan *p, const struct gpu_launch *g, double ns)
{
    const uint32_t n = MAX(g->matmul.n_sections, 1u);
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *node = n > 1 ? gpu_joined(p, g->node, (int)i) : owner(p, g);
        struct node_time *t = &p->times[node->id];
        const double part = n > 1 ? (double)g->matmul.sections[i].n_out / g->matmul.n_out : 1;
        *t = (struct node_time){node, t->calls + 1, t->ns + ns * part};
    }
}

int gpu_profile_launch(struct plan *p, const struct gpu_launch *g, const int rows[ROWS_KINDS], struct error *err)
{
    struct driver *d = p->gpu->driver;
    double seconds;
    if (driver_mark(d, 0, err))
        return -1;
    for (int i = 0; i < p->repeats; i++)
        if (gpu_launch_one(p, g, rows, err))
            return -1;
    if (driver_mark(d, 1, err) || driver_between(d, &seconds, err))
        return -1;
    add_time(p, g, seconds * 1e9 / p->repeats);
    return 0;
}

// Nodes that are computed by the launch of another node are not listed.
void gpu_profile(struct plan *p, const struct node_time **times, int *n, double *wait_ns)
{
    *n = 0;
    *wait_ns = 0;
    *times = p->taken;
    for (int i = 0; p->times && i < p->program.n; i++) {
        if (p->times[i].calls)
            p->taken[(*n)++] = p->times[i];
        p->times[i] = (struct node_time){0};
    }
}

void card_repeat(struct plan *p, int n)
{
    p->repeats = MAX(n, 1);
}
