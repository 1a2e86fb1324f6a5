// Matmul by AMX (amx/panel.h) of types with a codebook (IQ1, IQ2, IQ3), from 8 columns on. The block layouts are
// described in gguf/dtype_iq.c.
//
// panel.h wants bytes of weight times scale. A weight is one of at most eight magnitudes, with a sign, and 16 or 32
// elements share a scale. So 16 elements have at most 16 different products, and a table of 16 bytes holds one byte of
// each. A four-bit index selects one: the number of the magnitude, with the sign encoded in it. One byte shuffle looks
// up 64 elements, which are a tile's row of one plane. IQ2 and IQ3 have two tables, for the high and the low bytes of
// the products, from which the third plane is computed; IQ1 has one plane and one table.
//   - IQ1 and IQ2: an entry of the codebook is 8 consecutive elements, a byte each, whose low bits are such a number.
//     One gather of 8 entries reads a tile's row.
//   - IQ3: an entry is only 4 elements, so that a row would need 16 loads. The entries are coded in three bits an
//     element (avx512/codebook_codes.h) and looked up in registers.
// Cost: a row's block takes 4 gathers (IQ3: none) and 4 or 8 shuffles, plus indices, signs and tables, whatever the
// number of columns. With fewer than 8 columns that is not repaid, and the kernels of AVX-512 are chosen.
#include "kernels/cpu/amx/panel.h"
#include "kernels/cpu/avx512/codebook_unpack.h"

// ---- tables: products of the values that a four-bit index selects and the scales 2s + 1

struct products {
    _Alignas(64) uint8_t high[16][16], low[16][16]; // [s]
};

// clang-format off
#define HIGH(x) (uint8_t)((uint16_t)(x) >> 6)
#define LOW(x)  (uint8_t)((uint16_t)(x) & 63)
#define SCALES(book, byte) {book(byte, 1),  book(byte, 3),  book(byte, 5),  book(byte, 7),  book(byte, 9),  book(byte, 11), \
                            book(byte, 13), book(byte, 15), book(byte, 17), book(byte, 19), book(byte, 21), book(byte, 23), \
                            book(byte, 25), book(byte, 27), book(byte, 29), book(byte, 31)}
// Magnitudes 8, 25 and 43 are their own index; the index of a negative one is 8 less.
#define IQ2(byte, s) {byte(-8 * s), byte(-25 * s), 0, byte(-43 * s), 0, 0, 0, 0, byte(8 * s), byte(25 * s), 0, byte(43 * s)}
static const struct products products_iq2 = {SCALES(IQ2, HIGH), SCALES(IQ2, LOW)};
// Magnitudes 4, 12, .. 52, 62 have their number as the index; a negative one has 8 more.
#define IQ3_XXS(byte, s) {byte(4 * s),  byte(12 * s),  byte(20 * s),  byte(28 * s),  byte(36 * s),  byte(44 * s),  byte(52 * s),  byte(62 * s), \
                          byte(-4 * s), byte(-12 * s), byte(-20 * s), byte(-28 * s), byte(-36 * s), byte(-44 * s), byte(-52 * s), byte(-62 * s)}
static const struct products products_iq3_xxs = {SCALES(IQ3_XXS, HIGH), SCALES(IQ3_XXS, LOW)};
// Magnitudes 1, 3, .. 15 have their number as the index.
#define IQ3_S(byte, s) {byte(1 * s),  byte(3 * s),  byte(5 * s),  byte(7 * s),  byte(9 * s),  byte(11 * s),  byte(13 * s),  byte(15 * s), \
                        byte(-1 * s), byte(-3 * s), byte(-5 * s), byte(-7 * s), byte(-9 * s), byte(-11 * s), byte(-13 * s), byte(-15 * s)}
static const struct products products_iq3_s = {SCALES(IQ3_S, HIGH), SCALES(IQ3_S, LOW)};
// In IQ1, w is 8 g + 1 or 8 g - 1. The products are odd, and (w * scale - 1) / 2 fits one byte: 4 g scale + c, where
// c is s, or -s - 1 where the shift is negative. Each entry is indexed by two bits of g; there are eight entries for
// each shift, by s.
#define IQ1(s, c) {(uint8_t)(c), (uint8_t)(c + 4 * (2 * s + 1)), 0, (uint8_t)(c - 4 * (2 * s + 1))}
static const _Alignas(64) uint8_t products_iq1[16][4] = {
    IQ1(0, 0),  IQ1(1, 1),  IQ1(2, 2),  IQ1(3, 3),  IQ1(4, 4),  IQ1(5, 5),  IQ1(6, 6),  IQ1(7, 7),
    IQ1(0, -1), IQ1(1, -2), IQ1(2, -3), IQ1(3, -4), IQ1(4, -5), IQ1(5, -6), IQ1(6, -7), IQ1(7, -8)};
