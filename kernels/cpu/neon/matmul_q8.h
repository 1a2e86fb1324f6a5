// What the files of the 8-bit matmul for 64-bit ARM share: the kernels' entry points, what kernels read of a column,
// and the float factors of four rows' blocks. All of it is compiled three times: with products of matrices (smmla)
// and dot products (sdot), with dot products alone, and without either. The integers are the same.
//
//   neon/unpack.h      unpacks the blocks of a row to signed bytes, scales and minima
//   neon/codebook.h    the same for types with a codebook
//   neon/in_place.c    one or two columns
//   neon/panel.c       more columns
//   neon/runs.c        types of few bits with factors of runs, any number of columns
//   neon/panel_tile.h  the layout of a panel by level, and its products with a few columns
//
// Private to kernels/cpu/neon/. The functions keep no state. Nothing is read outside of the blocks, and of the
// columns and their padding.
#ifndef QUERN_NEON_MATMUL_Q8_H
#define QUERN_NEON_MATMUL_Q8_H

#include <arm_neon.h>

#include "kernels/cpu/level.h"

// The kernels by type, NULL where there is none: one or two columns in place, panels for any number.
extern matmul_fn *const ISA_FN(matmul_q8_in_place)[DT_COUNT];
extern matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT];

// Any number of columns, of types with factors of runs.
matmul_fn ISA_FN(matmul_q8_q1_0), ISA_FN(matmul_q8_q2_0), ISA_FN(matmul_q8_nvfp4);

enum { SPAN = 256, LINE = 64 };

// Keeps later loads behind this place. Otherwise the compiler moves them up and spills registers.
INLINE void load_after(void)
{
    __asm__ volatile("" ::: "memory");
}

// ---- the columns

// A q8 row's planes.
struct column {
    const int8_t *q;
    const int16_t *sums;
    const uint8_t *steps;
    const float *da;
};

INLINE struct column column_of(const void *x, int64_t k)
{
    return (struct column){q8_quants(x), q8_sums(x, k), q8_steps(x, k), q8_scales(x, k)};
}

// The sums of a span of a q8 row over 16 elements, and over 32 (|sum| <= 32 * 127).
struct sums {
    int16x8_t of16[2], of32;
};

INLINE struct sums sums_of(const struct column *x, int64_t span)
{
    const int16_t *p = x->sums + span * (SPAN / Q8_SUMS);
    struct sums s = {.of16 = {vld1q_s16(p), vld1q_s16(p + 8)}};
    s.of32 = vpaddq_s16(s.of16[0], s.of16[1]);
    return s;
}

// The steps of a span of a q8 row, one for each 32 elements.
INLINE int16x8_t steps_of(const struct column *x, int64_t span)
{
    return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(x->steps + span * Q8_RUNS)));
}

// The products of eight sums over 32 elements and their steps. They do not fit 16 bits.
INLINE void weigh_sums(int16x8_t of32, int16x8_t steps, int32x4_t out[2])
{
    out[0] = vmull_s16(vget_low_s16(of32), vget_low_s16(steps));
    out[1] = vmull_high_s16(of32, steps);
}

// ---- the rows

// LOAD_LOW(name, register, bytes) defines a load of 1, 2, 4 or 8 bytes to the low end of a vector. A load by way of a
// general register or to a lane would take one more instruction.
#define LOAD_LOW(name, register, bytes)                                                                                \
    INLINE uint8x16_t name(const uint8_t *p)                                                                           \
    {                                                                                                                  \
        struct of {                                                                                                    \
            uint8_t b[bytes];                                                                                          \
        };                                                                                                             \
        uint8x16_t v;                                                                                                  \
        __asm__("ldr %" register "0, %1" : "=w"(v) : "m"(*(const struct of *)p));                                      \
        return v;                                                                                                      \
    }
LOAD_LOW(load_1, "b", 1)
LOAD_LOW(load_2, "h", 2)
LOAD_LOW(load_4, "s", 4)
LOAD_LOW(load_8, "d", 8)

