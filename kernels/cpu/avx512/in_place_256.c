// Matmul of up to seven columns by AVX-512, in place, of types with blocks of 256 (Q2_K to Q6_K, IQ4_XS): every block
// is read once, at the speed of memory.
//
// The naive loop, for each row: for each block of 256, isum = sum of step[j] * scale[j] * (w . q)[j]; S = isum * d;
// with minima S = fma(-(sum of step[j] * min[j] * sum(q)[j]), m, S); D = fma(S, da, D).
// The products are cheap (four vpdpbusd per block and column). Unpacking and adding up lanes cost more. So:
//   - Four rows are multiplied together, a block of each. Their headers are in the four quarters of one register.
//     Scales and minima are unpacked there, and one shuffle moves any of these bytes anywhere.
//   - Each lane accumulates eight products of one sub-block, as many as fit 16 bits. These sums are packed to 16 bits
//     and multiplied by the scales in pairs. So weights are unpacked in an order in which two registers have the same
//     sub-blocks in the same lanes. The scales are multiplied by the steps of a column first, in 16 bits.
//   - Two rows share a register of sums. Three operations reduce the sums of four rows to word i of each quarter for
//     row i. From there on floats have one lane per row.
//   - The activations of a row's blocks are arranged in the order of the weights once per call, and so are their
//     steps, and their sums, which the minima are multiplied with.
//   - A block is unpacked once, into registers, for all columns, whose activations are loaded from the L1 cache. One
//     column is memory-bound; with four, multiplying takes as long as reading; above the limits in
//     matmul_q8_in_place_columns a panel (avx512/panel.c) is faster.
// avx512/matmul_q8.c chooses these kernels up to the columns of matmul_q8_in_place_columns, which is at the end of
// this file.
#include "kernels/cpu/avx512/in_place.h"

// A block of a column, prepared: the activations in the order in which weights are unpacked; their steps in the order
// of the scales of a pair of rows, or (struct kind: wide) of struct heads; and what the type's group needs.
struct activations {
    __m512i q[4], steps[2];
    union {
        __m512i start[2]; // signed weights: what accumulators start with
        // Minima: all words of a quarter are the same pair of int16. With sub-blocks of 16, the first register has in
        // quarter q the sums of sub-blocks 2q and 2q + 1, the second those of 8 + 2q and 9 + 2q, times their steps.
        __m512i weighted[2];
        // The same with sub-blocks of 32, whose sums times steps would exceed 16 bits.
        struct {
            __m512i sums, steps_of_sums;
        };
    };
};

// The unpacked headers of four rows' blocks. Word i of a quarter of `min` is a pair of int16 of row i, in the order
// of the activations' sums.
struct heads {
    __m128 d, m;
    __m512i scales; // quarter i has the bytes of row i; IQ4_XS uses `wide` instead
    __m512i min[2];
    __m512i wide[2]; // word i of quarter j: the scale of row i and sub-block j or 4 + j
};

// Blocks whose sums are not added to D yet: the integer sums (words i of each quarter belong to row i), and the
// factors that they are multiplied with.
struct pending {
    __m512i sum[COLUMNS_MAX];
    struct heads h;
    const struct activations *x[COLUMNS_MAX];
    float scale[COLUMNS_MAX];
};

typedef void heads_fn(const uint8_t *const at[FOUR], struct heads *h);
typedef void unpack_fn(const uint8_t *b, __m512i w[4]);
typedef void prepare_fn(const struct view *x, struct activations *to);

struct kind {
    int bytes; // of a block
    heads_fn *heads;
    unpack_fn *unpack;
    prepare_fn *prepare;
    int minima;  // registers of minima: 1 with sub-blocks of 32, 2 with sub-blocks of 16
    bool starts; // accumulators start with `start` of the activations, not with 0
    bool wide;   // A lane's sums need 32 bits, and so do their products with the scales. Otherwise:
    // Quarter q of the packed sums has two sums of sub-block s and two of sub-block s + apart, where s is hexadecimal
    // digit q of `quarters`. Only with sub-blocks of 32 `apart` is 0. `signs`: the scales are signed.
    bool signs;
    uint32_t quarters[2];
    int apart;
};

// ---- two rows at once

