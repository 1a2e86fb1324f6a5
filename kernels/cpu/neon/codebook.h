// How the blocks of types with a codebook (IQ1, IQ2, IQ3) are unpacked to signed bytes and scales in the 8-bit matmul
// for 64-bit ARM. They are multiplied like other blocks of 256, see neon/unpack.h.
//
// The naive loop: for each index, look up 4 or 8 bytes, apply their signs, multiply.
//   - A look-up is a load whose address needs the index in a general register. Indices of 9 to 11 bits are put together
//     in vectors, eight of 16 bits at a time, mostly from a low byte and the bits above it, and moved to general
//     registers by fours, as 64 bits. An index is then shifted down, and the bits above it are cleared.
//   - Eight signs are stored in a byte. The byte is copied to eight bytes, each of which tests one bit to make a mask;
//     then -w = (w ^ mask) - mask. Some types store only seven signs for eight elements, because the number of negative
//     elements is even: the eighth sign is 1 if the number of set bits among the seven is odd.
//   - IQ1 is 8 g + 1 or 8 g - 1, so that all products are integers. In IQ1_S, where 32 elements share the sign of the
//     1, the in-place kernel multiplies g, and adds the sums of the activations once.
// With one column, the loads of look-ups and signs are half of the instructions. More columns share them through a
// panel, which is multiplied as for the other types, also by smmla.
//
// Private to kernels/cpu/neon/. All functions are inlined. The layouts are described in gguf/dtype_iq.c.
#ifndef QUERN_NEON_CODEBOOK_H
#define QUERN_NEON_CODEBOOK_H

#include "kernels/cpu/neon/unpack.h"

// ---- look-ups

// Index i of four words of 16 bits. The index is the lowest `bits` bits of the word.
INLINE uint64_t index_of(uint64_t four, int i, int bits)
{
    return four >> 16 * i & ((1u << bits) - 1);
}

// Two entries of 8 bytes.
INLINE uint8x16_t two_of_8(const uint64_t *grid, uint64_t first, uint64_t last)
{
    return vreinterpretq_u8_u64(vcombine_u64(vld1_u64(grid + first), vld1_u64(grid + last)));
}

INLINE uint8x16_t load_entry_of_4(const uint32_t *entry)
{
    return load_4((const uint8_t *)entry);
}

// Two entries of 4 bytes, in the low half.
INLINE uint32x4_t pair_of_4(const uint32_t *grid, uint64_t first, uint64_t last)
{
    return vzip1q_u32(vreinterpretq_u32_u8(load_entry_of_4(grid + first)),
                      vreinterpretq_u32_u8(load_entry_of_4(grid + last)));
}

// Four entries of 4 bytes.
INLINE uint8x16_t four_of_4(const uint32_t *grid, const uint64_t index[4])
{
    uint64x2_t low = vreinterpretq_u64_u32(pair_of_4(grid, index[0], index[1]));
    uint64x2_t high = vreinterpretq_u64_u32(pair_of_4(grid, index[2], index[3]));
    return vreinterpretq_u8_u64(vzip1q_u64(low, high));
}

// Sixteen indices, four in each register.
struct indices {
    uint64_t four[4];
};

INLINE struct indices indices_of_words(uint16x8_t first, uint16x8_t last)
{
    uint64x2_t a = vreinterpretq_u64_u16(first), b = vreinterpretq_u64_u16(last);
    return (struct indices){{vgetq_lane_u64(a, 0), vgetq_lane_u64(a, 1), vgetq_lane_u64(b, 0), vgetq_lane_u64(b, 1)}};
}

// Indices from their low bytes and the bytes above these.
INLINE struct indices indices_of_bytes(uint8x16_t low, uint8x16_t high)
{
    return indices_of_words(vreinterpretq_u16_u8(vzip1q_u8(low, high)), vreinterpretq_u16_u8(vzip2q_u8(low, high)));
}

