// The 8-bit matmul for 64-bit ARM of types of few bits with a factor for a run of 16 or 32 elements: Q1_0, Q2_0, NVFP4.
//
// The naive loop, for each row and column: for each run, S = fma(step * sum of w * q, d, S); for each 256 elements, D =
// fma(S, da, D). Here four rows are multiplied together, one lane of the float chains per row, with up to four columns as
// soon as a run of these rows is unpacked to signed bytes. More columns are multiplied in parts of four, and each part
// unpacks all rows again: that is four to six instructions for 16 weights, and their products with four columns are eight
// with dot products and more without.
#include "kernels/cpu/neon/unpack.h"

enum { RUN_ROWS = 4, RUN_COLUMNS = 4 };

// Unpacks run `run` of a block to signed bytes: 32 in two vectors, or 16 in the first.
typedef void unpack_run_fn(const uint8_t *b, int run, int8x16_t w[2]);
// The factors of the runs of four rows' blocks, one lane per row.
typedef void run_factors_fn(const uint8_t *const *rows, float32x4_t d[4]);

// A type. It is a compile-time constant of the kernels.
struct run_type {
    int bytes, runs, size; // of a block: bytes, and runs of `size` elements
    unpack_run_fn *unpack;
    run_factors_fn *factors;
};

// ---- the types

// Bit e of the four bytes of a run is element e: 1 or -1.
INLINE void unpack_run_q1_0(const uint8_t *b, int run, int8x16_t w[2])
{
    const uint8x16_t first = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                     bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t q = load_4(b + 2 + 4 * run);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const uint8x16_t set = vtstq_u8(vqtbl1q_u8(q, vaddq_u8(first, vdupq_n_u8((uint8_t)(2 * i)))), bit);
        w[i] = signed_of(vorrq_u8(vmvnq_u8(set), vdupq_n_u8(1)));
    }
}

// Four elements in a byte, minus 1.
INLINE void unpack_run_q2_0(const uint8_t *b, int run, int8x16_t w[2])
{
    const uint8x16_t first = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int8x16_t shift = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    const uint8x16_t q = load_8(b + 2 + 8 * run);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const uint8x16_t spread = vqtbl1q_u8(q, vaddq_u8(first, vdupq_n_u8((uint8_t)(4 * i))));
        w[i] = vsubq_s8(signed_of(vandq_u8(vshlq_u8(spread, shift), vdupq_n_u8(3))), vdupq_n_s8(1));
    }
}

// The low nibbles of eight bytes are eight elements, the high nibbles the next eight.
INLINE void unpack_run_nvfp4(const uint8_t *b, int run, int8x16_t w[2])
{
    const uint8x16_t q = load_8(b + 4 + 8 * run);
    const uint8x16_t nibbles = vcombine_u8(vget_low_u8(low_nibbles(q)), vget_low_u8(high_nibbles(q)));
    w[0] = w[1] = vqtbl1q_s8(vld1q_s8(fp4_values), nibbles);
}

INLINE void factors_of_halves(const uint8_t *const *rows, float32x4_t d[4])
{
    d[0] = d[1] = d[2] = d[3] = halves_of_rows(rows, 0).d;
}

// Half of the factors, which are unsigned floats with 4 bits of exponent and 3 of mantissa; read as float16 they are
// 128 times too small. The top bit is ignored, except that 0x7f means 0 and 0xff does not.
INLINE void factors_nvfp4(const uint8_t *const *rows, float32x4_t d[4])
{
    float32x4_t of_row[RUN_ROWS];
    UNROLL_FOR (int r = 0; r < RUN_ROWS; r++) {
        const uint8x16_t code = load_4(rows[r]), none = vceqq_u8(code, vdupq_n_u8(0x7f));
        const uint8x8_t bits = vget_low_u8(vbicq_u8(vandq_u8(code, vdupq_n_u8(0x7f)), none));
        of_row[r] = vmulq_n_f32(floats_of_halves(vshlq_n_u16(vmovl_u8(bits), 7)), 128);
    }
    const float32x4_t a = vtrn1q_f32(of_row[0], of_row[1]), b = vtrn2q_f32(of_row[0], of_row[1]);
    const float32x4_t e = vtrn1q_f32(of_row[2], of_row[3]), f = vtrn2q_f32(of_row[2], of_row[3]);
    d[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(e)), d[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(e));
    d[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(f)), d[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(f));
}

// ---- products

