// Taps on a model's graph by the names of its nodes: what goes through them, step by step, handed on or saved.
//
// A node's name is the one that `quern dump graph` prints ("blk.0.attn_q"). A saved value is a file in NumPy's format:
// float32, (rows, width), all rows of all steps one after another; the file is whole once tap_close has returned.
// Ownership: the tap owns its files; the graph outlives it. Threads: as struct taps says, one at a time.
#ifndef QUERN_TAP_H
#define QUERN_TAP_H

#include "kernels/machine.h"

struct tap;

// Names, or NAME=FILE to save. `see` gets those without a file; E_USAGE names an unknown node and what is near.
typedef void tap_see_fn(void *arg, const struct tensor *n, const float *rows, size_t stride, int n_rows);
int tap_open(struct tap **out, const struct graph *g, const char *const *names, int n, tap_see_fn *see, void *arg,
             struct error *err);
const struct taps *tap_taps(const struct tap *t); // for struct session_options
// Finishes the files; an error of writing that came before is reported now. NULL is fine.
int tap_close(struct tap *t, struct error *err);

// Least, greatest, mean and root of the mean square of all values, and whether one is no number.
struct tap_summary {
    double least, greatest, mean, rms;
    int64_t n, n_bad;
};
struct tap_summary tap_summarise(const float *rows, size_t stride, int n_rows, int64_t width);

#endif
