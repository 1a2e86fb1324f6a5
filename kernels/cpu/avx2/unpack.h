// How the blocks of each type are unpacked in AVX2's 8-bit matmul, to a panel or directly into products with a few
// columns. Types with a codebook and types with factors of runs have files of their own.
//
// The naive loop (matmul_q8_scalar.c) unpacks one row after another. Here 16 bytes of eight rows are transposed
// first, while they are still packed: word j of row r goes to lane r of register j. From there on every shift, mask
// and look-up serves eight rows, headers and sub-scales included, and nothing has to be added up across lanes later.
// Each word of unpacked weights goes to a sink, which stores it in the panel or multiplies it; with a few columns the
// latter takes fewer instructions. The layouts are described in gguf/dtype.c and gguf/dtype_iq.c.
//
// Private to kernels/cpu/avx2/. All functions are inlined. Nothing is read outside of the blocks that are passed.
#ifndef QUERN_AVX2_UNPACK_H
#define QUERN_AVX2_UNPACK_H

#include "kernels/cpu/avx2/matmul_q8.h"

// The types and their formats: EACH_TYPE_x(X) expands X(name, NAME, run, scaled, offset, mins) for each type; the
// numbers are those of struct type_format.
//   EACH_TYPE_OF_FIELDS   blocks of 256 whose bytes hold more than two elements
//   EACH_TYPE_OF_NIBBLES  blocks of 256 of nibbles
//   EACH_TYPE_256         both
//   EACH_TYPE_32          blocks of 32
#ifdef __AVXVNNI__
#define EACH_TYPE_OF_FIELDS(X)                                                                                         \
    X(q2_k, Q2_K, 4, 4, 0, 4)                                                                                          \
    X(q3_k, Q3_K, 4, 4, 4, 0)                                                                                          \
    X(tq1_0, TQ1_0, 8, 8, 1, 0)                                                                                        \
    X(tq2_0, TQ2_0, 8, 8, 1, 0)
#define EACH_TYPE_OF_NIBBLES(X)                                                                                        \
    X(q4_k, Q4_K, 4, 8, 0, 8)                                                                                          \
    X(q5_k, Q5_K, 8, 8, 0, 8)                                                                                          \
    X(q6_k, Q6_K, 4, 4, 32, 0)                                                                                         \
    X(iq4_xs, IQ4_XS, 8, 8, 128, 0)
#define EACH_TYPE_32(X)                                                                                                \
    X(q4_0, Q4_0, 8, 0, 8, 0)                                                                                          \
    X(q4_1, Q4_1, 8, 0, 0, 8)                                                                                          \
    X(q5_0, Q5_0, 8, 0, 16, 0)                                                                                         \
    X(q5_1, Q5_1, 8, 0, 0, 8)                                                                                          \
    X(q8_0, Q8_0, 8, 0, 128, 0)                                                                                        \
    X(iq4_nl, IQ4_NL, 8, 0, 128, 0)                                                                                    \
    X(mxfp4, MXFP4, 8, 0, 12, 0)
#else
#define EACH_TYPE_OF_FIELDS(X)                                                                                         \
    X(q2_k, Q2_K, 4, 4, 0, 4)                                                                                          \
    X(q3_k, Q3_K, 4, 4, 4, 0)                                                                                          \
    X(tq1_0, TQ1_0, 8, 8, 1, 0)                                                                                        \
    X(tq2_0, TQ2_0, 8, 8, 1, 0)
#define EACH_TYPE_OF_NIBBLES(X)                                                                                        \
    X(q4_k, Q4_K, 8, 8, 0, 8)                                                                                          \
    X(q5_k, Q5_K, 4, 8, 0, 8)                                                                                          \
    X(q6_k, Q6_K, 4, 4, 32, 0)                                                                                         \
    X(iq4_xs, IQ4_XS, 0, 8, 0, 0)
