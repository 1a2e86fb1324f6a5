// Up to seven columns: every block is read once, in place, at the speed of memory.
//
// The naive loop, for each row: for each block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum, d * da, D).
// The products are cheap (vpdpbusd: 64 of them); what costs is unpacking, and adding up 16 lanes of each row and block. So:
//   - 16 rows go together. Two leave a register of 16 partial sums a block, half of each quarter being the one's and half the
//     other's; REDUCE_16X16 adds the lanes of 8 such registers in 21 operations and puts the sum of row r in lane r. From there
//     on floats have a lane a row.
//   - Each lane has eight products of one sub-block, as many as 16 bits hold: they are packed to halves, and multiplied by
//     the scales in pairs. So weights are brought into an order in which two registers have the same sub-blocks in the same
//     lanes, once for all columns.
//   - The activations of a row's blocks are put into that order once a call, and so are their sums, for the minima.
//   - A row's block is unpacked once, into registers, for all columns, whose activations come out of the L1 cache. One
//     column waits for memory; with four, multiplying takes as long, and soon a panel, with a lane a row, is faster.
//   - What is the same for rows and needs few lanes (headers, scales, mins) is unpacked with a lane a row, too.
//   - While a row is read, as many bytes are asked for as it has there, some way on: its own, and near its end those of the
//     row that comes after it. Behind the last rows these are the caller's next ones. Without that, each item would begin at
//     the speed of cache misses.
//   - Which 16 blocks go together is a question of how the CPU reads (enum reading): those of 16 rows that are neighbours, or
//     (reads_streams) four that follow each other of four rows a quarter of all apart. Zen 4 reads four long streams as fast as
//     it reads anything, sixteen or the order of memory up to a quarter slower where memory is fast. Where rows do not
//     follow each other without a gap, neighbours ask for what comes in the order of memory.
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
    __m512i q[4], start[2];
};

// Eight of their sums over 32 (of Q2_K over 16), for types that have minima: 0 and 2, 1 and 3, 4 and 6, 5 and 7.
struct eight_sums {
    int16_t of[8];
};

// Prepares a block: its activations, and their sums, of Q2_K the first eight and the second.
typedef void prepare_fn(const struct view *x, struct activations *to, int16_t *first, int16_t *second);

// Sixteen blocks, a lane each, and what belongs to them.
struct group {
    const struct rows16 *w;
    size_t at;                               // the blocks lie at w->at[lane] + at
    const struct activations *x[COLUMNS_MAX]; // of streams, of the first quarter; those of the others follow
    const struct eight_sums *sums[2][COLUMNS_MAX];  // likewise
    struct ahead ahead;                      // what neighbours ask for meanwhile
    ptrdiff_t on;                            // how far from a block of a stream what it asks for lies
};

// ---- bytes ahead

// What a row of a type with blocks of 256 asks for while its block at `at` is read: as many bytes as it has itself, into L2.
INLINE void ask_far(const struct group *g, bool streams, struct ahead *in_order, const uint8_t *at, int bytes)
{
    struct ahead ask = {.at = at + g->on};
    if (streams)
        __asm__("" : "+r"(ask.at)); // one register
    prefetch_row(streams ? &ask : in_order, bytes);
}

// And what was asked for before, into L1. (Neighbours that each ask for their own are read by CPUs that do this themselves.)
INLINE void ask_near(bool streams, const struct ahead *in_order, const uint8_t *at, int bytes)
{
    if (streams || in_order->part != 1)
        prefetch_near(at + (streams ? NEAR_STREAM : NEAR_ROW) * bytes, bytes);
}

// ---- adding up lanes

// Their weights, unsigned, and the scales of their packed sums, of two rows. In each lane registers 0 and 1 of a row belong to
// one sub-block, and so do 2 and 3.
struct pair {
    __m512i w[2][4], scale[2];
};

// A row's block to registers.
typedef void unpack_fn(const uint8_t *b, __m512i w[4]);

// What is asked for stays where it stands, after what makes v: more requests at once than a core has room for make it wait.
#define AFTER(v) __asm__ volatile("" : "+v"(v))

