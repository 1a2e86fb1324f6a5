// Unpacks blocks of types with a codebook (IQ1, IQ2, IQ3) or of three values (TQ1_0, TQ2_0): a row's 256 weights in
// four registers.
//
// The naive loop: for each index, look up 4 or 8 bytes, apply their signs, multiply. A look-up is a load, and a block
// has 32 or 64 of them. Here a whole register of indices is looked up at once, in tables of codes that are in
// registers:
//   - An entry is 16 bits of code (avx512/codebook_codes.h), in two tables of bytes. vpermb looks up 64 bytes in a
//     table of 64, so a table of 256 takes four. Types with an index for 8 elements have 32 indices in a block, so
//     two rows are looked up together.
//   - The codebooks of 1024 and 2048 entries are gathered, 16 codes at a time.
//   - Byte i of the result codes elements 4i .. 4i + 3. One affine product of bits (GFNI) makes weights of the first
//     element of each four, a second one those of the second, and so on:
//       w[e], byte i:   element 4i + e        lane l:   elements 16l .. 16l + 15, a sub-block of every type
//     so lane l of the products with activations of the same order is the sum of one sub-block.
//   - Signs are tested into masks. Where seven of them are stored for eight elements, the last one makes the number
//     of negative signs even; it is computed by an affine product of bits, too.
// A weight of IQ1 in eighths is 8 (g + 1) - 9 + {0, 2}.
//
// Private to kernels/cpu/avx512/ and kernels/cpu/amx/. All functions are pure and inlined; nothing is read outside of
// the blocks that are passed.
#ifndef QUERN_AVX512_CODEBOOK_UNPACK_H
#define QUERN_AVX512_CODEBOOK_UNPACK_H

#include "kernels/cpu/avx512/codebook_codes.h"
#include "kernels/cpu/avx512/rows.h"

// Offsets that are added to weights to make them unsigned.
enum { SIGN_OFFSET = 64, SHIFT_OFFSET = 9, TERNARY_OFFSET = 1, FP4_OFFSET = 12 };

// An unpacked block of a row. Byte i of w[e] belongs to element 4i + e; lane l of the scales to elements 16l .. 16l +
// 15.
struct quads {
    __m512i w[4]; // magnitudes; of IQ1 8 (g + 1)
    // Of IQ2 and IQ3: bytes 2j and 2j + 1 have the signs of elements 8j .. 8j + 7, the first in the lowest bit; 1 is
    // negative.
    __m512i signs;
    __m512i delta; // of IQ1: word j is 0 or 2, for elements 8j .. 8j + 7
    __m512i scale; // 1 .. 31
};

// ---- look-ups

// The bits of indices that select one of the four tables of 64 bytes in a table of 256; for 512 entries, `ninth`
// selects the table of 256.
struct table_masks {
    __mmask64 seventh, eighth, ninth;
};

INLINE struct table_masks masks_of(__m512i index)
{
    return (struct table_masks){.seventh = _mm512_test_epi8_mask(index, _mm512_set1_epi8(64)),
                                .eighth = _mm512_movepi8_mask(index)};
}

INLINE __m512i look_up_256(const uint8_t *table, __m512i index, const struct table_masks *m)
{
    __m512i low = _mm512_permutexvar_epi8(index, load_512(table));
    low = _mm512_mask_permutexvar_epi8(low, m->seventh, index, load_512(table + 64));
    __m512i high = _mm512_permutexvar_epi8(index, load_512(table + 128));
    high = _mm512_mask_permutexvar_epi8(high, m->seventh, index, load_512(table + 192));
    return _mm512_mask_blend_epi8(m->eighth, low, high);
}

INLINE __m512i look_up_512(const uint8_t *table, __m512i index, const struct table_masks *m)
{
    return _mm512_mask_blend_epi8(m->ninth, look_up_256(table, index, m), look_up_256(table + 256, index, m));
}

// Gathers codes of 16 bits by two registers of 16 indices: those of the groups of 8 elements with an even number, and
// of those with an odd number.
INLINE __m512i gather_codes(const uint16_t *codes, __m512i even, __m512i odd)
{
    __m512i low = _mm512_i32gather_epi32(even, codes, 2), high = _mm512_i32gather_epi32(odd, codes, 2);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

// Separates two rows whose bytes alternate. `first` has the first code byte of each index, which becomes the even
// bytes, `second` the second.
INLINE void part_rows(__m512i first, __m512i second, __m512i out[2])
{
    out[0] = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, first, _mm512_slli_epi16(second, 8));
    out[1] = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, _mm512_srli_epi16(first, 8), second);
}

