// Each distinct input (with experts, each pair of input and route) has one set of sums, in doubles, which all
// matrices with this input share. The input of experts and its route are tapped in either order within a step, so the
// rows of whichever comes first are kept until the other arrives.
#include "engine/quantize/importance_collector.h"

#include <math.h>
#include <stdlib.h>

// The sums over the rows of one input, or, with experts, over the rows that were routed to each expert. Matrices with
// the same input (queries, keys and values) share the sums.
struct gather {
    const struct tensor *input, *route; // route is NULL without experts
    int64_t n_columns;
    int n_experts;   // 1 without a route
    double *sums;    // [n_experts][n_columns]
    int64_t *counts; // [n_experts]
};
struct matrix {
    const char *name;
    int gather;
};

// A tapped node. For inputs of experts and for routes it also holds the values of the last step, because the input may
// be computed before or after the route that distributes its rows.
struct seen {
    const struct tensor *node;
    int64_t n_steps; // steps so far
    int n_rows;
    float *rows; // [n_rows][width], for inputs of experts and for routes only
    size_t cap;  // of rows, in floats
};

struct importance_collector {
    struct taps taps;
    const struct tensor **nodes; // [n_seen]
    struct seen *seen;
    struct gather *gathers;
    struct matrix *matrices;
    int n_seen, n_gathers, n_matrices;
    bool failed; // memory was short
};

// --- adding up the inputs of a step ---

static void add_row(struct gather *g, int expert, const float *x)
{
    double *sums = g->sums + (int64_t)expert * g->n_columns;
    g->counts[expert]++;
    for (int64_t j = 0; j < g->n_columns; j++)
        sums[j] += (double)x[j] * x[j];
}

static struct seen *seen_of(struct importance_collector *c, const struct tensor *node)
{
    for (int i = 0; i < c->n_seen; i++)
        if (c->seen[i].node == node)
            return &c->seen[i];
    return NULL;
}

// Slot k of a row was routed to expert ids[k]. The input has one row for all slots, or one per slot.
static void add_routed(struct gather *g, const struct seen *x, const struct seen *route)
{
    int n_used = route->node->p.route.n_used;
    int64_t width = x->node->width, route_width = route->node->width;
    bool shared = width == g->n_columns;
    for (int row = 0; row < x->n_rows; row++) {
        const float *values = x->rows + row * width;
        for (int k = 0; k < n_used; k++) {
            int32_t id;
            memcpy(&id, route->rows + row * route_width + n_used + k, sizeof id);
            add_row(g, id, values + (shared ? 0 : k * g->n_columns));
        }
    }
}

static void keep(struct importance_collector *c, struct seen *s, const float *rows, size_t stride, int n_rows)
{
    size_t width = (size_t)s->node->width, n = width * (size_t)n_rows;
    if (n > s->cap) {
        float *grown = realloc(s->rows, n * sizeof *grown);
        if (!grown) {
            c->failed = true;
            return;
        }
        s->rows = grown;
        s->cap = n;
    }
    for (int i = 0; i < n_rows; i++)
        memcpy(s->rows + (size_t)i * width, rows + (size_t)i * stride, width * sizeof *rows);
}

static void see(void *arg, int i, const float *rows, size_t stride, int n_rows)
{
    struct importance_collector *c = arg;
    struct seen *s = &c->seen[i];
    bool kept = false;
    s->n_steps++;
    s->n_rows = n_rows;
    for (int k = 0; k < c->n_gathers && !c->failed; k++) {
        struct gather *g = &c->gathers[k];
        if (g->input == s->node && !g->route)
            for (int row = 0; row < n_rows; row++)
                add_row(g, 0, rows + (size_t)row * stride);
        if (!g->route || (g->input != s->node && g->route != s->node))
            continue;
        if (!kept)
            keep(c, s, rows, stride, n_rows);
        kept = true;
        struct seen *x = seen_of(c, g->input), *route = seen_of(c, g->route);
        if (!c->failed && x->n_steps == route->n_steps) // both the input and the route of this step are known
            add_routed(g, x, route);
    }
}

// --- choosing the tapped nodes ---

static bool is_wanted(const struct tensor *n, bool output)
{
    if (n->op != OP_MATMUL && n->op != OP_EXPERT_MATMUL)
        return false;
    return !strncmp(n->w[0]->name, "blk.", 4) || (output && !strcmp(n->w[0]->name, "output.weight"));
}

