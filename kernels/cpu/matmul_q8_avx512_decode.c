// One column: every block is read once, in place, at the speed of memory.
//
// The naive loop, for each row: for each block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum, d * da, D).
// The products are cheap (vpdpbusd: 64 of them); what costs is unpacking, and adding up 16 lanes of each row and block. So:
//   - 16 rows go together. Each leaves a register of 16 partial sums a block; reduce_16x16 adds the lanes of 16 such
//     registers in 45 operations and puts the sum of row r in lane r. From there on floats have a lane a row.
//   - The activations of a block are put into the order in which weights come out of their bytes once for the 16 rows.
//   - What is the same for rows and needs few lanes (headers, scales, mins) is unpacked with a lane a row, too.
//   - Each row asks for its bytes some blocks ahead of their use, and near its end for those of the row 16 further on.
#include "kernels/cpu/matmul_q8_avx512.h"

// Blocks of 256 between the request for bytes and their use: 16 rows have some 14 KB under way, into the L2 cache, whose
// misses are many more at a time than those of the L1 cache.
enum { AHEAD = 6 };

// The integer sums of 16 rows over one block of 256, and the blocks' scales.
struct sums16 {
    __m512i dot, min;
    __m512 d, m;
};

// ---- adding up lanes

// In each quarter, word i of the result is the sum of the four words of that quarter in v[i].
INLINE __m512i reduce_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// Word i of quarter t is the sum over the quarters of word i of v[t].
INLINE __m512i reduce_across_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// Lane r is the sum of the lanes of DOT for row r; DOT is an expression in `row`.
#define REDUCE_16X16(out, DOT)                                                                                         \
    do {                                                                                                               \
        __m512i quarters_[4];                                                                                          \
        UNROLL for (int t_ = 0; t_ < 4; t_++)                                                         \
        {                                                                                                              \
            __m512i v_[4];                                                                                             \
            UNROLL for (int i_ = 0; i_ < 4; i_++)                                                     \
            {                                                                                                          \
                const int row = 4 * t_ + i_;                                                                           \
                v_[i_] = (DOT);                                                                                        \
            }                                                                                                          \
            quarters_[t_] = reduce_quarters(v_);                                                                       \
        }                                                                                                              \
        (out) = reduce_across_quarters(quarters_);                                                                     \
    } while (0)

// ---- what a row does

INLINE void prefetch_block(const uint8_t *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

// For each quarter of the four registers (16 elements), -offset times the sum of each four activations: with it in the
// accumulator, vpdpbusd of unsigned weights w + offset gives the sum of w * q.
INLINE __m512i offset_start(__m512i q, int offset)
{
    __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), q);
    return _mm512_sub_epi32(_mm512_setzero_si512(), sums);
}

// Scales for the 16-bit halves that vpackssdw leaves: each of its quarters holds four of one sub-block and four of the next.
// Q4_K, Q5_K: quarters 0 and 1 are sub-blocks 0 and 1 (of four), quarters 2 and 3 are 2 and 3.
INLINE __m512i spread_scales_k4(const uint32_t *four)
{
    const __m512i pick = _mm512_set_epi64(
        (long long)0x8003800380038003, (long long)0x8002800280028002, (long long)0x8003800380038003,
        (long long)0x8002800280028002, (long long)0x8001800180018001, (long long)0x8000800080008000,
        (long long)0x8001800180018001, (long long)0x8000800080008000);
    return _mm512_shuffle_epi8(_mm512_set1_epi32((int)*four), pick);
}

// sum over the sub-blocks of min * sum(q); each sub-block of 32 has two of the sums.
INLINE __m512i dot_mins_k4(const struct header_k4 *h, const int16_t *sums)
{
    __m512i dot = _mm512_setzero_si512();
    for (int j = 0; j < 8; j++)
        dot = _mm512_dpwssd_epi32(dot, bytes_to_pair(h->min[j / 4], j % 4, j % 4), broadcast_32(sums + 2 * j));
    return dot;
}

