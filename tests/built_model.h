// A small synthetic model in a file, and its graph, for tests that run it on a machine of their choice.
//
// Each test links its own copy. Threads: one.
#ifndef QUERN_BUILT_MODEL_H
#define QUERN_BUILT_MODEL_H

#include "models/arch.h"
#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_VOCAB = 300 };

struct built_model {
    struct gguf *file;
    struct graph *graph;
    struct arch_info info;
    char path[64];
};

// Makes a model with the shape of a preset and the types of `mix`.
static inline struct built_model build_model(const char *preset, const char *mix, uint64_t seed)
{
    struct built_model m = {.path = "/tmp/quern-built-XXXXXX"};
    struct error err = {0};
    struct arch_options o = {0};
    struct synth_options s = {.preset = preset, .mix = mix, .n_vocab = N_VOCAB, .seed = seed};
    int fd = mkstemp(m.path);
    cr_assert(fd >= 0 && close(fd) == 0);
    cr_assert_eq(synth_model_write(&s, m.path, &err), 0, "%s: %s", preset, err.text);
    cr_assert_eq(gguf_open(&m.file, m.path, 0, &err), 0, "%s", err.text);
    cr_assert_eq(arch_build(m.file, &o, &m.graph, &m.info, &err), 0, "%s", err.text);
    return m;
}

static inline void built_model_free(struct built_model *m)
{
    graph_free(m->graph);
    gguf_close(m->file);
    remove(m->path);
}

#endif
