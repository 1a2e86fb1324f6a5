// Matmul of one column by AVX2 of types with blocks of 32 or with nibbles. Rows are interleaved by 16 bytes instead
// of transposed. For AVX2 without AVX-VNNI.
//
// The naive loop, for each row: for each block of 256, isum = sum of scale[j] * (w . q)[j]; S = isum * d, with minima
// less msum * m; D = fma(S, da, D). For eight blocks of 32: S = fma(w . q, d, S) of each, with a minimum then S =
// fma(sum(q), m, S); D = fma(S, da, D). The other kernels transpose the words of eight rows first, so that a lane is
// a row from the first product on (avx2/unpack.h). With one column that is expensive: for 32 weights of eight rows,
// 16 of some 60 operations transpose words, and each word of the column has to be broadcast. Here:
//   - A register has 16 bytes of row i in its lower half and 16 bytes of row 4 + i in its upper half. Both are
//     multiplied with the column's bytes, in the order in which they are stored.
//   - The sums of eight rows are joined to one lane per row before they are scaled: in 16 bits as long as the
//     products of the type's largest weights fit.
//   - Only headers and scales are transposed.
//   - Weights with an offset are multiplied as they are stored, unsigned. What the sums are too large by depends on
//     the column alone (`excess`), and is computed once for all rows.
// All sums are exact integers, so the results have the same bits. With AVX-VNNI, whose products need no widening,
// this was not measured. It does not help types whose bytes hold more than two elements: once transposed, their bytes
// serve all of their sub-blocks. avx2/matmul_q8.c chooses it where matmul_q8_one_column has the type.
#include "kernels/cpu/avx2/in_place.h"

// ---- interleaved rows, and their sums

// 16 bytes at `at` of rows i and 4 + i.
INLINE __m256i two_rows(const struct rows8 *rows, int i, size_t at)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(rows->at[i] + at)), load_128(rows->at[4 + i] + at),
                                   1);
}

// 16 bytes of the column in both halves.
INLINE __m256i both_halves(const int8_t *q)
{
    return _mm256_broadcastsi128_si256(load_128(q));
}

// In each half, two words of a and then two words of b; `picks` is an immediate of vshufps.
#define SHUFFLE(a, b, picks)                                                                                           \
    _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), picks))
enum { CROSSWISE = 0x4e, EVEN = 0x88, ODD = 0xdd };

// Joining sums. Register t[i], i = 0 .. 3, has four words of row i in its lower half and four of row 4 + i in its upper
// half. join_two_* joins two of them to one: in the lower half two words each of rows i and i + 1, in the upper half of
// rows 4 + i and 5 + i. join_four_* joins two of the results: lane r belongs to row r. join_* does both.
INLINE __m256i join_two_16(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_blend_epi32(a, b, 0xcc), SHUFFLE(a, b, CROSSWISE));
}

INLINE __m256i join_two_32(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xcc), SHUFFLE(a, b, CROSSWISE));
}

INLINE __m256i join_four_16(__m256i a, __m256i b)
{
    return _mm256_add_epi16(SHUFFLE(a, b, EVEN), SHUFFLE(a, b, ODD));
}

INLINE __m256i join_four_32(__m256i a, __m256i b)
{
    return _mm256_add_epi32(SHUFFLE(a, b, EVEN), SHUFFLE(a, b, ODD));
}

INLINE __m256i join_16(const __m256i t[4])
{
    return join_four_16(join_two_16(t[0], t[1]), join_two_16(t[2], t[3]));
}

INLINE __m256i join_32(const __m256i t[4])
{
    return join_four_32(join_two_32(t[0], t[1]), join_two_32(t[2], t[3]));
}

// ---- products of 32 weights of eight rows: lane r of the result is the sum of row r. Types with nibbles have 16
// bytes, whose low nibbles are elements 0-15.

// The values of the nibbles at `at`, which have either sign and are not -128. The column's signs are moved to them.
INLINE __m256i multiply_signed_values(const struct rows8 *rows, size_t at, const int8_t *q, __m256i values,
                                      __m256i step)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    const __m256i low_magnitude = _mm256_abs_epi8(low), high_magnitude = _mm256_abs_epi8(high);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at);
        __m256i a = _mm256_sign_epi8(_mm256_shuffle_epi8(values, field(v, 0, 15)), low);
        __m256i b = _mm256_sign_epi8(_mm256_shuffle_epi8(values, field(v, 4, 15)), high);
        t[i] = _mm256_add_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(low_magnitude, a), step),
                                _mm256_madd_epi16(_mm256_maddubs_epi16(high_magnitude, b), step));
    });
    return join_32(t);
}

