// Matmul of one or two columns for 64-bit ARM, in place: weights are multiplied as they are unpacked, in registers.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da,
// D). Here four rows are multiplied together. Each row has sums in four lanes; the sums of four rows are reduced
// together by pairwise adds, so that a lane is a row, and the float chain of kernels.h runs on four rows at once. One
// column is memory-bound, so memory is read in its order: while a group of four rows is multiplied, every cache line
// of the next four is prefetched.
//   - The steps of the activations are multiplied into the scales of a row's block, eight at a time. The scales fit 16
//     bits (|scale| <= 128, step <= 16). Types with blocks of 32 multiply the sums of four rows by a step instead.
//   - With sdot, the sum of a group of elements does not start at zero. It continues the sum of the group before. With
//     run_g the sum after group g, and the scales times steps as scale_g,
//         sum_g scale_g * dot_g = sum_g (scale_g - scale_(g+1)) * run_g,
//     which saves a zero per group. int32 wraps to the exact sum.
//   - Without sdot, 16 products are two widening multiplies, the second of which adds to the first. Two products fit
//     16 bits always (|w * q| <= 128 * 127), four where |w| <= 32, and 16 where w is 0 to 3.
// neon/matmul_q8.c chooses it for up to two columns.
#include "kernels/cpu/neon/codebook.h"

enum {
    ROWS = 4,
    COLUMNS = 2,
#ifdef __ARM_FEATURE_DOTPROD
    SDOT = 1,
#else
    SDOT = 0,
#endif
};

// Lane r is the sum of all lanes of v[r].
INLINE int32x4_t reduce_rows(const int32x4_t v[ROWS])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

// The blocks of four rows. Past the end of the matrix the last row is repeated; n rows are stored.
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

// A span of the columns. `steps` are those of 8 groups of 32 elements, or of 16 groups of 16. `next` are the steps of
// the groups after these.
struct columns {
    const int8_t *q[COLUMNS];
    struct sums sums[COLUMNS];
    int16x8_t steps[COLUMNS][2], next[COLUMNS][2];
};

// Element i becomes element i + 1 of v, which has 8 or 16 elements. The last one becomes 0.
INLINE void shift_groups(const int16x8_t v[2], int groups, int16x8_t out[2])
{
    const int16x8_t zero = vdupq_n_s16(0);
    out[0] = vextq_s16(v[0], groups == 16 ? v[1] : zero, 1);
    if (groups == 16)
        out[1] = vextq_s16(v[1], zero, 1);
}

INLINE struct columns columns_at(const struct column *x, int n, int64_t span, int groups)
{
    struct columns c;
    UNROLL_FOR (int j = 0; j < n; j++) {
        int16x8_t steps = steps_of(&x[j], span);
        c.q[j] = x[j].q + SPAN * span;
        c.sums[j] = sums_of(&x[j], span);
        c.steps[j][0] = groups == 16 ? vzip1q_s16(steps, steps) : steps;
        c.steps[j][1] = vzip2q_s16(steps, steps);
        shift_groups(c.steps[j], groups, c.next[j]);
    }
    return c;
}

// Keeps later loads of the block and of the activations behind the computation of `done`. Otherwise the compiler loads
// everything at once, or keeps the activations from row to row, and spills most registers.
INLINE void read_after(const uint8_t **block, struct columns *x, int n, int32x4_t done)
{
    __asm__("" : "+r"(*block) : "w"(done));
    UNROLL_FOR (int j = 0; j < n; j++)
        __asm__("" : "+r"(x->q[j]) : "w"(done));
}

// ---- blocks of 256

// The number of groups with a scale each, where blocks without scales have eight groups with the scale 1.
INLINE int groups_of(const struct type_256 *t)
{
    return t->groups == 1 ? 8 : t->groups;
}

// struct scales: the scales of a row's groups, times the steps of a column. struct row_sum: the sums of a row's
// products with a column, in four lanes.
#ifdef __ARM_FEATURE_DOTPROD
struct scales {
    int16x8_t of[2];
    int32x4_t drop[4]; // the scale of each group minus that of the next one
};

struct row_sum {
    int32x4_t sum, run; // sum_g drop_g * run_g, and run_g
};

INLINE struct scales scales_of(const struct block_256 *b, int groups, const struct columns *x, int j)
{
    struct scales s;
    int16x8_t next[2];
    shift_groups(b->scale, groups, next);
    UNROLL_FOR (int i = 0; i < groups / 8; i++) {
        s.of[i] = vmulq_s16(b->scale[i], x->steps[j][i]);
        int16x8_t drop = vmlsq_s16(s.of[i], next[i], x->next[j][i]);
        s.drop[2 * i] = vmovl_s16(vget_low_s16(drop)), s.drop[2 * i + 1] = vmovl_high_s16(drop);
    }
    return s;
}

