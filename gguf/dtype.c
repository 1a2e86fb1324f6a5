// The table of tensor types and the decoders of floats, of the plain blocks and of the K-quants.
//
// Each decoder is headed by the layout of its block, as "bytes: field | field | ...". The order of the float
// operations is part of the format: a fast path that multiplies the scale of a sub-block in another order gives
// different bits. d and m are float16 unless stated otherwise. Nibbles and bits are counted from the low end of a
// byte.
#include "gguf/dtype_decode.h"

#include <strings.h>

const struct dtype_info dtype_info[DT_COUNT] = {
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = {#NAME, id, elements, bytes, DTYPE_KIND_##kind},
#include "gguf/dtype.def"
#undef DTYPE
};

// Integers are not weights and have no decoder.
#define decode_i8 NULL
#define decode_i16 NULL
#define decode_i32 NULL
#define decode_i64 NULL
dtype_decode_fn *const dtype_decode[DT_COUNT] = {
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = decode_##name,
#include "gguf/dtype.def"
#undef DTYPE
};

// Ids of types that a file may contain but that quern refuses.
static const struct refused_id {
    uint32_t id;
    const char *name;
    bool internal; // a working format of other engines, not meant for files
} refused[] = {
    {4, "Q4_2", false},        {5, "Q4_3", false},        {9, "Q8_1", true},       {15, "Q8_K", true},
    {31, "Q4_0_4_4", false},   {32, "Q4_0_4_8", false},   {33, "Q4_0_8_8", false}, {36, "IQ4_NL_4_4", false},
    {37, "IQ4_NL_4_8", false}, {38, "IQ4_NL_8_8", false},
};

static int refuse_id(uint32_t id, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        if (refused[i].id != id)
            continue;
        if (refused[i].internal)
            return fail(err, E_MODEL, "tensor type %u (%s) is for intermediate results and does not belong in a file",
                        id, refused[i].name);
        return fail(err, E_MODEL, "tensor type %u (%s) was removed from GGUF; convert the model again", id,
                    refused[i].name);
    }
    return fail(err, E_MODEL, "tensor type %u is unknown", id);
}

int dtype_from_id(uint32_t id, enum dtype *out, struct error *err)
{
    for (int t = 0; t < DT_COUNT; t++) {
        if (dtype_info[t].id == id) {
            *out = (enum dtype)t;
            return 0;
        }
    }
    return refuse_id(id, err);
}

int dtype_from_name(struct str name, enum dtype *out)
{
    for (int t = 0; t < DT_COUNT; t++) {
        const char *have = dtype_info[t].name;
        if (strlen(have) == name.len && strncasecmp(have, name.data, name.len) == 0) {
            *out = (enum dtype)t;
            return 0;
        }
    }
    return -1;
}

static float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t bits_from_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

// A half has 1 sign bit, 5 exponent bits (bias 15) and 10 mantissa bits. Every half is a float, so nothing is rounded.
float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;
    if (magnitude > 0x7c00) // NaN keeps its payload, and becomes quiet
        return float_from_bits(sign | 0x7fc00000 | magnitude << 13);
    if (magnitude == 0x7c00)
        return float_from_bits(sign | 0x7f800000);
    if (magnitude < 0x0400) // zero or subnormal: a multiple of 2^-24
        return float_from_bits(sign | bits_from_float((float)magnitude * 0x1p-24f));
    return float_from_bits(sign | (magnitude + ((127 - 15) << 10)) << 13);
}

uint16_t f32_to_f16(float f)
{
    uint32_t bits = bits_from_float(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) // 2^16 and above; from 65520 to 2^16 the carry below gives infinity
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { // below 2^-14: the last place of a sum with 0.5 is 2^-24, as in a subnormal half
        float sum = float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_from_float(sum) - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1); // half a unit, minus 1 when even: to nearest, ties to even
    return (uint16_t)(sign | ((magnitude >> 13) - ((127 - 15) << 10)));
}

uint16_t f32_to_bf16(float f)
{
    uint32_t bits = bits_from_float(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void decode_f32(const void *blocks, float *out, int64_t n)
{
    memcpy(out, blocks, (size_t)n * sizeof(float));
}

void decode_f16(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++)
        out[i] = load_f16(b + 2 * i);
}

void decode_bf16(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_to_f32(load_u16(b + 2 * i));
}

void decode_f64(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++) {
        double x;
        memcpy(&x, b + 8 * i, sizeof(x));
        out[i] = (float)x;
    }
}