#define EACH_TYPE_32(X)                                                                                                \
    X(q4_0, Q4_0, 8, 0, 8, 0)                                                                                          \
    X(q4_1, Q4_1, 8, 0, 0, 8)                                                                                          \
    X(q5_0, Q5_0, 8, 0, 16, 0)                                                                                         \
    X(q5_1, Q5_1, 4, 0, 0, 8)                                                                                          \
    X(q8_0, Q8_0, 0, 0, 0, 0)                                                                                          \
    X(iq4_nl, IQ4_NL, 0, 0, 0, 0)                                                                                      \
    X(mxfp4, MXFP4, 8, 0, 12, 0)
#endif
#define EACH_TYPE_256(X) EACH_TYPE_OF_FIELDS(X) EACH_TYPE_OF_NIBBLES(X)

// Bytes of a block.
// clang-format off
enum {
    BYTES_Q2_K = 84, BYTES_Q3_K = 110, BYTES_Q4_K = 144, BYTES_Q5_K = 176, BYTES_Q6_K = 210, BYTES_IQ4_XS = 136,
    BYTES_Q4_0 = 18, BYTES_Q4_1 = 20, BYTES_Q5_0 = 22, BYTES_Q5_1 = 24, BYTES_Q8_0 = 34, BYTES_IQ4_NL = 18,
    BYTES_MXFP4 = 17, BYTES_TQ1_0 = 54, BYTES_TQ2_0 = 66,
};
// clang-format on

// The formats as one number each, which the compiler treats as a constant from its first pass on.
#define FORMAT(name, NAME, run, scaled, offset, mins)                                                                  \
    FORMAT_##NAME = (run) | (scaled) << 4 | (mins) << 8 | (offset) << 16,
enum { EACH_TYPE_256(FORMAT) EACH_TYPE_32(FORMAT) };

INLINE struct type_format format_of(int number)
{
    return (struct type_format){
        .run = number & 15, .scaled = number >> 4 & 15, .mins = number >> 8 & 15, .offset = number >> 16};
}

// FOUR(i, statements) expands the statements for i = 0 .. 3, EACH_IN_PLACE for IN_PLACE_MAX columns, the most that
// are multiplied in place; i is an enum constant. The compiler unrolls loops only after it has decided which arrays
// stay in registers, so with loops a sink would be kept in memory. With AddressSanitizer, eight columns take minutes
// to compile.
// clang-format off
#define WITH(i, value, ...) { enum { i = value }; __VA_ARGS__; }
#define TWO(i, ...) WITH(i, 0, __VA_ARGS__) WITH(i, 1, __VA_ARGS__)
#define FOUR(i, ...) do { TWO(i, __VA_ARGS__) WITH(i, 2, __VA_ARGS__) WITH(i, 3, __VA_ARGS__) } while (0)
#ifdef __SANITIZE_ADDRESS__
enum { IN_PLACE_MAX = 2 };
#define EACH_IN_PLACE(i, ...) do { TWO(i, __VA_ARGS__) } while (0)
#else
enum { IN_PLACE_MAX = 8 };
#define EACH_IN_PLACE(i, ...) do { TWO(i, __VA_ARGS__) WITH(i, 2, __VA_ARGS__) WITH(i, 3, __VA_ARGS__) \
                                   WITH(i, 4, __VA_ARGS__) WITH(i, 5, __VA_ARGS__) WITH(i, 6, __VA_ARGS__) \
                                   WITH(i, 7, __VA_ARGS__) } while (0)
#endif
// clang-format on

// Takes the unpacked words of eight rows' blocks, each a block of 256 or of 32: stores them in a panel, or adds up
// their products (times the scales) with up to IN_PLACE_MAX columns, one lane per row. Words are counted from the
// start of the block.
struct sink {
    struct panel *p; // where the block is unpacked to; its scales are those of the products
    // If words are stored:
    bool stores;
    __m256i *words; // where word 0 goes
    // If they are multiplied:
    int n; // columns, a compile-time constant
    const struct packed_column *columns;
    int word;                             // index of word 0 in the columns' span
    __m256i acc[WORDS / 4][IN_PLACE_MAX]; // sums of each run
    __m256i sum[IN_PLACE_MAX];
};

