// One column by types with blocks of 256 and nibbles: rows beside each other (avx2/one_column.h). AVX2 alone.
//
// The naive loop (matmul_q8_scalar.c): of each block isum = sum of scale[j] * (w . q)[j], less the minima's, then a step of the
// float chain. Headers and scales are turned as elsewhere, so that a lane is a row; the products of a sub-block come to the same
// order only when 16 bits hold no more of them.
#include "kernels/cpu/avx2/one_column.h"

// Sums of 16 bits, of four products: 32 weights, 16 of each of two rows in a and the next 16 in b.
INLINE __m256i multiply_32(__m256i a, __m256i b, const int8_t *q)
{
    return _mm256_add_epi16(_mm256_maddubs_epi16(a, both_halves(q)), _mm256_maddubs_epi16(b, both_halves(q + 16)));
}

// ---- the sums of integers of a block of each type; lane r of what comes back is row r. FOUR's numbers are i of two_rows.

// Sixteen products with weights of 15 fit 16 bits.
INLINE __m256i sums_q4_k(struct rows8 *g, struct panel *p, const struct placed_column *c)
{
    __m256i sum = _mm256_setzero_si256();
    unpack_k4_head(g, p);
    FOUR(j, { // 32 bytes: 32 elements, and the next 32
        __m256i low[4], high[4];
        FOUR(i, {
            const __m256i a = two_rows(g, i, 16 + 32 * j), b = two_rows(g, i, 32 + 32 * j);
            low[i] = multiply_32(field(a, 0, 15), field(b, 0, 15), c->q + 64 * j);
            high[i] = multiply_32(field(a, 4, 15), field(b, 4, 15), c->q + 64 * j + 32);
        });
        add_32(&sum, _mm256_madd_epi16(join_16(low), p->scale[2 * j]));
        add_32(&sum, _mm256_madd_epi16(join_16(high), p->scale[2 * j + 1]));
    });
    return sum;
}

// Eight products with weights of 31 do: shared registers are scaled, and come together at the end of the block.
struct shared {
    __m256i a, b;
};

INLINE void add_scaled(struct shared *s, const __m256i t[4], __m256i scale)
{
    add_32(&s->a, _mm256_madd_epi16(share_16(t[0], t[1]), _mm256_unpacklo_epi32(scale, scale)));
    add_32(&s->b, _mm256_madd_epi16(share_16(t[2], t[3]), _mm256_unpackhi_epi32(scale, scale)));
}

// Nibbles from bit `right` on, and fifth bits from bit `bit` on.
INLINE __m256i five_bits(__m256i nibbles, int right, __m256i bits, int bit)
{
    return either(field(nibbles, right, 15), field(bits, bit - 4, 16));
}

INLINE __m256i sums_q5_k(struct rows8 *g, struct panel *p, const struct placed_column *c)
{
    struct shared sum = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i x[4], y[4]; // fifth bits of the first 16 elements of all sub-blocks, and of the others
    unpack_k4_head(g, p);
    FOUR(i, x[i] = two_rows(g, i, 16); y[i] = two_rows(g, i, 32));
    FOUR(j, {
        __m256i low[4], high[4];
        FOUR(i, {
            const __m256i a = two_rows(g, i, 48 + 32 * j), b = two_rows(g, i, 64 + 32 * j);
            low[i] = multiply_32(five_bits(a, 0, x[i], 2 * j), five_bits(b, 0, y[i], 2 * j), c->q + 64 * j);
            high[i] =
                multiply_32(five_bits(a, 4, x[i], 2 * j + 1), five_bits(b, 4, y[i], 2 * j + 1), c->q + 64 * j + 32);
        });
        add_scaled(&sum, low, p->scale[2 * j]);
        add_scaled(&sum, high, p->scale[2 * j + 1]);
    });
    return join_shared_32(sum.a, sum.b);
}

