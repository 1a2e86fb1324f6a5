// Architectures: builds the graph of a model from the keys and tensors of its file.
//
// arch_build reads the hyper-parameters that the family defines (other keys are ignored), checks the presence, shape
// and type of every tensor against them, and runs the forward pass of the family once to build the graph. The weights
// of the graph are views of the open file, which must outlive the graph. When the file was opened without the data of
// its tensors, the weights have only shapes; this is an error only when a family needs values to build its graph.
// Threads: any; no state is shared.
#ifndef QUERN_ARCH_H
#define QUERN_ARCH_H

#include "gguf/gguf.h"
#include "kernels/graph.h"
#include "models/control.h"
#include "models/weights.h"

// How the hidden rows of a text become its embedding, as the file says.
enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_FIRST, POOLING_LAST, POOLING_RANK };

// What follows the pooled row. Matrices are views of the file, vectors F32; what the file does not have is NULL. All of it
// belongs to the graph.
struct arch_pooling {
    enum pooling kind;
    enum pooling before_rank;      // how rows become one where `kind` is POOLING_RANK
    const struct weight *dense[2]; // products without an activation, one after another (EmbeddingGemma)
    // The head of a reranker: out (norm (act (cls x + bias))) + bias. The activation is tanh, or GELU.
    const struct weight *cls, *cls_bias, *cls_norm, *cls_out, *cls_out_bias;
    bool gelu;
    bool softmax;   // of the head's outputs
    float norm_eps; // of cls_norm
};

struct arch_options {
    int n_ctx; // most positions that will be used; 0: as many as the model was trained for. longrope depends on it
    const struct adapter *adapters; // [n_adapters] low-rank adapters to be applied
    int n_adapters;
    const struct adapter *controls; // [n_controls] control vectors to be added
    int n_controls;
    struct control_range control_range;
    bool hidden; // the result is what the logits are computed from, for embeddings; for encoders it is that in any case
};

struct arch_info {
    char name[32]; // "llama"
    int n_vocab, n_ctx_train, n_embd, n_layer;
    int n_layer_unused;  // layers of the file that predict further tokens, which the graph leaves out
    int64_t sparse_from; // the model was made to see some keys alone from this position on, and sees all; 0: it was not
    int64_t n_params;    // elements of all tensors that the graph uses
    int64_t weight_bytes;
    bool rotary;  // positions are angles, so that keys of rope mean something
    bool encoder; // rows see the whole text, and there are no logits
    int n_out;    // columns of the result: n_vocab, or those of a hidden row
    struct arch_pooling pooling;
};

// E_MODEL with the name of a key or tensor that is missing, has the wrong type or shape, or is out of range.
int arch_build(const struct gguf *file, const struct arch_options *o, struct graph **out, struct arch_info *info,
               struct error *err);
// Whether there is a family of this name.
bool arch_is_known(struct str name);
// Appends the names of all families, separated by spaces, for errors and help.
void arch_list(struct text *out);

#endif
