// The 8-bit matmul for AVX2, of the types that models use most; the others have no path here and go through matmul_f32.
//
// The naive loop (matmul_q8_scalar.c) takes one output after another. Here four rows go together: a block of each is
// unpacked once into bytes and 16-bit scales that stay in the first-level cache, and all columns sweep over it; for one
// column, which waits for memory, blocks of 256 go row by row. A dot is
//     maddubs (pairs of bytes -> 16 bits), madd by the scales (pairs -> 32 bits), add,
// and the four rows' sums are reduced together, so that a lane is a row and the float chain of kernels.h runs on four
// rows at a time. No pair saturates: weights are at most 63 * 127 * 2 < 2^15 unsigned, or |-128| * 127 * 2 < 2^15 with
// the signs moved to the activations.
#include "kernels/cpu/level.h"

#include <immintrin.h>

enum { ROWS = 4, COLUMNS_MAX = SCRATCH_BYTES / 32, LINE = 64, PREFETCH = 4096 };

// A row's block of 256, unpacked. `scale` holds, for 32 elements, the 16-bit factor of each pair.
struct block {
    __m256i w[8];
    __m256i scale[8];
    __m256i min; // the factor of each of the 16 sums of activations; subtracted
};

// Four rows' scales and minima of a block, a lane a row.
struct factors {
    __m128 d, m;
};

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline float f16_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

static inline __m128 f16_of_rows(const uint8_t *const *rows, size_t at)
{
    return _mm_setr_ps(f16_at(rows[0] + at), f16_at(rows[1] + at), f16_at(rows[2] + at), f16_at(rows[3] + at));
}

static inline int word_at(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return word;
}

// Of blocks that begin with both.
static inline struct factors factors_of_rows(const uint8_t *const *rows)
{
    const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m128i both = _mm_setr_epi32(word_at(rows[0]), word_at(rows[1]), word_at(rows[2]), word_at(rows[3]));
    __m256 all = _mm256_cvtph_ps(_mm_shuffle_epi8(both, apart));
    return (struct factors){_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)};
}

// Sums of the eight lanes of each: a lane a row.
static inline __m128i reduce_rows(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    __m256i all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

// ---- unpacking blocks of 256: one row

// The 12 bytes of Q4_K's eight 6-bit scales and mins, as bytes: scales in the low half, mins in the high. They go from
// register to register: a load of what was stored in parts would wait for the stores.
static inline __m128i k4_scales(const uint8_t *p)
{
    uint32_t a, b, c;
    memcpy(&a, p, 4), memcpy(&b, p + 4, 4), memcpy(&c, p + 8, 4);
    uint64_t scales = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030), mins = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    return _mm_set_epi64x((int64_t)(mins << 32 | (b & 0x3f3f3f3f)), (int64_t)(scales << 32 | (a & 0x3f3f3f3f)));
}

// Both lanes of v filled with its 16-bit elements a and b.
static inline __m256i spread(__m256i v, int a, int b)
{
    __m256i at = _mm256_set_m128i(_mm_set1_epi16((int16_t)(2 * b | (2 * b + 1) << 8)),
                                  _mm_set1_epi16((int16_t)(2 * a | (2 * a + 1) << 8)));
    return _mm256_shuffle_epi8(v, at);
}

static inline void unpack_k4_scales(const uint8_t *p, struct block *o)
{
    __m128i all = k4_scales(p), mins = _mm_unpackhi_epi8(all, all);
    __m256i scales = _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(all));
    for (int j = 0; j < 8; j++)
        o->scale[j] = spread(scales, j, j);
    o->min = _mm256_cvtepu8_epi16(mins); // each serves two sums of 16
}

