// Up to seven columns: every block is read once, in place, at the speed of memory.
//
// The naive loop, for each row: for each block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum, d * da, D).
// The products are cheap (vpdpbusd: 64 of them); what costs is unpacking, and adding up 16 lanes of each row and block. So:
//   - 16 rows go together. Each leaves a register of 16 partial sums a block; REDUCE_16X16 adds the lanes of 16 such
//     registers in 45 operations and puts the sum of row r in lane r. From there on floats have a lane a row.
//   - The activations of a block are put into the order in which weights come out of their bytes once for the 16 rows.
//   - A row's block is unpacked once, into registers, for all columns, whose activations come out of the L1 cache. One
//     column waits for memory; with four, multiplying takes as long, and soon a panel, with a lane a row, is faster.
//   - What is the same for rows and needs few lanes (headers, scales, mins) is unpacked with a lane a row, too.
//   - While a row is read, as many bytes are asked for as it has there, some way on: its own, and near its end those of the
//     row that comes after it. Behind the last rows these are the caller's next ones. Without that, each item would begin at
//     the speed of cache misses.
//   - Which 16 rows go together is a question of how the CPU reads (enum reading): neighbours, or (reads_streams), with one
//     column, rows a sixteenth of all apart, sixteen long streams. Of two columns and more, and of types that take longer,
//     neighbours ask for what comes in the order of memory.
#include "kernels/cpu/matmul_q8_avx512_rows.h"
#include "kernels/cpu/matmul_q8_avx512_scales.h"

// Blocks of 256 between a row's request for its bytes and their use: 16 rows have some 7 KB under way, into the L2 cache,
// whose misses are many more at a time than those of the L1 cache.
enum { AHEAD = 3, AHEAD_STREAMS = 8 };

// And where streams are read between the request that brings them from L2 to L1 and their use.
enum { NEAR = 2 };

// Rows far apart: bytes of a stream between request and use; and from how many bytes a row on it is worth it for types whose
// blocks are more than two or three lines.
enum { AHEAD_APART = 4096, MEDIUM_ROW = 1024, LONG_ROW = 8192 };

enum { COLUMNS_MAX = 7 };

// The integer sums of 16 rows over one block of 256 for each column, and the blocks' scales.
struct sums16 {
    __m512i dot[COLUMNS_MAX], min[COLUMNS_MAX];
    __m512 d, m;
};

// The activations of a block in a column, and their sums over 16.
struct view {
    const int8_t *q;
    const int16_t *sums;
};

// Words that were stored to be broadcast one by one. Left to itself gcc takes each out of the register that it came from, by
// shuffles on the one port that is busiest. Such arrays are aligned: what is read back from a store across two lines waits
// until the cache has both, for which Q4_K and Q5_K were slower by a fifth.
#define STAYS_IN_MEMORY(array) __asm__("" : "+m"(array))

// ---- adding up lanes

// Lane r of out[j], for n columns, is the sum of the lanes of DOT for row r. UNPACK declares what all columns take of a
// row's block; DOT is an expression in that and in `j`; both have `row`.
#define REDUCE_16X16(out, n, UNPACK, DOT)                                                                              \
    do {                                                                                                               \
        __m512i quarters_[COLUMNS_MAX][4];                                                                             \
        KEEP_LOOP for (int t_ = 0; t_ < 4; t_++) {                                                                     \
            __m512i v_[COLUMNS_MAX][4];                                                                                \
            UNROLL for (int i_ = 0; i_ < 4; i_++)                                                                      \
            {                                                                                                          \
                const int row = 4 * t_ + i_;                                                                           \
                UNPACK;                                                                                                \
                UNROLL for (int j = 0; j < (n); j++) v_[j][i_] = (DOT);                                                \
            }                                                                                                          \
            UNROLL for (int j = 0; j < (n); j++) quarters_[j][t_] = reduce_quarters(v_[j]);                            \
        }                                                                                                              \
        UNROLL for (int j = 0; j < (n); j++) (out)[j] = reduce_across_quarters(quarters_[j]);                          \
    } while (0)

// ---- what a row does

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

// sum over the sub-blocks of min * sum(q); each sub-block of 32 has two of the sums. Theirs, at most 4064 in magnitude, is
// 64 * high + low, two bytes, so that one product takes four sub-blocks.
INLINE __m512i dot_mins_k4(const struct header_k4 *h, const int16_t *sums)
{
    const __m256i of_32 = _mm256_madd_epi16(load_256(sums), _mm256_set1_epi16(1));
    const __m128i of_both = _mm_packs_epi32(_mm256_castsi256_si128(of_32), _mm256_extracti128_si256(of_32, 1));
    const __m128i high = _mm_srai_epi16(of_both, 6), low = _mm_and_si128(of_both, _mm_set1_epi16(63));
    _Alignas(16) int8_t part[2][8];
    _mm_store_si128((__m128i *)part, _mm_packs_epi16(high, low));
    STAYS_IN_MEMORY(part);
    __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), h->min[0], broadcast_32(part[0]));
    dot = _mm512_slli_epi32(_mm512_dpbusd_epi32(dot, h->min[1], broadcast_32(part[0] + 4)), 6);
    dot = _mm512_dpbusd_epi32(dot, h->min[0], broadcast_32(part[1]));
    return _mm512_dpbusd_epi32(dot, h->min[1], broadcast_32(part[1] + 4));
}

