// Matmul by AMX (amx/panel.h) of Q2_K, Q3_K, IQ4_XS, TQ1_0 and TQ2_0: products of codes and scales are looked up in
// tables.
//
// Codes of two to four bits have few values. Their products with a scale of few bits are a table, which is made once
// per block; byte shuffles look up its weights. That costs less than multiplying every weight by its scale.
#include "kernels/cpu/amx/panel.h"
#include "kernels/cpu/avx512/codebook_unpack.h"

// Loads 32 bytes and repeats them.
INLINE __m512i load_twice(const uint8_t *b)
{
    return _mm512_broadcast_i64x4(load_256(b));
}

INLINE __m512i halves_of(uint64_t low, uint64_t high)
{
    const long long l = (long long)low, h = (long long)high;
    return _mm512_set_epi64(h, h, h, h, l, l, l, l);
}

// Multiples of `step`, one per lane of 16 bytes: 0, 1, 2 and 3 times.
INLINE __m512i lanes_of(long long step)
{
    return _mm512_set_epi64(3 * step, 3 * step, 2 * step, 2 * step, step, step, 0, 0);
}

// A bit matrix (see move_bits) that moves two bits to bit 0. They start at bit `low`, in the upper half of the
// register at bit `high`.
INLINE __m512i two_bits(int low, int high)
{
    return halves_of(UINT64_C(0x0102000000000000) << low, UINT64_C(0x0102000000000000) << high);
}

// ---- Q2_K: w * scale <= 45, in a table of four bytes per scale. Lane i of 16 bytes has the tables of its 16
// elements in tiles 0 to 3: of scales i, 4 + i, 8 + i, 12 + i.

INLINE void read_heads_q2_k(const struct rows16 *g, size_t at, struct heads *h)
{
    __m512i t[4];
    load_words_16(g, at + 68, t); // the last 16 bytes are quants, d and dmin
    _mm512_store_ps(h->d, low_halves(t[3]));
    _mm512_store_ps(h->m, high_halves(t[3]));
    load_words_16(g, at, t);
    for (int s = 0; s < 8; s++)
        _mm512_store_si512(h->min[s], bytes_to_pair(high_nibbles(t[s / 2]), s % 2 * 2, s % 2 * 2 + 1));
}

// 0, 1, 2 and 3 times each scale.
INLINE __m512i multiples_q2_k(const uint8_t *scales)
{
    const __m512i lane = lanes_of(0x0001000100010001);
    const __m512i pick =
        _mm512_or_si512(lane, _mm512_set4_epi32((int)0x800c800c, (int)0x80088008, (int)0x80048004, (int)0x80008000));
    const __m512i scale = low_nibbles(_mm512_broadcast_i32x4(load_128(scales)));
    return _mm512_mullo_epi16(_mm512_shuffle_epi8(scale, pick), _mm512_set1_epi32(0x03020100));
}

// Stores tile t. The constant of the affine product selects one of a lane's four tables. bits: bytes that hold the
// codes. matrix: moves the codes to bit 0.
#define PUT_Q2_K(t, bits, matrix)                                                                                      \
    _mm512_store_si512((*p)[0][t][row],                                                                                \
                       _mm512_shuffle_epi8(table, _mm512_gf2p8affine_epi64_epi8(bits, matrix, 4 * (t))))

INLINE void unpack_q2_k(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m512i table = multiples_q2_k(b), first = load_twice(b + 16), second = load_twice(b + 48);
    PUT_Q2_K(0, first, two_bits(0, 2));
    PUT_Q2_K(1, first, two_bits(4, 6));
    PUT_Q2_K(2, second, two_bits(0, 2));
    PUT_Q2_K(3, second, two_bits(4, 6));
}

ROWS_KERNEL(q2_k, {.bytes = 84, .planes = 1, .mins = true}, read_heads_q2_k, unpack_q2_k)

// ---- Q3_K: (w - 4) * scale is -124 .. 128, so its negative is a signed byte. The table has eight bytes per scale;
// the tables of two scales, for a tile and the next one, fill a lane.

INLINE void read_heads_q3_k(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, load_halves(g, at + 108));
}

// Each even lane has u, the scales plus 32, 0 .. 63; each odd lane has 63 - u. vpmultishiftqb extracts eight bits
// from any position of 64: of scale j it moves the nibble to bit 0 and the pair of upper bits to bit 4.
INLINE __m512i scales_q3_k(const uint8_t *b)
{
    const __m512i nibbles = _mm512_set4_epi32(0x3c342c24, 0x1c140c04, 0x38302820, 0x18100800);
    const __m512i pairs = _mm512_set4_epi32(0x2a221a12, 0x28201810, 0x261e160e, 0x241c140c);
    const __m512i six = _mm512_set1_epi8(63), flip = _mm512_set_epi64(-1, -1, 0, 0, -1, -1, 0, 0);
    __m512i low = _mm512_multishift_epi64_epi8(nibbles, broadcast_64(b + 96));
    // The pairs of upper bits, after two other bytes.
    __m512i high = _mm512_multishift_epi64_epi8(pairs, broadcast_64(b + 102));
    __m512i u = _mm512_ternarylogic_epi64(_mm512_set1_epi8(15), low, high, 0xca);
    return _mm512_and_si512(_mm512_xor_si512(u, flip), six);
}

