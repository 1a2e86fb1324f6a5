// The inner loops of attention where keys or values have 8 bits: they are multiplied as integers, as they lie in the cache.
//
// What multiplies them - a query, or a page's powers p, each times the scale of its value - becomes integers of 16 bits,
// with a power of two as their scale: the greatest of them has 15 bits, so half a step is at most 2^-15 of it. Products
// with a block of a key and with a page of values are summed up exactly, so in any order, and only these sums are floats:
//   s    = fma((float)isum_b, scale of the key's block b, s), from 0 and in order of b; then times the query's scale
//   o[d] = fma((float)isum[d], scale of the page's p, o[d]) in order of the pages of a span
// A `pair` is two integers of 16 bits, the lower half first, that stand in an int32: one instruction multiplies pairs by
// pairs and adds both products up. The four codes of a word (kv_words.h) become two pairs: the first and the third code, and
// the second and the fourth. attention.c includes this; nothing is kept.
#ifndef QUERN_ATTENTION_WORDS_H
#define QUERN_ATTENTION_WORDS_H

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/kv_words.h"

enum {
    BLOCK_WORDS = KV_BLOCK / 4,    // of a key
    PAGE_WORDS = KV_PAGE / 4,      // of a dimension of values
    KEY_VECS = 4,                  // vectors of keys in a register tile
    VALUE_VECS_8 = KV_BLOCK / VEC, // vectors of values: a block
#if defined(VEC_AVX512)
    KEY_QUERIES = 4, WEIGHTED_QUERIES = 8,
#elif defined(VEC_NEON)
    KEY_QUERIES = 4, WEIGHTED_QUERIES = 2,
#elif defined(VEC_AVX2)
    KEY_QUERIES = 2, WEIGHTED_QUERIES = 2,
#else
    KEY_QUERIES = 1, WEIGHTED_QUERIES = 1,
#endif
};

// ---- integers of 16 bits

// By what numbers are multiplied to become integers of 16 bits, and by what sums of their products are afterwards.
struct scale_16 {
    float to, from;
};

// `most`: the bits of the greatest magnitude; what would round to 2^15 is halved once more. An infinity or a NaN, of either
// sign, makes `from` NaN.
INLINE struct scale_16 scale_16(uint32_t most)
{
    enum { SMALLEST = 15, GREATEST = 254, ROUNDS_UP = 1 << 9 }; // exponents such that both are normal floats
    const int32_t exponent = (int32_t)((most + ROUNDS_UP) >> 23);
    const int32_t e = MIN(MAX(exponent, (int32_t)SMALLEST), (int32_t)GREATEST);
    const int32_t to = (268 - e) << 23, from = exponent > GREATEST ? 0x7fc00000 : (e - 14) << 23;
    return (struct scale_16){float_load(&to), float_load(&from)};
}

// x times a power of two, to the nearest integer: in the low 16 bits. (What is above them stays that of ROUND_MAGIC.)
INLINE veci nearest_16(vec x, float factor)
{
    return (veci)vec_fma(x, vec_all(factor), vec_all(ROUND_MAGIC));
}

// A query's pairs. Returns its scale.
INLINE float query_pairs(const float *q, int dim, int32_t *pairs)
{
    vecu most = {0};
    for (int d = 0; d < dim; d += VEC)
        most = vecu_max(most, (vecu)vec_abs(vec_load(q + d)));
    const struct scale_16 scale = scale_16(vecu_greatest(most));
    for (int d = 0; d < dim; d += 2 * VEC)
        veci_store_pairs(pairs + d / 2, nearest_16(vec_load(q + d), scale.to), nearest_16(vec_load(q + d + VEC), scale.to));
    return scale.from;
}

// The two pairs of each word.
INLINE void word_pairs(const uint8_t *words, veci pairs[2])
{
    const veci_16 w = (veci_16)vec_load(words);
    pairs[0] = (veci)((veci_16)((veci_16u)w << 8) >> 8);
    pairs[1] = (veci)(w >> 8);
}

// ---- scores

// Scores of some vectors of keys, from `key` on in the page; `scale` of the queries.
INLINE void key_tile(int queries, int vecs, const int32_t *const *q, const float *scale, int dim, const uint8_t *page, int key,
                     float *scores)
{
    vec sums[KEY_QUERIES][KEY_VECS];
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            sums[i][v] = (vec){0};
    for (int b = 0; b < dim / KV_BLOCK; b++, page += KV_BLOCK_PART) {
        veci products[KEY_QUERIES][KEY_VECS];
        UNROLL for (int i = 0; i < queries; i++)
            UNROLL for (int v = 0; v < vecs; v++)
                products[i][v] = (veci){0};
        for (int word = 0; word < BLOCK_WORDS; word++) {
            veci keys[KEY_VECS][2];
            UNROLL for (int v = 0; v < vecs; v++)
                word_pairs(page + (word * KV_PAGE + key + v * VEC) * 4, keys[v]);
            UNROLL for (int half = 0; half < 2; half++) {
                UNROLL for (int i = 0; i < queries; i++) {
                    const veci factor = veci_all(q[i][(b * BLOCK_WORDS + word) * 2 + half]);
                    UNROLL for (int v = 0; v < vecs; v++)
                        products[i][v] = veci_add_pairs(products[i][v], keys[v][half], factor);
                }
            }
        }
        UNROLL for (int v = 0; v < vecs; v++) {
            const vec factor = vec_from_f16(page + KV_BLOCK_SCALES + (key + v * VEC) * 2);
            UNROLL for (int i = 0; i < queries; i++)
                sums[i][v] = vec_fma(veci_to_vec(products[i][v]), factor, sums[i][v]);
        }
    }
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < vecs; v++)
            vec_store(scores + i * ATTENTION_SPAN + key + v * VEC, sums[i][v] * scale[i]);
}