// Bytes whose sub-blocks come in nibbles: a register holds 32 bytes of sub-blocks 0 (low) and 1 (high), then 32 of 2 and 3.
struct nibbles {
    __m512i low, high;
};

INLINE struct nibbles split_nibbles(__m512i bytes)
{
    return (struct nibbles){low_nibbles(bytes), high_nibbles(bytes)};
}

// Four registers of unsigned weights times activations, each four in a lane (|.| <= 32767 with what `start` holds), packed
// to 16 bits, times their scales.
INLINE __m512i dot_scaled(const __m512i w[4], const __m512i start[4], const __m512i q[4], __m512i scale0, __m512i scale1)
{
    __m512i a = _mm512_dpbusd_epi32(start[0], w[0], q[0]), b = _mm512_dpbusd_epi32(start[1], w[1], q[1]);
    __m512i c = _mm512_dpbusd_epi32(start[2], w[2], q[2]), d = _mm512_dpbusd_epi32(start[3], w[3], q[3]);
    __m512i sum = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_packs_epi32(a, b), scale0);
    return _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(c, d), scale1);
}

// ---- Q4_K: a lane sums 4 products <= 4 * 15 * 127

INLINE __m512i dot_q4_k(const uint8_t *b, const __m512i q[4], const uint32_t *scale0, const uint32_t *scale1)
{
    const __m512i zero[4] = {0};
    struct nibbles n0 = split_nibbles(load_512(b + 16)), n1 = split_nibbles(load_512(b + 80));
    const __m512i w[4] = {n0.low, n0.high, n1.low, n1.high};
    return dot_scaled(w, zero, q, spread_scales_k4(scale0), spread_scales_k4(scale1));
}

// The activations in the order of the nibbles: sub-blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7.
INLINE void load_activations_k4(const int8_t *q, __m512i out[4])
{
    out[0] = load_2x32(q, q + 64);
    out[1] = load_2x32(q + 32, q + 96);
    out[2] = load_2x32(q + 128, q + 192);
    out[3] = load_2x32(q + 160, q + 224);
}

INLINE struct sums16 sums_q4_k(const struct rows16 *g, size_t at, size_t ahead, const int8_t *q, const int16_t *sums)
{
    struct header_k4 h = load_header_k4(g, at);
    uint32_t scales[2][GROUP];
    _mm512_storeu_si512(scales[0], h.scale[0]);
    _mm512_storeu_si512(scales[1], h.scale[1]);
    struct sums16 s = {.min = dot_mins_k4(&h, sums), .d = h.d, .m = h.m};
    __m512i x[4];
    load_activations_k4(q, x);
    REDUCE_16X16(s.dot, (prefetch_block(g->at[row] + ahead, 144),
                         dot_q4_k(g->at[row] + at, x, &scales[0][row], &scales[1][row])));
    return s;
}

// ---- Q5_K: as Q4_K, 4 * 31 * 127; the fifth bits of sub-block j are bit j of 32 bytes

INLINE __m512i dot_q5_k(const uint8_t *b, const __m512i q[4], const uint32_t *scale0, const uint32_t *scale1)
{
    const __m512i zero[4] = {0};
    const __m512i n0 = load_512(b + 48), n1 = load_512(b + 112), fifth = _mm512_broadcast_i64x4(load_256(b + 16));
    // The halves of a register are sub-blocks two apart.
    const __m512i w[4] = {
        masked_or(n0, 15, move_bits(fifth, 1, 0, 2, 4)),
        _mm512_or_si512(high_nibbles(n0), move_bits(fifth, 1, 1, 3, 4)),
        masked_or(n1, 15, move_bits(fifth, 1, 4, 6, 4)),
        _mm512_or_si512(high_nibbles(n1), move_bits(fifth, 1, 5, 7, 4)),
    };
    return dot_scaled(w, zero, q, spread_scales_k4(scale0), spread_scales_k4(scale1));
}

