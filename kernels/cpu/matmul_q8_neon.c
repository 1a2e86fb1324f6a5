// The 8-bit matmul for 64-bit ARM, compiled three times: with the products of matrices (smmla) and the dot product
// (sdot), with the dot product alone, and without either.
//
// The shape is that of the AVX2 file: a block of four rows is unpacked once into signed bytes, all columns sweep over
// it, and the four rows' sums are reduced together by pairwise adds, so that a lane is a row. Without sdot a product of
// 16 bytes takes two widening multiplies and two pairwise accumulations: |w * q| <= 128 * 127 fits 16 bits, and pairs
// are added in 32, so nothing saturates. smmla multiplies two rows by two columns, 8 bytes of each: columns are then
// taken in pairs, the rows of the block lie interleaved by 8 bytes, and a last odd column goes the way of sdot. The
// integers are the same.
#include "kernels/cpu/level.h"

#include <arm_neon.h>

enum { ROWS = 4, COLUMNS_MAX = SCRATCH_BYTES / 32 };

struct block {
    int8x16_t w[ROWS][16];
    int32_t scale[ROWS][16]; // of each 16 elements
    int16x8_t min[ROWS][2];  // of each 16 activations' sum
    float32x4_t d, m;        // a lane a row
};

static inline float f16_at(const uint8_t *p)
{
    __fp16 h;
    memcpy(&h, p, 2);
    return (float)h;
}

static inline float32x4_t f16_of_rows(const uint8_t *const *rows, size_t at)
{
    float v[ROWS] = {f16_at(rows[0] + at), f16_at(rows[1] + at), f16_at(rows[2] + at), f16_at(rows[3] + at)};
    return vld1q_f32(v);
}

static inline int32x4_t dot16(int32x4_t sum, int8x16_t w, int8x16_t q)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, w, q);
#else
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(w), vget_low_s8(q)));
    return vpadalq_s16(sum, vmull_high_s8(w, q));
#endif
}