// The blocks at b and c, and what they ask for meanwhile.
INLINE void unpack_pair(const struct group *g, bool streams, struct ahead *in_order, const uint8_t *b, const uint8_t *c,
                        unpack_fn *unpack, int bytes, struct pair *u)
{
    ask_far(g, streams, in_order, b, bytes);
    unpack(b, u->w[0]);
    AFTER(u->w[0][3]);
    ask_near(streams, in_order, b, bytes);
    unpack(c, u->w[1]);
    AFTER(u->w[1][3]);
    ask_far(g, streams, in_order, c, bytes);
    ask_near(streams, in_order, c, bytes);
}

// Keeps what several columns read for two rows from staying in registers for the next two, which are too few for that.
#define FORGET_LOADS(n)                                                                                                \
    if ((n) > 2)                                                                                                       \
    __asm__ volatile("" : : : "memory")

// Lane r of reduce_across_quarters(out[j]), for n columns, is the sum of block r. The rows go in pairs `u`, i and i + 1 of the
// four from 4t on; SCALE is what else they need. DOT multiplies them by the activations `x`, to v[0], or v[0] and v[1]; FOLD makes
// of the first pair's v[0], v[1] and the other's, v[2], v[3], a register that has sums of row 4t + i in word i of each quarter.
#define REDUCE_16X16(out, g, streams, n, bytes, unpack, SCALE, DOT, FOLD)                                              \
    do {                                                                                                               \
        struct ahead in_order = (g)->ahead;                                                                            \
        KEEP_LOOP for (int t = 0; t < QUARTERS; t++) {                                                                 \
            __m512i of_four[COLUMNS_MAX][4];                                                                           \
            UNROLL for (int i = 0; i < STREAMS; i += 2)                                                                \
            {                                                                                                          \
                const uint8_t *const *rows = (g)->w->at + STREAMS * t + i;                                             \
                const uint8_t *b = rows[0] + (g)->at, *c = rows[1] + (g)->at;                                          \
                struct pair u;                                                                                         \
                FORGET_LOADS(n);                                                                                       \
                unpack_pair(g, streams, &in_order, b, c, unpack, bytes, &u);                                           \
                SCALE;                                                                                                 \
                UNROLL for (int j = 0; j < (n); j++)                                                                   \
                {                                                                                                      \
                    const struct activations *x = (g)->x[j] + ((streams) ? t : 0);                                     \
                    __m512i *v = of_four[j] + i;                                                                       \
                    DOT;                                                                                               \
                }                                                                                                      \
            }                                                                                                          \
            UNROLL for (int j = 0; j < (n); j++)                                                                       \
            {                                                                                                          \
                const __m512i *v = of_four[j];                                                                         \
                (out)[j][t] = (FOLD);                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

// With several columns gcc would read it again for each row, and a load takes as long as a product.
INLINE __m512i read_once(const __m512i *p, int n)
{
    __m512i v = *p;
    if (n > 1)
        __asm__("" : "+v"(v));
    return v;
}

// Products of eight in a lane (|.| <= 32767 with what `start` holds).
INLINE __m512i dot_8(const __m512i w[2], __m512i start, __m512i q0, __m512i q1)
{
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, w[0], q0), w[1], q1);
}

// In each quarter sums of the first row are words 0 and 1, of the second 2 and 3.
INLINE __m512i dot_pair(const struct pair *u, const struct activations *x, bool starts, int n)
{
    __m512i sum = _mm512_setzero_si512();
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m512i q0 = read_once(&x->q[2 * i], n), q1 = read_once(&x->q[2 * i + 1], n);
        const __m512i start = starts ? read_once(&x->start[i], n) : _mm512_setzero_si512();
        const __m512i a = dot_8(u->w[0] + 2 * i, start, q0, q1), b = dot_8(u->w[1] + 2 * i, start, q0, q1);
        sum = _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(a, b), u->scale[i]);
    }
    return sum;
}

INLINE __m512i reduce_pairs(__m512i first, __m512i second)
{
    const __m512 a = _mm512_castsi512_ps(first), b = _mm512_castsi512_ps(second);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
}