// The unsigned weights of two rows, and the scales of their packed sums. In each lane registers 0 and 1 of a row
// belong to one sub-block, and so do registers 2 and 3.
struct pair {
    __m512i w[2][4], scale[2];
};

// Scales as 16-bit words for the packed sums of rows 2p and 2p + 1, in the order that struct kind describes: each
// quarter has four scales of each row.
INLINE __m512i spread_scales(__m512i scales, int p, uint32_t quarters, int apart, bool signs)
{
// clang-format off
#define HALVES(q, row)                                                                                                 \
    (long long)(0x0001000100010001 * (16 * (2 * p + row) + (quarters >> 4 * (q) & 15)) + 0x0001000100000000 * apart)
    // clang-format on
    const __m512i pick = _mm512_setr_epi64(HALVES(0, 0), HALVES(0, 1), HALVES(1, 0), HALVES(1, 1), HALVES(2, 0),
                                           HALVES(2, 1), HALVES(3, 0), HALVES(3, 1));
#undef HALVES
    if (!signs)
        return _mm512_maskz_permutexvar_epi8(0x5555555555555555, pick, scales);
    return _mm512_srai_epi16(_mm512_permutexvar_epi8(_mm512_slli_epi16(pick, 8), scales), 8);
}

INLINE void load_pair(const struct kind *k, const struct four *g, const struct heads *h, int p, struct pair *u)
{
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const int row = 2 * p + i;
        k->unpack(g->at[row], u->w[i]);
        AFTER(u->w[i][3]);
        prefetch_block(g, row, 0, k->bytes);
        if (!k->wide)
            u->scale[i] = spread_scales(h->scales, p, k->quarters[i], k->apart, k->signs);
    }
}

// With more than two columns, keeps the compiler from holding values that several columns load for two rows in
// registers until the next two rows, since there are too few registers.
#define FORGET_LOADS(n)                                                                                                \
    if ((n) > 2)                                                                                                       \
    __asm__ volatile("" : : : "memory")

// For each of two rows, sums of eight products per lane with registers 2i and 2i + 1. `starts` and n are compile-time
// constants.
INLINE void dot_8(const struct pair *u, const struct activations *x, bool starts, int n, int i, __m512i of_row[2])
{
    const __m512i q0 = read_once(&x->q[2 * i], n), q1 = read_once(&x->q[2 * i + 1], n);
    const __m512i start = starts ? read_once(&x->start[i], n) : _mm512_setzero_si512();
    UNROLL_FOR (int r = 0; r < 2; r++)
        of_row[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, u->w[r][2 * i], q0), u->w[r][2 * i + 1], q1);
}

// The scaled sums of two rows: in each quarter words 0 and 1 belong to the first row, 2 and 3 to the second. (Sums of
// eight products are at most 32767, scales times steps at most 128 * 16.)
INLINE __m512i dot_pair(const struct pair *u, const struct activations *x, bool starts, int n)
{
    __m512i sum = _mm512_setzero_si512(), of_row[2];
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const __m512i scale = _mm512_mullo_epi16(u->scale[i], x->steps[i]);
        dot_8(u, x, starts, n, i, of_row);
        sum = _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(of_row[0], of_row[1]), scale);
    }
    return sum;
}

