// A file of the logits of a base model over the windows of a text, with which other models are compared.
//
// The file, little-endian: 8 bytes "QUERNKL1"; int32 n_vocab, n_window, step, first, n_scored, n_windows, bos (-1:
// none), n_tokens; int32 tokens[n_tokens]; then for each window its n_scored rows of float32 logits[n_vocab].
// Ownership: the caller closes what it has opened or created. A file has a temporary name until it is complete.
// Threads: one at a time.
#ifndef QUERN_LOGITS_BASE_H
#define QUERN_LOGITS_BASE_H

#include "engine/measure/text_windows.h"

struct logits_base;

// Writes the head; rows follow in order.
int logits_base_create(struct logits_base **out, const char *path, const struct text_windows *w, size_t n_tokens,
                       int n_vocab, struct error *err);
int logits_base_write(struct logits_base *b, const float *logits, struct error *err);
// Syncs the file and renames it into place; E_IO when rows are missing. Frees b in any case.
int logits_base_finish(struct logits_base *b, struct error *err);

// E_MODEL with the offset when a field of the head is out of range or the file has a different size than the head says.
int logits_base_open(struct logits_base **out, const char *path, struct error *err);
const struct text_windows *logits_base_windows(const struct logits_base *b); // a view, with the tokens of the file
size_t logits_base_n_tokens(const struct logits_base *b);
int logits_base_n_vocab(const struct logits_base *b);
// The next row: n_vocab finite floats, valid until the next call. NULL on an error.
const float *logits_base_read(struct logits_base *b, struct error *err);
void logits_base_close(struct logits_base *b); // removes a file that is not finished; NULL is fine

#endif
