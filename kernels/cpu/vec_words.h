// Words of four codes of 8 bits times four integers of 16 bits, which are summed up exactly.
//
// How a level multiplies them is its own, and so is what it makes of the four integers: two `factors`, int32. Mostly these are
// pairs of int16, of the first and the third integer and of the second and the fourth, for the codes become such pairs by
// three shifts; with sdot they are the four upper bytes, rounded, and the four lower ones. Nothing is kept.
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
    WORD_SUMS = 2, // of upper and of lower bytes, or of the pairs in both halves of a register
#else
    WORD_SUMS = 1,
#endif
    WORD_INTEGER_MAX = 32639, // the greatest integer whose rounded upper byte is one
};

struct words {
    veci part[2]; // for each factor
};
struct word_sums {
    veci part[WORD_SUMS];
};

// VEC words.
INLINE struct words words_load(const void *p)
{
    const veci w = (veci)vec_load(p);
#if defined(WORDS_BY_BYTES)
    return (struct words){{w, w}};
#else
    return (struct words){{(veci)((vec_i16)((vec_u16)w << 8) >> 8), (veci)((vec_i16)w >> 8)}};
#endif
}

// sum += a.low b.low + a.high b.high, of the int16 in each element.
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

// The products with one of their two factors.
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

// The factors of 2 VEC integers, the low 16 bits of a's and b's elements: VEC of them.
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