// The sums of the products of a run of four rows, one lane per row. |w| is at most 12, so that sums of 16 products fit 16
// bits.
INLINE int32x4_t dot_run(int8x16_t w[RUN_ROWS][2], int size, const int8_t *q)
{
    const int8x16_t q0 = vld1q_s8(q), q1 = size == 32 ? vld1q_s8(q + 16) : q0;
#ifdef __ARM_FEATURE_DOTPROD
    int32x4_t dots[RUN_ROWS];
    UNROLL_FOR (int r = 0; r < RUN_ROWS; r++) {
        dots[r] = vdotq_s32(vdupq_n_s32(0), w[r][0], q0);
        dots[r] = size == 32 ? vdotq_s32(dots[r], w[r][1], q1) : dots[r];
    }
    return vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
#else
    int16x8_t dots[RUN_ROWS];
    UNROLL_FOR (int r = 0; r < RUN_ROWS; r++) {
        dots[r] = vmlal_high_s8(vmull_s8(vget_low_s8(w[r][0]), vget_low_s8(q0)), w[r][0], q0);
        if (size == 32)
            dots[r] = vmlal_high_s8(vmlal_s8(dots[r], vget_low_s8(w[r][1]), vget_low_s8(q1)), w[r][1], q1);
    }
    return vpaddlq_s16(vpaddq_s16(vpaddq_s16(dots[0], dots[1]), vpaddq_s16(dots[2], dots[3])));
#endif
}

// Adds the runs of a block of four rows to S of each column. `at` is the first element of the block in its span.
INLINE void add_block_of_runs(const uint8_t *const *rows, const struct run_type *t, const struct column *x, int n,
                              int64_t span, int at, float32x4_t s[RUN_COLUMNS])
{
    float32x4_t d[4];
    t->factors(rows, d);
    UNROLL_FOR (int run = 0; run < t->runs; run++) {
        int8x16_t w[RUN_ROWS][2];
        UNROLL_FOR (int r = 0; r < RUN_ROWS; r++)
            t->unpack(rows[r], run, w[r]);
        const int64_t first = span * SPAN + at + run * t->size;
        UNROLL_FOR (int j = 0; j < n; j++) {
            const int32x4_t isum = dot_run(w, t->size, x[j].q + first);
            s[j] = vfmaq_f32(s[j], vcvtq_f32_s32(vmulq_n_s32(isum, x[j].steps[first / Q8_RUN])), d[run]);
        }
    }
}

// Four rows, the last of them repeated where there are fewer, and n columns from the `from`-th on.
INLINE void multiply_rows(const struct matmul_args *a, const struct run_type *t, int first, int from, int n)
{
    const uint8_t *rows[RUN_ROWS];
    struct column x[RUN_COLUMNS];
    float32x4_t chain[RUN_COLUMNS] = {0};
    const int n_rows = MIN(RUN_ROWS, a->n_rows - first), block = t->runs * t->size;
    for (int r = 0; r < RUN_ROWS; r++)
        rows[r] = (const uint8_t *)a->w + (size_t)(first + MIN(r, n_rows - 1)) * a->w_stride;
    for (int j = 0; j < n; j++)
        x[j] = column_of(a->x[from + j], a->k);
    for (int64_t span = 0; span < q8_blocks(a->k); span++) {
        float32x4_t s[RUN_COLUMNS] = {0};
        const int elements = (int)MIN((int64_t)SPAN, a->k - span * SPAN);
        for (int at = 0; at < elements; at += block) {
            add_block_of_runs(rows, t, x, n, span, at, s);
            UNROLL_FOR (int r = 0; r < RUN_ROWS; r++)
                rows[r] += t->bytes;
        }
        UNROLL_FOR (int j = 0; j < n; j++)
            chain[j] = vfmaq_n_f32(chain[j], s[j], x[j].da[span]);
    }
    for (int j = 0; j < n; j++)
        memcpy(a->y[from + j] + first, &chain[j], (size_t)n_rows * sizeof(float));
}

INLINE void multiply_columns(const struct matmul_args *a, struct run_type t, int from, int n)
{
    for (int first = 0; first < a->n_rows; first += RUN_ROWS)
        multiply_rows(a, &t, first, from, n);
}

// ---- the entry points
//
// RUNS(name, bytes, runs, size, factors) defines the kernel of a type, compiled for one, two, three and four columns.

#define RUNS(name, bytes, runs, size, factors)                                                                         \
    static void part_##name(const struct matmul_args *a, int from, int n)                                              \
    {                                                                                                                  \
        const struct run_type t = {bytes, runs, size, unpack_run_##name, factors};                                     \
        if (n == 1)                                                                                                    \
            multiply_columns(a, t, from, 1);                                                                           \
        else if (n == 2)                                                                                               \
            multiply_columns(a, t, from, 2);                                                                           \
        else if (n == 3)                                                                                               \
            multiply_columns(a, t, from, 3);                                                                           \
        else                                                                                                           \
            multiply_columns(a, t, from, 4);                                                                           \
    }                                                                                                                  \
    void ISA_FN(matmul_q8_##name)(const struct matmul_args *a)                                                         \
    {                                                                                                                  \
        for (int from = 0; from < a->n_x; from += RUN_COLUMNS)                                                         \
            part_##name(a, from, MIN(RUN_COLUMNS, a->n_x - from));                                                     \
    }
RUNS(q1_0, 18, 4, 32, factors_of_halves)
RUNS(q2_0, 18, 2, 32, factors_of_halves)
RUNS(nvfp4, 36, 4, 16, factors_nvfp4)
