// The inner loops of attention where keys or values have 8 bits: they are multiplied as integers, as they lie in the cache.
//
// What multiplies them - a query, or a page's powers p, each times the scale of its value - becomes integers of 16 bits,
// with a power of two as their scale: the greatest of them has 15 bits, so half a step is at most 2^-15 of it. Products
// with a block of a key and with a page of values are summed up exactly, so in any order, and only these sums are floats:
//   s    = fma((float)isum_b, scale of the key's block b, s), from 0 and in order of b; then times the query's scale
//   o[d] = fma((float)isum[d], scale of the page's p, o[d]) in order of the pages of a span
// Codes stand in words of four (kv_words.h), and what multiplies a word are the two factors of vec_words.h. attention.c
// includes this; nothing is kept.
#ifndef QUERN_ATTENTION_WORDS_H
#define QUERN_ATTENTION_WORDS_H

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/kv_words.h"
#include "kernels/cpu/vec_words.h"

enum {
    BLOCK_WORDS = KV_BLOCK / 4, // of a key
    PAGE_WORDS = KV_PAGE / 4,   // of a dimension of values
    PAGE_FACTORS = 2 * PAGE_WORDS,
    // Register tiles: vectors of keys and of values, which go through a block or a part of it, by queries.
    KEY_VECS = 4,
    WEIGHTED_VECS = MIN(4, KV_BLOCK / VEC),
#if defined(VEC_AVX512)
    KEY_QUERIES = 4,
    WEIGHTED_QUERIES = 8,
#elif defined(VEC_AVX2) || defined(VEC_NEON)
    KEY_QUERIES = 2,
    WEIGHTED_QUERIES = 2,
#else
    KEY_QUERIES = 1,
    WEIGHTED_QUERIES = 1,
#endif
};

// ---- integers of 16 bits

// By what numbers are multiplied to become integers of 16 bits, and by what sums of their products are afterwards.
struct scale_16 {
    float to, from;
};

// `most`: the greatest magnitudes, of which the greatest counts; what would become more than WORD_INTEGER_MAX is halved once
// more. An infinity or a NaN makes `from` NaN.
INLINE struct scale_16 scale_16(veci most)
{
    enum { SMALLEST = 15, GREATEST = 254, ROUND_UP = 1 << 17 }; // exponents such that both are normal floats
    _Static_assert((1 << 15) - (ROUND_UP >> 9) <= WORD_INTEGER_MAX, "what is not halved fits");
    const int32_t exponent = (int32_t)(((uint32_t)veci_greatest(most) + ROUND_UP) >> 23);
    const int32_t e = MIN(MAX(exponent, (int32_t)SMALLEST), (int32_t)GREATEST);
    const int32_t to = (268 - e) << 23, from = exponent > GREATEST ? 0x7fc00000 : (e - 14) << 23;
    return (struct scale_16){float_load(&to), float_load(&from)};
}

// x times a power of two, to the nearest integer: in the low 16 bits. (What is above them stays that of ROUND_MAGIC.)
INLINE veci nearest_16(vec x, float factor)
{
    return (veci)vec_fma(x, vec_all(factor), vec_all(ROUND_MAGIC));
}

// A query's factors. Returns its scale.
INLINE float query_factors(const float *q, int dim, int32_t *factors)
{
    veci most = {0};
    for (int d = 0; d < dim; d += VEC)
        most = veci_max(most, (veci)vec_abs(vec_load(q + d)));
    const struct scale_16 scale = scale_16(most);
    for (int d = 0; d < dim; d += 2 * VEC)
        words_store_factors(factors + d / 2, nearest_16(vec_load(q + d), scale.to),
                            nearest_16(vec_load(q + d + VEC), scale.to));
    return scale.from;
}

// ---- scores

// Scores of some vectors of keys, from `key` on in the page; `scale` of the queries.
INLINE void key_tile(int queries, int vecs, const int32_t *const *q, const float *scale, int dim, const uint8_t *page,
                     int key, float *scores)
{
    vec sums[KEY_QUERIES][KEY_VECS];
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            sums[i][v] = (vec){0};
    for (int b = 0; b < dim / KV_BLOCK; b++, page += KV_BLOCK_PART) {
        struct word_sums products[KEY_QUERIES][KEY_VECS];
        UNROLL_FOR (int i = 0; i < queries; i++)
            UNROLL_FOR (int v = 0; v < vecs; v++)
                products[i][v] = (struct word_sums){0};
        for (int word = 0; word < BLOCK_WORDS; word++) {
            struct words keys[KEY_VECS];
            UNROLL_FOR (int v = 0; v < vecs; v++)
                keys[v] = words_load(page + (word * KV_PAGE + key + v * VEC) * 4);
            UNROLL_FOR (int which = 0; which < 2; which++) {
                UNROLL_FOR (int i = 0; i < queries; i++) {
                    const int32_t factor = q[i][(b * BLOCK_WORDS + word) * 2 + which];
                    UNROLL_FOR (int v = 0; v < vecs; v++)
                        words_add(&products[i][v], &keys[v], which, factor);
                }
            }
        }
        UNROLL_FOR (int v = 0; v < vecs; v++) {
            const vec factor = vec_from_f16(page + KV_BLOCK_SCALES + (key + v * VEC) * 2);
            UNROLL_FOR (int i = 0; i < queries; i++)
                sums[i][v] = vec_fma(veci_to_vec(words_total(&products[i][v])), factor, sums[i][v]);
        }
    }
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < vecs; v++)
            vec_store(scores + i * ATTENTION_SPAN + key + v * VEC, sums[i][v] * scale[i]);
}