INLINE struct sums16 sums_q5_k(const struct rows16 *g, size_t at, size_t ahead, const int8_t *q, const int16_t *sums)
{
    struct header_k4 h = load_header_k4(g, at);
    uint32_t scales[2][GROUP];
    _mm512_storeu_si512(scales[0], h.scale[0]);
    _mm512_storeu_si512(scales[1], h.scale[1]);
    struct sums16 s = {.min = dot_mins_k4(&h, sums), .d = h.d, .m = h.m};
    __m512i x[4];
    load_activations_k4(q, x);
    REDUCE_16X16(s.dot, (prefetch_block(g->at[row] + ahead, 176),
                         dot_q5_k(g->at[row] + at, x, &scales[0][row], &scales[1][row])));
    return s;
}

// ---- Q6_K: weights 0-63 with -32 in `start`: a lane sums 4 products <= 4 * 32 * 127

// Low nibbles of 64 bytes are elements 0-63 of a half, high ones 64-127; the 32 bytes of upper bits serve twice.
INLINE void unpack_half_q6_k(const uint8_t *ql, const uint8_t *qh, __m512i w[2])
{
    const __m512i nibbles = load_512(ql), upper = _mm512_broadcast_i64x4(load_256(qh));
    w[0] = masked_or(nibbles, 15, move_bits(upper, 2, 0, 2, 4));
    w[1] = _mm512_or_si512(high_nibbles(nibbles), move_bits(upper, 2, 4, 6, 4));
}

// Quarter t of a half's packed sums holds sub-blocks t and 4 + t: four halves of each. `scales` are 16 int16.
INLINE __m512i spread_scales_q6_k(__m512i scales, int half)
{
    const __m512i pick = _mm512_set_epi64(0x0f0e0f0e0f0e0f0e, 0x0706070607060706, 0x0d0c0d0c0d0c0d0c, 0x0504050405040504,
                                          0x0b0a0b0a0b0a0b0a, 0x0302030203020302, 0x0908090809080908, 0x0100010001000100);
    return _mm512_permutexvar_epi8(_mm512_add_epi8(pick, _mm512_set1_epi8((char)(half * 16))), scales);
}

INLINE __m512i dot_q6_k(const uint8_t *b, const __m512i q[4], const __m512i start[4])
{
    __m512i w[4];
    unpack_half_q6_k(b, b + 128, w);
    unpack_half_q6_k(b + 64, b + 160, w + 2);
    __m512i scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(load_128(b + 192)));
    return dot_scaled(w, start, q, spread_scales_q6_k(scales, 0), spread_scales_q6_k(scales, 1));
}

INLINE struct sums16 sums_q6_k(const struct rows16 *g, size_t at, size_t ahead, const int8_t *q, const int16_t *sums)
{
    (void)sums;
    struct sums16 s = {.d = load_halves(g, at + 208)};
    __m512i x[4], start[4];
    for (int i = 0; i < 4; i++) {
        x[i] = load_512(q + 64 * i);
        start[i] = offset_start(x[i], 32);
    }
    REDUCE_16X16(s.dot, (prefetch_block(g->at[row] + ahead, 210), dot_q6_k(g->at[row] + at, x, start)));
    return s;
}

// ---- all rows, types with blocks of 256

typedef struct sums16 sums16_fn(const struct rows16 *g, size_t at, size_t ahead, const int8_t *q, const int16_t *sums);

// Where to ask for bytes while block `b` is worked on: AHEAD blocks on, or at the start of the row 16 further down.
INLINE size_t ahead_of(const struct matmul_args *a, int64_t b, int64_t n_blocks, size_t bytes)
{
    size_t at = (size_t)(b + AHEAD) * bytes;
    return b + AHEAD < n_blocks ? at : at - (size_t)n_blocks * bytes + GROUP * a->w_stride;
}

