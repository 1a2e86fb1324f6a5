// The least cost of a step, node by node: products, attention and embeddings; other operations count as nothing.
#include "kernels/cost.h"

#include <math.h>

static double rows_of(const struct tensor *n, const struct cost_step *s)
{
    return n->rows == ROWS_TOKENS ? s->n_tokens : s->n_outputs;
}

static double bytes_of(const struct weight *w)
{
    return w ? (double)w->row_bytes * (double)w->ne[1] : 0; // one matrix
}

static struct cost of_matmul(const struct tensor *n, double rows)
{
    const struct weight *w = n->w[0];
    return (struct cost){rows > 0 ? bytes_of(w) : 0, rows * (double)w->ne[0] * (double)w->ne[1]};
}

// With E experts and t rows that choose u each at random, an expert is chosen by none with probability (1 - u/E)^t.
static struct cost of_experts(const struct tensor *n, double rows)
{
    const struct weight *w = n->w[0];
    double experts = (double)w->ne[2], used = n->p.expert.n_used;
    double met = experts * (1 - pow(1 - used / experts, rows));
    return (struct cost){met * bytes_of(w), rows * used * (double)w->ne[0] * (double)w->ne[1]};
}

// The pairs of the first n rows of a sequence, whose positions have runs of `window`.
static double seen_in_chunks(double n, int window)
{
    double whole = floor(n / window), rest = n - whole * window;
    return whole * window * (window + 1.0) / 2 + rest * (rest + 1) / 2;
}

// The number of (row, seen position) pairs of a sequence. Each row sees its own position and those before it, and of
// these only the last `window` (0: all); both ways, all rows of the step.
static double positions_seen(int depth, double rows, const struct tensor *n)
{
    const int window = n->p.attn.window;
    if (n->p.attn.both_ways)
        return rows * (window ? fmin(rows, window / 2 * 2 + 1) : rows);
    if (n->p.attn.chunked)
        return seen_in_chunks(depth + rows, window) - seen_in_chunks(depth, window);
    double all = rows * depth + rows * (rows + 1) / 2;
    if (!window || depth + rows <= window)
        return all;
    double growing = fmax(0, fmin(rows, window - depth)); // rows that see fewer positions than the window
    return growing * depth + growing * (growing + 1) / 2 + (rows - growing) * window;
}

static struct cost of_attention(const struct tensor *n, const struct cost_step *s)
{
    double rows = (double)s->n_tokens / s->n_seqs, dims = n->p.attn.dim_k + n->p.attn.dim_v;
    double held = n->p.attn.both_ways ? rows
                  : n->p.attn.chunked ? s->depth % n->p.attn.window + rows
                  : n->p.attn.window  ? fmin(s->depth + rows, n->p.attn.window - 1 + rows)
                                      : s->depth + rows;
    double row_bytes = (double)dtype_row_bytes(s->kv_type[KV_KEY], n->p.attn.dim_k) +
                       (double)dtype_row_bytes(s->kv_type[KV_VALUE], n->p.attn.dim_v);
    return (struct cost){
        s->n_seqs * held * n->p.attn.n_head_kv * row_bytes,
        s->n_seqs * positions_seen(s->depth, rows, n) * n->p.attn.n_head * dims,
    };
}

// A row multiplies the state of each head three times, and changes it once: it is read and written once a sequence.
static struct cost of_delta(const struct tensor *n, const struct cost_step *s)
{
    double floats = (double)n->p.delta.n_head * n->p.delta.dim_k * n->p.delta.dim_v;
    return (struct cost){2 * sizeof(float) * floats * s->n_seqs, 3 * floats * s->n_tokens};
}

// A row multiplies each float of the state three times.
static struct cost of_scan(const struct tensor *n, const struct cost_step *s)
{
    double floats = (double)n->width * n->p.scan.n_state;
    return (struct cost){2 * sizeof(float) * floats * s->n_seqs, 3 * floats * s->n_tokens};
}

struct cost cost_of_node(const struct tensor *n, const struct cost_step *s)
{
    double rows = rows_of(n, s);
    switch (n->op) {
    case OP_MATMUL:
        return of_matmul(n, rows);
    case OP_EXPERT_MATMUL:
        return of_experts(n, rows);
    case OP_ATTENTION:
        return of_attention(n, s);
    case OP_DELTA_RULE:
        return of_delta(n, s);
    case OP_SELECTIVE_SCAN:
        return of_scan(n, s);
    case OP_EMBED:
        return (struct cost){rows * (double)n->w[0]->row_bytes, 0};
    default:
        return (struct cost){0};
    }
}

struct cost cost_of_graph(const struct graph *g, const struct cost_step *s)
{
    struct cost sum = {0};
    for (int i = 0; i < g->n_nodes; i++) {
        struct cost c = cost_of_node(g->nodes[i], s);
        sum.bytes += c.bytes;
        sum.products += c.products;
    }
    return sum;
}
