// How each type's blocks become a panel of AVX2's 8-bit matmul.
//
// The naive loop (matmul_q8_scalar.c) unpacks one row after another. Here 16 bytes of eight rows are transposed first, while
// they are still packed: word j of row r goes to lane r of register j. From there on every shift, mask and lookup serves
// eight rows, headers and sub-scales included, and nothing has to be added up across lanes later. The layouts are
// described in gguf/dtype.c and gguf/dtype_iq.c.
#include "kernels/cpu/matmul_q8_avx2.h"

// ---- reading eight rows

// Lane r of t[j] becomes word j of the 16 bytes at `at` in row r.
INLINE void load_words(const uint8_t *const *rows, size_t at, __m256i t[4])
{
    __m256i v[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(rows[i] + at)), load_128(rows[4 + i] + at), 1);
    transpose_words(v, t);
}

INLINE int word_at(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return word;
}

INLINE __m256i load_word(const uint8_t *const *rows, size_t at)
{
    return _mm256_setr_epi32(word_at(rows[0] + at), word_at(rows[1] + at), word_at(rows[2] + at), word_at(rows[3] + at),
                             word_at(rows[4] + at), word_at(rows[5] + at), word_at(rows[6] + at), word_at(rows[7] + at));
}

INLINE short half_at(const uint8_t *p)
{
    int16_t half;
    memcpy(&half, p, 2);
    return half;
}

INLINE __m256 load_halves(const uint8_t *const *rows, size_t at)
{
    return _mm256_cvtph_ps(_mm_setr_epi16(half_at(rows[0] + at), half_at(rows[1] + at), half_at(rows[2] + at),
                                          half_at(rows[3] + at), half_at(rows[4] + at), half_at(rows[5] + at),
                                          half_at(rows[6] + at), half_at(rows[7] + at)));
}

// The float16 in the lower and in the upper half of each word.
INLINE void split_halves(__m256i words, __m256 *low, __m256 *high)
{
    __m256i both = _mm256_packus_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(words, 16));
    both = _mm256_permute4x64_epi64(both, 0xd8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1));
}

// ---- bits and bytes

// Of each byte the bits of `mask`, after a shift to the right; to the left where `right` is negative.
INLINE __m256i field(__m256i v, int right, int mask)
{
    __m256i moved = right > 0 ? _mm256_srli_epi16(v, right) : right < 0 ? _mm256_slli_epi16(v, -right) : v;
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

INLINE __m256i either(__m256i a, __m256i b)
{
    return _mm256_or_si256(a, b);
}

// In each word: its bytes a and b as two int16, unsigned.
INLINE __m256i pair(__m256i words, int a, int b)
{
    const __m256i base = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    int pick = (int)(0x80008000u | (unsigned)b << 16 | (unsigned)a);
    return _mm256_shuffle_epi8(words, _mm256_add_epi8(base, _mm256_set1_epi32(pick)));
}

// In each word: its byte a, signed, as two equal int16.
INLINE __m256i signed_pair(__m256i words, int a)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(pair(words, a, a), 8), 8);
}

INLINE __m256i table_of(const int8_t *values, int offset)
{
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(load_128(values)), _mm256_set1_epi8((char)offset));
}

// ---- blocks of 256

static void unpack_q2_k(const uint8_t *const *rows, int n_blocks, struct panel *p)
{
    (void)n_blocks;
    __m256i t[4];
    load_words(rows, 68, t);
    split_halves(t[3], &p->d[0], &p->m[0]);
    load_words(rows, 0, t);
    UNROLL
    for (int s = 0; s < 16; s++)
        p->scale[s] = pair(field(t[s / 4], 0, 15), s % 4, s % 4);
    UNROLL
    for (int s = 0; s < 8; s++)
        p->min[s] = pair(field(t[s / 2], 4, 15), s % 2 * 2, s % 2 * 2 + 1);
    for (int j = 0; j < 4; j++) { // 16 bytes: four times 16 elements, 32 apart
        __m256i *w = &p->w[j / 2 * 32 + j % 2 * 4];
        load_words(rows, (size_t)(16 + 16 * j), t);
        UNROLL
        for (int i = 0; i < 4; i++)
            w[i] = field(t[i], 0, 3), w[8 + i] = field(t[i], 2, 3), w[16 + i] = field(t[i], 4, 3), w[24 + i] = field(t[i], 6, 3);
    }
}

