// One column by four rows at a time, for 64-bit ARM: what writing a text waits for.
//
// Each row's block is multiplied as it is unpacked, in registers; the four rows' sums are reduced together by pairwise
// adds, so that a lane is a row, and the float chain of kernels.h runs on four rows at a time. Memory is read ahead
// from front to back: while a group of four rows is multiplied, every line of the next four is fetched, in order.
//
// With sdot a group's dot is not begun at zero: it runs on, and with r_g the sum after group g
//     sum_g scale_g * dot_g = sum_g (scale_g - scale_(g+1)) * r_g,
// which spares a zero for each group; |r_g| <= 256 * 128 * 127, and int32 wraps to the exact sum. Without sdot 16
// products are two widening multiplies, the second onto the first: |w * q| <= 128 * 127 and twice that fits 16 bits,
// four times where |w| <= 32.
#include "kernels/cpu/matmul_q8_neon_unpack.h"

enum { ROWS = 4 };

INLINE int32x4_t reduce_rows(const int32x4_t v[ROWS])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

// Up to four rows; those that are missing repeat the last.
struct row_group {
    const uint8_t *at[ROWS];
    int n;
};

INLINE struct row_group rows_from(const struct matmul_args *a, int first)
{
    struct row_group rows = {.n = MIN(ROWS, a->n_rows - first)};
    for (int r = 0; r < ROWS; r++)
        rows.at[r] = (const uint8_t *)a->w + (size_t)(first + MIN(r, rows.n - 1)) * a->w_stride;
    return rows;
}

INLINE void store_rows(float *y, float32x4_t v, int n)
{
    if (n == ROWS) {
        vst1q_f32(y, v);
        return;
    }
    float lanes[ROWS];
    vst1q_f32(lanes, v);
    memcpy(y, lanes, (size_t)n * sizeof(float));
}

// Has the compiler read from here on, of a block and of the activations, after `done` is computed: of all at once, or
// with the activations kept from row to row, it would spill most registers.
INLINE void read_after(const uint8_t **block, const int8_t **q, int32x4_t done)
{
    __asm__("" : "+r"(*block), "+r"(*q) : "w"(done));
}

// ---- blocks of 256

// 128 products, in four lanes: `per` vectors share a scale, of which they have those from `first` on. q is at the first
// of their activations.
#ifdef __ARM_FEATURE_DOTPROD
INLINE int32x4_t dot_half(int32x4_t sum, int32x4_t *run, const int8x16_t w[8], const int32x4_t *steps, int per,
                          const int8_t *q)
{
    UNROLL for (int g = 0; g < 8 / per; g++)
    {
        UNROLL for (int i = g * per; i < g * per + per; i++) *run = vdotq_s32(*run, w[i], vld1q_s8(q + 16 * i));
        sum = vmlaq_n_s32(sum, *run, steps[g / 4][g % 4]);
        __asm__("" : "+w"(*run) : "w"(sum)); // the run goes on when it has been added, and needs no copy
    }
    return sum;
}

// One row's 256 products.
INLINE int32x4_t dot_row(const uint8_t *block, struct block_256 *b, const struct type_256 *t, const int8_t **q)
{
    int32x4_t sum = vdupq_n_s32(0), run = vdupq_n_s32(0), steps[4];
    UNROLL for (int i = 0; i < t->groups / 8; i++)
    {
        int16x8_t next = vextq_s16(b->scale[i], i + 1 < t->groups / 8 ? b->scale[i + 1] : vdupq_n_s16(0), 1);
        int16x8_t step = vsubq_s16(b->scale[i], next);
        steps[2 * i] = vmovl_s16(vget_low_s16(step)), steps[2 * i + 1] = vmovl_high_s16(step);
    }
    UNROLL for (int half = 0; half < 2; half++)
    {
        t->half(block, half, b);
        sum = dot_half(sum, &run, b->w, steps + half * (t->groups / 8), 16 / t->groups, *q + 128 * half);
        read_after(&block, q, sum);
    }
    return sum;
}
#else
INLINE int32x4_t add_scaled(int32x4_t sum, int16x8_t dot, int16_t scale)
{
    return vmlal_high_n_s16(vmlal_n_s16(sum, vget_low_s16(dot), scale), dot, scale);
}

