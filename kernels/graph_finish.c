// The checks of a whole graph: its names, the KV cache, the result; and the limits that steps are held to.
#include "kernels/graph_parts.h"

#include <stdlib.h>

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct tensor *const *)a)->name, (*(struct tensor *const *)b)->name);
}

static bool check_names(struct graph *g)
{
    struct tensor **sorted = ARENA_ARRAY(&g->arena, struct tensor *, (size_t)g->n_nodes);
    if (!sorted)
        return graph_refuse_memory(g);
    memcpy(sorted, g->nodes, (size_t)g->n_nodes * sizeof(struct tensor *));
    qsort(sorted, (size_t)g->n_nodes, sizeof(*sorted), by_name);
    for (int i = 1; i < g->n_nodes; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            return graph_refuse(g, "%s: two nodes have this name", sorted[i]->name);
    return true;
}

// Keys and values of each KV layer must be written exactly once. Attention takes the writing nodes as sources, so
// they come before it. With attention both ways nothing of the cache outlives the step, and a layer may be written again
// behind one that uses another: what is written then depends on all rows of the attention between, and so it comes after
// all that read what was there.
static bool check_kv(struct graph *g)
{
    const struct tensor *(*written)[2] =
        arena_array(&g->arena, (size_t)g->n_kv, sizeof(*written), _Alignof(struct tensor *));
    if (!written)
        return graph_refuse_memory(g);
    int last_written = -1; // the KV layer whose values were written last
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tensor *n = g->nodes[i];
        if (n->op != OP_KV_WRITE)
            continue;
        const struct tensor **slot = &written[n->p.kv.layer][n->p.kv.part];
        if (*slot && !(g->both_ways && last_written != n->p.kv.layer))
            return graph_refuse(g, "%s: %s has written this part of KV layer %d", n->name, (*slot)->name,
                                n->p.kv.layer);
        *slot = n;
        last_written = n->p.kv.part == KV_VALUE ? n->p.kv.layer : last_written;
    }
    for (int i = 0; i < g->n_kv; i++)
        for (int part = 0; part < 2; part++)
            if (!written[i][part] && !(part == KV_VALUE && g->kv[i].keys_only))
                return graph_refuse(g, "KV layer %d: its %s are never written", i, part == KV_KEY ? "keys" : "values");
    return true;
}

static void gather_limits(struct graph *g)
{
    bool windowed = true;
    g->token_rows = g->position_rows = INT64_MAX;
    g->window = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tensor *n = g->nodes[i];
        if (n->op == OP_EMBED && n->p.embed.input != INPUT_ZERO) {
            int64_t *least = n->p.embed.input == INPUT_TOKENS ? &g->token_rows : &g->position_rows;
            *least = MIN(*least, n->w[0]->ne[1]);
        }
        if (n->op == OP_ATTENTION) {
            windowed = windowed && n->p.attn.window > 0;
            g->window = MAX(g->window, n->p.attn.window);
        }
    }
    if (!windowed || g->both_ways)
        g->window = 0;
}

// Either all attention of a graph is both ways, or none of it. A graph with state is computed row by row.
static bool check_both_ways(struct graph *g)
{
    const struct tensor *first = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tensor *n = g->nodes[i];
        if (n->op != OP_ATTENTION)
            continue;
        if (first && first->p.attn.both_ways != n->p.attn.both_ways)
            return graph_refuse(g, "%s: attention both ways beside %s, which is not", n->name, first->name);
        first = first ? first : n;
    }
    g->both_ways = first && first->p.attn.both_ways;
    if (g->both_ways && g->state_floats)
        return graph_refuse(g, "%s: attention both ways in a graph with state", first->name);
    return true;
}

int graph_finish(struct graph *g, struct tensor *logits, struct error *err)
{
    bool known = logits && logits->id >= 0 && logits->id < g->n_nodes && g->nodes[logits->id] == logits;
    if (!known)
        graph_refuse(g, "the logits are no value of this graph");
    else if (!is_plain(logits->op) || logits->rows != ROWS_OUTPUTS)
        graph_refuse(g, "%s: logits are plain rows of outputs, this is %s of %s", logits->name, op_name(logits->op),
                     rows_name(logits->rows));
    if (g->fault.code != E_OK || !check_names(g) || !check_both_ways(g) || !check_kv(g)) {
        if (err)
            *err = g->fault;
        return -1;
    }
    gather_limits(g);
    g->logits = logits;
    return 0;
}