#define REDUCE_PAIRS(out, g, streams, n, bytes, starts, unpack, SCALE)                                                 \
    REDUCE_16X16(out, g, streams, n, bytes, unpack, SCALE, v[0] = dot_pair(&u, x, starts, n), reduce_pairs(v[0], v[2]))

// ---- minima

INLINE void store_sums(__m128i sums, int16_t *to)
{
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    _mm_store_si128((__m128i *)to, _mm_shuffle_epi8(sums, order));
}

INLINE void store_sums_of_32(const int16_t *sums_of_16, int16_t *to)
{
    const __m256i of_32 = _mm256_madd_epi16(load_256(sums_of_16), _mm256_set1_epi16(1));
    store_sums(_mm_packs_epi32(_mm256_castsi256_si128(of_32), _mm256_extracti128_si256(of_32, 1)), to);
}

// dot + the minima of eight sub-blocks, a pair of int16 in a lane, times sums of each column.
INLINE __m512i add_minima(__m512i dot, const __m512i min[4], const struct eight_sums *sums, bool streams)
{
    if (!streams) {
        UNROLL
        for (int p = 0; p < 4; p++)
            dot = _mm512_dpwssd_epi32(dot, min[p], broadcast_32(sums->of + 2 * p));
        return dot;
    }
    const __m512i of_blocks = load_512(sums);
    dot = _mm512_dpwssd_epi32(dot, min[0], _mm512_shuffle_epi32(of_blocks, _MM_PERM_AAAA));
    dot = _mm512_dpwssd_epi32(dot, min[1], _mm512_shuffle_epi32(of_blocks, _MM_PERM_BBBB));
    dot = _mm512_dpwssd_epi32(dot, min[2], _mm512_shuffle_epi32(of_blocks, _MM_PERM_CCCC));
    return _mm512_dpwssd_epi32(dot, min[3], _mm512_shuffle_epi32(of_blocks, _MM_PERM_DDDD));
}

// Bytes 0 and 2, and 1 and 3, of each word.
INLINE void pairs_of_bytes(__m512i words, __m512i pairs[2])
{
    pairs[0] = _mm512_and_si512(words, _mm512_set1_epi16(255));
    pairs[1] = _mm512_srli_epi16(words, 8);
}

// ---- Q4_K: a lane sums 8 products <= 8 * 15 * 127
//
// The registers' quarters are sub-blocks 0, 2, 4, 6 (low nibbles), then 1, 3, 5, 7; the first has the first halves, the
// second the second ones.

INLINE void prepare_k4(const struct view *x, struct activations *to, int16_t *first, int16_t *second)
{
    for (int i = 0; i < 4; i++) {
        const int8_t *q = x->q + 16 * i;
        to->q[i] = load_4x16(q, q + 64, q + 128, q + 192);
    }
    store_sums_of_32(x->sums, first);
    (void)second;
}

INLINE void bytes_k4(const uint8_t *quants, __m512i n[2])
{
    const __m512i n0 = load_512(quants), n1 = load_512(quants + 64);
    n[0] = _mm512_shuffle_i32x4(n0, n1, 0x88), n[1] = _mm512_shuffle_i32x4(n0, n1, 0xdd);
}

INLINE void unpack_q4_k(const uint8_t *b, __m512i w[4])
{
    __m512i n[2];
    bytes_k4(b + 16, n);
    UNROLL
    for (int i = 0; i < 2; i++)
        w[i] = low_nibbles(n[i]), w[2 + i] = high_nibbles(n[i]);
}

// Q5_K: 8 * 31 * 127; the fifth bits of sub-block j are bit j of 32 bytes.
INLINE void unpack_q5_k(const uint8_t *b, __m512i w[4])
{
    __m512i n[2];
    bytes_k4(b + 48, n);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m512i fifth = _mm512_broadcast_i32x4(load_128(b + 16 + 16 * i));
        w[i] = masked_or(n[i], 15, move_bits_of_8(fifth, 1, 0x66442200, 4));
        w[2 + i] = _mm512_or_si512(high_nibbles(n[i]), move_bits_of_8(fifth, 1, 0x77553311, 4));
    }
}

