// Builds graphs: one function per operation, which checks shapes, and the checks of the whole graph.
#include "kernels/graph_parts.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum op_class op_class(enum op op)
{
    static const enum op_class classes[OP_COUNT] = {
#define OP(NAME, name, class) [OP_##NAME] = CLASS_##class,
#include "kernels/op.def"
#undef OP
    };
    assert((unsigned)op < OP_COUNT);
    return classes[op];
}

struct graph *graph_new(void)
{
    return calloc(1, sizeof(struct graph));
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    arena_free(&g->arena);
    free(g->nodes);
    free(g->kv);
    free(g);
}

void graph_layer(struct graph *g, int layer)
{
    if (layer < 0)
        g->prefix[0] = '\0';
    else
        snprintf(g->prefix, sizeof(g->prefix), "blk.%d.", layer);
}

struct weight weight_rows(const struct weight *w, int64_t first, int64_t n)
{
    struct weight part = *w;
    part.ne[1] = 0; // no such rows: every operation refuses a weight without rows
    return w->ne[2] == 1 ? weight_rows_of_each(w, first, n) : part;
}

struct weight weight_rows_of_each(const struct weight *w, int64_t first, int64_t n)
{
    struct weight part = *w;
    part.ne[1] = 0;
    if (first < 0 || n < 1 || first > w->ne[1] || n > w->ne[1] - first)
        return part;
    part.ne[1] = n;
    part.pitch = w->ne[2] == 1 ? 0 : w->pitch ? w->pitch : w->ne[1];
    if (w->data)
        part.data = (const uint8_t *)w->data + (size_t)first * w->row_bytes;
    return part;
}

// ---- Faults

struct tensor *graph_refuse(struct graph *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_first_v(&g->fault, E_MODEL, fmt, args);
    va_end(args);
    return NULL;
}

void *graph_refuse_memory(struct graph *g)
{
    fail_first(&g->fault, E_MEMORY, "no memory for a graph of %d nodes", g->n_nodes);
    return NULL;
}

struct shape_text graph_shape_of(const struct weight *w)
{
    struct shape_text t;
    int dims = w->ne[2] != 1 ? 3 : w->ne[1] != 1 ? 2 : 1;
    int at = snprintf(t.s, sizeof(t.s), "%.80s (", w->name ? w->name : "?");
    for (int i = 0; i < dims; i++)
        at += snprintf(t.s + at, sizeof(t.s) - (size_t)at, "%lld%s", (long long)w->ne[i], i + 1 < dims ? ", " : ")");
    return t;
}

// ---- Making a node

struct tensor *graph_begin_node(struct graph *g, enum op op, const char *name)
{
    if (g->fault.code != E_OK)
        return NULL;
    size_t head = strlen(g->prefix), tail = strlen(name);
    struct tensor *n = ARENA_NEW(&g->arena, struct tensor);
    char *full = arena_alloc(&g->arena, head + tail + 1, 1);
    if (!n || !full)
        return graph_refuse_memory(g);
    memcpy(full, g->prefix, head);
    memcpy(full + head, name, tail);
    n->op = op;
    n->name = full;
    n->rows = ROWS_TOKENS;
    return n;
}

bool graph_take_source_of(struct graph *g, struct tensor *n, int i, struct tensor *x, enum op want)
{
    if (!n)
        return false;
    if (!x || x->id < 0 || x->id >= g->n_nodes || g->nodes[x->id] != x)
        return graph_refuse(g, "%s: source %d is no value of this graph", n->name, i);
    if (want == OP_COUNT ? !is_plain(x->op) : x->op != want)
        return graph_refuse(g, "%s: source %s is the result of %s, wanted is %s", n->name, x->name, op_name(x->op),
                            want == OP_COUNT ? "a plain value" : op_name(want));
    if (i == 0)
        n->rows = x->rows;
    else if (x->rows != n->rows)
        return graph_refuse(g, "%s: %s has rows of %s, %s of %s", n->name, n->src[0]->name, rows_name(n->rows), x->name,
                            rows_name(x->rows));
    n->src[i] = x;
    return true;
}

