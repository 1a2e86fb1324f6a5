// An importance matrix: for each weight matrix of a model, the mean square of its inputs on some text, per column.
//
// The file is a GGUF as llama-imatrix writes it: general.type "imatrix", imatrix.datasets, imatrix.chunk_count,
// imatrix.chunk_size; and for each matrix NAME two tensors of F32: NAME.in_sum2 (columns, matrices), the sums of
// squares of the inputs, and NAME.counts (1, matrices), the number of rows in each sum. The older form (.dat) can be
// read, too. Ownership: the struct owns everything it points to. Threads: one at a time.
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
    const char *dataset; // path of the text, the last one of several; NULL: not known
    uint32_t n_chunks, chunk_size;
};

// Reads a file. E_MODEL with the reason when it is invalid; values that are negative or not finite are refused.
int importance_read(struct importance *out, const char *path, struct error *err);
// Writes a file, sorted by name. On an error no file is left under that name.
int importance_write(const struct importance *m, const char *path, struct error *err);
void importance_free(struct importance *m); // a zeroed struct is fine

// Returns the entry of that name, or adds a zeroed one. NULL with an error when it exists with a different size, or
// when memory is short.
struct importance_entry *importance_add(struct importance *m, struct str name, int64_t n_columns, int64_t n_matrices,
                                        struct error *err);
const struct importance_entry *importance_find(const struct importance *m, struct str name); // NULL: none
// Adds the sums and counts of another importance matrix. E_USAGE when the sizes of an entry differ.
int importance_merge(struct importance *m, const struct importance *other, struct error *err);
// Writes the weight of each column of matrix i to out[n_columns]: its mean square divided by the average of the matrix,
// so that neither tiny nor huge sums leave the range of float. A column below 2^-20 of the average, as one that was 0 on
// the whole text, gets 1, like all columns of a matrix of which no row was counted: nothing was measured there, and a
// weight of 0 would let the quantiser ruin it.
void importance_weights(const struct importance_entry *e, int64_t i, float *out);
// Returns the number of columns, over all matrices of which rows were counted, that get 1 because they are below 2^-20
// of the average.
int64_t importance_unmeasured(const struct importance_entry *e);

#endif
