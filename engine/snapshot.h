// Snapshots: the computed state of a sequence in a file, so that a long dialogue continues without computing it again.
//
// A snapshot is valid for one model, one machine and one layout of the KV cache; a key of 128 bits covers all that its
// numbers depend on. All of the file is protected by checksums, page by page, and a page that fails its check is not
// used. A snapshot is only a cache: the tokens that it does not provide are computed. Numbers are little-endian and
// have 64 bits where nothing else is stated:
//   "QUERN-KV"  version  key[2]  page_bytes  positions per page  n_tokens  checksum of all before it and of the tokens
//   n_tokens x int32, then zeros to a multiple of 8
//   for each page: page_bytes of state, as the machine keeps it; checksum of them and of the page's number
//   with recurrent layers: their state after the last token; checksum of it and of the number of pages
// Ownership: nothing is kept between calls. Threads: that of the session.
#ifndef QUERN_SNAPSHOT_H
#define QUERN_SNAPSHOT_H

#include "engine/session.h"

enum { SNAPSHOT_VERSION = 2, SNAPSHOT_HEAD = 64 };

// Writes the whole sequence. The file is replaced atomically. `salt` enters the key and stands for whatever else the
// numbers depend on. E_IO; E_USAGE when a sliding window has released the beginning of the sequence, or when something else
// than a snapshot is there; E_MEMORY.
int snapshot_save(const char *path, const struct model *m, struct session *s, int seq, uint64_t salt,
                  struct error *err);
// Sets the sequence to the text of the file, up to the first page that fails its check or does not fit into the
// context; *n is the number of tokens, also on an error. E_IO when the file cannot be read, E_MODEL when it is not a
// snapshot, has another key, or is damaged.
int snapshot_load(const char *path, const struct model *m, struct session *s, int seq, uint64_t salt, int *n,
                  struct error *err);

// --- parts, for tests ---

// A checksum. It detects every change within one 8-byte word, and any other change with very high probability.
uint64_t snapshot_checksum(const void *data, size_t n, uint64_t seed);
// Computes the key from the weights and hyper-parameters of the model, the layout of the session's cache, and the
// salt.
int snapshot_key(const struct model *m, const struct session *s, uint64_t salt, uint64_t key[2], struct error *err);

// The head of a snapshot file, checked against the size of the file.
struct snapshot_head {
    uint64_t key[2], page_bytes, n_tokens;
    uint64_t state_bytes;         // of recurrent layers; 0: none
    uint64_t tokens_at, pages_at; // byte offsets in the file
};
// Parses a head; `size` is the size of the whole file. E_MODEL with what is wrong.
int snapshot_parse(const uint8_t head[SNAPSHOT_HEAD], uint64_t size, struct snapshot_head *out, struct error *err);

#endif
