// Decoders of the types with a codebook (IQ), of ternary types (TQ) and of 4-bit floats (MXFP4, NVFP4).
//
// As in dtype.c, each decoder is headed by the layout of its block, and the order of the float operations is part of
// the format.
#include "gguf/dtype_decode.h"
#include "gguf/dtype_iq.h"

// Writes eight elements: magnitudes from a grid entry, with the given signs.
static void put_grid8(float *out, float scale, uint64_t grid, uint8_t signs)
{
    for (int i = 0; i < 8; i++) {
        float x = scale * (float)(grid >> 8 * i & 255);
        out[i] = signs >> i & 1 ? -x : x;
    }
}

static uint64_t grid_pair(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

// 66 bytes: d | 8 x (index[4] | u32 word), one pair per 32 elements. A word is 4 x 7 sign bits and 4 bits of scale.
// x = d (0.5 + scale) / 4 * grid
void decode_iq2_xxs(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 66) {
        float d = load_f16(b);
        for (int s = 0; s < 8; s++) {
            const uint8_t *index = b + 2 + s * 8;
            uint32_t word = load_u32(index + 4);
            float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
            for (int k = 0; k < 4; k++, out += 8)
                put_grid8(out, scale, iq2_xxs_grid[index[k]], iq_signs(word >> 7 * k & 127));
        }
    }
}

// 74 bytes: d | u16 qs[32] | scales[8]. Each of qs has 9 bits of index and 7 sign bits for 8 elements. Each nibble of
// scales is the scale of 16 elements. x = d (0.5 + scale) / 4 * grid
void decode_iq2_xs(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 74) {
        float d = load_f16(b);
        for (int k = 0; k < 32; k++, out += 8) {
            uint16_t q = load_u16(b + 2 + 2 * k);
            int scale = b[66 + k / 4] >> k / 2 % 2 * 4 & 15;
            put_grid8(out, d * (0.5f + (float)scale) * 0.25f, iq2_xs_grid[q & 511], iq_signs(q >> 9));
        }
    }
}

// 82 bytes: d | qs[32] | signs[32] | qh[8] | scales[8]. Group k of 8 elements has an index of 10 bits, whose high two
// are bit pair k%4 of qh[k/4], and a byte of signs. Scales are as in IQ2_XS. x = d (0.5 + scale) / 4 * grid
void decode_iq2_s(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 82) {
        float d = load_f16(b);
        for (int k = 0; k < 32; k++, out += 8) {
            int index = b[2 + k] | (b[66 + k / 4] >> k % 4 * 2 & 3) << 8;
            int scale = b[74 + k / 4] >> k / 2 % 2 * 4 & 15;
            put_grid8(out, d * (0.5f + (float)scale) * 0.25f, iq2_s_grid[index], b[34 + k]);
        }
    }
}

// 98 bytes: d | qs[64] | u32 words[8]. Each of qs is the index for 4 elements. Each word is for 32 elements, as in
// IQ2_XXS. x = d (0.5 + scale) / 2 * grid
void decode_iq3_xxs(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 98) {
        float d = load_f16(b);
        for (int k = 0; k < 32; k++, out += 8) {
            uint32_t word = load_u32(b + 66 + k / 4 * 4);
            const uint8_t *index = b + 2 + 2 * k;
            uint64_t grid = grid_pair(iq3_xxs_grid[index[0]], iq3_xxs_grid[index[1]]);
            put_grid8(out, d * (0.5f + (float)(word >> 28)) * 0.5f, grid, iq_signs(word >> k % 4 * 7 & 127));
        }
    }
}

// 110 bytes: d | qs[64] | qh[8] | signs[32] | scales[4]. Index j, of 4 elements, has its ninth bit in bit j%8 of
// qh[j/8]. Each nibble of scales is the scale of 32 elements. x = d (1 + 2 scale) * grid
void decode_iq3_s(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 110) {
        float d = load_f16(b);
        for (int k = 0; k < 32; k++, out += 8) {
            const uint8_t *qs = b + 2 + 2 * k;
            int high = b[66 + k / 4] >> k % 4 * 2;
            uint64_t grid = grid_pair(iq3_s_grid[qs[0] | (high & 1) << 8], iq3_s_grid[qs[1] | (high >> 1 & 1) << 8]);
            int scale = b[106 + k / 8] >> k / 4 % 2 * 4 & 15;
            put_grid8(out, d * (float)(1 + 2 * scale), grid, b[74 + k]);
        }
    }
}

// Writes eight elements of IQ1: values -1, 0 and 1, all shifted by +1/8 or -1/8.
static void put_iq1_grid8(float *out, float scale, uint64_t grid, bool down)
{
    float delta = down ? -0.125f : 0.125f;
    for (int i = 0; i < 8; i++)
        out[i] = scale * ((float)(int8_t)(grid >> 8 * i) + delta);
}

// 50 bytes: d | qs[32] | u16 qh[8]. qh[s] is for 32 elements: 4 x 3 high bits of the indices, 3 bits of scale, and a
// bit that is set for the shift of -1/8. x = d (2 scale + 1) (grid +- 1/8)
void decode_iq1_s(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 50) {
        float d = load_f16(b);
        for (int k = 0; k < 32; k++, out += 8) {
            uint16_t qh = load_u16(b + 34 + k / 4 * 2);
            int index = b[2 + k] | (qh >> k % 4 * 3 & 7) << 8;
            int scale = qh >> 12 & 7;
            put_iq1_grid8(out, d * (float)(2 * scale + 1), iq1_grid[index], qh >> 15);
        }
    }
}