bool graph_take_source(struct graph *g, struct tensor *n, int i, struct tensor *x)
{
    return graph_take_source_of(g, n, i, x, OP_COUNT);
}

bool graph_take_tokens(struct graph *g, struct tensor *n, int i, struct tensor *x)
{
    if (!graph_take_source(g, n, i, x))
        return false;
    if (x->rows != ROWS_TOKENS)
        return graph_refuse(g, "%s: %s has rows of outputs, wanted are rows of tokens", n->name, x->name);
    return true;
}

bool graph_take_weight(struct graph *g, struct tensor *n, int i, const struct weight *w, int64_t matrices)
{
    if (!n)
        return false;
    if (!w)
        return graph_refuse(g, "%s: its weight is missing", n->name);
    if (w->ne[0] < 1 || w->ne[1] < 1 || w->ne[2] < 1 || w->ne[0] > WIDTH_MAX || w->ne[1] > WIDTH_MAX ||
        w->ne[2] > INT_MAX)
        return graph_refuse(g, "%s: weight %s has a size out of range", n->name, graph_shape_of(w).s);
    if ((unsigned)w->type >= DT_COUNT || !dtype_decode[w->type])
        return graph_refuse(g, "%s: weight %s is of type %s, which no operation takes", n->name, graph_shape_of(w).s,
                            (unsigned)w->type >= DT_COUNT ? "?" : dtype_info[w->type].name);
    if (w->ne[0] % dtype_info[w->type].block != 0 || w->row_bytes != dtype_row_bytes(w->type, w->ne[0]))
        return graph_refuse(g, "%s: rows of weight %s are no whole blocks of %s", n->name, graph_shape_of(w).s,
                            dtype_info[w->type].name);
    if (matrices && w->ne[2] != matrices)
        return graph_refuse(g, "%s: weight %s holds %lld matrices, wanted are %lld", n->name, graph_shape_of(w).s,
                            (long long)w->ne[2], (long long)matrices);
    if (w->scale && n->op != OP_EXPERT_MATMUL)
        return graph_refuse(g, "%s: weight %s has scales, which expert_matmul alone takes", n->name,
                            graph_shape_of(w).s);
    n->w[i] = w;
    return true;
}

bool graph_take_vectors(struct graph *g, struct tensor *n, int i, const struct weight *w, int64_t length, int64_t rows)
{
    if (!w)
        return n != NULL;
    if (!graph_take_weight(g, n, i, w, 1))
        return false;
    if (w->ne[0] != length || w->ne[1] != rows)
        return graph_refuse(g, "%s: vector %s, wanted are %lld elements%s", n->name, graph_shape_of(w).s,
                            (long long)length, rows == 1 ? "" : " for each expert");
    if (w->type != DT_F32)
        return graph_refuse(g, "%s: vector %s is of type %s, wanted is F32", n->name, graph_shape_of(w).s,
                            dtype_info[w->type].name);
    return true;
}

bool graph_take_vector(struct graph *g, struct tensor *n, int i, const struct weight *w, int64_t length)
{
    return graph_take_vectors(g, n, i, w, length, 1);
}

bool graph_take_number(struct graph *g, struct tensor *n, const char *what, float v, float least)
{
    if (!n)
        return false;
    if (!isfinite(v) || v < least)
        return graph_refuse(g, "%s: %s of %g is out of range", n->name, what, (double)v);
    return true;
}

// Returns the array `items` of *cap items of `size` bytes, made longer; NULL: no memory.
static void *grow(struct graph *g, void *items, int *cap, size_t size)
{
    if (*cap > INT_MAX / 4)
        return graph_refuse_memory(g);
    int more = *cap ? 2 * *cap : 64;
    void *p = realloc(items, (size_t)more * size);
    if (!p)
        return graph_refuse_memory(g);
    *cap = more;
    return p;
}

