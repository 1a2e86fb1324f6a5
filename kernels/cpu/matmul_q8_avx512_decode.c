// One or two columns: every block is read once, in place, at the speed of memory.
//
// The naive loop, for each row: for each block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum, d * da, D).
// The products are cheap (vpdpbusd: 64 of them); what costs is unpacking, and adding up 16 lanes of each row and block. So:
//   - 16 rows go together. Each leaves a register of 16 partial sums a block; reduce_16x16 adds the lanes of 16 such
//     registers in 45 operations and puts the sum of row r in lane r. From there on floats have a lane a row.
//   - The activations of a block are put into the order in which weights come out of their bytes once for the 16 rows.
//   - What is the same for rows and needs few lanes (headers, scales, mins) is unpacked with a lane a row, too.
//   - Each row asks for its bytes some blocks ahead of their use, and near its end for those of the row 16 further on: of
//     the caller's next rows where there is none. Without that, each item would begin at the speed of cache misses.
#include "kernels/cpu/matmul_q8_avx512_rows.h"
#include "kernels/cpu/matmul_q8_avx512_scales.h"

// Blocks of 256 between the request for bytes and their use: 16 rows have some 7 KB under way, into the L2 cache, whose
// misses are many more at a time than those of the L1 cache.
enum { AHEAD = 3 };

// The integer sums of 16 rows over one block of 256, and the blocks' scales.
struct sums16 {
    __m512i dot, min;
    __m512 d, m;
};

// ---- adding up lanes

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