// Bytes whose sub-blocks come in nibbles: a register holds 32 bytes of sub-blocks 0 (low) and 1 (high), then 32 of 2 and 3.
struct nibbles {
    __m512i low, high;
};

INLINE struct nibbles split_nibbles(__m512i bytes)
{
    return (struct nibbles){low_nibbles(bytes), high_nibbles(bytes)};
}

// What a row of a type with blocks of 256 asks for while its block at `at` is read.
INLINE void ask_for(struct ahead *ask, const uint8_t *at, int bytes)
{
    prefetch_row(ask, bytes);
    if (ask->part != 1) // in the order of memory
        prefetch_near(at + NEAR * bytes, bytes);
}

// A row's block: four registers of unsigned weights, and the scales of the halves of their packed sums.
struct unpacked {
    __m512i w[4], scale[2];
};

// Times activations, each four in a lane (|.| <= 32767 with what `start` holds), packed to 16 bits, times their scales.
INLINE __m512i dot_scaled(const struct unpacked *u, const __m512i start[4], const __m512i q[4])
{
    __m512i t[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        t[i] = _mm512_dpbusd_epi32(start ? start[i] : _mm512_setzero_si512(), u->w[i], q[i]);
    __m512i sum = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_packs_epi32(t[0], t[1]), u->scale[0]);
    return _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(t[2], t[3]), u->scale[1]);
}

// ---- Q4_K: a lane sums 4 products <= 4 * 15 * 127

INLINE struct unpacked unpack_q4_k(const uint8_t *b, const uint32_t *scale0, const uint32_t *scale1)
{
    struct nibbles n0 = split_nibbles(load_512(b + 16)), n1 = split_nibbles(load_512(b + 80));
    return (struct unpacked){{n0.low, n0.high, n1.low, n1.high}, {spread_scales_k4(scale0), spread_scales_k4(scale1)}};
}

// The activations in the order of the nibbles: sub-blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7.
INLINE void load_activations_k4(const int8_t *q, __m512i out[4])
{
    out[0] = load_2x32(q, q + 64);
    out[1] = load_2x32(q + 32, q + 96);
    out[2] = load_2x32(q + 128, q + 192);
    out[3] = load_2x32(q + 160, q + 224);
}

// ---- Q5_K: as Q4_K, 4 * 31 * 127; the fifth bits of sub-block j are bit j of 32 bytes

INLINE struct unpacked unpack_q5_k(const uint8_t *b, const uint32_t *scale0, const uint32_t *scale1)
{
    const __m512i n0 = load_512(b + 48), n1 = load_512(b + 112), fifth = _mm512_broadcast_i64x4(load_256(b + 16));
    // The halves of a register are sub-blocks two apart.
    return (struct unpacked){
        {
            masked_or(n0, 15, move_bits(fifth, 1, 0, 2, 4)),
            _mm512_or_si512(high_nibbles(n0), move_bits(fifth, 1, 1, 3, 4)),
            masked_or(n1, 15, move_bits(fifth, 1, 4, 6, 4)),
            _mm512_or_si512(high_nibbles(n1), move_bits(fifth, 1, 5, 7, 4)),
        },
        {spread_scales_k4(scale0), spread_scales_k4(scale1)}};
}

// Both; `unpack` is one of the above, and 1 or what the pass has.
typedef struct unpacked unpack_k4_fn(const uint8_t *b, const uint32_t *scale0, const uint32_t *scale1);

INLINE void sums_k4(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n,
                    unpack_k4_fn *unpack, int bytes, struct sums16 *s)
{
    struct header_k4 h = load_header_k4(g, at);
    _Alignas(64) uint32_t scales[2][GROUP];
    __m512i q[COLUMNS_MAX][4];
    _mm512_store_si512(scales[0], h.scale[0]);
    _mm512_store_si512(scales[1], h.scale[1]);
    STAYS_IN_MEMORY(scales);
    s->d = h.d, s->m = h.m;
    UNROLL
    for (int j = 0; j < n; j++) {
        s->min[j] = dot_mins_k4(&h, x[j].sums);
        load_activations_k4(x[j].q, q[j]);
    }
    struct ahead ask = *ahead;
    REDUCE_16X16(s->dot, n, ask_for(&ask, g->at[row] + at, bytes);
                 struct unpacked u = unpack(g->at[row] + at, &scales[0][row], &scales[1][row]),
                 dot_scaled(&u, NULL, q[j]));
}

INLINE void sums_q4_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n, struct sums16 *s)
{
    sums_k4(g, at, ahead, x, n, unpack_q4_k, 144, s);
}

