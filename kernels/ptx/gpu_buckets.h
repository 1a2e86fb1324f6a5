// Rounds the number of rows of a step up to a bucket. Each bucket has one captured CUDA graph. At most a third of the
// rows that a bucket computes are padding.
//
// Pure functions.
#ifndef QUERN_GPU_BUCKETS_H
#define QUERN_GPU_BUCKETS_H

#include "gguf/base.h"

// Returns the bucket of n rows, at most `most`: 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ..
static inline int gpu_bucket_of(int n, int most)
{
    int two = 1;
    while (two < n && two < 1 << 30)
        two *= 2;
    int three = two / 4 * 3;
    return MIN(n <= 0 ? 0 : n <= three ? three : two, most);
}

#endif
