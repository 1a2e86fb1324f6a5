// What the ways of multiplying rows in place share (AVX2): eight rows by a few columns, from their first span to their last.
//
// Private to avx2/in_place.c, which cuts a matrix into such groups, and matmul_q8_avx2_beside*.c.
#ifndef QUERN_AVX2_IN_PLACE_H
#define QUERN_AVX2_IN_PLACE_H

#include "kernels/cpu/avx2/unpack.h"

struct place {
    const struct rows8 *rows;            // of the first group
    int groups;                          // one, but of rows beside each other up to TOGETHER
    size_t step;                         // bytes from a group's rows to those of the next
    const struct placed_column *columns; // by span, then by column
    int64_t spans;
    int last;  // blocks of 32 in the last span
    bool asks; // READING_PREFETCHED: of long streams
};
typedef void place_fn(const struct place *l, __m256 out[]); // by group, then by column
enum { TOGETHER = 8 };

// One column by types with blocks of 32 or with nibbles, where AVX2 has no more than itself (avx2/one_column.h).
#ifdef __AVXVNNI__
#define EACH_TYPE_BESIDE(X)
#else
#define EACH_TYPE_BESIDE(X) EACH_TYPE_32(X) EACH_TYPE_OF_NIBBLES(X)
#endif
#define DECLARE_BESIDE(name, ...) place_fn ISA_FN(name##_beside);
EACH_TYPE_BESIDE(DECLARE_BESIDE)

// Whether sums of a block are others than w . q: weights have an offset, or, of Q8_0, are turned over where the column is
// negative.
INLINE bool has_excess(enum dtype type, int form)
{
    return form_of(form).offset || type == DT_Q8_0;
}

// The end of a block of 256, from a column's sums of integers: D = fma(S, da, D).
INLINE __m256 finish_256(__m256i sum, const struct panel *p, struct form f, const struct column *c, __m256 chain)
{
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), p->d[0]);
    if (f.mins) {
        __m256i min = _mm256_setzero_si256();
        UNROLL_FOR (int i = 0; i < 32 / f.mins; i++)
            min = _mm256_add_epi32(min, _mm256_madd_epi16(p->min[i], broadcast_32(&c->pairs[i])));
        v = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min), p->m[0], v);
    }
    return _mm256_fmadd_ps(v, _mm256_set1_ps(c->da), chain);
}

INLINE void advance(struct rows8 *g, size_t bytes)
{
    UNROLL_FOR (int r = 0; r < GROUP; r++)
        g->at[r] += bytes;
}

// The block of each row that comes next, into L1, line after line: where a block is not read from its first byte to its last the
// hardware would not follow.
INLINE void bring_next(const struct rows8 *g, int bytes)
{
    for (int r = 0; r < GROUP; r++)
        for (int i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)g->at[r] + bytes + i, _MM_HINT_T0);
}

// What eight long streams hold 2 KB further on than byte `at` of their rows, into L2.
INLINE void ask_streams(const struct rows8 *g, size_t at, int bytes)
{
    enum { AHEAD = 2048 };
    UNROLL_FOR (int r = 0; r < GROUP; r++)
        for (int i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)g->at[r] + at + AHEAD + i, _MM_HINT_T1);
}

#endif