// The multiples 4, 3, 2, 1, 0, -1, -2 and -3 of the scales of tiles 2 * half and 2 * half + 1. Products of bytes
// never overflow, so two are computed at a time: 4u .. u less 32 times these factors, then 0 .. 3 times (63 - u) less
// 31 times these.
INLINE __m512i multiples_q3_k(__m512i scales, int half)
{
    const __m512i lane = lanes_of(0x0001000100010001);
    const __m512i pick = _mm512_add_epi8(lane, _mm512_set4_epi32(0x00140014, 0x00040004, 0x00100010, 0));
    const __m512i factors = _mm512_set1_epi64(0x0302010001020304), less = _mm512_set1_epi64(0x5d3e1f0020406080);
    __m512i u = _mm512_maskz_permutexvar_epi8(0x5555555555555555,
                                              _mm512_add_epi8(pick, _mm512_set1_epi16((short)(8 * half))), scales);
    return _mm512_sub_epi8(_mm512_mullo_epi16(u, factors), less);
}

INLINE void unpack_q3_k(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m512i third = load_twice(b), scales = scales_q3_k(b);
    // The codes of both tiles in the low and the high nibbles: two bits, and a third one above them.
    const __m512i both = halves_of(0x0102000010200000, 0x0408000040800000);
    UNROLL_FOR (int half = 0; half < 2; half++) {
        const __m512i table = multiples_q3_k(scales, half);
        const __m512i top =
            halves_of(UINT64_C(0x0000010000000400) << 4 * half, UINT64_C(0x0000020000000800) << 4 * half);
        __m512i w = _mm512_gf2p8affine_epi64_epi8(load_twice(b + 32 + 32 * half), both, 0);
        w = _mm512_or_si512(w, _mm512_gf2p8affine_epi64_epi8(third, top, 0));
        // The high nibbles plus 8, which select the upper table of a lane.
        const __m512i upper = _mm512_gf2p8affine_epi64_epi8(w, _mm512_set1_epi64(0x1020400000000000), 8);
        _mm512_store_si512((*p)[0][2 * half][row], _mm512_shuffle_epi8(table, w));
        _mm512_store_si512((*p)[0][2 * half + 1][row], _mm512_shuffle_epi8(table, upper));
    }
}

ROWS_KERNEL(q3_k, {.bytes = 110, .planes = 1, .negative = true}, read_heads_q3_k, unpack_q3_k)

// ---- IQ4_XS: each scale has 16 products of 16 bits, |w * scale| <= 4064; the high bytes of four scales are one table
// of 64 bytes, their low bytes another

INLINE void read_heads_iq4_xs(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, load_halves(g, at));
}

// The eight scales times 1024, in each lane. Of scale j the nibble is moved to bit 10 and the pair to bit 14.
INLINE __m512i scales_iq4_xs(const uint8_t *b)
{
    const __m512i nibbles = _mm512_set4_epi32(0x3a003600, 0x32002e00, 0x2a002600, 0x22001e00);
    const __m512i pairs = _mm512_set4_epi32(0x18001600, 0x14001200, 0x10000e00, 0x0c000a00);
    const __m512i bits = broadcast_64(b);
    __m512i low = _mm512_multishift_epi64_epi8(nibbles, bits), high = _mm512_multishift_epi64_epi8(pairs, bits);
    __m512i u = _mm512_ternarylogic_epi64(_mm512_set1_epi16(0x3c00), low, high, 0xca);
    // (u & mask) ^ 0x8000, which subtracts 32 from the scales
    return _mm512_ternarylogic_epi64(u, _mm512_set1_epi16((short)0xfc00), _mm512_set1_epi16((short)0x8000), 0x6a);
}

// The products of scales 4 * half .. 4 * half + 3, one lane per scale, computed as words of even values and words of
// odd values.
INLINE struct planes products_iq4_xs(__m512i scales, int half)
{
    const __m512i lane = lanes_of(0x0202020202020202);
    const __m512i pick = _mm512_add_epi8(lane, _mm512_set1_epi16((short)(0x0100 + 0x0808 * half)));
    const __m512i values = _mm512_broadcast_i32x4(load_128(iq4_values)); // as words, times 64
    const __m512i even_values = _mm512_srai_epi16(_mm512_slli_epi16(values, 8), 2);
    const __m512i odd_values = _mm512_srai_epi16(_mm512_and_si512(values, _mm512_set1_epi16((short)0xff00)), 2);
    const __m512i scale = _mm512_shuffle_epi8(scales, pick);
    return split_products(_mm512_mulhi_epi16(even_values, scale), _mm512_mulhi_epi16(odd_values, scale));
}