static inline int32x4_t reduce_rows(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d)
{
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

#ifdef __ARM_FEATURE_MATMUL_INT8
enum { PAIRS = ROWS / 2 };

static inline int8x16_t low_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

static inline int8x16_t high_halves(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

// 16 bytes of two rows (w: their low halves, their high halves) by those of two columns: lane 2 r + c has row r,
// column c.
static inline int32x4_t dot16_pair(int32x4_t sum, const int8x16_t *w, int8x16_t low, int8x16_t high)
{
    return vmmlaq_s32(vmmlaq_s32(sum, w[0], low), w[1], high);
}
#endif

static inline int8x16_t signed_of(uint8x16_t v)
{
    return vreinterpretq_s8_u8(v);
}

// ---- unpacking blocks of 256: one row

// Eight 6-bit scales and mins in 12 bytes; each serves 32 elements.
static inline void unpack_k4_scales(const uint8_t *p, struct block *o, int r)
{
    int16_t mins[16];
    for (int j = 0; j < 8; j++) {
        int scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
        int min = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
        o->scale[r][2 * j] = o->scale[r][2 * j + 1] = scale;
        mins[2 * j] = mins[2 * j + 1] = (int16_t)min;
    }
    o->min[r][0] = vld1q_s16(mins), o->min[r][1] = vld1q_s16(mins + 8);
}

static inline void unpack_q4_k(const uint8_t *b, struct block *o, int r)
{
    unpack_k4_scales(b + 4, o, r);
    for (int j = 0; j < 8; j++) { // 16 bytes: low nibbles at 64 (j / 2) + 16 (j % 2), high ones 32 further
        uint8x16_t q = vld1q_u8(b + 16 + 16 * j);
        int8x16_t *w = &o->w[r][j / 2 * 4 + j % 2];
        w[0] = signed_of(vandq_u8(q, vdupq_n_u8(15)));
        w[2] = signed_of(vshrq_n_u8(q, 4));
    }
}

static inline void unpack_q5_k(const uint8_t *b, struct block *o, int r)
{
    unpack_k4_scales(b + 4, o, r);
    for (int j = 0; j < 8; j++) {
        uint8x16_t q = vld1q_u8(b + 48 + 16 * j),
                   high = vshlq_u8(vld1q_u8(b + 16 + j % 2 * 16), vdupq_n_s8((int8_t)(-(j / 2) * 2)));
        int8x16_t *w = &o->w[r][j / 2 * 4 + j % 2];
        w[0] = signed_of(vorrq_u8(vandq_u8(q, vdupq_n_u8(15)), vshlq_n_u8(vandq_u8(high, vdupq_n_u8(1)), 4)));
        w[2] = signed_of(vorrq_u8(vshrq_n_u8(q, 4), vshlq_n_u8(vandq_u8(high, vdupq_n_u8(2)), 3)));
    }
}

static inline void unpack_q6_k(const uint8_t *b, struct block *o, int r)
{
    for (int s = 0; s < 16; s++)
        o->scale[r][s] = (int8_t)b[192 + s];
    o->min[r][0] = o->min[r][1] = vdupq_n_s16(0);
    for (int half = 0; half < 2; half++)
        for (int j = 0; j < 8; j++) { // 16 elements at 128 half + 16 j
            uint8x16_t q = vld1q_u8(b + 64 * half + j % 4 * 16), h = vld1q_u8(b + 128 + 32 * half + j % 2 * 16);
            uint8x16_t low = j < 4 ? vandq_u8(q, vdupq_n_u8(15)) : vshrq_n_u8(q, 4);
            uint8x16_t high = vandq_u8(vshlq_u8(h, vdupq_n_s8((int8_t)(-(j / 2) * 2))), vdupq_n_u8(3));
            o->w[r][8 * half + j] = vsubq_s8(signed_of(vorrq_u8(low, vshlq_n_u8(high, 4))), vdupq_n_s8(32));
        }
}

// ---- blocks of 256

// One row's 256 products with a column, in four lanes; `per` sums of 16 share a scale.
static inline int32x4_t dot_row(const struct block *b, int r, int per, const int8_t *q)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int s = 0; s < 16; s += per) {
        int32x4_t dot = vdupq_n_s32(0);
        for (int i = s; i < s + per; i++)
            dot = dot16(dot, b->w[r][i], vld1q_s8(q + 16 * i));
        sum = vmlaq_n_s32(sum, dot, b->scale[r][s]);
    }
    return sum;
}

static inline int32x4_t min_row(const struct block *b, int r, const int16_t *sums)
{
    int16x8_t s0 = vld1q_s16(sums), s1 = vld1q_s16(sums + 8);
    int32x4_t sum = vmull_s16(vget_low_s16(b->min[r][0]), vget_low_s16(s0));
    sum = vmlal_high_s16(sum, b->min[r][0], s0);
    sum = vmlal_s16(sum, vget_low_s16(b->min[r][1]), vget_low_s16(s1));
    return vmlal_high_s16(sum, b->min[r][1], s1);
}

// A q8 row from block i on, as add_block takes it.
struct column {
    const int8_t *q;
    const int16_t *sums;
    float da;
};

static inline struct column column_at(const struct matmul_args *a, int j, int64_t i)
{
    const void *x = a->x[j];
    return (struct column){q8_quants(x) + 256 * i, q8_sums(x, a->k) + 16 * i, q8_scales(x, a->k)[i]};
}

static inline int32x4_t dot_rows(const struct block *b, int per, const int8_t *q)
{
    return reduce_rows(dot_row(b, 0, per, q), dot_row(b, 1, per, q), dot_row(b, 2, per, q), dot_row(b, 3, per, q));
}

// The float chain of kernels.h, a step of four rows at once.
static inline float32x4_t add_block(float32x4_t chain, const struct block *b, int32x4_t isum, bool mins,
                                    const int16_t *sums, float da)
{
    float32x4_t s = vmulq_f32(vcvtq_f32_s32(isum), b->d);
    if (mins) {
        int32x4_t msum =
            reduce_rows(min_row(b, 0, sums), min_row(b, 1, sums), min_row(b, 2, sums), min_row(b, 3, sums));
        s = vfmsq_f32(s, vcvtq_f32_s32(msum), b->m);
    }
    return vfmaq_n_f32(chain, s, da);
}