// Twelve bytes: the low nibbles of 16 scales, then their upper two bits.
INLINE void unpack_q3_scales(const __m256i t[3], struct panel *p)
{
    const __m256i offset = _mm256_set1_epi8(32);
    __m256i four[4] = {either(field(t[0], 0, 15), field(t[2], -4, 0x30)), either(field(t[1], 0, 15), field(t[2], -2, 0x30)),
                       either(field(t[0], 4, 15), field(t[2], 0, 0x30)), either(field(t[1], 4, 15), field(t[2], 2, 0x30))};
    UNROLL
    for (int s = 0; s < 16; s++)
        p->scale[s] = signed_pair(_mm256_sub_epi8(four[s / 4], offset), s % 4);
}

static void unpack_q3_k(const uint8_t *const *rows, int n_blocks, struct panel *p)
{
    (void)n_blocks;
    __m256i t[4], high[2][4];
    load_words(rows, 92, t);
    unpack_q3_scales(t + 1, p);
    p->d[0] = load_halves(rows, 108);
    load_words(rows, 0, high[0]);
    load_words(rows, 16, high[1]);
    UNROLL
    for (int j = 0; j < 4; j++) {
        __m256i *w = &p->w[j / 2 * 32 + j % 2 * 4];
        load_words(rows, (size_t)(32 + 16 * j), t);
        UNROLL
        for (int i = 0; i < 4; i++)
            UNROLL
            for (int g = 0; g < 4; g++)
                w[8 * g + i] = either(field(t[i], 2 * g, 3), field(high[j % 2][i], j / 2 * 4 + g - 2, 4));
    }
}

// The head of Q4_K and Q5_K: d, dmin, and twelve bytes of eight 6-bit scales and mins.
INLINE void unpack_k4_head(const uint8_t *const *rows, struct panel *p)
{
    __m256i h[4];
    load_words(rows, 0, h);
    split_halves(h[0], &p->d[0], &p->m[0]);
    __m256i scales[2] = {field(h[1], 0, 63), either(field(h[3], 0, 15), field(h[1], 2, 0x30))};
    __m256i mins[2] = {field(h[2], 0, 63), either(field(h[3], 4, 15), field(h[2], 2, 0x30))};
    UNROLL
    for (int s = 0; s < 8; s++)
        p->scale[s] = pair(scales[s / 4], s % 4, s % 4);
    UNROLL
    for (int s = 0; s < 4; s++)
        p->min[s] = pair(mins[s / 2], s % 2 * 2, s % 2 * 2 + 1);
}

static void unpack_q4_k(const uint8_t *const *rows, int n_blocks, struct panel *p)
{
    (void)n_blocks;
    unpack_k4_head(rows, p);
    for (int j = 0; j < 8; j++) { // 16 bytes: twice 16 elements, 32 apart
        __m256i t[4], *w = &p->w[j / 2 * 16 + j % 2 * 4];
        load_words(rows, (size_t)(16 + 16 * j), t);
        UNROLL
        for (int i = 0; i < 4; i++)
            w[i] = field(t[i], 0, 15), w[8 + i] = field(t[i], 4, 15);
    }
}