// Entries 2i and 2i + 1 of sixteen.
INLINE uint8x16_t two_indexed(const uint64_t *grid, const struct indices *x, int i, int bits)
{
    uint64_t four = x->four[i / 2];
    return two_of_8(grid, index_of(four, i % 2 * 2, bits), index_of(four, i % 2 * 2 + 1, bits));
}

// ---- signs and scales

// Byte 2i eight times, then byte 2i + 1.
INLINE uint8x16_t spread_two(uint8x16_t v, int i)
{
    return vqtbl1q_u8(v, vcombine_u8(vdup_n_u8((uint8_t)(2 * i)), vdup_n_u8((uint8_t)(2 * i + 1))));
}

// Applies signs to vector i of eight vectors of magnitudes. Byte j of `signs` has those of elements 8j .. 8j + 7.
INLINE int8x16_t with_signs(uint8x16_t w, uint8x16_t signs, int i)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t mask = vtstq_u8(spread_two(signs, i), bit);
    return signed_of(vsubq_u8(veorq_u8(w, mask), mask));
}

// Adds the eighth sign to the seven in each byte, whose top bit is ignored.
INLINE uint8x16_t with_eighth(uint8x16_t seven)
{
    return vsliq_n_u8(seven, vcntq_u8(vandq_u8(seven, vdupq_n_u8(127))), 7);
}

// The signs of four words, each of which has four times seven signs from its lowest bit on.
INLINE uint8x16_t signs_of_words(uint32x4_t words)
{
    const int32x4_t shift = {0, -7, -14, -21};
    uint16x8_t v[4];
    UNROLL_FOR (int i = 0; i < 4; i++)
        v[i] = vreinterpretq_u16_u32(vshlq_u32(vdupq_n_u32(words[i]), shift));
    uint8x16_t low = vreinterpretq_u8_u16(vuzp1q_u16(v[0], v[1])), high = vreinterpretq_u8_u16(vuzp1q_u16(v[2], v[3]));
    return with_eighth(vuzp1q_u8(low, high));
}

// 2s + 1, where 2s are the bits of `mask`.
INLINE int16x8_t odd_scales(uint16x8_t v, uint16_t mask)
{
    return vreinterpretq_s16_u16(vorrq_u16(vandq_u16(v, vdupq_n_u16(mask)), vdupq_n_u16(1)));
}

// The scales in the top four bits of eight words of 32 bits.
INLINE int16x8_t scales_of_words(uint32x4_t first, uint32x4_t last)
{
    uint16x8_t top = vuzp2q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(last));
    return vreinterpretq_s16_u16(vorrq_u16(vshrq_n_u16(top, 11), vdupq_n_u16(1)));
}

// The nibbles of eight bytes, the low nibble of each first.
INLINE uint8x16_t sixteen_nibbles(const uint8_t *p)
{
    uint8x16_t q = load_8(p);
    return vzip1q_u8(low_nibbles(q), high_nibbles(q));
}

// Sixteen scales of four bits.
INLINE void scales_of_nibbles(const uint8_t *p, int16x8_t out[2])
{
    uint8x16_t all = sixteen_nibbles(p);
    widen(vorrq_u8(vaddq_u8(all, all), vdupq_n_u8(1)), out);
}

// ---- IQ2

// Each eight bytes are four indices, and a word of four times seven signs and a scale.
INLINE void begin_iq2_xxs(const uint8_t *b, struct block_256 *o)
{
    uint32x4_t words[2];
    UNROLL_FOR (int half = 0; half < 2; half++) {
        uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(b + 2 + 32 * half));
        uint32x4_t last = vreinterpretq_u32_u8(vld1q_u8(b + 18 + 32 * half));
        words[half] = vuzp2q_u32(first, last);
        o->signs[half] = signs_of_words(words[half]);
    }
    o->scale[0] = scales_of_words(words[0], words[1]);
}

