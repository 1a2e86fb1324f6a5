// The models that lie on this disk already, put there by other programs: found and named, never written.
//
// Five layouts are read: Ollama ($OLLAMA_MODELS, ~/.ollama/models, /usr/share/ollama/.ollama/models), the Hugging Face
// cache ($HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME or ~/.cache/huggingface/hub), LM Studio (~/.lmstudio/models),
// llama.cpp
// ($LLAMA_CACHE, ~/.cache/llama.cpp) and Docker Model Runner (~/.docker/models). What is missing, unreadable or broken
// there is passed over: it is not ours. Ownership: a catalog owns its texts. Threads: none.
#ifndef QUERN_CATALOG_H
#define QUERN_CATALOG_H

#include "gguf/base.h"

struct catalog_entry {
    const char *source; // "ollama", "huggingface", "lmstudio", "llama.cpp", "docker"
    const char *name;   // as -m takes it: "llama3.2:3b", "ORG/REPO:Q4_K_M", or a file's name
    const char *path;   // of the GGUF file, of its first part when it is split
    uint64_t size;      // bytes of all parts
    int64_t modified;   // seconds since 1970
    int n_parts;
};

struct catalog {
    struct arena arena;
    struct catalog_entry *entries; // by name
    int n, cap;
};

// Zero-initialise *c. E_MEMORY alone.
int catalog_read(struct catalog *c, struct error *err);
void catalog_free(struct catalog *c);

// The file that `name` means, in a new string that the caller frees: MODEL_BUILTIN or a path that exists; else the one model of that
// name, tag or quantisation (name[:tag], org/repo[:quant], upper and lower case alike); else the one whose name holds
// it. E_USAGE when there is none, or lists those that it may mean.
int catalog_resolve(const char *name, char **path, struct error *err);
// The same, in a catalog that has been read; the path is a view. NULL with an error.
const struct catalog_entry *catalog_find(const struct catalog *c, const char *name, struct error *err);

#endif
