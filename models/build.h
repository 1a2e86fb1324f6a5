// The building of a model: what every family's build function starts from, and the pieces that all models have.
//
// A family is one function, build_NAME(b), in straight lines: it reads its keys, and then says layer by layer what is
// computed, with the functions below, those of models/blocks/ and those of kernels/graph.h. Weights are looked up where
// they are used. It returns the logits.
//
// A fault (a key, a tensor, memory) is kept in the graph, and only the first one. Then lookups return NULL, and so do
// all functions that return tensors, so that a family needs no checks. Shapes in comments: n_tok rows, and n from
// build_last_rows on, where only the rows that want logits are left. Ownership: everything is in the arena of the graph
// or is a view of the open file. Threads: one at a time.
#ifndef QUERN_BUILD_H
#define QUERN_BUILD_H

#include "kernels/graph.h"
#include "models/arch.h"
#include "models/rope.h"
#include "models/weights.h"

struct build {
    struct graph *g;
    struct hparams h;
    struct weights ws;
    // Read for every family before it starts.
    int n_layer;        // layers that are computed
    int n_layer_unused; // layers behind these, see build_skip_prediction
    bool rotary;        // build_rope was called
    int n_embd, n_ctx_train;
    int n_ctx;        // most positions that will be used
    int dim_k, dim_v; // columns of keys and of values per head
    int *n_head, *n_head_kv,
        *n_ff;           // [layers of the file]; layers without attention have 0 heads, in families with such
    int n_vocab;         // set by build_embed
    int layer;           // set by build_layer
    int64_t sparse_from; // set by families whose attention chooses keys, see struct arch_info
    // What the family says of all its norms and matrices. Preset to RMS norms and to biases that may be there or not.
    enum norm_kind norm;
    float norm_eps;
    enum presence biases;
    enum presence output_bias; // of the output matrix; preset to one that may be there
    bool both_ways;            // rows see the whole text; preset from the file, for encoders to true
    struct control control;    // what is added behind layers
    struct tensor *hidden;     // what the logits are computed from: the rows that embeddings are made of
    // How these become an embedding. A family may change before_rank, preset to the first row, gelu and softmax.
    struct arch_pooling *pooling;
};

// What kinds of families there are: those that answer, with attention in every layer or not, and encoders.
enum family_kind { FAMILY_DECODER, FAMILY_RECURRENT, FAMILY_ENCODER };

// Builds a family's graph and returns the logits, (n, n_vocab); an encoder returns the hidden rows, (n, n_embd).
typedef struct tensor *build_fn(struct build *b);

// Builds the graph of the model in the file. `arch` is the name of the family and the first part of its keys.
// In a recurrent family, layers without attention may have 0 heads.
int build_model(const struct gguf *file, const char *arch, build_fn *build, enum family_kind kind,
                const struct arch_options *o, struct graph *g, struct arch_info *info, struct error *err);

// Reads the epsilon of the family's RMS norms, or of its LayerNorms, which become the family's norm.
void build_read_rms(struct build *b);
void build_read_layer_norm(struct build *b);
// Refuses a file with layers that predict tokens beyond the next one; or leaves these layers, the last ones of the
// file, unused, so that they are no part of n_layer.
void build_refuse_prediction(struct build *b);
void build_skip_prediction(struct build *b);
// The window of a layer, or 0 if it sees all keys. attention.sliding_window_pattern is an array of a flag for each layer,
// or the length of a period, of which the last layer sees all keys; `period` is what a missing key means.
int build_window(struct build *b, int layer, int window, int period);

// The nodes and weights that follow belong to this layer; -1: to none.
void build_layer(struct build *b, int layer);
// The embeddings of the tokens, times scale: (n_tok, n_embd). Also sets n_vocab.
struct tensor *build_embed(struct build *b, float scale);
// x with the norm of NAME.weight over the whole row: the shape of x.
struct tensor *build_norm(struct build *b, const char *name, struct tensor *x);
// The same for each `dim` columns by themselves, which are a head.
struct tensor *build_head_norm(struct build *b, const char *name, struct tensor *x, int dim);
// x times the matrix NAME.weight with `rows` rows, plus its bias: (n_tok, rows).
struct tensor *build_project(struct build *b, const char *name, struct tensor *x, int64_t rows, enum scaled scaled);
// The same for a matrix that was looked up already.
struct tensor *build_project_by(struct build *b, const char *name, struct tensor *x, const struct linear *l);
// x times factor; x itself if the factor is 1.
struct tensor *build_scale(struct build *b, const char *name, struct tensor *x, float factor);
// In the last layer: selects the rows that want logits. No later node mixes rows, so only they are computed on.
void build_last_rows(struct build *b, int layer, struct tensor **x, struct tensor **y);
// The same for a third value, where the halves of a block stand side by side.
struct tensor *build_last_rows_of(struct build *b, int layer, const char *name, struct tensor *x);
// x plus the product of y with NAME.weight: (n, n_embd). In the last layer only the rows that want logits are left.
struct tensor *build_residual(struct build *b, const char *name, struct tensor *x, struct tensor *y,
                              enum scaled scaled);
// The end of a layer: x + y, and behind it the control vector of the layer, if there is one.
struct tensor *build_layer_end(struct build *b, const char *name, struct tensor *x, struct tensor *y);
// x plus the control vector of the layer: the shape of x.
struct tensor *build_control(struct build *b, struct tensor *x);
// The last norm, and the products with the output matrix or, without one, with the embeddings: (n, n_vocab).
struct tensor *build_output(struct build *b, struct tensor *x);
// The same without the norm.
struct tensor *build_logits(struct build *b, struct tensor *x);

// The cosines and sines of a rope for each token's position: (n_tok, n_rot). factors: see rope_frequencies.
struct tensor *build_rope(struct build *b, const char *name, const struct rope *r, const float *factors);
// The factors of rope_freqs.weight, or those of rope_factors_short or _long as the context needs them; NULL: none.
const float *build_rope_freqs(struct build *b, const struct rope *r);
const float *build_rope_factors_by_context(struct build *b, const struct rope *r);
// The table with the one of these that belongs to the kind of scaling: those by context for longrope.
struct tensor *build_rope_with_factors(struct build *b, const char *name, const struct rope *r);

#endif
