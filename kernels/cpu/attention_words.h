// The inner loops of attention with 8-bit keys and values (Q8_0), which are multiplied as integers in place.
//
// The naive loops, for a query q, a key of blocks b, and the values of a page:
//   s    = sum over b of (scale of b) * (sum over i in b of q[i] * code[i])
//   o[d] = sum over the page's slots j of p[j] * (scale of j) * code[j][d]
// The other factors, q[i] or p[j] * (scale of j), are rounded to 16-bit integers with a power of two as common scale.
// The largest of them has 15 bits, so rounding changes a factor by at most 2^-15 of the largest. Integer sums over a
// block of a key and over a page of values are exact, and so independent of their order. The floats are added as
// follows:
//   s    = fma((float)isum_b, scale of block b, s), from 0 in order of b; then s is multiplied by the query's scale
//   o[d] = fma((float)isum[d], scale of the page's factors, o[d]), in order of the pages of a span
//
// Codes are stored in words of four (kv_words.h). A word is multiplied with two factors, which hold four 16-bit
// integers (vec_words.h). Compiled for every ISA level, within attention.c. Ownership: none. Threads: no state.
#ifndef QUERN_ATTENTION_WORDS_H
#define QUERN_ATTENTION_WORDS_H

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/kv_words.h"
#include "kernels/cpu/vec_words.h"

enum {
    BLOCK_WORDS = KV_BLOCK / 4,    // words of a block of a key
    PAGE_WORDS = KV_PAGE / 4,      // words of a dimension of a page of values
    PAGE_FACTORS = 2 * PAGE_WORDS, // factors of a page of values
    // Sizes of the register tiles: vectors of keys by queries, and vectors of a block's dimensions by queries.
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

// ---- keys that are values, too

typedef uint8_t word_bytes __attribute__((vector_size(16)));

#ifdef __clang__
#define WORD_SHUFFLE(a, ...) __builtin_shufflevector(a, a, __VA_ARGS__)
#else
#define WORD_SHUFFLE(a, ...) __builtin_shuffle(a, (word_bytes){__VA_ARGS__})
#endif

// Arranges a block of keys as one of values, in `turned`, which has room for a block. Returns it. Both layouts have 16
// bytes for four dimensions of four slots side by side, one with the dimensions of a slot together, one with the slots
// of a dimension.
INLINE const uint8_t *turn_block(const uint8_t *block, uint8_t *turned)
{
    for (int i = 0; i < KV_BLOCK; i += 4)
        for (int slot = 0; slot < KV_PAGE; slot += 4) {
            word_bytes b;
            memcpy(&b, block + kv_code_at(KV_KEY, slot, i), sizeof b);
            b = WORD_SHUFFLE(b, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            memcpy(turned + kv_code_at(KV_VALUE, slot, i), &b, sizeof b);
        }
    memcpy(turned + KV_BLOCK_SCALES, block + KV_BLOCK_SCALES, KV_PAGE * 2);
    return turned;
}

// ---- integers of 16 bits

// Two inverse powers of two: floats times `to` become 16-bit integers, and sums of integer products times `from` are
// back at the scale of the floats.
struct scale_16 {
    float to, from;
};

// Chooses the scale. most: bits of the largest magnitudes, of which the largest counts. It becomes an integer of at
// most WORD_INTEGER_MAX. If it is an infinity or a NaN, `from` is NaN.
INLINE struct scale_16 scale_16(veci most)
{
    enum { SMALLEST = 15, GREATEST = 254, ROUND_UP = 1 << 17 }; // exponents such that both are normal floats
    _Static_assert((1 << 15) - (ROUND_UP >> 9) <= WORD_INTEGER_MAX, "what is not halved fits");
    const int32_t exponent = (int32_t)(((uint32_t)veci_greatest(most) + ROUND_UP) >> 23);
    const int32_t e = MIN(MAX(exponent, (int32_t)SMALLEST), (int32_t)GREATEST);
    const int32_t to = (268 - e) << 23, from = exponent > GREATEST ? 0x7fc00000 : (e - 14) << 23;
    return (struct scale_16){float_load(&to), float_load(&from)};
}

// Returns x * factor rounded to the nearest integer, in the low 16 bits of each element; the high bits are those of
// ROUND_MAGIC. factor: a power of two.
INLINE veci nearest_16(vec x, float factor)
{
    return (veci)vec_fma(x, vec_all(factor), vec_all(ROUND_MAGIC));
}

// Computes the factors of a query of `dim` floats, dim / 2 of them, and returns their scale.
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

// Computes the scores of some queries and `vecs` vectors of keys, from slot `key` of the page on. q and scale: the
// factors of each query and their scale.
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

// The queries for which a block of values is added: their factors, and where their sums are.
struct weighted {
    int n;
    _Alignas(64) int32_t factors[WEIGHTED_QUERIES][PAGE_FACTORS]; // p times the scale of the value, for each slot
    float scale[WEIGHTED_QUERIES];                                // scale of the factors
    float *sums[WEIGHTED_QUERIES];                                // KV_BLOCK sums, one for each dimension of the block
};

// Loads the scales of a block of values for all slots of a page. Returns whether all of them are finite.
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

// Computes the factors of a page from p and the scales of the values: those of the slots [lo, hi), and zeros for the
// other slots. Returns the scale of the factors. finite: the result of value_scales. If it is false, the factor is 0
// wherever p is 0, because the scale may be an infinity or a NaN at a position that this query must not see.
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

// Adds the words [lo, hi), four slots each, to WEIGHTED_VECS vectors of a block's dimensions, from dimension `first`
// on.
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

// Adds the words [lo, hi), four slots each, to all dimensions of a block.
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
