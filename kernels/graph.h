// Building a graph: straight-line code, one call an operation.
//
// A model's forward runs once and gets handles, not floats. Every call checks its shapes; the first fault is remembered in
// the graph and makes all later calls return NULL, so that a forward needs no check between its lines: graph_finish
// reports it. Ownership: the graph owns its tensors, names and copies of parameters; it views the weights, which must
// outlive it. Threads: one builder; read-only after graph_finish.
#ifndef QUERN_GRAPH_H
#define QUERN_GRAPH_H

#include "kernels/tensor.h"

enum {
    KV_PAGE = 64,             // positions a KV page
    ATTENTION_DIM_MAX = 1024, // dimensions of a head
};

// The KV cache that the graph's layers ask for.
struct kv_layer {
    int n_head_kv, dim_k, dim_v;
};

struct graph {
    struct arena arena;
    struct tensor **nodes;
    int n_nodes, cap_nodes;
    struct kv_layer *kv; // [n_kv]
    int n_kv, cap_kv;
    struct tensor *logits; // (outputs, n_vocab): what a run brings out
    struct error fault;    // the first
    char prefix[48];       // put before the name of each node, e.g. "blk.3."
    // What a step is held against, gathered by graph_finish.
    int64_t token_rows, position_rows; // rows of the smallest table read by token, by position; INT64_MAX: none
    int window;                        // keys that the farthest-looking attention sees, 0: all
};

struct graph *graph_new(void); // NULL when memory is short
void graph_free(struct graph *g);
// The layer that the following nodes belong to: their names become "blk.N.name". -1: none.
void graph_layer(struct graph *g, int layer);
// Names the result and checks the whole (unique names, each KV layer written once); -1 with the first fault.
int graph_finish(struct graph *g, struct tensor *logits, struct error *err);

// Rows of a table by token or by position, times scale: (tokens, table row length).
struct tensor *graph_embed(struct graph *g, const char *name, const struct weight *table, enum input by, float scale);
// The rows that want logits: (outputs, width).
struct tensor *graph_output_rows(struct graph *g, const char *name, struct tensor *x);
// Each group of `group` columns (0: the whole row) is normalised by itself; gain and bias may be NULL.
struct tensor *graph_norm(struct graph *g, const char *name, struct tensor *x, const struct weight *gain,
                          const struct weight *bias, enum norm_kind kind, float eps, int64_t group);
// x W^T + bias: (rows, W rows). bias may be NULL, and is F32.
struct tensor *graph_matmul(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                            const struct weight *bias);
// cos and sin of position * inv_freq[i], times mscale, for all pairs: the angle in double. Copies inv_freq.
struct tensor *graph_rope_table(struct graph *g, const char *name, int64_t n_pairs, const double *inv_freq,
                                float mscale);
struct tensor *graph_rope(struct graph *g, const char *name, struct tensor *x, struct tensor *table, int64_t head_dim,
                          enum rope_layout layout);
// A layer's place in the KV cache: returns its number, -1 on a fault.
int graph_kv_layer(struct graph *g, int n_head_kv, int dim_k, int dim_v);
struct tensor *graph_kv_write(struct graph *g, const char *name, struct tensor *x, int layer, enum kv_part part);

struct attention_params {
    int n_head;
    float scale, softcap;
    int window;
};
// softmax(scale q.k) v over the positions of the row's sequence up to its own: (rows, n_head * dim_v). Query head h uses
// KV head h / (n_head / n_head_kv). `key` and `value` are the KV_WRITEs of this step.
struct tensor *graph_attention(struct graph *g, const char *name, struct tensor *q, struct tensor *key,
                               struct tensor *value, struct attention_params p);

struct tensor *graph_act(struct graph *g, const char *name, struct tensor *x, enum act_kind kind);
struct tensor *graph_glu(struct graph *g, const char *name, struct tensor *gate, struct tensor *up, enum act_kind kind);
struct tensor *graph_add(struct graph *g, const char *name, struct tensor *a, struct tensor *b);
struct tensor *graph_scale(struct graph *g, const char *name, struct tensor *x, float factor);
struct tensor *graph_softcap(struct graph *g, const char *name, struct tensor *x, float cap);

// Mixture of experts. route: the n_used greatest of softmax (or sigmoid) of the logits, lower id first on a tie;
// `normalise`: the weights are divided by their sum; then times scale.
struct tensor *graph_route(struct graph *g, const char *name, struct tensor *logits, enum route_kind kind, int n_used,
                           bool normalise, float scale);
struct tensor *graph_expert_matmul(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                                   struct tensor *route);
struct tensor *graph_expert_combine(struct graph *g, const char *name, struct tensor *x, struct tensor *route);

// The class of an operation and its name, both from op.def. op_name gives "?" for a number that is no operation.
enum op_class op_class(enum op op);
const char *op_name(enum op op);
// Appends the graph as text, one line a node: name, operation, shape, sources, weights, parameters. -1: no memory.
struct text; // kernels/text.h
int graph_print(const struct graph *g, struct text *out);

#endif
