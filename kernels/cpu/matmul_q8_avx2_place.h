// What the ways of multiplying rows in place share (AVX2): eight rows by a few columns, from their first span to their last.
//
// Private to matmul_q8_avx2_place.c, which cuts a matrix into such groups, and matmul_q8_avx2_beside.c.
#ifndef QUERN_MATMUL_Q8_AVX2_PLACE_H
#define QUERN_MATMUL_Q8_AVX2_PLACE_H

#include "kernels/cpu/matmul_q8_avx2_unpack.h"

struct place {
    const struct rows8 *rows; // of the first group
    int groups;               // one, but of rows beside each other up to TOGETHER
    size_t step;              // bytes from a group's rows to those of the next
    const struct placed_column *columns; // by span, then by column
    int64_t spans;
    int last; // blocks of 32 in the last span
    bool asks; // READING_ASKED: of long streams
};
typedef void place_fn(const struct place *l, __m256 out[]); // by group, then by column
enum { TOGETHER = 8 };

// One column by types with blocks of 32 or codes for weights, where AVX2 has no more than itself (matmul_q8_avx2_beside.c).
#ifdef __AVXVNNI__
#define EACH_TYPE_BESIDE(X)
#else
#define EACH_TYPE_BESIDE(X) EACH_TYPE_32(X) EACH_TYPE_OF_CODES(X)
#endif
#define DECLARE_BESIDE(name, ...) place_fn ISA_FN(name##_beside);
EACH_TYPE_BESIDE(DECLARE_BESIDE)

// Whether sums of a block are others than w . q: weights have an offset, or, of Q8_0, another sign where the column has one.
INLINE bool has_excess(enum dtype type, int form)
{
    return form_of(form).offset || type == DT_Q8_0;
}

// What eight long streams hold 2 KB further on than byte `at` of their rows, into L2.
INLINE void ask_streams(const struct rows8 *g, size_t at, int bytes)
{
    enum { AHEAD = 2048 };
    UNROLL
    for (int r = 0; r < GROUP; r++)
        for (int i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)g->at[r] + at + AHEAD + i, _MM_HINT_T1);
}

#endif