INLINE void sums_q5_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n, struct sums16 *s)
{
    sums_k4(g, at, ahead, x, n, unpack_q5_k, 176, s);
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

INLINE struct unpacked unpack_q6_k(const uint8_t *b)
{
    struct unpacked u;
    unpack_half_q6_k(b, b + 128, u.w);
    unpack_half_q6_k(b + 64, b + 160, u.w + 2);
    __m512i scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(load_128(b + 192)));
    u.scale[0] = spread_scales_q6_k(scales, 0);
    u.scale[1] = spread_scales_q6_k(scales, 1);
    return u;
}

INLINE void sums_q6_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n, struct sums16 *s)
{
    __m512i q[COLUMNS_MAX][4], start[COLUMNS_MAX][4];
    s->d = load_halves(g, at + 208);
    UNROLL
    for (int j = 0; j < n; j++)
        for (int i = 0; i < 4; i++) {
            q[j][i] = load_512(x[j].q + 64 * i);
            start[j][i] = offset_start(q[j][i], 32);
        }
    struct ahead ask = *ahead;
    REDUCE_16X16(s->dot, n, ask_for(&ask, g->at[row] + at, 210); struct unpacked u = unpack_q6_k(g->at[row] + at),
                 dot_scaled(&u, start[j], q[j]));
}

// ---- Q2_K and Q3_K: 4 * 3 * 127, and 4 * 4 * 127 with -4 in `start`
//
// Pair p of the bits of 64 bytes is elements 32p .. of the first half of the block, and of the second. So register p holds,
// by quarters, sub-blocks 2p, 2p + 1, 8 + 2p, 9 + 2p, and each quarter of packed registers p and p + 1 four sums of each.

INLINE void load_activations_pairs(const int8_t *q, __m512i out[4])
{
    for (int p = 0; p < 4; p++)
        out[p] = load_2x32(q + 32 * p, q + 128 + 32 * p);
}

// `low` are four scales from 0 or 4 on, `high` the four that come eight after them.
INLINE __m512i spread_scales_pairs(const uint32_t *low, const uint32_t *high, bool with_sign)
{
    __m512i words = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)*low), 0xff00, (int)*high);
    if (!with_sign) {
        const __m128i even = _mm_set_epi64x((long long)0x8002800280028002, (long long)0x8000800080008000);
        const __m512i pick = _mm512_broadcast_i32x4(even), odd = _mm512_set1_epi16(1);
        return _mm512_shuffle_epi8(words, _mm512_mask_add_epi16(pick, 0xff00ff00, pick, odd));
    }
    const __m128i even = _mm_set_epi64x(0x0280028002800280, 0x0080008000800080);
    const __m512i pick = _mm512_broadcast_i32x4(even), odd = _mm512_set1_epi16(0x0100);
    return _mm512_srai_epi16(_mm512_shuffle_epi8(words, _mm512_mask_add_epi16(pick, 0xff00ff00, pick, odd)), 8);
}

INLINE struct unpacked unpack_q2_k(const uint8_t *b, uint32_t scales[4][GROUP], int row)
{
    const __m512i pairs = load_512(b + 16);
    struct unpacked u = {.scale = {spread_scales_pairs(&scales[0][row], &scales[2][row], false),
                                   spread_scales_pairs(&scales[1][row], &scales[3][row], false)}};
    for (int p = 0; p < 4; p++)
        u.w[p] = move_bits(pairs, 2, 2 * p, 2 * p, 0);
    return u;
}

INLINE void sums_q2_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n, struct sums16 *s)
{
    __m512i t[4], q[COLUMNS_MAX][4];
    _Alignas(64) uint32_t scales[4][GROUP];
    load_words_16(g, at, t);
    UNROLL
    for (int j = 0; j < n; j++) {
        s->min[j] = _mm512_setzero_si512();
        load_activations_pairs(x[j].q, q[j]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i min = high_nibbles(t[i]);
        _mm512_store_si512(scales[i], low_nibbles(t[i]));
        UNROLL
        for (int j = 0; j < n; j++) {
            s->min[j] = _mm512_dpwssd_epi32(s->min[j], bytes_to_pair(min, 0, 1), broadcast_32(x[j].sums + 4 * i));
            s->min[j] = _mm512_dpwssd_epi32(s->min[j], bytes_to_pair(min, 2, 3), broadcast_32(x[j].sums + 4 * i + 2));
        }
    }
    STAYS_IN_MEMORY(scales);
    load_words_16(g, at + 68, t);  // the last 16 bytes: quants, d and dmin
    s->d = low_halves(t[3]);
    s->m = high_halves(t[3]);
    struct ahead ask = *ahead;
    REDUCE_16X16(s->dot, n, ask_for(&ask, g->at[row] + at, 84);
                 struct unpacked u = unpack_q2_k(g->at[row] + at, scales, row), dot_scaled(&u, NULL, q[j]));
}

INLINE struct unpacked unpack_q3_k(const uint8_t *b, uint32_t scales[4][GROUP], int row)
{
    const __m512i pairs = load_512(b + 32), third = _mm512_broadcast_i64x4(load_256(b));
    struct unpacked u = {.scale = {spread_scales_pairs(&scales[0][row], &scales[2][row], true),
                                   spread_scales_pairs(&scales[1][row], &scales[3][row], true)}};
    for (int p = 0; p < 4; p++)
        u.w[p] = _mm512_or_si512(move_bits(pairs, 2, 2 * p, 2 * p, 0), move_bits(third, 1, p, 4 + p, 2));
    return u;
}

INLINE void sums_q3_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n, struct sums16 *s)
{
    __m512i t[4], q[COLUMNS_MAX][4], start[COLUMNS_MAX][4];
    _Alignas(64) uint32_t scales[4][GROUP];
    s->d = load_halves(g, at + 108);
    load_scales_q3_k(g, at, t);
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(scales[i], t[i]);
    STAYS_IN_MEMORY(scales);
    UNROLL
    for (int j = 0; j < n; j++) {
        load_activations_pairs(x[j].q, q[j]);
        for (int i = 0; i < 4; i++)
            start[j][i] = offset_start(q[j][i], 4);
    }
    struct ahead ask = *ahead;
    REDUCE_16X16(s->dot, n, ask_for(&ask, g->at[row] + at, 110);
                 struct unpacked u = unpack_q3_k(g->at[row] + at, scales, row), dot_scaled(&u, start[j], q[j]));
}

