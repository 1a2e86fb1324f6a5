// A loaded model: the file, its tokenizer, its graph, and the machine that runs it.
//
// Ownership: the model owns all four; sessions are closed before it. Threads: read-only once open, but the machine runs
// one step at a time.
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#include "engine/text/tokenizer.h"
#include "kernels/machine.h"
#include "models/arch.h"

enum device { DEVICE_AUTO, DEVICE_CPU, DEVICE_REF, DEVICE_GPU };

// The path that stands for the model in the program itself; a file of this name is reached as ./built-in.
#define MODEL_BUILTIN "built-in"

struct model_options {
    const char *path; // of a file, or MODEL_BUILTIN
    enum device device;
    int card;                 // of DEVICE_GPU and DEVICE_AUTO: which one
    const char *kernel_cache; // folder of compiled kernels of a card and of its speed; NULL: none are kept
    enum dtype kv_type[2];    // of the keys and values that a card must have room for, where DEVICE_AUTO asks
    struct machine_options machine;
    int n_ctx;    // positions of a sequence that will be used; 0: as many as it was trained for, N_CTX_DEFAULT at most
    bool no_mmap; // read the file instead of mapping it; the built-in model lies in memory already
    bool any_pre; // take an unknown pre-tokenizer for the default one
};
enum { N_CTX_DEFAULT = 4096 };

struct model {
    struct gguf *file;
    struct tokenizer *tokenizer;
    struct graph *graph;
    struct machine *machine;
    struct arch_info info;
    int n_ctx;               // as chosen, or as many as by default
    bool weights_are_mapped; // or a part of the program
    const char *device;      // "cpu", "ref", "gpu"
    int card;                // of "gpu": which one
    char device_why[512];    // a clause: "asked for", or what a look for cards brought
    bool device_news;        // auto met a card, whether it took it or not: worth a line
    double load_ms;
};

// gguf_open, or gguf_open_view of the built-in model. E_USAGE when that is asked for and the build left it out.
int model_file_open(struct gguf **out, const char *path, unsigned flags, struct error *err);
// Whether there is a built-in model.
bool model_has_builtin(void);

// Errors: those of model_file_open, tokenizer_load, arch_build and the machine; E_GPU when a GPU was asked for and there is
// none.
int model_open(struct model **out, const struct model_options *o, struct error *err);
void model_close(struct model *m); // NULL is fine
// Makes room for more positions, before any session is opened: some families choose their angles by it.
int model_set_context(struct model *m, int n_ctx, struct error *err);

// The address range of the tensors of part `shard` of the file: false when there is none, or it is not mapped.
bool model_mapping(const struct model *m, int shard, const void **from, const void **to);

#endif
