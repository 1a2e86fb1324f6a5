// Decodes every tensor type of weights to float32. The results have the same bits as those of gguf/dtype.c and
// gguf/dtype_iq.c, which also describe the layouts of the blocks.
//
// Those files unpack one element at a time. Here a block is decoded 16 elements at a time. Their bits are unpacked to a
// vector of 16 signed bytes. The bytes are converted to floats and multiplied by the scale, with the same float
// operations in the same order.
//
// The file is compiled once for each ISA level. In the names of variables, b is the current block, d its scale, s the
// number of a part of the block with its own scale, and x the place of the next elements in the output.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/vec.h"

typedef uint8_t bytes __attribute__((vector_size(16)));
typedef uint64_t words __attribute__((vector_size(16)));

#ifdef __clang__
#define BYTES_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define BYTES_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (bytes){__VA_ARGS__})
#endif

// ---- 16 bytes

INLINE bytes bytes_load(const void *p)
{
    bytes b;
    memcpy(&b, p, sizeof(b));
    return b;
}

INLINE uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

// Byte i of the result is 0xff if bit i of `bits` is set, else 0. Only the low 16 bits of `bits` are read.
INLINE bytes bytes_of_bits(uint32_t bits)
{
    words spread = {(bits & 255) * 0x0101010101010101u, (bits >> 8 & 255) * 0x0101010101010101u};
    bytes bit = (bytes)(words){0x8040201008040201, 0x8040201008040201};
    return (bytes)(((bytes)spread & bit) == bit);
}

// Byte i of the result is table[index[i]]. The indices must be below 16.
INLINE bytes bytes_lookup(bytes table, bytes index)
{
#if defined(VEC_AVX512) || defined(VEC_AVX2)
    return (bytes)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
#elif defined(VEC_NEON)
    return (bytes)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)index);
#else
    bytes out;
    for (int i = 0; i < 16; i++)
        out[i] = table[index[i]];
    return out;
#endif
}

// Converts 16 signed bytes to floats.
INLINE struct lanes bytes_to_lanes(bytes b)
{
    struct lanes x;
#if defined(VEC_AVX512)
    x.part[0] = (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)b));
#else
    int8_t each[16];
    memcpy(each, &b, sizeof(each));
    UNROLL_FOR (int p = 0; p < PARTS; p++)
        x.part[p] = vec_from_i8(each + p * VEC);
#endif
    return x;
}

// ---- 16 elements: the bytes of q are signed

// Stores q * scale.
INLINE void put(float *x, bytes q, float scale)
{
    struct lanes v = bytes_to_lanes(q);
    UNROLL_FOR (int p = 0; p < PARTS; p++)
        vec_store(x + p * VEC, v.part[p] * scale);
}

// Stores q * scale + plus.
INLINE void put_plus(float *x, bytes q, float scale, float plus)
{
    struct lanes v = bytes_to_lanes(q);
    UNROLL_FOR (int p = 0; p < PARTS; p++)
        vec_store(x + p * VEC, v.part[p] * scale + plus);
}

// Stores (q / 8) * scale. The division by 8 is exact.
INLINE void put_eighths(float *x, bytes q, float scale)
{
    struct lanes v = bytes_to_lanes(q);
    UNROLL_FOR (int p = 0; p < PARTS; p++)
        vec_store(x + p * VEC, v.part[p] * 0.125f * scale);
}

// ---- plain floats

static void decode_f32(const void *blocks, float *x, int64_t n)
{
    memcpy(x, blocks, (size_t)n * sizeof(float));
}

// Converts from a type of 16 bits. `from` loads and converts one vector. The last n % VEC elements are converted from a
// padded copy.
INLINE void decode_16(vec (*from)(const void *), const void *blocks, float *x, int64_t n)
{
    const char *b = blocks;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, from(b + 2 * i));
    if (i < n) {
        uint16_t tail[VEC] = {0};
        memcpy(tail, b + 2 * i, (size_t)(n - i) * 2);
        vec_store_n(x + i, from(tail), n - i);
    }
}

static void decode_f16(const void *blocks, float *x, int64_t n)
{
    decode_16(vec_from_f16, blocks, x, n);
}

static void decode_bf16(const void *blocks, float *x, int64_t n)
{
    decode_16(vec_from_bf16, blocks, x, n);
}