INLINE int32x4_t dot_half(int32x4_t sum, const int8x16_t w[8], int16x8_t scale, int first, int per, bool wide,
                          const int8_t *q)
{
    int16x8_t dot = vdupq_n_s16(0);
    UNROLL for (int i = 0; i < 8; i++)
    {
        int8x16_t x = vld1q_s8(q + 16 * i);
        bool begins = i % per == 0 || wide, ends = i % per == per - 1 || wide;
        dot = begins ? vmull_s8(vget_low_s8(w[i]), vget_low_s8(x)) : vmlal_s8(dot, vget_low_s8(w[i]), vget_low_s8(x));
        dot = vmlal_high_s8(dot, w[i], x);
        if (ends)
            sum = add_scaled(sum, dot, scale[first + i / per]);
    }
    return sum;
}

INLINE int32x4_t dot_row(const uint8_t *block, struct block_256 *b, const struct type_256 *t, const int8_t **q)
{
    int32x4_t sum = vdupq_n_s32(0);
    UNROLL for (int half = 0; half < 2; half++)
    {
        bool eight = t->groups == 8;
        t->half(block, half, b);
        sum = dot_half(sum, b->w, b->scale[eight ? 0 : half], eight ? 4 * half : 0, 16 / t->groups, t->wide,
                       *q + 128 * half);
        read_after(&block, q, sum);
    }
    return sum;
}
#endif

INLINE int32x4_t multiply_sums(int32x4_t sum, int16x8_t factor, int16x8_t sums)
{
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(factor), vget_low_s16(sums)), factor, sums);
}

// The sum of a row's factors by the sums of activations that they serve, in four lanes.
INLINE int32x4_t dot_sums(const int16x8_t factor[2], int groups, const struct sums *s)
{
    int32x4_t zero = vdupq_n_s32(0);
    return groups == 8 ? multiply_sums(zero, factor[0], s->of32)
                       : multiply_sums(multiply_sums(zero, factor[0], s->of16[0]), factor[1], s->of16[1]);
}

INLINE void column_256(const struct matmul_args *a, struct type_256 t)
{
    const struct column x = column_of(a->x[0], a->k);
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        const uint8_t *ahead = rows_ahead(a, first, ROWS);
        float32x4_t chain = vdupq_n_f32(0);
        for (int64_t i = 0; i < a->k / SPAN; i++, ahead += ROWS * t.bytes) {
            const int8_t *q = x.q + SPAN * i;
            struct sums sums = sums_of(&x, i);
            int32x4_t dots[ROWS], mins[ROWS];
            fetch(ahead, (size_t)(ROWS * t.bytes));
            UNROLL for (int r = 0; r < ROWS; r++)
            {
                struct block_256 b;
                t.begin(rows.at[r], &b);
                dots[r] = dot_row(rows.at[r], &b, &t, &q);
                if (t.offset)
                    dots[r] = vmlaq_n_s32(dots[r], dot_sums(b.scale, t.groups, &sums), t.offset);
                if (t.m_at)
                    mins[r] = dot_sums(b.min, t.groups, &sums);
                if (r + 1 < ROWS)
                    read_after(&rows.at[r + 1], &q, dots[r]);
            }
            struct factors f = factors_256(rows.at, &t);
            float32x4_t s = vmulq_f32(vcvtq_f32_s32(reduce_rows(dots)), f.d);
            if (t.m_at)
                s = vfmsq_f32(s, vcvtq_f32_s32(reduce_rows(mins)), f.m);
            chain = vfmaq_n_f32(chain, s, x.da[i]);
            UNROLL for (int r = 0; r < ROWS; r++) rows.at[r] += t.bytes;
        }
        store_rows(a->y[0] + first, chain, rows.n);
    }
}

// ---- blocks of 32

// The products of four rows' 32 weights, a lane a row.
#ifdef __ARM_FEATURE_DOTPROD
INLINE int32x4_t dot_32(int8x16_t w[ROWS][2], bool wide, int8x16_t q0, int8x16_t q1)
{
    (void)wide;
    int32x4_t dots[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) dots[r] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), w[r][0], q0), w[r][1], q1);
    return reduce_rows(dots);
}
#else
INLINE int16x8_t dot16(int8x16_t w, int8x16_t q)
{
    return vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(q)), w, q);
}

