// Synthetic models: files with the shape of a real model and random weights of realistic size, written in seconds.
//
// They serve to measure speed, memory and agreement between settings. Their answers are noise, and their names say so.
// Ownership: nothing is kept between calls. Threads: calls for different files are independent.
#ifndef QUERN_SYNTH_MODEL_H
#define QUERN_SYNTH_MODEL_H

#include "gguf/base.h"

struct synth_options {
    const char *preset; // a name that synth_preset_name gives
    const char *mix;    // a tensor type, or Q4_K_M or Q5_K_M; upper or lower case
    const char *vocab;  // a GGUF whose tokenizer.* keys are copied; NULL: a vocabulary is generated
    int64_t n_vocab;    // tokens of a generated vocabulary; 0: as many as the original of the preset has
    uint64_t seed;      // the same seed gives the same file
};

// Writes the model to path. E_USAGE for unknown names and numbers out of range; errors of gguf_open and of the writer.
int synth_model_write(const struct synth_options *o, const char *path, struct error *err);
// The same to an open, empty file; `name` is for errors.
int synth_model_write_fd(const struct synth_options *o, int fd, const char *name, struct error *err);

// The name of preset i; NULL after the last one.
const char *synth_preset_name(size_t i);

#endif
