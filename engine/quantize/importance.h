// An importance matrix: for each weight matrix of a model, the mean square of its inputs on some text, per column.
//
// The file is a GGUF as llama-imatrix writes it: general.type "imatrix", imatrix.datasets, imatrix.chunk_count,
// imatrix.chunk_size; and for each matrix NAME two tensors of F32: NAME.in_sum2 (columns, matrices), the sums of
// squares of the inputs, and NAME.counts (1, matrices), how many rows were added up. Its older form (.dat) is read,
// too. Ownership: the struct owns all. Threads: one at a time.
#ifndef QUERN_IMPORTANCE_H
#define QUERN_IMPORTANCE_H

#include "gguf/base.h"

struct importance_entry {
    const char *name; // of the tensor: "blk.0.attn_q.weight"
    int64_t n_columns;
    int64_t n_matrices; // experts, or 1
    float *sums;        // [n_matrices][n_columns]
    int64_t *counts;    // [n_matrices]
};
struct importance {
    struct arena arena;
    struct importance_entry *entries;
    int n, cap;
    const char *dataset; // path of the text, or the last of several; NULL: none is named
    uint32_t n_chunks, chunk_size;
};

// E_MODEL names what is wrong; values that are no numbers or are negative are refused.
int importance_read(struct importance *out, const char *path, struct error *err);
// Sorted by name; a whole file under its name, or none.
int importance_write(const struct importance *m, const char *path, struct error *err);
void importance_free(struct importance *m); // a zeroed struct is fine

// Adds a zeroed entry, or finds the one of that name. NULL and an error when its size is another, or memory is short.
struct importance_entry *importance_add(struct importance *m, struct str name, int64_t n_columns, int64_t n_matrices,
                                        struct error *err);
const struct importance_entry *importance_find(const struct importance *m, struct str name); // NULL: none
// Adds the sums and counts of another matrix. E_USAGE when they are of different models.
int importance_merge(struct importance *m, const struct importance *other, struct error *err);
// The mean square of each column of matrix i, into n_columns floats; 1 everywhere when no row came to it.
void importance_means(const struct importance_entry *e, int64_t i, float *out);

#endif
