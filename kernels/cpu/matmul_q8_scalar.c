// The 8-bit matmul in plain C: quantised weights times activations in 8 bits (q8 rows). It runs on CPUs that no other
// ISA level supports. It defines the results of all levels, bit for bit.
//
// It equals this loop. A span is 256 elements of a row. S is the dot product of a row and a column in a span, without
// the column's scale; struct matmul_args in kernels.h defines the order of its float operations.
//
//     for each row r and each column j:
//         y[j][r] = 0
//         for each span i, in order:
//             y[j][r] = fma(S(row r, x[j], i), scale of x[j] in span i, y[j][r])
//
// Here the loop over the columns (up to 32) is innermost, so that a block of weights is unpacked once for all of them.
//
// Each type has a function that unpacks a block to int8 values, which include the type's offset (-8 in Q4_0, -32 in
// Q6_K). gguf/dtype.c and gguf/dtype_iq.c describe the layouts of the blocks. The layouts are implemented here a second
// time on purpose: the tests compare both.
#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

#include <math.h>

// Marks functions that are copied for each type, so that the type's unpacking is inlined.
#define FOR_EACH_TYPE static inline __attribute__((always_inline))

enum { TOGETHER = 32 }; // columns that share an unpacked block, at most

// Elements 256 * i .. 256 * i + 255 of a row of weights and of n columns. The last span of a row may be shorter.
struct span {
    const uint8_t *row;   // the whole row of weights
    const void *const *x; // [n] columns, as q8 rows
    int n;
    int64_t k, i; // elements of the row and of each column; number of the span
};

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

// An unpacked block of 256 elements. Element i is d * scale[i / 16] * w[i] - m * min[i / 16]. |scale| <= 128 and
// |w| <= 127.
struct block256 {
    int8_t w[256];
    int16_t scale[16], min[16];
    float d, m;
};

// An unpacked block of 32 elements, or a run of 16. Element i is d * w[i] + m. Types without a minimum do not set m.
struct block32 {
    int8_t w[32];
    float d, m;
};

// ---- blocks of 256

// The two bits of element i of 256, which 64 bytes hold in the order of Q2_K, Q3_K and TQ2_0.
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

// Unpacks the eight scales and eight minima of Q4_K and Q5_K from 12 bytes. Each has 6 bits and is for 32 elements.
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

// In IQ2 and IQ3, w is a magnitude from the codebook with its sign. The formats scale by s + 1/2 or by 2s + 1, where s
// is the stored scale. Scales are integers here, so they are always 2s + 1, and d includes the remaining constant
// factor: 1/8 in IQ1 and IQ2, 1/4 in IQ3_XXS, 1 in IQ3_S.

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

// Stores elements 8k .. 8k + 7. `grid` is an entry of the codebook: eight magnitudes of one byte each. Element i of the
// eight is negative if bit i of `signs` is set.
static void put_group(struct block256 *o, int k, uint64_t grid, uint8_t signs)
{
    for (int i = 0; i < 8; i++) {
        int w = (int)(grid >> 8 * i & 255);
        o->w[8 * k + i] = (int8_t)(signs >> i & 1 ? -w : w);
    }
}

// Stores 2s + 1 as the scale of elements 16j .. 16j + 15.
static void put_odd_scale(struct block256 *o, int j, int s)
{
    o->scale[j] = (int16_t)(2 * s + 1), o->min[j] = 0;
}

// Nibble i of an array that has two in each byte, the low one first.
static int nibble_at(const uint8_t *p, int i)
{
    return p[i / 2] >> i % 2 * 4 & 15;
}

// Joins two codebook entries of four magnitudes to one of eight.
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

// Index i of IQ3_S, with its ninth bit. Each index selects the magnitudes of four elements.
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

// Stores elements 8k .. 8k + 7 of IQ1 in eighths. Each is 8 times its value in the codebook (-1, 0 or 1), minus 1 if
// `down` is true, else plus 1.
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

// ---- ternary types: blocks of 256 elements -1, 0 or 1, without sub-scales

// Sets all scales to 1 and all minima to 0.
static void put_ones(struct block256 *o)
{
    for (int j = 0; j < 16; j++)
        o->scale[j] = 1, o->min[j] = 0;
    o->m = 0;
}

// Digit k of the fraction byte / 256 in base 3. Digit 0 is the first one after the point. A multiplication of the byte
// by 3 carries the first digit out of its 8 bits and leaves the fraction of the remaining digits.
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

