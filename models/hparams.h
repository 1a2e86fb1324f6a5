// Hyper-parameters: reads the keys "ARCH.name" of a model file and checks their types and ranges.
//
// The first error is kept in `fault`, and all later reads return their fallback. A family therefore reads its keys
// line by line without checks between them, and the caller looks at `fault` at the end. An error names the key, its
// value and what is allowed. Ownership: struct hparams views the open file. Threads: one at a time.
#ifndef QUERN_HPARAMS_H
#define QUERN_HPARAMS_H

#include "gguf/gguf.h"

struct hparams {
    const struct gguf *file;
    const char *arch;    // the first part of each key
    struct error *fault; // the first error is kept here
};

// An integer within lo .. hi. The key is required; with _or, a missing key gives `fallback`.
int64_t hparam_int(struct hparams *h, const char *name, int64_t lo, int64_t hi);
int64_t hparam_int_or(struct hparams *h, const char *name, int64_t lo, int64_t hi, int64_t fallback);
// An integer for each of n layers: the value is one number for all layers, or an array of n. The key is required; with
// _or, a missing key leaves `out` unchanged.
void hparam_layers(struct hparams *h, const char *name, int n, int64_t lo, int64_t hi, int *out);
void hparam_layers_or(struct hparams *h, const char *name, int n, int64_t lo, int64_t hi, int *out);
// Whether the key exists and is an array; and element `layer` of an array of n flags, one for each layer.
bool hparam_is_array(struct hparams *h, const char *name);
bool hparam_layer_flag(struct hparams *h, const char *name, int layer, int n);
// At most `max` integers. Without the key, and for elements that the array does not have, `out` is unchanged.
void hparam_array_or(struct hparams *h, const char *name, int max, int64_t lo, int64_t hi, int *out);

bool hparam_flag(struct hparams *h, const char *name);
bool hparam_flag_or(struct hparams *h, const char *name, bool fallback);

// A finite number above zero. The key is required; with _or, a missing key gives `fallback`.
float hparam_positive(struct hparams *h, const char *name);
float hparam_positive_or(struct hparams *h, const char *name, float fallback);
// The same as hparam_positive, but 0 is taken, too.
float hparam_not_negative(struct hparams *h, const char *name);
// As hparam_positive_or, but 0 counts as missing, too: some writers save 0 when a model does not use the key.
float hparam_factor_or(struct hparams *h, const char *name, float fallback);

// A finite number that is not negative: element `layer` of an array of n or more floats, or one number for all layers;
// `fallback` when the key is missing.
float hparam_layer_number_or(struct hparams *h, const char *name, int layer, int n, float fallback);

// The index of the value in `words`, which ends with NULL; `fallback` when the key is missing.
int hparam_word_or(struct hparams *h, const char *name, const char *const *words, int fallback);

// Keeps an error about the key: "FILE: byte N: key 'llama.NAME': text" (without the byte when the key is missing).
void hparam_refuse(struct hparams *h, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
