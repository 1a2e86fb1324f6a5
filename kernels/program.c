// Lowers a graph to a program: drops dead nodes, merges equal ones, inserts the quantisation of activations.
#include "kernels/program.h"

#include <stdlib.h>

struct lowering {
    struct arena *arena;
    const struct graph *graph;
    struct program *program;
    struct tensor **now;       // [graph node id] -> node of the program; NULL: dead, or not lowered yet
    bool *live;                // [graph node id]
    struct tensor **quantised; // [program node id] -> its QUANTIZE node, or NULL
    int cap;                   // of program->nodes and quantised
};

// Marks every node that the logits need. Sources have lower ids than their readers, so one pass from the end suffices.
static void mark_live(const struct graph *g, bool *live)
{
    live[g->logits->id] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        if (!live[i])
            continue;
        for (int s = 0; s < SRC_MAX; s++)
            if (g->nodes[i]->src[s])
                live[g->nodes[i]->src[s]->id] = true;
    }
}

static bool same_params(const struct tensor *a, const struct tensor *b)
{
    if (a->op == OP_ROPE_TABLE)
        return a->p.rope_table.n_pairs == b->p.rope_table.n_pairs && a->p.rope_table.mscale == b->p.rope_table.mscale &&
               a->p.rope_table.growth == b->p.rope_table.growth && a->p.rope_table.period == b->p.rope_table.period &&
               a->p.rope_table.offset == b->p.rope_table.offset &&
               !memcmp(a->p.rope_table.inv_freq, b->p.rope_table.inv_freq,
                       (size_t)a->p.rope_table.n_pairs * sizeof(double));
    return !memcmp(&a->p, &b->p, sizeof(a->p)); // nodes are allocated zeroed, padding included
}

static bool same_node(const struct tensor *a, const struct tensor *b)
{
    return a->op == b->op && a->rows == b->rows && a->width == b->width && !memcmp(a->src, b->src, sizeof(a->src)) &&
           !memcmp(a->w, b->w, sizeof(a->w)) && same_params(a, b);
}

// The node of the program that is equal to n, or NULL. It compares n with all nodes: a graph has a few hundred, and
// the ones that layers share, such as tables, are far from their readers. Nodes that read or write the KV cache or
// the state of a sequence are never equal.
static struct tensor *find_common(const struct program *p, const struct tensor *n)
{
    if (n->op == OP_KV_WRITE || n->op == OP_ATTENTION || op_class(n->op) == CLASS_SCAN)
        return NULL;
    for (int i = p->n - 1; i >= 0; i--)
        if (same_node(p->nodes[i], n))
            return p->nodes[i];
    return NULL;
}

// Adds a copy of a node to the program. NULL: no memory.
static struct tensor *append(struct lowering *l, const struct tensor *like)
{
    struct tensor *n = ARENA_NEW(l->arena, struct tensor);
    if (!n || l->program->n == l->cap)
        return NULL;
    *n = *like;
    n->id = l->program->n;
    l->program->nodes[l->program->n++] = n;
    return n;
}

// The node that rounds x to another form in runs of k columns; it is added when it is first needed. NULL: no memory.
static struct tensor *quantise(struct lowering *l, struct tensor *x, enum act_form form, int64_t k)
{
    struct tensor *q = l->quantised[x->id];
    if (q && q->p.quantize.k == k && q->p.quantize.form == form)
        return q;
    struct tensor like = {.op = OP_QUANTIZE, .name = x->name, .rows = x->rows, .width = x->width, .src = {x}};
    like.p.quantize.k = k;
    like.p.quantize.form = form;
    q = append(l, &like);
    if (q)
        l->quantised[x->id] = q;
    return q;
}

// The form in which n takes activations.
static enum act_form form_of(const struct lowering *l, const struct tensor *n)
{
    const struct act_rules *acts = &l->program->acts;
    return op_class(n->op) == CLASS_MATVEC && acts->form ? acts->form(acts->ctx, n->w[0]->type, n->w[0]->ne[0])
                                                         : ACT_F32;
}

// Adds a live node of the graph to the program, unless an equal one is there. -1: no memory.
static int lower(struct lowering *l, const struct tensor *old)
{
    struct tensor n;
    memcpy(&n, old, sizeof(n));
    for (int s = 0; s < SRC_MAX; s++)
        n.src[s] = old->src[s] ? l->now[old->src[s]->id] : NULL;
    const enum act_form form = form_of(l, &n);
    if (form != ACT_F32 && !(n.src[0] = quantise(l, n.src[0], form, n.w[0]->ne[0])))
        return -1;
    struct tensor *made = find_common(l->program, &n);
    if (made)
        l->program->n_common++;
    else if (!(made = append(l, &n)))
        return -1;
    l->now[old->id] = made;
    return 0;
}

int program_build(struct arena *arena, const struct graph *g, struct act_rules acts, struct program *out,
                  struct error *err)
{
    struct lowering l = {.arena = arena, .graph = g, .program = out, .cap = 2 * g->n_nodes};
    *out = (struct program){.acts = acts};
    out->nodes = ARENA_ARRAY(arena, struct tensor *, (size_t)l.cap);
    l.now = ARENA_ARRAY(arena, struct tensor *, (size_t)g->n_nodes);
    l.live = ARENA_ARRAY(arena, bool, (size_t)g->n_nodes);
    l.quantised = ARENA_ARRAY(arena, struct tensor *, (size_t)l.cap);
    if (!out->nodes || !l.now || !l.live || !l.quantised)
        goto no_memory;
    mark_live(g, l.live);
    for (int i = 0; i < g->n_nodes; i++) {
        if (!l.live[i])
            out->n_dead++;
        else if (lower(&l, g->nodes[i]))
            goto no_memory;
    }
    out->logits = l.now[g->logits->id];
    out->of = l.now;
    return 0;
no_memory:
    return fail(err, E_MEMORY, "no memory for a plan of %d nodes", g->n_nodes);
}

size_t program_row_bytes(const struct program *p, const struct tensor *n)
{
    if (n->op == OP_QUANTIZE)
        return (size_t)(n->width / n->p.quantize.k) * p->acts.row_bytes(n->p.quantize.form, n->p.quantize.k);
    return align_up((size_t)n->width * sizeof(float), 64);
}
