// The computed state of a sequence in a file, so that a long dialogue goes on without computing it again.
//
// A snapshot serves one model, one machine and one way to keep the cache: all that its numbers depend on is in a key of
// 128 bits. Everything in it is under checksums, page by page; what cannot be proven is not used. It is a cache: who
// loads one computes what it does not give. Numbers are little-endian, 64 bits where not said otherwise:
//   "QUERN-KV"  version  key[2]  page_bytes  positions a page  n_tokens  checksum of all before it and of the tokens
//   n_tokens x int32, then zeros to a multiple of 8
//   for each page: page_bytes of state, as the machine keeps it; checksum of them and of the page's number
// Ownership: nothing is kept. Threads: that of the session.
#ifndef QUERN_SNAPSHOT_H
#define QUERN_SNAPSHOT_H

#include "engine/session.h"

enum { SNAPSHOT_VERSION = 2, SNAPSHOT_HEAD = 64 };

// Writes the whole sequence; the file is the old one or the new one at any time. `salt`: what else its numbers depend
// on. E_IO; E_USAGE when a window has passed its beginning; E_MEMORY.
int snapshot_save(const char *path, const struct model *m, struct session *s, int seq, uint64_t salt,
                  struct error *err);
// Makes the sequence what the file holds, as far as it is proven and fits into the context: *n says how many tokens,
// also on an error. E_IO when it cannot be read, E_MODEL when it is no snapshot, of something else, or damaged.
int snapshot_load(const char *path, const struct model *m, struct session *s, int seq, uint64_t salt, int *n,
                  struct error *err);

// --- parts, for tests ---

// A checksum: one changed word of 8 bytes always shows, other changes all but always.
uint64_t snapshot_checksum(const void *data, size_t n, uint64_t seed);
// The key of a model's weights and numbers, and of how a session keeps them.
int snapshot_key(const struct model *m, const struct session *s, uint64_t salt, uint64_t key[2], struct error *err);

// What the head of a file says, checked against its size.
struct snapshot_head {
    uint64_t key[2], page_bytes, n_tokens;
    uint64_t tokens_at, pages_at; // bytes from the beginning
};
// `size`: of the whole file. E_MODEL says what is wrong.
int snapshot_parse(const uint8_t head[SNAPSHOT_HEAD], uint64_t size, struct snapshot_head *out, struct error *err);

#endif
