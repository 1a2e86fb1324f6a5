// How the blocks of a row are unpacked to signed bytes, scales and minima in the 8-bit matmul for 64-bit ARM: all
// types but those with a codebook, which are in neon/codebook.h.
//
// A weight is byte + offset. With a few columns it costs less to add the offset once per sum of activations than to
// every weight. High bits are inserted by shifts (sli, sri) as the upper half of a byte in two's complement: one
// instruction joins them to a nibble and subtracts the offset.
//
// Private to kernels/cpu/neon/. All functions are inlined. The layouts are described in gguf/dtype.c.
#ifndef QUERN_NEON_UNPACK_H
#define QUERN_NEON_UNPACK_H

#include "gguf/dtype_iq.h"
#include "kernels/cpu/neon/matmul_q8.h"

// ---- bits and bytes

INLINE int8x16_t signed_of(uint8x16_t v)
{
    return vreinterpretq_s8_u8(v);
}

INLINE uint8x16_t low_nibbles(uint8x16_t q)
{
    return vandq_u8(q, vdupq_n_u8(15));
}

INLINE uint8x16_t high_nibbles(uint8x16_t q)
{
    return vshrq_n_u8(q, 4);
}

// ~v. The empty instruction keeps it in a register; otherwise the compiler inverts v again at each use.
INLINE uint8x16_t inverse(uint8x16_t v)
{
    v = vmvnq_u8(v);
    __asm__("" : "+w"(v));
    return v;
}

// Each byte is 255 where bit `bit` of v's byte is set, else 0.
INLINE uint8x16_t bit_mask(uint8x16_t v, int bit)
{
    return vtstq_u8(v, vdupq_n_u8((uint8_t)(1 << bit)));
}

// q, which the compiler may overwrite, because `done` has been computed from it before.
INLINE uint8x16_t after(uint8x16_t q, int8x16_t done)
{
    __asm__("" : "+w"(q) : "w"(done));
    return q;
}

// The nibbles of q below four bits of `high`: under_low has the low nibbles below the lower four bits of `high`,
// under_high the high nibbles below the upper four.
INLINE int8x16_t under_low(uint8x16_t q, uint8x16_t high)
{
    return signed_of(vsliq_n_u8(q, high, 4));
}

INLINE int8x16_t under_high(uint8x16_t q, uint8x16_t high)
{
    return signed_of(vsriq_n_u8(high, q, 4));
}

// ---- blocks of 256

// An unpacked block. `begin` sets the members for the whole block, then `half` sets w to 128 of its weights at a time.
// `scale` and `min` have those of 16 groups of 16 elements, or of 8 groups of 32 in the first vector. |scale| <= 128.
struct block_256 {
    int16x8_t scale[2], min[2];
    uint8x16_t absent[2]; // the inverted high bits, for types that have them in 32 bytes
    uint8x16_t signs[2];  // of each half, for types that have them in words with other fields
    int16x8_t down;       // for types that are SHIFTED: -1 or 0 for each group
    int8x16_t w[8];
};

enum { D_IN_NIBBLES = -1, SHIFTED = 1000 };

typedef void begin_256_fn(const uint8_t *b, struct block_256 *o);
typedef void half_256_fn(const uint8_t *b, int half, struct block_256 *o);

// A type with blocks of 256. It is a compile-time constant of the kernels.
struct type_256 {
    enum dtype type;
    int bytes;      // of a block
    int groups;     // groups with a scale each; 1: the block has no scale but d, and `begin` sets eight scales to 1
    int offset;     // added to the bytes; SHIFTED: a weight is 8 byte + 1, or 8 byte - 1 where its group is `down`
    bool wide;      // |w| may exceed 32: the sum of four products does not fit 16 bits
    int d_at, m_at; // bytes of d, or D_IN_NIBBLES, and of the minimum, which follows d; m_at 0: no minima
    float unit;     // d is multiplied by it
    begin_256_fn *begin;
    half_256_fn *half;
};

INLINE void widen(uint8x16_t v, int16x8_t out[2])
{
    out[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(v)));
    out[1] = vreinterpretq_s16_u16(vmovl_high_u8(v));
}