INLINE void decode_256(const struct matmul_args *a, sums16_fn *sums, size_t bytes, bool mins)
{
    const int8_t *q = q8_quants(a->x[0]);
    const int16_t *q_sums = q8_sums(a->x[0], a->k);
    const float *da = q8_scales(a->x[0], a->k);
    int64_t n_blocks = a->k / 256;
    for (int first = 0; first < a->n_rows; first += GROUP) {
        struct rows16 g = rows_from(a, first);
        __m512 d = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            struct sums16 t = sums(&g, (size_t)b * bytes, ahead_of(a, b, n_blocks, bytes), q + 256 * b, q_sums + 16 * b);
            __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(t.dot), t.d);
            if (mins)
                s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(t.min), t.m, s);
            d = _mm512_fmadd_ps(s, _mm512_set1_ps(da[b]), d);
        }
        _mm512_mask_storeu_ps(a->y[0] + first, rows_mask(a, first), d);
    }
}

// ---- types with blocks of 32: eight of them go together, or what a row ends with

// The dots of 16 rows with the blocks at offset[0..7] of theirs.
typedef void dots32_fn(const struct rows16 *g, const size_t offset[8], size_t ahead, const int8_t *q, __m512i dot[8]);

// Blocks that are not there any more are read from the last one that is; their dots are not used.
INLINE void block_offsets(size_t at, int n, size_t bytes, size_t offset[8])
{
    for (int j = 0; j < 8; j++)
        offset[j] = at + (size_t)MIN(j, n - 1) * bytes;
}

// Q8_0: two blocks a register. Weights + 128 are unsigned: a lane sums 4 * 128 * 127 in magnitude.
INLINE __m512i dot_q8_0(const uint8_t *b0, const uint8_t *b1, __m512i q, __m512i start)
{
    __m512i w = _mm512_xor_si512(load_2x32(b0 + 2, b1 + 2), _mm512_set1_epi8((char)0x80));
    return _mm512_dpbusd_epi32(start, w, q);
}

INLINE void dots_q8_0(const struct rows16 *g, const size_t offset[8], size_t ahead, const int8_t *q, __m512i dot[8])
{
    for (int p = 0; p < 4; p++) {
        __m512i x = load_512(q + 64 * p), start = offset_start(x, 128), v[4];
        UNROLL
        for (int t = 0; t < 4; t++) {
            __m512i u[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                const uint8_t *row = g->at[4 * t + i];
                u[i] = dot_q8_0(row + offset[2 * p], row + offset[2 * p + 1], x, start);
                prefetch_block(row + ahead + 68 * p, 68);
            }
            v[t] = reduce_quarters(u);
        }
        // Quarters 0 and 1 of v[t] are the first block's, 2 and 3 the second's.
        __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
        __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xdd));
        dot[2 * p] = _mm512_shuffle_i32x4(a, b, 0x88);
        dot[2 * p + 1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    }
}

// Four blocks of nibbles a register, 16 bytes each: low nibbles are elements 0-15, high ones 16-31. `split` makes them
// unsigned weights w + offset.
typedef struct nibbles split_fn(const uint8_t *row, const size_t offset[4]);

INLINE void dots_nibbles(const struct rows16 *g, const size_t offset[8], size_t ahead, const int8_t *q, __m512i dot[8],
                         split_fn *split, int w_offset, int bytes)
{
    for (int p = 0; p < 2; p++, q += 128) {
        __m512i low = load_4x16(q, q + 32, q + 64, q + 96), high = load_4x16(q + 16, q + 48, q + 80, q + 112);
        __m512i start = _mm512_add_epi32(offset_start(low, w_offset), offset_start(high, w_offset)), v[4];
        UNROLL
        for (int t = 0; t < 4; t++) {
            __m512i u[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                const uint8_t *row = g->at[4 * t + i];
                struct nibbles w = split(row, offset + 4 * p);
                prefetch_block(row + ahead + 4 * bytes * p, 4 * bytes);
                u[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, w.low, low), w.high, high);
            }
            v[t] = reduce_quarters(u);
        }
        // Quarter b of v[t] is block b of rows 4t ..: transposed.
        __m512i a0 = _mm512_shuffle_i32x4(v[0], v[1], 0x44), a1 = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
        __m512i b0 = _mm512_shuffle_i32x4(v[2], v[3], 0x44), b1 = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
        dot[4 * p + 0] = _mm512_shuffle_i32x4(a0, b0, 0x88);
        dot[4 * p + 1] = _mm512_shuffle_i32x4(a0, b0, 0xdd);
        dot[4 * p + 2] = _mm512_shuffle_i32x4(a1, b1, 0x88);
        dot[4 * p + 3] = _mm512_shuffle_i32x4(a1, b1, 0xdd);
    }
}

