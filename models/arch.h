// Architectures: from a model file's keys and tensors to a graph.
//
// arch_build reads the hyper-parameters that the family defines (and leaves other keys alone), checks every tensor's
// presence, shape and type against them, and runs the family's forward once. The graph's weights view the open file, which
// must outlive the graph; of a file opened without its tensors' data, shapes alone, where that will do. Threads: pure but for
// its results.
#ifndef QUERN_ARCH_H
#define QUERN_ARCH_H

#include "gguf/gguf.h"
#include "kernels/graph.h"

struct arch_options {
    int n_ctx; // positions that will be used at most; 0: as many as the model was trained for (longrope picks by it)
};

struct arch_info {
    char name[32]; // "llama"
    int n_vocab, n_ctx_train, n_embd, n_layer;
    int64_t n_params; // elements of all tensors that the graph uses
    int64_t weight_bytes;
};

// E_MODEL with the key or tensor that is missing, of the wrong type or shape, or out of range.
int arch_build(const struct gguf *file, const struct arch_options *o, struct graph **out, struct arch_info *info,
               struct error *err);
// Names of all families, separated by spaces: for errors and help.
void arch_list(struct text *out);

#endif