INLINE void sums_of_pairs(const struct kind *k, const struct four *g, int n, struct pending *t)
{
    __m512i v[COLUMNS_MAX][2];
    UNROLL_FOR (int p = 0; p < 2; p++) {
        struct pair u;
        FORGET_LOADS(n);
        load_pair(k, g, &t->h, p, &u);
        UNROLL_FOR (int j = 0; j < n; j++)
            v[j][p] = dot_pair(&u, t->x[j], k->starts, n);
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        t->sum[j] = reduce_pairs(v[j][0], v[j][1]);
}

// ---- headers

// Loads 16 bytes of each row into its quarter of a register.
INLINE __m512i load_quarters(const uint8_t *const at[FOUR], size_t from)
{
    return load_4x16(at[0] + from, at[1] + from, at[2] + from, at[3] + from);
}

// Loads d and m of four rows, two float16 at byte `from` of each quarter.
INLINE void load_d_and_m(__m512i quarters, int from, struct heads *h)
{
    const __m128i pick = _mm_add_epi16(_mm_setr_epi16(0, 8, 16, 24, 1, 9, 17, 25), _mm_set1_epi16((short)(from / 2)));
    const __m512i halves = _mm512_permutexvar_epi16(_mm512_castsi128_si512(pick), quarters);
    const __m256 both = _mm256_cvtph_ps(_mm512_castsi512_si128(halves));
    h->d = _mm256_castps256_ps128(both), h->m = _mm256_extractf128_ps(both, 1);
}

// Word i of quarter q is a pair of int16: bytes from + 2q and from + 2q + 1 of quarter i.
INLINE __m512i spread_minima(__m512i quarters, int from)
{
    const __m512i of_row = _mm512_broadcast_i32x4(_mm_setr_epi32(0x00010000, 0x00110010, 0x00210020, 0x00310030));
    const __m512i of_quarter = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    const __m512i pick = _mm512_add_epi8(_mm512_add_epi8(of_row, of_quarter), _mm512_slli_epi32(of_quarter, 16));
    return _mm512_maskz_permutexvar_epi8(0x5555555555555555, _mm512_add_epi8(pick, _mm512_set1_epi8((char)from)),
                                         quarters);
}

// The steps of a block's sixteen runs of 16, as bytes.
INLINE __m128i steps_of_16(const struct view *x)
{
    return _mm_unpacklo_epi8(bytes_of_steps(x), bytes_of_steps(x));
}

// The same four words in each quarter.
INLINE __m512i four_words(int a, int b, int c, int d)
{
    return _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d));
}

// ---- Q4_K and Q5_K: in Q4_K a lane sums 8 products, at most 8 * 15 * 127
//
// The quarters of the low nibbles are sub-blocks 0, 2, 4, 6, those of the high nibbles sub-blocks 1, 3, 5, 7. The
// first register of each has the first halves of its sub-blocks, the second the second halves.

INLINE void prepare_k4(const struct view *x, struct activations *to)
{
    for (int i = 0; i < 4; i++) {
        const int8_t *q = x->q + 16 * i;
        to->q[i] = load_4x16(q, q + 64, q + 128, q + 192);
    }
    const __m256i of_32 = _mm256_madd_epi16(load_256(x->sums), _mm256_set1_epi16(1));
    to->sums = spread_words(_mm_packs_epi32(_mm256_castsi256_si128(of_32), _mm256_extracti128_si256(of_32, 1)));
    to->steps_of_sums = spread_words(_mm_cvtepu8_epi16(bytes_of_steps(x)));
}

// The four words of a header are: d and m; six bits each of scales 0-3 and, above them, two more bits for scales 4-7;
// the same of the minima; the low nibbles of scales 4-7 and, in the high nibbles, of minima 4-7.
INLINE void heads_k4(const uint8_t *const at[FOUR], struct heads *h)
{
    const __m512i words = load_quarters(at, 0), six = four_words(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m512i low =
        _mm512_srlv_epi32(_mm512_shuffle_epi32(words, _MM_PERM_DCDB), four_words(0, 0, 0, 4)); // words 1, 3, 2, 3
    // The upper bits that word 3 needs: from words 1 and 2.
    const __m512i top = _mm512_shuffle_epi32(_mm512_srli_epi32(words, 2), _MM_PERM_CBBA);
    const __m512i all =
        _mm512_ternarylogic_epi32(_mm512_and_si512(low, six), top, four_words(0, 0x30303030, 0, 0x30303030), 0xf8);
    h->scales = all;
    h->min[0] = spread_minima(all, 8);
    load_d_and_m(words, 0, h);
}

INLINE void bytes_k4(const uint8_t *quants, __m512i n[2])
{
    const __m512i n0 = load_512(quants), n1 = load_512(quants + 64);
    n[0] = _mm512_shuffle_i32x4(n0, n1, 0x88), n[1] = _mm512_shuffle_i32x4(n0, n1, 0xdd);
}

INLINE void unpack_q4_k(const uint8_t *b, __m512i w[4])
{
    __m512i n[2];
    bytes_k4(b + 16, n);
    UNROLL_FOR (int i = 0; i < 2; i++)
        w[i] = low_nibbles(n[i]), w[2 + i] = high_nibbles(n[i]);
}

// Q5_K: sums are at most 8 * 31 * 127. The fifth bits of sub-block j are bit j of 32 bytes.
INLINE void unpack_q5_k(const uint8_t *b, __m512i w[4])
{
    __m512i n[2];
    bytes_k4(b + 48, n);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const __m512i fifth = _mm512_broadcast_i32x4(load_128(b + 16 + 16 * i));
        w[i] = masked_or(n[i], 15, move_bits_of_8(fifth, 1, 0x66442200, 4));
        w[2 + i] = _mm512_or_si512(high_nibbles(n[i]), move_bits_of_8(fifth, 1, 0x77553311, 4));
    }
}