// The first four float16 as floats.
INLINE float32x4_t floats_of_halves(uint16x8_t v)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(v)));
}

// The scales and minima of four rows' blocks, one lane per row.
struct factors {
    float32x4_t d, m;
};

// The float16 at byte `at` of each block.
INLINE struct factors halves_of_rows(const uint8_t *const *rows, int at)
{
    uint16x8_t h[4];
    UNROLL_FOR (int r = 0; r < 4; r++)
        h[r] = vreinterpretq_u16_u8(load_2(rows[r] + at));
    return (struct factors){.d = floats_of_halves(vzip1q_u16(vzip1q_u16(h[0], h[2]), vzip1q_u16(h[1], h[3])))};
}

// The float16 of blocks of IQ1_M. Four bits of it are at the top of each of the block's last four words of 16 bits.
INLINE struct factors nibbles_of_rows(const uint8_t *const *rows)
{
    const int16x4_t place = {0, 4, 8, 12};
    uint16x4_t v[4];
    UNROLL_FOR (int r = 0; r < 4; r++)
        v[r] = vshl_u16(vshr_n_u16(vreinterpret_u16_u8(vld1_u8(rows[r] + 48)), 12), place);
    uint16x4_t halves = vpadd_u16(vpadd_u16(v[0], v[1]), vpadd_u16(v[2], v[3]));
    return (struct factors){.d = vcvt_f32_f16(vreinterpret_f16_u16(halves))};
}

// The float16 at byte `at` of each block, which is the scale, and the next one, which is the minimum.
INLINE struct factors pairs_of_rows(const uint8_t *const *rows, int at)
{
    uint32x4_t v[4];
    UNROLL_FOR (int r = 0; r < 4; r++)
        v[r] = vreinterpretq_u32_u8(load_4(rows[r] + at));
    uint16x8_t first = vreinterpretq_u16_u32(vzip1q_u32(v[0], v[2])),
               last = vreinterpretq_u16_u32(vzip1q_u32(v[1], v[3]));
    return (struct factors){.d = floats_of_halves(vtrn1q_u16(first, last)),
                            .m = floats_of_halves(vtrn2q_u16(first, last))};
}

// 2^(e - 128), exactly, where e is the first byte of each block. From e = 2 on it is a normal float with the exponent
// e - 1; for e = 0 and 1 it is subnormal, 2^21 and 2^22 times the least positive float.
INLINE struct factors powers_of_rows(const uint8_t *const *rows)
{
    uint8x16_t b[4];
    UNROLL_FOR (int r = 0; r < 4; r++)
        b[r] = load_1(rows[r]);
    uint8x16_t all = vzip1q_u8(vzip1q_u8(b[0], b[2]), vzip1q_u8(b[1], b[3]));
    uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vget_low_u8(all))));
    uint32x4_t small = vshlq_u32(vdupq_n_u32(1u << 21), vreinterpretq_s32_u32(vminq_u32(e, vdupq_n_u32(1))));
    uint32x4_t normal = vshlq_n_u32(vqsubq_u32(e, vdupq_n_u32(1)), 23);
    return (struct factors){.d = vreinterpretq_f32_u32(vmaxq_u32(small, normal))};
}

// Prefetches n bytes from p on. Since calls continue each other's bytes, every cache line is prefetched.
INLINE void prefetch_bytes(const uint8_t *p, size_t n)
{
    UNROLL_FOR (size_t at = 0; at < n; at += LINE)
        __builtin_prefetch(p + at, 0, 2);
}

// What to prefetch while a group of `rows` rows from `first` on is multiplied: the next group, after the last group the
// caller's next rows, or, where these are not known, the group itself.
static inline const uint8_t *rows_to_prefetch(const struct matmul_args *a, int first, int rows)
{
    const uint8_t *w = a->w;
    if (first + rows < a->n_rows)
        return w + (size_t)(first + rows) * a->w_stride;
    return a->next ? a->next : w + (size_t)first * a->w_stride;
}

#endif
