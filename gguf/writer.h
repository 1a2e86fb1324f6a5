// Writes a GGUF v3 file: first the keys, then the tensors' entries, then their bytes in the same order.
//
// Ownership: the writer owns its buffers and the temporary file; gguf_writer_close renames it into place, so a file that
// stands under its name is whole. Strings and arrays are copied when added. Threads: one at a time.
#ifndef QUERN_WRITER_H
#define QUERN_WRITER_H

#include "gguf/gguf.h"

struct gguf_writer;

int gguf_writer_open(struct gguf_writer **out, const char *path, struct error *err);

// Keys, before the first tensor's data. An error is remembered: it is reported by the next call that can fail.
void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_write_f32(struct gguf_writer *w, const char *key, float v);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_write_str(struct gguf_writer *w, const char *key, struct str v);
void gguf_write_str_array(struct gguf_writer *w, const char *key, const struct str *v, size_t n);
// n numbers of a fixed-size element type, in the file's byte order.
void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *v, size_t n);
// A pair as it was read from another file, unchanged.
void gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv);

// Announces a tensor; its data follows later, in the order of announcement.
int gguf_write_tensor_info(struct gguf_writer *w, const char *name, enum dtype type, int n_dims, const int64_t *ne,
                           struct error *err);
// Bytes of the current tensor, in any number of pieces; the next piece after the last byte belongs to the next tensor.
int gguf_write_data(struct gguf_writer *w, const void *data, size_t size, struct error *err);

// Finishes: pads, flushes, fsyncs, renames. On an error the temporary file is removed. Frees w always.
int gguf_writer_close(struct gguf_writer *w, struct error *err);
void gguf_writer_abort(struct gguf_writer *w); // frees and removes the temporary file; NULL is fine

#endif