struct tensor *graph_finish_node(struct graph *g, struct tensor *n, int64_t width)
{
    if (width < 0 || width > WIDTH_MAX)
        return graph_refuse(g, "%s: a row of %lld floats is out of range", n->name, (long long)width);
    if (g->n_nodes == g->cap_nodes) {
        struct tensor **nodes = grow(g, g->nodes, &g->cap_nodes, sizeof(*nodes));
        if (!nodes)
            return NULL;
        g->nodes = nodes;
    }
    n->width = width;
    n->id = g->n_nodes;
    g->nodes[g->n_nodes++] = n;
    return n;
}

// ---- Operations

struct tensor *graph_embed(struct graph *g, const char *name, const struct weight *table, enum input by, float scale)
{
    struct tensor *n = graph_begin_node(g, OP_EMBED, name);
    if (!graph_take_weight(g, n, 0, table, 1) || !graph_take_number(g, n, "scale", scale, -FLT_MAX))
        return NULL;
    n->p.embed.input = by;
    n->p.embed.scale = scale;
    return graph_finish_node(g, n, table->ne[0]);
}

struct tensor *graph_output_rows(struct graph *g, const char *name, struct tensor *x)
{
    struct tensor *n = graph_begin_node(g, OP_ROWS, name);
    if (!graph_take_tokens(g, n, 0, x))
        return NULL;
    n->rows = ROWS_OUTPUTS;
    return graph_finish_node(g, n, x->width);
}

struct tensor *graph_norm(struct graph *g, const char *name, struct tensor *x, const struct weight *gain,
                          const struct weight *bias, enum norm_kind kind, float eps, int64_t group)
{
    struct tensor *n = graph_begin_node(g, OP_NORM, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_number(g, n, "eps", eps, 0))
        return NULL;
    if (group < 0 || (group > 0 && x->width % group != 0))
        return graph_refuse(g, "%s: %s has %lld columns, no multiple of groups of %lld", n->name, x->name,
                            (long long)x->width, (long long)group);
    const bool by_column = gain && gain->ne[0] == x->width;
    int64_t length = group && !by_column ? group : x->width;
    if (!graph_take_vector(g, n, 0, gain, length) || !graph_take_vector(g, n, 1, bias, length))
        return NULL;
    n->p.norm.kind = kind;
    n->p.norm.eps = eps;
    n->p.norm.group = group;
    n->p.norm.by_column = group && by_column && group != x->width;
    return graph_finish_node(g, n, x->width);
}

struct tensor *graph_matmul(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                            const struct weight *bias)
{
    struct tensor *n = graph_begin_node(g, OP_MATMUL, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_weight(g, n, 0, w, 1))
        return NULL;
    if (w->ne[0] != x->width)
        return graph_refuse(g, "%s: weight %s does not fit %s of %lld columns", n->name, graph_shape_of(w).s, x->name,
                            (long long)x->width);
    if (!graph_take_vector(g, n, 1, bias, w->ne[1]))
        return NULL;
    return graph_finish_node(g, n, w->ne[1]);
}

struct tensor *graph_rope_table(struct graph *g, const char *name, int64_t n_pairs, const double *inv_freq,
                                float mscale)
{
    return graph_growing_rope_table(g, name, n_pairs, inv_freq, mscale, 0, 1, 0);
}

double rope_table_factor(const struct tensor *n, int position)
{
    const double mscale = (double)n->p.rope_table.mscale;
    if (n->p.rope_table.growth == 0)
        return mscale;
    const int64_t periods = ((int64_t)position + n->p.rope_table.offset) / n->p.rope_table.period;
    return mscale * (1 + (double)n->p.rope_table.growth * log((double)(periods + 1)));
}

