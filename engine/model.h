// A loaded model: the GGUF file, its tokenizer, its graph, and the machine (CPU, reference or GPU) that runs the
// graph.
//
// Ownership: the model owns all four; its sessions are closed before it. Threads: an open model is read-only, but its
// machine runs one step at a time.
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#include "engine/text/tokenizer.h"
#include "kernels/machine.h"
#include "models/arch.h"

enum device { DEVICE_AUTO, DEVICE_CPU, DEVICE_REF, DEVICE_GPU };

// The path that names the model inside the program itself; a file of that name is reached as ./built-in.
#define MODEL_BUILTIN "built-in"

// A file of a low-rank adapter or of a control vector, and by what its changes are multiplied.
struct model_adapter {
    const char *path;
    float scale;
};

struct model_options {
    const char *path; // path of a GGUF file, or MODEL_BUILTIN
    enum device device;
    int card;                 // number of the GPU, for DEVICE_GPU and DEVICE_AUTO
    const char *kernel_cache; // folder for compiled GPU kernels and measured speeds; NULL: nothing is kept
    double tune_seconds;      // how long the kernels of a GPU may be measured, see struct gpu_options
    bool tune_again;          // with DEVICE_GPU: also those that were measured at an earlier start
    enum dtype kv_type[2];    // types of keys and values for which DEVICE_AUTO requires room on the GPU
    struct machine_options machine;
    int n_ctx;    // positions of a sequence; 0: as many as the model was trained for, at most N_CTX_DEFAULT
    bool no_mmap; // read the file instead of mapping it; without effect on the built-in model
    bool any_pre; // accept an unknown pre-tokenizer and use the default one
    // Changes keys of the file before anything reads them, as flags want it. May be NULL.
    int (*set_keys)(const void *arg, struct gguf *file, struct error *err);
    const void *set_keys_arg;
    const struct model_adapter
        *adapters; // [n_adapters], the last n_controls of which are control vectors, the others LoRA
    int n_adapters, n_controls;
    struct control_range control_range; // the layers that control vectors change
    bool hidden;                        // for embeddings: the model computes hidden rows instead of logits
    bool hidden_if_meant; // the same for a model that is made for embeddings, by its family or the pooling of its file
};
enum { N_CTX_DEFAULT = 4096 };

struct model {
    struct gguf *file;
    struct tokenizer *tokenizer;
    struct graph *graph;
    struct machine *machine;
    struct arch_info info;
    bool hidden;                 // see model_options
    struct adapter *adapters;    // [n_adapters], views of the files below; the last n_controls are control vectors
    struct gguf **adapter_files; // [n_adapters]
    int n_adapters, n_controls;
    struct control_range control_range;
    int n_ctx;               // positions of a sequence, as requested or by default
    bool weights_are_mapped; // mapped from the file, or part of the program
    const char *device;      // "cpu", "ref", "gpu"
    int card;                // number of the GPU, when device is "gpu"
    char device_why[512];    // why this device, as a clause: "asked for", or the result of device_choose
    bool device_news;        // DEVICE_AUTO found a GPU, chosen or not: worth a line of output
    double load_ms;
};

// Opens a file with gguf_open, or the built-in model with gguf_open_view. E_USAGE when path is MODEL_BUILTIN and this
// build has no built-in model.
int model_file_open(struct gguf **out, const char *path, unsigned flags, struct error *err);
// Whether this build has a built-in model.
bool model_has_builtin(void);

// Loads a model and chooses its machine. Errors: those of model_file_open, tokenizer_load, arch_build and the machine;
// E_USAGE when the model makes nothing but embeddings and `hidden` is not set;
// E_GPU when DEVICE_GPU was requested and there is no usable GPU.
int model_open(struct model **out, const struct model_options *o, struct error *err);
void model_close(struct model *m); // NULL is fine
// Rebuilds the graph for n_ctx positions. To be called before any session is opened: in some model families the rotary
// angles depend on n_ctx.
int model_set_context(struct model *m, int n_ctx, struct error *err);

#endif
