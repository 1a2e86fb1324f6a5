// What the parts of the 8-bit matmul for 64-bit ARM share. They are compiled three times: with the products of matrices
// (smmla) and the dot product (sdot), with the dot product alone, and without either; the integers are the same.
//
//   matmul_q8_neon_unpack.h   a row's block in any type's layout becomes signed bytes, scales and minima
//   matmul_q8_neon_column.c   one column: four rows' blocks are multiplied as they are unpacked
//   matmul_q8_neon_panel.c    more columns: eight rows' blocks are unpacked once, and all columns sweep over them
//   matmul_q8_neon_tile.h     how a level lays such a panel out, and multiplies it with a few columns
//
// Private to matmul_q8_neon*. Nothing is kept; reads stay within the blocks and the columns' padding.
#ifndef QUERN_MATMUL_Q8_NEON_H
#define QUERN_MATMUL_Q8_NEON_H

#include <arm_neon.h>

#include "kernels/cpu/level.h"

#define INLINE static inline __attribute__((always_inline, unused))

// Before a loop whose arrays must become registers: its few turns are known once it is inlined.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// One column, and two or more; by type, NULL where there is none.
extern matmul_fn *const ISA_FN(matmul_q8_column)[DT_COUNT];
extern matmul_fn *const ISA_FN(matmul_q8_panel)[DT_COUNT];

enum { SPAN = 256, LINE = 64 };

// ---- the columns

// A q8 row's planes.
struct column {
    const int8_t *q;
    const int16_t *sums;
    const float *da;
};

INLINE struct column column_of(const void *x, int64_t k)
{
    return (struct column){q8_quants(x), q8_sums(x, k), q8_scales(x, k)};
}

// What a span of a q8 row sums to: over 16 elements, and over 32 (|sum| <= 32 * 127).
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

INLINE float32x4_t floats_of_low(int16x8_t v)
{
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(v)));
}

INLINE float32x4_t floats_of_high(int16x8_t v)
{
    return vcvtq_f32_s32(vmovl_high_s16(v));
}

// ---- the rows

INLINE uint32_t word_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

// Halves at an offset of four rows' blocks as floats, a lane a row.
INLINE float32x4_t halves_of_rows(const uint8_t *const *rows, size_t at)
{
    uint16x4_t h = vdup_n_u16(0);
    UNROLL for (int r = 0; r < 4; r++)
    {
        uint16_t half;
        memcpy(&half, rows[r] + at, 2);
        h[r] = half;
    }
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

// 2^(e - 128) of four rows' first bytes, exactly. From e = 2 on it is a normal float with the exponent e - 1; those of
// 0 and 1 are 2^21 and 2^22 units of the least denormal.
INLINE float32x4_t powers_of_rows(const uint8_t *const *rows)
{
    uint32x4_t e = {rows[0][0], rows[1][0], rows[2][0], rows[3][0]};
    uint32x4_t small = vshlq_u32(vdupq_n_u32(1u << 21), vreinterpretq_s32_u32(vminq_u32(e, vdupq_n_u32(1))));
    uint32x4_t normal = vshlq_n_u32(vqsubq_u32(e, vdupq_n_u32(1)), 23);
    return vreinterpretq_f32_u32(vmaxq_u32(small, normal));
}

// Fetches the n bytes from p on: every line of them, when the walks from call to call stand side by side.
INLINE void fetch(const uint8_t *p, size_t n)
{
    UNROLL for (size_t at = 0; at < n; at += LINE) __builtin_prefetch(p + at, 0, 2);
}

// Where what follows a group of `rows` rows from `first` on begins, to be fetched while the group is multiplied: the
// next group, else what the caller will probably read next.
static inline const uint8_t *rows_ahead(const struct matmul_args *a, int first, int rows)
{
    const uint8_t *w = a->w;
    if (first + rows < a->n_rows)
        return w + (size_t)(first + rows) * a->w_stride;
    return a->next ? a->next : w + (size_t)first * a->w_stride;
}

#endif