INLINE struct sums16 sums_q4_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums)
{
    struct header_k4 h = load_header_k4(g, at);
    uint32_t scales[2][GROUP];
    _mm512_storeu_si512(scales[0], h.scale[0]);
    _mm512_storeu_si512(scales[1], h.scale[1]);
    struct sums16 s = {.min = dot_mins_k4(&h, sums), .d = h.d, .m = h.m};
    __m512i x[4];
    load_activations_k4(q, x);
    REDUCE_16X16(s.dot, (prefetch_block(ahead, row, 0, 144),
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

INLINE struct sums16 sums_q5_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums)
{
    struct header_k4 h = load_header_k4(g, at);
    uint32_t scales[2][GROUP];
    _mm512_storeu_si512(scales[0], h.scale[0]);
    _mm512_storeu_si512(scales[1], h.scale[1]);
    struct sums16 s = {.min = dot_mins_k4(&h, sums), .d = h.d, .m = h.m};
    __m512i x[4];
    load_activations_k4(q, x);
    REDUCE_16X16(s.dot, (prefetch_block(ahead, row, 0, 176),
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

INLINE struct sums16 sums_q6_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums)
{
    (void)sums;
    struct sums16 s = {.d = load_halves(g, at + 208)};
    __m512i x[4], start[4];
    for (int i = 0; i < 4; i++) {
        x[i] = load_512(q + 64 * i);
        start[i] = offset_start(x[i], 32);
    }
    REDUCE_16X16(s.dot, (prefetch_block(ahead, row, 0, 210), dot_q6_k(g->at[row] + at, x, start)));
    return s;
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

INLINE __m512i dot_q2_k(const uint8_t *b, const __m512i q[4], uint32_t scales[4][GROUP], int row)
{
    const __m512i zero[4] = {0}, pairs = load_512(b + 16);
    __m512i w[4];
    for (int p = 0; p < 4; p++)
        w[p] = move_bits(pairs, 2, 2 * p, 2 * p, 0);
    return dot_scaled(w, zero, q, spread_scales_pairs(&scales[0][row], &scales[2][row], false),
                      spread_scales_pairs(&scales[1][row], &scales[3][row], false));
}

INLINE struct sums16 sums_q2_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums)
{
    struct sums16 s = {.min = _mm512_setzero_si512()};
    __m512i t[4], x[4];
    uint32_t scales[4][GROUP];
    load_words_16(g, at, t);
    for (int i = 0; i < 4; i++) {
        __m512i min = high_nibbles(t[i]);
        _mm512_storeu_si512(scales[i], low_nibbles(t[i]));
        s.min = _mm512_dpwssd_epi32(s.min, bytes_to_pair(min, 0, 1), broadcast_32(sums + 4 * i));
        s.min = _mm512_dpwssd_epi32(s.min, bytes_to_pair(min, 2, 3), broadcast_32(sums + 4 * i + 2));
    }
    load_words_16(g, at + 68, t);  // the last 16 bytes: quants, d and dmin
    s.d = low_halves(t[3]);
    s.m = high_halves(t[3]);
    load_activations_pairs(q, x);
    REDUCE_16X16(s.dot, (prefetch_block(ahead, row, 0, 84), dot_q2_k(g->at[row] + at, x, scales, row)));
    return s;
}

INLINE __m512i dot_q3_k(const uint8_t *b, const __m512i q[4], const __m512i start[4], uint32_t scales[4][GROUP], int row)
{
    const __m512i pairs = load_512(b + 32), third = _mm512_broadcast_i64x4(load_256(b));
    __m512i w[4];
    for (int p = 0; p < 4; p++)
        w[p] = _mm512_or_si512(move_bits(pairs, 2, 2 * p, 2 * p, 0), move_bits(third, 1, p, 4 + p, 2));
    return dot_scaled(w, start, q, spread_scales_pairs(&scales[0][row], &scales[2][row], true),
                      spread_scales_pairs(&scales[1][row], &scales[3][row], true));
}

INLINE struct sums16 sums_q3_k(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums)
{
    (void)sums;
    struct sums16 s = {.d = load_halves(g, at + 108)};
    __m512i t[4], x[4], start[4];
    uint32_t scales[4][GROUP];
    load_scales_q3_k(g, at, t);
    load_activations_pairs(q, x);
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(scales[i], t[i]);
        start[i] = offset_start(x[i], 4);
    }
    REDUCE_16X16(s.dot, (prefetch_block(ahead, row, 0, 110), dot_q3_k(g->at[row] + at, x, start, scales, row)));
    return s;
}

// ---- IQ4_XS: sums of 8 products with values up to 127 need 32 bits, and so do their products with the scales

// Four sub-blocks of 32, a quarter each; their sums times their scales.
INLINE __m512i dot_quarters_iq4(const uint8_t *quants, const __m512i q[2], __m512i start, __m512i values, const uint32_t *scales)
{
    const __m512i pick = _mm512_set_epi32(0x03808080, 0x03808080, 0x03808080, 0x03808080, 0x02808080, 0x02808080,
                                          0x02808080, 0x02808080, 0x01808080, 0x01808080, 0x01808080, 0x01808080,
                                          0x00808080, 0x00808080, 0x00808080, 0x00808080);
    struct nibbles n = split_nibbles(load_512(quants));
    __m512i sum = _mm512_dpbusd_epi32(start, _mm512_shuffle_epi8(values, n.low), q[0]);
    sum = _mm512_dpbusd_epi32(sum, _mm512_shuffle_epi8(values, n.high), q[1]);
    __m512i scale = _mm512_srai_epi32(_mm512_shuffle_epi8(_mm512_set1_epi32((int)*scales), pick), 24);
    return _mm512_mullo_epi32(sum, scale);
}

INLINE struct sums16 sums_iq4_xs(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums)
{
    (void)sums;
    __m512i t[2], x[2][2], start[2];
    uint32_t scales[2][GROUP];
    struct sums16 s = {.d = load_scales_iq4_xs(g, at, t)};
    for (int h = 0; h < 2; h++, q += 128) {
        _mm512_storeu_si512(scales[h], t[h]);
        x[h][0] = load_4x16(q, q + 32, q + 64, q + 96);
        x[h][1] = load_4x16(q + 16, q + 48, q + 80, q + 112);
        start[h] = _mm512_add_epi32(offset_start(x[h][0], 128), offset_start(x[h][1], 128));
    }
    const __m512i values = values_of(&shape_iq4_nl);
    REDUCE_16X16(s.dot, (prefetch_block(ahead, row, 0, 136),
                         _mm512_add_epi32(dot_quarters_iq4(g->at[row] + at + 8, x[0], start[0], values, &scales[0][row]),
                                          dot_quarters_iq4(g->at[row] + at + 72, x[1], start[1], values, &scales[1][row]))));
    return s;
}

// ---- all rows, types with blocks of 256

typedef struct sums16 sums16_fn(const struct rows16 *g, size_t at, const struct ahead *ahead, const int8_t *q, const int16_t *sums);

// n columns, 1 or 2. The second unpacks a block once more, out of the L1 cache: while memory brings the next one there is
// time for it. For a third there is not: a panel serves three.
INLINE void decode_256(const struct matmul_args *a, sums16_fn *sums, size_t bytes, bool mins, int n)
{
    int64_t n_blocks = a->k / 256;
    for (int first = 0; first < a->n_rows; first += GROUP) {
        struct rows16 g = rows_from(a, first), after = rows_ahead(a, first + GROUP, GROUP);
        __m512 d[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            struct ahead ahead = ahead_of(&g, &after, b, n_blocks, bytes, AHEAD);
            UNROLL
            for (int j = 0; j < n; j++) {
                const void *x = a->x[j];
                struct sums16 t = sums(&g, (size_t)b * bytes, j ? NULL : &ahead, q8_quants(x) + 256 * b,
                                       q8_sums(x, a->k) + 16 * b);
                __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(t.dot), t.d);
                if (mins)
                    s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(t.min), t.m, s);
                d[j] = _mm512_fmadd_ps(s, _mm512_set1_ps(q8_scales(x, a->k)[b]), d[j]);
            }
        }
        UNROLL
        for (int j = 0; j < n; j++)
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
    }
}

// ---- types with blocks of 32: eight of them go together, or what a row ends with

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

INLINE void dots_q8_0(const struct rows16 *g, const size_t offset[8], int n, const struct ahead *ahead, const int8_t *q,
                      __m512i dot[8])
{
    for (int p = 0; 2 * p < n; p++) {
        __m512i x = load_512(q + 64 * p), start = offset_start(x, 128), v[4];
        UNROLL
        for (int t = 0; t < 4; t++) {
            __m512i u[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                const uint8_t *row = g->at[4 * t + i];
                u[i] = dot_q8_0(row + offset[2 * p], row + offset[2 * p + 1], x, start);
                prefetch_block(ahead, 4 * t + i, 68 * p, 68);
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

// Unsigned weights of four blocks: a quarter each.
INLINE struct nibbles split_blocks(const uint8_t *row, const size_t offset[4], const struct shape *s, __m512i values)
{
    const uint8_t *p = row + s->quants;
    struct nibbles n = split_nibbles(load_4x16(p + offset[0], p + offset[1], p + offset[2], p + offset[3]));
    n.low = look_up(s, values, n.low);
    n.high = look_up(s, values, n.high);
    if (s->fifth >= 0) {
        __m512i heads = load_4x16(row + offset[0], row + offset[1], row + offset[2], row + offset[3]);
        n.low = _mm512_or_si512(n.low, fifth_bits(heads, s->fifth, 0));
        n.high = _mm512_or_si512(n.high, fifth_bits(heads, s->fifth, 16));
    }
    return n;
}

INLINE void dots_nibbles(const struct rows16 *g, const size_t offset[8], int n, const struct ahead *ahead, const int8_t *q,
                         const struct shape *s, __m512i dot[8])
{
    const __m512i values = values_of(s);
    for (int p = 0; 4 * p < n; p++, q += 128) {
        __m512i low = load_4x16(q, q + 32, q + 64, q + 96), high = load_4x16(q + 16, q + 48, q + 80, q + 112);
        __m512i start = _mm512_add_epi32(offset_start(low, s->offset), offset_start(high, s->offset)), v[4];
        UNROLL
        for (int t = 0; t < 4; t++) {
            __m512i u[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                const uint8_t *row = g->at[4 * t + i];
                struct nibbles w = split_blocks(row, offset + 4 * p, s, values);
                prefetch_block(ahead, 4 * t + i, 4 * s->bytes * p, 4 * s->bytes);
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

// The sum S of 16 rows over n blocks, n <= 8: only these are multiplied, by twos or fours. Q8_0 has no shape of nibbles: NULL.
INLINE __m512 sum_32(const struct rows16 *g, const struct shape *s, size_t at, const struct ahead *ahead, int n, const int8_t *q,
                     const int16_t *q_sums)
{
    size_t offset[8];
    __m512i dot[8];
    __m512 d[8], m[8], sum = _mm512_setzero_ps();
    block_offsets(at, n, s ? (size_t)s->bytes : 34, offset);
    if (s) {
        dots_nibbles(g, offset, n, ahead, q, s, dot);
        load_scales(g, s, offset, n, d, m);
    } else {
        dots_q8_0(g, offset, n, ahead, q, dot);
        load_heads(g, offset, n, 34, 0, d);
    }
    for (int j = 0; j < n; j++) {
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[j]), d[j], sum);
        if (s && s->m >= 0)
            sum = _mm512_fmadd_ps(_mm512_set1_ps((float)(q_sums[2 * j] + q_sums[2 * j + 1])), m[j], sum);
    }
    return sum;
}

// The sum S of 256 elements, or of the n < 8 blocks that a row ends with, joins D of a column.
INLINE __m512 add_32(const struct matmul_args *a, const struct rows16 *g, const struct shape *s, int64_t b,
                     const struct ahead *ahead, int n, const void *x, __m512 d)
{
    const size_t bytes = 8 * (s ? (size_t)s->bytes : 34);
    __m512 sum = sum_32(g, s, (size_t)b * bytes, ahead, n, q8_quants(x) + 256 * b, q8_sums(x, a->k) + 16 * b);
    return _mm512_fmadd_ps(sum, _mm512_set1_ps(q8_scales(x, a->k)[b]), d);
}

// n columns, 1 or 2, as above.
INLINE void decode_32(const struct matmul_args *a, const struct shape *s, int n)
{
    const size_t bytes = 8 * (s ? (size_t)s->bytes : 34);
    int64_t n_full = a->k / 256;
    int n_last = (int)(a->k % 256 / 32);
    for (int first = 0; first < a->n_rows; first += GROUP) {
        struct rows16 g = rows_from(a, first), after = rows_ahead(a, first + GROUP, GROUP);
        __m512 d[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_full; b++) {
            struct ahead ahead = ahead_of(&g, &after, b, q8_blocks(a->k), bytes, AHEAD);
            UNROLL
            for (int j = 0; j < n; j++)
                d[j] = add_32(a, &g, s, b, j ? NULL : &ahead, 8, a->x[j], d[j]);
        }
        // What the rows end with are a few blocks: all that is asked for beside them is asked for at once.
        struct ahead ahead = ahead_of(&g, &after, n_full, q8_blocks(a->k), bytes, AHEAD);
        for (int r = 0; n_last && r < GROUP; r++)
            prefetch_block(&ahead, r, 0, (int)bytes);
        UNROLL
        for (int j = 0; j < n; j++) {
            if (n_last)
                d[j] = add_32(a, &g, s, n_full, NULL, n_last, a->x[j], d[j]);
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
        }
    }
}

// ---- the functions

#define DECODE(name, CALL)                                                                                             \
    static void decode_##name(const struct matmul_args *a)                                                             \
    {                                                                                                                  \
        if (a->n_x == 1) {                                                                                             \
            enum { n = 1 };                                                                                            \
            CALL;                                                                                                      \
        } else {                                                                                                       \
            enum { n = 2 };                                                                                            \
            CALL;                                                                                                      \
        }                                                                                                              \
    }

// clang-format off
DECODE(q4_0, decode_32(a, &shape_q4_0, n))
DECODE(q4_1, decode_32(a, &shape_q4_1, n))
DECODE(q5_0, decode_32(a, &shape_q5_0, n))
DECODE(q5_1, decode_32(a, &shape_q5_1, n))
DECODE(q8_0, decode_32(a, NULL, n))
DECODE(iq4_nl, decode_32(a, &shape_iq4_nl, n))
DECODE(mxfp4, decode_32(a, &shape_mxfp4, n))
DECODE(q2_k, decode_256(a, sums_q2_k, 84, true, n))
DECODE(q3_k, decode_256(a, sums_q3_k, 110, false, n))
DECODE(q4_k, decode_256(a, sums_q4_k, 144, true, n))
DECODE(q5_k, decode_256(a, sums_q5_k, 176, true, n))
DECODE(q6_k, decode_256(a, sums_q6_k, 210, false, n))
DECODE(iq4_xs, decode_256(a, sums_iq4_xs, 136, false, n))
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