// Joins sums of 16 bits, of four products each with weights of at most `most`, and multiplies them by the step. 16 bits
// hold the sum of eight products of every type that uses this, and of sixteen with small weights.
INLINE __m256i join_products(const __m256i t[4], int most, __m256i step)
{
    const __m256i a = join_two_16(t[0], t[1]), b = join_two_16(t[2], t[3]);
    if (most * 127 * 16 <= INT16_MAX)
        return _mm256_madd_epi16(join_four_16(a, b), step);
    return join_four_32(_mm256_madd_epi16(a, step), _mm256_madd_epi16(b, step));
}

INLINE __m256i multiply_nibbles(const struct rows8 *rows, size_t at, const int8_t *q, __m256i step)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at);
        t[i] =
            _mm256_add_epi16(_mm256_maddubs_epi16(field(v, 0, 15), low), _mm256_maddubs_epi16(field(v, 4, 15), high));
    });
    return join_products(t, 15, step);
}

// The values of nibbles, which are not negative and at most `most`.
INLINE __m256i multiply_values(const struct rows8 *rows, size_t at, const int8_t *q, __m256i values, int most,
                               __m256i step)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at);
        t[i] = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_shuffle_epi8(values, field(v, 0, 15)), low),
                                _mm256_maddubs_epi16(_mm256_shuffle_epi8(values, field(v, 4, 15)), high));
    });
    return join_products(t, most, step);
}

// 32 bytes of one row. A weight may be -128, which has no negative in a byte. So where q is negative, its magnitude is
// multiplied by -1 - w, which is ~w: q * w = |q| * (-1 - w) + |q|. The last term depends on the column alone; it is a
// negative excess.
INLINE __m256i multiply_row(const struct rows8 *rows, int r, size_t at, __m256i magnitudes, __m256i negative)
{
    return _mm256_maddubs_epi16(magnitudes, _mm256_xor_si256(negative, load_256(rows->at[r] + at)));
}

INLINE __m256i multiply_bytes(const struct rows8 *rows, size_t at, const int8_t *q, __m256i step)
{
    const __m256i column = load_256(q), magnitudes = _mm256_abs_epi8(column);
    const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), column);
    __m256i t[4];
    FOUR(i, {
        __m256i a = _mm256_madd_epi16(multiply_row(rows, i, at, magnitudes, negative), step);
        __m256i b = _mm256_madd_epi16(multiply_row(rows, 4 + i, at, magnitudes, negative), step);
        t[i] = _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
    });
    return join_32(t);
}

// The fifth bits of elements 0-15 (half 0) or 16-31 (half 1) of two rows, as bit 4 of a byte each. They are one bit per
// element in the first four bytes of the row's half of `bits`.
INLINE __m256i fifth_bits_of(__m256i bits, int half)
{
    const __m256i own = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    __m256i spread = _mm256_shuffle_epi8(bits, _mm256_add_epi8(bytes, _mm256_set1_epi8((char)(2 * half))));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own), _mm256_set1_epi8(16));
}

// Nibbles with fifth bits, which are stored right before the nibbles.
INLINE __m256i multiply_five_bits(const struct rows8 *rows, size_t at, const int8_t *q, __m256i step)
{
    const __m256i low = both_halves(q), high = both_halves(q + 16);
    __m256i t[4];
    FOUR(i, {
        __m256i v = two_rows(rows, i, at), bits = two_rows(rows, i, at - 4);
        __m256i a = either(field(v, 0, 15), fifth_bits_of(bits, 0)),
                b = either(field(v, 4, 15), fifth_bits_of(bits, 1));
        t[i] = _mm256_add_epi16(_mm256_maddubs_epi16(a, low), _mm256_maddubs_epi16(b, high));
    });
    return join_products(t, 31, step);
}

// ---- types with blocks of 32: the sums w . q of the blocks at `at`, times the step, with their factors d and m

INLINE __m256i sums_q4_0(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_nibbles(rows, at + 2, q, step);
}

INLINE __m256i sums_q4_1(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    split_halves(load_word(rows, at), d, m);
    return multiply_nibbles(rows, at + 4, q, step);
}

INLINE __m256i sums_q5_0(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_five_bits(rows, at + 6, q, step);
}

INLINE __m256i sums_q5_1(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    split_halves(load_word(rows, at), d, m);
    return multiply_five_bits(rows, at + 8, q, step);
}