// Adds a block to the chains of the columns from first_x on that go in pairs; returns how many did.
#ifdef __ARM_FEATURE_MATMUL_INT8
struct pairs {
    int8x16_t w[PAIRS][16][2];
    int32x4_t scale[PAIRS][16]; // lanes as in dot16_pair
};

static inline void pair_rows(const struct block *b, int per, struct pairs *o)
{
    for (int p = 0; p < PAIRS; p++) {
        const int8x16_t *even = b->w[2 * p], *odd = b->w[2 * p + 1];
        for (int i = 0; i < 16; i++)
            o->w[p][i][0] = low_halves(even[i], odd[i]), o->w[p][i][1] = high_halves(even[i], odd[i]);
        for (int s = 0; s < 16; s += per)
            o->scale[p][s] = vcombine_s32(vdup_n_s32(b->scale[2 * p][s]), vdup_n_s32(b->scale[2 * p + 1][s]));
    }
}

static inline int32x4x2_t dot_pairs(const struct pairs *w, int per, const int8_t *q0, const int8_t *q1)
{
    int32x4_t sum[PAIRS] = {vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 16
    for (int s = 0; s < 16; s += per) {
        int32x4_t dot[PAIRS] = {vdupq_n_s32(0), vdupq_n_s32(0)};
        for (int i = s; i < s + per; i++) {
            int8x16_t a = vld1q_s8(q0 + 16 * i), b = vld1q_s8(q1 + 16 * i);
            int8x16_t low = low_halves(a, b), high = high_halves(a, b);
            for (int p = 0; p < PAIRS; p++)
                dot[p] = dot16_pair(dot[p], w->w[p][i], low, high);
        }
        for (int p = 0; p < PAIRS; p++)
            sum[p] = vmlaq_s32(sum[p], dot[p], w->scale[p][s]);
    }
    return vuzpq_s32(sum[0], sum[1]); // a column each, a lane a row
}

static inline int add_block_in_pairs(float32x4_t *chains, const struct block *b, int per, bool mins,
                                     const struct matmul_args *a, int first_x, int n_x, int64_t i)
{
    if (n_x < 2)
        return 0;
    struct pairs w;
    pair_rows(b, per, &w);
    for (int j = 0; j + 1 < n_x; j += 2) {
        struct column x = column_at(a, first_x + j, i), y = column_at(a, first_x + j + 1, i);
        int32x4x2_t isum = dot_pairs(&w, per, x.q, y.q);
        chains[j] = add_block(chains[j], b, isum.val[0], mins, x.sums, x.da);
        chains[j + 1] = add_block(chains[j + 1], b, isum.val[1], mins, y.sums, y.da);
    }
    return n_x & ~1;
}
#else
static inline int add_block_in_pairs(float32x4_t *chains, const struct block *b, int per, bool mins,
                                     const struct matmul_args *a, int first_x, int n_x, int64_t i)
{
    (void)chains, (void)b, (void)per, (void)mins, (void)a, (void)first_x, (void)n_x, (void)i;
    return 0;
}
#endif

// Up to four rows; those that are missing repeat the last.
struct row_group {
    const uint8_t *at[ROWS];
    int n;
};

static struct row_group rows_from(const struct matmul_args *a, int first)
{
    struct row_group rows = {.n = MIN(ROWS, a->n_rows - first)};
    for (int r = 0; r < ROWS; r++)
        rows.at[r] = (const uint8_t *)a->w + (size_t)(first + MIN(r, rows.n - 1)) * a->w_stride;
    return rows;
}

static inline void store_rows(float *y, float32x4_t v, int n)
{
    float lanes[ROWS];
    vst1q_f32(lanes, v);
    memcpy(y, lanes, (size_t)n * sizeof(float));
}

typedef void unpack_fn(const uint8_t *block, struct block *out, int row);

static inline __attribute__((always_inline)) void matmul_256(const struct matmul_args *a, int first_x, int n_x,
                                                             enum dtype type, unpack_fn *unpack, int per, size_t d_at,
                                                             size_t m_at)
{
    const size_t bytes = (size_t)dtype_info[type].bytes;
    float32x4_t *chains = a->scratch;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        memset(chains, 0, (size_t)n_x * sizeof(*chains));
        for (int64_t i = 0; i < a->k / 256; i++) {
            struct block b;
            for (int r = 0; r < ROWS; r++)
                unpack(rows.at[r], &b, r);
            b.d = f16_of_rows(rows.at, d_at);
            b.m = m_at ? f16_of_rows(rows.at, m_at) : vdupq_n_f32(0);
            for (int j = add_block_in_pairs(chains, &b, per, m_at != 0, a, first_x, n_x, i); j < n_x; j++) {
                struct column x = column_at(a, first_x + j, i);
                chains[j] = add_block(chains[j], &b, dot_rows(&b, per, x.q), m_at != 0, x.sums, x.da);
            }
            for (int r = 0; r < ROWS; r++)
                rows.at[r] += bytes;
        }
        for (int j = 0; j < n_x; j++)
            store_rows(a->y[first_x + j] + first, chains[j], rows.n);
    }
}