static void decode_f64(const void *blocks, float *x, int64_t n)
{
    dtype_decode[DT_F64](blocks, x, n);
}

// ---- small blocks

static void decode_q4_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 18, x += 32) {
        float d = half_load(b);
        bytes qs = bytes_load(b + 2);
        put(x, (qs & 15) - 8, d);
        put(x + 16, (qs >> 4) - 8, d);
    }
}

static void decode_q4_1(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 20, x += 32) {
        float d = half_load(b), m = half_load(b + 2);
        bytes qs = bytes_load(b + 4);
        put_plus(x, qs & 15, d, m);
        put_plus(x + 16, qs >> 4, d, m);
    }
}

static void decode_q5_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 22, x += 32) {
        float d = half_load(b);
        uint32_t qh = load_u32(b + 2);
        bytes qs = bytes_load(b + 6);
        put(x, (qs & 15) - (~bytes_of_bits(qh) & 16), d);
        put(x + 16, (qs >> 4) - (~bytes_of_bits(qh >> 16) & 16), d);
    }
}

static void decode_q5_1(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 24, x += 32) {
        float d = half_load(b), m = half_load(b + 2);
        uint32_t qh = load_u32(b + 4);
        bytes qs = bytes_load(b + 8);
        put_plus(x, (qs & 15) | (bytes_of_bits(qh) & 16), d, m);
        put_plus(x + 16, (qs >> 4) | (bytes_of_bits(qh >> 16) & 16), d, m);
    }
}

static void decode_q8_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 34, x += 32) {
        float d = half_load(b);
        put(x, bytes_load(b + 2), d);
        put(x + 16, bytes_load(b + 18), d);
    }
}

static void decode_q1_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 128, b += 18) {
        float d = half_load(b);
        for (int i = 2; i < 18; i += 2, x += 16)
            put(x, (bytes_of_bits(load_u16(b + i)) & 2) - 1, d);
    }
}

// Each byte has the 2-bit values of four consecutive elements. These are separated into four vectors: q0 has elements
// 0, 4, 8, .., q1 has elements 1, 5, 9, .., and so on. Two rounds of interleaving put the elements in order.
static void decode_q2_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 64, b += 18, x += 64) {
        float d = half_load(b);
        bytes qs = bytes_load(b + 2), q0 = qs & 3, q1 = qs >> 2 & 3, q2 = qs >> 4 & 3, q3 = qs >> 6;
        bytes lo01 = BYTES_SHUFFLE(q0, q1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        bytes hi01 = BYTES_SHUFFLE(q0, q1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        bytes lo23 = BYTES_SHUFFLE(q2, q3, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        bytes hi23 = BYTES_SHUFFLE(q2, q3, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        put(x, BYTES_SHUFFLE(lo01, lo23, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23) - 1, d);
        put(x + 16, BYTES_SHUFFLE(lo01, lo23, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31) - 1, d);
        put(x + 32, BYTES_SHUFFLE(hi01, hi23, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23) - 1, d);
        put(x + 48, BYTES_SHUFFLE(hi01, hi23, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31) - 1, d);
    }
}

// ---- K-quants

static void decode_q2_k(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 84) {
        float d = half_load(b + 80), dmin = half_load(b + 82);
        UNROLL_FOR (int s = 0; s < 16; s++, x += 16) {
            bytes qs = bytes_load(b + 16 + s / 8 * 32 + s % 2 * 16);
            float scale = d * (float)(b[s] & 15), min = dmin * (float)(b[s] >> 4);
            put_plus(x, qs >> s / 2 % 4 * 2 & 3, scale, -min);
        }
    }
}

// Scale s of the 16 scales of Q3_K, which have 6 bits each in 12 bytes, minus its offset of 32.
static int q3_k_scale(const uint8_t *p, int s)
{
    int lo = p[s % 8] >> s / 8 * 4 & 15;
    int hi = p[8 + s % 4] >> s / 4 * 2 & 3;
    return (lo | hi << 4) - 32;
}

static void decode_q3_k(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 110) {
        float d = half_load(b + 108);
        UNROLL_FOR (int s = 0; s < 16; s++, x += 16) {
            bytes low = bytes_load(b + 32 + s / 8 * 32 + s % 2 * 16) >> s / 2 % 4 * 2 & 3;
            bytes high = (bytes_load(b + s % 2 * 16) >> s / 2 & 1) << 2;
            put(x, (low | high) - 4, d * (float)q3_k_scale(b + 96, s));
        }
    }
}

// Scale and minimum s of the eight of Q4_K and Q5_K, which have 6 bits each in 12 bytes.
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

static void decode_q4_k(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 144) {
        float d = half_load(b), dmin = half_load(b + 2);
        UNROLL_FOR (int s = 0; s < 8; s++, x += 32) {
            int scale, min;
            q4_k_scale_min(b + 4, s, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            for (int i = 0; i < 32; i += 16)
                put_plus(x + i, bytes_load(b + 16 + s / 2 * 32 + i) >> s % 2 * 4 & 15, ds, -dm);
        }
    }
}

static void decode_q5_k(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 176) {
        float d = half_load(b), dmin = half_load(b + 2);
        UNROLL_FOR (int s = 0; s < 8; s++, x += 32) {
            int scale, min;
            q4_k_scale_min(b + 4, s, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            for (int i = 0; i < 32; i += 16) {
                bytes low = bytes_load(b + 48 + s / 2 * 32 + i) >> s % 2 * 4 & 15;
                put_plus(x + i, low | (bytes_load(b + 16 + i) >> s & 1) << 4, ds, -dm);
            }
        }
    }
}

static void decode_q6_k(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 210) {
        float d = half_load(b + 208);
        UNROLL_FOR (int s = 0; s < 16; s++, x += 16) {
            int half = s / 8, k = s / 2 % 4, at = s % 2 * 16;
            bytes low = bytes_load(b + half * 64 + k % 2 * 32 + at) >> k / 2 * 4 & 15;
            bytes high = (bytes_load(b + 128 + half * 32 + at) >> k * 2 & 3) << 4;
            put(x, (low | high) - 32, d * (float)(int8_t)b[192 + s]);
        }
    }
}