// clang-format on

INLINE __m512i bytes_of_two(const uint8_t bytes[16][16], int s0, int s1)
{
    return _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_128(bytes[s0])), 0xff00, load_128(bytes[s1]));
}

// The products for two runs of 32 elements, with scales s0 and s1.
INLINE struct planes tables_of_two(const struct products *products, int s0, int s1)
{
    return (struct planes){bytes_of_two(products->high, s0, s1), bytes_of_two(products->low, s0, s1)};
}

// Looks up the products of a tile row and stores them.
INLINE void put_products(__m512i index, struct planes tables, int t, int row, piece *p)
{
    put_planes((struct planes){_mm512_shuffle_epi8(tables.high, index), _mm512_shuffle_epi8(tables.low, index)}, t, row,
               p);
}

// ---- signs: a mask of 64 elements

INLINE __mmask64 signs_at(const uint8_t *signs)
{
    __mmask64 m;
    memcpy(&m, signs, sizeof(m));
    return m;
}

// The eighth sign for each seven sign bits of 32 bytes, which makes the number of signs even.
INLINE __m256i eighth_signs(__m256i seven)
{
    const uint64_t matrix = bit_to(0, 0x81) | bit_to(1, 0x82) | bit_to(2, 0x84) | bit_to(3, 0x88) | bit_to(4, 0x90) |
                            bit_to(5, 0xa0) | bit_to(6, 0xc0);
    return _mm256_gf2p8affine_epi64_epi8(seven, _mm256_set1_epi64x((long long)matrix), 0);
}

// The signs of eight words, which have four times seven bits each.
INLINE __m256i signs_of_words(__m256i words)
{
    return eighth_signs(_mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x352e2720150e0700), words));
}

// ---- factors

INLINE void read_heads_iq2(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, _mm512_mul_ps(load_halves(g, at), _mm512_set1_ps(0.125f)));
}

// ---- IQ2_XXS: eight bytes for 32 elements: four indices, and a word of signs and scale

INLINE __m512i minus_iq2(__m512i w, __mmask64 signs)
{
    return _mm512_mask_sub_epi8(w, signs, w, _mm512_set1_epi8(8));
}

INLINE void unpack_iq2_xxs(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m256i pick = _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15);
    const __m256i four = _mm256_setr_epi32((int)0x80808000, (int)0x80808001, (int)0x80808002, (int)0x80808003,
                                           (int)0x80808008, (int)0x80808009, (int)0x8080800a, (int)0x8080800b);
    _Alignas(32) uint8_t signs[32];
    __m512i words = _mm512_permutexvar_epi32(_mm512_castsi256_si512(pick), load_512(b + 2));
    _mm256_store_si256((__m256i *)signs, signs_of_words(_mm512_castsi512_si256(words)));
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        const uint8_t *two = b + 2 + 16 * t;
        __m256i index = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_128(two)), four);
        __m512i w = minus_iq2(_mm512_i32gather_epi64(index, iq2_xxs_grid, 8), signs_at(signs + 8 * t));
        const int s0 = two[7] >> 4, s1 = two[15] >> 4;
        put_products(w, tables_of_two(&products_iq2, s0, s1), t, row, p);
    }
}

ROWS_KERNEL(iq2_xxs, {.bytes = 66, .planes = 3}, read_heads_iq2, unpack_iq2_xxs)

// ---- IQ2_XS and IQ2_S: indices of more than eight bits, sixteen scales

INLINE __m512i words_of_16(int w0, int w1, int w4, int w5)
{
    return _mm512_set4_epi32(0, (int)((uint32_t)w5 << 16 | (uint16_t)w4), 0, (int)((uint32_t)w1 << 16 | (uint16_t)w0));
}

// The products for runs of 16 elements, from words 2s + 1 in lanes of 16 bytes. Only bytes 0, 1, 3 and 8, 9, 11 are
// looked up.
INLINE struct planes tables_iq2(__m512i scales)
{
    return split_products(_mm512_mullo_epi16(scales, words_of_16(-8, 0, 8, 0)),
                          _mm512_mullo_epi16(scales, words_of_16(-25, -43, 25, 43)));
}

// Lane l has word 8t + 2l: of sixteen scales in 32 bits each, those of tile t.
INLINE __m512i scales_of_tile(__m512i scales, int t)
{
    const __m512i lane = _mm512_set_epi64(0x0006000600060006, 0x0006000600060006, 0x0004000400040004,
                                          0x0004000400040004, 0x0002000200020002, 0x0002000200020002, 0, 0);
    return _mm512_permutexvar_epi16(_mm512_add_epi16(lane, _mm512_set1_epi16((short)(8 * t))), scales);
}