struct tensor *graph_growing_rope_table(struct graph *g, const char *name, int64_t n_pairs, const double *inv_freq,
                                        float mscale, float growth, int period, int offset)
{
    struct tensor *n = graph_begin_node(g, OP_ROPE_TABLE, name);
    if (!graph_take_number(g, n, "mscale", mscale, -FLT_MAX) || !graph_take_number(g, n, "growth", growth, -FLT_MAX))
        return NULL;
    if (period < 1 || offset < 0)
        return graph_refuse(g, "%s: a period of %d, from %d on, is out of range", n->name, period, offset);
    if (n_pairs < 1 || n_pairs > WIDTH_MAX / 2)
        return graph_refuse(g, "%s: %lld pairs are out of range", n->name, (long long)n_pairs);
    double *copy = ARENA_ARRAY(&g->arena, double, (size_t)n_pairs);
    if (!copy)
        return graph_refuse_memory(g);
    for (int64_t i = 0; i < n_pairs; i++) {
        if (!isfinite(inv_freq[i]))
            return graph_refuse(g, "%s: frequency %lld is %g", n->name, (long long)i, inv_freq[i]);
        copy[i] = inv_freq[i];
    }
    n->p.rope_table.n_pairs = n_pairs;
    n->p.rope_table.inv_freq = copy;
    n->p.rope_table.mscale = mscale;
    n->p.rope_table.growth = growth;
    n->p.rope_table.period = period;
    n->p.rope_table.offset = offset;
    return graph_finish_node(g, n, 2 * n_pairs);
}

struct tensor *graph_rope(struct graph *g, const char *name, struct tensor *x, struct tensor *table, int64_t head_dim,
                          enum rope_layout layout)
{
    struct tensor *n = graph_begin_node(g, OP_ROPE, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_source_of(g, n, 1, table, OP_ROPE_TABLE))
        return NULL;
    if (head_dim < 1 || x->width % head_dim != 0)
        return graph_refuse(g, "%s: %s has %lld columns, no multiple of heads of %lld", n->name, x->name,
                            (long long)x->width, (long long)head_dim);
    if (table->width > head_dim)
        return graph_refuse(g, "%s: %s turns %lld columns, a head has %lld", n->name, table->name,
                            (long long)table->width, (long long)head_dim);
    n->p.rope.head_dim = head_dim;
    n->p.rope.layout = layout;
    return graph_finish_node(g, n, x->width);
}

static int add_kv_layer(struct graph *g, int n_head_kv, int dim_k, int dim_v, bool keys_only)
{
    if (g->fault.code != E_OK)
        return -1;
    bool positive = n_head_kv >= 1 && dim_k >= 1 && dim_v >= 1;
    positive = positive && (!keys_only || dim_v <= dim_k);
    if (!positive || MAX(dim_k, dim_v) > ATTENTION_DIM_MAX || (int64_t)n_head_kv * MAX(dim_k, dim_v) > WIDTH_MAX) {
        graph_refuse(g, "%sattention: %d KV heads of %d and %d columns are out of range", g->prefix, n_head_kv, dim_k,
                     dim_v);
        return -1;
    }
    if (g->n_kv == g->cap_kv) {
        struct kv_layer *kv = grow(g, g->kv, &g->cap_kv, sizeof(*kv));
        if (!kv)
            return -1;
        g->kv = kv;
    }
    g->kv[g->n_kv] = (struct kv_layer){n_head_kv, dim_k, dim_v, keys_only};
    return g->n_kv++;
}

int graph_kv_layer(struct graph *g, int n_head_kv, int dim_k, int dim_v)
{
    return add_kv_layer(g, n_head_kv, dim_k, dim_v, false);
}

int graph_kv_layer_of_keys(struct graph *g, int n_head_kv, int dim_k, int dim_v)
{
    return add_kv_layer(g, n_head_kv, dim_k, dim_v, true);
}