// ---- blocks of 32

struct block_32 {
    int8x16_t w[ROWS][2];
    float32x4_t d;
};

static inline void unpack_q8_0(const uint8_t *b, struct block_32 *o, int r)
{
    o->w[r][0] = signed_of(vld1q_u8(b + 2));
    o->w[r][1] = signed_of(vld1q_u8(b + 18));
}

static inline void unpack_q4_0(const uint8_t *b, struct block_32 *o, int r)
{
    uint8x16_t q = vld1q_u8(b + 2);
    o->w[r][0] = vsubq_s8(signed_of(vandq_u8(q, vdupq_n_u8(15))), vdupq_n_s8(8));
    o->w[r][1] = vsubq_s8(signed_of(vshrq_n_u8(q, 4)), vdupq_n_s8(8));
}

static inline int32x4_t dot_row_32(const struct block_32 *b, int r, int8x16_t q0, int8x16_t q1)
{
    return dot16(dot16(vdupq_n_s32(0), b->w[r][0], q0), b->w[r][1], q1);
}

static inline int32x4_t dot_rows_32(const struct block_32 *b, int8x16_t q0, int8x16_t q1)
{
    return reduce_rows(dot_row_32(b, 0, q0, q1), dot_row_32(b, 1, q0, q1), dot_row_32(b, 2, q0, q1),
                       dot_row_32(b, 3, q0, q1));
}

// S of kernels.h, and after the last block of 32 that shares a scale of the activations the chain, a step of four rows.
static inline void add_block_32(float32x4_t *chain, float32x4_t *partial, const struct block_32 *b, int32x4_t isum,
                                bool last, const void *x, int64_t k, int64_t i)
{
    float32x4_t s = vfmaq_f32(*partial, vcvtq_f32_s32(isum), b->d);
    if (last) {
        *chain = vfmaq_n_f32(*chain, s, q8_scales(x, k)[i / 8]);
        s = vdupq_n_f32(0);
    }
    *partial = s;
}