// 18 bytes: d | qs[16]. Low nibbles are elements 0-15, high ones 16-31. x = d (q - 8)
void decode_q4_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 18, out += 32) {
        float d = load_f16(b);
        const uint8_t *qs = b + 2;
        for (int i = 0; i < 16; i++) {
            out[i] = (float)((qs[i] & 15) - 8) * d;
            out[i + 16] = (float)((qs[i] >> 4) - 8) * d;
        }
    }
}

// 20 bytes: d | m | qs[16], nibbles as in Q4_0. x = d q + m
void decode_q4_1(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 20, out += 32) {
        float d = load_f16(b), m = load_f16(b + 2);
        const uint8_t *qs = b + 4;
        for (int i = 0; i < 16; i++) {
            out[i] = (float)(qs[i] & 15) * d + m;
            out[i + 16] = (float)(qs[i] >> 4) * d + m;
        }
    }
}

// 22 bytes: d | qh[4] | qs[16], nibbles as in Q4_0; bit i of qh, a 32-bit word, is the fifth bit of element i.
// x = d (q - 16)
void decode_q5_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 22, out += 32) {
        float d = load_f16(b);
        uint32_t qh = load_u32(b + 2);
        const uint8_t *qs = b + 6;
        for (int i = 0; i < 16; i++) {
            int lo = (qs[i] & 15) | (int)(qh >> i & 1) << 4;
            int hi = qs[i] >> 4 | (int)(qh >> (i + 16) & 1) << 4;
            out[i] = (float)(lo - 16) * d;
            out[i + 16] = (float)(hi - 16) * d;
        }
    }
}

// 24 bytes: d | m | qh[4] | qs[16], bits as in Q5_0. x = d q + m
void decode_q5_1(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 24, out += 32) {
        float d = load_f16(b), m = load_f16(b + 2);
        uint32_t qh = load_u32(b + 4);
        const uint8_t *qs = b + 8;
        for (int i = 0; i < 16; i++) {
            int lo = (qs[i] & 15) | (int)(qh >> i & 1) << 4;
            int hi = qs[i] >> 4 | (int)(qh >> (i + 16) & 1) << 4;
            out[i] = (float)lo * d + m;
            out[i + 16] = (float)hi * d + m;
        }
    }
}

// 34 bytes: d | int8 qs[32]. x = d q
void decode_q8_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 34, out += 32) {
        float d = load_f16(b);
        for (int i = 0; i < 32; i++)
            out[i] = (float)(int8_t)b[2 + i] * d;
    }
}

// 18 bytes: d | qs[16], one bit per element. x = d or -d
void decode_q1_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 128, b += 18, out += 128) {
        float d = load_f16(b);
        for (int i = 0; i < 128; i++)
            out[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
    }
}

// 18 bytes: d | qs[16], two bits per element, four successive elements in a byte. x = d (q - 1)
void decode_q2_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 64, b += 18, out += 64) {
        float d = load_f16(b);
        for (int i = 0; i < 64; i++)
            out[i] = (float)((b[2 + i / 4] >> i % 4 * 2 & 3) - 1) * d;
    }
}

// Q2_K and Q3_K store two bits of each element in qs[64]. Sub-block s of 16 elements (s from 0 to 15) is bit pair
// s/2%4 of the 16 bytes that this function returns. A byte therefore holds elements that are 32 apart.
static const uint8_t *sub_block_2_bits(const uint8_t *qs, int s, int *shift)
{
    *shift = s / 2 % 4 * 2;
    return qs + s / 8 * 32 + s % 2 * 16;
}

// 84 bytes: scales[16] | qs[64] | d | dmin. The low nibble of scales[s] is the scale, the high one the min.
// x = (d scale) q - dmin min
void decode_q2_k(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 84) {
        float d = load_f16(b + 80), dmin = load_f16(b + 82);
        for (int s = 0; s < 16; s++, out += 16) {
            int shift;
            const uint8_t *q = sub_block_2_bits(b + 16, s, &shift);
            float scale = d * (float)(b[s] & 15), min = dmin * (float)(b[s] >> 4);
            for (int i = 0; i < 16; i++)
                out[i] = scale * (float)(q[i] >> shift & 3) - min;
        }
    }
}

