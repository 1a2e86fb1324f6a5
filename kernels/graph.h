// Builds the graph of a model: one call per operation, in straight-line code.
//
// A model's forward function runs once. It gets handles of values, not numbers; machines compute the values later, in
// each step. Every call checks the shapes that it is given. The first fault is kept in the graph and makes all later
// calls return NULL, and graph_finish reports it, so that a forward function needs no checks of its own. Ownership:
// the graph owns its tensors, names and copies of parameters; it views the weights, which must outlive it. Threads:
// one builds; read-only after graph_finish.
#ifndef QUERN_GRAPH_H
#define QUERN_GRAPH_H

#include "kernels/tensor.h"

enum {
    KV_PAGE = 64,              // positions in a page of the KV cache
    ATTENTION_DIM_MAX = 1024,  // dimensions of a head, at most
    CONV_KERNEL_MAX = 16,      // rows that a short convolution sees, at most
    DELTA_DIM_MAX = 256,       // dimensions of a head of a delta rule, at most
    SCAN_STATE_MAX = 256,      // floats of a column's state in a selective scan, at most
    GATED_HEADS_MAX = 1 << 14, // heads of a row, at most, that have a gate each
    SCORED_EXPERTS_MAX = 4096, // experts, at most, of a route with biases or groups
};

// What one attention layer keeps in the KV cache for each position.
struct kv_layer {
    int n_head_kv, dim_k, dim_v;
    bool keys_only; // values are not stored: they are the first dim_v columns of the keys
};

// The part of the cache that holds the keys or values of a layer, and how many elements a row has there.
static inline enum kv_part kv_part_stored(const struct kv_layer *kv, enum kv_part part)
{
    return kv->keys_only ? KV_KEY : part;
}
static inline int kv_dim_stored(const struct kv_layer *kv, enum kv_part part)
{
    return kv_part_stored(kv, part) == KV_KEY ? kv->dim_k : kv->dim_v;
}

struct graph {
    struct arena arena;
    struct tensor **nodes;
    int n_nodes, cap_nodes;
    struct kv_layer *kv; // [n_kv]
    int n_kv, cap_kv;
    int64_t state_floats;  // of the state of a sequence, see graph_short_conv; 0: there is none
    struct tensor *logits; // (outputs, n_vocab): the result of a step
    struct error fault;    // the first one
    char prefix[48];       // begins the name of each new node, e.g. "blk.3."
    // Set by graph_finish, for the checks of steps.
    int64_t token_rows, position_rows; // rows of the smallest table read by token, by position; INT64_MAX: none
    int window;                        // the largest window of any attention layer, in keys; 0: one sees all keys
    bool both_ways;                    // attention sees the whole sequence, which a step has from its first row on
};

struct graph *graph_new(void); // NULL: no memory
void graph_free(struct graph *g);
// The nodes that follow belong to this layer: their names become "blk.N.name". -1: to none.
void graph_layer(struct graph *g, int layer);
// Says which value is the result, and checks the whole graph: names are unique, each KV layer is written once. -1
// with the first fault.
int graph_finish(struct graph *g, struct tensor *logits, struct error *err);

// The row of a table for each token's id or position, or row 0 for each token, times scale: (tokens, length of a table
// row).
struct tensor *graph_embed(struct graph *g, const char *name, const struct weight *table, enum input by, float scale);
// The rows of x for which the step wants logits: (outputs, width).
struct tensor *graph_output_rows(struct graph *g, const char *name, struct tensor *x);
// Normalises each group of `group` columns (0: the whole row) by itself. gain and bias have `group` elements, or both one
// for each column of the row, or are NULL.
struct tensor *graph_norm(struct graph *g, const char *name, struct tensor *x, const struct weight *gain,
                          const struct weight *bias, enum norm_kind kind, float eps, int64_t group);
// x W^T + bias: (rows, rows of W). bias is F32, or NULL.
struct tensor *graph_matmul(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                            const struct weight *bias);
// cos and sin of position * inv_freq[i], times mscale, for each pair i: (tokens, 2 * n_pairs), all cos before all
// sin. The angle is computed in double. Copies inv_freq.
struct tensor *graph_rope_table(struct graph *g, const char *name, int64_t n_pairs, const double *inv_freq,
                                float mscale);
// The same times 1 + growth ln(1 + floor((position + offset) / period)): rotated queries grow with their position.
struct tensor *graph_growing_rope_table(struct graph *g, const char *name, int64_t n_pairs, const double *inv_freq,
                                        float mscale, float growth, int period, int offset);