// ---- IQ4_XS: sums of 8 products with values up to 127 need 32 bits, and so do their products with the scales

// Registers 0 and 1 are the halves of four sub-blocks of 32, a quarter each; 2 and 3 those of the other four.
INLINE struct unpacked unpack_iq4_xs(const uint8_t *quants, __m512i values, const uint32_t *scale0, const uint32_t *scale1)
{
    const __m512i pick = _mm512_set_epi32(0x03808080, 0x03808080, 0x03808080, 0x03808080, 0x02808080, 0x02808080,
                                          0x02808080, 0x02808080, 0x01808080, 0x01808080, 0x01808080, 0x01808080,
                                          0x00808080, 0x00808080, 0x00808080, 0x00808080);
    struct nibbles n0 = split_nibbles(load_512(quants)), n1 = split_nibbles(load_512(quants + 64));
    return (struct unpacked){{_mm512_shuffle_epi8(values, n0.low), _mm512_shuffle_epi8(values, n0.high),
                              _mm512_shuffle_epi8(values, n1.low), _mm512_shuffle_epi8(values, n1.high)},
                             {_mm512_srai_epi32(_mm512_shuffle_epi8(_mm512_set1_epi32((int)*scale0), pick), 24),
                              _mm512_srai_epi32(_mm512_shuffle_epi8(_mm512_set1_epi32((int)*scale1), pick), 24)}};
}

INLINE __m512i dot_iq4_xs(const struct unpacked *u, const __m512i start[2], const __m512i q[4])
{
    __m512i a = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start[0], u->w[0], q[0]), u->w[1], q[1]);
    __m512i b = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start[1], u->w[2], q[2]), u->w[3], q[3]);
    return _mm512_add_epi32(_mm512_mullo_epi32(a, u->scale[0]), _mm512_mullo_epi32(b, u->scale[1]));
}

INLINE void sums_iq4_xs(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n, struct sums16 *s)
{
    __m512i t[2], q[COLUMNS_MAX][4], start[COLUMNS_MAX][2];
    _Alignas(64) uint32_t scales[2][GROUP];
    s->d = load_scales_iq4_xs(g, at, t);
    for (int h = 0; h < 2; h++) {
        _mm512_store_si512(scales[h], t[h]);
        UNROLL
        for (int j = 0; j < n; j++) {
            const int8_t *p = x[j].q + 128 * h;
            q[j][2 * h] = load_4x16(p, p + 32, p + 64, p + 96);
            q[j][2 * h + 1] = load_4x16(p + 16, p + 48, p + 80, p + 112);
            start[j][h] = _mm512_add_epi32(offset_start(q[j][2 * h], 128), offset_start(q[j][2 * h + 1], 128));
        }
    }
    STAYS_IN_MEMORY(scales);
    const __m512i values = values_of(&shape_iq4_nl);
    struct ahead ask = *ahead;
    REDUCE_16X16(s->dot, n, ask_for(&ask, g->at[row] + at, 136);
                 struct unpacked u = unpack_iq4_xs(g->at[row] + at + 8, values, &scales[0][row], &scales[1][row]),
                 dot_iq4_xs(&u, start[j], q[j]));
}

// ---- all rows, types with blocks of 256

typedef void sums16_fn(const struct rows16 *g, size_t at, const struct ahead *ahead, const struct view *x, int n,
                       struct sums16 *s);

INLINE void store(const struct matmul_args *a, int first, int n, const __m512 d[COLUMNS_MAX])
{
    UNROLL
    for (int j = 0; j < n; j++)
        _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
}

