// The 8-bit matmul in plain C: it defines what every other level must give, bit for bit. The order of the floats is set down
// in kernels.h; here it is carried out, one output after another.
//
// Each type unpacks a block into whole numbers, its offset (8 in Q4_0, 32 in Q6_K ..) taken off. The layouts are described
// in gguf/dtype.c and gguf/dtype_iq.c, and written down here a second time on purpose: the tests hold the one against the
// other.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

#include <math.h>

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

// A block of 256: element i is d * scale[i / 16] * w[i] - m * min[i / 16]. |scale| <= 128, |w| <= 127.
struct block256 {
    int8_t w[256];
    int16_t scale[16], min[16];
    float d, m;
};

// A block of 32: element i is d * w[i] + m.
struct block32 {
    int8_t w[32];
    float d, m;
};

// ---- blocks of 256

// Two-bit field of element i in the 64 bytes of Q2_K and Q3_K.
static int two_bits(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
}

static void unpack_q2_k(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b + 80), o->m = load_f16(b + 82);
    for (int s = 0; s < 16; s++)
        o->scale[s] = b[s] & 15, o->min[s] = b[s] >> 4;
    for (int i = 0; i < 256; i++)
        o->w[i] = (int8_t)two_bits(b + 16, i);
}

static void unpack_q3_k(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b + 108), o->m = 0;
    for (int s = 0; s < 16; s++) {
        int low = b[96 + s % 8] >> s / 8 * 4 & 15, high = b[104 + s % 4] >> s / 4 * 2 & 3;
        o->scale[s] = (int16_t)((low | high << 4) - 32), o->min[s] = 0;
    }
    for (int i = 0; i < 256; i++)
        o->w[i] = (int8_t)(two_bits(b + 32, i) + (b[i % 32] >> i / 32 & 1) * 4 - 4);
}

// The eight scales and mins of Q4_K and Q5_K; each serves 32 elements.
static void unpack_k4_scales(const uint8_t *p, struct block256 *o)
{
    for (int s = 0; s < 16; s++) {
        int j = s / 2;
        int scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
        int min = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
        o->scale[s] = (int16_t)scale, o->min[s] = (int16_t)min;
    }
}

static void unpack_q4_k(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b), o->m = load_f16(b + 2);
    unpack_k4_scales(b + 4, o);
    for (int i = 0; i < 256; i++)
        o->w[i] = b[16 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
}

static void unpack_q5_k(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b), o->m = load_f16(b + 2);
    unpack_k4_scales(b + 4, o);
    for (int i = 0; i < 256; i++) {
        int low = b[48 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
        o->w[i] = (int8_t)(low | (b[16 + i % 32] >> i / 32 & 1) << 4);
    }
}

static void unpack_q6_k(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b + 208), o->m = 0;
    for (int s = 0; s < 16; s++)
        o->scale[s] = (int8_t)b[192 + s], o->min[s] = 0;
    for (int i = 0; i < 256; i++) {
        int low = b[i / 128 * 64 + i % 64] >> i / 64 % 2 * 4 & 15;
        int high = b[128 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
        o->w[i] = (int8_t)((low | high << 4) - 32);
    }
}

static void unpack_iq4_xs(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b), o->m = 0;
    for (int s = 0; s < 16; s++) {
        int j = s / 2;
        int scale = (b[4 + j / 2] >> j % 2 * 4 & 15) | (load_u16(b + 2) >> 2 * j & 3) << 4;
        o->scale[s] = (int16_t)(scale - 32), o->min[s] = 0;
    }
    for (int i = 0; i < 256; i++)
        o->w[i] = iq4_values[b[8 + i / 32 * 16 + i % 16] >> i / 16 % 2 * 4 & 15];
}

typedef void unpack256_fn(const uint8_t *block, struct block256 *out);

static float dot256(unpack256_fn *unpack, bool mins, size_t bytes, const uint8_t *w, const void *x, int64_t k)
{
    const int8_t *q = q8_quants(x);
    const int16_t *sums = q8_sums(x, k);
    const float *da = q8_scales(x, k);
    float d_sum = 0;
    for (int64_t i = 0; i < k / 256; i++) {
        struct block256 b;
        unpack(w + (size_t)i * bytes, &b);
        int32_t isum = 0, msum = 0;
        for (int s = 0; s < 16; s++) {
            int32_t dot = 0;
            for (int e = 16 * s; e < 16 * s + 16; e++)
                dot += b.w[e] * q[i * 256 + e];
            isum += b.scale[s] * dot;
            msum += b.min[s] * sums[i * 16 + s];
        }
        float s = (float)isum * b.d;
        if (mins)
            s = fmaf(-(float)msum, b.m, s);
        d_sum = fmaf(s, da[i], d_sum);
    }
    return d_sum;
}

// ---- blocks of 32

// Nibbles of 16 bytes: the low ones are elements 0-15.
static int nibble(const uint8_t *qs, int i)
{
    return qs[i % 16] >> i / 16 * 4 & 15;
}

static void unpack_q4_0(const uint8_t *b, struct block32 *o)
{
    o->d = load_f16(b);
    for (int i = 0; i < 32; i++)
        o->w[i] = (int8_t)(nibble(b + 2, i) - 8);
}