// The factor of a table at a position, mscale included. n: a node of OP_ROPE_TABLE.
double rope_table_factor(const struct tensor *n, int position);
// Rotates the first 2 * n_pairs columns of each head by the angles of a table.
struct tensor *graph_rope(struct graph *g, const char *name, struct tensor *x, struct tensor *table, int64_t head_dim,
                          enum rope_layout layout);
// Adds a layer to the KV cache. Returns its number, -1 on a fault.
int graph_kv_layer(struct graph *g, int n_head_kv, int dim_k, int dim_v);
// The same for a layer that stores keys alone: its values are their first dim_v columns.
int graph_kv_layer_of_keys(struct graph *g, int n_head_kv, int dim_k, int dim_v);
// Stores x, the keys or values of this step's tokens, in the KV cache. The result has no columns; attention takes it.
struct tensor *graph_kv_write(struct graph *g, const char *name, struct tensor *x, int layer, enum kv_part part);

struct attention_params {
    int n_head;
    float scale, softcap;
    int window; // 0: a row sees all positions up to its own; else the last so many of them
    // F32, a score for each head, or NULL: the softmax runs over it, too, but no value belongs to it.
    const struct weight *sinks;
    bool chunked; // positions have runs of `window`, and a row sees those of its own run up to its own
    // A row sees all positions of its sequence or, with a window, those at a distance of at most window / 2 from its
    // own. A step of such a graph has whole sequences.
    bool both_ways;
    // F32, a number for each head, or NULL: -slope * |j - position| is added to the score of position j (ALiBi).
    const struct weight *slopes;
};
// softmax(scale q.k) v over the positions of the row's sequence up to its own: (rows, n_head * dim_v). Query head h
// uses KV head h / (n_head / n_head_kv). `key` and `value` are the results of graph_kv_write for this layer; of
// a layer that stores keys alone, both are the keys.
struct tensor *graph_attention(struct graph *g, const char *name, struct tensor *q, struct tensor *key,
                               struct tensor *value, struct attention_params p);

// ---- Operations with state
//
// A sequence of a model with such operations has a state of so many float32, in which each node has a part of its own.
// A row changes the state of its sequence; the rows of a sequence do so one after another. A step says where the state
// before the first of its rows is stored, and after which rows it is to be stored; see struct step.

// A causal convolution of each column by itself: y[t] = sum over i of w[i] x[t - kernel + 1 + i], plus the bias. w has
// a row of `kernel` F32 for each column. The state is the last kernel - 1 rows of x; those before a sequence are zeros.
struct tensor *graph_short_conv(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                                const struct weight *bias);

struct delta_params {
    int n_head_k, n_head, dim_k, dim_v;
    bool grouped;
    float eps; // the least norm by which a query or key is divided
};
// The gated delta rule: (tokens, n_head * dim_v). `qkv` has in each row the queries and the keys of n_head_k heads, and
// the values of n_head. A head's state is a matrix S of (dim_k, dim_v), at first 0. With q and k divided by their norms,
// g = exp(rate * softplus(alpha + bias)) and b = sigmoid(beta), a row makes
//   S = g S;   S = S + k (b (v - S^T k))^T;   y = S^T q / sqrt(dim_k)
// alpha and beta have a column for each head, and so have the F32 vectors rate and bias.
struct tensor *graph_delta_rule(struct graph *g, const char *name, struct tensor *qkv, struct tensor *alpha,
                                struct tensor *beta, const struct weight *rate, const struct weight *bias,
                                struct delta_params p);

// The same with a decay for each column of the keys (Kimi Delta Attention, arXiv 2510.26692): row i of a head's state is
// multiplied by exp(rate * steps[i]) in place of g. `steps`, which are not negative, have a column for each column of the
// keys of n_head heads; rate has an element for each head.
struct tensor *graph_channel_delta_rule(struct graph *g, const char *name, struct tensor *qkv, struct tensor *steps,
                                        struct tensor *beta, const struct weight *rate, struct delta_params p);

struct scan_params {
    int n_head, n_group, dim, n_state;
    int64_t b_at, c_at; // columns where B and C begin in the values that hold them
};
// The selective scan of Mamba: (tokens, n_head * dim). The state has n_state floats for each column, at first 0. With
// d = softplus(dt of the column's head), a row makes of a column's state s and its input x
//   s[n] = exp(d rate[n]) s[n] + d x B[n];   y = sum over n of s[n] C[n], plus skip x
// x has these columns from its first one on; B and C have n_state columns for each of n_group groups of heads. `rate` has
// an element for each head or, with dim = 1, n_state for each, as in Mamba 1; skip has one for each head, or is NULL.
struct tensor *graph_selective_scan(struct graph *g, const char *name, struct tensor *x, struct tensor *dt,
                                    struct tensor *b, struct tensor *c, const struct weight *rate,
                                    const struct weight *skip, struct scan_params p);