// As add_block_in_pairs.
#ifdef __ARM_FEATURE_MATMUL_INT8
static inline int add_block_32_in_pairs(float32x4_t *chains, float32x4_t *partial, const struct block_32 *b, bool last,
                                        const struct matmul_args *a, int first_x, int n_x, int64_t i)
{
    if (n_x < 2)
        return 0;
    int8x16_t w[PAIRS][2][2];
    for (int p = 0; p < PAIRS; p++)
        for (int h = 0; h < 2; h++) {
            w[p][h][0] = low_halves(b->w[2 * p][h], b->w[2 * p + 1][h]);
            w[p][h][1] = high_halves(b->w[2 * p][h], b->w[2 * p + 1][h]);
        }
    for (int j = 0; j + 1 < n_x; j += 2) {
        const void *x = a->x[first_x + j], *y = a->x[first_x + j + 1];
        int32x4_t sum[PAIRS] = {vdupq_n_s32(0), vdupq_n_s32(0)};
        for (int h = 0; h < 2; h++) {
            int8x16_t q0 = vld1q_s8(q8_quants(x) + 32 * i + 16 * h), q1 = vld1q_s8(q8_quants(y) + 32 * i + 16 * h);
            int8x16_t low = low_halves(q0, q1), high = high_halves(q0, q1);
            for (int p = 0; p < PAIRS; p++)
                sum[p] = dot16_pair(sum[p], w[p][h], low, high);
        }
        int32x4x2_t isum = vuzpq_s32(sum[0], sum[1]);
        add_block_32(&chains[j], &partial[j], b, isum.val[0], last, x, a->k, i);
        add_block_32(&chains[j + 1], &partial[j + 1], b, isum.val[1], last, y, a->k, i);
    }
    return n_x & ~1;
}
#else
static inline int add_block_32_in_pairs(float32x4_t *chains, float32x4_t *partial, const struct block_32 *b, bool last,
                                        const struct matmul_args *a, int first_x, int n_x, int64_t i)
{
    (void)chains, (void)partial, (void)b, (void)last, (void)a, (void)first_x, (void)n_x, (void)i;
    return 0;
}
#endif

typedef void unpack_32_fn(const uint8_t *block, struct block_32 *out, int row);

static inline __attribute__((always_inline)) void matmul_32(const struct matmul_args *a, int first_x, int n_x,
                                                            enum dtype type, unpack_32_fn *unpack)
{
    const size_t bytes = (size_t)dtype_info[type].bytes;
    float32x4_t *chains = a->scratch, *partial = chains + n_x;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        memset(chains, 0, (size_t)n_x * 2 * sizeof(*chains));
        for (int64_t i = 0; i < a->k / 32; i++) {
            struct block_32 b;
            for (int r = 0; r < ROWS; r++)
                unpack(rows.at[r], &b, r);
            b.d = f16_of_rows(rows.at, 0);
            bool last = i % 8 == 7 || i + 1 == a->k / 32;
            for (int j = add_block_32_in_pairs(chains, partial, &b, last, a, first_x, n_x, i); j < n_x; j++) {
                const void *x = a->x[first_x + j];
                int8x16_t q0 = vld1q_s8(q8_quants(x) + 32 * i), q1 = vld1q_s8(q8_quants(x) + 32 * i + 16);
                add_block_32(&chains[j], &partial[j], &b, dot_rows_32(&b, q0, q1), last, x, a->k, i);
            }
            for (int r = 0; r < ROWS; r++)
                rows.at[r] += bytes;
        }
        for (int j = 0; j < n_x; j++)
            store_rows(a->y[first_x + j] + first, chains[j], rows.n);
    }
}

// ---- the functions of the level: more columns than the scratch has chains for go in turns

#define MATMUL(name, CALL)                                                                                             \
    static void matmul_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        for (int at = 0; at < a->n_x; at += COLUMNS_MAX) {                                                             \
            int n = MIN(COLUMNS_MAX, a->n_x - at);                                                                     \
            CALL;                                                                                                      \
        }                                                                                                              \
    }

MATMUL(q4_k, matmul_256(a, at, n, DT_Q4_K, unpack_q4_k, 2, 0, 2))
MATMUL(q5_k, matmul_256(a, at, n, DT_Q5_K, unpack_q5_k, 2, 0, 2))
MATMUL(q6_k, matmul_256(a, at, n, DT_Q6_K, unpack_q6_k, 1, 208, 0))
MATMUL(q8_0, matmul_32(a, at, n, DT_Q8_0, unpack_q8_0))
MATMUL(q4_0, matmul_32(a, at, n, DT_Q4_0, unpack_q4_0))

matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT] = {
    [DT_Q4_0] = matmul_q4_0, [DT_Q8_0] = matmul_q8_0, [DT_Q4_K] = matmul_q4_k,
    [DT_Q5_K] = matmul_q5_k, [DT_Q6_K] = matmul_q6_k,
};
