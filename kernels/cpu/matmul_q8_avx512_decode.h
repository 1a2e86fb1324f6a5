// Up to seven columns, in place: what the kernels of blocks of 256 and of 32 share.
//
// Private to matmul_q8_avx512_decode*.c. All is pure and inlined.
#ifndef QUERN_MATMUL_Q8_AVX512_DECODE_H
#define QUERN_MATMUL_Q8_AVX512_DECODE_H

#include "kernels/cpu/matmul_q8_avx512_rows.h"
#include "kernels/cpu/matmul_q8_avx512_scales.h"

// Blocks of 256 between a row's request for its bytes and their use: 16 rows have some 7 KB under way, into the L2
// cache, whose misses are many more at a time than those of the L1 cache.
enum { AHEAD = 3, AHEAD_STREAMS = 8 };

enum { COLUMNS_MAX = 7 };

// The activations of a block in a column, and their sums over 16.
struct view {
    const int8_t *q;
    const int16_t *sums;
};

// What was stored to be read later, in parts. Left to itself gcc keeps numbers and addresses in vector registers and
// takes each out of these again, and broadcasts of words by shuffles, on the one port that is busiest. Arrays of words
// are aligned: what is read back from a store across two lines waits until the cache has both, for which Q4_K and Q5_K
// were slower by a fifth.
#define STAYS_IN_MEMORY(array) __asm__("" : "+m"(array))

// For each quarter of the four registers (16 elements), -offset times the sum of each four activations: with it in the
// accumulator, vpdpbusd of unsigned weights w + offset gives the sum of w * q.
INLINE __m512i offset_start(__m512i q, int offset)
{
    __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), q);
    return _mm512_sub_epi32(_mm512_setzero_si512(), sums);
}

// Bytes whose sub-blocks come in nibbles: a register holds 32 bytes of sub-blocks 0 (low) and 1 (high), then 32 of 2
// and 3.
struct nibbles {
    __m512i low, high;
};

INLINE struct nibbles split_nibbles(__m512i bytes)
{
    return (struct nibbles){low_nibbles(bytes), high_nibbles(bytes)};
}

INLINE struct view view_of(const struct matmul_args *a, int column, int64_t block)
{
    return (struct view){q8_quants(a->x[column]) + 256 * block, q8_sums(a->x[column], a->k) + 16 * block};
}

INLINE void store(const struct matmul_args *a, int first, int n, const __m512 d[COLUMNS_MAX])
{
    UNROLL
    for (int j = 0; j < n; j++)
        _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
}

// Each row asks for its own bytes, or they are asked for in order; `share` bytes a row and part.
INLINE struct ahead ahead_of(const struct matmul_args *a, int first, int64_t span, size_t bytes, size_t share,
                             bool in_order)
{
    const bool streams = reads_streams(a->reading);
    return streams && in_order ? ahead_in_order(a, first, span, bytes, share)
                               : ahead_by_row(a, first, span, q8_blocks(a->k), bytes, streams ? AHEAD_STREAMS : AHEAD);
}

// ---- the functions, a case for each number of columns

#define COLUMNS(N, CALL)                                                                                               \
    case N: {                                                                                                          \
        enum { n = N };                                                                                                \
        CALL;                                                                                                          \
        break;                                                                                                         \
    }
#define UP_TO_4(CALL) COLUMNS(1, CALL) COLUMNS(2, CALL) COLUMNS(3, CALL) COLUMNS(4, CALL)
#define UP_TO_7(CALL) UP_TO_4(CALL) COLUMNS(5, CALL) COLUMNS(6, CALL) COLUMNS(7, CALL)
#define DECODE(name, UP_TO, CALL)                                                                                      \
    void ISA_FN(matmul_q8_decode_##name)(const struct matmul_args *a)                                                  \
    {                                                                                                                  \
        switch (a->n_x) {                                                                                              \
            UP_TO(CALL)                                                                                                \
        }                                                                                                              \
    }

#endif
