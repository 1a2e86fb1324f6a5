// Weights: looks up the tensors of a model file by name and checks them against the shapes that follow from the
// hyper-parameters.
//
// The first error is kept in `fault`, and all later calls return nothing, as in hparams.h. An error names the tensor,
// what was found and what was wanted. Ownership: struct weights views the open file; names, views of rows and aligned
// copies of small vectors are in the arena of the graph. Threads: one at a time.
#ifndef QUERN_WEIGHTS_H
#define QUERN_WEIGHTS_H

#include "gguf/gguf.h"
#include "kernels/tensor.h"

// A low-rank adapter (Hu et al. 2021, arXiv 2106.09685): to the product W x of a matrix that it has NAME.lora_a and
// NAME.lora_b for, scale * B (A x) is added.
struct adapter {
    const struct gguf *file;
    float scale; // as the user wants it; 1: as the adapter was trained
};

struct weights {
    const struct gguf *file;
    struct arena *arena;
    struct error *fault; // the first error is kept here
    char prefix[16];     // of the names of the present layer, such as "blk.3."
    bool *used;          // [tensors of the file] whether the tensor was looked up
    int n_layer;         // the layers from this one on are not used; 0: all are
    int64_t n_params;    // elements of all used tensors
    int64_t bytes;
    struct weights *adapted; // [n_adapters] the same for the files of adapters
    float *scales, *alphas;  // [n_adapters]; with an alpha, a pair is multiplied by alpha / rank, too
    int n_adapters;
};

// IGNORED: it may be there, and goes unused, as in the program that the family's files are made for.
enum presence { OPTIONAL, REQUIRED, IGNORED };

// -1 when memory is short. `err` is also where later faults are kept.
int weights_open(struct weights *ws, const struct gguf *file, struct arena *arena, struct error *err);
// Adds adapters, whose files must outlive the graph. E_MODEL if one is none, or of another family than `arch`.
int weights_adapt(struct weights *ws, const struct adapter *adapters, int n, const char *arch, struct error *err);
// Sets the layer to which the following names belong; -1: none.
void weights_layer(struct weights *ws, int layer);
// Refuses adapters with tensors that were not looked up, and a file with tensors of used layers that were not looked up, because such a model would be computed wrongly. Unused scales are allowed: tools write them for every matrix, whether it uses them or not.
void weights_check_unused(struct weights *ws, const char *arch);

bool weights_has(const struct weights *ws, const char *name);
// A matrix of F32 with a row of k for each column, which may stand in the file as one of three dimensions, k x 1 x columns.
const struct weight *weights_columns(struct weights *ws, const char *name, int64_t k, int64_t columns,
                                     enum presence presence);
// The rows of a matrix; 0: there is none.
int64_t weights_n_rows(const struct weights *ws, const char *name);
// A vector of n elements, F32 and aligned. NULL when there is none, or after an error.
const struct weight *weights_vector(struct weights *ws, const char *name, int64_t n, enum presence presence);
// `rows` rows of k elements as one vector, F32 and aligned.
const struct weight *weights_rows_as_vector(struct weights *ws, const char *name, int64_t k, int64_t rows,
                                            enum presence presence);
// A matrix with `rows` rows of k elements, of any type that can be decoded; rows 0: any number of rows.
const struct weight *weights_matrix(struct weights *ws, const char *name, int64_t k, int64_t rows,
                                    enum presence presence);
// The values of an optional vector, or NULL. They must be finite and, with `nonzero`, not 0.
const float *weights_values(struct weights *ws, const char *name, int64_t n, bool nonzero);

// A norm: a gain and a bias, from the tensors NAME.weight and NAME.bias.
struct norm {
    bool present;
    const struct weight *gain, *bias;
};
struct norm weights_norm(struct weights *ws, const char *name, int64_t n, enum presence presence, enum presence bias);

// What an adapter adds to a product: scale * B (A x).
struct lora {
    const struct weight *a, *b;
    float scale;
    const struct lora *next; // of the next adapter; NULL: none
};

// y = after * (W (before * x) + bias + what adapters add). The factors are 1, except in files with scales of matrices (NAME.scale).
struct linear {
    const struct weight *w, *bias; // w is NULL when the layer is absent
    float before, after;
    const struct lora *loras;
};
// What NAME.scale multiplies: the product W x, or the product plus the bias. Some families ignore it.
enum scaled { SCALED_PRODUCT, SCALED_RESULT, SCALED_NOT };
struct linear weights_linear(struct weights *ws, const char *name, int64_t k, int64_t rows, enum scaled scaled,
                             enum presence presence, enum presence bias);
// Rows first .. first + n - 1 of a fused projection, as a linear layer.
struct linear linear_rows(struct weights *ws, const struct linear *fused, int64_t first, int64_t n);

// One matrix per expert, with one scale per expert if the file has them and the family does not ignore them.
const struct weight *weights_experts(struct weights *ws, const char *name, int64_t k, int64_t rows, int64_t n_expert,
                                     enum scaled scaled);
// Rows first .. first + n - 1 of each of these matrices; NULL after an error.
const struct weight *weights_rows_of_each(struct weights *ws, const struct weight *w, int64_t first, int64_t n);

// One bias of `rows` elements per expert, NAME.bias, F32 and aligned; NULL when there is none, or after an error.
const struct weight *weights_expert_biases(struct weights *ws, const char *name, int64_t rows, int64_t n_expert);

// Keeps an error about the tensor: "FILE: byte N: tensor 'blk.0.NAME': text".
void weights_refuse(struct weights *ws, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
