// Quantises a model file: every tensor is converted to the type that the mix chooses for it, and the metadata is kept.
//
// The input is mapped and read once, row by row; the output is written in pieces to a temporary file that gets its
// name when it is whole. Memory: some megabytes, whatever the size of the model or its tensors. While one piece is
// written, the next is computed on all threads of a CPU machine. The same file comes out on any number of threads and
// any ISA. Ownership: struct quantizer views the file, the machine and the importance matrix, which outlive it.
// Threads: one caller; it uses the machine's.
#ifndef QUERN_QUANTIZER_H
#define QUERN_QUANTIZER_H

#include "engine/quantize/importance.h"
#include "engine/quantize/quantize_mix.h"
#include "kernels/machine.h"

#include <stdatomic.h>

struct quantize_options {
    struct mix_options mix;
    const struct importance *importance; // NULL: none
    const char *importance_path;         // for the metadata
    bool allow_requantize;               // also from quantised types
    bool types_only;                     // nothing will be written: what would be refused then is planned too
    const atomic_bool *cancel;           // E_INTERRUPTED between pieces. May be NULL
    void (*progress)(void *arg, int64_t done, int64_t total, const struct gguf_tensor *t); // in bytes read. May be NULL
    void *arg;
};

struct quantizer {
    const struct gguf *file;
    struct machine *machine;
    struct quantize_options o;
    struct mix_choice *choices; // [n_tensors]
    size_t n_tensors;
    uint64_t bytes_in, bytes_out; // of all tensors
    int64_t n_weights;
    int n_fallback;           // tensors whose rows did not fit
    int n_without_importance; // quantised without, though there is a matrix
};

// Chooses the types, and refuses what cannot be done: E_USAGE names the tensor and the flag that would help.
int quantizer_plan(struct quantizer *q, const struct gguf *g, struct machine *m, const struct quantize_options *o,
                   struct error *err);
// Writes the file. E_MODEL names a tensor that holds a value that is no number.
int quantizer_write(struct quantizer *q, const char *path, struct error *err);
void quantizer_free(struct quantizer *q);

#endif