// ---- from codes to weights by affine products: bit i of a result byte is the parity of (the byte & byte 7 - i of
// the matrix), xor bit i of the constant

#define AFFINE(v, matrix, constant) _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64((long long)(matrix)), constant)

// The matrix by which bit `bit` of a code sets all the bits of `to`.
INLINE uint64_t bit_to(int bit, int to)
{
    uint64_t matrix = 0;
    for (int i = 0; i < 8; i++)
        matrix |= (uint64_t)(to >> i & 1) << bit << 8 * (7 - i);
    return matrix;
}

// Codes 0, 1, 2 become 8, 25, 43.
INLINE void weights_iq2(__m512i code, __m512i w[4])
{
    UNROLL_FOR (int e = 0; e < 4; e++)
        w[e] = AFFINE(code, bit_to(2 * e, 8 ^ 25) | bit_to(2 * e + 1, 8 ^ 43), 8);
}

// Codes 0, 1, 2 become 0, 8, 16.
INLINE void weights_iq1(__m512i code, __m512i w[4])
{
    UNROLL_FOR (int e = 0; e < 4; e++)
        w[e] = AFFINE(code, bit_to(2 * e, 8) | bit_to(2 * e + 1, 16), 0);
}

// Code i becomes 8i + 4, and 2 more where bit 6 or 7 is set.
INLINE void weights_iq3_xxs(const __m512i code[2], __m512i w[4])
{
    UNROLL_FOR (int e = 0; e < 4; e++) {
        const int at = e % 2 * 3;
        w[e] = AFFINE(code[e / 2], bit_to(at, 8) | bit_to(at + 1, 16) | bit_to(at + 2, 32) | bit_to(6 + e % 2, 2), 4);
    }
}

// Code i becomes 2i + 1.
INLINE void weights_iq3_s(const __m512i code[2], __m512i w[4])
{
    UNROLL_FOR (int e = 0; e < 4; e++) {
        const int at = e % 2 * 3;
        w[e] = AFFINE(code[e / 2], bit_to(at, 2) | bit_to(at + 1, 4) | bit_to(at + 2, 8), 1);
    }
}

// ---- signs and scales

// The mask of the negative ones of elements 4i + e.
INLINE __mmask64 minus_of(const struct quads *q, int e)
{
    return _mm512_test_epi8_mask(q->signs, _mm512_set1_epi16((short)(0x1001 << e)));
}

// Extracts seven signs for each byte, from the bit of its 64-bit word that the byte of `offsets` names, and computes
// the eighth.
INLINE __m512i seven_signs(__m512i words, uint64_t offsets)
{
    const uint64_t matrix = bit_to(0, 0x81) | bit_to(1, 0x82) | bit_to(2, 0x84) | bit_to(3, 0x88) | bit_to(4, 0x90) |
                            bit_to(5, 0xa0) | bit_to(6, 0xc0);
    __m512i seven = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)offsets), words);
    return AFFINE(seven, matrix, 0);
}

// Loads 32 bytes, each repeated once.
INLINE __m512i twice(const uint8_t *p)
{
    // clang-format off
    static const _Alignas(64) uint8_t pick[64] = {
        0,  0,  1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,  8,  8,  9,  9,  10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15,
        16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21, 22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31};
    // clang-format on
    return _mm512_permutexvar_epi8(load_512(pick), _mm512_castsi256_si512(load_256(p)));
}

// 2s + 1 in each lane, where 2s is the lane's bits in `mask`.
INLINE __m512i odd_scales(__m512i v, int mask)
{
    return _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(mask), _mm512_set1_epi32(1), 0xea);
}

// Extracts eight bits for each byte from its 64-bit word. `first` has the start bits for the bytes of word 0; those
// of each following word are `step` more. Bit positions wrap around.
INLINE __m512i bits_of_lanes(__m512i v, uint64_t first, uint64_t step)
{
    const __m512i offsets =
        _mm512_set_epi64((long long)(first + 7 * step), (long long)(first + 6 * step), (long long)(first + 5 * step),
                         (long long)(first + 4 * step), (long long)(first + 3 * step), (long long)(first + 2 * step),
                         (long long)(first + step), (long long)first);
    return _mm512_multishift_epi64_epi8(offsets, v);
}

// Sixteen scales of four bits: lane l extracts the bits from 4l - 1 on.
INLINE __m512i scales_of_nibbles(const uint8_t *p)
{
    return odd_scales(bits_of_lanes(broadcast_64(p), 0x000000030000003f, 0x0000000800000008), 0x1e);
}

// ---- blocks of two rows. The layouts are described in gguf/dtype_iq.c