// Adds 128 products, those of a half of a block; q points at its activations.
INLINE void dot_half(struct row_sum *s, const int8x16_t w[8], const struct scales *scales, const struct type_256 *t,
                     int half, const int8_t *q)
{
    int per = 16 / groups_of(t), groups = 8 / per;
    UNROLL_FOR (int g = 0; g < groups; g++) {
        UNROLL_FOR (int i = g * per; i < g * per + per; i++)
            s->run = vdotq_s32(s->run, w[i], vld1q_s8(q + 16 * i));
        s->sum = vmlaq_n_s32(s->sum, s->run, scales->drop[(half * groups + g) / 4][(half * groups + g) % 4]);
        __asm__("" : "+w"(s->run) : "w"(s->sum)); // run is updated after it has been used, so that it is not copied
    }
}
#else
struct scales {
    int16x8_t of[2];
};

struct row_sum {
    int32x4_t sum;
};

INLINE struct scales scales_of(const struct block_256 *b, int groups, const struct columns *x, int j)
{
    struct scales s;
    UNROLL_FOR (int i = 0; i < groups / 8; i++)
        s.of[i] = vmulq_s16(b->scale[i], x->steps[j][i]);
    return s;
}

INLINE void dot_half(struct row_sum *s, const int8x16_t w[8], const struct scales *scales, const struct type_256 *t,
                     int half, const int8_t *q)
{
    int per = 16 / groups_of(t), first = half * (8 / per);
    int16x8_t dot = vdupq_n_s16(0);
    UNROLL_FOR (int i = 0; i < 8; i++) {
        int8x16_t x = vld1q_s8(q + 16 * i);
        bool begins = i % per == 0 || t->wide, ends = i % per == per - 1 || t->wide;
        int g = first + i / per;
        dot = begins ? vmull_s8(vget_low_s8(w[i]), vget_low_s8(x)) : vmlal_s8(dot, vget_low_s8(w[i]), vget_low_s8(x));
        dot = vmlal_high_s8(dot, w[i], x);
        if (ends) {
            s->sum = vmlal_n_s16(s->sum, vget_low_s16(dot), scales->of[g / 8][g % 8]);
            s->sum = vmlal_high_n_s16(s->sum, dot, scales->of[g / 8][g % 8]);
        }
    }
}
#endif

// sum += factor * sums
INLINE int32x4_t multiply_sums(int32x4_t sum, int16x8_t factor, int16x8_t sums)
{
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(factor), vget_low_s16(sums)), factor, sums);
}

// The sum of a row's minima times the sums and steps of their groups' activations, in four lanes. Steps are multiplied
// into the minima of eight groups, because sums of 32 elements times their steps exceed 16 bits; sums of 16 do not.
INLINE int32x4_t dot_mins(const struct block_256 *b, int groups, const struct columns *x, int j)
{
    const struct sums *s = &x->sums[j];
    const int16x8_t *steps = x->steps[j];
    int32x4_t zero = vdupq_n_s32(0);
    if (groups == 8)
        return multiply_sums(zero, vmulq_s16(b->min[0], steps[0]), s->of32);
    return multiply_sums(multiply_sums(zero, b->min[0], vmulq_s16(s->of16[0], steps[0])), b->min[1],
                         vmulq_s16(s->of16[1], steps[1]));
}

// Corrects the sum of the products of a row's bytes to that of its weights. Types with 16 groups have no offset.
INLINE int32x4_t add_offsets(int32x4_t sum, const struct type_256 *t, const struct block_256 *b,
                             const struct scales *scales, int16x8_t of32)
{
    int32x4_t zero = vdupq_n_s32(0);
    if (t->offset == SHIFTED) { // adds the scales, each with the sign of its group's shift, times the sums
        const int16x8_t shifts = vsubq_s16(veorq_s16(scales->of[0], b->down), b->down);
        return vaddq_s32(vshlq_n_s32(sum, 3), multiply_sums(zero, shifts, of32));
    }
    return t->offset ? vmlaq_n_s32(sum, multiply_sums(zero, scales->of[0], of32), t->offset) : sum;
}

// The sums of four rows' blocks with the columns, in four lanes each.
struct products {
    int32x4_t dot[COLUMNS][ROWS], min[COLUMNS][ROWS];
};

