// One column by types with blocks of 32: rows beside each other (avx2/one_column.h). AVX2 alone.
#include "kernels/cpu/avx2/one_column.h"

// Of each row eight sums of 16 bits, of four products each with weights of at most `most`: 16 bits hold eight products, and
// sixteen of the smallest weights.
INLINE __m256i join_products(const __m256i t[4], int most)
{
    const __m256i a = share_16(t[0], t[1]), b = share_16(t[2], t[3]);
    if (most * 127 * 16 <= INT16_MAX)
        return add_pairs(join_shared_16(a, b));
    return join_shared_32(add_pairs(a), add_pairs(b));
}

// ---- the products of a block whose quants begin at `at`, of the types' own kinds. Of 16 bytes of nibbles the low ones are
// elements 0-15.

INLINE __m256i multiply_nibbles(const struct rows8 *rows, size_t at, const int8_t *q)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at);
        t[i] =
            _mm256_add_epi16(_mm256_maddubs_epi16(field(v, 0, 15), low), _mm256_maddubs_epi16(field(v, 4, 15), high));
    });
    return join_products(t, 15);
}

// What nibbles stand for, not negative and at most `most`.
INLINE __m256i multiply_values(const struct rows8 *rows, size_t at, const int8_t *q, __m256i values, int most)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at);
        t[i] = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_shuffle_epi8(values, field(v, 0, 15)), low),
                                _mm256_maddubs_epi16(_mm256_shuffle_epi8(values, field(v, 4, 15)), high));
    });
    return join_products(t, most);
}

// A row's bytes fill a register. Weights may be -128, whose negative is no byte; so where q is negative its size meets -1 - w:
// q * w = |q| * (-1 - w) + |q|. What is missing, |q| of the negative ones, is the column's own: a negative excess (put_excess).
INLINE __m256i multiply_row(const struct rows8 *rows, int r, size_t at, __m256i sizes, __m256i negative)
{
    return add_pairs(_mm256_maddubs_epi16(sizes, _mm256_xor_si256(negative, load_256(rows->at[r] + at))));
}

INLINE __m256i multiply_bytes(const struct rows8 *rows, size_t at, const int8_t *q)
{
    const __m256i column = load_256(q), sizes = _mm256_abs_epi8(column);
    const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), column);
    __m256i t[4];
    FOUR(i, {
        __m256i a = multiply_row(rows, i, at, sizes, negative), b = multiply_row(rows, 4 + i, at, sizes, negative);
        t[i] = _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
    });
    return join_32(t);
}

// Fifth bits: of elements 0-15 and of 16-31 of a row, a bit an element in the first four bytes of its half of `bits`, bit 4 of a
// byte each.
INLINE __m256i fifth_bits_of(__m256i bits, int half)
{
    const __m256i own = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    __m256i spread = _mm256_shuffle_epi8(bits, _mm256_add_epi8(bytes, _mm256_set1_epi8((char)(2 * half))));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own), _mm256_set1_epi8(16));
}

// The bits lie right before the quants.
INLINE __m256i multiply_fives(const struct rows8 *rows, size_t at, const int8_t *q)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at), bits = two_rows(rows, i, at - 4);
        __m256i a = either(field(v, 0, 15), fifth_bits_of(bits, 0)),
                b = either(field(v, 4, 15), fifth_bits_of(bits, 1));
        t[i] = _mm256_add_epi16(_mm256_maddubs_epi16(a, low), _mm256_maddubs_epi16(b, high));
    });
    return join_products(t, 31);
}

// ---- the types: sums of a block at `at`, and its factors

INLINE __m256i sums_q4_0(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_nibbles(rows, at + 2, q);
}

INLINE __m256i sums_q4_1(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    split_halves(load_word(rows, at), d, m);
    return multiply_nibbles(rows, at + 4, q);
}

INLINE __m256i sums_q5_0(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_fives(rows, at + 6, q);
}

INLINE __m256i sums_q5_1(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    split_halves(load_word(rows, at), d, m);
    return multiply_fives(rows, at + 8, q);
}

INLINE __m256i sums_q8_0(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_bytes(rows, at + 2, q);
}

INLINE __m256i sums_iq4_nl(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_signed_values(rows, at + 2, q, table_of(iq4_values, 0));
}

INLINE __m256i sums_mxfp4(struct rows8 *rows, size_t at, const int8_t *q, __m256 *d, __m256 *m)
{
    (void)m;
    *d = load_powers(rows, at);
    return multiply_values(rows, at + 1, q, table_of(fp4_values, FORM_MXFP4 >> 16), 2 * (FORM_MXFP4 >> 16));
}

// ---- a group of eight rows: their blocks from `at` of the first group's rows on

#define BESIDE_32(name, NAME, ...)                                                                                     \
    INLINE __m256 multiply_group_##name(const struct place *l, const struct rows8 *first, size_t at)                   \
    {                                                                                                                  \
        struct rows8 g = *first;                                                                                       \
        const struct placed_column *c = l->columns;                                                                    \
        __m256 chain = _mm256_setzero_ps();                                                                            \
        for (int64_t i = 0; i < l->spans; i++, c++) {                                                                  \
            __m256 v = _mm256_setzero_ps();                                                                            \
            const int blocks = i + 1 < l->spans ? BLOCKS : l->last;                                                    \
            for (int b = 0; b < blocks; b++, at += BYTES_##NAME) {                                                     \
                __m256 d, m;                                                                                           \
                if (l->asks && b % 2 == 0)                                                                             \
                    ask_streams(&g, at, 2 * BYTES_##NAME);                                                             \
                __m256i sums = sums_##name(&g, at, c->q + 32 * b, &d, &m);                                             \
                if (has_excess(DT_##NAME, FORM_##NAME))                                                                \
                    sums = _mm256_sub_epi32(sums, _mm256_set1_epi32(c->excess[b]));                                    \
                v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), d, v);                                                   \
                if (form_of(FORM_##NAME).mins)                                                                         \
                    v = _mm256_fmadd_ps(_mm256_set1_ps(c->c.sums[b]), m, v);                                           \
                __asm__("" : "+r"(at)); /* rows' addresses keep one offset, instead of eight to be moved on */         \
            }                                                                                                          \
            chain = _mm256_fmadd_ps(v, _mm256_set1_ps(c->c.da), chain);                                                \
        }                                                                                                              \
        return chain;                                                                                                  \
    }                                                                                                                  \
    BESIDE(name)
EACH_TYPE_32(BESIDE_32)