// ---- nibbles that index a table of values

// Stores 32 elements, values[nibble] * scale. The low nibbles of 16 bytes belong to elements 0 to 15, the high ones to
// elements 16 to 31.
INLINE void put_nibbles(float *x, float scale, const uint8_t *qs, const int8_t values[16])
{
    bytes table = bytes_load(values), q = bytes_load(qs);
    put(x, bytes_lookup(table, q & 15), scale);
    put(x + 16, bytes_lookup(table, q >> 4), scale);
}

static void decode_iq4_nl(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 18, x += 32)
        put_nibbles(x, half_load(b), b + 2, iq4_values);
}

static void decode_iq4_xs(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 136) {
        float d = half_load(b);
        uint32_t scales_h = load_u16(b + 2), scales_l = load_u32(b + 4);
        for (int s = 0; s < 8; s++, x += 32) {
            int scale = (int)((scales_l >> 4 * s & 15) | (scales_h >> 2 * s & 3) << 4);
            put_nibbles(x, d * (float)(scale - 32), b + 8 + 16 * s, iq4_values);
        }
    }
}

// Half of the e8m0 scale 2^(e - 127). It is half because fp4_values are twice the values of the format. The result is
// subnormal for e < 2.
static float e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static void decode_mxfp4(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 32, b += 17, x += 32)
        put_nibbles(x, e8m0_half(b[0]), b + 1, fp4_values);
}

