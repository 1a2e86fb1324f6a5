// Taps on nodes of a model's graph, chosen by name: their values in each step are passed to a callback or saved to
// files.
//
// The names of nodes are those that `quern dump graph` prints ("blk.0.attn_q"). Saved values are a file in NumPy's
// format: float32, shape (rows, width), the rows of all steps in order; the file is complete once tap_close has
// returned. Ownership: the tap owns its files; the graph outlives it. Threads: as struct taps says, one at a time.
#ifndef QUERN_TAP_H
#define QUERN_TAP_H

#include "kernels/machine.h"

struct tap;

// names: each is NAME or NAME=FILE. `see` receives the values of nodes without a file. E_USAGE for an unknown node,
// with similar names.
typedef void tap_see_fn(void *arg, const struct tensor *n, const float *rows, size_t stride, int n_rows);
int tap_open(struct tap **out, const struct graph *g, const char *const *names, int n, tap_see_fn *see, void *arg,
             struct error *err);
const struct taps *tap_taps(const struct tap *t); // for struct session_options
// Completes the files, which then have their names; if one could not be written, none of those that are not complete yet
// appears. The first error of writing, also from earlier steps, is reported here. NULL is fine.
int tap_finish(struct tap *t, struct error *err);
void tap_close(struct tap *t); // NULL is fine

// Minimum, maximum, mean and root mean square of all finite values, and the number of values that are not finite.
struct tap_summary {
    double least, greatest, mean, rms;
    int64_t n, n_bad;
};
struct tap_summary tap_summarise(const float *rows, size_t stride, int n_rows, int64_t width);

#endif
