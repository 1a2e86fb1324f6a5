// Shows what a machine has loaded, its kernels, and what a plan launches, with estimates of the cost of both.
#include "kernels/card.h"
#include "kernels/cost.h"
#include "kernels/ptx/gpu.h"
#include "kernels/ptx/loads_ahead.h"
#include "kernels/ptx/loop_cost.h"

#include <math.h>

bool card_kernel(const struct machine *m, int i, struct card_kernel *out)
{
    const struct gpu *g = (const struct gpu *)m;
    if (i < 0 || i >= g->n_kernels)
        return false;
    const struct gpu_kernel *k = g->kernels[i];
    struct str text = {k->text, k->text_size};
    struct ptx_loads loads = ptx_loads_ahead(text);
    *out = (struct card_kernel){.text = text,
                                .name = k->launch.entry,
                                .users = k->users,
                                .per_product = ptx_loop_cost(text),
                                .ahead = loads.ahead,
                                .turns = loads.turns,
                                .ring = loads.ring,
                                .early = loads.early,
                                .shared = k->launch.shared,
                                .threads = k->launch.block[0] * k->launch.block[1] * k->launch.block[2]};
    return true;
}

// The matrix in GPU memory at an address that a launch gets; NULL: another argument.
static const struct gpu_weight *matrix_at(const struct gpu *g, const struct gpu_arg *a)
{
    for (int i = 0; a->kind == ARG_ADDRESS && i < g->n_weights; i++)
        if (g->weights[i].tiles && g->weights[i].at == a->at)
            return &g->weights[i];
    return NULL;
}

// Adds the product with a matrix. Products with the same matrix are alike.
static void add_product(const struct plan *p, const struct gpu_weight *w, int n_rows, struct card_launch *to)
{
    const struct cost_step step = {.n_tokens = n_rows, .n_outputs = 1, .n_seqs = 1};
    for (int i = 0; i < p->program.n; i++) {
        const struct tensor *n = p->program.nodes[i];
        if ((n->op != OP_MATMUL && n->op != OP_EXPERT_MATMUL) || n->w[0]->data != w->data)
            continue;
        struct cost c = cost_of_node(n, &step);
        to->weight_bytes += c.bytes;
        to->products += c.products;
        return;
    }
}

// The places that a product computes for each that there is. The last group of each expert is not full. Of E experts, of
// which each row chooses u at random, one has n of t rows with probability C(t, n) p^n (1 - p)^(t - n), where p = u / E.
static double padding_of(const struct ptx_matmul *m, uint32_t class, double rows)
{
    double p = (double)m->n_used / m->n_experts, groups = 0;
    if (!m->n_used || class == 1)
        return 1;
    for (double n = 1; n <= rows; n++) {
        double chosen = lgamma(rows + 1) - lgamma(n + 1) - lgamma(rows - n + 1) + n * log(p);
        double others = n < rows ? (rows - n) * log1p(-p) : 0;
        groups += exp(chosen + others) * ceil(n / class);
    }
    return groups * class / (rows * p);
}

static int index_of(const struct gpu *g, const struct gpu_kernel *k)
{
    int i = 0;
    while (i < g->n_kernels && g->kernels[i] != k)
        i++;
    return i < g->n_kernels ? i : -1;
}

bool card_launch(const struct plan *p, int n_rows, int i, struct card_launch *out)
{
    const int rows[ROWS_KINDS] = {[ROWS_TOKENS] = n_rows, [ROWS_OUTPUTS] = 1};
    const struct gpu_list *list = &p->lists[gpu_list_of(p, rows)];
    struct gpu_shape shape;
    if (i < 0 || i >= list->n_launches)
        return false;
    const struct gpu_launch *l = &list->launches[i];
    *out = (struct card_launch){.kernel = -1, .whole = -1};
    if (!gpu_shape_of(p, l, rows, &shape))
        return true;
    out->kernel = index_of(p->gpu, shape.kernel);
    out->ctas = (double)shape.grid[0] * shape.grid[1] * shape.grid[2];
    out->most_ctas = l->most_ctas;
    if (list == &p->lists[GPU_ONE_ROW] && gpu_whole_step(p, i, rows, &out->begins))
        out->whole = index_of(p->gpu, p->whole.kernel);
    bool multiplies = l->matmul.n_in || l->most_ctas; // other launches look up rows of a matrix
    for (int a = 0; multiplies && a < l->n_args; a++) {
        const struct gpu_weight *w = matrix_at(p->gpu, &l->args[a]);
        if (w)
            add_product(p, w, n_rows, out);
    }
    out->products *= padding_of(&l->matmul, shape.class, n_rows);
    return true;
}