// Adds a word's products with column j. Signed weights (run is 0) are made unsigned: their signs move to the
// activations.
INLINE void multiply_column(struct sink *s, int format, int word, int j, __m256i w, __m256i scale)
{
    const int run = format & 15;
    const struct packed_column *c = &s->columns[j];
    const __m256i q = broadcast_32(c->q + 4 * (s->word + word));
    const __m256i factor = factor_of_run(scale, &c->c.steps[(s->word + word) / 8], format_of(format));
    if (!run) {
        add_run(&s->sum[j], _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)), factor,
                format_of(format));
        return;
    }
    __m256i *acc = &s->acc[word / run][j];
    if (word % run == 0)
        *acc = start_of_run(&c->c, (s->word + word) / run, format_of(format));
    add_products(acc, w, q);
    if (word % run == run - 1)
        add_run(&s->sum[j], *acc, factor, format_of(format));
}

// Adds a word's products with all columns.
INLINE void multiply(struct sink *s, int format, int word, __m256i w)
{
    const int scaled = format >> 4 & 15;
    const __m256i scale = s->p->scale[scaled ? word / MAX(scaled, 1) : 0];
    EACH_IN_PLACE(j, if (j < s->n) multiply_column(s, format, word, j, w, scale));
}

// Gives a word to the sink. The words of a run are given in order.
INLINE void put(struct sink *s, int format, int word, __m256i w)
{
    if (s->stores)
        s->words[word] = w;
    else
        multiply(s, format, word, w);
}

// ---- loads of eight rows

// Lane r of t[j] is word j of the 16 bytes at `at` in row r.
INLINE void load_words(struct rows8 *rows, size_t at, __m256i t[4])
{
    prefetch_ahead(rows);
    __m256i v[4];
    FOUR(i, v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(rows->at[i] + at)),
                                           load_128(rows->at[4 + i] + at), 1));
    transpose_words(v, t);
}

INLINE int word_at(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return word;
}

// The word at byte `at` of each row.
INLINE __m256i load_word(const struct rows8 *rows, size_t at)
{
    return _mm256_setr_epi32(word_at(rows->at[0] + at), word_at(rows->at[1] + at), word_at(rows->at[2] + at),
                             word_at(rows->at[3] + at), word_at(rows->at[4] + at), word_at(rows->at[5] + at),
                             word_at(rows->at[6] + at), word_at(rows->at[7] + at));
}

INLINE short half_at(const uint8_t *p)
{
    int16_t half;
    memcpy(&half, p, 2);
    return half;
}

// The two bytes at `at` of each row.
INLINE __m128i halves_at(const struct rows8 *rows, size_t at)
{
    return _mm_setr_epi16(half_at(rows->at[0] + at), half_at(rows->at[1] + at), half_at(rows->at[2] + at),
                          half_at(rows->at[3] + at), half_at(rows->at[4] + at), half_at(rows->at[5] + at),
                          half_at(rows->at[6] + at), half_at(rows->at[7] + at));
}

// The float16 at byte `at` of each row.
INLINE __m256 load_halves(const struct rows8 *rows, size_t at)
{
    return _mm256_cvtph_ps(halves_at(rows, at));
}

// The two bytes at `at` of each row, which begin a block of at least 16 bytes. Row r is loaded from 2 r bytes before
// them, so that they are in its lane, and blended in. The first block of a row has no bytes before it, so there they
// are loaded one by one.
#define LANE(v, r) _mm_blend_epi16(v, load_128(rows->at[r] + at - 2 * (r)), 1 << (r))
INLINE __m128i load_heads(const struct rows8 *rows, size_t at)
{
    if (at < 14)
        return halves_at(rows, at);
    __m128i v = load_128(rows->at[0] + at);
    v = LANE(v, 1), v = LANE(v, 2), v = LANE(v, 3), v = LANE(v, 4), v = LANE(v, 5), v = LANE(v, 6);
    return LANE(v, 7);
}

// The lower and the upper halves of the words, which are float16.
INLINE void split_halves(__m256i words, __m256 *low, __m256 *high)
{
    __m256i both =
        _mm256_packus_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(words, 16));
    both = _mm256_permute4x64_epi64(both, 0xd8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1));
}

// ---- bits and bytes