// Stores tile t. 16 bytes are 32 elements, the low nibbles first, and a tile is two such runs. The constants of the
// affine products select one of the four scales. tables: those of the tile's half of the block.
#define PUT_IQ4_XS(t, tables)                                                                                          \
    do {                                                                                                               \
        const __m512i first = _mm512_broadcast_i32x4(load_128(b + 8 + 32 * (t)));                                      \
        const __m512i second = _mm512_broadcast_i32x4(load_128(b + 24 + 32 * (t)));                                    \
        __m512i w = _mm512_gf2p8affine_epi64_epi8(first, nibbles, (t) % 2 * 32);                                       \
        w = _mm512_mask_gf2p8affine_epi64_epi8(w, 0xffffffff00000000, second, nibbles, (t) % 2 * 32 + 16);             \
        put_planes(                                                                                                    \
            (struct planes){_mm512_permutexvar_epi8(w, (tables).high), _mm512_permutexvar_epi8(w, (tables).low)}, t,   \
            row, p);                                                                                                   \
    } while (0)

INLINE void unpack_iq4_xs(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const long long low = 0x0102040800000000, high = 0x1020408000000000;
    const __m512i nibbles = _mm512_set_epi64(high, high, low, low, high, high, low, low), scales = scales_iq4_xs(b);
    const struct planes first_half = products_iq4_xs(scales, 0), second_half = products_iq4_xs(scales, 1);
    PUT_IQ4_XS(0, first_half);
    PUT_IQ4_XS(1, first_half);
    PUT_IQ4_XS(2, second_half);
    PUT_IQ4_XS(3, second_half);
}

ROWS_KERNEL(iq4_xs, {.bytes = 136, .planes = 3}, read_heads_iq4_xs, unpack_iq4_xs)

// ---- TQ2_0: two bits less 1, that is -1 .. 2

INLINE void read_heads_tq2_0(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, load_halves(g, at + 64));
}

INLINE void unpack_tq2_0(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        __m512i w = _mm512_gf2p8affine_epi64_epi8(load_twice(b + t / 2 * 32), two_bits(t % 2 * 4, t % 2 * 4 + 2), 0);
        _mm512_store_si512((*p)[0][t][row], _mm512_sub_epi8(w, _mm512_set1_epi8(1)));
    }
}

ROWS_KERNEL(tq2_0, {.bytes = 66, .planes = 1}, read_heads_tq2_0, unpack_tq2_0)

// ---- TQ1_0: digits of base 3, looked up

INLINE void read_heads_tq1_0(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, load_halves(g, at + 52));
}

// A bit matrix that, with the constant 255, makes -1, 0, 1 of the digits 0, 1, 2 at bit `low`. All result bits but
// the lowest are the same.
#define DIGIT(low) (long long)(UINT64_C(0x0103030303030303) << (low))

// Runs of 32 bytes with five digits each, of 16 bytes with five, of 4 bytes with four. Digits 0, 1 and 2, 3 of the 32
// bytes are tiles 0 and 1.
INLINE void unpack_tq1_0(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m512i bytes = _mm512_maskz_loadu_epi8(0x000fffffffffffff, b);
    const struct table_masks m = masks_of(bytes);
    const __m512i four = look_up_256(tq1_codes[0], bytes, &m), fifth = look_up_256(tq1_codes[1], bytes, &m);
    const __m512i first = _mm512_shuffle_i64x2(four, four, 0x44);
    // The fifth digit of the 32 bytes, then the first and the second digit of the 16 bytes.
    const __m512i third = _mm512_permutex2var_epi64(four, _mm512_set_epi64(5, 4, 5, 4, 11, 10, 9, 8), fifth);
    // The third, fourth and fifth digit of the 16 bytes, then all four digits of the 4 bytes, one word each, which
    // are shifted to the position of the first digit.
    __m512i last = _mm512_permutex2var_epi32(
        four, _mm512_set_epi32(12, 12, 12, 12, 27, 26, 25, 24, 11, 10, 9, 8, 11, 10, 9, 8), fifth);
    last = _mm512_srlv_epi32(last, _mm512_set_epi32(6, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i matrix[TILES] = {
        halves_of(DIGIT(0), DIGIT(2)), halves_of(DIGIT(4), DIGIT(6)),
        _mm512_set_epi64(DIGIT(2), DIGIT(2), DIGIT(0), DIGIT(0), DIGIT(0), DIGIT(0), DIGIT(0), DIGIT(0)),
        _mm512_set_epi64(DIGIT(0), DIGIT(0), DIGIT(0), DIGIT(0), DIGIT(6), DIGIT(6), DIGIT(4), DIGIT(4))};
    _mm512_store_si512((*p)[0][0][row], _mm512_gf2p8affine_epi64_epi8(first, matrix[0], 255));
    _mm512_store_si512((*p)[0][1][row], _mm512_gf2p8affine_epi64_epi8(first, matrix[1], 255));
    _mm512_store_si512((*p)[0][2][row], _mm512_gf2p8affine_epi64_epi8(third, matrix[2], 255));
    _mm512_store_si512((*p)[0][3][row], _mm512_gf2p8affine_epi64_epi8(last, matrix[3], 255));
}

ROWS_KERNEL(tq1_0, {.bytes = 54, .planes = 1}, read_heads_tq1_0, unpack_tq1_0)
