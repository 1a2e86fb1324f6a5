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
//   - Which 16 blocks go together is a question of how the CPU reads (enum reading): those of 16 rows that are neighbours, or
//     (reads_streams), with one column, four that follow each other of four rows a quarter of all apart. Zen 4 reads
//     four long streams as fast as it reads anything, sixteen or the order of memory up to a quarter slower where memory is
//     fast. Of two columns and more neighbours ask for what comes in the order of memory.
#include "kernels/cpu/matmul_q8_avx512_decode.h"

// Blocks between the request that brings them from L2 to L1 and their use: of a row in the order of memory, and of a stream.
enum { NEAR_ROW = 2, NEAR_STREAM = 2 * QUARTERS };

// The integer sums of 16 rows over one block of 256 for each column, and the blocks' scales. The sum of row 4t + i is that
// of the words i of quarters[t].
struct sums16 {
    __m512i quarters[COLUMNS_MAX][QUARTERS], min[COLUMNS_MAX];
    __m512 d, m;
};

// What is multiplied with a block: activations in the order in which weights come out of it, and what sums begin with.
struct activations {
    __m512i q[4], start[4];
};
typedef void load_activations_fn(const struct view *x, struct activations *to);

// Sixteen blocks, a lane each, and what belongs to them.
struct group {
    const struct rows16 *w;
    size_t at;                  // the blocks lie at w->at[lane] + at
    struct view x[COLUMNS_MAX]; // of each column; of streams, of the first quarter, with the others' sums behind its own
    struct ahead ahead;         // what neighbours ask for meanwhile
    // Of streams: what the quarters are multiplied with, and how far from a block what it asks for lies.
    const struct activations *loaded;
    ptrdiff_t on;
};

// ---- bytes ahead

// What a row of a type with blocks of 256 asks for while its block at `at` is read.
INLINE void ask_for(struct ahead *ask, const uint8_t *at, int bytes)
{
    prefetch_row(ask, bytes);
    if (ask->part != 1) // in the order of memory
        prefetch_near(at + NEAR_ROW * bytes, bytes);
}

// And a block of a stream: what lies `on` bytes further on, into L2, and a near one into L1.
INLINE void ask_in_stream(const uint8_t *at, ptrdiff_t on, int bytes)
{
    struct ahead ask = {.at = at + on};
    __asm__("" : "+r"(ask.at)); // one register
    prefetch_row(&ask, bytes);
    prefetch_near(at + NEAR_STREAM * bytes, bytes);
}

// ---- adding up lanes