// ---- sub-blocks of 16: Q6_K, Q2_K, Q3_K
//
// Half of a quarter is one sub-block, the other half another one. The first register has eight of its elements, the
// second the other eight (zip_8).

INLINE void prepare_starts(struct activations *to, int offset)
{
    for (int i = 0; i < 2; i++)
        to->start[i] = _mm512_add_epi32(offset_start(to->q[2 * i], offset), offset_start(to->q[2 * i + 1], offset));
}

// -- Q6_K: weights are unpacked to 0-63, and `start` subtracts their offset of 32. A lane sums 8 products, at most 8
// * 32 * 127.
//
// The low nibbles of 64 bytes are elements 0-63 of a half block, the high ones 64-127, and the 32 bytes of upper bits
// are used by both. So a quarter has sub-blocks q and 8 + q in its low nibbles, and 4 + q and 12 + q in its high
// nibbles.

INLINE void unpack_q6_k(const uint8_t *b, __m512i w[4])
{
    __m512i n[2], upper[2];
    zip_8(load_512(b), load_512(b + 64), n);
    zip_8(_mm512_broadcast_i64x4(load_256(b + 128)), _mm512_broadcast_i64x4(load_256(b + 160)), upper);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        w[i] = masked_or(n[i], 15, move_bits(upper[i], 2, 0, 2, 4));
        w[2 + i] = _mm512_or_si512(high_nibbles(n[i]), move_bits(upper[i], 2, 4, 6, 4));
    }
}

INLINE void prepare_q6_k(const struct view *x, struct activations *to)
{
    for (int i = 0; i < 2; i++)
        zip_8(load_512(x->q + 64 * i), load_512(x->q + 128 + 64 * i), to->q + 2 * i);
    prepare_starts(to, 32);
}

INLINE void heads_q6_k(const uint8_t *const at[FOUR], struct heads *h)
{
    h->scales = load_quarters(at, 192);
    h->d = load_four_halves(at, 208);
}

// -- Q2_K and Q3_K: sums are at most 8 * 3 * 127, and 8 * 4 * 127 with the offset of 4 in `start`.
//
// Pair p of the bits of 64 bytes is elements 32p .. 32p + 31 of each half of the block, by quarters the sub-blocks
// 2p, 2p + 1, 8 + 2p, 9 + 2p. Half of these bytes are repeated in a quarter, for pairs 0 and 1, or 2 and 3.
enum { PAIRS_0_1 = 0x9810, PAIRS_2_3 = 0xdc54 };

INLINE void pairs_of_bits(__m512i bytes, __m512i w[4])
{
    __m512i half[2];
    zip_8(bytes, bytes, half);
    UNROLL_FOR (int i = 0; i < 2; i++)
        w[i] = move_bits_of_8(half[i], 2, 0x20202020, 0), w[2 + i] = move_bits_of_8(half[i], 2, 0x64646464, 0);
}

INLINE void prepare_pairs(const struct view *x, struct activations *to)
{
    __m512i of_pair[4];
    for (int p = 0; p < 4; p++)
        of_pair[p] = load_2x32(x->q + 32 * p, x->q + 128 + 32 * p);
    zip_8(of_pair[0], of_pair[1], to->q);
    zip_8(of_pair[2], of_pair[3], to->q + 2);
}