struct tensor *graph_kv_write(struct graph *g, const char *name, struct tensor *x, int layer, enum kv_part part)
{
    struct tensor *n = graph_begin_node(g, OP_KV_WRITE, name);
    if (!graph_take_tokens(g, n, 0, x))
        return NULL;
    if (layer < 0 || layer >= g->n_kv)
        return graph_refuse(g, "%s: there is no KV layer %d", n->name, layer);
    if (part == KV_VALUE && g->kv[layer].keys_only)
        return graph_refuse(g, "%s: KV layer %d stores keys alone", n->name, layer);
    int dim = part == KV_KEY ? g->kv[layer].dim_k : g->kv[layer].dim_v, heads = g->kv[layer].n_head_kv;
    if (x->width != (int64_t)heads * dim)
        return graph_refuse(g, "%s: %s has %lld columns, the KV layer %d heads of %d", n->name, x->name,
                            (long long)x->width, heads, dim);
    n->p.kv.layer = layer;
    n->p.kv.part = part;
    n->p.kv.head_dim = dim;
    return graph_finish_node(g, n, 0);
}

static bool take_kv(struct graph *g, struct tensor *n, int i, struct tensor *x, enum kv_part part)
{
    if (!graph_take_source_of(g, n, i, x, OP_KV_WRITE))
        return false;
    if (x->p.kv.part != part && !g->kv[x->p.kv.layer].keys_only)
        return graph_refuse(g, "%s: %s writes %s, wanted are %s", n->name, x->name, part == KV_KEY ? "values" : "keys",
                            part == KV_KEY ? "keys" : "values");
    return true;
}

struct tensor *graph_attention(struct graph *g, const char *name, struct tensor *q, struct tensor *key,
                               struct tensor *value, struct attention_params p)
{
    struct tensor *n = graph_begin_node(g, OP_ATTENTION, name);
    if (!graph_take_tokens(g, n, 0, q) || !take_kv(g, n, 1, key, KV_KEY) || !take_kv(g, n, 2, value, KV_VALUE) ||
        !graph_take_number(g, n, "scale", p.scale, -FLT_MAX) || !graph_take_number(g, n, "softcap", p.softcap, 0))
        return NULL;
    int layer = key->p.kv.layer;
    if (value->p.kv.layer != layer)
        return graph_refuse(g, "%s: keys of KV layer %d, values of KV layer %d", n->name, layer, value->p.kv.layer);
    struct kv_layer kv = g->kv[layer];
    if (p.n_head < 1 || p.n_head % kv.n_head_kv != 0)
        return graph_refuse(g, "%s: %d heads are no multiple of %d KV heads", n->name, p.n_head, kv.n_head_kv);
    if (q->width != (int64_t)p.n_head * kv.dim_k)
        return graph_refuse(g, "%s: %s has %lld columns, wanted are %d heads of %d", n->name, q->name,
                            (long long)q->width, p.n_head, kv.dim_k);
    if (p.window < 0 || (p.chunked && (!p.window || p.both_ways)))
        return graph_refuse(g, "%s: a window of %d is out of range", n->name, p.window);
    if (!graph_take_vector(g, n, 0, p.sinks, p.n_head) || !graph_take_vector(g, n, 1, p.slopes, p.n_head))
        return NULL;
    n->p.attn.layer = layer;
    n->p.attn.n_head = p.n_head;
    n->p.attn.n_head_kv = kv.n_head_kv;
    n->p.attn.dim_k = kv.dim_k;
    n->p.attn.dim_v = kv.dim_v;
    n->p.attn.scale = p.scale;
    n->p.attn.softcap = p.softcap;
    n->p.attn.window = p.window;
    n->p.attn.chunked = p.chunked;
    n->p.attn.both_ways = p.both_ways;
    return graph_finish_node(g, n, (int64_t)p.n_head * kv.dim_v);
}

struct tensor *graph_act(struct graph *g, const char *name, struct tensor *x, enum act_kind kind)
{
    struct tensor *n = graph_begin_node(g, OP_ACT, name);
    if (!graph_take_source(g, n, 0, x))
        return NULL;
    if (kind == ACT_SWIGLU_CLAMPED)
        return graph_refuse(g, "%s: a clamped SwiGLU has two sources", n->name);
    n->p.act.kind = kind;
    return graph_finish_node(g, n, x->width);
}