INLINE __m256i sums_q8_0(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_bytes(rows, at + 2, q, step);
}

INLINE __m256i sums_iq4_nl(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    (void)m;
    *d = _mm256_cvtph_ps(load_heads(rows, at));
    return multiply_signed_values(rows, at + 2, q, table_of(iq4_values, 0), step);
}

INLINE __m256i sums_mxfp4(struct rows8 *rows, size_t at, const int8_t *q, __m256i step, __m256 *d, __m256 *m)
{
    (void)m;
    *d = load_powers(rows, at);
    return multiply_values(rows, at + 1, q, table_of(fp4_values, FORMAT_MXFP4 >> 16), 2 * (FORMAT_MXFP4 >> 16), step);
}

// ---- types with blocks of 256: isum of the blocks at `at`, one lane per row; p gets scales, minima, d and m

// Sums of 16 bits, of four products each: 16 weights of each of two rows in a, the next 16 in b.
INLINE __m256i multiply_32(__m256i a, __m256i b, const int8_t *q)
{
    return _mm256_add_epi16(_mm256_maddubs_epi16(a, both_halves(q)), _mm256_maddubs_epi16(b, both_halves(q + 16)));
}

// Scale i times the step of its 32 elements. `sub_blocks` is the number of scales.
INLINE __m256i factor_of(const struct panel *p, const struct packed_column *c, int i, int sub_blocks)
{
    return _mm256_mullo_epi16(p->scale[i], broadcast_32(&c->c.steps[i * BLOCKS / sub_blocks]));
}

// The sum of sixteen products with weights of up to 15 fits 16 bits.
INLINE __m256i sums_q4_k(struct rows8 *g, struct panel *p, const struct packed_column *c)
{
    __m256i sum = _mm256_setzero_si256();
    unpack_k4_head(g, p);
    FOUR(j, { // 32 bytes: the low nibbles are 32 elements, the high nibbles the next 32
        __m256i low[4], high[4];
        FOUR(i, {
            const __m256i a = two_rows(g, i, 16 + 32 * j), b = two_rows(g, i, 32 + 32 * j);
            low[i] = multiply_32(field(a, 0, 15), field(b, 0, 15), c->q + 64 * j);
            high[i] = multiply_32(field(a, 4, 15), field(b, 4, 15), c->q + 64 * j + 32);
        });
        add_32(&sum, _mm256_madd_epi16(join_16(low), factor_of(p, c, 2 * j, 8)));
        add_32(&sum, _mm256_madd_epi16(join_16(high), factor_of(p, c, 2 * j + 1, 8)));
    });
    return sum;
}

// The sum of eight products with weights of up to 31 fits 16 bits: registers of two rows per half are scaled, and
// joined at the end of the block. `a` has rows 0, 1, 4 and 5, `b` has rows 2, 3, 6 and 7.
struct row_pairs {
    __m256i a, b;
};

INLINE void add_scaled(struct row_pairs *s, const __m256i t[4], __m256i factor)
{
    add_32(&s->a, _mm256_madd_epi16(join_two_16(t[0], t[1]), _mm256_unpacklo_epi32(factor, factor)));
    add_32(&s->b, _mm256_madd_epi16(join_two_16(t[2], t[3]), _mm256_unpackhi_epi32(factor, factor)));
}

// Nibbles from bit `right` on, with fifth bits from bit `bit` on.
INLINE __m256i five_bits(__m256i nibbles, int right, __m256i bits, int bit)
{
    return either(field(nibbles, right, 15), field(bits, bit - 4, 16));
}

INLINE __m256i sums_q5_k(struct rows8 *g, struct panel *p, const struct packed_column *c)
{
    struct row_pairs sum = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i x[4], y[4]; // fifth bits of the first 16 elements of all sub-blocks, and of the last 16
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
        add_scaled(&sum, low, factor_of(p, c, 2 * j, 8));
        add_scaled(&sum, high, factor_of(p, c, 2 * j + 1, 8));
    });
    return join_four_32(sum.a, sum.b);
}

// Sums of 16 bits, of two products each, of 16 weights of two rows: nibbles from bit `right` on, with upper bits from
// bit `bit` on.
INLINE __m256i multiply_six_bits(__m256i nibbles, int right, __m256i bits, int bit, const int8_t *q)
{
    return _mm256_maddubs_epi16(either(field(nibbles, right, 15), field(bits, bit - 4, 0x30)), both_halves(q));
}