static void unpack_q4_1(const uint8_t *b, struct block32 *o)
{
    o->d = load_f16(b), o->m = load_f16(b + 2);
    for (int i = 0; i < 32; i++)
        o->w[i] = (int8_t)nibble(b + 4, i);
}

static void unpack_q5_0(const uint8_t *b, struct block32 *o)
{
    o->d = load_f16(b);
    for (int i = 0; i < 32; i++)
        o->w[i] = (int8_t)((nibble(b + 6, i) | (b[2 + i / 8] >> i % 8 & 1) << 4) - 16);
}

static void unpack_q5_1(const uint8_t *b, struct block32 *o)
{
    o->d = load_f16(b), o->m = load_f16(b + 2);
    for (int i = 0; i < 32; i++)
        o->w[i] = (int8_t)(nibble(b + 8, i) | (b[4 + i / 8] >> i % 8 & 1) << 4);
}

static void unpack_q8_0(const uint8_t *b, struct block32 *o)
{
    o->d = load_f16(b);
    memcpy(o->w, b + 2, 32);
}

static void unpack_iq4_nl(const uint8_t *b, struct block32 *o)
{
    o->d = load_f16(b);
    for (int i = 0; i < 32; i++)
        o->w[i] = iq4_values[nibble(b + 2, i)];
}

// The values are doubled, so the scale is half of 2^(e - 127).
static void unpack_mxfp4(const uint8_t *b, struct block32 *o)
{
    o->d = ldexpf(1, b[0] - 128);
    for (int i = 0; i < 32; i++)
        o->w[i] = fp4_values[nibble(b + 1, i)];
}

typedef void unpack32_fn(const uint8_t *block, struct block32 *out);

static float dot32(unpack32_fn *unpack, bool mins, size_t bytes, const uint8_t *w, const void *x, int64_t k)
{
    const int8_t *q = q8_quants(x);
    const int16_t *sums = q8_sums(x, k);
    const float *da = q8_scales(x, k);
    float d_sum = 0;
    for (int64_t i = 0; i < q8_blocks(k); i++) {
        float s = 0;
        for (int64_t j = i * 8; j < MIN(i * 8 + 8, k / 32); j++) {
            struct block32 b;
            unpack(w + (size_t)j * bytes, &b);
            int32_t isum = 0;
            for (int e = 0; e < 32; e++)
                isum += b.w[e] * q[j * 32 + e];
            s = fmaf((float)isum, b.d, s);
            if (mins)
                s = fmaf((float)(sums[2 * j] + sums[2 * j + 1]), b.m, s);
        }
        d_sum = fmaf(s, da[i], d_sum);
    }
    return d_sum;
}

// ---- the functions of the level

#define EACH_OUTPUT(a, DOT)                                                                                            \
    for (int j = 0; j < (a)->n_x; j++)                                                                                 \
        for (int r = 0; r < (a)->n_rows; r++) {                                                                        \
            const uint8_t *row = (const uint8_t *)(a)->w + (size_t)r * (a)->w_stride;                                  \
            (a)->y[j][r] = DOT;                                                                                        \
        }

#define MATMUL256(name, NAME, mins)                                                                                    \
    static void matmul_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        size_t bytes = (size_t)dtype_info[DT_##NAME].bytes;                                                            \
        EACH_OUTPUT(a, dot256(unpack_##name, mins, bytes, row, a->x[j], a->k))                                         \
    }

#define MATMUL32(name, NAME, mins)                                                                                     \
    static void matmul_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        size_t bytes = (size_t)dtype_info[DT_##NAME].bytes;                                                            \
        EACH_OUTPUT(a, dot32(unpack_##name, mins, bytes, row, a->x[j], a->k))                                          \
    }

// clang-format off
MATMUL256(q2_k, Q2_K, true)
MATMUL256(q3_k, Q3_K, false)
MATMUL256(q4_k, Q4_K, true)
MATMUL256(q5_k, Q5_K, true)
MATMUL256(q6_k, Q6_K, false)
MATMUL256(iq4_xs, IQ4_XS, false)
MATMUL32(q4_0, Q4_0, false)
MATMUL32(q4_1, Q4_1, true)
MATMUL32(q5_0, Q5_0, false)
MATMUL32(q5_1, Q5_1, true)
MATMUL32(q8_0, Q8_0, false)
MATMUL32(iq4_nl, IQ4_NL, false)
MATMUL32(mxfp4, MXFP4, false)

matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT] = {
    [DT_Q4_0] = matmul_q4_0,     [DT_Q4_1] = matmul_q4_1,     [DT_Q5_0] = matmul_q5_0,     [DT_Q5_1] = matmul_q5_1,
    [DT_Q8_0] = matmul_q8_0,     [DT_Q2_K] = matmul_q2_k,     [DT_Q3_K] = matmul_q3_k,     [DT_Q4_K] = matmul_q4_k,
    [DT_Q5_K] = matmul_q5_k,     [DT_Q6_K] = matmul_q6_k,     [DT_IQ4_NL] = matmul_iq4_nl, [DT_IQ4_XS] = matmul_iq4_xs,
    [DT_MXFP4] = matmul_mxfp4,
};