INLINE struct nibbles split_q4_0(const uint8_t *row, const size_t at[4])
{
    return split_nibbles(load_4x16(row + at[0] + 2, row + at[1] + 2, row + at[2] + 2, row + at[3] + 2));
}

INLINE void dots_q4_0(const struct rows16 *g, const size_t offset[8], size_t ahead, const int8_t *q, __m512i dot[8])
{
    dots_nibbles(g, offset, ahead, q, dot, split_q4_0, 8, 18);
}

// The sum S of 16 rows over n blocks, n <= 8.
INLINE __m512 sum_32(const struct rows16 *g, dots32_fn *dots, heads_fn *heads, size_t at, size_t ahead, int n,
                     size_t bytes, const int8_t *q)
{
    size_t offset[8];
    block_offsets(at, n, bytes, offset);
    __m512i dot[8];
    __m512 scale[8], sum = _mm512_setzero_ps();
    dots(g, offset, ahead, q, dot);
    load_scales(g, heads, offset, n, scale);
    for (int j = 0; j < n; j++)
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[j]), scale[j], sum);
    return sum;
}

INLINE void decode_32(const struct matmul_args *a, dots32_fn *dots, heads_fn *heads, size_t bytes)
{
    const int8_t *q = q8_quants(a->x[0]);
    const float *da = q8_scales(a->x[0], a->k);
    int64_t n_full = a->k / 256;
    int n_last = (int)(a->k % 256 / 32);
    for (int first = 0; first < a->n_rows; first += GROUP) {
        struct rows16 g = rows_from(a, first);
        __m512 d = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_full; b++) {
            size_t ahead = ahead_of(a, b, q8_blocks(a->k), 8 * bytes);
            __m512 sum = sum_32(&g, dots, heads, (size_t)b * 8 * bytes, ahead, 8, bytes, q + 256 * b);
            d = _mm512_fmadd_ps(sum, _mm512_set1_ps(da[b]), d);
        }
        if (n_last) {
            __m512 sum = sum_32(&g, dots, heads, (size_t)n_full * 8 * bytes, 0, n_last, bytes, q + 256 * n_full);
            d = _mm512_fmadd_ps(sum, _mm512_set1_ps(da[n_full]), d);
        }
        _mm512_mask_storeu_ps(a->y[0] + first, rows_mask(a, first), d);
    }
}

// ---- the functions

static void decode_q4_0(const struct matmul_args *a)
{
    decode_32(a, dots_q4_0, heads_18, 18);
}

static void decode_q8_0(const struct matmul_args *a)
{
    decode_32(a, dots_q8_0, heads_34, 34);
}

static void decode_q4_k(const struct matmul_args *a)
{
    decode_256(a, sums_q4_k, 144, true);
}

static void decode_q5_k(const struct matmul_args *a)
{
    decode_256(a, sums_q5_k, 176, true);
}

static void decode_q6_k(const struct matmul_args *a)
{
    decode_256(a, sums_q6_k, 210, false);
}

matmul_fn *const ISA_FN(matmul_q8_decode)[DT_COUNT] = {
    [DT_Q4_0] = decode_q4_0, [DT_Q8_0] = decode_q8_0, [DT_Q4_K] = decode_q4_k,
    [DT_Q5_K] = decode_q5_k, [DT_Q6_K] = decode_q6_k,
};
