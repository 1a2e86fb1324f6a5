// Measures how fast the CPU reads memory. This is the ceiling of generation, because every weight is read once per
// token.
//
// Threads: the function starts its own threads and waits for them.
#ifndef QUERN_BANDWIDTH_H
#define QUERN_BANDWIDTH_H

#include "gguf/base.h"

// *bytes_per_second is the rate at which n_threads together read `size` bytes of memory (at least 1 MiB), the best of
// several passes. The size should be a few times that of the caches. E_MEMORY.
int bandwidth_measure(int n_threads, size_t size, double *bytes_per_second, struct error *err);

#endif
