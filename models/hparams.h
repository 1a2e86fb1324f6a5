// Hyper-parameters: the keys "ARCH.name" of a model file, each read with its type and range.
//
// The first fault is remembered and makes all later reads return their fallback, so that a family reads its keys line by
// line without a check between them: whoever began asks for the fault at the end. An error names key, value and what was
// wanted. Ownership: views the open file. Threads: one reader.
#ifndef QUERN_HPARAMS_H
#define QUERN_HPARAMS_H

#include "gguf/gguf.h"

struct hparams {
    const struct gguf *file;
    const char *arch;   // the first part of each key
    struct error fault; // the first
};

// Integers within lo .. hi. The first must be there; the second gives `fallback` where it is not.
int64_t hparam_int(struct hparams *h, const char *name, int64_t lo, int64_t hi);
int64_t hparam_int_or(struct hparams *h, const char *name, int64_t lo, int64_t hi, int64_t fallback);
// An integer for each of n layers: one number for all, or an array of n. The second leaves `out` alone where there is none.
void hparam_layers(struct hparams *h, const char *name, int n, int64_t lo, int64_t hi, int *out);
void hparam_layers_or(struct hparams *h, const char *name, int n, int64_t lo, int64_t hi, int *out);

// Finite numbers above zero.
float hparam_positive(struct hparams *h, const char *name);
float hparam_positive_or(struct hparams *h, const char *name, float fallback);
// The same for keys that writers save as 0 where a model does not use them: then, too, the fallback.
float hparam_factor_or(struct hparams *h, const char *name, float fallback);

// The place of a word in `words`, which ends with NULL; the fallback where there is no such key.
int hparam_word_or(struct hparams *h, const char *name, const char *const *words, int fallback);

// Remembers a fault of the key: "FILE: byte N: key 'llama.NAME': text" (without the byte where the key is missing).
void hparam_refuse(struct hparams *h, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