INLINE void widen_signed(int8x16_t v, int16x8_t out[2])
{
    out[0] = vmovl_s8(vget_low_s8(v));
    out[1] = vmovl_high_s8(v);
}

INLINE void begin_q2_k(const uint8_t *b, struct block_256 *o)
{
    uint8x16_t scales = vld1q_u8(b);
    widen(low_nibbles(scales), o->scale);
    widen(high_nibbles(scales), o->min);
}

// 16 bytes have four times 16 elements as pairs of bits, which are 32 apart.
INLINE void half_of_pairs(const uint8_t *at, struct block_256 *o)
{
    const uint8x16_t three = vdupq_n_u8(3);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        uint8x16_t q = vld1q_u8(at + 16 * i);
        o->w[i] = signed_of(vandq_u8(q, three));
        o->w[i + 2] = signed_of(vandq_u8(vshrq_n_u8(q, 2), three));
        o->w[i + 4] = signed_of(vandq_u8(vshrq_n_u8(q, 4), three));
        o->w[i + 6] = signed_of(vshrq_n_u8(q, 6));
    }
}

INLINE void half_q2_k(const uint8_t *b, int half, struct block_256 *o)
{
    half_of_pairs(b + 16 + 32 * half, o);
}

// 16 scales of six bits, minus 32: their nibbles are in 8 bytes, their upper pairs of bits in 4.
INLINE void begin_q3_k(const uint8_t *b, struct block_256 *o)
{
    const int8x16_t shift = {0, 0, 0, 0, -2, -2, -2, -2, -4, -4, -4, -4, -6, -6, -6, -6};
    uint8x8_t low = vld1_u8(b + 96);
    uint8x16_t nibbles = vcombine_u8(vand_u8(low, vdup_n_u8(15)), vshr_n_u8(low, 4));
    uint8x16_t pairs = vreinterpretq_u8_u32(vdupq_laneq_u32(vreinterpretq_u32_u8(load_4(b + 104)), 0));
    uint8x16_t high = vandq_u8(vshlq_u8(pairs, shift), vdupq_n_u8(3));
    widen_signed(vsubq_s8(under_low(nibbles, high), vdupq_n_s8(32)), o->scale);
    o->absent[0] = inverse(vld1q_u8(b)), o->absent[1] = inverse(vld1q_u8(b + 16));
}

// Two bits, minus 4 where the high bit is not set.
INLINE void half_q3_k(const uint8_t *b, int half, struct block_256 *o)
{
    UNROLL_FOR (int i = 0; i < 2; i++) {
        uint8x16_t q = vld1q_u8(b + 32 + 32 * half + 16 * i), mask = o->absent[i];
        int bit = 4 * half;
        o->w[i + 6] = signed_of(vsriq_n_u8(bit_mask(mask, bit + 3), q, 6));
        o->w[i + 2] = signed_of(vsliq_n_u8(vshrq_n_u8(q, 2), bit_mask(mask, bit + 1), 2));
        o->w[i + 4] = signed_of(vsliq_n_u8(vshrq_n_u8(q, 4), bit_mask(mask, bit + 2), 2));
        o->w[i] = signed_of(vsliq_n_u8(after(q, o->w[i + 4]), bit_mask(mask, bit), 2));
    }
}

// Eight scales and minima of six bits, in the words a, b, c at bytes 4, 8 and 12. The first four scales are the lower
// six bits of a's bytes, the first four minima those of b's. The last four are nibbles of c below the top two bits of
// a's and b's bytes.
INLINE void begin_q4_k(const uint8_t *b, struct block_256 *o)
{
    const int8x16_t shift = {0, 0, 0, 0, 0, 0, 0, 0, -4, -4, -4, -4, 0, 0, 0, 0};
    uint8x16_t v = vld1q_u8(b);
    uint8x16_t c = vreinterpretq_u8_u32(vdupq_laneq_u32(vreinterpretq_u32_u8(v), 3));
    uint8x16_t last = vsliq_n_u8(low_nibbles(vshlq_u8(c, shift)), vshrq_n_u8(v, 6), 4);
    uint32x4_t first = vreinterpretq_u32_u8(vandq_u8(v, vdupq_n_u8(63)));
    uint8x16_t scales = vreinterpretq_u8_u32(vzip1q_u32(first, vreinterpretq_u32_u8(last)));
    uint8x16_t mins = vreinterpretq_u8_u32(vzip2q_u32(first, vreinterpretq_u32_u8(last)));
    o->scale[0] = vreinterpretq_s16_u16(vmovl_high_u8(scales));
    o->min[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(mins)));
}