// Two values of the same shape.
static bool take_pair(struct graph *g, struct tensor *n, struct tensor *a, struct tensor *b)
{
    if (!graph_take_source(g, n, 0, a) || !graph_take_source(g, n, 1, b))
        return false;
    if (a->width != b->width)
        return graph_refuse(g, "%s: %s has %lld columns, %s has %lld", n->name, a->name, (long long)a->width, b->name,
                            (long long)b->width);
    return true;
}

struct tensor *graph_glu(struct graph *g, const char *name, struct tensor *gate, struct tensor *up, enum act_kind kind)
{
    struct tensor *n = graph_begin_node(g, OP_GLU, name);
    if (!take_pair(g, n, gate, up))
        return NULL;
    n->p.act.kind = kind;
    return graph_finish_node(g, n, gate->width);
}

struct tensor *graph_glu_from(struct graph *g, const char *name, struct tensor *gate, struct tensor *up,
                              enum act_kind kind, int64_t first)
{
    struct tensor *n = graph_begin_node(g, OP_GLU, name);
    if (!graph_take_source(g, n, 0, gate) || !graph_take_source(g, n, 1, up))
        return NULL;
    if (first < 0 || first > up->width || gate->width > up->width - first)
        return graph_refuse(g, "%s: %lld columns of %s from %lld on are wanted, it has %lld", n->name,
                            (long long)gate->width, up->name, (long long)first, (long long)up->width);
    n->p.act.kind = kind;
    n->p.act.first = first;
    return graph_finish_node(g, n, gate->width);
}

struct tensor *graph_add(struct graph *g, const char *name, struct tensor *a, struct tensor *b)
{
    struct tensor *n = graph_begin_node(g, OP_ADD, name);
    return take_pair(g, n, a, b) ? graph_finish_node(g, n, a->width) : NULL;
}

// SCALE, SOFTCAP or CLAMP by v, which is at least `least`.
static struct tensor *by_factor(struct graph *g, enum op op, const char *name, struct tensor *x, const char *what,
                                float v, float least)
{
    struct tensor *n = graph_begin_node(g, op, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_number(g, n, what, v, least))
        return NULL;
    n->p.scale.factor = v;
    return graph_finish_node(g, n, x->width);
}

struct tensor *graph_scale(struct graph *g, const char *name, struct tensor *x, float factor)
{
    return by_factor(g, OP_SCALE, name, x, "factor", factor, -FLT_MAX);
}

struct tensor *graph_softcap(struct graph *g, const char *name, struct tensor *x, float cap)
{
    return by_factor(g, OP_SOFTCAP, name, x, "cap", cap, FLT_MIN);
}

struct tensor *graph_clamp(struct graph *g, const char *name, struct tensor *x, float limit)
{
    return by_factor(g, OP_CLAMP, name, x, "limit", limit, FLT_MIN);
}

struct tensor *graph_xielu(struct graph *g, const char *name, struct tensor *x, struct xielu_params p)
{
    struct tensor *n = graph_begin_node(g, OP_XIELU, name);
    const float all = p.alpha_n + p.alpha_p + p.beta + p.eps;
    if (!graph_take_source(g, n, 0, x) || !graph_take_number(g, n, "sum of parameters", all, -FLT_MAX))
        return NULL;
    n->p.xielu = p;
    return graph_finish_node(g, n, x->width);
}

struct tensor *graph_gain(struct graph *g, const char *name, struct tensor *x, const struct weight *gain)
{
    struct tensor *n = graph_begin_node(g, OP_GAIN, name);
    return graph_take_source(g, n, 0, x) && gain && graph_take_vector(g, n, 0, gain, x->width)
               ? graph_finish_node(g, n, x->width)
               : NULL;
}