typedef void quads_fn(const uint8_t *b0, const uint8_t *b1, struct quads out[2]);

// Each eight bytes are four indices, and a word of four times seven signs and a scale.
INLINE void quads_iq2_xxs(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    // clang-format off
    static const _Alignas(64) uint8_t pick[64] = {
        0,  0,  1,  1,  2,  2,  3,  3,  8,  8,  9,  9,  10, 10, 11, 11, 16, 16, 17, 17, 18, 18, 19, 19, 24, 24, 25, 25, 26, 26, 27, 27,
        32, 32, 33, 33, 34, 34, 35, 35, 40, 40, 41, 41, 42, 42, 43, 43, 48, 48, 49, 49, 50, 50, 51, 51, 56, 56, 57, 57, 58, 58, 59, 59};
    // clang-format on
    const __m512i row[2] = {load_512(b0 + 2), load_512(b1 + 2)};
    __m512i index = _mm512_permutexvar_epi8(load_512(pick), row[0]), code[2];
    index = _mm512_mask_permutexvar_epi8(index, 0xaaaaaaaaaaaaaaaa, load_512(pick), row[1]);
    const struct table_masks m = masks_of(index);
    part_rows(look_up_256(iq2_xxs_codes[0], index, &m), look_up_256(iq2_xxs_codes[1], index, &m), code);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        weights_iq2(code[r], out[r].w);
        out[r].signs = seven_signs(row[r], 0x35352e2e27272020);
        out[r].scale = odd_scales(bits_of_lanes(row[r], 0x0000003b0000003b, 0), 0x1e);
    }
}

// Each word is nine bits of index and seven signs.
INLINE void quads_iq2_xs(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    const __m512i row[2] = {load_512(b0 + 2), load_512(b1 + 2)};
    __m512i bytes[2], code[2];
    part_rows(row[0], row[1], bytes);
    struct table_masks m = masks_of(bytes[0]);
    m.ninth = _mm512_test_epi8_mask(bytes[1], _mm512_set1_epi8(1));
    part_rows(look_up_512(iq2_xs_codes[0], bytes[0], &m), look_up_512(iq2_xs_codes[1], bytes[0], &m), code);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        weights_iq2(code[r], out[r].w);
        out[r].signs = seven_signs(row[r], 0x3939292919190909);
        out[r].scale = scales_of_nibbles((r ? b1 : b0) + 66);
    }
}

// The even and the odd indices from 16 pairs of low bytes. The upper bits of each are in the second byte of the lanes
// of high_even and high_odd, under high_mask.
INLINE void indices_of_pairs(const uint8_t *low, __m512i high_even, __m512i high_odd, int high_mask, __m512i out[2])
{
    const __m512i bytes = _mm512_cvtepu16_epi32(load_256(low)), mask = _mm512_set1_epi32(high_mask);
    out[0] = _mm512_ternarylogic_epi32(high_even, mask, _mm512_and_si512(bytes, _mm512_set1_epi32(255)), 0xea);
    out[1] = _mm512_ternarylogic_epi32(high_odd, mask, _mm512_srli_epi32(bytes, 8), 0xea);
}

INLINE void quads_of_iq2_s(const uint8_t *b, struct quads *out)
{
    const __m512i high = broadcast_64(b + 66);
    __m512i index[2];
    indices_of_pairs(b + 2, bits_of_lanes(high, 0x0000040000000000, 0x0000080000000800),
                     bits_of_lanes(high, 0x0000060000000200, 0x0000080000000800), 0x300, index);
    weights_iq2(gather_codes(iq2_s_codes, index[0], index[1]), out->w);
    out->signs = twice(b + 34);
    out->scale = scales_of_nibbles(b + 74);
}

INLINE void quads_iq2_s(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    quads_of_iq2_s(b0, &out[0]);
    quads_of_iq2_s(b1, &out[1]);
}

INLINE void quads_of_iq3_xxs(const uint8_t *b, struct quads *out)
{
    const __m512i index = load_512(b + 2), words = _mm512_cvtepu32_epi64(load_256(b + 66));
    const struct table_masks m = masks_of(index);
    const __m512i code[2] = {look_up_256(iq3_xxs_codes[0], index, &m), look_up_256(iq3_xxs_codes[1], index, &m)};
    weights_iq3_xxs(code, out->w);
    out->signs = seven_signs(words, 0x15150e0e07070000);
    out->scale = odd_scales(bits_of_lanes(words, 0x0000001b0000001b, 0), 0x1e);
}

