// How fast memory is read: the ceiling of generation, for every weight is read once a token.
//
// Threads: starts its own and waits for them.
#ifndef QUERN_BANDWIDTH_H
#define QUERN_BANDWIDTH_H

#include "gguf/base.h"

// Bytes a second at which n_threads read `size` bytes of memory (1 MiB at least) together, the best of several passes:
// the size must be a few times that of the caches. E_MEMORY.
int bandwidth_measure(int n_threads, size_t size, double *bytes_per_second, struct error *err);

#endif
