// The operands of a graph: weights, which are in the model file, and tensors, which a step computes.
//
// Ownership: a weight views the mapped file; a tensor belongs to its graph. Threads: both are read-only once the
// graph is built.
#ifndef QUERN_TENSOR_H
#define QUERN_TENSOR_H

#include "gguf/dtype.h"

// The forms in which products take activations: floats; 8 bits with a scale for every 32; and, on some machines, 16 bits for
// weights of 16 bits.
enum act_form { ACT_F32, ACT_Q8, ACT_F16, ACT_BF16 };

// ne[2] matrices (one for each expert, else 1) of ne[1] rows of ne[0] elements. A vector is one row.
struct weight {
    const char *name; // of the tensor in the file, for messages and dumps
    enum dtype type;
    int64_t ne[3];
    const void *data;   // in host memory, rows packed; no alignment is promised
    const float *scale; // [ne[2]]: EXPERT_MATMUL multiplies the product with matrix i by scale[i]; NULL: by 1
    size_t row_bytes;
    int64_t pitch; // rows from the beginning of a matrix to that of the next one; 0: ne[1]
};

// The number of a row of one matrix, counted from the beginning of the first matrix.
static inline int64_t weight_row_number(const struct weight *w, int64_t matrix, int64_t row)
{
    return matrix * (w->pitch ? w->pitch : w->ne[1]) + row;
}

// A view of rows first .. first+n-1 of w. It has no rows where w has not all of these, or has more than one matrix,
// whose rows would not be contiguous.
struct weight weight_rows(const struct weight *w, int64_t first, int64_t n);
// A view of these rows of each matrix of w. It has no rows where the matrices do not have all of these.
struct weight weight_rows_of_each(const struct weight *w, int64_t first, int64_t n);

enum op {
#define OP(NAME, name, class) OP_##NAME,
#include "kernels/op.def"
#undef OP
    OP_COUNT
};

// Which part of the inputs an operation needs to compute a part of its output; op.def describes each class.
enum op_class {
    CLASS_GATHER,
    CLASS_ROW,
    CLASS_ELEMENT,
    CLASS_HEAD,
    CLASS_MATVEC,
    CLASS_ATTEND,
    CLASS_STORE,
    CLASS_SCAN
};

// Which number of rows a value has: one for each token of the step, or one for each output row. The numbers
// themselves are known only when a step runs.
enum rows { ROWS_TOKENS, ROWS_OUTPUTS, ROWS_KINDS };

// An input of a step, see struct step in machine.h.
enum input { INPUT_TOKENS, INPUT_POSITIONS, INPUT_ZERO }; // ZERO: row 0 for every token

enum norm_kind { NORM_RMS, NORM_LAYER };
// The last one is of GLU alone, because it changes the second factor, too.
enum act_kind {
    ACT_NONE,
    ACT_SILU,
    ACT_GELU_TANH,
    ACT_GELU_ERF,
    ACT_RELU,
    ACT_RELU2,
    ACT_SIGMOID,
    ACT_SOFTPLUS, // ln(1 + e^x)
    ACT_SWIGLU_CLAMPED
};
// The parameters of ACT_SWIGLU_CLAMPED (gpt-oss): min(a, limit) sigmoid(alpha min(a, limit)) (clamp(b, +-limit) + 1).
#define SWIGLU_ALPHA 1.702
#define SWIGLU_LIMIT 7.0
// The parameters of OP_XIELU: alpha_p x^2 + beta x for x > 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x.
struct xielu_params {
    float alpha_n, alpha_p, beta, eps;
};
enum rope_layout { ROPE_NORM, ROPE_NEOX }; // pairs of columns (2i, 2i+1), or (i, i + n_pairs)
enum kv_part { KV_KEY, KV_VALUE };
// ROUTE_EACH chooses all of n_used experts in their order, each with a weight of 1.
enum route_kind { ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_EACH };

enum { SRC_MAX = 4, WEIGHT_MAX = 2 };