static void unpack_q5_k(const uint8_t *const *rows, int n_blocks, struct panel *p)
{
    (void)n_blocks;
    unpack_k4_head(rows, p);
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m256i high[4], t[4];
        load_words(rows, (size_t)(16 + 16 * half), high);
        UNROLL
        for (int j = 0; j < 4; j++) {
            __m256i *w = &p->w[16 * j + 4 * half];
            load_words(rows, (size_t)(48 + 32 * j + 16 * half), t);
            UNROLL
            for (int i = 0; i < 4; i++) {
                w[i] = either(field(t[i], 0, 15), field(high[i], 2 * j - 4, 16));
                w[8 + i] = either(field(t[i], 4, 15), field(high[i], 2 * j - 3, 16));
            }
        }
    }
}

static void unpack_q6_k(const uint8_t *const *rows, int n_blocks, struct panel *p)
{
    (void)n_blocks;
    __m256i q0[4], q1[4], h[4];
    load_words(rows, 192, h);
    UNROLL
    for (int s = 0; s < 16; s++)
        p->scale[s] = signed_pair(h[s / 4], s % 4);
    p->d[0] = load_halves(rows, 208);
    for (int j = 0; j < 4; j++) { // 16 elements of each 32 of a half
        size_t half = (size_t)j / 2, at = (size_t)j % 2 * 16;
        __m256i *w = &p->w[j / 2 * 32 + j % 2 * 4];
        load_words(rows, 64 * half + at, q0);
        load_words(rows, 64 * half + 32 + at, q1);
        load_words(rows, 128 + 32 * half + at, h);
        UNROLL
        for (int i = 0; i < 4; i++) {
            w[i] = either(field(q0[i], 0, 15), field(h[i], -4, 0x30));
            w[8 + i] = either(field(q1[i], 0, 15), field(h[i], -2, 0x30));
            w[16 + i] = either(field(q0[i], 4, 15), field(h[i], 0, 0x30));
            w[24 + i] = either(field(q1[i], 4, 15), field(h[i], 2, 0x30));
        }
    }
}

// Eight scales: low nibbles in a word, upper two bits in the upper half of the word with d.
INLINE void unpack_iq4_scales(__m256i high, __m256i low, struct panel *p)
{
    const __m256i both = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0, 1, 0, 1, 4, 5, 4, 5, 8, 9,
                                          8, 9, 12, 13, 12, 13);
    UNROLL
    for (int s = 0; s < 8; s++) {
        __m256i l = _mm256_and_si256(_mm256_srli_epi32(low, 4 * s), _mm256_set1_epi32(15));
        __m256i h = _mm256_and_si256(_mm256_srli_epi32(high, 12 + 2 * s), _mm256_set1_epi32(0x30));
        p->scale[s] = _mm256_shuffle_epi8(_mm256_sub_epi32(either(l, h), _mm256_set1_epi32(32)), both);
    }
}

static void unpack_iq4_xs(const uint8_t *const *rows, int n_blocks, struct panel *p)
{
    (void)n_blocks;
    const __m256i values = table_of(iq4_values, 0);
    __m256i t[4];
    load_words(rows, 0, t);
    split_halves(t[0], &p->d[0], &p->m[0]);
    unpack_iq4_scales(t[0], t[1], p);
    for (int j = 0; j < BLOCKS; j++) {
        __m256i *w = &p->w[8 * j];
        load_words(rows, (size_t)(8 + 16 * j), t);
        UNROLL
        for (int i = 0; i < 4; i++) {
            w[i] = _mm256_shuffle_epi8(values, field(t[i], 0, 15));
            w[4 + i] = _mm256_shuffle_epi8(values, field(t[i], 4, 15));
        }
    }
}

// ---- blocks of 32: 16 bytes of nibbles at `at`, the low ones elements 0-15, after what stands for a number and its fifth bit

INLINE void unpack_nibbles(const uint8_t *const *rows, size_t at, __m256i *w)
{
    __m256i t[4];
    load_words(rows, at, t);
    UNROLL
    for (int i = 0; i < 4; i++)
        w[i] = field(t[i], 0, 15), w[4 + i] = field(t[i], 4, 15);
}