// Columns from .. from + n - 1 of each `group` columns of x: (rows, n * width / group).
struct tensor *graph_slice(struct graph *g, const char *name, struct tensor *x, int64_t group, int64_t from, int64_t n);
// The columns of two values in turns: `first` of a, then `second` of b, which are the next ones or, if b has no more
// than these, the same for all parts: (rows, parts * (first + second)), where a has `first` columns for each part.
struct tensor *graph_join(struct graph *g, const char *name, struct tensor *a, int64_t first, struct tensor *b,
                          int64_t second);
struct tensor *graph_act(struct graph *g, const char *name, struct tensor *x, enum act_kind kind);
// act(gate) * up; with ACT_NONE the product of two values.
struct tensor *graph_glu(struct graph *g, const char *name, struct tensor *gate, struct tensor *up, enum act_kind kind);
// The same with as many columns of `up`, which may have more, from column `first` on.
struct tensor *graph_glu_from(struct graph *g, const char *name, struct tensor *gate, struct tensor *up,
                              enum act_kind kind, int64_t first);
struct tensor *graph_add(struct graph *g, const char *name, struct tensor *a, struct tensor *b);
struct tensor *graph_scale(struct graph *g, const char *name, struct tensor *x, float factor);
struct tensor *graph_softcap(struct graph *g, const char *name, struct tensor *x, float cap);
// The nearest number from -limit to limit.
struct tensor *graph_clamp(struct graph *g, const char *name, struct tensor *x, float limit);
// The activation function xIELU (Huang et al. 2024, arXiv 2411.13010).
struct tensor *graph_xielu(struct graph *g, const char *name, struct tensor *x, struct xielu_params p);
// Each column of x times an element of the gain, which is F32.
struct tensor *graph_gain(struct graph *g, const char *name, struct tensor *x, const struct weight *gain);

// act(gate) * x, where each column of the gate belongs to as many neighbouring columns of x, a head: the shape of x.
struct tensor *graph_head_glu(struct graph *g, const char *name, struct tensor *gate, struct tensor *x,
                              enum act_kind kind);

// Mixture of experts. graph_route gives each expert the softmax (or sigmoid) of the row's logits as its weight, and
// chooses the n_used experts with the greatest scores, on a tie the one with the lower id. The score is the weight plus
// the expert's bias, which is F32, or NULL. With groups, which are n_group runs of experts of one size, only experts of
// the n_group_used groups count whose two greatest scores have the greatest sums. `normalise` divides the weights of the
// chosen experts by their sum, and then they are multiplied by scale.
struct route_params {
    enum route_kind kind;
    int n_used;
    bool normalise;
    float scale;
    int n_group, n_group_used; // 0: no groups
};
struct tensor *graph_route(struct graph *g, const char *name, struct tensor *logits, const struct weight *bias,
                           struct route_params p);
// The same choice, but each run of `share` experts stands for one, whose number is that of the run: so are the ids. The
// weight is that of the expert with this number (GroveMoE, as llama.cpp runs it). Two choices may be one expert.
struct tensor *graph_route_shared(struct graph *g, const char *name, struct tensor *logits, struct route_params p,
                                  int share);
// A route of all rows to n experts, in their order and with weights of 1: matrices that belong to the heads of a row are
// multiplied like those of experts. `rows` is any value with the rows.
struct tensor *graph_route_each(struct graph *g, const char *name, struct tensor *rows, int n);
// The products of x with the matrices of each row's experts: (rows, n_used * rows of W). x has one vector for all
// experts of a row, or n_used vectors, one for each. bias is F32 with a row for each expert, or NULL.
struct tensor *graph_expert_matmul(struct graph *g, const char *name, struct tensor *x, const struct weight *w,
                                   const struct weight *bias, struct tensor *route);
// The weighted sum of the n_used parts of each row: (rows, width of x / n_used).
struct tensor *graph_expert_combine(struct graph *g, const char *name, struct tensor *x, struct tensor *route);
// The n_used parts of each row added up as they are.
struct tensor *graph_expert_sum(struct graph *g, const char *name, struct tensor *x, struct tensor *route);
// x times the weight of each of a row's experts, one after another: (rows, n_used * width of x).
struct tensor *graph_expert_weigh(struct graph *g, const char *name, struct tensor *x, struct tensor *route);

// The class of an operation and its name, both from op.def. op_name gives "?" for a number that is no operation.
enum op_class op_class(enum op op);
const char *op_name(enum op op);
// Appends the graph as text, one line a node: name, operation, shape, sources, weights, parameters. -1: no memory.
struct text; // kernels/text.h
int graph_print(const struct graph *g, struct text *out);

#endif