// 32 bytes: the low nibbles are 32 elements, the high nibbles the next 32.
INLINE void half_q4_k(const uint8_t *b, int half, struct block_256 *o)
{
    UNROLL_FOR (int i = 0; i < 4; i++) {
        uint8x16_t q = vld1q_u8(b + 16 + 64 * half + 16 * i);
        int8x16_t *w = &o->w[i / 2 * 4 + i % 2];
        w[0] = signed_of(low_nibbles(q));
        w[2] = signed_of(high_nibbles(q));
    }
}

INLINE void begin_q5_k(const uint8_t *b, struct block_256 *o)
{
    begin_q4_k(b, o);
    o->absent[0] = inverse(vld1q_u8(b + 16)), o->absent[1] = inverse(vld1q_u8(b + 32));
}

// As Q4_K, minus 16 where the fifth bit is not set. That is the weight minus the offset 16.
INLINE void half_q5_k(const uint8_t *b, int half, struct block_256 *o)
{
    UNROLL_FOR (int i = 0; i < 4; i++) {
        uint8x16_t q = vld1q_u8(b + 48 + 64 * half + 16 * i), mask = o->absent[i % 2];
        int8x16_t *w = &o->w[i / 2 * 4 + i % 2];
        int bit = 4 * half + i / 2 * 2;
        w[2] = under_high(q, bit_mask(mask, bit + 1));
        w[0] = under_low(after(q, w[2]), bit_mask(mask, bit));
    }
}

INLINE void begin_q6_k(const uint8_t *b, struct block_256 *o)
{
    widen_signed(vld1q_s8((const int8_t *)b + 192), o->scale);
}

// Four bits below two bits. With the upper one of these inverted, they are the weight minus 32 in two's complement.
INLINE void half_q6_k(const uint8_t *b, int half, struct block_256 *o)
{
    const uint8x16_t low = vdupq_n_u8(15);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        uint8x16_t high = veorq_u8(vld1q_u8(b + 128 + 32 * half + 16 * i), vdupq_n_u8(0xaa));
        const uint8_t *q = b + 64 * half + 16 * i;
        uint8x16_t q0 = vld1q_u8(q), q1 = vld1q_u8(q + 32);
#define TOP(shift) vreinterpretq_u8_s8(vshrq_n_s8(signed_of(vshlq_n_u8(high, shift)), 2))
        o->w[i] = signed_of(vbslq_u8(low, q0, TOP(6)));
        o->w[i + 2] = signed_of(vbslq_u8(low, q1, TOP(4)));
        o->w[i + 4] = under_high(q0, TOP(2));
        o->w[i + 6] = under_high(q1, TOP(0));
#undef TOP
    }
}

// Eight scales of six bits, minus 32: their nibbles are in 4 bytes, their upper pairs of bits in a word of 16 bits.
INLINE void begin_iq4_xs(const uint8_t *b, struct block_256 *o)
{
    const int16x8_t shift = {0, -2, -4, -6, -8, -10, -12, -14};
    uint16x8_t top = vdupq_laneq_u16(vreinterpretq_u16_u8(load_2(b + 2)), 0);
    uint8x8_t low = vget_low_u8(load_4(b + 4));
    uint16x8_t nibbles = vmovl_u8(vzip1_u8(vand_u8(low, vdup_n_u8(15)), vshr_n_u8(low, 4)));
    uint16x8_t high = vandq_u16(vshlq_u16(top, shift), vdupq_n_u16(3));
    o->scale[0] = vsubq_s16(vreinterpretq_s16_u16(vsliq_n_u16(nibbles, high, 4)), vdupq_n_s16(32));
}