INLINE void half_iq2_xxs(const uint8_t *b, int half, struct block_256 *o)
{
    UNROLL_FOR (int i = 0; i < 8; i++) {
        const uint8_t *at = b + 2 + 32 * half + i / 2 * 8 + i % 2 * 2;
        o->w[i] = with_signs(two_of_8(iq2_xxs_grid, at[0], at[1]), o->signs[half], i);
    }
}

INLINE void begin_iq2_xs(const uint8_t *b, struct block_256 *o)
{
    scales_of_nibbles(b + 66, o->scale);
}

// Words of a nine-bit index and seven signs. The words are used as indices without change.
INLINE void half_iq2_xs(const uint8_t *b, int half, struct block_256 *o)
{
    const uint8_t *at = b + 2 + 32 * half;
    uint8x16_t signs = with_eighth(vshrq_n_u8(vuzp2q_u8(vld1q_u8(at), vld1q_u8(at + 16)), 1));
    struct indices x;
    memcpy(&x, at, sizeof(x));
    UNROLL_FOR (int i = 0; i < 8; i++)
        o->w[i] = with_signs(two_indexed(iq2_xs_grid, &x, i, 9), signs, i);
}

INLINE void begin_iq2_s(const uint8_t *b, struct block_256 *o)
{
    scales_of_nibbles(b + 74, o->scale);
}

// A byte has the two upper bits of four indices.
INLINE void half_iq2_s(const uint8_t *b, int half, struct block_256 *o)
{
    const uint8x16_t pick = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int8x16_t shift = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    uint8x16_t high = vshlq_u8(vqtbl1q_u8(load_4(b + 66 + 4 * half), pick), shift);
    struct indices x = indices_of_bytes(vld1q_u8(b + 2 + 16 * half), high);
    uint8x16_t signs = vld1q_u8(b + 34 + 16 * half);
    UNROLL_FOR (int i = 0; i < 8; i++)
        o->w[i] = with_signs(two_indexed(iq2_s_grid, &x, i, 10), signs, i);
}

// ---- IQ3

// After the indices there are words of four times seven signs and a scale.
INLINE void begin_iq3_xxs(const uint8_t *b, struct block_256 *o)
{
    uint32x4_t words[2];
    UNROLL_FOR (int half = 0; half < 2; half++) {
        words[half] = vreinterpretq_u32_u8(vld1q_u8(b + 66 + 16 * half));
        o->signs[half] = signs_of_words(words[half]);
    }
    o->scale[0] = scales_of_words(words[0], words[1]);
}

INLINE void half_iq3_xxs(const uint8_t *b, int half, struct block_256 *o)
{
    UNROLL_FOR (int i = 0; i < 8; i++) {
        const uint8_t *at = b + 2 + 32 * half + 4 * i;
        const uint64_t index[4] = {at[0], at[1], at[2], at[3]};
        o->w[i] = with_signs(four_of_4(iq3_xxs_grid, index), o->signs[half], i);
    }
}

INLINE void begin_iq3_s(const uint8_t *b, struct block_256 *o)
{
    uint8x8_t q = vget_low_u8(load_4(b + 106));
    uint16x8_t nibbles = vmovl_u8(vzip1_u8(vand_u8(q, vdup_n_u8(15)), vshr_n_u8(q, 4)));
    o->scale[0] = odd_scales(vaddq_u16(nibbles, nibbles), 30);
}

// The ninth bits of 32 indices are one bit each. They are expanded to masks, of which an index keeps one bit.
INLINE void half_iq3_s(const uint8_t *b, int half, struct block_256 *o)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t bits = load_4(b + 66 + 4 * half), signs = vld1q_u8(b + 74 + 16 * half);
    UNROLL_FOR (int quarter = 0; quarter < 2; quarter++) {
        uint8x16_t low = vld1q_u8(b + 2 + 32 * half + 16 * quarter);
        struct indices x = indices_of_bytes(low, vtstq_u8(spread_two(bits, quarter), bit));
        UNROLL_FOR (int i = 0; i < 4; i++) {
            uint64_t index[4];
            UNROLL_FOR (int e = 0; e < 4; e++)
                index[e] = index_of(x.four[i], e, 9);
            o->w[4 * quarter + i] = with_signs(four_of_4(iq3_s_grid, index), signs, 4 * quarter + i);
        }
    }
}