static void key_tiles(int queries, int vecs, const int32_t *const *q, const float *scale, int dim, const uint8_t *page, int key,
                      float *scores)
{
    switch (queries * 8 + vecs) {
#define TILE_CASE(n, v)                                                                                                \
    case n * 8 + v:                                                                                                    \
        key_tile(MIN(n, KEY_QUERIES), v, q, scale, dim, page, key, scores);                                            \
        break;
        TILE_CASE(1, 1) TILE_CASE(2, 1) TILE_CASE(3, 1) TILE_CASE(4, 1)
        TILE_CASE(1, 2) TILE_CASE(2, 2) TILE_CASE(3, 2) TILE_CASE(4, 2)
        TILE_CASE(1, 4) TILE_CASE(2, 4) TILE_CASE(3, 4) TILE_CASE(4, 4)
#undef TILE_CASE
    }
}

// ---- values

// What the tile of a block takes of its queries.
struct weighted {
    int n;
    _Alignas(64) int32_t pairs[WEIGHTED_QUERIES][PAGE_WORDS * 2];
    float scale[WEIGHTED_QUERIES];
    float *sums[WEIGHTED_QUERIES]; // of the block's elements
};

// The scales of a block of a page of values. False where one is not a finite number, 0 or more.
INLINE bool value_scales(const uint8_t *block, float scales[KV_PAGE])
{
    vecu most = {0};
    UNROLL for (int i = 0; i < KV_PAGE; i += VEC) {
        const vec scale = vec_from_f16(block + KV_BLOCK_SCALES + 2 * i);
        vec_store(scales + i, scale);
        most = vecu_max(most, (vecu)scale);
    }
    return vecu_greatest(most) < 0x7f800000;
}

// The powers in the slots [lo, hi) of a page times their values' scales, as pairs; in other slots 0. Returns by what sums of
// their products are to be multiplied. `plain`: what value_scales said; else, where p is 0, the scale may be what this query
// must not see.
INLINE float weigh(const float *p, const float *scales, bool plain, int lo, int hi, int32_t pairs[PAGE_WORDS * 2])
{
    vec weight[KV_PAGE / VEC];
    vecu most = {0};
    lo = lo / LANES * LANES;
    hi = padded(hi);
    UNROLL for (int v = 0; v < KV_PAGE / VEC; v++) {
        weight[v] = (vec){0};
        if (v * VEC >= lo && v * VEC < hi) {
            const vec power = vec_load(p + v * VEC);
            weight[v] = power * vec_load(scales + v * VEC);
            if (!plain)
                weight[v] = vec_abs(vec_select(power != 0, weight[v], (vec){0}));
        }
        most = vecu_max(most, (vecu)weight[v]);
    }
    const struct scale_16 scale = scale_16(vecu_greatest(most));
    UNROLL for (int v = 0; v < KV_PAGE / VEC; v += 2)
        veci_store_pairs(pairs + v * VEC / 2, nearest_16(weight[v], scale.to), nearest_16(weight[v + 1], scale.to));
    return scale.from;
}

// The words [lo, hi) of each dimension of a block.
INLINE void weighted_tile(int queries, const struct weighted *w, const uint8_t *block, int lo, int hi)
{
    veci sums[WEIGHTED_QUERIES][VALUE_VECS_8];
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < VALUE_VECS_8; v++)
            sums[i][v] = (veci){0};
    for (int word = lo; word < hi; word++) {
        veci values[VALUE_VECS_8][2];
        UNROLL for (int v = 0; v < VALUE_VECS_8; v++)
            word_pairs(block + (word * KV_BLOCK + v * VEC) * 4, values[v]);
        UNROLL for (int half = 0; half < 2; half++) {
            UNROLL for (int i = 0; i < queries; i++) {
                const veci factor = veci_all(w->pairs[i][word * 2 + half]);
                UNROLL for (int v = 0; v < VALUE_VECS_8; v++)
                    sums[i][v] = veci_add_pairs(sums[i][v], values[v][half], factor);
            }
        }
    }
    UNROLL for (int i = 0; i < queries; i++)
        UNROLL for (int v = 0; v < VALUE_VECS_8; v++) {
            float *to = w->sums[i] + v * VEC;
            vec_store(to, vec_fma(veci_to_vec(sums[i][v]), vec_all(w->scale[i]), vec_load(to)));
        }
}

static void weighted_tiles(const struct weighted *w, const uint8_t *block, int lo, int hi)
{
    switch (w->n) {
#define TILE_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        weighted_tile(MIN(n, WEIGHTED_QUERIES), w, block, lo, hi);                                                     \
        break;
        TILE_CASE(1) TILE_CASE(2) TILE_CASE(3) TILE_CASE(4) TILE_CASE(5) TILE_CASE(6) TILE_CASE(7) TILE_CASE(8)
#undef TILE_CASE
    }
}

#endif