// Half of an unsigned e4m3 number (4 bits of exponent, 3 of mantissa), for the same reason. 0x7f means 0.
static float ue4m3_half(uint8_t e)
{
    int exponent = e >> 3 & 15, mantissa = e & 7;
    if (e == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    return (float)(8 + mantissa) * e8m0_half((uint8_t)(exponent - 7 - 3 + 127));
}

static void decode_nvfp4(const void *blocks, float *x, int64_t n)
{
    const uint64_t nibble = 0x0f0f0f0f0f0f0f0f;
    for (const uint8_t *b = blocks; n > 0; n -= 64, b += 36) {
        for (int s = 0; s < 4; s++, x += 16) {
            uint64_t qs = load_u64(b + 4 + 8 * s);
            words q = {qs & nibble, qs >> 4 & nibble};
            put(x, bytes_lookup(bytes_load(fp4_values), (bytes)q), ue4m3_half(b[s]));
        }
    }
}

// ---- ternary

// The first digits after the point of the 16 fractions rest / 256 in base 3. A digit is what a multiplication of the
// byte by 3 carries out of its 8 bits: 3 * rest is at least 256 if rest > 85, and at least 512 if rest > 170. To get
// digit k of a byte, the caller first multiplies it by 3^k modulo 256, which drops the k digits before it.
INLINE bytes ternary(bytes rest)
{
    return -(bytes)(rest > 85) - (bytes)(rest > 170);
}

// Stores 5 * n elements from n bytes of five digits each. Digit k of byte i is element k * n + i. n is a multiple of
// 16. Returns the place behind the elements.
static float *put_ternary(float *x, const uint8_t *b, int n, float d)
{
    for (int k = 0, power = 1; k < 5; k++, power *= 3)
        for (int i = 0; i < n; i += 16, x += 16)
            put(x, ternary(bytes_load(b + i) * (uint8_t)power) - 1, d);
    return x;
}

static void decode_tq1_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 54, x += 16) {
        float d = half_load(b + 52);
        x = put_ternary(x, b, 32, d);
        x = put_ternary(x, b + 32, 16, d);
        uint8_t last[16];
        for (int i = 0; i < 16; i++)
            last[i] = (uint8_t)(b[48 + i % 4] * (const uint8_t[]){1, 3, 9, 27}[i / 4]);
        put(x, ternary(bytes_load(last)) - 1, d);
    }
}

static void decode_tq2_0(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 66) {
        float d = half_load(b + 64);
        UNROLL_FOR (int s = 0; s < 16; s++, x += 16)
            put(x, (bytes_load(b + s / 8 * 32 + s % 2 * 16) >> s / 2 % 4 * 2 & 3) - 1, d);
    }
}

// ---- codebooks

// Stores 16 elements: two codebook entries of eight magnitudes each, times scale. Element i is negative if bit i of
// `signs` is set. Its byte of `negative` is then -1, and (q ^ -1) - -1 is -q.
INLINE void put_grids(float *x, uint64_t first, uint64_t second, uint32_t signs, float scale)
{
    bytes negative = bytes_of_bits(signs), q = (bytes)(words){first, second};
    put(x, (q ^ negative) - negative, scale);
}

static void decode_iq2_xxs(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 66) {
        float d = half_load(b);
        for (const uint8_t *s = b + 2; s < b + 66; s += 8, x += 32) {
            uint32_t word = load_u32(s + 4);
            float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
            for (int k = 0; k < 4; k += 2) {
                uint32_t signs = iq_signs(word >> 7 * k & 127) | (uint32_t)iq_signs(word >> (7 * k + 7) & 127) << 8;
                put_grids(x + 8 * k, iq2_xxs_grid[s[k]], iq2_xxs_grid[s[k + 1]], signs, scale);
            }
        }
    }
}

static void decode_iq2_xs(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 74) {
        float d = half_load(b);
        for (int s = 0; s < 16; s++, x += 16) {
            uint16_t q0 = load_u16(b + 2 + 4 * s), q1 = load_u16(b + 4 + 4 * s);
            int scale = b[66 + s / 2] >> s % 2 * 4 & 15;
            uint32_t signs = iq_signs(q0 >> 9) | (uint32_t)iq_signs(q1 >> 9) << 8;
            put_grids(x, iq2_xs_grid[q0 & 511], iq2_xs_grid[q1 & 511], signs, d * (0.5f + (float)scale) * 0.25f);
        }
    }
}

static void decode_iq2_s(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 82) {
        float d = half_load(b);
        for (int s = 0; s < 16; s++, x += 16) {
            int high = b[66 + s / 2] >> s % 2 * 4, scale = b[74 + s / 2] >> s % 2 * 4 & 15;
            int first = b[2 + 2 * s] | (high & 3) << 8, second = b[3 + 2 * s] | (high >> 2 & 3) << 8;
            put_grids(x, iq2_s_grid[first], iq2_s_grid[second], load_u16(b + 34 + 2 * s),
                      d * (0.5f + (float)scale) * 0.25f);
        }
    }
}