// Of two rows, eight bytes each, for packed sums, of which in a quarter four are of one sub-block of either row.
INLINE void spread_scales_k4(const uint32_t *scales, __m512i to[2])
{
    const __m512i pick = _mm512_set_epi64(
        (long long)0x800e800e800e800e, (long long)0x8006800680068006, (long long)0x800c800c800c800c, (long long)0x8004800480048004,
        (long long)0x800a800a800a800a, (long long)0x8002800280028002, (long long)0x8008800880088008, (long long)0x8000800080008000);
    const __m512i both = _mm512_broadcast_i32x4(load_128(scales));
    to[0] = _mm512_shuffle_epi8(both, pick);
    to[1] = _mm512_shuffle_epi8(both, _mm512_add_epi8(pick, _mm512_set1_epi16(1)));
}

INLINE void sums_k4(const struct group *g, bool streams, int n, unpack_fn *unpack, int bytes, struct sums16 *s)
{
    struct header_k4 h = load_header_k4(g->w, g->at);
    __m512i min[4];
    _Alignas(64) uint32_t scales[2][GROUP]; // quarters: rows 4t and 4t + 1; 4t + 2 and 4t + 3
    _mm512_store_si512(scales[0], _mm512_unpacklo_epi32(h.scale[0], h.scale[1]));
    _mm512_store_si512(scales[1], _mm512_unpackhi_epi32(h.scale[0], h.scale[1]));
    STAYS_IN_MEMORY(scales);
    s->d = h.d, s->m = h.m;
    pairs_of_bytes(h.min[0], min);
    pairs_of_bytes(h.min[1], min + 2);
    UNROLL
    for (int j = 0; j < n; j++)
        s->min[j] = add_minima(_mm512_setzero_si512(), min, g->sums[0][j], streams);
    REDUCE_PAIRS(s->quarters, g, streams, n, bytes, false, unpack, spread_scales_k4(scales[i / 2] + 4 * t, u.scale));
}

INLINE void sums_q4_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    sums_k4(g, streams, n, unpack_q4_k, 144, s);
}

INLINE void sums_q5_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    sums_k4(g, streams, n, unpack_q5_k, 176, s);
}

// ---- sub-blocks of 16: Q6_K, Q2_K, Q3_K
//
// Half of a quarter is one sub-block, the other half another; the first register has eight of its elements, the second
// the other eight.

// Scales of both rows, sixteen int16 each, for packed sums, whose quarter j has two of sub-block s and two of s + `apart`, for s
// hexadecimal digit j of `of_quarters`, of either row.
INLINE __m512i spread_some_16(__m512i both, uint32_t of_quarters, int apart)
{
#define PAIRS(i) (int)(0x10001u * (of_quarters >> 4 * (i) & 15))
    const __m512i first = _mm512_setr_epi32(PAIRS(0), PAIRS(0), PAIRS(0), PAIRS(0), PAIRS(1), PAIRS(1), PAIRS(1), PAIRS(1),
                                            PAIRS(2), PAIRS(2), PAIRS(2), PAIRS(2), PAIRS(3), PAIRS(3), PAIRS(3), PAIRS(3));
#undef PAIRS
    const int other = 0x10001 * apart, row = 0x10001 * 16;
    const __m512i more = _mm512_broadcast_i32x4(_mm_setr_epi32(0, other, row, other + row));
    return _mm512_permutexvar_epi16(_mm512_add_epi16(first, more), both);
}

INLINE void spread_scales_16(__m512i both, uint32_t of_quarters, uint32_t of_others, int apart, __m512i to[2])
{
    to[0] = spread_some_16(both, of_quarters, apart), to[1] = spread_some_16(both, of_others, apart);
}

INLINE __m256i load_both(const void *first, const void *second)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(first)), load_128(second), 1);
}

// Registers a and b to the first eight bytes of both in each quarter, and to the others.
INLINE void zip_8(__m512i a, __m512i b, __m512i to[2])
{
    to[0] = _mm512_unpacklo_epi64(a, b), to[1] = _mm512_unpackhi_epi64(a, b);
}

