// Steps are rounded up to buckets of rows, each of which is recorded once: at most a third of the rows is made for
// nothing.
//
// Pure.
#ifndef QUERN_GPU_BUCKETS_H
#define QUERN_GPU_BUCKETS_H

#include "gguf/base.h"

// The bucket of n rows where `most` may come: 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ..
static inline int gpu_bucket_of(int n, int most)
{
    int two = 1;
    while (two < n && two < 1 << 30)
        two *= 2;
    int three = two / 4 * 3;
    return MIN(n <= 0 ? 0 : n <= three ? three : two, most);
}

#endif