static inline void unpack_q4_k(const uint8_t *b, struct block *o)
{
    const __m256i low = _mm256_set1_epi8(15);
    unpack_k4_scales(b + 4, o);
    for (int j = 0; j < 4; j++) {
        __m256i q = load(b + 16 + 32 * j);
        o->w[2 * j] = _mm256_and_si256(q, low);
        o->w[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
    }
}

static inline void unpack_q5_k(const uint8_t *b, struct block *o)
{
    const __m256i low = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
    __m256i high = load(b + 16);
    unpack_k4_scales(b + 4, o);
    for (int j = 0; j < 4; j++) {
        __m256i q = load(b + 48 + 32 * j);
        __m256i h0 = _mm256_and_si256(_mm256_slli_epi16(high, 4), sixteen);
        __m256i h1 = _mm256_and_si256(_mm256_slli_epi16(high, 3), sixteen);
        o->w[2 * j] = _mm256_or_si256(_mm256_and_si256(q, low), h0);
        o->w[2 * j + 1] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q, 4), low), h1);
        high = _mm256_srli_epi16(high, 2);
    }
}

// The -32 of each weight becomes 32 * scale for each sum of 16 activations.
static inline void unpack_q6_k(const uint8_t *b, struct block *o)
{
    const __m256i low = _mm256_set1_epi8(15), top = _mm256_set1_epi8(0x30);
    __m256i scales = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 192)));
    __m256i first = _mm256_permute2x128_si256(scales, scales, 0x00),
            last = _mm256_permute2x128_si256(scales, scales, 0x11);
    o->min = _mm256_slli_epi16(scales, 5);
    for (int j = 0; j < 4; j++) {
        o->scale[j] = spread(first, 2 * j, 2 * j + 1);
        o->scale[4 + j] = spread(last, 2 * j, 2 * j + 1);
    }
    for (int half = 0; half < 2; half++) {
        __m256i q0 = load(b + 64 * half), q1 = load(b + 64 * half + 32), h = load(b + 128 + 32 * half);
        __m256i *w = &o->w[4 * half];
        w[0] = _mm256_or_si256(_mm256_and_si256(q0, low), _mm256_and_si256(_mm256_slli_epi16(h, 4), top));
        w[1] = _mm256_or_si256(_mm256_and_si256(q1, low), _mm256_and_si256(_mm256_slli_epi16(h, 2), top));
        w[2] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q0, 4), low), _mm256_and_si256(h, top));
        w[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q1, 4), low),
                               _mm256_and_si256(_mm256_srli_epi16(h, 2), top));
    }
}

// ---- blocks of 256

// One row's 256 products with a column, in eight lanes. The empty instruction keeps the sums in this order: the
// compiler would make trees of all four rows' at once, and spill most of what it has in registers.
static inline __m256i dot_row(const struct block *b, const int8_t *q, bool in_order)
{
    __m256i sum = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(b->w[j], load(q + 32 * j)), b->scale[j]));
        if (in_order)
            __asm__("" : "+x"(sum));
    }
    return sum;
}

// The float chain of kernels.h, a step of four rows at once.
static inline __m128 add_sums(__m128 chain, const __m256i dots[ROWS], const __m256i mins[ROWS], bool float_mins,
                              struct factors f, float da)
{
    __m128i isum = reduce_rows(dots[0], dots[1], dots[2], dots[3]);
    __m128i msum = reduce_rows(mins[0], mins[1], mins[2], mins[3]);
    if (!float_mins)
        isum = _mm_sub_epi32(isum, msum);
    __m128 s = _mm_mul_ps(_mm_cvtepi32_ps(isum), f.d);
    if (float_mins)
        s = _mm_fnmadd_ps(_mm_cvtepi32_ps(msum), f.m, s);
    return _mm_fmadd_ps(s, _mm_set1_ps(da), chain);
}

typedef void unpack_fn(const uint8_t *block, struct block *out);

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

static inline void store_rows(float *y, __m128 v, int n)
{
    if (n == ROWS) {
        _mm_storeu_ps(y, v);
        return;
    }
    float lanes[ROWS];
    _mm_storeu_ps(lanes, v);
    memcpy(y, lanes, (size_t)n * sizeof(float));
}