// Multiplies the block of row r with the columns.
INLINE void multiply_row(const uint8_t *block, const struct type_256 *t, struct columns *x, int n, struct products *p,
                         int r)
{
    struct block_256 b;
    struct row_sum sum[COLUMNS] = {0};
    struct scales scales[COLUMNS];
    t->begin(block, &b);
    UNROLL_FOR (int j = 0; j < n; j++)
        scales[j] = scales_of(&b, groups_of(t), x, j);
    UNROLL_FOR (int half = 0; half < 2; half++) {
        t->half(block, half, &b);
        UNROLL_FOR (int j = 0; j < n; j++) {
            dot_half(&sum[j], b.w, &scales[j], t, half, x->q[j] + 128 * half);
            read_after(&block, x, n, sum[j].sum);
        }
    }
    UNROLL_FOR (int j = 0; j < n; j++) {
        p->dot[j][r] = add_offsets(sum[j].sum, t, &b, &scales[j], x->sums[j].of32);
        if (t->m_at)
            p->min[j][r] = dot_mins(&b, t->groups, x, j);
    }
}

INLINE void in_place_256(const struct matmul_args *a, int n, struct type_256 t)
{
    struct column x[COLUMNS];
    for (int j = 0; j < n; j++)
        x[j] = column_of(a->x[j], a->k);
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        const uint8_t *ahead = rows_to_prefetch(a, first, ROWS);
        float32x4_t chain[COLUMNS] = {0};
        for (int64_t i = 0; i < a->k / SPAN; i++, ahead += ROWS * t.bytes) {
            struct columns c = columns_at(x, n, i, groups_of(&t));
            struct products p;
            prefetch_bytes(ahead, (size_t)(ROWS * t.bytes));
            UNROLL_FOR (int r = 0; r < ROWS; r++) {
                multiply_row(rows.at[r], &t, &c, n, &p, r);
                read_after(&rows.at[(r + 1) % ROWS], &c, n, p.dot[n - 1][r]);
            }
            struct factors f = factors_256(rows.at, &t);
            UNROLL_FOR (int j = 0; j < n; j++) {
                float32x4_t s = vmulq_f32(vcvtq_f32_s32(reduce_rows(p.dot[j])), f.d);
                if (t.m_at)
                    s = vfmsq_f32(s, vcvtq_f32_s32(reduce_rows(p.min[j])), f.m);
                chain[j] = vfmaq_n_f32(chain[j], s, x[j].da[i]);
            }
            UNROLL_FOR (int r = 0; r < ROWS; r++)
                rows.at[r] += t.bytes;
        }
        for (int j = 0; j < n; j++)
            store_rows(a->y[j] + first, chain[j], rows.n);
    }
}

// ---- blocks of 32

// The sums of the products of 32 weights of four rows, one lane per row.
#ifdef __ARM_FEATURE_DOTPROD
INLINE int32x4_t dot_32(int8x16_t w[ROWS][2], bool wide, int8x16_t q0, int8x16_t q1)
{
    (void)wide;
    int32x4_t dots[ROWS];
    UNROLL_FOR (int r = 0; r < ROWS; r++)
        dots[r] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), w[r][0], q0), w[r][1], q1);
    return reduce_rows(dots);
}
#else
// Sums of 16 bits, of two products each.
INLINE int16x8_t dot16(int8x16_t w, int8x16_t q)
{
    return vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(q)), w, q);
}

// Where |w| <= 16 (not `wide`), the sum of 16 products fits 16 bits, and pairs are added in 16 bits.
INLINE int32x4_t dot_32(int8x16_t w[ROWS][2], bool wide, int8x16_t q0, int8x16_t q1)
{
    int32x4_t dots[ROWS];
    int16x8_t narrow[ROWS];
    UNROLL_FOR (int r = 0; r < ROWS; r++) {
        if (wide)
            dots[r] = vpadalq_s16(vpaddlq_s16(dot16(w[r][0], q0)), dot16(w[r][1], q1));
        else
            narrow[r] = vmlal_high_s8(vmlal_s8(dot16(w[r][0], q0), vget_low_s8(w[r][1]), vget_low_s8(q1)), w[r][1], q1);
    }
    return wide ? reduce_rows(dots)
                : vpaddlq_s16(vpaddq_s16(vpaddq_s16(narrow[0], narrow[1]), vpaddq_s16(narrow[2], narrow[3])));
}
#endif

// S of kernels.h of four rows for each column; the steps of the span's blocks, and their sums times steps as floats.
struct partial {
    float32x4_t s[COLUMNS], sums[COLUMNS][2];
    int32x4_t steps[COLUMNS][2];
};

INLINE struct partial partial_begin(const struct columns *x, int n)
{
    struct partial p;
    UNROLL_FOR (int j = 0; j < n; j++) {
        p.s[j] = vdupq_n_f32(0);
        int16x8_t steps = x->steps[j][0];
        int32x4_t sums[2];
        weigh_sums(x->sums[j].of32, steps, sums);
        p.sums[j][0] = vcvtq_f32_s32(sums[0]), p.sums[j][1] = vcvtq_f32_s32(sums[1]);
        p.steps[j][0] = vmovl_s16(vget_low_s16(steps)), p.steps[j][1] = vmovl_high_s16(steps);
    }
    return p;
}