// Lane r of reduce_across_quarters(out[j]), for n columns, is the sum of the lanes of DOT for block r. UNPACK declares what
// all columns take of the block at `b`, DOT is an expression in that and in the activations `x`; both have `row`, the lane.
// FOLD makes of the DOTs `v` of quarter `quarter` a register that has sums of v[i] in word i of each quarter. Meanwhile a
// block asks for as many bytes as it has itself.
#define REDUCE_16X16(out, g, streams, n, bytes, load, UNPACK, DOT, FOLD)                                               \
    do {                                                                                                               \
        struct activations x_[COLUMNS_MAX];                                                                            \
        struct ahead ask_ = (g)->ahead;                                                                                \
        UNROLL for (int j = 0; !(streams) && j < (n); j++) load(&(g)->x[j], &x_[j]);                                   \
        KEEP_LOOP for (int t_ = 0; t_ < QUARTERS; t_++) {                                                              \
            __m512i v_[COLUMNS_MAX][4];                                                                                \
            UNROLL for (int i_ = 0; i_ < STREAMS; i_++)                                                                \
            {                                                                                                          \
                const int row = STREAMS * t_ + i_;                                                                     \
                const uint8_t *b = (g)->w->at[row] + (g)->at;                                                          \
                if (streams)                                                                                           \
                    ask_in_stream(b, (g)->on, bytes);                                                                  \
                else                                                                                                   \
                    ask_for(&ask_, b, bytes);                                                                          \
                UNPACK;                                                                                                \
                UNROLL for (int j = 0; j < (n); j++)                                                                   \
                {                                                                                                      \
                    const struct activations *x = (streams) ? (g)->loaded + t_ : &x_[j];                               \
                    v_[j][i_] = (DOT);                                                                                 \
                }                                                                                                      \
            }                                                                                                          \
            UNROLL for (int j = 0; j < (n); j++)                                                                       \
            {                                                                                                          \
                const int quarter = t_;                                                                                \
                const __m512i *v = v_[j];                                                                              \
                (out)[j][t_] = (FOLD);                                                                                 \
                (void)quarter;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

// ---- what a row does

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

// Sums over 32, at most 4064 in magnitude, as 64 * high + low, two bytes each: part[p][i] are those of sub-blocks 4i .. of the
// block that belongs to a lane, p = 0 the high ones.
INLINE void part_sums(const struct view *x, __m512i part[2][2])
{
    const __m256i of_32 = _mm256_madd_epi16(load_256(x->sums), _mm256_set1_epi16(1));
    const __m128i of_both = _mm_packs_epi32(_mm256_castsi256_si128(of_32), _mm256_extracti128_si256(of_32, 1));
    const __m128i high = _mm_srai_epi16(of_both, 6), low = _mm_and_si128(of_both, _mm_set1_epi16(63));
    _Alignas(16) int8_t bytes[2][8];
    _mm_store_si128((__m128i *)bytes, _mm_packs_epi16(high, low));
    STAYS_IN_MEMORY(bytes);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 2; i++)
            part[p][i] = broadcast_32(bytes[p] + 4 * i);
}

INLINE void part_sums_of_quarters(const int16_t *sums_of_16, __m512i part[2][2])
{
    const __m512i both = _mm512_set1_epi16(1);
    const __m512i of_0_1 = _mm512_madd_epi16(load_512(sums_of_16), both);
    const __m512i of_2_3 = _mm512_madd_epi16(load_512(sums_of_16 + 2 * Q8_SUMS), both);
    // By quarters of the register sub-blocks 0-3 and 4-7 of blocks 0 and 1, each followed by those of two blocks on.
    const __m512i sums = _mm512_packs_epi32(of_0_1, of_2_3);
    const __m512i high = _mm512_srai_epi16(sums, 6), low = _mm512_and_si512(sums, _mm512_set1_epi16(63));
    const __m512i bytes = _mm512_packs_epi16(high, low); // words of a quarter: high, high of two blocks on, low, low ..
    const __m512i of_block = _mm512_set_epi32(9, 9, 9, 9, 1, 1, 1, 1, 8, 8, 8, 8, 0, 0, 0, 0);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 2; i++)
            part[p][i] = _mm512_permutexvar_epi32(_mm512_add_epi32(of_block, _mm512_set1_epi32(2 * p + 4 * i)), bytes);
}

// sum over the sub-blocks of min * sum(q), four of them a product.
INLINE __m512i dot_mins_k4(const struct header_k4 *h, __m512i part[2][2])
{
    __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), h->min[0], part[0][0]);
    dot = _mm512_slli_epi32(_mm512_dpbusd_epi32(dot, h->min[1], part[0][1]), 6);
    dot = _mm512_dpbusd_epi32(dot, h->min[0], part[1][0]);
    return _mm512_dpbusd_epi32(dot, h->min[1], part[1][1]);
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
INLINE void load_activations_k4(const struct view *x, struct activations *to)
{
    const int8_t *q = x->q;
    to->q[0] = load_2x32(q, q + 64);
    to->q[1] = load_2x32(q + 32, q + 96);
    to->q[2] = load_2x32(q + 128, q + 192);
    to->q[3] = load_2x32(q + 160, q + 224);
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

INLINE void sums_k4(const struct group *g, bool streams, int n, unpack_k4_fn *unpack, int bytes, struct sums16 *s)
{
    struct header_k4 h = load_header_k4(g->w, g->at);
    _Alignas(64) uint32_t scales[2][GROUP];
    _mm512_store_si512(scales[0], h.scale[0]);
    _mm512_store_si512(scales[1], h.scale[1]);
    STAYS_IN_MEMORY(scales);
    s->d = h.d, s->m = h.m;
    UNROLL
    for (int j = 0; j < n; j++) {
        __m512i part[2][2];
        if (streams)
            part_sums_of_quarters(g->x[0].sums, part);
        else
            part_sums(&g->x[j], part);
        s->min[j] = dot_mins_k4(&h, part);
    }
    REDUCE_16X16(s->quarters, g, streams, n, bytes, load_activations_k4,
                 struct unpacked u = unpack(b, &scales[0][row], &scales[1][row]), dot_scaled(&u, NULL, x->q), reduce_quarters(v));
}

INLINE void sums_q4_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    sums_k4(g, streams, n, unpack_q4_k, 144, s);
}

