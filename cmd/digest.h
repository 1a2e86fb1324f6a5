// A 128-bit fingerprint of bytes: it tells whether a file has changed, and whether an id was seen before.
//
// It detects accidental differences, not deliberate forgery. Threads: one at a time on a digest.
#ifndef QUERN_DIGEST_H
#define QUERN_DIGEST_H

#include "gguf/base.h"

struct digest {
    uint64_t a, b;
    uint64_t n;      // bytes added so far
    uint8_t tail[8]; // the last n % 8 bytes, which do not fill a word yet
};

// Adds bytes; the first digest is zero-initialised. The result does not depend on how the bytes are divided into
// calls.
void digest_add(struct digest *d, const void *data, size_t n);
struct digest_value {
    uint64_t a, b;
};
struct digest_value digest_end(const struct digest *d);
struct digest_value digest_of(struct str s);
// Writes 32 hexadecimal digits and a NUL.
void digest_format(struct digest_value v, char out[33]);

// The fingerprint of a model's files: of each the size, the first MiB, and 64 blocks of the rest.
struct gguf;
int digest_model(const struct gguf *file, struct digest_value *out, struct error *err);

#endif
