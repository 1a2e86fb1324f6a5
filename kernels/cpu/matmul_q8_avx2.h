// What the parts of the AVX2 8-bit matmul share: the panel into which blocks are unpacked, lane r of a register for row r,
// and the reading of eight rows at once.
//
// Private to matmul_q8_avx2*.c. A panel lives in the caller's scratch. Nothing is read outside of the blocks named.
#ifndef QUERN_MATMUL_Q8_AVX2_H
#define QUERN_MATMUL_Q8_AVX2_H

#include <immintrin.h>

#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

#define INLINE static inline __attribute__((always_inline, unused))

// Before a loop whose arrays must become registers: its few turns are known once it is inlined.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
    GROUP = 8,         // rows that share a register, a lane a row
    SPAN = 256,        // elements of k that a panel holds
    WORDS = SPAN / 4,  // words of four of them
    BLOCKS = SPAN / 32,
};

// A span of eight rows, unpacked: lane r of every register belongs to row r. A type fills what its tiles read.
struct panel {
    __m256i w[WORDS];            // four bytes a lane: w + offset, unsigned; or w itself, of types with signed bytes
    __m256i scale[16];           // int16 pairs (scale, scale), of each sub-block
    __m256i min[8];              // int16 pairs, of two sub-blocks
    __m256 d[BLOCKS], m[BLOCKS]; // of the block of 256, or of its blocks of 32
};

// How a type fills a panel: rows[r] points at row r's bytes of this span. Of types with blocks of 32, n_blocks are there.
typedef void unpack_fn(const uint8_t *const *rows, int n_blocks, struct panel *p);
extern unpack_fn *const ISA_FN(matmul_q8_unpack)[DT_COUNT];

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m128i load_128(const void *p)
{
    return _mm_loadu_si128(p);
}

// A four-byte word in all lanes.
INLINE __m256i broadcast_32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return _mm256_set1_epi32(v);
}

// The four words that unpacklo/unpackhi make of pairs, once more: lane by lane a transposition of 4 x 4 words.
INLINE void transpose_words(const __m256i v[4], __m256i t[4])
{
    __m256i u0 = _mm256_unpacklo_epi32(v[0], v[1]), u1 = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i u2 = _mm256_unpacklo_epi32(v[2], v[3]), u3 = _mm256_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm256_unpacklo_epi64(u0, u2);
    t[1] = _mm256_unpackhi_epi64(u0, u2);
    t[2] = _mm256_unpacklo_epi64(u1, u3);
    t[3] = _mm256_unpackhi_epi64(u1, u3);
}

#endif