// Each row asks for its own bytes, or they are asked for in order; `share` bytes a row and part.
INLINE struct ahead ahead_of(const struct matmul_args *a, int first, int64_t span, size_t bytes, size_t share, bool in_order)
{
    const bool streams = reads_streams(a->reading);
    return streams && in_order
               ? ahead_in_order(a, first, span, bytes, share)
               : ahead_by_row(a, first, span, q8_blocks(a->k), bytes, streams ? AHEAD_STREAMS : AHEAD);
}

INLINE struct row_cut cut_rows(const struct matmul_args *a, bool apart)
{
    return apart ? row_cut_streams(a->n_rows, GROUP, a->w_stride) : row_cut_neighbours(a->n_rows, GROUP);
}

// `apart`, known to the compiler: of one column.
INLINE void store_rows(const struct matmul_args *a, const struct row_cut *cut, int group, bool apart, int n,
                       const __m512 d[COLUMNS_MAX])
{
    if (apart)
        store_cut(cut, group, d[0], a->y[0]);
    else
        store(a, group * GROUP, n, d);
}

// n columns, known to the compiler.
INLINE void decode_256_cut(const struct matmul_args *a, sums16_fn *sums, size_t bytes, bool mins, bool apart, int n)
{
    const int64_t n_blocks = a->k / 256;
    const struct row_cut cut = cut_rows(a, apart);
    for (int group = 0; group < cut.groups; group++) {
        struct rows16 g = rows_of_cut(a, &cut, group);
        __m512 d[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            struct ahead ahead = apart ? ahead_in_streams(a, &cut, group, (size_t)b * bytes, AHEAD_APART)
                                       : ahead_of(a, group * GROUP, b, bytes, bytes, true);
            struct view x[COLUMNS_MAX];
            struct sums16 t;
            UNROLL
            for (int j = 0; j < n; j++)
                x[j] = (struct view){q8_quants(a->x[j]) + 256 * b, q8_sums(a->x[j], a->k) + 16 * b};
            sums(&g, (size_t)b * bytes, &ahead, x, n, &t);
            UNROLL
            for (int j = 0; j < n; j++) {
                __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(t.dot[j]), t.d);
                if (mins)
                    s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(t.min[j]), t.m, s);
                d[j] = _mm512_fmadd_ps(s, _mm512_set1_ps(q8_scales(a->x[j], a->k)[b]), d[j]);
            }
        }
        store_rows(a, &cut, group, apart, n, d);
    }
}

// One column goes by streams where rows have `apart_from` bytes at least.
INLINE void decode_256(const struct matmul_args *a, sums16_fn *sums, size_t bytes, bool mins, size_t apart_from, int n)
{
    if (n == 1 && reads_streams(a->reading) && a->w_stride >= apart_from)
        decode_256_cut(a, sums, bytes, mins, true, n);
    else
        decode_256_cut(a, sums, bytes, mins, false, n);
}

// ---- types with blocks of 32: eight of them go together, or what a row ends with

// Blocks that are not there any more are read from the last one that is; their dots are not used.
INLINE void block_offsets(size_t at, int n, size_t bytes, size_t offset[8])
{
    for (int j = 0; j < 8; j++)
        offset[j] = at + (size_t)MIN(j, n - 1) * bytes;
}