// Adds block i of a span to S, and advances the rows.
INLINE void add_block_32(struct row_group *rows, const struct type_32 *t, const struct columns *x, int n, int i,
                         struct partial *p)
{
    int8x16_t w[ROWS][2];
    UNROLL_FOR (int r = 0; r < ROWS; r++)
        t->unpack(rows->at[r], w[r]);
    struct factors f = factors_32(rows->at, t);
    UNROLL_FOR (int j = 0; j < n; j++) {
        const int8_t *q = x->q[j] + 32 * i;
        int32x4_t isum = dot_32(w, t->wide, vld1q_s8(q), vld1q_s8(q + 16));
        if (t->offset)
            isum = vmlal_n_s16(isum, vdup_n_s16((int16_t)t->offset), x->sums[j].of32[i]);
        isum = vmulq_n_s32(isum, p->steps[j][i / 4][i % 4]);
        p->s[j] = vfmaq_f32(p->s[j], vcvtq_f32_s32(isum), f.d);
        if (t->m_at)
            p->s[j] = vfmaq_n_f32(p->s[j], f.m, p->sums[j][i / 4][i % 4]);
    }
    UNROLL_FOR (int r = 0; r < ROWS; r++)
        rows->at[r] += t->bytes;
    if (n > 1 || !SDOT) // one column with sdot takes fewer instructions if blocks overlap
        load_after();
}

INLINE void in_place_32(const struct matmul_args *a, int n, struct type_32 t)
{
    struct column x[COLUMNS];
    for (int j = 0; j < n; j++)
        x[j] = column_of(a->x[j], a->k);
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        const uint8_t *ahead = rows_to_prefetch(a, first, ROWS);
        float32x4_t chain[COLUMNS] = {0};
        int64_t i = 0;
        for (; i < a->k / SPAN; i++, ahead += ROWS * 8 * t.bytes) {
            struct columns c = columns_at(x, n, i, 8);
            struct partial p = partial_begin(&c, n);
            prefetch_bytes(ahead, (size_t)(ROWS * 8 * t.bytes));
            UNROLL_FOR (int block = 0; block < 8; block++)
                add_block_32(&rows, &t, &c, n, block, &p);
            UNROLL_FOR (int j = 0; j < n; j++)
                chain[j] = vfmaq_n_f32(chain[j], p.s[j], x[j].da[i]);
        }
        if (a->k % SPAN) {
            struct columns c = columns_at(x, n, i, 8);
            struct partial p = partial_begin(&c, n);
            for (int block = 0; block < (int)(a->k % SPAN / 32); block++)
                add_block_32(&rows, &t, &c, n, block, &p);
            UNROLL_FOR (int j = 0; j < n; j++)
                chain[j] = vfmaq_n_f32(chain[j], p.s[j], x[j].da[i]);
        }
        for (int j = 0; j < n; j++)
            store_rows(a->y[j] + first, chain[j], rows.n);
    }
}

// ---- the entry points
//
// IN_PLACE(name, CALL, type) defines the function in_place_<name>, whose kernel CALL is compiled for one and for two
// columns; type is a struct type_256 or type_32. IN_PLACE_256 and IN_PLACE_32 take the columns of TYPES_256 and
// TYPES_32.

#define IN_PLACE(name, CALL, ...)                                                                                      \
    static void in_place_##name(const struct matmul_args *a)                                                           \
    {                                                                                                                  \
        if (a->n_x == 1)                                                                                               \
            CALL(a, 1, __VA_ARGS__);                                                                                   \
        else                                                                                                           \
            CALL(a, 2, __VA_ARGS__);                                                                                   \
    }
// clang-format off
#define IN_PLACE_256(name, NAME, bytes, groups, offset, wide, d_at, m_at, unit) \
    IN_PLACE(name, in_place_256, \
           (struct type_256){DT_##NAME, bytes, groups, offset, wide, d_at, m_at, unit, begin_##name, half_##name})
#define IN_PLACE_32(name, NAME, bytes, offset, wide, power, m_at) \
    IN_PLACE(name, in_place_32, (struct type_32){DT_##NAME, bytes, offset, wide, power, m_at, unpack_##name})
// clang-format on
TYPES_256(IN_PLACE_256)
TYPES_CODEBOOK(IN_PLACE_256)
TYPES_32(IN_PLACE_32)

#define ENTRY(name, NAME, ...) [DT_##NAME] = in_place_##name,
matmul_fn *const ISA_FN(matmul_q8_in_place)[DT_COUNT] = {TYPES_256(ENTRY) TYPES_CODEBOOK(ENTRY) TYPES_32(ENTRY)};