// Joins two codebook entries of four magnitudes to one of eight.
INLINE uint64_t grid_pair(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

static void decode_iq3_xxs(const void *blocks, float *x, int64_t n)
{
    const uint32_t *grid = iq3_xxs_grid;
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 98) {
        float d = half_load(b);
        for (int s = 0; s < 16; s++, x += 16) {
            uint32_t word = load_u32(b + 66 + s / 2 * 4), seven = word >> s % 2 * 14;
            const uint8_t *q = b + 2 + 4 * s;
            put_grids(x, grid_pair(grid[q[0]], grid[q[1]]), grid_pair(grid[q[2]], grid[q[3]]),
                      iq_signs(seven & 127) | (uint32_t)iq_signs(seven >> 7 & 127) << 8,
                      d * (0.5f + (float)(word >> 28)) * 0.5f);
        }
    }
}

static void decode_iq3_s(const void *blocks, float *x, int64_t n)
{
    const uint32_t *grid = iq3_s_grid;
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 110) {
        float d = half_load(b);
        for (int s = 0; s < 16; s++, x += 16) {
            const uint8_t *q = b + 2 + 4 * s;
            uint32_t high = (uint32_t)b[66 + s / 2] >> s % 2 * 4;
            int scale = b[106 + s / 4] >> s / 2 % 2 * 4 & 15;
            put_grids(x, grid_pair(grid[q[0] | (high & 1) << 8], grid[q[1] | (high & 2) << 7]),
                      grid_pair(grid[q[2] | (high & 4) << 6], grid[q[3] | (high & 8) << 5]), load_u16(b + 74 + 2 * s),
                      d * (float)(1 + 2 * scale));
        }
    }
}

// Stores 16 elements: two codebook entries of IQ1, of eight values -1, 0 or 1 each, times scale. All values of an entry
// are shifted by -1/8 if its `down` is true, else by 1/8. In eighths, an element is 8 * value - 1 or 8 * value + 1.
INLINE void put_iq1_grids(float *x, uint64_t first, bool first_down, uint64_t second, bool second_down, float scale)
{
    const uint64_t up = 0x0101010101010101;
    bytes move = (bytes)(words){first_down ? ~UINT64_C(0) : up, second_down ? ~UINT64_C(0) : up};
    put_eighths(x, ((bytes)(words){first, second} << 3) + move, scale);
}

static void decode_iq1_s(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 50) {
        float d = half_load(b);
        for (int s = 0; s < 16; s++, x += 16) {
            int qh = load_u16(b + 34 + s / 2 * 2), high = qh >> s % 2 * 6;
            int first = b[2 + 2 * s] | (high & 7) << 8, second = b[3 + 2 * s] | (high >> 3 & 7) << 8;
            put_iq1_grids(x, iq1_grid[first], qh >> 15, iq1_grid[second], qh >> 15,
                          d * (float)(2 * (qh >> 12 & 7) + 1));
        }
    }
}

static void decode_iq1_m(const void *blocks, float *x, int64_t n)
{
    for (const uint8_t *b = blocks; n > 0; n -= 256, b += 56) {
        uint64_t scales = load_u64(b + 48);
        uint16_t d_bits =
            (uint16_t)((scales >> 12 & 15) | (scales >> 24 & 0xf0) | (scales >> 36 & 0xf00) | (scales >> 48 & 0xf000));
        float d = half_load(&d_bits);
        for (int s = 0; s < 16; s++, x += 16) {
            int high = b[32 + s], scale = (int)(scales >> (s / 4 * 16 + s % 4 * 3) & 7);
            int first = b[2 * s] | (high & 7) << 8, second = b[2 * s + 1] | (high >> 4 & 7) << 8;
            put_iq1_grids(x, iq1_grid[first], high >> 3 & 1, iq1_grid[second], high >> 7, d * (float)(2 * scale + 1));
        }
    }
}

// Weights never have integer types, so these types have no decoder.
#define decode_i8 NULL
#define decode_i16 NULL
#define decode_i32 NULL
#define decode_i64 NULL
dtype_decode_fn *const ISA_FN(decode_table)[DT_COUNT] = {
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = decode_##name,
#include "gguf/dtype.def"
#undef DTYPE
};