// Shifts each byte to the right, or to the left if `right` is negative, and keeps the bits of `mask`.
INLINE __m256i field(__m256i v, int right, int mask)
{
    __m256i moved = right > 0 ? _mm256_srli_epi16(v, right) : right < 0 ? _mm256_slli_epi16(v, -right) : v;
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

INLINE __m256i either(__m256i a, __m256i b)
{
    return _mm256_or_si256(a, b);
}

// Byte i of each result word is the byte of that word whose index is byte i of `picks`, or 0 where that is 0x80.
INLINE __m256i pick_bytes(__m256i words, int picks)
{
    const __m256i base =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(words, _mm256_add_epi8(base, _mm256_set1_epi32(picks)));
}

// Bytes a and b of each word, as two unsigned int16.
INLINE __m256i pair(__m256i words, int a, int b)
{
    return pick_bytes(words, (int)(0x80008000u | (unsigned)b << 16 | (unsigned)a));
}

// Byte a of each word, unsigned or signed, in the form that panels have scales in.
INLINE __m256i scale_of(__m256i words, int a)
{
#ifdef __AVXVNNI__
    return _mm256_srli_epi32(_mm256_slli_epi32(words, 24 - 8 * a), 24);
#else
    return pair(words, a, a);
#endif
}

INLINE __m256i signed_scale_of(__m256i words, int a)
{
#ifdef __AVXVNNI__
    return _mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * a), 24);
#else
    return _mm256_srai_epi16(pick_bytes(words, (int)(0x00800080u | (unsigned)a << 24 | (unsigned)a << 8)), 8);
#endif
}

// The values plus the offset, as a table for vpshufb.
INLINE __m256i table_of(const int8_t *values, int offset)
{
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(load_128(values)), _mm256_set1_epi8((char)offset));
}

// The low nibbles are the words from `word` on, the high nibbles those `apart` words further.
INLINE void put_nibbles(struct sink *s, int format, int word, int apart, const __m256i t[4])
{
    FOUR(i, put(s, format, word + i, field(t[i], 0, 15)));
    FOUR(i, put(s, format, word + apart + i, field(t[i], 4, 15)));
}

// The values of nibbles. The low nibbles are 16 elements, the high nibbles the next 16.
INLINE void put_values(struct sink *s, int format, int word, __m256i values, const __m256i t[4])
{
    FOUR(i, put(s, format, word + i, _mm256_shuffle_epi8(values, field(t[i], 0, 15))));
    FOUR(i, put(s, format, word + 4 + i, _mm256_shuffle_epi8(values, field(t[i], 4, 15))));
}

// ---- blocks of 256: each unpacks the block at the start of `rows`, its header to p and its words to s

INLINE void unpack_q2_k(struct rows8 *rows, struct panel *p, struct sink *s)
{
    __m256i t[4];
    load_words(rows, 68, t);
    split_halves(t[3], &p->d[0], &p->m[0]);
    load_words(rows, 0, t);
    FOUR(j, FOUR(i, p->scale[4 * j + i] = scale_of(field(t[j], 0, 15), i)));
    FOUR(j, p->min[2 * j] = pair(field(t[j], 4, 15), 0, 1); p->min[2 * j + 1] = pair(field(t[j], 4, 15), 2, 3));
    FOUR(j, { // 16 bytes hold four times 16 elements, which are 32 apart
        load_words(rows, 16 + 16 * j, t);
        FOUR(g, FOUR(i, put(s, FORMAT_Q2_K, j / 2 * 32 + j % 2 * 4 + 8 * g + i, field(t[i], 2 * g, 3))));
    });
}

// The twelve bytes of 16 signed scales: their low nibbles, then their upper two bits.
INLINE void unpack_q3_scales(const __m256i t[3], struct panel *p)
{
    const __m256i offset = _mm256_set1_epi8(32);
    __m256i four[4] = {
        either(field(t[0], 0, 15), field(t[2], -4, 0x30)), either(field(t[1], 0, 15), field(t[2], -2, 0x30)),
        either(field(t[0], 4, 15), field(t[2], 0, 0x30)), either(field(t[1], 4, 15), field(t[2], 2, 0x30))};
    FOUR(j, FOUR(i, p->scale[4 * j + i] = signed_scale_of(_mm256_sub_epi8(four[j], offset), i)));
}

