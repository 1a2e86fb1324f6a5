// The 8-bit matmul in plain C. It runs on CPUs that no other level supports, and it defines the results of all levels,
// bit for bit.
//
// The order of the float operations is that of kernels.h. For each row, 256 elements are unpacked once, and then each
// column adds its product with them to its sum.
//
// Each type unpacks a block to integers from which its offset (8 in Q4_0, 32 in Q6_K) is subtracted. The layouts are
// described in gguf/dtype.c and gguf/dtype_iq.c. They are implemented here a second time on purpose: the tests compare
// both.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

#include <math.h>

// Each type has its own copy of these functions, with its unpacking inlined.
#define FOR_EACH_TYPE static inline __attribute__((always_inline))

enum { TOGETHER = 32 }; // columns that are multiplied with an unpacked block

// Elements 256 * i .. 256 * i + 255 of a row of weights and of n columns. They all have k elements.
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

// An unpacked block of 256: element i is d * scale[i / 16] * w[i] - m * min[i / 16]. |scale| <= 128, |w| <= 127.
struct block256 {
    int8_t w[256];
    int16_t scale[16], min[16];
    float d, m;
};

// An unpacked block of 32: element i is d * w[i] + m.
struct block32 {
    int8_t w[32];
    float d, m;
};

// ---- blocks of 256

// The two-bit field of element i in 64 bytes, as in Q2_K, Q3_K and TQ2_0.
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

// The eight scales and minima of Q4_K and Q5_K, each for 32 elements.
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

// ---- blocks of 256 with a codebook

// w is a magnitude of the codebook with its sign. So that scales are integers, they are 2s + 1 where the format has
// s + 1/2; d is halved for that, and divided by what else the format divides by.

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

// Stores elements 8k .. 8k + 7: an entry of the codebook with its signs.
static void put_group(struct block256 *o, int k, uint64_t grid, uint8_t signs)
{
    for (int i = 0; i < 8; i++) {
        int w = (int)(grid >> 8 * i & 255);
        o->w[8 * k + i] = (int8_t)(signs >> i & 1 ? -w : w);
    }
}

// Stores the scale of elements 16j .. 16j + 15.
static void put_odd_scale(struct block256 *o, int j, int s)
{
    o->scale[j] = (int16_t)(2 * s + 1), o->min[j] = 0;
}

// Nibble i of an array of nibbles.
static int nibble_at(const uint8_t *p, int i)
{
    return p[i / 2] >> i % 2 * 4 & 15;
}

// Two entries of four magnitudes as one of eight.
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

// Index i, with its ninth bit. An index stands for four elements.
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

// Stores elements 8k .. 8k + 7 of IQ1 in eighths: 8 times the value of the grid, plus or minus a shift of 1.
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

// ---- blocks of 256 of -1, 0 and 1, without sub-scales

static void put_ones(struct block256 *o)
{
    for (int j = 0; j < 16; j++)
        o->scale[j] = 1, o->min[j] = 0;
    o->m = 0;
}

// Digit k, from the top, of a byte that is a fraction in base 3, where 256 stands for 1. The digit is what a
// multiplication by 3 carries out of the byte.
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

// The product of a block with a column, without the column's scale.
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

// Adds the products of a block of `bytes` bytes with all columns to their sums.
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

// Nibble i of 16 bytes. The low nibbles are elements 0 to 15, the high ones 16 to 31.
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

// ---- runs: 32 elements of a larger block with one factor, or the 16 elements that share a factor

// Unpacks run j of the row.
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

// The values are doubled, so the scale is half of the e4m3 number (4 bits of exponent, 3 of mantissa). The code 0x7f is
// 0.
static void run_nvfp4(const uint8_t *row, int64_t j, struct block32 *o)
{
    const uint8_t *b = row + j / 4 * 36;
    int scale = b[j % 4] & 127, exponent = scale >> 3, mantissa = scale & 7;
    o->d = b[j % 4] == 127 ? 0 : ldexpf((float)(exponent ? 8 + mantissa : mantissa), (exponent ? exponent : 1) - 11);
    for (int e = 0; e < 16; e++)
        o->w[e] = fp4_values[b[4 + j % 4 * 8 + e % 8] >> e / 8 * 4 & 15];
}

// Adds the product of a run with column x to `sum`, without the column's scale. The first element of the run is `at`.
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

// Adds the products of a span's runs with all columns to their sums.
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

// All rows by columns first .. first + n - 1.
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

// A single column has its own copy, in which its sum stays in a register.
FOR_EACH_TYPE void matmul(const struct matmul_args *a, add_fn *add)
{
    if (a->n_x == 1)
        matmul_columns(a, add, 0, 1);
    else
        for (int first = 0; first < a->n_x; first += TOGETHER)
            matmul_columns(a, add, first, MIN(a->n_x - first, TOGETHER));
}

// Define matmul_<name> of a type:
//   MATMUL(name, ADD)              adds the products of a span by the call ADD
//   MATMUL256(name, NAME, mins)    a type with blocks of 256
//   MATMUL_RUNS(name, run, mins)   a type with runs of `run` elements, which run_<name> unpacks
//   MATMUL32(name, NAME, mins)     a type with blocks of 32: each is a run
// name, NAME: the type, of unpack_<name> and DT_<NAME>. mins: whether it has minima.
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