INLINE void quads_iq3_xxs(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    quads_of_iq3_xxs(b0, &out[0]);
    quads_of_iq3_xxs(b1, &out[1]);
}

// The ninth bits of 64 indices are stored as a mask of 64 bits. Nibble s of the scales belongs to lanes 2s and 2s +
// 1.
INLINE void quads_of_iq3_s(const uint8_t *b, struct quads *out)
{
    const __m512i index = load_512(b + 2);
    struct table_masks m = masks_of(index);
    memcpy(&m.ninth, b + 66, sizeof(m.ninth));
    const __m512i code[2] = {look_up_512(iq3_s_codes[0], index, &m), look_up_512(iq3_s_codes[1], index, &m)};
    weights_iq3_s(code, out->w);
    out->signs = twice(b + 74);
    const __m512i rotate = _mm512_set_epi32(27, 27, 23, 23, 19, 19, 15, 15, 11, 11, 7, 7, 3, 3, 31, 31);
    out->scale = odd_scales(_mm512_rorv_epi32(broadcast_32(b + 106), rotate), 0x1e);
}

INLINE void quads_iq3_s(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    quads_of_iq3_s(b0, &out[0]);
    quads_of_iq3_s(b1, &out[1]);
}

// 0 or 2 in each word: the inverse of the bit of value 2.
INLINE __m512i deltas(__m512i v)
{
    return _mm512_andnot_si512(v, _mm512_set1_epi16(2));
}

// Each 32 elements have a word, here extended to eight bytes: four times three upper bits of indices, three bits of a
// scale, and the direction of the shift.
INLINE void quads_of_iq1_s(const uint8_t *b, struct quads *out)
{
    const __m512i high = _mm512_cvtepu16_epi64(load_128(b + 34));
    __m512i index[2];
    indices_of_pairs(b + 2, bits_of_lanes(high, 0x0000060000000000, 0), bits_of_lanes(high, 0x0000090000000300, 0),
                     0x700, index);
    weights_iq1(gather_codes(iq1_codes, index[0], index[1]), out->w);
    out->delta = deltas(bits_of_lanes(high, 0x000e000e000e000e, 0));
    out->scale = odd_scales(bits_of_lanes(high, 0x0000000b0000000b, 0), 0xe);
}

INLINE void quads_iq1_s(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    quads_of_iq1_s(b0, &out[0]);
    quads_of_iq1_s(b1, &out[1]);
}

// Each 16 elements have a byte, here extended to four: twice three upper bits of an index and the direction of the
// shift.
INLINE void quads_of_iq1_m(const uint8_t *b, struct quads *out)
{
    const __m512i high = _mm512_cvtepu8_epi32(load_128(b + 32));
    // Scales are stored three to a word of 16 bits: lane l extracts the bits from 16 (l / 4) + 3 (l % 4) - 1 on.
    const __m512i offsets = _mm512_set_epi64(0x3800000035, 0x320000002f, 0x2800000025, 0x220000001f, 0x1800000015,
                                             0x120000000f, 0x0800000005, 0x020000003f);
    __m512i index[2];
    indices_of_pairs(b, bits_of_lanes(high, 0x0000200000000000, 0), bits_of_lanes(high, 0x0000240000000400, 0), 0x700,
                     index);
    weights_iq1(gather_codes(iq1_codes, index[0], index[1]), out->w);
    out->delta = deltas(bits_of_lanes(high, 0x0026002200060002, 0));
    out->scale = odd_scales(_mm512_multishift_epi64_epi8(offsets, broadcast_64(b + 48)), 0xe);
}

INLINE void quads_iq1_m(const uint8_t *b0, const uint8_t *b1, struct quads out[2])
{
    quads_of_iq1_m(b0, &out[0]);
    quads_of_iq1_m(b1, &out[1]);
}

// ---- unsigned weights: with their signs (in IQ1 with what is added to eight of them) and an offset

typedef void unsigned_fn(const struct quads *from, __m512i w[4]);

INLINE void unsigned_signed(const struct quads *from, __m512i w[4])
{
    const __m512i offset = _mm512_set1_epi8(SIGN_OFFSET);
    UNROLL_FOR (int e = 0; e < 4; e++)
        w[e] = _mm512_mask_sub_epi8(_mm512_add_epi8(offset, from->w[e]), minus_of(from, e), offset, from->w[e]);
}

INLINE void unsigned_iq1(const struct quads *from, __m512i w[4])
{
    const __m512i delta = _mm512_or_si512(from->delta, _mm512_slli_epi16(from->delta, 8));
    UNROLL_FOR (int e = 0; e < 4; e++)
        w[e] = _mm512_or_si512(from->w[e], delta);
}

