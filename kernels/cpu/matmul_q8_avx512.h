// What the parts of the AVX-512 8-bit matmul share: the two regimes' entry points, and the reading of blocks of 16 rows
// at once, so that lane r of a register belongs to row r. Private to matmul_q8_avx512*.c.
//
// All is pure and inlined; nothing is read outside of the blocks named.
#ifndef QUERN_MATMUL_Q8_AVX512_H
#define QUERN_MATMUL_Q8_AVX512_H

#include <immintrin.h>

#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

#define INLINE static inline __attribute__((always_inline, unused))

enum { GROUP = 16 };  // rows that share a register, a lane a row

// One column, and any number of columns; by type, NULL where there is none.
extern matmul_fn *const ISA_FN(matmul_q8_decode)[DT_COUNT];
extern matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT];

// 16 rows' blocks. Where a matrix ends within a group the last row stands in for those that are not there: what is computed
// for them is not stored.
struct rows16 {
    const uint8_t *at[GROUP];
};

INLINE struct rows16 rows_from(const struct matmul_args *a, int first)
{
    struct rows16 g;
    for (int r = 0; r < GROUP; r++)
        g.at[r] = (const uint8_t *)a->w + (size_t)MIN(first + r, a->n_rows - 1) * a->w_stride;
    return g;
}

INLINE __mmask16 rows_mask(const struct matmul_args *a, int first)
{
    return a->n_rows - first >= GROUP ? 0xffff : (__mmask16)((1u << (a->n_rows - first)) - 1);
}

INLINE __m512i load_512(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m128i load_128(const void *p)
{
    return _mm_loadu_si128(p);
}

// Two runs of 32 bytes in one register.
INLINE __m512i load_2x32(const void *low, const void *high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(load_256(low)), load_256(high), 1);
}

// Four runs of 16 bytes.
INLINE __m512i load_4x16(const void *p0, const void *p1, const void *p2, const void *p3)
{
    __m512i v = _mm512_castsi128_si512(load_128(p0));
    v = _mm512_inserti32x4(v, load_128(p1), 1);
    v = _mm512_inserti32x4(v, load_128(p2), 2);
    return _mm512_inserti32x4(v, load_128(p3), 3);
}

// A four-byte word in all lanes.
INLINE __m512i broadcast_32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return _mm512_set1_epi32(v);
}

// Lane r of t[j] becomes word j of the 16 bytes at `at` in row r.
INLINE void load_words(const struct rows16 *g, size_t at, __m512i t[4])
{
    __m512i v[4], u[4];
    for (int i = 0; i < 4; i++)
        v[i] = load_4x16(g->at[i] + at, g->at[4 + i] + at, g->at[8 + i] + at, g->at[12 + i] + at);
    u[0] = _mm512_unpacklo_epi32(v[0], v[1]);
    u[1] = _mm512_unpackhi_epi32(v[0], v[1]);
    u[2] = _mm512_unpacklo_epi32(v[2], v[3]);
    u[3] = _mm512_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm512_unpacklo_epi64(u[0], u[2]);
    t[1] = _mm512_unpackhi_epi64(u[0], u[2]);
    t[2] = _mm512_unpacklo_epi64(u[1], u[3]);
    t[3] = _mm512_unpackhi_epi64(u[1], u[3]);
}

// Two bytes, through a general register: compilers would else gather 16 such loads with slow inserts.
INLINE uint16_t load_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    uint32_t v = h;
    __asm__("" : "+r"(v));
    return (uint16_t)v;
}

// The float16 at `at` of each row.
INLINE __m512 load_halves(const struct rows16 *g, size_t at)
{
    uint16_t h[GROUP];
    for (int r = 0; r < GROUP; r++)
        h[r] = load_half(g->at[r] + at);
    return _mm512_cvtph_ps(load_256(h));
}

// Low and high halves of the words, as float16.
INLINE __m512 low_halves(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

INLINE __m512 high_halves(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
}

// The header of Q4_K and Q5_K for 16 rows. Byte j of lane r of scale[h] is scale 4h + j of row r, and so for min.
struct header_k4 {
    __m512i scale[2], min[2];
    __m512 d, m;
};

INLINE struct header_k4 load_header_k4(const struct rows16 *g, size_t at)
{
    const __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(0x30);
    __m512i t[4];  // d and dmin; the packed scales' bytes 0-3, 4-7, 8-11
    load_words(g, at, t);
    struct header_k4 h = {.d = low_halves(t[0]), .m = high_halves(t[0])};
    h.scale[0] = _mm512_and_si512(t[1], six);
    h.min[0] = _mm512_and_si512(t[2], six);
    // The others: a nibble of bytes 8-11 below the two top bits of bytes 0-3 or 4-7, brought to bits 4 and 5.
    __m512i scale_top = _mm512_and_si512(_mm512_srli_epi32(t[1], 2), top);
    __m512i min_top = _mm512_and_si512(_mm512_srli_epi32(t[2], 2), top);
    h.scale[1] = _mm512_or_si512(_mm512_and_si512(t[3], four), scale_top);
    h.min[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(t[3], 4), four), min_top);
    return h;
}

// In each word: byte `low` and byte `high` of it, as two int16.
INLINE __m512i bytes_to_pair(__m512i words, int low, int high)
{
    __m512i base = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i pick = _mm512_set1_epi32((int)(0x80008000u | (unsigned)high << 16 | (unsigned)low));
    return _mm512_shuffle_epi8(words, _mm512_add_epi8(base, pick));
}

// In each word: byte `i` of it, as an unsigned number.
INLINE __m512i byte_to_word(__m512i words, int i)
{
    __m512i base = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return _mm512_shuffle_epi8(words, _mm512_add_epi8(base, _mm512_set1_epi32((int)(0x80808000u | (unsigned)i))));
}

#endif