// Quarters 0 and 1 of v[t] are four sums each of one block of rows 4t .., 2 and 3 of another block.
INLINE void add_halves(const __m512i v[4], __m512i dot[2])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xdd));
    dot[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    dot[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
}

// Q8_0, two blocks a register, rows 4t .. 4t + 3. Weights + 128 are unsigned: a lane sums 4 * 128 * 127 in magnitude.
INLINE void dots_rows_q8_0(const struct rows16 *g, const size_t offset[2], int t, struct ahead *ask,
                           const __m512i q[COLUMNS_MAX], const __m512i start[COLUMNS_MAX], int n, __m512i v[COLUMNS_MAX][4])
{
    __m512i u[COLUMNS_MAX][4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8_t *row = g->at[4 * t + i];
        __m512i w = load_2x32(row + offset[0] + 2, row + offset[1] + 2);
        w = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
        prefetch_row(ask, 68);
        UNROLL
        for (int j = 0; j < n; j++)
            u[j][i] = _mm512_dpbusd_epi32(start[j], w, q[j]);
    }
    UNROLL
    for (int j = 0; j < n; j++)
        v[j][t] = reduce_quarters(u[j]);
}

INLINE void dots_q8_0(const struct rows16 *g, const size_t offset[8], int blocks, const struct ahead *ahead,
                      const struct view *x, int n, __m512i dot[COLUMNS_MAX][8])
{
    KEEP_LOOP
    for (int p = 0; 2 * p < blocks; p++) {
        __m512i q[COLUMNS_MAX], start[COLUMNS_MAX], v[COLUMNS_MAX][4];
        struct ahead ask = ahead_from(ahead, 68 * p);
        UNROLL
        for (int j = 0; j < n; j++) {
            q[j] = load_512(x[j].q + 64 * p);
            start[j] = offset_start(q[j], 128);
        }
        if (n == 1) {  // sums stay in registers
            UNROLL
            for (int t = 0; t < 4; t++)
                dots_rows_q8_0(g, offset + 2 * p, t, &ask, q, start, n, v);
        } else {
            KEEP_LOOP
            for (int t = 0; t < 4; t++)
                dots_rows_q8_0(g, offset + 2 * p, t, &ask, q, start, n, v);
        }
        UNROLL
        for (int j = 0; j < n; j++)
            add_halves(v[j], dot[j] + 2 * p);
    }
}

// Of four blocks, a quarter each, the fifth bits of elements `first` .. `first` + 15, as bytes of 16 or 0. `heads` are the
// first 16 bytes of each block. A byte of eight such bits becomes the row that makes bit 4 in a matrix of bits, and the
// bytes 1, 2, 4 .. 128 are multiplied with it.
INLINE __m512i fifth_bits(__m512i heads, int fifth, int first)
{
    const char at = (char)(fifth + first / 8), no = (char)0x80;
    const __m128i pick = _mm_setr_epi8(no, no, no, at, no, no, no, no, no, no, no, (char)(at + 1), no, no, no, no);
    const __m512i ones = _mm512_set1_epi64((long long)0x8040201008040201);
    return _mm512_gf2p8affine_epi64_epi8(ones, _mm512_shuffle_epi8(heads, _mm512_broadcast_i32x4(pick)), 0);
}

// 16 bytes from `p` on of four blocks, 16 to 24 `bytes` from one to the next, a quarter each: three of them out of 64 bytes, which do
// not reach beyond the fourth.
INLINE __m512i load_quants(const uint8_t *p, int bytes)
{
    const long long step = bytes * 0x0101010101010101;
    const __m512i in_order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i pick = _mm512_add_epi8(in_order, _mm512_set_epi64(0, 0, 2 * step, 2 * step, step, step, 0, 0));
    return _mm512_inserti32x4(_mm512_permutexvar_epi8(pick, load_512(p)), load_128(p + 3 * bytes), 3);
}

// Unsigned weights of four blocks: a quarter each. `follow`: the blocks follow each other. (With fifth bits, whose heads are read
// beside them, the four loads are as fast or faster.)
INLINE struct nibbles split_blocks(const uint8_t *row, const size_t offset[4], bool follow, const struct shape *s, __m512i values)
{
    const uint8_t *p = row + s->quants;
    const bool by_three = follow && s->fifth < 0;
    struct nibbles n = split_nibbles(by_three ? load_quants(p + offset[0], s->bytes)
                                              : load_4x16(p + offset[0], p + offset[1], p + offset[2], p + offset[3]));
    n.low = look_up(s, values, n.low);
    n.high = look_up(s, values, n.high);
    if (s->fifth >= 0) {
        __m512i heads = load_4x16(row + offset[0], row + offset[1], row + offset[2], row + offset[3]);
        n.low = _mm512_or_si512(n.low, fifth_bits(heads, s->fifth, 0));
        n.high = _mm512_or_si512(n.high, fifth_bits(heads, s->fifth, 16));
    }
    return n;
}

// Quarter b of v[t] is block b of rows 4t ..: transposed.
INLINE void part_quarters(const __m512i v[4], __m512i dot[4])
{
    __m512i a0 = _mm512_shuffle_i32x4(v[0], v[1], 0x44), a1 = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    __m512i b0 = _mm512_shuffle_i32x4(v[2], v[3], 0x44), b1 = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    dot[0] = _mm512_shuffle_i32x4(a0, b0, 0x88);
    dot[1] = _mm512_shuffle_i32x4(a0, b0, 0xdd);
    dot[2] = _mm512_shuffle_i32x4(a1, b1, 0x88);
    dot[3] = _mm512_shuffle_i32x4(a1, b1, 0xdd);
}

// Sums of four blocks, a quarter of v[j][t] each, for rows 4t ..; start[j] is what column j's begin with.
INLINE void dots_four_blocks(const struct rows16 *g, const size_t offset[4], bool follow, struct ahead ask,
                             const struct nibbles q[COLUMNS_MAX], const __m512i start[COLUMNS_MAX], int n,
                             const struct shape *s, __m512i v[COLUMNS_MAX][4])
{
    const __m512i values = values_of(s);
    KEEP_LOOP
    for (int t = 0; t < 4; t++) {
        __m512i u[COLUMNS_MAX][4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            struct nibbles w = split_blocks(g->at[4 * t + i], offset, follow, s, values);
            prefetch_row(&ask, 4 * s->bytes);
            UNROLL
            for (int j = 0; j < n; j++)
                u[j][i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start[j], w.low, q[j].low), w.high, q[j].high);
        }
        UNROLL
        for (int j = 0; j < n; j++)
            v[j][t] = reduce_quarters(u[j]);
    }
}