// ---- factors of 16 rows: d of their blocks, times the constant factor of the format

typedef __m512 factor_fn(const struct rows16 *g, size_t at);

// The four bytes at `at` of each row.
INLINE __m512i gather_words(const struct rows16 *g, size_t at)
{
    const __m512i first = _mm512_set1_epi64((long long)at);
    __m256i low = _mm512_i64gather_epi32(_mm512_add_epi64(first, load_512(g->at)), NULL, 1);
    __m256i high = _mm512_i64gather_epi32(_mm512_add_epi64(first, load_512(g->at + 8)), NULL, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE __m512 factor_eighth(const struct rows16 *g, size_t at)
{
    return _mm512_mul_ps(low_halves(gather_words(g, at)), _mm512_set1_ps(0.125f));
}

INLINE __m512 factor_quarter(const struct rows16 *g, size_t at)
{
    return _mm512_mul_ps(low_halves(gather_words(g, at)), _mm512_set1_ps(0.25f));
}

INLINE __m512 factor_one(const struct rows16 *g, size_t at)
{
    return low_halves(gather_words(g, at));
}

// (a & mask) | b
INLINE __m512i masked_or_32(__m512i a, int mask, __m512i b)
{
    return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32(mask), b, 0xea);
}

// d is stored as four bits at the top of each of four words.
INLINE __m512 factor_iq1_m(const struct rows16 *g, size_t at)
{
    __m512i t[4]; // the last 16 bytes: upper bits of indices, then the four words
    load_words_16(g, at + 40, t);
    __m512i d = _mm512_and_si512(_mm512_srli_epi32(t[2], 12), _mm512_set1_epi32(0x000f));
    d = masked_or_32(_mm512_srli_epi32(t[2], 24), 0x00f0, d);
    d = masked_or_32(_mm512_srli_epi32(t[3], 4), 0x0f00, d);
    d = masked_or_32(_mm512_srli_epi32(t[3], 16), 0xf000, d);
    return _mm512_mul_ps(low_halves(d), _mm512_set1_ps(0.125f));
}

INLINE __m512 factor_tq1_0(const struct rows16 *g, size_t at)
{
    return high_halves(gather_words(g, at + 50));
}

INLINE __m512 factor_tq2_0(const struct rows16 *g, size_t at)
{
    return high_halves(gather_words(g, at + 62));
}

// ---- three values

// The digits 0 to 2: four per byte of 64 bytes in TQ2_0, five per byte of 52 bytes in TQ1_0.
INLINE void digits_tq2_0(const uint8_t *b, __m512i w[4])
{
    const __m512i bytes = load_512(b);
    UNROLL_FOR (int p = 0; p < 4; p++)
        w[p] = move_bits(bytes, 2, 2 * p, 2 * p, 0);
}

INLINE void digits_tq1_0(const uint8_t *b, __m512i w[5])
{
    const __m512i bytes = _mm512_maskz_loadu_epi8(0x000fffffffffffff, b);
    const struct table_masks m = masks_of(bytes);
    const __m512i code = look_up_256(tq1_codes[0], bytes, &m);
    UNROLL_FOR (int p = 0; p < 4; p++)
        w[p] = move_bits(code, 2, 2 * p, 2 * p, 0);
    w[4] = look_up_256(tq1_codes[1], bytes, &m);
}

// ---- types with a factor for a run of 16 or 32 elements (Q1_0, Q2_0, NVFP4)

// Minus the offset times the sums of the activations of each run in a span.
INLINE void starts_of_runs(const int16_t *sums, int run, int offset, int32_t *start)
{
    const __m256i v = load_256(sums);
    if (run == 16)
        _mm512_storeu_si512(start, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(v), _mm512_set1_epi32(-offset)));
    else
        _mm256_storeu_si256((__m256i *)start, _mm256_madd_epi16(v, _mm256_set1_epi16((short)-offset)));
}

// Half of the unsigned floats with 4 bits of exponent and 3 of mantissa: read as float16 they are 128 times too
// small. The top bit is ignored, except that 0x7f is 0 and 0xff is not.
INLINE __m512 factors_nvfp4(__m512i bytes)
{
    const __m512i seven = _mm512_and_si512(bytes, _mm512_set1_epi32(0x7f));
    const __mmask16 numbers = _mm512_cmpneq_epi32_mask(bytes, _mm512_set1_epi32(0x7f));
    const __m512i half = _mm512_maskz_slli_epi32(numbers, seven, 7);
    return _mm512_mul_ps(low_halves(half), _mm512_set1_ps(128));
}

#endif