// The scaled sums of a sub-block of 16. Eight products with weights of up to 63 may overflow 16 bits, but after the
// offset is subtracted (`start`) the sum fits, so that the overflow does no harm.
INLINE __m256i scale_sub_block(const __m256i t[4], const struct panel *p, const struct packed_column *c, int sub_block)
{
    return _mm256_madd_epi16(_mm256_add_epi16(join_16(t), broadcast_32(&c->c.start[sub_block])),
                             factor_of(p, c, sub_block, 16));
}

INLINE __m256i sums_q6_k(struct rows8 *g, struct panel *p, const struct packed_column *c)
{
    __m256i sum = _mm256_setzero_si256();
    unpack_q6_head(g, p);
    FOUR(j, { // 16 elements of each 32 of a half of the block
        enum { HALF = j / 2, AT = j % 2 * 16, FIRST = 8 * HALF + j % 2 };
        const int8_t *q = c->q + 128 * HALF + AT;
        __m256i t[4], u[4], v[4], w[4];
        FOUR(i, {
            const __m256i a = two_rows(g, i, 64 * HALF + AT), b = two_rows(g, i, 64 * HALF + 32 + AT);
            const __m256i bits = two_rows(g, i, 128 + 32 * HALF + AT);
            t[i] = multiply_six_bits(a, 0, bits, 0, q), u[i] = multiply_six_bits(b, 0, bits, 2, q + 32);
            v[i] = multiply_six_bits(a, 4, bits, 4, q + 64), w[i] = multiply_six_bits(b, 4, bits, 6, q + 96);
        });
        add_32(&sum, scale_sub_block(t, p, c, FIRST));
        add_32(&sum, scale_sub_block(u, p, c, FIRST + 2));
        add_32(&sum, scale_sub_block(v, p, c, FIRST + 4));
        add_32(&sum, scale_sub_block(w, p, c, FIRST + 6));
    });
    return sum;
}

// Sub-blocks are multiplied like blocks of IQ4_NL. Their sums need 32 bits.
INLINE __m256i sums_iq4_xs(struct rows8 *g, struct panel *p, const struct packed_column *c)
{
    const __m256i values = table_of(iq4_values, 0);
    __m256i head[4], sum = _mm256_setzero_si256();
    load_words(g, 0, head);
    split_halves(head[0], &p->d[0], &p->m[0]);
    UNROLL_FOR (int j = 0; j < 8; j++) {
        const __m256i step = broadcast_32(&c->c.steps[j]);
        const __m256i products = multiply_signed_values(g, 8 + 16 * (size_t)j, c->q + 32 * j, values, step);
        add_32(&sum, _mm256_mullo_epi32(products, iq4_scale(head[0], head[1], j)));
    }
    return sum;
}

// ---- all rows

// Whether the sums of products of a block of 32 differ from w . q: its weights have an offset, or (Q8_0) are inverted
// where the column is negative.
INLINE bool has_excess(enum dtype type, int format)
{
    return format_of(format).offset || type == DT_Q8_0;
}

static int sum_of_negatives(const int8_t q[32])
{
    const __m256i ones = _mm256_set1_epi8(1), negative = _mm256_min_epi8(load_256(q), _mm256_setzero_si256());
    const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, negative), _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

// Computes `excess` of the column's blocks. (In the other kernels the sums start with minus the excess, before the step
// is multiplied in.)
static void put_excess(const struct matmul_args *a, int offset)
{
    struct packed_column *c = a->scratch;
    for (int64_t span = 0; span < q8_blocks(a->k); span++) {
        const int16_t *sums = q8_sums(a->x[0], a->k) + span * Q8_SUMS;
        const uint8_t *steps = q8_steps(a->x[0], a->k) + span * Q8_RUNS;
        for (int b = 0; b < blocks_in_span(a, span); b++)
            c[span].excess[b] = steps[b] * (a->type == DT_Q8_0 ? sum_of_negatives(c[span].q + 32 * b)
                                                               : offset * (sums[2 * b] + sums[2 * b + 1]));
    }
}

INLINE void multiply_one_column(const struct matmul_args *a, group_fn *kernel, enum dtype type, int format)
{
    ISA_FN(matmul_q8_pack_columns)(a);
    if (has_excess(type, format))
        put_excess(a, format_of(format).offset);
    ISA_FN(matmul_q8_groups)(a, kernel, true, GROUPS_MAX);
}