INLINE void sums_q5_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    sums_k4(g, streams, n, unpack_q5_k, 176, s);
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

INLINE void load_activations_q6_k(const struct view *x, struct activations *to)
{
    for (int i = 0; i < 4; i++) {
        to->q[i] = load_512(x->q + 64 * i);
        to->start[i] = offset_start(to->q[i], 32);
    }
}

INLINE void sums_q6_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    s->d = load_halves(g->w, g->at + 208);
    REDUCE_16X16(s->quarters, g, streams, n, 210, load_activations_q6_k, struct unpacked u = unpack_q6_k(b),
                 dot_scaled(&u, x->start, x->q), reduce_quarters(v));
}

// ---- Q2_K and Q3_K: 4 * 3 * 127, and 4 * 4 * 127 with -4 in `start`
//
// Pair p of the bits of 64 bytes is elements 32p .. of the first half of the block, and of the second. So register p holds,
// by quarters, sub-blocks 2p, 2p + 1, 8 + 2p, 9 + 2p, and each quarter of packed registers p and p + 1 four sums of each.

INLINE void load_activations_q2_k(const struct view *x, struct activations *to)
{
    for (int p = 0; p < 4; p++)
        to->q[p] = load_2x32(x->q + 32 * p, x->q + 128 + 32 * p);
}

INLINE void load_activations_q3_k(const struct view *x, struct activations *to)
{
    load_activations_q2_k(x, to);
    for (int p = 0; p < 4; p++)
        to->start[p] = offset_start(to->q[p], 4);
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

// sum over the sub-blocks of min * sum(q): their minima are the high nibbles of `packed`, four a word. Pair p of the sums over 16
// is a word, in each column that of all lanes, in streams that of a lane's block.
INLINE __m512i dot_mins_q2_k(const __m512i packed[4], const struct view *x, bool streams)
{
    const __m512i of_block = _mm512_set_epi32(24, 24, 24, 24, 16, 16, 16, 16, 8, 8, 8, 8, 0, 0, 0, 0);
    __m512i first = _mm512_setzero_si512(), second = first, dot = first;
    if (streams) {
        first = load_512(x->sums);
        second = load_512(x->sums + 2 * Q8_SUMS);
    }
    UNROLL
    for (int p = 0; p < 8; p++) {
        const __m512i min = high_nibbles(packed[p / 2]), at = _mm512_add_epi32(of_block, _mm512_set1_epi32(p));
        const __m512i sums = streams ? _mm512_permutex2var_epi32(first, at, second) : broadcast_32(x->sums + 2 * p);
        dot = _mm512_dpwssd_epi32(dot, p % 2 ? bytes_to_pair(min, 2, 3) : bytes_to_pair(min, 0, 1), sums);
    }
    return dot;
}

INLINE void sums_q2_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    __m512i t[4];
    _Alignas(64) uint32_t scales[4][GROUP];
    load_words_16(g->w, g->at, t);
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(scales[i], low_nibbles(t[i]));
    STAYS_IN_MEMORY(scales);
    UNROLL
    for (int j = 0; j < n; j++)
        s->min[j] = dot_mins_q2_k(t, &g->x[j], streams);
    load_words_16(g->w, g->at + 68, t);  // the last 16 bytes: quants, d and dmin
    s->d = low_halves(t[3]);
    s->m = high_halves(t[3]);
    REDUCE_16X16(s->quarters, g, streams, n, 84, load_activations_q2_k, struct unpacked u = unpack_q2_k(b, scales, row),
                 dot_scaled(&u, NULL, x->q), reduce_quarters(v));
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

INLINE void sums_q3_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    __m512i t[4];
    _Alignas(64) uint32_t scales[4][GROUP];
    s->d = load_halves(g->w, g->at + 108);
    load_scales_q3_k(g->w, g->at, t);
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(scales[i], t[i]);
    STAYS_IN_MEMORY(scales);
    REDUCE_16X16(s->quarters, g, streams, n, 110, load_activations_q3_k, struct unpacked u = unpack_q3_k(b, scales, row),
                 dot_scaled(&u, x->start, x->q), reduce_quarters(v));
}

