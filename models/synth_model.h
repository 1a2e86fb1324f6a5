// Synthetic models: files of a real model's shape with random weights of sane size, written in seconds.
//
// Speed, memory and agreement between settings can be measured on one; what it says is noise, and its name says so.
// Owns nothing between calls. Threads: calls for different files are independent.
#ifndef QUERN_SYNTH_MODEL_H
#define QUERN_SYNTH_MODEL_H

#include "gguf/base.h"

struct synth_options {
    const char *preset; // a name that synth_preset_name gives
    const char *mix;    // a tensor type, or Q4_K_M or Q5_K_M; in either case
    const char *vocab;  // a GGUF whose tokenizer.* keys are copied as they stand, or NULL to make one up
    int64_t n_vocab;    // tokens of a made-up vocabulary; 0: as many as the preset's original has
    uint64_t seed;      // the same seed gives the same file
};

// Writes the model to path. E_USAGE for names that are unknown or numbers out of range, else as gguf_open and the
// writer.
int synth_model_write(const struct synth_options *o, const char *path, struct error *err);

// The presets by name, NULL past the last.
const char *synth_preset_name(size_t i);

#endif