static void key_tiles(int queries, int vecs, const int32_t *const *q, const float *scale, int dim, const uint8_t *page,
                      int key, float *scores)
{
    switch (queries * 8 + vecs) {
// clang-format off
#define TILE_CASE(n, v)                                                                                                \
    case n * 8 + v:                                                                                                    \
        key_tile(MIN(n, KEY_QUERIES), v, q, scale, dim, page, key, scores);                                            \
        break;
        TILE_CASE(1, 1) TILE_CASE(2, 1) TILE_CASE(3, 1) TILE_CASE(4, 1)
        TILE_CASE(1, 2) TILE_CASE(2, 2) TILE_CASE(3, 2) TILE_CASE(4, 2)
        TILE_CASE(1, 4) TILE_CASE(2, 4) TILE_CASE(3, 4) TILE_CASE(4, 4)
// clang-format on
#undef TILE_CASE
    }
}

// ---- values

// What the tile of a block takes of its queries.
struct weighted {
    int n;
    _Alignas(64) int32_t factors[WEIGHTED_QUERIES][PAGE_FACTORS];
    float scale[WEIGHTED_QUERIES];
    float *sums[WEIGHTED_QUERIES]; // of the block's elements
};

// The scales of a block of a page of values. False where one is no finite number.
INLINE bool value_scales(const uint8_t *block, float scales[KV_PAGE])
{
    veci most = {0};
    UNROLL_FOR (int i = 0; i < KV_PAGE; i += VEC) {
        const vec scale = vec_from_f16(block + KV_BLOCK_SCALES + 2 * i);
        vec_store(scales + i, scale);
        most = veci_max(most, (veci)vec_abs(scale));
    }
    return veci_greatest(most) < 0x7f800000;
}

// The powers in the slots [lo, hi) of a page times their values' scales, as factors; in other slots 0. Returns by what sums of
// their products are to be multiplied. `finite`: what value_scales said; else, where p is 0, the scale may be what this query
// must not see.
INLINE float weigh(const float *p, const float *scales, bool finite, int lo, int hi, int32_t factors[PAGE_FACTORS])
{
    vec weight[KV_PAGE / VEC];
    veci most = {0};
    lo = lo / LANES * LANES;
    hi = padded(hi);
    UNROLL_FOR (int v = 0; v < KV_PAGE / VEC; v++) {
        weight[v] = (vec){0};
        if (v * VEC >= lo && v * VEC < hi) {
            const vec power = vec_load(p + v * VEC);
            weight[v] = power * vec_load(scales + v * VEC);
            if (!finite)
                weight[v] = vec_select(power != 0, weight[v], (vec){0});
        }
        most = veci_max(most, (veci)vec_abs(weight[v]));
    }
    const struct scale_16 scale = scale_16(most);
    UNROLL_FOR (int v = 0; v < KV_PAGE / VEC; v += 2)
        words_store_factors(factors + v * VEC / 2, nearest_16(weight[v], scale.to),
                            nearest_16(weight[v + 1], scale.to));
    return scale.from;
}

// The words [lo, hi) of WEIGHTED_VECS vectors of a block's dimensions, from `first` on.
INLINE void weighted_tile(int queries, const struct weighted *w, const uint8_t *block, int first, int lo, int hi)
{
    struct word_sums sums[WEIGHTED_QUERIES][WEIGHTED_VECS];
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < WEIGHTED_VECS; v++)
            sums[i][v] = (struct word_sums){0};
    for (int word = lo; word < hi; word++) {
        struct words values[WEIGHTED_VECS];
        UNROLL_FOR (int v = 0; v < WEIGHTED_VECS; v++)
            values[v] = words_load(block + (word * KV_BLOCK + first + v * VEC) * 4);
        UNROLL_FOR (int which = 0; which < 2; which++) {
            UNROLL_FOR (int i = 0; i < queries; i++) {
                const int32_t factor = w->factors[i][word * 2 + which];
                UNROLL_FOR (int v = 0; v < WEIGHTED_VECS; v++)
                    words_add(&sums[i][v], &values[v], which, factor);
            }
        }
    }
    UNROLL_FOR (int i = 0; i < queries; i++)
        UNROLL_FOR (int v = 0; v < WEIGHTED_VECS; v++) {
            float *to = w->sums[i] + first + v * VEC;
            vec_store(to, vec_fma(veci_to_vec(words_total(&sums[i][v])), vec_all(w->scale[i]), vec_load(to)));
        }
}

static void weighted_tiles(const struct weighted *w, const uint8_t *block, int lo, int hi)
{
    switch (w->n) {
#define TILE_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        for (int first = 0; first < KV_BLOCK; first += WEIGHTED_VECS * VEC)                                            \
            weighted_tile(MIN(n, WEIGHTED_QUERIES), w, block, first, lo, hi);                                          \
        break;
        TILE_CASE(1) TILE_CASE(2) TILE_CASE(3) TILE_CASE(4) TILE_CASE(5) TILE_CASE(6) TILE_CASE(7) TILE_CASE(8)
#undef TILE_CASE
    }
}

#endif