// ---- IQ4_XS: sums of 8 products with values up to 127 need 32 bits, and so do their products with the scales

// Registers 0 and 1 are the halves of four sub-blocks of 32, a quarter each; 2 and 3 those of the other four.
INLINE void unpack_iq4_xs(const uint8_t *quants, __m512i values, __m512i w[4])
{
    const struct nibbles n0 = split_nibbles(load_512(quants)), n1 = split_nibbles(load_512(quants + 64));
    w[0] = _mm512_shuffle_epi8(values, n0.low), w[1] = _mm512_shuffle_epi8(values, n0.high);
    w[2] = _mm512_shuffle_epi8(values, n1.low), w[3] = _mm512_shuffle_epi8(values, n1.high);
}

// Not scaled, of the first four sub-blocks; those of the others to `others`.
INLINE __m512i dot_iq4_xs(const __m512i w[4], const struct activations *x, __m512i *others)
{
    *others = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(x->start[1], w[2], x->q[2]), w[3], x->q[3]);
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(x->start[0], w[0], x->q[0]), w[1], x->q[1]);
}

// Four blocks' sums times scales, which is done for all of them at once: byte j of four[i] is the scale of sub-block j, whose
// sum is in quarter j, of block i.
INLINE __m512i scale_iq4_xs(const __m512i v[4], const uint32_t four[4])
{
    const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_mullo_epi32(reduce_quarters(v), _mm512_cvtepi8_epi32(_mm_shuffle_epi8(load_128(four), turn)));
}

INLINE void load_activations_iq4_xs(const struct view *x, struct activations *to)
{
    for (int h = 0; h < 2; h++) {
        const int8_t *q = x->q + 128 * h;
        to->q[2 * h] = load_4x16(q, q + 32, q + 64, q + 96);
        to->q[2 * h + 1] = load_4x16(q + 16, q + 48, q + 80, q + 112);
        to->start[h] = _mm512_add_epi32(offset_start(to->q[2 * h], 128), offset_start(to->q[2 * h + 1], 128));
    }
}

INLINE void sums_iq4_xs(const struct group *g, bool streams, int n, struct sums16 *s)
{
    __m512i t[2], others[COLUMNS_MAX][4];
    _Alignas(64) uint32_t scales[2][GROUP];
    s->d = load_scales_iq4_xs(g->w, g->at, t);
    _mm512_store_si512(scales[0], t[0]);
    _mm512_store_si512(scales[1], t[1]);
    const __m512i values = values_of(&shape_iq4_nl);
    REDUCE_16X16(s->quarters, g, streams, n, 136, load_activations_iq4_xs, __m512i w[4]; unpack_iq4_xs(b + 8, values, w),
                 dot_iq4_xs(w, x, &others[j][row % 4]),
                 _mm512_add_epi32(scale_iq4_xs(v, scales[0] + 4 * quarter), scale_iq4_xs(others[j], scales[1] + 4 * quarter)));
}

// ---- all rows, types with blocks of 256