INLINE void prepare_q2_k(const struct view *x, struct activations *to)
{
    const __m256i weighted = _mm256_mullo_epi16(load_256(x->sums), _mm256_cvtepu8_epi16(steps_of_16(x)));
    prepare_pairs(x, to);
    to->weighted[0] = spread_words(_mm256_castsi256_si128(weighted));
    to->weighted[1] = spread_words(_mm256_extracti128_si256(weighted, 1));
}

INLINE void prepare_q3_k(const struct view *x, struct activations *to)
{
    prepare_pairs(x, to);
    prepare_starts(to, 4);
}

INLINE void unpack_q2_k(const uint8_t *b, __m512i w[4])
{
    pairs_of_bits(load_512(b + 16), w);
}

INLINE void heads_q2_k(const uint8_t *const at[FOUR], struct heads *h)
{
    const __m512i both = load_quarters(at, 0), minima = high_nibbles(both);
    h->scales = low_nibbles(both);
    h->min[0] = spread_minima(minima, 0);
    h->min[1] = spread_minima(minima, 8);
    load_d_and_m(load_quarters(at, 68), 12, h); // the last 16 bytes are quants, d and m
}

INLINE void unpack_q3_k(const uint8_t *b, __m512i w[4])
{
    const __m512i third = _mm512_broadcast_i64x4(load_256(b));
    __m512i half[2];
    pairs_of_bits(load_512(b + 32), w);
    zip_8(third, third, half);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        w[i] = _mm512_or_si512(w[i], move_bits_of_8(half[i], 1, 0x54541010, 2));
        w[2 + i] = _mm512_or_si512(w[2 + i], move_bits_of_8(half[i], 1, 0x76763232, 2));
    }
}

// Words 1 and 2 of the 16 bytes are the low nibbles of scales 0-7 and, in the high nibbles, of 8-15. Word 3 has the
// upper two bits of scales 0-3, 4-7, 8-11 and 12-15.
INLINE void heads_q3_k(const uint8_t *const at[FOUR], struct heads *h)
{
    const __m512i words = load_quarters(at, 92), four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(0x30);
    const __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi32(words, _MM_PERM_CBCB), four_words(0, 0, 4, 4));
    const __m512i upper = _mm512_rolv_epi32(_mm512_shuffle_epi32(words, _MM_PERM_DDDD), four_words(4, 2, 0, 30));
    const __m512i all = _mm512_ternarylogic_epi32(_mm512_and_si512(low, four), upper, top, 0xf8);
    h->scales = _mm512_sub_epi8(all, _mm512_set1_epi8(32));
    h->d = load_four_halves(at, 108);
}

// ---- IQ4_XS: sums of 8 products with values up to 127 need 32 bits, and so do their products with the scales
//
// Registers 0 and 1 are the two halves of four sub-blocks of 32, one per quarter; registers 2 and 3 those of the
// other four.

INLINE void unpack_iq4_xs(const uint8_t *b, __m512i w[4])
{
    const __m512i values = values_of(&shape_iq4_nl);
    const __m512i first = load_512(b + 8), other = load_512(b + 72);
    const __m512i nibbles[4] = {low_nibbles(first), high_nibbles(first), low_nibbles(other), high_nibbles(other)};
    UNROLL_FOR (int i = 0; i < 4; i++)
        w[i] = _mm512_shuffle_epi8(values, nibbles[i]);
}

INLINE void prepare_iq4_xs(const struct view *x, struct activations *to)
{
    for (int h = 0; h < 2; h++) {
        const int8_t *q = x->q + 128 * h;
        to->q[2 * h] = load_4x16(q, q + 32, q + 64, q + 96);
        to->q[2 * h + 1] = load_4x16(q + 16, q + 48, q + 80, q + 112);
    }
    prepare_starts(to, 128);
}

INLINE __m256i load_4x8(const void *p0, const void *p1, const void *p2, const void *p3)
{
    long long v[4];
    memcpy(v, p0, 8), memcpy(v + 1, p1, 8), memcpy(v + 2, p2, 8), memcpy(v + 3, p3, 8);
    return _mm256_setr_epi64x(v[0], v[1], v[2], v[3]);
}