INLINE void load_starts(struct activations *to, int offset)
{
    for (int i = 0; i < 2; i++)
        to->start[i] = _mm512_add_epi32(offset_start(to->q[2 * i], offset), offset_start(to->q[2 * i + 1], offset));
}

// -- Q6_K: weights 0-63 with -32 in `start`: a lane sums 8 products <= 8 * 32 * 127

// Low nibbles of 64 bytes are elements 0-63 of a half, high ones 64-127; the 32 bytes of upper bits serve twice. So a quarter has
// of the low ones sub-blocks j and 8 + j, of the high ones 4 + j and 12 + j.
INLINE void unpack_q6_k(const uint8_t *b, __m512i w[4])
{
    __m512i n[2], upper[2];
    zip_8(load_512(b), load_512(b + 64), n);
    zip_8(_mm512_broadcast_i64x4(load_256(b + 128)), _mm512_broadcast_i64x4(load_256(b + 160)), upper);
    UNROLL
    for (int i = 0; i < 2; i++) {
        w[i] = masked_or(n[i], 15, move_bits(upper[i], 2, 0, 2, 4));
        w[2 + i] = _mm512_or_si512(high_nibbles(n[i]), move_bits(upper[i], 2, 4, 6, 4));
    }
}

INLINE void spread_scales_q6_k(const uint8_t *first, const uint8_t *second, __m512i to[2])
{
    spread_scales_16(_mm512_cvtepi8_epi16(load_both(first, second)), 0x3210, 0x7654, 8, to);
}

INLINE void prepare_q6_k(const struct view *x, struct activations *to, int16_t *first, int16_t *second)
{
    for (int i = 0; i < 2; i++)
        zip_8(load_512(x->q + 64 * i), load_512(x->q + 128 + 64 * i), to->q + 2 * i);
    load_starts(to, 32);
    (void)first, (void)second;
}

INLINE void sums_q6_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    s->d = load_halves(g->w, g->at + 208);
    REDUCE_PAIRS(s->quarters, g, streams, n, 210, true, unpack_q6_k, spread_scales_q6_k(b + 192, c + 192, u.scale));
}

// -- Q2_K and Q3_K: 8 * 3 * 127, and 8 * 4 * 127 with -4 in `start`
//
// Pair p of the bits of 64 bytes is elements 32p .. of the first half of the block, and of the second: by quarters
// sub-blocks 2p, 2p + 1, 8 + 2p, 9 + 2p. Half of these bytes stand twice in a quarter, for pairs 0 and 1, or 2 and 3.
enum { QUARTERS_0 = 0x9810, QUARTERS_2 = 0xdc54 };

INLINE void pairs_of_bits(__m512i bytes, __m512i w[4])
{
    __m512i half[2];
    zip_8(bytes, bytes, half);
    UNROLL
    for (int i = 0; i < 2; i++)
        w[i] = move_bits_of_8(half[i], 2, 0x20202020, 0), w[2 + i] = move_bits_of_8(half[i], 2, 0x64646464, 0);
}

INLINE void order_pairs(const struct view *x, struct activations *to)
{
    __m512i of_pair[4];
    for (int p = 0; p < 4; p++)
        of_pair[p] = load_2x32(x->q + 32 * p, x->q + 128 + 32 * p);
    zip_8(of_pair[0], of_pair[1], to->q);
    zip_8(of_pair[2], of_pair[3], to->q + 2);
}

INLINE void prepare_q2_k(const struct view *x, struct activations *to, int16_t *first, int16_t *second)
{
    order_pairs(x, to);
    store_sums(load_128(x->sums), first);
    store_sums(load_128(x->sums + 8), second);
}

INLINE void prepare_q3_k(const struct view *x, struct activations *to, int16_t *first, int16_t *second)
{
    order_pairs(x, to);
    load_starts(to, 4);
    (void)first, (void)second;
}

INLINE void unpack_q2_k(const uint8_t *b, __m512i w[4])
{
    pairs_of_bits(load_512(b + 16), w);
}