// The bits of 32 elements, a word of a row, become bit 4 of their bytes.
INLINE void add_fifth_bits(__m256i bits, __m256i *w)
{
    const __m256i base = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    UNROLL
    for (int i = 0; i < 8; i++) {
        __m256i byte = _mm256_shuffle_epi8(bits, _mm256_add_epi8(base, _mm256_set1_epi8((char)(i / 2))));
        __m256i own = _mm256_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
        __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, own), own);
        w[i] = either(w[i], _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
    }
}

INLINE void look_up(__m256i values, __m256i *w)
{
    UNROLL
    for (int i = 0; i < 8; i++)
        w[i] = _mm256_shuffle_epi8(values, w[i]);
}

// 2^(e - 128) of the byte at `at`, as its bits: the two least are denormal.
INLINE __m256 load_powers(const uint8_t *const *rows, size_t at)
{
    __m256i e = _mm256_setr_epi32(rows[0][at], rows[1][at], rows[2][at], rows[3][at], rows[4][at], rows[5][at], rows[6][at],
                                  rows[7][at]);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

// Calls `block` for each of the blocks that are there: it sees `at`, where the block begins in its row, its number b, and w.
#define EACH_BLOCK(name, bytes, block)                                                                                 \
    static void unpack_##name(const uint8_t *const *rows, int n_blocks, struct panel *p)                              \
    {                                                                                                                  \
        for (int b = 0; b < n_blocks; b++) {                                                                           \
            const size_t at = (size_t)b * (bytes);                                                                     \
            __m256i *w = &p->w[8 * b];                                                                                 \
            block                                                                                                      \
        }                                                                                                              \
    }

// clang-format off
EACH_BLOCK(q4_0, 18, {
    p->d[b] = load_halves(rows, at);
    unpack_nibbles(rows, at + 2, w);
})
EACH_BLOCK(q4_1, 20, {
    split_halves(load_word(rows, at), &p->d[b], &p->m[b]);
    unpack_nibbles(rows, at + 4, w);
})
EACH_BLOCK(q5_0, 22, {
    p->d[b] = load_halves(rows, at);
    unpack_nibbles(rows, at + 6, w);
    add_fifth_bits(load_word(rows, at + 2), w);
})
EACH_BLOCK(q5_1, 24, {
    split_halves(load_word(rows, at), &p->d[b], &p->m[b]);
    unpack_nibbles(rows, at + 8, w);
    add_fifth_bits(load_word(rows, at + 4), w);
})
EACH_BLOCK(q8_0, 34, {
    p->d[b] = load_halves(rows, at);
    load_words(rows, at + 2, w);
    load_words(rows, at + 18, w + 4);
})
EACH_BLOCK(iq4_nl, 18, {
    p->d[b] = load_halves(rows, at);
    unpack_nibbles(rows, at + 2, w);
    look_up(table_of(iq4_values, 0), w);
})
EACH_BLOCK(mxfp4, 17, {
    p->d[b] = load_powers(rows, at);
    unpack_nibbles(rows, at + 1, w);
    look_up(table_of(fp4_values, 12), w);
})

unpack_fn *const ISA_FN(matmul_q8_unpack)[DT_COUNT] = {
    [DT_Q4_0] = unpack_q4_0,     [DT_Q4_1] = unpack_q4_1,     [DT_Q5_0] = unpack_q5_0, [DT_Q5_1] = unpack_q5_1,
    [DT_Q8_0] = unpack_q8_0,     [DT_Q2_K] = unpack_q2_k,     [DT_Q3_K] = unpack_q3_k, [DT_Q4_K] = unpack_q4_k,
    [DT_Q5_K] = unpack_q5_k,     [DT_Q6_K] = unpack_q6_k,     [DT_IQ4_NL] = unpack_iq4_nl,
    [DT_IQ4_XS] = unpack_iq4_xs, [DT_MXFP4] = unpack_mxfp4,
};
