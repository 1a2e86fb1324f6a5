// Matmul of one or two columns for 64-bit ARM, in place: weights are multiplied as they are unpacked, in registers.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da,
// D). Here four rows are multiplied together. Each row has sums in four lanes; the sums of four rows are reduced
// together by pairwise adds, so that a lane is a row, and the float chain of kernels.h runs on four rows at once. One
// column is memory-bound, so memory is read in its order: while a group of four rows is multiplied, every cache line
// of the next four is prefetched.
//   - With sdot, the sum of a group of elements does not start at zero. It continues the sum of the group before, and
//     with r_g the sum after group g
//         sum_g scale_g * dot_g = sum_g (scale_g - scale_(g+1)) * r_g,
//     which saves a zero per group. |r_g| <= 256 * 128 * 127, and int32 wraps to the exact sum.
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

// A span of the columns.
struct columns {
    const int8_t *q[COLUMNS];
    struct sums sums[COLUMNS];
    int32x4_t start[COLUMNS]; // of blocks without scales: the offset times the sums of the span, in four lanes
};

INLINE struct columns columns_at(const struct column *x, int n, int64_t span, int offset)
{
    struct columns c;
    UNROLL_FOR (int j = 0; j < n; j++) {
        c.q[j] = x[j].q + SPAN * span;
        c.sums[j] = sums_of(&x[j], span);
        c.start[j] = vmulq_n_s32(vpaddlq_s16(c.sums[j].of32), offset);
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

// struct scales: the scales of a row's groups. struct row_sum: the sums of a row's products with a column, in four
// lanes.
#ifdef __ARM_FEATURE_DOTPROD
struct scales {
    int32x4_t step[4]; // the scale of each group minus that of the next one
};

struct row_sum {
    int32x4_t sum, run; // sum_g step_g * r_g, and r_g
};

INLINE struct scales scales_of(const struct block_256 *b, int groups)
{
    struct scales s;
    UNROLL_FOR (int i = 0; i < groups / 8; i++) {
        int16x8_t next = vextq_s16(b->scale[i], i + 1 < groups / 8 ? b->scale[i + 1] : vdupq_n_s16(0), 1);
        int16x8_t step = vsubq_s16(b->scale[i], next);
        s.step[2 * i] = vmovl_s16(vget_low_s16(step)), s.step[2 * i + 1] = vmovl_high_s16(step);
    }
    return s;
}

// Adds 128 products, those of a half of a block; q points at its activations.
INLINE void dot_half(struct row_sum *s, const int8x16_t w[8], const struct scales *scales, const struct type_256 *t,
                     int half, const int8_t *q)
{
    if (t->groups == 1) {
        UNROLL_FOR (int i = 0; i < 8; i++)
            s->sum = vdotq_s32(s->sum, w[i], vld1q_s8(q + 16 * i));
        return;
    }
    int per = 16 / t->groups, groups = 8 / per;
    UNROLL_FOR (int g = 0; g < groups; g++) {
        UNROLL_FOR (int i = g * per; i < g * per + per; i++)
            s->run = vdotq_s32(s->run, w[i], vld1q_s8(q + 16 * i));
        s->sum = vmlaq_n_s32(s->sum, s->run, scales->step[(half * groups + g) / 4][(half * groups + g) % 4]);
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

INLINE struct scales scales_of(const struct block_256 *b, int groups)
{
    return (struct scales){{b->scale[0], groups == 16 ? b->scale[1] : b->scale[0]}};
}

INLINE void dot_half(struct row_sum *s, const int8x16_t w[8], const struct scales *scales, const struct type_256 *t,
                     int half, const int8_t *q)
{
    int per = 16 / t->groups, first = half * (8 / per);
    int16x8_t dot = vdupq_n_s16(0);
    UNROLL_FOR (int i = 0; i < 8; i++) {
        int8x16_t x = vld1q_s8(q + 16 * i);
        bool begins = i % MIN(per, 8) == 0 || t->wide, ends = i % per == per - 1 || t->wide;
        int g = first + i / per;
        dot = begins ? vmull_s8(vget_low_s8(w[i]), vget_low_s8(x)) : vmlal_s8(dot, vget_low_s8(w[i]), vget_low_s8(x));
        dot = vmlal_high_s8(dot, w[i], x);
        if (ends) {
            s->sum = vmlal_n_s16(s->sum, vget_low_s16(dot), scales->of[g / 8][g % 8]);
            s->sum = vmlal_high_n_s16(s->sum, dot, scales->of[g / 8][g % 8]);
        }
    }
    if (t->groups == 1)
        s->sum = vpadalq_s16(s->sum, dot);
}
#endif

// sum += factor * sums
INLINE int32x4_t multiply_sums(int32x4_t sum, int16x8_t factor, int16x8_t sums)
{
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(factor), vget_low_s16(sums)), factor, sums);
}

// The sum of a row's factors (scales or minima) times the sums of their groups' activations, in four lanes.
INLINE int32x4_t dot_sums(const int16x8_t *factor, int groups, const struct sums *s)
{
    int32x4_t zero = vdupq_n_s32(0);
    return groups == 8 ? multiply_sums(zero, factor[0], s->of32)
                       : multiply_sums(multiply_sums(zero, factor[0], s->of16[0]), factor[1], s->of16[1]);
}

// Corrects the sum of the products of a row's bytes to that of its weights.
INLINE int32x4_t add_offsets(int32x4_t sum, const struct type_256 *t, const struct block_256 *b, const struct sums *x)
{
    if (t->offset == SHIFTED) { // adds the scales, each with the sign of its group's shift, times the sums
        const int16x8_t shifts = vsubq_s16(veorq_s16(b->scale[0], b->down), b->down);
        return vaddq_s32(vshlq_n_s32(sum, 3), dot_sums(&shifts, t->groups, x));
    }
    if (t->offset && t->groups > 1) // without scales the sum has started with it
        return vmlaq_n_s32(sum, dot_sums(b->scale, t->groups, x), t->offset);
    return sum;
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
    UNROLL_FOR (int j = 0; j < n; j++)
        if (t->groups == 1)
            sum[j].sum = x->start[j];
    t->begin(block, &b);
    struct scales scales = scales_of(&b, t->groups);
    UNROLL_FOR (int half = 0; half < 2; half++) {
        t->half(block, half, &b);
        UNROLL_FOR (int j = 0; j < n; j++) {
            dot_half(&sum[j], b.w, &scales, t, half, x->q[j] + 128 * half);
            read_after(&block, x, n, sum[j].sum);
        }
    }
    UNROLL_FOR (int j = 0; j < n; j++) {
        p->dot[j][r] = add_offsets(sum[j].sum, t, &b, &x->sums[j]);
        if (t->m_at)
            p->min[j][r] = dot_sums(b.min, t->groups, &x->sums[j]);
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
            struct columns c = columns_at(x, n, i, t.offset);
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

// S of kernels.h of four rows for each column, and the sums of the span's blocks as floats.
struct partial {
    float32x4_t s[COLUMNS], sums[COLUMNS][2];
};

INLINE struct partial partial_begin(const struct columns *x, int n)
{
    struct partial p;
    UNROLL_FOR (int j = 0; j < n; j++) {
        p.s[j] = vdupq_n_f32(0);
        p.sums[j][0] = floats_of_low(x->sums[j].of32), p.sums[j][1] = floats_of_high(x->sums[j].of32);
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
            struct columns c = columns_at(x, n, i, t.offset);
            struct partial p = partial_begin(&c, n);
            prefetch_bytes(ahead, (size_t)(ROWS * 8 * t.bytes));
            UNROLL_FOR (int block = 0; block < 8; block++)
                add_block_32(&rows, &t, &c, n, block, &p);
            UNROLL_FOR (int j = 0; j < n; j++)
                chain[j] = vfmaq_n_f32(chain[j], p.s[j], x[j].da[i]);
        }
        if (a->k % SPAN) {
            struct columns c = columns_at(x, n, i, t.offset);
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
