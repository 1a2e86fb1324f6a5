// The 8-bit matmul in plain C: it defines what every other level must give, bit for bit. The order of the floats is
// set down in kernels.h; here it is carried out, row by row: 256 elements are unpacked once, and each column adds its
// product of them to its sum.
//
// Each type unpacks a block into whole numbers, its offset (8 in Q4_0, 32 in Q6_K ..) taken off. The layouts are described
// in gguf/dtype.c and gguf/dtype_iq.c, and written down here a second time on purpose: the tests hold the one against the
// other.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

#include <math.h>

// Each type has its own copy of these, in which its unpacking is no call.
#define FOR_EACH_TYPE static inline __attribute__((always_inline))

enum { TOGETHER = 32 }; // columns

// 256 elements from 256 * i on, of a row of k and n columns.
struct span {
    const uint8_t *row;
    const void *const *x;
    int n;
    int64_t k, i;
};

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

// ---- blocks of 256 with a codebook: its magnitudes with their signs, and odd scales 2s + 1, so that d takes a half
// (and what else the format divides by) with it

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

// Eight elements from 8k on.
static void put_group(struct block256 *o, int k, uint64_t grid, uint8_t signs)
{
    for (int i = 0; i < 8; i++) {
        int w = (int)(grid >> 8 * i & 255);
        o->w[8 * k + i] = (int8_t)(signs >> i & 1 ? -w : w);
    }
}

// Of the 16 elements from 16j on: 2s + 1.
static void put_odd_scale(struct block256 *o, int j, int s)
{
    o->scale[j] = (int16_t)(2 * s + 1), o->min[j] = 0;
}

// Nibble i of bytes.
static int nibble_at(const uint8_t *p, int i)
{
    return p[i / 2] >> i % 2 * 4 & 15;
}

static uint64_t two_entries(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

static void unpack_iq2_xxs(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b) * 0.125f, o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, b[2 + j / 2 * 8 + 7] >> 4);
    for (int k = 0; k < 32; k++) {
        const uint8_t *run = b + 2 + k / 4 * 8;
        put_group(o, k, iq2_xxs_grid[run[k % 4]], iq_signs(load_u32(run + 4) >> k % 4 * 7 & 127));
    }
}

static void unpack_iq2_xs(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b) * 0.125f, o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, nibble_at(b + 66, j));
    for (int k = 0; k < 32; k++) {
        uint16_t q = load_u16(b + 2 + 2 * k);
        put_group(o, k, iq2_xs_grid[q & 511], iq_signs(q >> 9));
    }
}

static void unpack_iq2_s(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b) * 0.125f, o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, nibble_at(b + 74, j));
    for (int k = 0; k < 32; k++)
        put_group(o, k, iq2_s_grid[b[2 + k] | (b[66 + k / 4] >> k % 4 * 2 & 3) << 8], b[34 + k]);
}

static void unpack_iq3_xxs(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b) * 0.25f, o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, b[66 + j / 2 * 4 + 3] >> 4);
    for (int k = 0; k < 32; k++)
        put_group(o, k, two_entries(iq3_xxs_grid[b[2 + 2 * k]], iq3_xxs_grid[b[3 + 2 * k]]),
                  iq_signs(load_u32(b + 66 + k / 4 * 4) >> k % 4 * 7 & 127));
}

// Index i of 4 elements, with its ninth bit.
static int index_iq3_s(const uint8_t *b, int i)
{
    return b[2 + i] | (b[66 + i / 8] >> i % 8 & 1) << 8;
}

static void unpack_iq3_s(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b), o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, nibble_at(b + 106, j / 2));
    for (int k = 0; k < 32; k++)
        put_group(o, k, two_entries(iq3_s_grid[index_iq3_s(b, 2 * k)], iq3_s_grid[index_iq3_s(b, 2 * k + 1)]),
                  b[74 + k]);
}

// In eighths: a value of the grid is 8 of them, and the shift one.
static void put_group_iq1(struct block256 *o, int k, uint64_t grid, bool down)
{
    for (int i = 0; i < 8; i++)
        o->w[8 * k + i] = (int8_t)(8 * (int8_t)(grid >> 8 * i) + (down ? -1 : 1));
}

static void unpack_iq1_s(const uint8_t *b, struct block256 *o)
{
    o->d = load_f16(b) * 0.125f, o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, load_u16(b + 34 + j / 2 * 2) >> 12 & 7);
    for (int k = 0; k < 32; k++) {
        uint16_t high = load_u16(b + 34 + k / 4 * 2);
        put_group_iq1(o, k, iq1_grid[b[2 + k] | (high >> k % 4 * 3 & 7) << 8], high >> 15);
    }
}