INLINE void half_iq4_xs(const uint8_t *b, int half, struct block_256 *o)
{
    const int8x16_t values = vld1q_s8(iq4_values);
    UNROLL_FOR (int i = 0; i < 4; i++) {
        uint8x16_t q = vld1q_u8(b + 8 + 64 * half + 16 * i);
        o->w[2 * i] = vqtbl1q_s8(values, low_nibbles(q));
        o->w[2 * i + 1] = vqtbl1q_s8(values, high_nibbles(q));
    }
}

// ---- blocks of 256 with the values -1, 0 and 1, as bytes 0 to 2 (two bits may also be 3)

INLINE void begin_tq2_0(const uint8_t *b, struct block_256 *o)
{
    (void)b;
    o->scale[0] = vdupq_n_s16(1);
}

INLINE void half_tq2_0(const uint8_t *b, int half, struct block_256 *o)
{
    half_of_pairs(b + 32 * half, o);
}

INLINE void begin_tq1_0(const uint8_t *b, struct block_256 *o)
{
    (void)b;
    o->scale[0] = vdupq_n_s16(1);
}

// The first digit in base 3 of each byte, as a fraction of 256: floor(3 v / 256), computed as floor(floor(3 v / 4) /
// 64).
INLINE int8x16_t top_digit(uint8x16_t v)
{
    return signed_of(vshrq_n_u8(vhaddq_u8(v, vshrq_n_u8(v, 1)), 6));
}

// A later digit: multiplied by a power of three, modulo 256, a byte starts with it.
INLINE int8x16_t digit_below(uint8x16_t v, int power)
{
    return top_digit(power == 1 ? v : vmulq_u8(v, vdupq_n_u8((uint8_t)power)));
}

// The first half of the block is four digits of 32 bytes; the second half is their fifth digit, five digits of 16
// bytes, and four digits of 4 bytes.
INLINE void half_tq1_0(const uint8_t *b, int half, struct block_256 *o)
{
    static const int powers[5] = {1, 3, 9, 27, 81};
    const uint32x4_t word_powers = {0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b};
    uint8x16_t q[2] = {vld1q_u8(b), vld1q_u8(b + 16)}, next = vld1q_u8(b + 32);
    if (half == 0) {
        UNROLL_FOR (int i = 0; i < 8; i++)
            o->w[i] = digit_below(q[i % 2], powers[i / 2]);
        return;
    }
    o->w[0] = digit_below(q[0], 81), o->w[1] = digit_below(q[1], 81);
    UNROLL_FOR (int i = 0; i < 5; i++)
        o->w[2 + i] = digit_below(next, powers[i]);
    uint8x16_t last = vreinterpretq_u8_u32(vdupq_laneq_u32(vreinterpretq_u32_u8(load_4(b + 48)), 0));
    o->w[7] = top_digit(vmulq_u8(last, vreinterpretq_u8_u32(word_powers)));
}

// The types with blocks of 256: the members of struct type_256.
// clang-format off
//     name   type    bytes groups offset wide d_at m_at unit
#define TYPES_256(TYPE) \
    TYPE(q2_k,   Q2_K,   84, 16,  0, false,  80, 82, 1) \
    TYPE(q3_k,   Q3_K,  110, 16,  0, false, 108,  0, 1) \
    TYPE(q4_k,   Q4_K,  144,  8,  0, false,   0,  2, 1) \
    TYPE(q5_k,   Q5_K,  176,  8, 16, false,   0,  2, 1) \
    TYPE(q6_k,   Q6_K,  210, 16,  0, false, 208,  0, 1) \
    TYPE(iq4_xs, IQ4_XS, 136, 8,  0, true,    0,  0, 1) \
    TYPE(tq1_0,  TQ1_0,  54,  1, -1, false,  52,  0, 1) \
    TYPE(tq2_0,  TQ2_0,  66,  1, -1, false,  64,  0, 1)
// clang-format on

// The weights of IQ1 in eighths.
INLINE int8x16_t with_shift(int8x16_t grid, int8x16_t shift)
{
    return vmlaq_s8(shift, grid, vdupq_n_s8(8));
}

// ---- blocks of 32

typedef void unpack_32_fn(const uint8_t *b, int8x16_t w[2]);

