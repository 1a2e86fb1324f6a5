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

// ---- one column by four streams
//
// Four streams: lane 4t + i is the block t places on in stream i. A quarter of the lanes has the same activations.
enum { STREAMS = 4, QUARTERS = GROUP / STREAMS };

// What a row's blocks are multiplied with, besides activations, and once more that of its first three: the four blocks
// that a stream has at hand find it side by side, whether a row ends among them or not.
struct ring {
    int64_t blocks; // of a row
    const int16_t (*sums)[Q8_SUMS];
    const float *scales;
    void *room; // 64-byte aligned: what is left of the scratch
};

// Blocks of the longest row for which the scratch holds this, and `bytes` more of each block.
enum { RING_MORE = QUARTERS - 1, RING_BYTES = Q8_SUMS * 2 + 4 };
#define RING_MOST(bytes) (SCRATCH_BYTES / (RING_BYTES + (int)(bytes)) - RING_MORE - 2)

// A row's first block follows its last.
INLINE int64_t block_after(int64_t block, int64_t blocks)
{
    return block + 1 == blocks ? 0 : block + 1;
}

INLINE struct ring ring_of(const struct matmul_args *a)
{
    const int64_t blocks = q8_blocks(a->k), n = blocks + RING_MORE;
    int16_t(*sums)[Q8_SUMS] = a->scratch;
    float *scales = (float *)(sums + n);
    for (int64_t i = 0, b = 0; i < n; i++, b = block_after(b, blocks)) {
        memcpy(sums[i], q8_sums(a->x[0], a->k) + Q8_SUMS * b, sizeof(sums[i]));
        scales[i] = q8_scales(a->x[0], a->k)[b];
    }
    const size_t taken = align_up((size_t)n * RING_BYTES, 64);
    return (struct ring){blocks, (const int16_t(*)[Q8_SUMS])sums, scales, (uint8_t *)a->scratch + taken};
}

// Which four blocks of each stream are at hand.
struct cursor {
    int64_t at, block; // the first of them: of the stream, of its row
};

// The streams are the quarters of all rows (where rows are not a multiple of four, the last two overlap). A stream's
// blocks of 256, or spans of as many elements, are taken as they follow each other, four at a time, whether a row ends
// among them or not. They may be added up some steps after they are read.
struct walk {
    const uint8_t *stream[STREAMS];
    int first[STREAMS]; // row
    struct ring x;
    int64_t all;     // blocks of a stream
    struct cursor read, added;
    int row;  // of a stream, that sums are added up for
    __m128 d; // its sums so far
};

// Where the blocks at hand of each stream lie, but for how far it is read: n <= QUARTERS of them; past these the last one
// stands in.
INLINE struct rows16 walk_blocks(const struct walk *k, size_t bytes, int64_t n)
{
    struct rows16 w;
    for (int r = 0; r < GROUP; r++)
        w.at[r] = k->stream[r % STREAMS] + (size_t)MIN(r / STREAMS, n - 1) * bytes;
    return w;
}

INLINE struct walk walk_of(const struct matmul_args *a)
{
    const int rows = (a->n_rows + STREAMS - 1) / STREAMS;
    struct walk k = {.x = ring_of(a), .read = {-QUARTERS, -QUARTERS}, .d = _mm_setzero_ps()};
    k.all = rows * k.x.blocks;
    for (int i = 0; i < STREAMS; i++) {
        k.first[i] = MIN(i * rows, a->n_rows - rows);
        k.stream[i] = (const uint8_t *)a->w + (size_t)k.first[i] * a->w_stride;
    }
    return k;
}

INLINE void cursor_step(struct cursor *c, int64_t blocks)
{
    c->at += QUARTERS;
    c->block += QUARTERS;
    if (c->block >= blocks)
        c->block = blocks >= QUARTERS ? c->block - blocks : c->block % blocks;
}

// To the next four blocks of each stream; false: there are none.
INLINE bool walk_step(struct walk *k)
{
    cursor_step(&k->read, k->x.blocks);
    return k->read.at < k->all;
}

INLINE void walk_put(const struct matmul_args *a, struct walk *k)
{
    float four[STREAMS];
    _mm_storeu_ps(four, k->d);
    UNROLL
    for (int i = 0; i < STREAMS; i++)
        a->y[0][k->first[i] + k->row] = four[i];
    k->row++;
    k->d = _mm_setzero_ps();
}

// The sums S of the next four blocks, a quarter after the other, and the rows that end with one.
INLINE void walk_add(const struct matmul_args *a, struct walk *k, __m512 sum)
{
    const float *scales = k->x.scales + k->added.block;
    const __m128 quarters[QUARTERS] = {_mm512_extractf32x4_ps(sum, 0), _mm512_extractf32x4_ps(sum, 1),
                                       _mm512_extractf32x4_ps(sum, 2), _mm512_extractf32x4_ps(sum, 3)};
    int64_t left = k->x.blocks - k->added.block; // of the row
    UNROLL
    for (int i = 0; i < QUARTERS; i++) {
        k->d = _mm_fmadd_ps(quarters[i], _mm_set1_ps(scales[i]), k->d);
        if (--left == 0) {
            if (k->added.at + i < k->all)
                walk_put(a, k);
            left = k->x.blocks;
        }
    }
    cursor_step(&k->added, k->x.blocks);
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