INLINE void dots_nibbles(const struct rows16 *g, const size_t offset[8], int blocks, const struct ahead *ahead,
                         const struct view *x, int n, const struct shape *s, __m512i dot[COLUMNS_MAX][8])
{
    KEEP_LOOP
    for (int p = 0; 4 * p < blocks; p++) {
        struct nibbles q[COLUMNS_MAX];
        __m512i start[COLUMNS_MAX], v[COLUMNS_MAX][4];
        const struct ahead ask = ahead_from(ahead, 4 * s->bytes * p);
        UNROLL
        for (int j = 0; j < n; j++) {
            const int8_t *from = x[j].q + 128 * p;
            q[j].low = load_4x16(from, from + 32, from + 64, from + 96);
            q[j].high = load_4x16(from + 16, from + 48, from + 80, from + 112);
            start[j] = _mm512_add_epi32(offset_start(q[j].low, s->offset), offset_start(q[j].high, s->offset));
        }
        if (4 * p + 4 <= blocks)
            dots_four_blocks(g, offset + 4 * p, true, ask, q, start, n, s, v);
        else
            dots_four_blocks(g, offset + 4 * p, false, ask, q, start, n, s, v);
        UNROLL
        for (int j = 0; j < n; j++)
            part_quarters(v[j], dot[j] + 4 * p);
    }
}

// The sums S of 16 rows over `blocks` <= 8 blocks for each column: only these are multiplied, by twos or fours. Q8_0 has no shape of nibbles: NULL.
INLINE void sums_32(const struct rows16 *g, const struct shape *s, size_t at, const struct ahead *ahead, int blocks,
                    const struct view *x, int n, __m512 sum[COLUMNS_MAX])
{
    size_t offset[8];
    __m512i dot[COLUMNS_MAX][8];
    __m512 d[8], m[8];
    block_offsets(at, blocks, s ? (size_t)s->bytes : 34, offset);
    if (s) {
        dots_nibbles(g, offset, blocks, ahead, x, n, s, dot);
        load_scales(g, s, offset, blocks, d, m);
    } else {
        dots_q8_0(g, offset, blocks, ahead, x, n, dot);
        load_heads(g, offset, blocks, 34, 0, d);
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        sum[j] = _mm512_setzero_ps();
        for (int b = 0; b < blocks; b++) {
            const int16_t *sums = x[j].sums + 2 * b;
            sum[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[j][b]), d[b], sum[j]);
            if (s && s->m >= 0)
                sum[j] = _mm512_fmadd_ps(_mm512_set1_ps((float)(sums[0] + sums[1])), m[b], sum[j]);
        }
    }
}

// Those of one scale and no fifth bits gain by sixteen streams; the others are as much at work as memory is.
INLINE bool gains_by_streams(const struct shape *s)
{
    return !s || (s->m < 0 && s->fifth < 0);
}

// n columns, known to the compiler: eight blocks at a time, or what a row ends with.
INLINE void decode_32(const struct matmul_args *a, const struct shape *s, int n)
{
    const size_t block = s ? (size_t)s->bytes : 34, bytes = 8 * block;
    const int64_t spans = q8_blocks(a->k);
    const bool apart = gains_by_streams(s) && n == 1 && reads_streams(a->reading);
    const struct row_cut cut = cut_rows(a, apart);
    for (int group = 0; group < cut.groups; group++) {
        const int first = group * GROUP;
        struct rows16 g = rows_of_cut(a, &cut, group);
        __m512 d[COLUMNS_MAX], sum[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t span = 0; span < spans; span++) {
            struct ahead ahead = apart ? ahead_in_streams(a, &cut, group, (size_t)span * bytes, AHEAD_APART)
                                       : ahead_of(a, first, span, bytes, s ? 4 * block : 2 * block, s != NULL);
            struct view x[COLUMNS_MAX];
            int blocks = blocks_in_span(a, span);
            struct ahead whole = ahead;
            for (int r = 0; blocks < 8 && ahead.part == 1 && r < GROUP; r++) // a row's last blocks: for a whole span of another
                prefetch_row(&whole, (int)bytes);
            UNROLL
            for (int j = 0; j < n; j++)
                x[j] = (struct view){q8_quants(a->x[j]) + 256 * span, q8_sums(a->x[j], a->k) + 16 * span};
            sums_32(&g, s, (size_t)span * bytes, &ahead, blocks, x, n, sum);
            UNROLL
            for (int j = 0; j < n; j++)
                d[j] = _mm512_fmadd_ps(sum[j], _mm512_set1_ps(q8_scales(a->x[j], a->k)[span]), d[j]);
        }
        store_rows(a, &cut, group, apart, n, d);
    }
}

// ---- the functions

#define COLUMNS(N, CALL)                                                                                               \
    case N: {                                                                                                          \
        enum { n = N };                                                                                                \
        CALL;                                                                                                          \
        break;                                                                                                         \
    }