// Unpacks a row from indices of 16 bits, signs, and scales of 16 elements in 32 bits each.
INLINE void put_iq2_of_16(const uint64_t *grid, const uint16_t index[32], const uint8_t signs[32], __m512i scales,
                          int row, piece *p)
{
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        const struct planes tables = tables_iq2(scales_of_tile(scales, t));
        __m512i w = _mm512_i32gather_epi64(_mm256_cvtepu16_epi32(load_128(index + 8 * t)), grid, 8);
        put_products(minus_iq2(w, signs_at(signs + 8 * t)), tables, t, row, p);
    }
}

INLINE void unpack_iq2_xs(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m256i pick = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i words = load_512(b + 2);
    _Alignas(64) uint16_t index[32];
    _Alignas(32) uint8_t signs[32];
    __m512i sevens = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x39291909), words);
    sevens = _mm512_permutexvar_epi32(_mm512_castsi256_si512(pick), sevens);
    _mm256_store_si256((__m256i *)signs, eighth_signs(_mm512_castsi512_si256(sevens)));
    _mm512_store_si512(index, _mm512_and_si512(words, _mm512_set1_epi16(511)));
    put_iq2_of_16(iq2_xs_grid, index, signs, scales_of_nibbles(b + 66), row, p);
}

// Stores 32 indices: their low bytes, and the upper bits, which are the masked bits of the words of `above`.
INLINE void store_indices(const uint8_t *bytes, __m512i above, int mask, uint16_t index[32])
{
    __m512i low = _mm512_cvtepu8_epi16(load_256(bytes));
    _mm512_store_si512(index, _mm512_ternarylogic_epi32(above, _mm512_set1_epi16((short)mask), low, 0xea));
}

INLINE void unpack_iq2_s(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    _Alignas(64) uint16_t index[32];
    const __m512i above = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(b + 66)));
    store_indices(b + 2, _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0600040002000000), above), 0x300, index);
    put_iq2_of_16(iq2_s_grid, index, b + 34, scales_of_nibbles(b + 74), row, p);
}

ROWS_KERNEL(iq2_xs, {.bytes = 74, .planes = 3}, read_heads_iq2, unpack_iq2_xs)
ROWS_KERNEL(iq2_s, {.bytes = 82, .planes = 3}, read_heads_iq2, unpack_iq2_s)

// ---- IQ3_XXS and IQ3_S: sixteen indices per tile row, too many to gather

INLINE void read_heads_iq3_xxs(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, _mm512_mul_ps(load_halves(g, at), _mm512_set1_ps(0.25f)));
}

INLINE void read_heads_iq3_s(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, load_halves(g, at));
}

// Codes of all 64 indices of a row, where a byte codes two elements of three bits each. Looking them up in registers
// takes less time than 64 loads. Two neighbouring bytes are four elements.
struct codes {
    __m512i low, high; // in each lane: of 8 indices, and of the next 8
};

INLINE struct codes codes_of(__m512i first, __m512i second)
{
    return (struct codes){_mm512_unpacklo_epi8(first, second), _mm512_unpackhi_epi8(first, second)};
}

// The magnitudes' numbers of a tile row: 32 bits of codes become eight bytes.
INLINE __m512i numbers_of(const struct codes *c, int t)
{
    const int lo = 4 * t, hi = 16 + 4 * t;
    const __m512i words =
        _mm512_set_epi32(0, hi + 3, 0, hi + 2, 0, hi + 1, 0, hi, 0, lo + 3, 0, lo + 2, 0, lo + 1, 0, lo);
    const __m512i bits = _mm512_permutex2var_epi32(c->low, words, c->high);
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x1b1813100b080300), bits),
                            _mm512_set1_epi8(7));
}

// Stores a tile row. s0 and s1 are the scales of 32 elements each.
INLINE void put_iq3(const struct codes *c, const uint8_t signs[32], const struct products *products, int s0, int s1,
                    int t, int row, piece *p)
{
    __m512i w = numbers_of(c, t);
    w = _mm512_mask_add_epi8(w, signs_at(signs + 8 * t), w, _mm512_set1_epi8(8));
    put_products(w, tables_of_two(products, s0, s1), t, row, p);
}

INLINE void unpack_iq3_xxs(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    _Alignas(32) uint8_t signs[32];
    const __m512i index = load_512(b + 2);
    const struct table_masks m = masks_of(index);
    const struct codes codes =
        codes_of(look_up_256(iq3_xxs_codes[0], index, &m), look_up_256(iq3_xxs_codes[1], index, &m));
    _mm256_store_si256((__m256i *)signs, signs_of_words(load_256(b + 66)));
    UNROLL_FOR (int t = 0; t < TILES; t++)
        put_iq3(&codes, signs, &products_iq3_xxs, b[69 + 8 * t] >> 4, b[73 + 8 * t] >> 4, t, row, p);
}