// Block i of four rows with all columns.
static inline __attribute__((always_inline)) void multiply_block(const struct matmul_args *a, int first_x, int n_x,
                                                                 int64_t i, const struct row_group *rows,
                                                                 unpack_fn *unpack, bool float_mins, struct factors f,
                                                                 __m128 *chains)
{
    struct block b[ROWS];
    __m256i dots[ROWS], mins[ROWS];
    for (int r = 0; r < ROWS; r++)
        unpack(rows->at[r], &b[r]);
    for (int j = 0; j < n_x; j++) {
        const void *x = a->x[first_x + j];
        const int8_t *q = q8_quants(x) + 256 * i;
        __m256i sums = load(q8_sums(x, a->k) + 16 * i);
        for (int r = 0; r < ROWS; r++) {
            dots[r] = dot_row(&b[r], q, true);
            mins[r] = _mm256_madd_epi16(b[r].min, sums);
        }
        chains[j] = add_sums(chains[j], dots, mins, float_mins, f, q8_scales(x, a->k)[i]);
    }
}

static inline struct factors factors_of(const uint8_t *const *rows, size_t d_at, size_t m_at)
{
    return m_at ? factors_of_rows(rows) : (struct factors){.d = f16_of_rows(rows, d_at)};
}

// What four rows' blocks give with a column, before it is reduced.
struct products {
    __m256i dots[ROWS], mins[ROWS];
};

// One column alone: row by row, multiplied as it is unpacked, so that memory is read from front to back; the four rows'
// chains follow when all their products are there.
static inline __attribute__((always_inline)) void lone_column(const struct matmul_args *a, const void *x, float *y,
                                                              size_t bytes, unpack_fn *unpack, size_t d_at, size_t m_at)
{
    struct products *p = a->scratch;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        __m128 chain = _mm_setzero_ps();
        for (int r = 0; r < ROWS; r++)
            for (int64_t i = 0; i < a->k / 256; i++) {
                const uint8_t *block = rows.at[r] + (size_t)i * bytes;
                struct block one;
                for (size_t at = 0; at < bytes; at += LINE)
                    _mm_prefetch((const char *)block + PREFETCH + at, _MM_HINT_T0);
                unpack(block, &one);
                p[i].dots[r] = dot_row(&one, q8_quants(x) + 256 * i, false);
                p[i].mins[r] = _mm256_madd_epi16(one.min, load(q8_sums(x, a->k) + 16 * i));
            }
        for (int64_t i = 0; i < a->k / 256; i++) {
            chain = add_sums(chain, p[i].dots, p[i].mins, m_at != 0, factors_of(rows.at, d_at, m_at),
                             q8_scales(x, a->k)[i]);
            for (int r = 0; r < ROWS; r++)
                rows.at[r] += bytes;
        }
        store_rows(y + first, chain, rows.n);
    }
}

static inline __attribute__((always_inline)) void matmul_256(const struct matmul_args *a, int first_x, int n_x,
                                                             enum dtype type, unpack_fn *unpack, size_t d_at,
                                                             size_t m_at)
{
    const size_t bytes = (size_t)dtype_info[type].bytes;
    if (n_x == 1 && (size_t)a->k / 256 * sizeof(struct products) <= SCRATCH_BYTES) {
        lone_column(a, a->x[first_x], a->y[first_x], bytes, unpack, d_at, m_at);
        return;
    }
    __m128 *chains = a->scratch;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        memset(chains, 0, (size_t)n_x * sizeof(*chains));
        for (int64_t i = 0; i < a->k / 256; i++) {
            for (int r = 0; r < ROWS; r++)
                _mm_prefetch((const char *)rows.at[r] + PREFETCH, _MM_HINT_T0);
            multiply_block(a, first_x, n_x, i, &rows, unpack, m_at != 0, factors_of(rows.at, d_at, m_at), chains);
            for (int r = 0; r < ROWS; r++)
                rows.at[r] += bytes;
        }
        for (int j = 0; j < n_x; j++)
            store_rows(a->y[first_x + j] + first, chains[j], rows.n);
    }
}

