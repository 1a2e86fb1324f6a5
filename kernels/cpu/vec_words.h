// Exact products of words of four 8-bit codes with four 16-bit integers, for attention over an 8-bit KV cache.
//
// Four integers become two `factors` of 32 bits, in a form that depends on the level. On most levels these are int16
// pairs, one of the first and the third integer and one of the second and the fourth, because three shifts make such
// pairs of the codes. With sdot they are the four upper bytes, rounded, and the four lower bytes. words_add multiplies
// words by one of the factors; after both, words_total is the sum of the four products. All functions are inlined and
// keep no state.
#ifndef QUERN_VEC_WORDS_H
#define QUERN_VEC_WORDS_H

#include "kernels/cpu/vec.h"

typedef int16_t vec_i16 __attribute__((vector_size(VEC * 4))); // 2 VEC of them
typedef uint16_t vec_u16 __attribute__((vector_size(VEC * 4)));

#if defined(VEC_NEON) && defined(__ARM_FEATURE_DOTPROD)
#define WORDS_BY_BYTES 1
#endif

enum {
#if defined(VEC_NEON)
    WORD_SUMS = 2, // sums of the upper and the lower bytes, or of the pairs in the two halves of a register
#else
    WORD_SUMS = 1,
#endif
    WORD_INTEGER_MAX = 32639, // the greatest integer whose upper byte, rounded, fits a signed byte
};

// VEC words, prepared to be multiplied by each of the two factors.
struct words {
    veci part[2];
};
struct word_sums {
    veci part[WORD_SUMS];
};

// Loads VEC words.
INLINE struct words words_load(const void *p)
{
    const veci w = (veci)vec_load(p);
#if defined(WORDS_BY_BYTES)
    return (struct words){{w, w}};
#else
    return (struct words){{(veci)((vec_i16)((vec_u16)w << 8) >> 8), (veci)((vec_i16)w >> 8)}};
#endif
}

// sum + a.low * b.low + a.high * b.high, for the two int16 in each element.
INLINE veci veci_add_pairs(veci sum, veci a, veci b)
{
#if defined(VEC_AVX512)
    return (veci)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(VEC_AVX2) && defined(__AVXVNNI__)
    return (veci)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(VEC_AVX2)
    return sum + (veci)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return sum + (veci)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const vec_i16 x = (vec_i16)a, y = (vec_i16)b;
    for (int i = 0; i < VEC; i++)
        sum[i] += x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    return sum;
#endif
}

// Adds the products of words with factor `which`, which all VEC words share.
INLINE void words_add(struct word_sums *s, const struct words *w, int which, int32_t factor)
{
#if defined(WORDS_BY_BYTES)
    s->part[which] = (veci)vdotq_s32((int32x4_t)s->part[which], (int8x16_t)w->part[which], (int8x16_t)veci_all(factor));
#elif defined(VEC_NEON)
    const int16x8_t a = (int16x8_t)w->part[which], b = (int16x8_t)veci_all(factor);
    s->part[0] = (veci)vmlal_s16((int32x4_t)s->part[0], vget_low_s16(a), vget_low_s16(b));
    s->part[1] = (veci)vmlal_high_s16((int32x4_t)s->part[1], a, b);
#else
    s->part[0] = veci_add_pairs(s->part[0], w->part[which], veci_all(factor));
#endif
}

// The sum of the products of each word.
INLINE veci words_total(const struct word_sums *s)
{
#if defined(WORDS_BY_BYTES)
    return (s->part[0] << 8) + s->part[1];
#elif defined(VEC_NEON)
    return (veci)vpaddq_s32((int32x4_t)s->part[0], (int32x4_t)s->part[1]);
#else
    return s->part[0];
#endif
}

// Stores the VEC factors of 2 VEC integers, which are the low 16 bits of the elements of a and then of b.
#if defined(VEC_AVX512)
INLINE void words_store_factors(int32_t *to, veci a, veci b)
{
    const __m512i within =
        _mm512_set_epi64(0x001e001a001c0018, 0x0016001200140010, 0x000e000a000c0008, 0x0006000200040000,
                         0x001e001a001c0018, 0x0016001200140010, 0x000e000a000c0008, 0x0006000200040000);
    const __m512i of_b = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(32), 1);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16((__m512i)a, _mm512_add_epi16(within, of_b), (__m512i)b));
}
#elif defined(WORDS_BY_BYTES)
INLINE void words_store_factors(int32_t *to, veci a, veci b)
{
    const int16x8_t x = vcombine_s16(vmovn_s32((int32x4_t)a), vmovn_s32((int32x4_t)b));
    const int32x2_t upper = vreinterpret_s32_s8(vshrn_n_s16(vaddq_s16(x, vdupq_n_s16(128)), 8));
    const int32x2_t lower = vreinterpret_s32_s8(vmovn_s16(x));
    vst1q_s32(to, vcombine_s32(vzip1_s32(upper, lower), vzip2_s32(upper, lower)));
}
#else
INLINE void words_store_pairs(int32_t *to, veci x)
{
#if defined(VEC_AVX2)
    const __m256i seconds = _mm256_slli_epi32(_mm256_shuffle_epi32((__m256i)x, 0x4e), 16);
    const __m256i pairs = _mm256_blend_epi16((__m256i)x, seconds, 0xaa);
    _mm_storeu_si128((void *)to, _mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08)));
#else
    to[0] = (int32_t)(((uint32_t)x[0] & 0xffff) | (uint32_t)x[2] << 16);
    to[1] = (int32_t)(((uint32_t)x[1] & 0xffff) | (uint32_t)x[3] << 16);
#endif
}

INLINE void words_store_factors(int32_t *to, veci a, veci b)
{
    words_store_pairs(to, a);
    words_store_pairs(to + VEC / 2, b);
}
#endif

#endif