INLINE void unpack_iq3_s(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    const __m512i index = load_512(b + 2);
    struct table_masks m = masks_of(index);
    m.ninth = signs_at(b + 66);
    const struct codes codes = codes_of(look_up_512(iq3_s_codes[0], index, &m), look_up_512(iq3_s_codes[1], index, &m));
    UNROLL_FOR (int t = 0; t < TILES; t++)
        put_iq3(&codes, b + 74, &products_iq3_s, b[106 + t] & 15, b[106 + t] >> 4, t, row, p);
}

ROWS_KERNEL(iq3_xxs, {.bytes = 98, .planes = 3}, read_heads_iq3_xxs, unpack_iq3_xxs)
ROWS_KERNEL(iq3_s, {.bytes = 110, .planes = 3}, read_heads_iq3_s, unpack_iq3_s)

// ---- IQ1_S and IQ1_M: one plane of (product - 1) / 2

INLINE __m512i gather_iq1(const uint16_t index[8])
{
    return _mm512_i32gather_epi64(_mm256_cvtepu16_epi32(load_128(index)), iq1_grid, 8);
}

INLINE void unpack_iq1_s(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    _Alignas(64) uint16_t index[32];
    const __m512i above = _mm512_cvtepu16_epi64(load_128(b + 34));
    store_indices(b + 2, _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0900060003000000), above), 0x700, index);
    // Lane l has the scale of elements 16l .. 16l + 15.
    const __m512i scales = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0000000c0000000c), above);
    const __m512i products = _mm512_permutexvar_epi32(scales, load_512(products_iq1));
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        const int l = 4 * t;
        const __m512i lanes = _mm512_set_epi32(0, 0, 0, l + 3, 0, 0, 0, l + 2, 0, 0, 0, l + 1, 0, 0, 0, l);
        __m512i g = _mm512_and_si512(gather_iq1(index + 8 * t), _mm512_set1_epi8(3));
        _mm512_store_si512((*p)[0][t][row], _mm512_shuffle_epi8(_mm512_permutexvar_epi32(lanes, products), g));
    }
}

INLINE void read_heads_iq1_m(const struct rows16 *g, size_t at, struct heads *h)
{
    _mm512_store_ps(h->d, factor_iq1_m(g, at));
}

// The same table as products_iq1, for 16 elements, from s in lanes of 16 bits. A negative shift has the indices from
// 8 on. Two bytes are computed at once, as in tables_iq2.
INLINE __m512i table_iq1_m(__m512i s)
{
    const __m512i by_s = _mm512_set4_epi32((int)((uint32_t)(-9 * 256) << 16), 7 * 256 - 1,
                                           (int)((uint32_t)(-7 * 256) << 16), 9 * 256 + 1);
    const __m512i start =
        _mm512_set4_epi32((int)((uint32_t)(-5 * 256) << 16), 3 * 256 + 255, (int)((uint32_t)(-4 * 256) << 16), 4 * 256);
    return _mm512_add_epi16(_mm512_mullo_epi16(s, by_s), start);
}

INLINE void unpack_iq1_m(const uint8_t *b, const struct heads *h, int row, piece *p)
{
    (void)h;
    _Alignas(64) uint16_t index[32];
    const __m512i above = _mm512_cvtepu8_epi32(load_128(b + 32));
    store_indices(b, _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x2400200004000000), above), 0x700, index);
    // Scales are stored three to a word of 16 bits.
    const __m512i offsets =
        _mm512_set_epi64(0x0000003900000036, 0x0000003300000030, 0x0000002900000026, 0x0000002300000020,
                         0x0000001900000016, 0x0000001300000010, 0x0000000900000006, 0x0000000300000000);
    const __m512i s =
        _mm512_and_si512(_mm512_multishift_epi64_epi8(offsets, broadcast_64(b + 48)), _mm512_set1_epi32(7));
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        uint32_t nibbles;
        memcpy(&nibbles, b + 32 + 4 * t, sizeof(nibbles));
        const __mmask8 down = (__mmask8)_pext_u32(nibbles, 0x88888888);
        __m512i g = _mm512_and_si512(gather_iq1(index + 8 * t), _mm512_set1_epi8(7));
        g = _mm512_mask_or_epi64(g, down, g, _mm512_set1_epi8(8));
        _mm512_store_si512((*p)[0][t][row], _mm512_shuffle_epi8(table_iq1_m(scales_of_tile(s, t)), g));
    }
}

ROWS_KERNEL(iq1_s, {.bytes = 50, .planes = 1, .halved = true}, read_heads_iq2, unpack_iq1_s)
ROWS_KERNEL(iq1_m, {.bytes = 56, .planes = 1, .halved = true}, read_heads_iq1_m, unpack_iq1_m)