#define UP_TO_4(CALL) COLUMNS(1, CALL) COLUMNS(2, CALL) COLUMNS(3, CALL) COLUMNS(4, CALL)
#define UP_TO_7(CALL) UP_TO_4(CALL) COLUMNS(5, CALL) COLUMNS(6, CALL) COLUMNS(7, CALL)
#define DECODE(name, UP_TO, CALL)                                                                                      \
    static void decode_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        switch (a->n_x) {                                                                                              \
            UP_TO(CALL)                                                                                                \
        }                                                                                                              \
    }

// clang-format off
DECODE(q4_0, UP_TO_4, decode_32(a, &shape_q4_0, n))
DECODE(q4_1, UP_TO_4, decode_32(a, &shape_q4_1, n))
DECODE(q5_0, UP_TO_4, decode_32(a, &shape_q5_0, n))
DECODE(q5_1, UP_TO_4, decode_32(a, &shape_q5_1, n))
DECODE(q8_0, UP_TO_4, decode_32(a, NULL, n))
DECODE(iq4_nl, UP_TO_4, decode_32(a, &shape_iq4_nl, n))
DECODE(mxfp4, UP_TO_4, decode_32(a, &shape_mxfp4, n))
DECODE(q2_k, UP_TO_4, decode_256(a, sums_q2_k, 84, true, 0, n))
DECODE(q3_k, UP_TO_4, decode_256(a, sums_q3_k, 110, false, 0, n))
DECODE(q4_k, UP_TO_7, decode_256(a, sums_q4_k, 144, true, 0, n))
DECODE(q5_k, UP_TO_7, decode_256(a, sums_q5_k, 176, true, MEDIUM_ROW, n))
DECODE(q6_k, UP_TO_7, decode_256(a, sums_q6_k, 210, false, LONG_ROW, n))
DECODE(iq4_xs, UP_TO_4, decode_256(a, sums_iq4_xs, 136, false, 0, n))
// clang-format on

matmul_fn *const ISA_FN(matmul_q8_decode)[DT_COUNT] = {
    [DT_Q4_0] = decode_q4_0,     [DT_Q4_1] = decode_q4_1,     [DT_Q5_0] = decode_q5_0,     [DT_Q5_1] = decode_q5_1,
    [DT_Q8_0] = decode_q8_0,     [DT_Q2_K] = decode_q2_k,     [DT_Q3_K] = decode_q3_k,     [DT_Q4_K] = decode_q4_k,
    [DT_Q5_K] = decode_q5_k,     [DT_Q6_K] = decode_q6_k,     [DT_IQ4_NL] = decode_iq4_nl, [DT_IQ4_XS] = decode_iq4_xs,
    [DT_MXFP4] = decode_mxfp4,
    [DT_IQ1_S] = ISA_FN(matmul_q8_decode_iq1_s),
    [DT_IQ1_M] = ISA_FN(matmul_q8_decode_iq1_m),
    [DT_IQ2_XXS] = ISA_FN(matmul_q8_decode_iq2_xxs),
    [DT_IQ2_XS] = ISA_FN(matmul_q8_decode_iq2_xs),
    [DT_IQ2_S] = ISA_FN(matmul_q8_decode_iq2_s),
    [DT_IQ3_XXS] = ISA_FN(matmul_q8_decode_iq3_xxs),
    [DT_IQ3_S] = ISA_FN(matmul_q8_decode_iq3_s),
    [DT_TQ1_0] = ISA_FN(matmul_q8_decode_tq1_0),
    [DT_TQ2_0] = ISA_FN(matmul_q8_decode_tq2_0),
    [DT_Q1_0] = ISA_FN(matmul_q8_decode_q1_0),
    [DT_Q2_0] = ISA_FN(matmul_q8_decode_q2_0),
    [DT_NVFP4] = ISA_FN(matmul_q8_decode_nvfp4),
};

// Columns, at the most, that are served here, faster than by a panel: where they are read by row, and by streams.
const uint8_t ISA_FN(matmul_q8_in_place)[DT_COUNT][2] = {
    [DT_Q4_0] = {4, 4},    [DT_Q4_1] = {4, 4},   [DT_Q5_0] = {4, 4},    [DT_Q5_1] = {4, 4},   [DT_Q8_0] = {4, 4},
    [DT_Q2_K] = {4, 4},    [DT_Q3_K] = {4, 4},   [DT_Q4_K] = {7, 5},    [DT_Q5_K] = {7, 5},   [DT_Q6_K] = {7, 5},
    [DT_IQ4_NL] = {4, 4},  [DT_IQ4_XS] = {4, 4}, [DT_MXFP4] = {4, 4},   [DT_IQ1_S] = {2, 2},  [DT_IQ1_M] = {2, 2},
    [DT_IQ2_XXS] = {2, 2}, [DT_IQ2_XS] = {2, 2}, [DT_IQ2_S] = {2, 2},   [DT_IQ3_XXS] = {2, 2}, [DT_IQ3_S] = {2, 2},
    [DT_TQ1_0] = {2, 2},   [DT_TQ2_0] = {2, 2},  [DT_Q1_0] = {16, 16},  [DT_Q2_0] = {16, 16}, [DT_NVFP4] = {16, 16},
};