// 56 bytes: qs[32] | qh[16] | u16 scales[4]. Nibble k%2 of qh[k/2] is for 8 elements: 3 high bits of the index, and a
// bit that is set for the shift of -1/8. Each of scales has 4 x 3 bits, a scale for 16 elements each, and in its top
// bits four bits of d, the lowest ones in scales[0]. x = d (2 scale + 1) (grid +- 1/8)
void decode_iq1_m(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 56) {
        uint16_t scales[4];
        memcpy(scales, b + 48, sizeof(scales));
        uint32_t d_bits = 0;
        for (int i = 0; i < 4; i++)
            d_bits |= (uint32_t)(scales[i] >> 12) << 4 * i;
        float d = f16_to_f32((uint16_t)d_bits);
        for (int k = 0; k < 32; k++, out += 8) {
            int high = b[32 + k / 2] >> k % 2 * 4;
            int index = b[k] | (high & 7) << 8;
            int scale = scales[k / 8] >> k / 2 % 4 * 3 & 7;
            put_iq1_grid8(out, d * (float)(2 * scale + 1), iq1_grid[index], high >> 3 & 1);
        }
    }
}

// Decodes the nibbles of n/2 bytes with a table. The low nibbles are the first half of the elements, the high ones the
// second.
static void put_nibbles(float *out, float scale, const uint8_t *qs, int n, const int8_t values[16])
{
    for (int i = 0; i < n / 2; i++) {
        out[i] = scale * (float)values[qs[i] & 15];
        out[i + n / 2] = scale * (float)values[qs[i] >> 4];
    }
}

// 18 bytes: d | qs[16]. x = d value[q]
void decode_iq4_nl(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 18, out += 32)
        put_nibbles(out, load_f16(b), b + 2, 32, iq4_values);
}

// 136 bytes: d | u16 scales_h | scales_l[4] | qs[128]. Scale s of eight has its low four bits in nibble s%2 of
// scales_l[s/2] and its high two in bit pair s of scales_h. 16 bytes of qs hold 32 elements. x = d (scale - 32)
// value[q]
void decode_iq4_xs(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 136) {
        float d = load_f16(b);
        uint16_t scales_h = load_u16(b + 2);
        for (int s = 0; s < 8; s++, out += 32) {
            int scale = (b[4 + s / 2] >> s % 2 * 4 & 15) | (scales_h >> 2 * s & 3) << 4;
            put_nibbles(out, d * (float)(scale - 32), b + 8 + 16 * s, 32, iq4_values);
        }
    }
}

// Digit k, from the top, of a fraction in base 3. The byte is ceil(256 v / 243), where v has five digits. Multiplying
// it by 3^k modulo 256 drops the digits above; the integer part of three times the remaining fraction is digit k.
static int ternary_digit(uint8_t byte, int k)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * power[k]);
    return rest * 3 >> 8;
}

// 54 bytes: qs[48] | qh[4] | d. Digits 0-4 of qs[0-31] are five runs of 32 elements, those of qs[32-47] five runs of
// 16, and digits 0-3 of qh four runs of 4. x = d (digit - 1)
void decode_tq1_0(const void *blocks, float *out, int64_t n)
{
    static const struct run {
        int at, bytes, digits;
    } runs[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 54) {
        float d = load_f16(b + 52);
        for (size_t r = 0; r < COUNT_OF(runs); r++)
            for (int k = 0; k < runs[r].digits; k++)
                for (int i = 0; i < runs[r].bytes; i++)
                    *out++ = (float)(ternary_digit(b[runs[r].at + i], k) - 1) * d;
    }
}

// 66 bytes: qs[64] | d. Run r of 32 elements is bit pair r%4 of the 32 bytes from qs + r/4*32. x = d (q - 1)
void decode_tq2_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 66) {
        float d = load_f16(b + 64);
        for (int r = 0; r < 8; r++, out += 32)
            for (int i = 0; i < 32; i++)
                out[i] = (float)((b[r / 4 * 32 + i] >> r % 4 * 2 & 3) - 1) * d;
    }
}

// Half of an e8m0 scale, 2^(e - 128), because fp4_values are doubled. Below 2^-126 it is subnormal. The code 255,
// which is NaN in the OCP specification, gives 2^127, as in other readers of GGUF.
static float e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

// 17 bytes: e | qs[16]. x = 2^(e - 127) e2m1[q]
void decode_mxfp4(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 17, out += 32)
        put_nibbles(out, e8m0_half(b[0]), b + 1, 32, fp4_values);
}

// Half of an unsigned e4m3 scale (bias 7). The top bit is ignored. The code 0x7f, which is NaN, gives zero.
static float ue4m3_half(uint8_t e)
{
    int exponent = e >> 3 & 15, mantissa = e & 7;
    if (e == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    uint32_t bits = (uint32_t)(exponent - 8 + 127) << 23 | (uint32_t)mantissa << 20;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

// 36 bytes: scales[4] | qs[32]. 16 elements, which are 8 bytes of qs, share a scale. x = scale e2m1[q]
void decode_nvfp4(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 64, b += 36)
        for (int s = 0; s < 4; s++, out += 16)
            put_nibbles(out, ue4m3_half(b[s]), b + 4 + 8 * s, 16, fp4_values);
}