// Sixteen elements at `at` of the column, with the upper two bits from bit `bit` on.
INLINE __m256i six_bits(__m256i nibbles, int right, __m256i bits, int bit, const int8_t *q)
{
    return _mm256_maddubs_epi16(either(field(nibbles, right, 15), field(bits, bit - 4, 0x30)), both_halves(q));
}

// Eight products with weights of 63 do not fit 16 bits, but with the offset taken off they do, so that what is carried away
// before is not missed.
INLINE __m256i scale_sixteen(const __m256i t[4], const struct panel *p, const struct placed_column *c, int sub_block)
{
    return _mm256_madd_epi16(_mm256_add_epi16(join_16(t), broadcast_32(&c->c.start[sub_block])), p->scale[sub_block]);
}

INLINE __m256i sums_q6_k(struct rows8 *g, struct panel *p, const struct placed_column *c)
{
    __m256i sum = _mm256_setzero_si256();
    unpack_q6_head(g, p);
    FOUR(j, { // 16 elements of each 32 of a half
        enum { HALF = j / 2, AT = j % 2 * 16, FIRST = 8 * HALF + j % 2 };
        const int8_t *q = c->q + 128 * HALF + AT;
        __m256i t[4], u[4], v[4], w[4];
        FOUR(i, {
            const __m256i a = two_rows(g, i, 64 * HALF + AT), b = two_rows(g, i, 64 * HALF + 32 + AT);
            const __m256i bits = two_rows(g, i, 128 + 32 * HALF + AT);
            t[i] = six_bits(a, 0, bits, 0, q), u[i] = six_bits(b, 0, bits, 2, q + 32);
            v[i] = six_bits(a, 4, bits, 4, q + 64), w[i] = six_bits(b, 4, bits, 6, q + 96);
        });
        add_32(&sum, scale_sixteen(t, p, c, FIRST));
        add_32(&sum, scale_sixteen(u, p, c, FIRST + 2));
        add_32(&sum, scale_sixteen(v, p, c, FIRST + 4));
        add_32(&sum, scale_sixteen(w, p, c, FIRST + 6));
    });
    return sum;
}

// Sub-blocks are multiplied like blocks of IQ4_NL; each has a scale, an integer a row.
INLINE __m256i sums_iq4_xs(struct rows8 *g, struct panel *p, const struct placed_column *c)
{
    const __m256i values = table_of(iq4_values, 0);
    __m256i head[4], sum = _mm256_setzero_si256();
    load_words(g, 0, head);
    split_halves(head[0], &p->d[0], &p->m[0]);
    UNROLL_FOR (int j = 0; j < 8; j++) {
        const __m256i products = multiply_signed_values(g, 8 + 16 * (size_t)j, c->q + 32 * j, values);
        add_32(&sum, _mm256_mullo_epi32(products, iq4_scale(head[0], head[1], j)));
    }
    return sum;
}

// ---- a group of eight rows: their blocks from `at` of the first group's rows on

#define BESIDE_256(name, NAME, ...)                                                                                    \
    INLINE __m256 multiply_group_##name(const struct place *l, const struct rows8 *first, size_t at)                   \
    {                                                                                                                  \
        struct rows8 g = rows_moved(first, at);                                                                        \
        const struct placed_column *c = l->columns;                                                                    \
        __m256 chain = _mm256_setzero_ps();                                                                            \
        g.fetches = false;                                                                                             \
        for (int64_t i = 0; i < l->spans; i++, c++, advance(&g, BYTES_##NAME)) {                                       \
            struct panel p;                                                                                            \
            if (l->asks)                                                                                               \
                ask_streams(&g, 0, BYTES_##NAME);                                                                      \
            if (DT_##NAME == DT_Q6_K)                                                                                  \
                bring_next(&g, BYTES_##NAME);                                                                          \
            const __m256i sum = sums_##name(&g, &p, c);                                                                \
            chain = finish_256(sum, &p, form_of(FORM_##NAME), &c->c, chain);                                           \
        }                                                                                                              \
        return chain;                                                                                                  \
    }                                                                                                                  \
    BESIDE(name)
EACH_TYPE_OF_NIBBLES(BESIDE_256)