// The first eight bytes of each row are d, eight pairs of upper bits and eight nibbles. The byte that starts at bit
// 12 + 2j has pair j at its bit 4; the byte that starts at bit 32 + 4j has nibble j at its bit 0.
INLINE void heads_iq4_xs(const uint8_t *const at[FOUR], struct heads *h)
{
    const __m256i rows = load_4x8(at[0], at[1], at[2], at[3]);
    const __m256i low = _mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x3c3834302c282420), rows);
    const __m256i upper = _mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x1a18161412100e0c), rows);
    const __m256i all =
        _mm256_ternarylogic_epi32(_mm256_and_si256(low, _mm256_set1_epi8(15)), upper, _mm256_set1_epi8(0x30), 0xf8);
    const __m256i transpose = _mm256_setr_epi8(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27, //
                                               4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
    const __m256i scales = _mm256_permutexvar_epi8(transpose, _mm256_sub_epi8(all, _mm256_set1_epi8(32)));
    h->wide[0] = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(scales));
    h->wide[1] = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(scales, 1));
    h->d = load_four_halves(at, 0);
}

// Adds neighbouring words of two rows: from four words per sub-block of each row to two words per sub-block, of both
// rows alternately.
INLINE void dot_wide(const struct pair *u, const struct activations *x, int n, __m512i of_rows[2])
{
    UNROLL_FOR (int i = 0; i < 2; i++) {
        __m512i of_row[2];
        dot_8(u, x, true, n, i, of_row);
        of_rows[i] =
            _mm512_add_epi32(_mm512_unpacklo_epi32(of_row[0], of_row[1]), _mm512_unpackhi_epi32(of_row[0], of_row[1]));
    }
}

// Reduces these sums of both pairs of rows to one word per row and sub-block, and multiplies them by the scales and
// the steps: first the sub-blocks 0-3, then 4-7. (The upper halves of the steps are 0, so vpmaddwd multiplies the lower
// halves, which are signed.)
INLINE __m512i scale_wide(__m512i of_rows[2][2], const struct heads *h, const struct activations *x)
{
    __m512i scaled[2];
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const __m512i a = of_rows[0][i], b = of_rows[1][i];
        const __m512i four = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        scaled[i] = _mm512_mullo_epi32(four, _mm512_madd_epi16(h->wide[i], x->steps[i]));
    }
    return _mm512_add_epi32(scaled[0], scaled[1]);
}

INLINE void sums_iq4_xs(const struct kind *k, const struct four *g, int n, struct pending *t)
{
    __m512i v[COLUMNS_MAX][2][2];
    UNROLL_FOR (int p = 0; p < 2; p++) {
        struct pair u;
        FORGET_LOADS(n);
        load_pair(k, g, &t->h, p, &u);
        UNROLL_FOR (int j = 0; j < n; j++)
            dot_wide(&u, t->x[j], n, v[j][p]);
    }
    UNROLL_FOR (int j = 0; j < n; j++)
        t->sum[j] = scale_wide(v[j], &t->h, t->x[j]);
}

// clang-format off
static const struct kind
    kind_q4_k = {144, heads_k4, unpack_q4_k, prepare_k4, .minima = 1, .quarters = {0x6420, 0x7531}},
    kind_q5_k = {176, heads_k4, unpack_q5_k, prepare_k4, .minima = 1, .quarters = {0x6420, 0x7531}},
    kind_q6_k = {210, heads_q6_k, unpack_q6_k, prepare_q6_k, .starts = true, .signs = true, .quarters = {0x3210, 0x7654}, .apart = 8},
    kind_q2_k = {84, heads_q2_k, unpack_q2_k, prepare_q2_k, .minima = 2, .quarters = {PAIRS_0_1, PAIRS_2_3}, .apart = 2},
    kind_q3_k = {110, heads_q3_k, unpack_q3_k, prepare_q3_k, .starts = true, .signs = true, .quarters = {PAIRS_0_1, PAIRS_2_3}, .apart = 2},
    kind_iq4_xs = {136, heads_iq4_xs, unpack_iq4_xs, prepare_iq4_xs, .wide = true, .starts = true};
// clang-format on

// ---- floats