// The dot product of a block and a column, without the column's scale. q, sums and steps are the column's 256 quants in
// this span, their sums by 16, and their steps by 32.
FOR_EACH_TYPE float product256(const struct block256 *b, bool mins, const int8_t *q, const int16_t *sums,
                               const uint8_t *steps)
{
    int32_t isum = 0, msum = 0;
    for (int s = 0; s < 16; s++) {
        int32_t dot = 0;
        for (int e = 16 * s; e < 16 * s + 16; e++)
            dot += b->w[e] * q[e];
        isum += steps[s / 2] * b->scale[s] * dot;
        msum += steps[s / 2] * b->min[s] * sums[s];
    }
    float s = (float)isum * b->d;
    return mins ? fmaf(-(float)msum, b->m, s) : s;
}

// Multiplies a span, which is one block of `bytes` bytes, by each of its columns, as add_fn does.
FOR_EACH_TYPE void add_block(unpack256_fn *unpack, bool mins, size_t bytes, const struct span *s, float *sums)
{
    struct block256 b;
    unpack(s->row + (size_t)s->i * bytes, &b);
    for (int j = 0; j < s->n; j++) {
        const void *x = s->x[j];
        float product =
            product256(&b, mins, q8_quants(x) + s->i * 256, q8_sums(x, s->k) + s->i * 16, q8_steps(x, s->k) + s->i * 8);
        sums[j] = fmaf(product, q8_scales(s->x[j], s->k)[s->i], sums[j]);
    }
}

// ---- blocks of 32

// Nibble i of 16 bytes. The low nibbles belong to elements 0 to 15, the high ones to elements 16 to 31.
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

// fp4_values are twice the values of the format, so d is half of the scale 2^(e - 127).
static void unpack_mxfp4(const uint8_t *b, struct block32 *o)
{
    o->d = ldexpf(1, b[0] - 128);
    for (int i = 0; i < 32; i++)
        o->w[i] = fp4_values[nibble(b + 1, i)];
}

// ---- runs
//
// A run is 32 or 16 neighbouring elements that share a scale and are multiplied as one block. In the types with blocks
// of 32, each block is a run. A block of Q1_0 has four runs of 32, a block of Q2_0 two of 32, a block of NVFP4 four of
// 16.

// Unpacks run j of a row.
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

// The scale is an unsigned e4m3 number: 4 bits of exponent, 3 bits of mantissa. fp4_values are twice the values of the
// format, so d is half of the scale. The code 0x7f means 0.
static void run_nvfp4(const uint8_t *row, int64_t j, struct block32 *o)
{
    const uint8_t *b = row + j / 4 * 36;
    int scale = b[j % 4] & 127, exponent = scale >> 3, mantissa = scale & 7;
    o->d = b[j % 4] == 127 ? 0 : ldexpf((float)(exponent ? 8 + mantissa : mantissa), (exponent ? exponent : 1) - 11);
    for (int e = 0; e < 16; e++)
        o->w[e] = fp4_values[b[4 + j % 4 * 8 + e % 8] >> e / 8 * 4 & 15];
}

// Adds the dot product of a run of `run` elements and column x, without the column's scale, to `sum`. The run begins at
// element `at` of the row.
FOR_EACH_TYPE float add_run(const struct block32 *b, int run, bool mins, const void *x, int64_t k, int64_t at,
                            float sum)
{
    const int8_t *q = q8_quants(x) + at;
    const int32_t step = q8_steps(x, k)[at / Q8_RUN];
    int32_t isum = 0;
    for (int e = 0; e < run; e++)
        isum += b->w[e] * q[e];
    sum = fmaf((float)(step * isum), b->d, sum);
    if (!mins)
        return sum;
    const int16_t *sums = q8_sums(x, k) + at / Q8_SUMS;
    return fmaf((float)(step * (sums[0] + sums[1])), b->m, sum);
}

// Multiplies the runs of a span by each of its columns, as add_fn does.
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

// For each column of the span: adds its dot product with the row, times the column's scale, to sums[column].
typedef void add_fn(const struct span *s, float *sums);

// Multiplies all rows by columns first .. first + n - 1. n is at most TOGETHER.
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

// A single column has its own copy of the loops, in which the column's sum stays in a register.
FOR_EACH_TYPE void matmul(const struct matmul_args *a, add_fn *add)
{
    if (a->n_x == 1)
        matmul_columns(a, add, 0, 1);
    else
        for (int first = 0; first < a->n_x; first += TOGETHER)
            matmul_columns(a, add, first, MIN(a->n_x - first, TOGETHER));
}

// These macros define matmul_<name>, the matmul_fn of a type:
//   MATMUL256(name, NAME, mins)    a type with blocks of 256, which unpack_<name> unpacks
//   MATMUL32(name, NAME, mins)     a type with blocks of 32, which unpack_<name> unpacks
//   MATMUL_RUNS(name, run, mins)   a type with runs, which run_<name> unpacks
//   MATMUL(name, ADD)              the common part of the above
// Their parameters:
//   name   the type in names of functions
//   NAME   the type in DT_<NAME>
//   mins   whether the type has minima
//   run    elements of a run
//   ADD    a call that does what add_fn does, with `s` and `sums`
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