static void unpack_iq1_m(const uint8_t *b, struct block256 *o)
{
    uint16_t d = 0;
    for (int i = 0; i < 4; i++)
        d = (uint16_t)(d | b[49 + 2 * i] >> 4 << 4 * i);
    o->d = f16_to_f32(d) * 0.125f, o->m = 0;
    for (int j = 0; j < 16; j++)
        put_odd_scale(o, j, load_u16(b + 48 + j / 4 * 2) >> j % 4 * 3 & 7);
    for (int k = 0; k < 32; k++) {
        int high = nibble_at(b + 32, k);
        put_group_iq1(o, k, iq1_grid[b[k] | (high & 7) << 8], high >> 3);
    }
}

// ---- blocks of 256 of -1, 0 and 1, without scales of their parts

static void put_ones(struct block256 *o)
{
    for (int j = 0; j < 16; j++)
        o->scale[j] = 1, o->min[j] = 0;
    o->m = 0;
}

// Digit k of a byte in base 3, from the top, where 256 stands for 1: what multiplying by 3 carries out of the byte.
static int base_3_digit(uint8_t byte, int k)
{
    int digit = 0;
    for (; k >= 0; k--) {
        digit = byte * 3 >> 8;
        byte = (uint8_t)(byte * 3);
    }
    return digit;
}

static void unpack_tq1_0(const uint8_t *b, struct block256 *o)
{
    put_ones(o);
    o->d = load_f16(b + 52);
    for (int i = 0; i < 160; i++)
        o->w[i] = (int8_t)(base_3_digit(b[i % 32], i / 32) - 1);
    for (int i = 0; i < 80; i++)
        o->w[160 + i] = (int8_t)(base_3_digit(b[32 + i % 16], i / 16) - 1);
    for (int i = 0; i < 16; i++)
        o->w[240 + i] = (int8_t)(base_3_digit(b[48 + i % 4], i / 4) - 1);
}

static void unpack_tq2_0(const uint8_t *b, struct block256 *o)
{
    put_ones(o);
    o->d = load_f16(b + 64);
    for (int i = 0; i < 256; i++)
        o->w[i] = (int8_t)(two_bits(b, i) - 1);
}

typedef void unpack256_fn(const uint8_t *block, struct block256 *out);

// What a block multiplies to, before the column's own scale.
FOR_EACH_TYPE float product256(const struct block256 *b, bool mins, const int8_t *q, const int16_t *sums)
{
    int32_t isum = 0, msum = 0;
    for (int s = 0; s < 16; s++) {
        int32_t dot = 0;
        for (int e = 16 * s; e < 16 * s + 16; e++)
            dot += b->w[e] * q[e];
        isum += b->scale[s] * dot;
        msum += b->min[s] * sums[s];
    }
    float s = (float)isum * b->d;
    return mins ? fmaf(-(float)msum, b->m, s) : s;
}