struct tensor *graph_head_glu(struct graph *g, const char *name, struct tensor *gate, struct tensor *x,
                              enum act_kind kind)
{
    struct tensor *n = graph_begin_node(g, OP_HEAD_GLU, name);
    if (!graph_take_source(g, n, 0, gate) || !graph_take_source(g, n, 1, x))
        return NULL;
    if (kind == ACT_SWIGLU_CLAMPED)
        return graph_refuse(g, "%s: a clamped SwiGLU is of two values of one shape", n->name);
    if (gate->width > GATED_HEADS_MAX || x->width % gate->width != 0)
        return graph_refuse(g, "%s: %s has %lld columns, no multiple of the %lld gates of %s", n->name, x->name,
                            (long long)x->width, (long long)gate->width, gate->name);
    n->p.act.kind = kind;
    return graph_finish_node(g, n, x->width);
}

// The groups of a route share out its experts, and those that are used have enough of them.
static bool take_groups(struct graph *g, struct tensor *n, int64_t n_expert, const struct route_params *p)
{
    if (!p->n_group && !p->n_group_used)
        return true;
    const int64_t size = p->n_group > 0 ? n_expert / p->n_group : 0;
    if (size < 2 || n_expert % p->n_group != 0)
        return graph_refuse(g, "%s: %lld experts in %d groups", n->name, (long long)n_expert, p->n_group);
    if (p->n_group_used < 1 || p->n_group_used > p->n_group)
        return graph_refuse(g, "%s: %d groups used of %d", n->name, p->n_group_used, p->n_group);
    if (p->n_used > size * p->n_group_used)
        return graph_refuse(g, "%s: %d experts used of %d groups of %lld", n->name, p->n_used, p->n_group_used,
                            (long long)size);
    return true;
}

struct tensor *graph_route(struct graph *g, const char *name, struct tensor *logits, const struct weight *bias,
                           struct route_params p)
{
    struct tensor *n = graph_begin_node(g, OP_ROUTE, name);
    if (!graph_take_source(g, n, 0, logits) || !graph_take_number(g, n, "scale", p.scale, -FLT_MAX))
        return NULL;
    if (p.kind == ROUTE_EACH)
        return graph_refuse(g, "%s: a route of this kind has no logits", n->name);
    if (p.n_used < 1 || p.n_used > logits->width)
        return graph_refuse(g, "%s: %d experts used of %lld", n->name, p.n_used, (long long)logits->width);
    if (!graph_take_vector(g, n, 0, bias, logits->width) || !take_groups(g, n, logits->width, &p))
        return NULL;
    if ((bias || p.n_group) && logits->width > SCORED_EXPERTS_MAX)
        return graph_refuse(g, "%s: %lld experts with biases or groups, up to %d are possible", n->name,
                            (long long)logits->width, (int)SCORED_EXPERTS_MAX);
    n->p.route.kind = p.kind;
    n->p.route.n_used = p.n_used;
    n->p.route.normalise = p.normalise;
    n->p.route.scale = p.scale;
    n->p.route.n_group = p.n_group;
    n->p.route.n_group_used = p.n_group_used;
    return graph_finish_node(g, n, 2 * (int64_t)p.n_used);
}

struct tensor *graph_route_shared(struct graph *g, const char *name, struct tensor *logits, struct route_params p,
                                  int share)
{
    struct tensor *n = graph_route(g, name, logits, NULL, p);
    if (!n || share < 1 || logits->width % share != 0)
        return n ? graph_refuse(g, "%s: %lld experts in runs of %d", n->name, (long long)logits->width, share) : NULL;
    n->p.route.share = share > 1 ? share : 0;
    return n;
}

struct tensor *graph_route_each(struct graph *g, const char *name, struct tensor *rows, int n)
{
    struct tensor *node = graph_begin_node(g, OP_ROUTE, name);
    if (!graph_take_source(g, node, 0, rows))
        return NULL;
    if (n < 1)
        return graph_refuse(g, "%s: %d experts", node->name, n);
    node->p.route.kind = ROUTE_EACH;
    node->p.route.n_used = n;
    node->p.route.scale = 1;
    return graph_finish_node(g, node, 2 * (int64_t)n);
}