INLINE void spread_scales_q2_k(const uint8_t *first, const uint8_t *second, __m512i to[2])
{
    const __m256i nibbles = _mm256_and_si256(load_both(first, second), _mm256_set1_epi8(15));
    spread_scales_16(_mm512_cvtepu8_epi16(nibbles), QUARTERS_0, QUARTERS_2, 2, to);
}

INLINE void sums_q2_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    __m512i words[4], min[8];
    load_words_16(g->w, g->at, words);
    UNROLL
    for (int i = 0; i < 4; i++)
        pairs_of_bytes(high_nibbles(words[i]), min + 2 * i);
    UNROLL
    for (int j = 0; j < n; j++) {
        const __m512i dot = add_minima(_mm512_setzero_si512(), min, g->sums[0][j], streams);
        s->min[j] = add_minima(dot, min + 4, g->sums[1][j], streams);
    }
    load_words_16(g->w, g->at + 68, words);  // the last 16 bytes: quants, d and dmin
    s->d = low_halves(words[3]);
    s->m = high_halves(words[3]);
    REDUCE_PAIRS(s->quarters, g, streams, n, 84, false, unpack_q2_k, spread_scales_q2_k(b, c, u.scale));
}

INLINE void unpack_q3_k(const uint8_t *b, __m512i w[4])
{
    const __m512i third = _mm512_broadcast_i64x4(load_256(b));
    __m512i half[2];
    pairs_of_bits(load_512(b + 32), w);
    zip_8(third, third, half);
    UNROLL
    for (int i = 0; i < 2; i++) {
        w[i] = _mm512_or_si512(w[i], move_bits_of_8(half[i], 1, 0x54541010, 2));
        w[2 + i] = _mm512_or_si512(w[2 + i], move_bits_of_8(half[i], 1, 0x76763232, 2));
    }
}

INLINE void spread_scales_q3_k(const void *first, const void *second, __m512i to[2])
{
    spread_scales_16(_mm512_cvtepi8_epi16(load_both(first, second)), QUARTERS_0, QUARTERS_2, 2, to);
}

INLINE void sums_q3_k(const struct group *g, bool streams, int n, struct sums16 *s)
{
    __m512i by_lane[4], by_row[4];
    _Alignas(64) uint32_t scales[4][QUARTERS][4]; // of row 4t + i: [i][t]
    s->d = load_halves(g->w, g->at + 108);
    load_scales_q3_k(g->w, g->at, by_lane);
    transpose_words_16(by_lane, by_row);
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(scales[i], by_row[i]);
    STAYS_IN_MEMORY(scales);
    REDUCE_PAIRS(s->quarters, g, streams, n, 110, true, unpack_q3_k,
                 spread_scales_q3_k(scales[i][t], scales[i + 1][t], u.scale));
}

// ---- IQ4_XS: sums of 8 products with values up to 127 need 32 bits, and so do their products with the scales

// Registers 0 and 1 are the halves of four sub-blocks of 32, a quarter each; 2 and 3 those of the other four.
INLINE void unpack_iq4_xs(const uint8_t *b, __m512i w[4])
{
    const __m512i values = values_of(&shape_iq4_nl);
    const struct nibbles n0 = split_nibbles(load_512(b + 8)), n1 = split_nibbles(load_512(b + 72));
    w[0] = _mm512_shuffle_epi8(values, n0.low), w[1] = _mm512_shuffle_epi8(values, n0.high);
    w[2] = _mm512_shuffle_epi8(values, n1.low), w[3] = _mm512_shuffle_epi8(values, n1.high);
}

// Not scaled: v[0] of the first four sub-blocks, v[1] of the others; a quarter has two words of each row in turn.
INLINE void dot_iq4_xs(const struct pair *u, const struct activations *x, int n, __m512i v[2])
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        const __m512i q0 = read_once(&x->q[2 * h], n), q1 = read_once(&x->q[2 * h + 1], n);
        const __m512i start = read_once(&x->start[h], n);
        const __m512i a = dot_8(u->w[0] + 2 * h, start, q0, q1), b = dot_8(u->w[1] + 2 * h, start, q0, q1);
        v[h] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
}

