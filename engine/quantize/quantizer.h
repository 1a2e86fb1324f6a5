// Quantises a model file: every tensor is converted to the type that the mix chooses for it, and the metadata is kept.
//
// The input is mapped and read once, row by row. The output is written in pieces to a temporary file, which gets its
// final name when it is complete. The memory used is some megabytes, whatever the size of the model or its tensors.
// While one piece is written, the next one is computed on all threads of a CPU machine. The file is the same with any
// number of threads and any ISA. Ownership: struct quantizer views the file, the machine and the importance matrix,
// which must outlive it. Threads: one at a time; the work is done by the threads of the machine.
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
    bool allow_requantize;               // convert tensors that are quantised already, too
    bool types_only;                     // only plan: nothing will be written, so no tensor is refused
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
    int n_fallback;           // tensors whose rows do not fit the type that the mix chose
    int n_without_importance; // tensors that the importance matrix does not contain, although they would use it
    int64_t n_unmeasured;     // columns that the importance matrix has as 0, see importance_weights
};

// Chooses the types. E_USAGE, with the tensor and the flag that would help, when a conversion is not possible.
int quantizer_plan(struct quantizer *q, const struct gguf *g, struct machine *m, const struct quantize_options *o,
                   struct error *err);
// Writes the file. E_MODEL, with the name of the tensor, when a weight is not finite or too large for the type.
int quantizer_write(struct quantizer *q, const char *path, struct error *err);
void quantizer_free(struct quantizer *q);

#endif
