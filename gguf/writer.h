// Writes a GGUF v3 file: first the keys, then the entries of the tensors, then the data of the tensors in the same
// order.
//
// Ownership: the writer owns its buffers and the temporary file. gguf_writer_close renames the file into place, so a
// file with the final name is complete. Strings and arrays are copied when they are added. Threads: one at a time.
#ifndef QUERN_WRITER_H
#define QUERN_WRITER_H

#include "gguf/gguf.h"

struct gguf_writer;

int gguf_writer_open(struct gguf_writer **out, const char *path, struct error *err);
// Writes to an open, empty file instead, which may have no name; `name` is for errors. The caller closes fd.
int gguf_writer_open_fd(struct gguf_writer **out, int fd, const char *name, struct error *err);

// Keys are written before the data of the first tensor. The first error is kept and reported by the next call that
// returns a status.
void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_write_f32(struct gguf_writer *w, const char *key, float v);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_write_str(struct gguf_writer *w, const char *key, struct str v);
void gguf_write_str_array(struct gguf_writer *w, const char *key, const struct str *v, size_t n);
// Writes an array of n numbers, which are little-endian.
void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *v, size_t n);
// Writes a key and its value unchanged, as they were read from another file.
void gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv);

// Announces a tensor; its data follows later, in the order of announcement.
int gguf_write_tensor_info(struct gguf_writer *w, const char *name, enum dtype type, int n_dims, const int64_t *ne,
                           struct error *err);
// Writes data of the current tensor, in any number of pieces. After its last byte the next tensor becomes current.
int gguf_write_data(struct gguf_writer *w, const void *data, size_t size, struct error *err);

// Completes the file, syncs it and renames it into place. On an error the temporary file is removed. Frees w in any
// case.
int gguf_writer_close(struct gguf_writer *w, struct error *err);
void gguf_writer_abort(struct gguf_writer *w); // frees and removes the temporary file; NULL is fine

#endif