// A type with blocks of 32. It is a compile-time constant of the kernels.
struct type_32 {
    enum dtype type;
    int bytes, offset; // bytes of a block; added to the bytes of its weights
    bool wide;         // as in struct type_256
    bool power;        // the scale is a power of two, whose exponent is the first byte
    int m_at;          // byte of the minimum, which follows the scale; 0: none
    unpack_32_fn *unpack;
};

INLINE void unpack_nibbles(const uint8_t *p, int8x16_t w[2])
{
    uint8x16_t q = vld1q_u8(p);
    w[0] = signed_of(low_nibbles(q));
    w[1] = signed_of(high_nibbles(q));
}

INLINE void unpack_q4_0(const uint8_t *b, int8x16_t w[2])
{
    unpack_nibbles(b + 2, w);
}

INLINE void unpack_q4_1(const uint8_t *b, int8x16_t w[2])
{
    unpack_nibbles(b + 4, w);
}

// Nibbles, minus 16 where the element's bit of the word at `bits` is not set.
INLINE void unpack_five_bits(const uint8_t *bits, const uint8_t *p, int8x16_t w[2])
{
    const uint8x16_t first = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                     last = {2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t q = vld1q_u8(p), absent = inverse(load_4(bits));
    w[1] = under_high(q, vtstq_u8(vqtbl1q_u8(absent, last), bit));
    w[0] = under_low(after(q, w[1]), vtstq_u8(vqtbl1q_u8(absent, first), bit));
}

INLINE void unpack_q5_0(const uint8_t *b, int8x16_t w[2])
{
    unpack_five_bits(b + 2, b + 6, w);
}

INLINE void unpack_q5_1(const uint8_t *b, int8x16_t w[2])
{
    unpack_five_bits(b + 4, b + 8, w);
}

INLINE void unpack_q8_0(const uint8_t *b, int8x16_t w[2])
{
    w[0] = vld1q_s8((const int8_t *)b + 2);
    w[1] = vld1q_s8((const int8_t *)b + 18);
}

INLINE void unpack_by_table(const uint8_t *p, const int8_t values[16], int8x16_t w[2])
{
    uint8x16_t q = vld1q_u8(p);
    w[0] = vqtbl1q_s8(vld1q_s8(values), low_nibbles(q));
    w[1] = vqtbl1q_s8(vld1q_s8(values), high_nibbles(q));
}

INLINE void unpack_iq4_nl(const uint8_t *b, int8x16_t w[2])
{
    unpack_by_table(b + 2, iq4_values, w);
}

INLINE void unpack_mxfp4(const uint8_t *b, int8x16_t w[2])
{
    unpack_by_table(b + 1, fp4_values, w);
}

// The types with blocks of 32: the members of struct type_32.
// clang-format off
//     name    type  bytes offset wide  power m_at
#define TYPES_32(TYPE) \
    TYPE(q4_0,   Q4_0,   18, -8, false, false, 0) \
    TYPE(q4_1,   Q4_1,   20,  0, false, false, 2) \
    TYPE(q5_0,   Q5_0,   22,  0, false, false, 0) \
    TYPE(q5_1,   Q5_1,   24, 16, false, false, 2) \
    TYPE(q8_0,   Q8_0,   34,  0, true,  false, 0) \
    TYPE(iq4_nl, IQ4_NL, 18,  0, true,  false, 0) \
    TYPE(mxfp4,  MXFP4,  17,  0, false, true,  0)
// clang-format on

// The factors of four rows' blocks.
INLINE struct factors factors_256(const uint8_t *const *rows, const struct type_256 *t)
{
    struct factors f = t->m_at                   ? pairs_of_rows(rows, t->d_at)
                       : t->d_at == D_IN_NIBBLES ? nibbles_of_rows(rows)
                                                 : halves_of_rows(rows, t->d_at);
    if (t->unit != 1)
        f.d = vmulq_n_f32(f.d, t->unit);
    return f;
}

INLINE struct factors factors_32(const uint8_t *const *rows, const struct type_32 *t)
{
    return t->power ? powers_of_rows(rows) : t->m_at ? pairs_of_rows(rows, 0) : halves_of_rows(rows, 0);
}

#endif