// A node of the graph and the value that it makes: (rows, width) float32, row-major.
struct tensor {
    enum op op;
    int id;           // index in the graph, in order of building
    const char *name; // "blk.3.attn_q", unique
    enum rows rows;
    int64_t width;                      // floats a row; 0 for KV_WRITE
    struct tensor *src[SRC_MAX];        // NULL: fewer
    const struct weight *w[WEIGHT_MAX]; // NULL: none
    union {
        // clang-format off
        struct { enum input input; float scale; } embed;                 // w0: table; row * scale
        struct { enum norm_kind kind; float eps; int64_t group; bool by_column; } norm;
            // group 0: the row; w0, w1: gain, bias or NULL, of a group or (by_column) of the row
        struct {
            int64_t n_pairs;
            const double *inv_freq;
            float mscale;
            float growth;       // see graph_growing_rope_table; 0: none
            int period, offset;
        } rope_table;                                                    // width 2*n_pairs: cos.., sin..
        struct { int64_t head_dim; enum rope_layout layout; } rope;      // src1: the table; 2*n_pairs of a head rotate
        struct { int layer; enum kv_part part; int64_t head_dim; } kv;
        struct {
            int layer;
            int n_head, n_head_kv, dim_k, dim_v;
            float scale;    // of q.k
            float softcap;  // s = cap*tanh(s/cap), 0: none
            int window;     // keys at distance < window are seen, 0: all
            bool chunked;   // those from the last multiple of window on
            bool both_ways; // those behind the row, too
        } attn;                     // src1, src2: the KV_WRITEs of the layer; w0: sinks or NULL; w1: slopes or NULL
        struct { enum act_kind kind; int64_t first; } act;               // GLU: act(src0) * src1 from column `first` on
        struct xielu_params xielu;
        struct { float factor; } scale;                                  // SCALE, SOFTCAP (cap) and CLAMP (limit)
        struct {
            enum route_kind kind;
            int n_used;
            bool normalise;
            float scale;
            int n_group, n_group_used;  // 0: experts have no groups
            int share;                  // so many neighbouring ids become one, see graph_route_shared; 0: each is one
        } route;
            // src0: logits (rows, n_expert) -> width 2*n_used: weights (float), then expert ids (int32); w0: bias or NULL
            // ROUTE_EACH: src0: any value of the rows, which is not looked at
        struct { int n_used; bool shared, plain; } expert;
            // EXPERT_MATMUL: src0: (rows, K) if shared, else (rows, n_used*K); src1: route; -> (rows, n_used*w0.rows);
            //   w1: a row of biases for each expert, or NULL
            // EXPERT_COMBINE: src0: (rows, n_used*width); src1: route -> sum of weight_j * part_j, in order of j; plain:
            //   of part_j
            // EXPERT_WEIGH: src0: (rows, K); src1: route -> (rows, n_used*K): weight_j * src0
        struct { int64_t group, from; } slice;  // w/group runs of columns, each from column `from` of a group of src0
        struct { int64_t first, second; } join;
            // parts of `first` columns of src0, each with `second` columns of src1 behind it: those of the same part, or
            // all of src1, if that has no more
        struct { int64_t state; int kernel; } conv;   // src0: (tokens, C); w0: (kernel, C), w1: bias or NULL
        struct {
            int64_t state;                                // first float of its state in a slot, here and above
            int n_head_k, n_head, dim_k, dim_v;           // heads of keys and queries; of values
            bool grouped;                                 // which key head belongs to head h, see key_head_of
            bool by_channel;                              // src1: (tokens, n_head*dim_k), see graph_channel_delta_rule
            float eps;
        } delta;  // src0: q, k, v: (tokens, 2*n_head_k*dim_k + n_head*dim_v); src1: decay, src2: beta: (tokens, n_head)
        struct {
            int64_t state;
            int n_head, n_group, dim, n_state;
            int64_t b_at, c_at;                           // columns where B and C begin in src2 and src3
            bool rates;                                   // w0: n_state for each head, else one
        } scan;  // src0: x: n_head*dim columns from the first on; src1: (tokens, n_head); w1: factor of x by head, or NULL
        struct { int64_t k; enum act_form form; } quantize;  // a row of src0 becomes width/k rows of k activations
        // clang-format on
    } p;
};

// The head of keys and queries that head h of values of a delta rule belongs to: heads of values stand in groups that
// share one, or all heads of keys follow each other again and again.
static inline int key_head_of(const struct tensor *n, int h)
{
    return n->p.delta.grouped ? h / (n->p.delta.n_head / n->p.delta.n_head_k) : h % n->p.delta.n_head_k;
}

// How many experts a route chooses from, and how many have a number of their own behind the choice.
static inline int64_t route_choices(const struct tensor *route)
{
    return route->p.route.kind == ROUTE_EACH ? route->p.route.n_used : route->src[0]->width;
}
static inline int64_t route_experts(const struct tensor *route)
{
    return route_choices(route) / (route->p.route.share ? route->p.route.share : 1);
}

// The positions [lo, hi) that a row of attention sees; window, chunked and both_ways: see attention_params. `end` is the
// number of positions of the row's sequence, which only attention both ways needs.
struct seen_positions {
    int lo, hi;
};
static inline struct seen_positions attention_sees(int position, int end, int window, bool chunked, bool both_ways)
{
    const int behind = position + 1;
    if (both_ways)
        return window ? (struct seen_positions){MAX(0, position - window / 2), MIN(end, behind + window / 2)}
                      : (struct seen_positions){0, end};
    if (window <= 0 || position < window)
        return (struct seen_positions){0, behind};
    return (struct seen_positions){chunked ? position - position % window : behind - window, behind};
}

// kernels/cpu/ref_ops.c defines what each operation computes.

#endif