// ---- blocks of 32

// Four rows' block: magnitudes, and signs that the activations take over.
struct block_32 {
    __m256i magnitude[ROWS], sign[ROWS];
    __m128 d;
};

static inline void unpack_q8_0(const uint8_t *b, struct block_32 *o, int r)
{
    o->sign[r] = load(b + 2);
    o->magnitude[r] = _mm256_abs_epi8(o->sign[r]);
}

static inline void unpack_q4_0(const uint8_t *b, struct block_32 *o, int r)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(b + 2));
    __m256i both = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(q, 4), q), _mm256_set1_epi8(15));
    o->sign[r] = _mm256_sub_epi8(both, _mm256_set1_epi8(8));
    o->magnitude[r] = _mm256_abs_epi8(o->sign[r]);
}

static inline __m256i dot_row_32(const struct block_32 *b, int r, __m256i q)
{
    __m256i pairs = _mm256_maddubs_epi16(b->magnitude[r], _mm256_sign_epi8(q, b->sign[r]));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

typedef void unpack_32_fn(const uint8_t *block, struct block_32 *out, int row);

static inline __attribute__((always_inline)) void matmul_32(const struct matmul_args *a, int first_x, int n_x,
                                                            enum dtype type, unpack_32_fn *unpack)
{
    const size_t bytes = (size_t)dtype_info[type].bytes;
    __m128 *chains = a->scratch, *partial = chains + n_x;
    for (int first = 0; first < a->n_rows; first += ROWS) {
        struct row_group rows = rows_from(a, first);
        memset(chains, 0, (size_t)n_x * 2 * sizeof(*chains));
        for (int64_t i = 0; i < a->k / 32; i++) {
            struct block_32 b;
            for (int r = 0; r < ROWS; r++) {
                _mm_prefetch((const char *)rows.at[r] + PREFETCH, _MM_HINT_T0);
                unpack(rows.at[r], &b, r);
            }
            b.d = f16_of_rows(rows.at, 0);
            bool last = i % 8 == 7 || i + 1 == a->k / 32;
            for (int j = 0; j < n_x; j++) {
                const void *x = a->x[first_x + j];
                __m256i q = load(q8_quants(x) + 32 * i);
                __m128i isum =
                    reduce_rows(dot_row_32(&b, 0, q), dot_row_32(&b, 1, q), dot_row_32(&b, 2, q), dot_row_32(&b, 3, q));
                partial[j] = _mm_fmadd_ps(_mm_cvtepi32_ps(isum), b.d, partial[j]);
                if (!last)
                    continue;
                chains[j] = _mm_fmadd_ps(partial[j], _mm_set1_ps(q8_scales(x, a->k)[i / 8]), chains[j]);
                partial[j] = _mm_setzero_ps();
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

MATMUL(q4_k, matmul_256(a, at, n, DT_Q4_K, unpack_q4_k, 0, 2))
MATMUL(q5_k, matmul_256(a, at, n, DT_Q5_K, unpack_q5_k, 0, 2))
MATMUL(q6_k, matmul_256(a, at, n, DT_Q6_K, unpack_q6_k, 208, 0))
MATMUL(q8_0, matmul_32(a, at, n, DT_Q8_0, unpack_q8_0))
MATMUL(q4_0, matmul_32(a, at, n, DT_Q4_0, unpack_q4_0))

matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT] = {
    [DT_Q4_0] = matmul_q4_0, [DT_Q8_0] = matmul_q8_0, [DT_Q4_K] = matmul_q4_k,
    [DT_Q5_K] = matmul_q5_k, [DT_Q6_K] = matmul_q6_k,
};
