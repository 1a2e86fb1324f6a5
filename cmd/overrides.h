// Keys of a model file that the flags set: --override-kv, and the flags that scale rotary positions.
//
// Ownership: the overrides view the flags, and own a text for the names of keys; overrides_free frees it. Threads: any.
#ifndef QUERN_OVERRIDES_H
#define QUERN_OVERRIDES_H

#include "cmd/options.h"
#include "gguf/gguf.h"
#include "kernels/text.h"
#include "models/arch.h"

enum { OVERRIDES_MAX = 64 };
struct overrides {
    struct gguf_override at[OVERRIDES_MAX];
    int n;
    struct text names; // of keys, one after another, each with a NUL behind it
};

// Takes the flags. Keys of --rope-* begin with `arch`, the family of the model, and come before those of --override-kv,
// which therefore count where both name a key. E_USAGE names the flag.
int overrides_take(struct overrides *out, const struct options *o, const char *arch, struct error *err);
// Sets the keys of the flags in an open file.
int overrides_apply(const struct options *o, struct gguf *file, struct error *err);
// Fails with E_USAGE if a flag of rope was given for a model whose positions are no angles.
int overrides_check_rope(const struct options *o, const struct arch_info *info, struct error *err);
void overrides_free(struct overrides *o);

#endif