// Sums of four rows, two of them in `first`, times scales, which is done for all of them at once: byte j of four[i] is the scale of
// sub-block j, whose sum is in quarter j, of row i.
INLINE __m512i scale_iq4_xs(__m512i first, __m512i second, const uint32_t four[4])
{
    const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i sums = _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    return _mm512_mullo_epi32(sums, _mm512_cvtepi8_epi32(_mm_shuffle_epi8(load_128(four), turn)));
}

INLINE void prepare_iq4_xs(const struct view *x, struct activations *to, int16_t *first, int16_t *second)
{
    (void)first, (void)second;
    for (int h = 0; h < 2; h++) {
        const int8_t *q = x->q + 128 * h;
        to->q[2 * h] = load_4x16(q, q + 32, q + 64, q + 96);
        to->q[2 * h + 1] = load_4x16(q + 16, q + 48, q + 80, q + 112);
        to->start[h] = _mm512_add_epi32(offset_start(to->q[2 * h], 128), offset_start(to->q[2 * h + 1], 128));
    }
}

INLINE void sums_iq4_xs(const struct group *g, bool streams, int n, struct sums16 *s)
{
    __m512i packed[2];
    _Alignas(64) uint32_t scales[2][GROUP];
    s->d = load_scales_iq4_xs(g->w, g->at, packed);
    _mm512_store_si512(scales[0], packed[0]);
    _mm512_store_si512(scales[1], packed[1]);
    REDUCE_16X16(s->quarters, g, streams, n, 136, unpack_iq4_xs, (void)u.scale, dot_iq4_xs(&u, x, n, v),
                 _mm512_add_epi32(scale_iq4_xs(v[0], v[2], scales[0] + 4 * t), scale_iq4_xs(v[1], v[3], scales[1] + 4 * t)));
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

// The columns' blocks, prepared, in the scratch: those of a column one behind the other, `stride` from one column to the next.
struct prepared {
    struct activations *x;
    struct eight_sums *sums[2];
    int64_t stride;
};

enum { PREPARED_BYTES = sizeof(struct activations) + 2 * sizeof(struct eight_sums) };

// `room` is 64-byte aligned.
INLINE struct prepared prepared_at(void *room, int64_t stride, int n)
{
    struct prepared p = {.x = room, .stride = stride};
    p.sums[0] = (struct eight_sums *)(void *)(p.x + n * stride);
    p.sums[1] = p.sums[0] + n * stride;
    return p;
}

INLINE void prepare_block(const struct matmul_args *a, const struct prepared *p, prepare_fn *prepare, int n, int64_t block,
                          int64_t place)
{
    for (int j = 0; j < n; j++) {
        const struct view x = view_of(a, j, block);
        const int64_t to = j * p->stride + place;
        prepare(&x, &p->x[to], p->sums[0][to].of, p->sums[1][to].of);
    }
}

INLINE void prepare_blocks(const struct matmul_args *a, const struct prepared *p, prepare_fn *prepare, int n, int64_t places)
{
    for (int64_t i = 0, b = 0; i < places; i++, b = block_after(b, q8_blocks(a->k)))
        prepare_block(a, p, prepare, n, b, i);
}

INLINE void take_block(struct group *g, const struct prepared *p, int n, int64_t place)
{
    UNROLL
    for (int j = 0; j < n; j++) {
        const int64_t at = j * p->stride + place;
        g->x[j] = p->x + at;
        g->sums[0][j] = p->sums[0] + at;
        g->sums[1][j] = p->sums[1] + at;
    }
}

// n columns, known to the compiler. Blocks that the scratch does not hold are prepared again for each 16 rows.
INLINE void decode_neighbours(const struct matmul_args *a, sums16_fn *sums, prepare_fn *prepare, size_t bytes, bool mins, int n)
{
    const int64_t blocks = a->k / 256;
    const bool fits = blocks <= ring_most(n, PREPARED_BYTES);
    const struct prepared p = prepared_at(a->scratch, fits ? blocks : 1, n);
    if (fits)
        prepare_blocks(a, &p, prepare, n, blocks);
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 rows = rows_from(a, first);
        struct group g = {.w = &rows};
        __m512 d[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t b = 0; b < blocks; b++) {
            struct sums16 t;
            if (!fits)
                prepare_block(a, &p, prepare, n, b, 0);
            g.at = (size_t)b * bytes;
            g.ahead = ahead_of(a, first, b, bytes, bytes, true);
            take_block(&g, &p, n, fits ? b : 0);
            sums(&g, false, n, &t);
            UNROLL
            for (int j = 0; j < n; j++)
                d[j] = _mm512_fmadd_ps(scaled_sums(&t, j, mins), _mm512_set1_ps(q8_scales(a->x[j], a->k)[b]), d[j]);
        }
        store(a, first, n, d);
    }
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

INLINE void add_sums(const struct matmul_args *a, struct walk *k, int n, const struct sums16 *t, bool mins)
{
    __m512 sum[COLUMNS_MAX];
    UNROLL
    for (int j = 0; j < n; j++)
        sum[j] = scaled_sums(t, j, mins);
    walk_add(a, k, n, sum);
}

// By four streams. A group's sums are scaled after the next group's are made: some 70 cycles lie between the last
// of them and an output, and a core cannot go on far while it waits for these.
INLINE void decode_streams(const struct matmul_args *a, sums16_fn *sums, prepare_fn *prepare, size_t bytes, bool mins,
                           int n)
{
    struct walk k = walk_of(a, n);
    struct rows16 w = walk_blocks(&k, bytes, QUARTERS);
    const struct prepared p = prepared_at(k.x.room, k.x.all, n);
    struct sums16 made[2];
    const struct sums16 *last = NULL;
    struct group g = {.w = &w};
    prepare_blocks(a, &p, prepare, n, k.x.all);
    for (int turn = 0; walk_step(&k); turn ^= 1) {
        if (k.read.at + QUARTERS > k.all)
            w = walk_blocks(&k, bytes, k.all - k.read.at);
        STAYS_IN_MEMORY(w);
        g.at = (size_t)k.read.at * bytes;
        g.on = walk_on(a, &k, bytes);
        take_block(&g, &p, n, k.read.block);
        sums(&g, true, n, &made[turn]);
        STAYS_IN_MEMORY(made);
        if (last)
            add_sums(a, &k, n, last, mins);
        last = &made[turn];
    }
    if (last)
        add_sums(a, &k, n, last, mins);
}

// More columns are served elsewhere where rows are read by streams (matmul_q8_in_place).
enum { STREAMS_COLUMNS_MAX = 5 };

INLINE void decode_256(const struct matmul_args *a, sums16_fn *sums, prepare_fn *prepare, size_t bytes, bool mins, int n)
{
    const int64_t blocks = a->k / 256;
    const bool fits = n <= STREAMS_COLUMNS_MAX && blocks <= ring_most(n, PREPARED_BYTES);
    if (fits && reads_streams(a->reading) && a->w_stride == (size_t)blocks * bytes)
        decode_streams(a, sums, prepare, bytes, mins, n);
    else
        decode_neighbours(a, sums, prepare, bytes, mins, n);
}

// ---- the functions

// clang-format off
DECODE(q2_k, UP_TO_4, decode_256(a, sums_q2_k, prepare_q2_k, 84, true, n))
DECODE(q3_k, UP_TO_4, decode_256(a, sums_q3_k, prepare_q3_k, 110, false, n))
DECODE(q4_k, UP_TO_7, decode_256(a, sums_q4_k, prepare_k4, 144, true, n))
DECODE(q5_k, UP_TO_7, decode_256(a, sums_q5_k, prepare_k4, 176, true, n))
DECODE(q6_k, UP_TO_7, decode_256(a, sums_q6_k, prepare_q6_k, 210, false, n))
DECODE(iq4_xs, UP_TO_4, decode_256(a, sums_iq4_xs, prepare_iq4_xs, 136, false, n))
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