INLINE void unpack_q3_k(struct rows8 *rows, struct panel *p, struct sink *s)
{
    __m256i t[4], high[2][4];
    load_words(rows, 92, t);
    unpack_q3_scales(t + 1, p);
    p->d[0] = load_halves(rows, 108);
    load_words(rows, 0, high[0]);
    load_words(rows, 16, high[1]);
    FOUR(j, {
        load_words(rows, 32 + 16 * j, t);
        FOUR(g, FOUR(i, put(s, FORMAT_Q3_K, j / 2 * 32 + j % 2 * 4 + 8 * g + i,
                            either(field(t[i], 2 * g, 3), field(high[j % 2][i], j / 2 * 4 + g - 2, 4)))));
    });
}

// The header of Q4_K and Q5_K: d, dmin, and twelve bytes of eight 6-bit scales and minima.
INLINE void unpack_k4_head(struct rows8 *rows, struct panel *p)
{
    __m256i h[4];
    load_words(rows, 0, h);
    split_halves(h[0], &p->d[0], &p->m[0]);
    __m256i scales[2] = {field(h[1], 0, 63), either(field(h[3], 0, 15), field(h[1], 2, 0x30))};
    __m256i mins[2] = {field(h[2], 0, 63), either(field(h[3], 4, 15), field(h[2], 2, 0x30))};
    UNROLL_FOR (int j = 0; j < 8; j++)
        p->scale[j] = scale_of(scales[j / 4], j % 4);
    UNROLL_FOR (int j = 0; j < 4; j++)
        p->min[j] = pair(mins[j / 2], j % 2 * 2, j % 2 * 2 + 1);
}

INLINE void unpack_q4_k(struct rows8 *rows, struct panel *p, struct sink *s)
{
    unpack_k4_head(rows, p);
    FOUR(j, { // 32 bytes: the low nibbles are 32 elements, the high nibbles the next 32
        __m256i t[4];
        load_words(rows, 16 + 32 * j, t);
        put_nibbles(s, FORMAT_Q4_K, 16 * j, 8, t);
        load_words(rows, 32 + 32 * j, t);
        put_nibbles(s, FORMAT_Q4_K, 16 * j + 4, 8, t);
    });
}

// The first or the last 16 of each 32 elements.
INLINE void put_q5_half(struct rows8 *rows, int half, struct sink *s)
{
    __m256i high[4], t[4];
    load_words(rows, (size_t)(16 + 16 * half), high);
    FOUR(j, {
        load_words(rows, (size_t)(48 + 32 * j + 16 * half), t);
        FOUR(i, put(s, FORMAT_Q5_K, 16 * j + 4 * half + i, either(field(t[i], 0, 15), field(high[i], 2 * j - 4, 16))));
        FOUR(i,
             put(s, FORMAT_Q5_K, 16 * j + 4 * half + 8 + i, either(field(t[i], 4, 15), field(high[i], 2 * j - 3, 16))));
    });
}

INLINE void unpack_q5_k(struct rows8 *rows, struct panel *p, struct sink *s)
{
    unpack_k4_head(rows, p);
    put_q5_half(rows, 0, s);
    put_q5_half(rows, 1, s);
}

// The signed scales and d.
INLINE void unpack_q6_head(struct rows8 *rows, struct panel *p)
{
    __m256i h[4];
    load_words(rows, 192, h);
    FOUR(j, FOUR(i, p->scale[4 * j + i] = signed_scale_of(h[j], i)));
    p->d[0] = load_halves(rows, 208);
}

INLINE void unpack_q6_k(struct rows8 *rows, struct panel *p, struct sink *s)
{
    __m256i q[4], h[4];
    unpack_q6_head(rows, p);
    FOUR(j, { // 16 elements of each 32 of a half of the block
        const size_t half = j / 2, at = j % 2 * 16;
        const int word = j / 2 * 32 + j % 2 * 4;
        load_words(rows, 128 + 32 * half + at, h);
        load_words(rows, 64 * half + at, q);
        FOUR(i, put(s, FORMAT_Q6_K, word + i, either(field(q[i], 0, 15), field(h[i], -4, 0x30))));
        FOUR(i, put(s, FORMAT_Q6_K, word + 16 + i, either(field(q[i], 4, 15), field(h[i], 0, 0x30))));
        load_words(rows, 64 * half + 32 + at, q);
        FOUR(i, put(s, FORMAT_Q6_K, word + 8 + i, either(field(q[i], 0, 15), field(h[i], -2, 0x30))));
        FOUR(i, put(s, FORMAT_Q6_K, word + 24 + i, either(field(q[i], 4, 15), field(h[i], 2, 0x30))));
    });
}

