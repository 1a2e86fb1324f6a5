// What the kernels that multiply rows in place share (AVX2): eight rows are multiplied with a few columns, from their
// first span to their last.
//
// Private to avx2/in_place.c, which also defines the loop over all rows, and avx2/one_column.c.
#ifndef QUERN_AVX2_IN_PLACE_H
#define QUERN_AVX2_IN_PLACE_H

#include "kernels/cpu/avx2/unpack.h"

// One or more groups of eight rows, and the columns that they are multiplied with.
struct group_args {
    const struct rows8 *rows;            // of the first group
    int groups;                          // at most what the kernel takes, see matmul_q8_groups
    size_t step;                         // bytes from the rows of a group to those of the next
    const struct packed_column *columns; // by span, then by column
    int64_t spans;
    int last;        // blocks of 32 in the last span
    bool prefetches; // READING_PREFETCHED: streams are prefetched, see prefetch_streams
};
// Stores D of each group and column, one lane per row: by group, then by column.
typedef void group_fn(const struct group_args *l, __m256 out[]);
enum { GROUPS_MAX = 8 };

// Prepares and packs all columns to the scratch, where packed_columns_fit.
void ISA_FN(matmul_q8_pack_columns)(const struct matmul_args *a);
// Multiplies all rows with the packed columns. `kernel` takes up to `most` groups at once, at most GROUPS_MAX. The
// rows of a group are neighbours or, with `streams`, an eighth of all rows apart, so that memory is read as eight long
// streams.
void ISA_FN(matmul_q8_groups)(const struct matmul_args *a, group_fn *kernel, bool streams, int most);

// sum + min . (sums of q)
INLINE __m256i add_mins(__m256i sum, const struct panel *p, const int32_t *pairs, int n)
{
    UNROLL_FOR (int i = 0; i < n; i++)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(p->min[i], broadcast_32(&pairs[i])));
    return sum;
}

// The end of a block of 256, from a column's sums of integers: D = fma(S, da, D).
INLINE __m256 finish_256(__m256i sum, const struct panel *p, struct type_format f, const struct column *c, __m256 chain)
{
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), p->d[0]);
    if (f.mins) {
        __m256i min = add_mins(_mm256_setzero_si256(), p, c->pairs, 32 / f.mins);
        if (f.mins == 8 && c->has_rest)
            min = add_mins(min, p, c->rest, 4);
        v = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min), p->m[0], v);
    }
    return _mm256_fmadd_ps(v, _mm256_set1_ps(c->da), chain);
}

INLINE void advance(struct rows8 *g, size_t bytes)
{
    UNROLL_FOR (int r = 0; r < GROUP; r++)
        g->at[r] += bytes;
}

// Prefetches the next block of each row into L1, line after line. It is for blocks that are not read from their first
// byte to their last, which the hardware prefetcher does not follow.
INLINE void prefetch_next_block(const struct rows8 *g, int bytes)
{
    for (int r = 0; r < GROUP; r++)
        for (int i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)g->at[r] + bytes + i, _MM_HINT_T0);
}

// Prefetches into L2 what is 2 KB further on than byte `at` in each of eight streams.
INLINE void prefetch_streams(const struct rows8 *g, size_t at, int bytes)
{
    enum { DISTANCE = 2048 };
    UNROLL_FOR (int r = 0; r < GROUP; r++)
        for (int i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)g->at[r] + at + DISTANCE + i, _MM_HINT_T1);
}

#endif