INLINE __m128 sum_of_halves(__m256i v)
{
    return _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

INLINE __m128 sum_of_quarters(__m512i v)
{
    return sum_of_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

// Adds the products of minima and sums to both halves of a sum.
INLINE __m256i add_minima(__m256i sum, __m512i min, const __m512i *sums)
{
    sum = _mm256_dpwssd_epi32(sum, _mm512_castsi512_si256(min), load_256(sums));
    return _mm256_dpwssd_epi32(sum, _mm512_extracti64x4_epi64(min, 1), load_256((const uint8_t *)sums + 32));
}

// The sum of the minima times the activations' sums and steps in one column, one lane per row. (A minimum times a step
// is at most 63 * 16.)
INLINE __m128 sum_of_minima(const struct kind *k, const struct heads *h, const struct activations *x)
{
    __m256i sum = _mm256_setzero_si256();
    if (k->minima == 1)
        return sum_of_halves(add_minima(sum, _mm512_mullo_epi16(h->min[0], x->steps_of_sums), &x->sums));
    for (int i = 0; i < 2; i++)
        sum = add_minima(sum, h->min[i], &x->weighted[i]);
    return sum_of_halves(sum);
}

// Adds the pending blocks to D of four rows in each column, one lane per row.
INLINE void add_pending(const struct kind *k, const struct pending *t, int n, __m128 d[COLUMNS_MAX])
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        __m128 s = _mm_mul_ps(sum_of_quarters(t->sum[j]), t->h.d);
        if (k->minima)
            s = _mm_fnmadd_ps(sum_of_minima(k, &t->h, t->x[j]), t->h.m, s);
        d[j] = _mm_fmadd_ps(s, _mm_set1_ps(t->scale[j]), d[j]);
    }
}

// ---- all blocks of four rows

// Word i of quarter j of register h is the step of sub-block 4h + j.
INLINE void prepare_wide_steps(const struct view *x, struct activations *to)
{
    const __m256i steps = words_of_steps(x);
    to->steps[0] = spread_words(_mm256_castsi256_si128(steps));
    to->steps[1] = spread_words(_mm256_extracti128_si256(steps, 1));
}

// The steps are spread as the scales of a pair of rows are.
INLINE void prepare_steps(const struct kind *k, const struct view *x, struct activations *to)
{
    const __m512i steps = _mm512_broadcast_i32x4(k->apart ? steps_of_16(x) : bytes_of_steps(x));
    for (int i = 0; i < 2; i++)
        to->steps[i] = spread_scales(steps, 0, k->quarters[i], k->apart, false);
}

INLINE void prepare_block(const struct matmul_args *a, const struct kind *k, int column, int64_t block, void *to)
{
    const struct view x = view_of(a, column, block);
    k->prepare(&x, to);
    if (k->wide)
        prepare_wide_steps(&x, to);
    else
        prepare_steps(k, &x, to);
}

// Points `t` at block b of the part in each column.
INLINE void point_at_block(const struct matmul_args *a, const struct part *part, int n, int64_t b, struct pending *t)
{
    const struct activations *x = part->x;
    UNROLL_FOR (int j = 0; j < n; j++) {
        t->x[j] = x + j * part->n + b;
        t->scale[j] = block_scale(a, part, j, b);
    }
}

INLINE void make_sums(const struct kind *k, const struct four *g, int n, struct pending *t)
{
    if (k->wide)
        sums_iq4_xs(k, g, n, t);
    else
        sums_of_pairs(k, g, n, t);
}

INLINE void add_block(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, int64_t b,
                      struct sixteen *s)
{
    struct pending pending;
    point_at_block(a, part, n, b, &pending);
    KEEP_LOOP_FOR (int t = 0; t < FOURS; t++) {
        const struct four g = four_of(s, t, (size_t)((part->from + b) * k->bytes));
        k->heads(g.at, &pending.h);
        make_sums(k, &g, n, &pending);
        add_pending(k, &pending, n, s->d[t]);
    }
}

// The sums of a block are added to D after the next block's headers are read. Some 40 cycles lie between the last
// product and D, and the core cannot run far ahead while it waits for them.
INLINE void add_blocks(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, struct four g,
                       __m128 d[COLUMNS_MAX])
{
    struct pending last = {.scale = {0}};
    point_at_block(a, part, n, 0, &last);
    for (int64_t b = 0; b < part->n; b++) {
        struct pending now;
        point_at_block(a, part, n, b, &now);
        k->heads(g.at, &now.h);
        if (b > 0)
            add_pending(k, &last, n, d);
        make_sums(k, &g, n, &now);
        last = now;
        next_block(&g, k->bytes);
    }
    add_pending(k, &last, n, d);
}

