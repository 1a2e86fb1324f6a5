// Weights: the tensors of a model file, each looked up by name and checked against the shape that the hyper-parameters ask
// for.
//
// The first fault is remembered and makes all later calls return nothing, as with hparams.h. An error names the tensor,
// what was found and what was wanted. Ownership: views the open file; what has to be made (names, views of rows, aligned
// copies of small vectors) lies in the arena of the graph that will use it. Threads: one reader.
#ifndef QUERN_WEIGHTS_H
#define QUERN_WEIGHTS_H

#include "gguf/gguf.h"
#include "kernels/tensor.h"

struct weights {
    const struct gguf *file;
    struct arena *arena;
    struct error fault; // the first
    char prefix[16];    // "blk.3."
    bool *used;         // [tensors of the file]
    int64_t n_params;   // elements of all used tensors
    int64_t bytes;
};

enum presence { OPTIONAL, REQUIRED };

// -1 when memory is short.
int weights_open(struct weights *ws, const struct gguf *file, struct arena *arena, struct error *err);
// The layer that the following names belong to; -1: none.
void weights_layer(struct weights *ws, int layer);
// Refuses a file with tensors of a layer that nothing has asked for: a model that has more than is computed would be
// computed wrongly. Scales that go unused are let be: tools write them for every matrix, of use or not.
void weights_check_unused(struct weights *ws, const char *arch);

bool weights_has(const struct weights *ws, const char *name);
// F32, n elements, aligned. NULL where there is none, or after a fault.
const struct weight *weights_vector(struct weights *ws, const char *name, int64_t n, enum presence presence);
// `rows` rows of k elements, of any type that decodes; rows 0: as many as there are.
const struct weight *weights_matrix(struct weights *ws, const char *name, int64_t k, int64_t rows,
                                    enum presence presence);
// The vector's values, or NULL. They must be finite and, with `nonzero`, not 0.
const float *weights_values(struct weights *ws, const char *name, int64_t n, bool nonzero);

// A gain and a bias, one of a pair of tensors NAME.weight and NAME.bias.
struct norm {
    bool present;
    const struct weight *gain, *bias;
};
struct norm weights_norm(struct weights *ws, const char *name, int64_t n, enum presence presence, enum presence bias);

// y = after * (W (before * x) + bias). The factors are 1 but in files whose matrices have a scale (NAME.scale).
struct linear {
    const struct weight *w, *bias; // w NULL: there is none
    float before, after;
};
// What NAME.scale multiplies: the product W x alone, or the product and the bias. Some families take no notice of it.
enum scaled { SCALED_PRODUCT, SCALED_RESULT, SCALED_NOT };
struct linear weights_linear(struct weights *ws, const char *name, int64_t k, int64_t rows, enum scaled scaled,
                             enum presence presence, enum presence bias);
// Rows first .. first+n-1 as a layer of their own: a part of a fused projection.
struct linear linear_rows(struct weights *ws, const struct linear *fused, int64_t first, int64_t n);

// A matrix for each expert, its scale for each expert inside.
const struct weight *weights_experts(struct weights *ws, const char *name, int64_t k, int64_t rows, int64_t n_expert);

// Remembers a fault of the tensor: "FILE: byte N: tensor 'blk.0.NAME': text".
void weights_refuse(struct weights *ws, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
