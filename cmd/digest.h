// A fingerprint of bytes, 128 bits: whether a file is the one of yesterday, whether an id was seen before.
//
// It tells what differs by chance, not what somebody forged. Threads: one at a time.
#ifndef QUERN_DIGEST_H
#define QUERN_DIGEST_H

#include "gguf/base.h"

struct digest {
    uint64_t a, b;
    uint64_t n;      // bytes so far
    uint8_t tail[8]; // those that make no whole word yet, n % 8 of them
};

// Zero-initialise. How the bytes are cut into calls makes no difference.
void digest_add(struct digest *d, const void *data, size_t n);
struct digest_value {
    uint64_t a, b;
};
struct digest_value digest_end(const struct digest *d);
struct digest_value digest_of(struct str s);
// 32 digits and a NUL.
void digest_format(struct digest_value v, char out[33]);

// Of a model's files: their sizes, the first MiB, and 64 blocks of the rest of each.
struct gguf;
int digest_model(const struct gguf *file, struct digest_value *out, struct error *err);

#endif
