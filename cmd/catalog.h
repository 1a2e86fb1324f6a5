// Finds the models that other programs have stored on this disk, and names them. Nothing is ever written there.
//
// Five layouts are read: Ollama ($OLLAMA_MODELS, ~/.ollama/models, /usr/share/ollama/.ollama/models), the Hugging
// Face cache ($HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME or ~/.cache/huggingface/hub), LM Studio
// (~/.lmstudio/models), llama.cpp ($LLAMA_CACHE, ~/.cache/llama.cpp) and Docker Model Runner (~/.docker/models).
// Entries that are missing, unreadable or damaged are skipped without an error.
//
// Ownership: a catalog owns its strings. Threads: one at a time on a catalog.
#ifndef QUERN_CATALOG_H
#define QUERN_CATALOG_H

#include "gguf/base.h"

struct catalog_entry {
    const char *source; // the program that stored it: "ollama", "huggingface", "lmstudio", "llama.cpp", "docker"
    const char *name;   // the name that -m accepts: "llama3.2:3b", "ORG/REPO:Q4_K_M", or a file name
    const char *path;   // the GGUF file; of a split model its first part
    uint64_t size;      // bytes of all parts together
    int64_t modified;   // seconds since 1970
    int n_parts;
};

struct catalog {
    struct arena arena;
    struct catalog_entry *entries; // sorted by name
    int n, cap;
};

// Reads all five layouts. *c must be zero-initialised. Fails with E_MEMORY only.
int catalog_read(struct catalog *c, struct error *err);
void catalog_free(struct catalog *c);

// Finds the model file that `name` means and returns its path in a new string, which the caller frees. In this order:
// MODEL_BUILTIN; a path that exists; the one model with that name, tag or quantisation (name[:tag], org/repo[:quant],
// case-insensitive); the one model whose name contains it. E_USAGE if there is none, or with a list of the candidates
// if there are several. *called, unless `called` is NULL, becomes the whole name of a model found by name, which the
// caller frees as well; NULL: it was a path.
int catalog_resolve(const char *name, char **path, char **called, struct error *err);
// The same in a catalog that has been read already. The entry belongs to the catalog. NULL with an error.
const struct catalog_entry *catalog_find(const struct catalog *c, const char *name, struct error *err);

#endif