// Signed scale j of eight. Its low nibble is in the word `low`, its upper two bits in the upper half of the word
// `high`, whose lower half is d.
INLINE __m256i iq4_scale(__m256i high, __m256i low, int j)
{
    __m256i l = _mm256_and_si256(_mm256_srli_epi32(low, 4 * j), _mm256_set1_epi32(15));
    __m256i h = _mm256_and_si256(_mm256_srli_epi32(high, 12 + 2 * j), _mm256_set1_epi32(0x30));
    return _mm256_sub_epi32(either(l, h), _mm256_set1_epi32(32));
}

INLINE void unpack_iq4_scales(__m256i high, __m256i low, struct panel *p)
{
    UNROLL_FOR (int j = 0; j < 8; j++)
        p->scale[j] = signed_scale_of(iq4_scale(high, low, j), 0);
}

INLINE void unpack_iq4_xs(struct rows8 *rows, struct panel *p, struct sink *s)
{
    const __m256i values = table_of(iq4_values, FORMAT_IQ4_XS >> 16);
    __m256i t[4];
    load_words(rows, 0, t);
    split_halves(t[0], &p->d[0], &p->m[0]);
    unpack_iq4_scales(t[0], t[1], p);
    FOUR(j, {
        load_words(rows, 8 + 32 * j, t);
        put_values(s, FORMAT_IQ4_XS, 16 * j, values, t);
        load_words(rows, 24 + 32 * j, t);
        put_values(s, FORMAT_IQ4_XS, 16 * j + 8, values, t);
    });
}

// ---- blocks of 256 with the values -1, 0 and 1, plus the offset 1

// They have no scales but d.
INLINE void put_ones(struct panel *p)
{
#ifdef __AVXVNNI__
    const __m256i one = _mm256_set1_epi32(1);
#else
    const __m256i one = _mm256_set1_epi16(1);
#endif
    UNROLL_FOR (int j = 0; j < 8; j++)
        p->scale[j] = one;
}

INLINE void unpack_tq2_0(struct rows8 *rows, struct panel *p, struct sink *s)
{
    put_ones(p);
    p->d[0] = load_halves(rows, 64);
    FOUR(j, { // 16 bytes hold four times 16 elements, which are 32 apart
        __m256i t[4];
        load_words(rows, 16 * j, t);
        FOUR(g, FOUR(i, put(s, FORMAT_TQ2_0, j / 2 * 32 + j % 2 * 4 + 8 * g + i, field(t[i], 2 * g, 3))));
    });
}

// The first digit in base 3 of each byte, as a fraction of 256: the carry of its product with 3.
INLINE __m256i digit(__m256i v)
{
    const __m256i one = _mm256_set1_epi8(1);
    return _mm256_add_epi8(_mm256_min_epu8(_mm256_subs_epu8(v, _mm256_set1_epi8(85)), one),
                           _mm256_min_epu8(_mm256_subs_epu8(v, _mm256_set1_epi8((char)170)), one));
}

// The product with 3 without its carry: what is left after the first digit.
INLINE __m256i next_digit(__m256i v)
{
    return _mm256_add_epi8(_mm256_add_epi8(v, v), v);
}

// The five digits of 16 bytes; each digit's words are `apart` words after those of the digit before.
INLINE void put_digits(struct rows8 *rows, size_t at, int word, int apart, struct sink *s)
{
    __m256i t[4];
    load_words(rows, at, t);
    FOUR(k, FOUR(i, put(s, FORMAT_TQ1_0, word + apart * k + i, digit(t[i])); t[i] = next_digit(t[i])));
    FOUR(i, put(s, FORMAT_TQ1_0, word + 4 * apart + i, digit(t[i])));
}