FOR_EACH_TYPE void add_block(unpack256_fn *unpack, bool mins, size_t bytes, const struct span *s, float *sums)
{
    struct block256 b;
    unpack(s->row + (size_t)s->i * bytes, &b);
    for (int j = 0; j < s->n; j++) {
        const int8_t *q = q8_quants(s->x[j]) + s->i * 256;
        float product = product256(&b, mins, q, q8_sums(s->x[j], s->k) + s->i * 16);
        sums[j] = fmaf(product, q8_scales(s->x[j], s->k)[s->i], sums[j]);
    }
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

// ---- larger blocks, and smaller factors: runs of 32 elements that share a factor with others, or of 16

// Run j of the row.
typedef void run_fn(const uint8_t *row, int64_t j, struct block32 *out);

static void run_q1_0(const uint8_t *row, int64_t j, struct block32 *o)
{
    const uint8_t *b = row + j / 4 * 18;
    o->d = load_f16(b);
    for (int e = 0; e < 32; e++)
        o->w[e] = b[2 + j % 4 * 4 + e / 8] >> e % 8 & 1 ? 1 : -1;
}

static void run_q2_0(const uint8_t *row, int64_t j, struct block32 *o)
{
    const uint8_t *b = row + j / 2 * 18;
    o->d = load_f16(b);
    for (int e = 0; e < 32; e++)
        o->w[e] = (int8_t)((b[2 + j % 2 * 8 + e / 4] >> e % 4 * 2 & 3) - 1);
}

// The values are doubled, so the scale is half of what its 4 bits of exponent and 3 of mantissa say; the code 0x7f is 0.
static void run_nvfp4(const uint8_t *row, int64_t j, struct block32 *o)
{
    const uint8_t *b = row + j / 4 * 36;
    int scale = b[j % 4] & 127, exponent = scale >> 3, mantissa = scale & 7;
    o->d = b[j % 4] == 127 ? 0 : ldexpf((float)(exponent ? 8 + mantissa : mantissa), (exponent ? exponent : 1) - 11);
    for (int e = 0; e < 16; e++)
        o->w[e] = fp4_values[b[4 + j % 4 * 8 + e % 8] >> e / 8 * 4 & 15];
}

// What a run adds to `sum`, before the column's own scale: element `at` of the column x is its first.
FOR_EACH_TYPE float add_run(const struct block32 *b, int run, bool mins, const void *x, int64_t k, int64_t at,
                            float sum)
{
    const int8_t *q = q8_quants(x) + at;
    int32_t isum = 0;
    for (int e = 0; e < run; e++)
        isum += b->w[e] * q[e];
    sum = fmaf((float)isum, b->d, sum);
    if (!mins)
        return sum;
    const int16_t *sums = q8_sums(x, k) + at / Q8_SUMS;
    return fmaf((float)(sums[0] + sums[1]), b->m, sum);
}

FOR_EACH_TYPE void add_runs(run_fn *unpack, int run, bool mins, const struct span *s, float *sums)
{
    float products[TOGETHER] = {0};
    for (int64_t at = s->i * 256; at < MIN((s->i + 1) * 256, s->k); at += run) {
        struct block32 b;
        unpack(s->row, at / run, &b);
        for (int j = 0; j < s->n; j++)
            products[j] = add_run(&b, run, mins, s->x[j], s->k, at, products[j]);
    }
    for (int j = 0; j < s->n; j++)
        sums[j] = fmaf(products[j], q8_scales(s->x[j], s->k)[s->i], sums[j]);
}

// ---- the functions of the level

typedef void add_fn(const struct span *s, float *sums);

FOR_EACH_TYPE void matmul_columns(const struct matmul_args *a, add_fn *add, int first, int n)
{
    for (int r = 0; r < a->n_rows; r++) {
        float sums[TOGETHER] = {0};
        const uint8_t *row = (const uint8_t *)a->w + (size_t)r * a->w_stride;
        for (int64_t i = 0; i < q8_blocks(a->k); i++)
            add(&(struct span){row, a->x + first, n, a->k, i}, sums);
        for (int j = 0; j < n; j++)
            a->y[first + j][r] = sums[j];
    }
}

// One column has a copy of its own, whose sums stay in registers.
FOR_EACH_TYPE void matmul(const struct matmul_args *a, add_fn *add)
{
    if (a->n_x == 1)
        matmul_columns(a, add, 0, 1);
    else
        for (int first = 0; first < a->n_x; first += TOGETHER)
            matmul_columns(a, add, first, MIN(a->n_x - first, TOGETHER));
}

#define MATMUL(name, ADD)                                                                                              \
    FOR_EACH_TYPE void add_##name(const struct span *s, float *sums)                                                   \
    {                                                                                                                  \
        ADD;                                                                                                           \
    }                                                                                                                  \
    static void matmul_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        matmul(a, add_##name);                                                                                         \
    }
#define MATMUL256(name, NAME, mins)                                                                                    \
    MATMUL(name, add_block(unpack_##name, mins, (size_t)dtype_info[DT_##NAME].bytes, s, sums))
#define MATMUL_RUNS(name, run, mins) MATMUL(name, add_runs(run_##name, run, mins, s, sums))

// A block of 32 is a run.
#define MATMUL32(name, NAME, mins)                                                                                     \
    static void run_##name(const uint8_t *row, int64_t j, struct block32 *o)                                           \
    {                                                                                                                  \
        unpack_##name(row + j * dtype_info[DT_##NAME].bytes, o);                                                       \
    }                                                                                                                  \
    MATMUL_RUNS(name, 32, mins)

// clang-format off
MATMUL_RUNS(q1_0, 32, false)
MATMUL_RUNS(q2_0, 32, false)
MATMUL_RUNS(nvfp4, 16, false)
MATMUL256(q2_k, Q2_K, true)
MATMUL256(q3_k, Q3_K, false)
MATMUL256(q4_k, Q4_K, true)
MATMUL256(q5_k, Q5_K, true)
MATMUL256(q6_k, Q6_K, false)
MATMUL256(iq4_xs, IQ4_XS, false)
MATMUL256(iq2_xxs, IQ2_XXS, false)
MATMUL256(iq2_xs, IQ2_XS, false)
MATMUL256(iq2_s, IQ2_S, false)
MATMUL256(iq3_xxs, IQ3_XXS, false)
MATMUL256(iq3_s, IQ3_S, false)
MATMUL256(iq1_s, IQ1_S, false)
MATMUL256(iq1_m, IQ1_M, false)
MATMUL256(tq1_0, TQ1_0, false)
MATMUL256(tq2_0, TQ2_0, false)
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
    [DT_MXFP4] = matmul_mxfp4,   [DT_IQ2_XXS] = matmul_iq2_xxs, [DT_IQ2_XS] = matmul_iq2_xs,
    [DT_IQ2_S] = matmul_iq2_s,   [DT_IQ3_XXS] = matmul_iq3_xxs, [DT_IQ3_S] = matmul_iq3_s, [DT_IQ1_S] = matmul_iq1_s,
    [DT_IQ1_M] = matmul_iq1_m,   [DT_TQ1_0] = matmul_tq1_0,   [DT_TQ2_0] = matmul_tq2_0,
    [DT_Q1_0] = matmul_q1_0,     [DT_Q2_0] = matmul_q2_0,     [DT_NVFP4] = matmul_nvfp4,
};