// ---- IQ1

// A word for 32 elements has four times three bits of indices, three bits of a scale, and the sign of the shift.
INLINE void begin_iq1_s(const uint8_t *b, struct block_256 *o)
{
    uint8x16_t words = vld1q_u8(b + 34);
    o->scale[0] = odd_scales(vshrq_n_u16(vreinterpretq_u16_u8(words), 11), 14);
    o->down = vshrq_n_s16(vreinterpretq_s16_u8(words), 15);
}

// The weights without the shift, see struct type_256.
INLINE void half_iq1_s(const uint8_t *b, int half, struct block_256 *o)
{
    const uint8x16_t first = {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3};
    const uint8x16_t last = {4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7};
    const int16x8_t shift = {0, -3, -6, -9, 0, -3, -6, -9};
    uint8x16_t low = vld1q_u8(b + 2 + 16 * half), words = load_8(b + 34 + 8 * half);
    uint16x8_t high[2] = {vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(words, first)), shift),
                          vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(words, last)), shift)};
    struct indices x = indices_of_words(vsliq_n_u16(vmovl_u8(vget_low_u8(low)), high[0], 8),
                                        vsliq_n_u16(vmovl_high_u8(low), high[1], 8));
    UNROLL_FOR (int i = 0; i < 8; i++)
        o->w[i] = signed_of(two_indexed(iq1_grid, &x, i, 11));
}

// Words of 16 bits have four scales of three bits each, below four bits of d.
INLINE void begin_iq1_m(const uint8_t *b, struct block_256 *o)
{
    const uint8x16_t first = {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3};
    const uint8x16_t last = {4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7};
    const int16x8_t shift = {1, -2, -5, -8, 1, -2, -5, -8};
    uint8x16_t words = load_8(b + 48);
    o->scale[0] = odd_scales(vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(words, first)), shift), 14);
    o->scale[1] = odd_scales(vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(words, last)), shift), 14);
}

// A nibble for eight elements has three bits of an index and the sign of the shift.
INLINE void half_iq1_m(const uint8_t *b, int half, struct block_256 *o)
{
    uint8x16_t high = sixteen_nibbles(b + 32 + 8 * half);
    struct indices x = indices_of_bytes(vld1q_u8(b + 16 * half), high);
    uint8x16_t shifts = vorrq_u8(bit_mask(high, 3), vdupq_n_u8(1));
    UNROLL_FOR (int i = 0; i < 8; i++)
        o->w[i] = with_shift(signed_of(two_indexed(iq1_grid, &x, i, 11)), signed_of(spread_two(shifts, i)));
}

// The types with a codebook: the members of struct type_256.
// clang-format off
//     name    type     bytes groups offset wide d_at m_at unit
#define TYPES_CODEBOOK(TYPE) \
    TYPE(iq2_xxs, IQ2_XXS, 66,  8, 0, true,   0, 0, 0.125f) \
    TYPE(iq2_xs,  IQ2_XS,  74, 16, 0, true,   0, 0, 0.125f) \
    TYPE(iq2_s,   IQ2_S,   82, 16, 0, true,   0, 0, 0.125f) \
    TYPE(iq3_xxs, IQ3_XXS, 98,  8, 0, true,   0, 0, 0.25f) \
    TYPE(iq3_s,   IQ3_S,  110,  8, 0, true,   0, 0, 1) \
    TYPE(iq1_s,   IQ1_S,   50,  8, SHIFTED, false, 0, 0, 0.125f) \
    TYPE(iq1_m,   IQ1_M,   56, 16, 0, false, D_IN_NIBBLES, 0, 0.125f)
// clang-format on

#endif