INLINE void unpack_tq1_0(struct rows8 *rows, struct panel *p, struct sink *s)
{
    put_ones(p);
    p->d[0] = load_halves(rows, 52);
    put_digits(rows, 0, 0, 8, s);
    put_digits(rows, 16, 4, 8, s);
    put_digits(rows, 32, 40, 4, s);
    __m256i last = load_word(rows, 48);
    FOUR(k, put(s, FORMAT_TQ1_0, 60 + k, digit(last)); last = next_digit(last));
}

// ---- blocks of 32: each unpacks the block at byte `at` of `rows`, its factors to d and m, and words 0 to 7 to s. Of
// 16 bytes of nibbles, the low nibbles are elements 0-15.

INLINE void put_block_nibbles(struct rows8 *rows, size_t at, struct sink *s, int format)
{
    __m256i t[4];
    load_words(rows, at, t);
    put_nibbles(s, format, 0, 4, t);
}

// The fifth bits of the four elements of word i, as bit 4 of its bytes. The fifth bits of 32 elements are a word of a
// row.
INLINE __m256i fifth_bits(__m256i bits, int i)
{
    const __m256i base =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    __m256i byte = _mm256_shuffle_epi8(bits, _mm256_add_epi8(base, _mm256_set1_epi8((char)(i / 2))));
    __m256i own = _mm256_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(byte, own), own), _mm256_set1_epi8(16));
}

INLINE void put_block_fifth(struct rows8 *rows, size_t at, __m256i bits, struct sink *s, int format)
{
    __m256i t[4];
    load_words(rows, at, t);
    FOUR(i, put(s, format, i, either(field(t[i], 0, 15), fifth_bits(bits, i))));
    FOUR(i, put(s, format, 4 + i, either(field(t[i], 4, 15), fifth_bits(bits, 4 + i))));
}

INLINE void put_block_values(struct rows8 *rows, size_t at, __m256i values, struct sink *s, int format)
{
    __m256i t[4];
    load_words(rows, at, t);
    put_values(s, format, 0, values, t);
}

// 2^(e - 128), where e is the byte at `at`; for e < 2 the result is subnormal.
INLINE __m256 load_powers(const struct rows8 *rows, size_t at)
{
    __m256i e = _mm256_cvtepu16_epi32(_mm_and_si128(load_heads(rows, at), _mm_set1_epi16(255)));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

INLINE void unpack_q4_0(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    put_block_nibbles(rows, at + 2, s, FORMAT_Q4_0);
}

INLINE void unpack_q4_1(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    split_halves(load_word(rows, at), d, m);
    put_block_nibbles(rows, at + 4, s, FORMAT_Q4_1);
}

INLINE void unpack_q5_0(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    put_block_fifth(rows, at + 6, load_word(rows, at + 2), s, FORMAT_Q5_0);
}

INLINE void unpack_q5_1(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    split_halves(load_word(rows, at), d, m);
    put_block_fifth(rows, at + 8, load_word(rows, at + 4), s, FORMAT_Q5_1);
}

INLINE void unpack_q8_0(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    const __m256i offset = _mm256_set1_epi8((char)(FORMAT_Q8_0 >> 16));
    __m256i t[4];
    load_words(rows, at + 2, t);
    FOUR(i, put(s, FORMAT_Q8_0, i, _mm256_add_epi8(t[i], offset)));
    load_words(rows, at + 18, t);
    FOUR(i, put(s, FORMAT_Q8_0, 4 + i, _mm256_add_epi8(t[i], offset)));
}

INLINE void unpack_iq4_nl(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    put_block_values(rows, at + 2, table_of(iq4_values, FORMAT_IQ4_NL >> 16), s, FORMAT_IQ4_NL);
}

INLINE void unpack_mxfp4(struct rows8 *rows, size_t at, __m256 *d, __m256 *m, struct sink *s)
{
    (void)m;
    *d = load_powers(rows, at);
    put_block_values(rows, at + 1, table_of(fp4_values, FORMAT_MXFP4 >> 16), s, FORMAT_MXFP4);
}

#endif