INLINE void in_place_256(const struct matmul_args *a, const struct kind *k, int n)
{
    const struct block_adder adder = {k->bytes, sizeof(struct activations), prepare_block, add_blocks, add_block};
    multiply_in_place(a, k, &adder, n);
}

// ---- the entry points

// clang-format off
IN_PLACE(q2_k, UP_TO_4, in_place_256(a, &kind_q2_k, n))
IN_PLACE(q3_k, UP_TO_4, in_place_256(a, &kind_q3_k, n))
IN_PLACE(q4_k, UP_TO_7, in_place_256(a, &kind_q4_k, n))
IN_PLACE(q5_k, UP_TO_7, in_place_256(a, &kind_q5_k, n))
IN_PLACE(q6_k, UP_TO_7, in_place_256(a, &kind_q6_k, n))
IN_PLACE(iq4_xs, UP_TO_4, in_place_256(a, &kind_iq4_xs, n))
// clang-format on

matmul_fn *const ISA_FN(matmul_q8_in_place)[DT_COUNT] = {
#define ENTRY(NAME, name) [DT_##NAME] = ISA_FN(matmul_q8_in_place_##name),
    // clang-format off
    ENTRY(Q4_0, q4_0) ENTRY(Q4_1, q4_1) ENTRY(Q5_0, q5_0) ENTRY(Q5_1, q5_1)
    ENTRY(Q8_0, q8_0) ENTRY(IQ4_NL, iq4_nl) ENTRY(MXFP4, mxfp4) ENTRY(Q2_K, q2_k)
    ENTRY(Q3_K, q3_k) ENTRY(Q4_K, q4_k) ENTRY(Q5_K, q5_k) ENTRY(Q6_K, q6_k)
    ENTRY(IQ4_XS, iq4_xs) ENTRY(IQ1_S, iq1_s) ENTRY(IQ1_M, iq1_m) ENTRY(IQ2_XXS, iq2_xxs)
    ENTRY(IQ2_XS, iq2_xs) ENTRY(IQ2_S, iq2_s) ENTRY(IQ3_XXS, iq3_xxs) ENTRY(IQ3_S, iq3_s)
    ENTRY(TQ1_0, tq1_0) ENTRY(TQ2_0, tq2_0) ENTRY(Q1_0, q1_0) ENTRY(Q2_0, q2_0)
    // clang-format on
    ENTRY(NVFP4, nvfp4)
#undef ENTRY
};

// The most columns that are served in place because that is faster than a panel: [0] where rows are read by row, [1]
// where they are read by streams. At most PANEL_TILES_MIN - 1.
const uint8_t ISA_FN(matmul_q8_in_place_columns)[DT_COUNT][2] = {
    [DT_Q4_0] = {4, 4},     [DT_Q4_1] = {4, 4},    [DT_Q5_0] = {4, 5},      [DT_Q5_1] = {4, 4},
    [DT_Q8_0] = {4, 4},     [DT_Q2_K] = {4, 4},    [DT_Q3_K] = {4, 4},      [DT_Q4_K] = {7, 5},
    [DT_Q5_K] = {7, 5},     [DT_Q6_K] = {7, 5},    [DT_IQ4_NL] = {4, 5},    [DT_IQ4_XS] = {4, 4},
    [DT_MXFP4] = {4, 4},    [DT_IQ1_S] = {15, 15}, [DT_IQ1_M] = {15, 15},   [DT_IQ2_XXS] = {22, 22},
    [DT_IQ2_XS] = {31, 31}, [DT_IQ2_S] = {20, 20}, [DT_IQ3_XXS] = {18, 18}, [DT_IQ3_S] = {31, 31},
    [DT_TQ1_0] = {12, 12},  [DT_TQ2_0] = {31, 31}, [DT_Q1_0] = {31, 31},    [DT_Q2_0] = {31, 31},
    [DT_NVFP4] = {31, 31},
};