// Define the kernel of a type:
//   GROUP_32(name, NAME, ...)    multiply_group_<name>, which multiplies eight rows, of a type with blocks of 32
//   GROUP_256(name, NAME, ...)   the same of a type with blocks of 256
//   ONE_COLUMN(name, NAME, ...)  one_column_<name>
// name, NAME: the type, of sums_<name>, BYTES_<NAME>, FORMAT_<NAME>. The blocks of a group begin at byte `at` of the
// rows of the first group. Groups of one call follow each other without leaving the loop, because rows of a few
// blocks take hardly longer than entering it.
#define GROUP_32(name, NAME, ...)                                                                                      \
    INLINE __m256 multiply_group_##name(const struct group_args *l, const struct rows8 *first, size_t at)              \
    {                                                                                                                  \
        struct rows8 g = *first;                                                                                       \
        const struct packed_column *c = l->columns;                                                                    \
        __m256 chain = _mm256_setzero_ps();                                                                            \
        for (int64_t i = 0; i < l->spans; i++, c++) {                                                                  \
            __m256 v = _mm256_setzero_ps();                                                                            \
            const int blocks = i + 1 < l->spans ? BLOCKS : l->last;                                                    \
            for (int b = 0; b < blocks; b++, at += BYTES_##NAME) {                                                     \
                __m256 d, m;                                                                                           \
                if (l->prefetches && b % 2 == 0)                                                                       \
                    prefetch_streams(&g, at, 2 * BYTES_##NAME);                                                        \
                __m256i sums = sums_##name(&g, at, c->q + 32 * b, broadcast_32(&c->c.steps[b]), &d, &m);               \
                if (has_excess(DT_##NAME, FORMAT_##NAME))                                                              \
                    sums = _mm256_sub_epi32(sums, _mm256_set1_epi32(c->excess[b]));                                    \
                v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), d, v);                                                   \
                if (format_of(FORMAT_##NAME).mins)                                                                     \
                    v = _mm256_fmadd_ps(_mm256_set1_ps(c->c.sums[b]), m, v);                                           \
                __asm__(""                                                                                             \
                        : "+r"(at)); /* the rows' addresses share one offset, instead of being advanced one by one */  \
            }                                                                                                          \
            chain = _mm256_fmadd_ps(v, _mm256_set1_ps(c->c.da), chain);                                                \
        }                                                                                                              \
        return chain;                                                                                                  \
    }
#define GROUP_256(name, NAME, ...)                                                                                     \
    INLINE __m256 multiply_group_##name(const struct group_args *l, const struct rows8 *first, size_t at)              \
    {                                                                                                                  \
        struct rows8 g = rows_moved(first, at);                                                                        \
        const struct packed_column *c = l->columns;                                                                    \
        __m256 chain = _mm256_setzero_ps();                                                                            \
        g.prefetches = false;                                                                                          \
        for (int64_t i = 0; i < l->spans; i++, c++, advance(&g, BYTES_##NAME)) {                                       \
            struct panel p;                                                                                            \
            if (l->prefetches)                                                                                         \
                prefetch_streams(&g, 0, BYTES_##NAME);                                                                 \
            if (DT_##NAME == DT_Q6_K)                                                                                  \
                prefetch_next_block(&g, BYTES_##NAME);                                                                 \
            const __m256i sum = sums_##name(&g, &p, c);                                                                \
            chain = finish_256(sum, &p, format_of(FORMAT_##NAME), &c->c, chain);                                       \
        }                                                                                                              \
        return chain;                                                                                                  \
    }
#define ONE_COLUMN(name, NAME, ...)                                                                                    \
    static void groups_##name(const struct group_args *l, __m256 out[])                                                \
    {                                                                                                                  \
        const struct rows8 first = *l->rows;                                                                           \
        for (int i = 0; i < l->groups; i++)                                                                            \
            out[i] = multiply_group_##name(l, &first, (size_t)i * l->step);                                            \
    }                                                                                                                  \
    static void one_column_##name(const struct matmul_args *a)                                                         \
    {                                                                                                                  \
        multiply_one_column(a, groups_##name, DT_##NAME, FORMAT_##NAME);                                               \
    }
EACH_TYPE_32(GROUP_32)
EACH_TYPE_OF_NIBBLES(GROUP_256)
EACH_TYPE_32(ONE_COLUMN)
EACH_TYPE_OF_NIBBLES(ONE_COLUMN)

#define ENTRY(name, NAME, ...) [DT_##NAME] = one_column_##name,
matmul_fn *const ISA_FN(matmul_q8_one_column)[DT_COUNT] = {EACH_TYPE_32(ENTRY) EACH_TYPE_OF_NIBBLES(ENTRY)};