// Of n columns; or of one, whose blocks are those of streams.
typedef void sums16_fn(const struct group *g, bool streams, int n, struct sums16 *s);

// The sums S of a column over the group's blocks.
INLINE __m512 scaled_sums(const struct sums16 *t, int j, bool mins)
{
    const __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(reduce_across_quarters(t->quarters[j])), t->d);
    return mins ? _mm512_fnmadd_ps(_mm512_cvtepi32_ps(t->min[j]), t->m, s) : s;
}

// n columns, known to the compiler.
INLINE void decode_neighbours(const struct matmul_args *a, sums16_fn *sums, size_t bytes, bool mins, int n)
{
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 rows = rows_from(a, first);
        struct group g = {.w = &rows};
        __m512 d[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < a->k / 256; b++) {
            struct sums16 t;
            g.at = (size_t)b * bytes;
            g.ahead = ahead_of(a, first, b, bytes, bytes, true);
            UNROLL
            for (int j = 0; j < n; j++)
                g.x[j] = view_of(a, j, b);
            sums(&g, false, n, &t);
            UNROLL
            for (int j = 0; j < n; j++)
                d[j] = _mm512_fmadd_ps(scaled_sums(&t, j, mins), _mm512_set1_ps(q8_scales(a->x[j], a->k)[b]), d[j]);
        }
        store(a, first, n, d);
    }
}

// Blocks of a row whose activations the scratch holds in order.
enum { LOADED_MOST = RING_MOST(sizeof(struct activations)) };

INLINE const struct activations *load_ring(const struct matmul_args *a, const struct ring *x, load_activations_fn *load)
{
    struct activations *to = x->room;
    for (int64_t i = 0, b = 0; i < x->blocks + RING_MORE; i++, b = block_after(b, x->blocks))
        load(&(struct view){q8_quants(a->x[0]) + 256 * b, NULL}, &to[i]);
    return to;
}

// From the blocks at hand to what they ask for; near the streams' end that is the start of the caller's next rows,
// which are cut alike, or, where these are not known, what is in the cache.
INLINE ptrdiff_t walk_on(const struct matmul_args *a, const struct walk *k, size_t bytes)
{
    const size_t offset = (size_t)k->read.at * bytes, length = (size_t)k->all * bytes;
    if (offset + AHEAD_STREAM < length)
        return AHEAD_STREAM;
    return a->next ? (ptrdiff_t)((uintptr_t)a->next - (uintptr_t)a->w + AHEAD_STREAM - length) : 0;
}

// One column by four streams. A group's sums are scaled after the next group's are made: some 70 cycles lie between the last
// of them and an output, and a core cannot go on far while it waits for these.
INLINE void decode_streams(const struct matmul_args *a, sums16_fn *sums, load_activations_fn *load, size_t bytes, bool mins)
{
    struct walk k = walk_of(a);
    struct rows16 w = walk_blocks(&k, bytes, QUARTERS);
    const struct activations *loaded = load_ring(a, &k.x, load);
    struct sums16 made[2];
    const struct sums16 *last = NULL;
    struct group g = {.w = &w};
    for (int turn = 0; walk_step(&k); turn ^= 1) {
        if (k.read.at + QUARTERS > k.all)
            w = walk_blocks(&k, bytes, k.all - k.read.at);
        STAYS_IN_MEMORY(w);
        g.at = (size_t)k.read.at * bytes;
        g.on = walk_on(a, &k, bytes);
        g.loaded = loaded + k.read.block;
        g.x[0].sums = k.x.sums[k.read.block];
        sums(&g, true, 1, &made[turn]);
        STAYS_IN_MEMORY(made);
        if (last)
            walk_add(a, &k, scaled_sums(last, 0, mins));
        last = &made[turn];
    }
    if (last)
        walk_add(a, &k, scaled_sums(last, 0, mins));
}

INLINE void decode_256(const struct matmul_args *a, sums16_fn *sums, load_activations_fn *load, size_t bytes, bool mins, int n)
{
    const int64_t blocks = a->k / 256;
    if (n == 1 && reads_streams(a->reading) && blocks <= LOADED_MOST && a->w_stride == (size_t)blocks * bytes)
        decode_streams(a, sums, load, bytes, mins);
    else
        decode_neighbours(a, sums, bytes, mins, n);
}