// Scale s of sixteen, of six bits each in 12 bytes: the low four bits are in the nibbles of bytes 0-7, the high two
// in the bit pairs of bytes 8-11.
static int q3_k_scale(const uint8_t *p, int s)
{
    int lo = p[s % 8] >> s / 8 * 4 & 15;
    int hi = p[8 + s % 4] >> s / 4 * 2 & 3;
    return (lo | hi << 4) - 32;
}

// 110 bytes: hmask[32] | qs[64] | scales[12] | d. The high bit of q is bit s/2 of the bytes of hmask: the first 16
// bytes for even s, the others for odd s. x = (d scale) (q - 4)
void decode_q3_k(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 110) {
        float d = load_f16(b + 108);
        for (int s = 0; s < 16; s++, out += 16) {
            int shift;
            const uint8_t *q = sub_block_2_bits(b + 32, s, &shift);
            const uint8_t *high = b + s % 2 * 16;
            float scale = d * (float)q3_k_scale(b + 96, s);
            for (int i = 0; i < 16; i++)
                out[i] = scale * (float)((q[i] >> shift & 3) + (high[i] >> s / 2 & 1) * 4 - 4);
        }
    }
}

// Pair s of eight scales and mins, of six bits each in 12 bytes. The first four pairs are the low six bits of bytes
// 0-3 (scale) and 4-7 (min). For the other pairs, bytes 8-11 hold the low four bits of scale and min in their
// nibbles, and the top two bits of bytes 0-3 and 4-7 are the high two bits.
static void q4_k_scale_min(const uint8_t *p, int s, int *scale, int *min)
{
    if (s < 4) {
        *scale = p[s] & 63;
        *min = p[s + 4] & 63;
    } else {
        *scale = (p[s + 4] & 15) | p[s - 4] >> 6 << 4;
        *min = p[s + 4] >> 4 | p[s] >> 6 << 4;
    }
}

// 144 bytes: d | dmin | scales[12] | qs[128]. Sub-block s of 32 elements is the low nibbles (even s) or the high
// nibbles (odd s) of the 32 bytes from qs + s/2*32. x = (d scale) q - dmin min
void decode_q4_k(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 144) {
        float d = load_f16(b), dmin = load_f16(b + 2);
        for (int s = 0; s < 8; s++, out += 32) {
            int scale, min;
            q4_k_scale_min(b + 4, s, &scale, &min);
            const uint8_t *q = b + 16 + s / 2 * 32;
            float ds = d * (float)scale, dm = dmin * (float)min;
            for (int i = 0; i < 32; i++)
                out[i] = ds * (float)(q[i] >> s % 2 * 4 & 15) - dm;
        }
    }
}

// 176 bytes: d | dmin | scales[12] | qh[32] | qs[128], as Q4_K; bit s of qh[i] is the fifth bit of element i of
// sub-block s.
void decode_q5_k(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 176) {
        float d = load_f16(b), dmin = load_f16(b + 2);
        const uint8_t *qh = b + 16;
        for (int s = 0; s < 8; s++, out += 32) {
            int scale, min;
            q4_k_scale_min(b + 4, s, &scale, &min);
            const uint8_t *q = b + 48 + s / 2 * 32;
            float ds = d * (float)scale, dm = dmin * (float)min;
            for (int i = 0; i < 32; i++)
                out[i] = ds * (float)((q[i] >> s % 2 * 4 & 15) + (qh[i] >> s & 1) * 16) - dm;
        }
    }
}

// 210 bytes: ql[128] | qh[64] | int8 scales[16] | d. Each half of 128 elements has 64 bytes of ql and 32 of qh.
// Quarters k = 0 to 3 of a half, of 32 elements, are the low, low, high and high nibbles of the bytes from ql + 0,
// 32, 0 and 32, with bit pair k of qh as the high bits. Each 16 elements have a scale. x = (d scale) (q - 32)
void decode_q6_k(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 210) {
        float d = load_f16(b + 208);
        for (int s = 0; s < 16; s++, out += 16) {
            int half = s / 8, k = s / 2 % 4, at = s % 2 * 16;
            const uint8_t *ql = b + half * 64 + k % 2 * 32 + at;
            const uint8_t *qh = b + 128 + half * 32 + at;
            float scale = d * (float)(int8_t)b[192 + s];
            for (int i = 0; i < 16; i++) {
                int q = (ql[i] >> k / 2 * 4 & 15) | (qh[i] >> k * 2 & 3) << 4;
                out[i] = scale * (float)(q - 32);
            }
        }
    }
}