struct tensor *graph_expert_matmul(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                                   const struct weight *bias, struct tensor *route)
{
    struct tensor *n = graph_begin_node(g, OP_EXPERT_MATMUL, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_source_of(g, n, 1, route, OP_ROUTE) ||
        !graph_take_weight(g, n, 0, w, route_experts(route)))
        return NULL;
    int n_used = route->p.route.n_used;
    if (x->width != w->ne[0] && x->width != n_used * w->ne[0])
        return graph_refuse(g, "%s: weight %s does not fit %s of %lld columns, shared or for %d experts", n->name,
                            graph_shape_of(w).s, x->name, (long long)x->width, n_used);
    if (!graph_take_vectors(g, n, 1, bias, w->ne[1], w->ne[2]))
        return NULL;
    n->p.expert.n_used = n_used;
    n->p.expert.shared = x->width == w->ne[0];
    return graph_finish_node(g, n, n_used * w->ne[1]);
}

struct tensor *graph_expert_combine(struct graph *g, const char *name, struct tensor *x, struct tensor *route)
{
    struct tensor *n = graph_begin_node(g, OP_EXPERT_COMBINE, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_source_of(g, n, 1, route, OP_ROUTE))
        return NULL;
    int n_used = route->p.route.n_used;
    if (x->width % n_used != 0)
        return graph_refuse(g, "%s: %s has %lld columns, no multiple of %d experts", n->name, x->name,
                            (long long)x->width, n_used);
    n->p.expert.n_used = n_used;
    return graph_finish_node(g, n, x->width / n_used);
}

// ---- Layout

struct tensor *graph_slice(struct graph *g, const char *name, struct tensor *x, int64_t group, int64_t from, int64_t n)
{
    struct tensor *node = graph_begin_node(g, OP_SLICE, name);
    if (!graph_take_source(g, node, 0, x))
        return NULL;
    if (group < 1 || x->width % group != 0 || from < 0 || n < 1 || from > group || n > group - from)
        return graph_refuse(g, "%s: columns %lld to %lld of each %lld of %s, which has %lld", node->name,
                            (long long)from, (long long)(from + n - 1), (long long)group, x->name, (long long)x->width);
    node->p.slice.group = group;
    node->p.slice.from = from;
    return graph_finish_node(g, node, x->width / group * n);
}

struct tensor *graph_join(struct graph *g, const char *name, struct tensor *a, int64_t first, struct tensor *b,
                          int64_t second)
{
    struct tensor *n = graph_begin_node(g, OP_JOIN, name);
    if (!graph_take_source(g, n, 0, a) || !graph_take_source(g, n, 1, b))
        return NULL;
    const int64_t parts = first >= 1 && a->width % first == 0 ? a->width / first : 0;
    if (!parts || second < 1 || (b->width != second && b->width != parts * second))
        return graph_refuse(g, "%s: %lld columns of each of %s, which has %lld, and %lld of %s, which has %lld",
                            n->name, (long long)first, a->name, (long long)a->width, (long long)second, b->name,
                            (long long)b->width);
    n->p.join.first = first;
    n->p.join.second = second;
    return graph_finish_node(g, n, parts * (first + second));
}

struct tensor *graph_expert_sum(struct graph *g, const char *name, struct tensor *x, struct tensor *route)
{
    struct tensor *n = graph_expert_combine(g, name, x, route);
    if (n)
        n->p.expert.plain = true;
    return n;
}

struct tensor *graph_expert_weigh(struct graph *g, const char *name, struct tensor *x, struct tensor *route)
{
    struct tensor *n = graph_begin_node(g, OP_EXPERT_WEIGH, name);
    if (!graph_take_source(g, n, 0, x) || !graph_take_source_of(g, n, 1, route, OP_ROUTE))
        return NULL;
    n->p.expert.n_used = route->p.route.n_used;
    return graph_finish_node(g, n, n->p.expert.n_used * x->width);
}