static int add_seen(struct importance_collector *c, const struct tensor *node)
{
    for (int i = 0; i < c->n_seen; i++)
        if (c->seen[i].node == node)
            return i;
    c->nodes[c->n_seen] = node;
    c->seen[c->n_seen] = (struct seen){.node = node};
    return c->n_seen++;
}

static int add_gather(struct importance_collector *c, const struct tensor *n, struct error *err)
{
    const struct tensor *route = n->op == OP_EXPERT_MATMUL ? n->src[1] : NULL;
    for (int i = 0; i < c->n_gathers; i++)
        if (c->gathers[i].input == n->src[0] && c->gathers[i].route == route)
            return i;
    struct gather *g = &c->gathers[c->n_gathers];
    *g = (struct gather){n->src[0], route, n->w[0]->ne[0], route ? (int)n->w[0]->ne[2] : 1, NULL, NULL};
    g->sums = calloc((size_t)g->n_columns * (size_t)g->n_experts, sizeof *g->sums);
    g->counts = calloc((size_t)g->n_experts, sizeof *g->counts);
    c->n_gathers++;
    add_seen(c, g->input);
    if (route)
        add_seen(c, route);
    return g->sums && g->counts ? c->n_gathers - 1
                                : fail(err, E_MEMORY, "no memory for the importance of %s", n->w[0]->name);
}

static int add_matrix(struct importance_collector *c, const struct tensor *n, struct error *err)
{
    int gather = add_gather(c, n, err);
    if (gather < 0)
        return -1;
    for (int i = 0; i < c->n_matrices; i++)
        if (!strcmp(c->matrices[i].name, n->w[0]->name)) // part of a matrix that is listed already
            return 0;
    c->matrices[c->n_matrices++] = (struct matrix){n->w[0]->name, gather};
    return 0;
}

int importance_collector_open(struct importance_collector **out, const struct graph *g, bool output, struct error *err)
{
    struct importance_collector *c = calloc(1, sizeof *c);
    size_t n = (size_t)g->n_nodes + 1;
    *out = NULL;
    if (!c)
        return fail(err, E_MEMORY, "no memory for an importance matrix");
    c->nodes = calloc(2 * n, sizeof *c->nodes);
    c->seen = calloc(2 * n, sizeof *c->seen);
    c->gathers = calloc(n, sizeof *c->gathers);
    c->matrices = calloc(n, sizeof *c->matrices);
    bool ok = c->nodes && c->seen && c->gathers && c->matrices;
    int status = ok ? 0 : fail(err, E_MEMORY, "no memory for an importance matrix");
    for (int i = 0; !status && i < g->n_nodes; i++)
        if (is_wanted(g->nodes[i], output))
            status = add_matrix(c, g->nodes[i], err);
    if (!status && c->n_matrices == 0)
        status = fail(err, E_MODEL, "this model has no matrices blk.N: there is nothing to collect");
    if (status) {
        importance_collector_close(c);
        return -1;
    }
    c->taps = (struct taps){c->nodes, c->n_seen, see, c};
    *out = c;
    return 0;
}

const struct taps *importance_collector_taps(const struct importance_collector *c)
{
    return &c->taps;
}

int importance_collector_result(const struct importance_collector *c, struct importance *out, struct error *err)
{
    if (c->failed)
        return fail(err, E_MEMORY, "no memory for the inputs of a step; a smaller -ub would help");
    for (int i = 0; i < c->n_matrices; i++) {
        const struct gather *g = &c->gathers[c->matrices[i].gather];
        struct importance_entry *e =
            importance_add(out, str_from(c->matrices[i].name), g->n_columns, g->n_experts, err);
        if (!e)
            return -1;
        for (int64_t j = 0; j < g->n_columns * g->n_experts; j++) {
            if (!isfinite(g->sums[j]))
                return fail(err, E_MODEL, "%s: an input was no number", e->name);
            e->sums[j] += (float)g->sums[j];
        }
        for (int j = 0; j < g->n_experts; j++)
            e->counts[j] += g->counts[j];
    }
    return 0;
}

void importance_collector_close(struct importance_collector *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_gathers; i++) {
        free(c->gathers[i].sums);
        free(c->gathers[i].counts);
    }
    for (int i = 0; i < c->n_seen; i++)
        free(c->seen[i].rows);
    free(c->nodes);
    free(c->seen);
    free(c->gathers);
    free(c->matrices);
    free(c);
}