// Where |w| <= 16 the sum of 16 products still fits 16 bits, and pairs are added there.
INLINE int32x4_t dot_32(int8x16_t w[ROWS][2], bool wide, int8x16_t q0, int8x16_t q1)
{
    int32x4_t dots[ROWS];
    int16x8_t narrow[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++)
    {
        if (wide)
            dots[r] = vpadalq_s16(vpaddlq_s16(dot16(w[r][0], q0)), dot16(w[r][1], q1));
        else
            narrow[r] = vmlal_high_s8(vmlal_s8(dot16(w[r][0], q0), vget_low_s8(w[r][1]), vget_low_s8(q1)), w[r][1], q1);
    }
    return wide ? reduce_rows(dots)
                : vpaddlq_s16(vpaddq_s16(vpaddq_s16(narrow[0], narrow[1]), vpaddq_s16(narrow[2], narrow[3])));
}
#endif

// S of kernels.h: n blocks of four rows, from the first of a span on. The rows go on behind them.
INLINE float32x4_t add_blocks_32(struct row_group *rows, const struct type_32 *t, int n, const int8_t *q,
                                 struct sums sums)
{
    float32x4_t s = vdupq_n_f32(0), float_sums[2] = {floats_of_low(sums.of32), floats_of_high(sums.of32)};
    UNROLL for (int j = 0; j < n; j++)
    {
        int8x16_t w[ROWS][2];
        UNROLL for (int r = 0; r < ROWS; r++) t->unpack(rows->at[r], w[r]);
        int32x4_t isum = dot_32(w, t->wide, vld1q_s8(q + 32 * j), vld1q_s8(q + 32 * j + 16));
        if (t->offset)
            isum = vmlal_n_s16(isum, vdup_n_s16((int16_t)t->offset), sums.of32[j]);
        struct factors f = factors_32(rows->at, t);
        s = vfmaq_f32(s, vcvtq_f32_s32(isum), f.d);
        if (t->m_at)
            s = vfmaq_n_f32(s, f.m, float_sums[j / 4][j % 4]);
        UNROLL for (int r = 0; r < ROWS; r++) rows->at[r] += t->bytes;
    }
    return s;
}

INLINE void column_32(const struct matmul_args *a, struct type_32 t)
{
    const struct column x = column_of(a->x[0], a->k);
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        const uint8_t *ahead = rows_ahead(a, first, ROWS);
        float32x4_t chain = vdupq_n_f32(0);
        int64_t i = 0;
        for (; i < a->k / SPAN; i++, ahead += ROWS * 8 * t.bytes) {
            fetch(ahead, (size_t)(ROWS * 8 * t.bytes));
            float32x4_t s = add_blocks_32(&rows, &t, 8, x.q + SPAN * i, sums_of(&x, i));
            chain = vfmaq_n_f32(chain, s, x.da[i]);
        }
        if (a->k % SPAN) {
            int n = (int)(a->k % SPAN / 32);
            chain = vfmaq_n_f32(chain, add_blocks_32(&rows, &t, n, x.q + SPAN * i, sums_of(&x, i)), x.da[i]);
        }
        store_rows(a->y[0] + first, chain, rows.n);
    }
}

// ---- the functions of the level

#define COLUMN_256(name, NAME, bytes, groups, offset, wide, d_at, m_at)                                                \
    static void column_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        column_256(a,                                                                                                  \
                   (struct type_256){DT_##NAME, bytes, groups, offset, wide, d_at, m_at, begin_##name, half_##name});  \
    }
#define COLUMN_32(name, NAME, bytes, offset, wide, power, m_at)                                                        \
    static void column_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        column_32(a, (struct type_32){DT_##NAME, bytes, offset, wide, power, m_at, unpack_##name});                    \
    }
TYPES_256(COLUMN_256)
TYPES_32(COLUMN_32)

#define ENTRY(name, NAME, ...) [DT_##NAME] = column_##name,
matmul_fn *const ISA_FN(matmul_q8_column)[DT_COUNT] = {TYPES_256(ENTRY) TYPES_32(ENTRY)};