// ---- the functions

// clang-format off
DECODE(q2_k, UP_TO_4, decode_256(a, sums_q2_k, load_activations_q2_k, 84, true, n))
DECODE(q3_k, UP_TO_4, decode_256(a, sums_q3_k, load_activations_q3_k, 110, false, n))
DECODE(q4_k, UP_TO_7, decode_256(a, sums_q4_k, load_activations_k4, 144, true, n))
DECODE(q5_k, UP_TO_7, decode_256(a, sums_q5_k, load_activations_k4, 176, true, n))
DECODE(q6_k, UP_TO_7, decode_256(a, sums_q6_k, load_activations_q6_k, 210, false, n))
DECODE(iq4_xs, UP_TO_4, decode_256(a, sums_iq4_xs, load_activations_iq4_xs, 136, false, n))
// clang-format on

matmul_fn *const ISA_FN(matmul_q8_decode)[DT_COUNT] = {
#define IN_PLACE(NAME, name) [DT_##NAME] = ISA_FN(matmul_q8_decode_##name),
    IN_PLACE(Q4_0, q4_0) IN_PLACE(Q4_1, q4_1) IN_PLACE(Q5_0, q5_0) IN_PLACE(Q5_1, q5_1)
    IN_PLACE(Q8_0, q8_0) IN_PLACE(IQ4_NL, iq4_nl) IN_PLACE(MXFP4, mxfp4) IN_PLACE(Q2_K, q2_k)
    IN_PLACE(Q3_K, q3_k) IN_PLACE(Q4_K, q4_k) IN_PLACE(Q5_K, q5_k) IN_PLACE(Q6_K, q6_k)
    IN_PLACE(IQ4_XS, iq4_xs) IN_PLACE(IQ1_S, iq1_s) IN_PLACE(IQ1_M, iq1_m) IN_PLACE(IQ2_XXS, iq2_xxs)
    IN_PLACE(IQ2_XS, iq2_xs) IN_PLACE(IQ2_S, iq2_s) IN_PLACE(IQ3_XXS, iq3_xxs) IN_PLACE(IQ3_S, iq3_s)
    IN_PLACE(TQ1_0, tq1_0) IN_PLACE(TQ2_0, tq2_0) IN_PLACE(Q1_0, q1_0) IN_PLACE(Q2_0, q2_0)
    IN_PLACE(NVFP4, nvfp4)
#undef IN_PLACE
};

// Columns, at the most, that are served here, faster than by a panel: where they are read by row, and by streams.
const uint8_t ISA_FN(matmul_q8_in_place)[DT_COUNT][2] = {
    [DT_Q4_0] = {4, 4},    [DT_Q4_1] = {4, 4},   [DT_Q5_0] = {4, 4},    [DT_Q5_1] = {4, 4},   [DT_Q8_0] = {4, 4},
    [DT_Q2_K] = {4, 4},    [DT_Q3_K] = {4, 4},   [DT_Q4_K] = {7, 5},    [DT_Q5_K] = {7, 5},   [DT_Q6_K] = {7, 5},
    [DT_IQ4_NL] = {4, 4},  [DT_IQ4_XS] = {4, 4}, [DT_MXFP4] = {4, 4},   [DT_IQ1_S] = {2, 2},  [DT_IQ1_M] = {2, 2},
    [DT_IQ2_XXS] = {2, 2}, [DT_IQ2_XS] = {2, 2}, [DT_IQ2_S] = {2, 2},   [DT_IQ3_XXS] = {2, 2}, [DT_IQ3_S] = {2, 2},
    [DT_TQ1_0] = {2, 2},   [DT_TQ2_0] = {2, 2},  [DT_Q1_0] = {16, 16},  [DT_Q2_0] = {16, 16}, [DT_NVFP4] = {16, 16},
};
