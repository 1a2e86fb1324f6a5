// Up to four columns, in place, of types with blocks of 32: eight of them go together, or what a row ends with.
//
// As matmul_q8_avx512_decode.c has it, 16 rows go together; each quarter or half of a register is another block. One column
// that is read by streams has a file of its own, matmul_q8_avx512_one_32.c.
#include "kernels/cpu/matmul_q8_avx512_decode_32.h"

// Blocks that are not there any more are read from the last one that is; their dots are not used.
INLINE void block_offsets(size_t at, int n, size_t bytes, size_t offset[8])
{
    for (int j = 0; j < 8; j++)
        offset[j] = at + (size_t)MIN(j, n - 1) * bytes;
}

// Q8_0, two blocks a register, rows 4t .. 4t + 3. Weights + 128 are unsigned: a lane sums 4 * 128 * 127 in magnitude.
INLINE void dots_rows_q8_0(const struct rows16 *g, const size_t offset[2], int t, struct ahead *ask,
                           const __m512i q[COLUMNS_MAX], const __m512i start[COLUMNS_MAX], int n,
                           __m512i v[COLUMNS_MAX][4])
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
        if (n == 1) { // sums stay in registers
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

// Of four blocks, a quarter each, the fifth bits of elements `first` .. `first` + 15, as bytes of 16 or 0. `heads` are
// the first 16 bytes of each block. A byte of eight such bits becomes the row that makes bit 4 in a matrix of bits, and
// the bytes 1, 2, 4 .. 128 are multiplied with it.
INLINE __m512i fifth_bits(__m512i heads, int fifth, int first)
{
    const char at = (char)(fifth + first / 8), no = (char)0x80;
    const __m128i pick = _mm_setr_epi8(no, no, no, at, no, no, no, no, no, no, no, (char)(at + 1), no, no, no, no);
    const __m512i ones = _mm512_set1_epi64((long long)0x8040201008040201);
    return _mm512_gf2p8affine_epi64_epi8(ones, _mm512_shuffle_epi8(heads, _mm512_broadcast_i32x4(pick)), 0);
}

// ---- four blocks that follow each other
//
// Of types without fifth bits (17 to 20 bytes a block) the heads of all four and the quants of three lie in one line of 64
// bytes, and are picked out of it. With fifth bits a line holds less, and the heads are read for these bits anyway.

INLINE bool picked_from_line(const struct shape *s)
{
    return s->fifth < 0;
}

// The heads of 16 rows, as they are read. Row 4t + i: of two bytes a block, in quarter t of of[i % 2], half i / 2; of a word
// a block (what is behind a scale may be no minimum), quarter t of of[i].
struct heads {
    __m512i of[4];
};

INLINE bool heads_are_words(const struct shape *s)
{
    return s->m >= 0 || s->fifth >= 0;
}

// The byte behind an exponent is none of its own.
INLINE void take_halves(struct heads *h, const struct shape *s, __m512i line, int t, int i)
{
    const __m512i pick = _mm512_set1_epi64(0x0100010001000100 + s->bytes * 0x0303020201010000);
    const __mmask64 own = s->power_of_two ? 0x55 : 0xff;
    h->of[i % 2] = _mm512_mask_permutexvar_epi8(h->of[i % 2], own << 8 * (i / 2) << 16 * t, pick, line);
}

INLINE void take_words(struct heads *h, const struct shape *s, __m512i line, int t, int i)
{
    const long long word = 0x0302010003020100;
    const long long first = word + s->bytes * 0x0101010100000000, last = word + s->bytes * 0x0303030302020202;
    const __m512i pick = _mm512_set4_epi64(last, first, last, first);
    h->of[i] = _mm512_mask_permutexvar_epi8(h->of[i], (__mmask64)0xffff << 16 * t, pick, line);
}

// Of four blocks, a quarter each.
INLINE void take_first_words(struct heads *h, __m512i blocks, int t, int i)
{
    const __m512i pick = _mm512_set4_epi32(12, 8, 4, 0);
    h->of[i] = _mm512_mask_permutexvar_epi32(h->of[i], (__mmask16)(15 << 4 * t), pick, blocks);
}

// Of blocks j and j + 1, lane by lane: the first in the lower half.
INLINE __m512i halves_of_two(const struct heads *h, int j)
{
    const __m512i rows = _mm512_broadcast_i64x4(
        _mm256_setr_epi16(0, 32, 4, 36, 8, 40, 12, 44, 16, 48, 20, 52, 24, 56, 28, 60));
    const __m512i blocks = _mm512_inserti64x4(_mm512_set1_epi16((short)j), _mm256_set1_epi16((short)(j + 1)), 1);
    return _mm512_permutex2var_epi16(h->of[0], _mm512_add_epi16(rows, blocks), h->of[1]);
}

INLINE __m512 scale_of_halves(const struct shape *s, __m256i halves)
{
    return s->power_of_two ? powers_of(_mm512_cvtepu16_epi32(halves)) : _mm512_cvtph_ps(halves);
}

// Lane r of d[j] is the scale of block j of row r, of m[j] its minimum.
INLINE void scales_of_heads(const struct heads *h, const struct shape *s, __m512 d[4], __m512 m[4])
{
    if (!heads_are_words(s)) {
        for (int j = 0; j < 4; j += 2) {
            const __m512i two = halves_of_two(h, j);
            d[j] = scale_of_halves(s, _mm512_castsi512_si256(two));
            d[j + 1] = scale_of_halves(s, _mm512_extracti64x4_epi64(two, 1));
        }
        return;
    }
    __m512i words[4];
    transpose_words_16(h->of, words);
    for (int j = 0; j < 4; j++)
        d[j] = low_halves(words[j]), m[j] = high_halves(words[j]);
}

// The quants of the blocks from `p` on, whose first 64 bytes are `line`, a quarter each.
INLINE __m512i quants_of_line(const struct shape *s, __m512i line, const uint8_t *p)
{
    const long long all = 0x0101010101010101, first = s->quants * all, step = s->bytes * all;
    const __m512i in_order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i pick = _mm512_add_epi8(
        in_order, _mm512_set_epi64(0, 0, first + 2 * step, first + 2 * step, first + step, first + step, first, first));
    return _mm512_inserti32x4(_mm512_permutexvar_epi8(pick, line), load_128(p + 3 * s->bytes + s->quants), 3);
}

INLINE __m512i load_4_blocks(const uint8_t *row, const size_t offset[4])
{
    return load_4x16(row + offset[0], row + offset[1], row + offset[2], row + offset[3]);
}

INLINE __m512i take_line(const uint8_t *p, const struct shape *s, struct heads *h, int t, int i)
{
    const __m512i line = load_512(p);
    if (heads_are_words(s))
        take_words(h, s, line, t, i);
    else
        take_halves(h, s, line, t, i);
    return quants_of_line(s, line, p);
}

// Unsigned weights of four blocks of row 4t + i, a quarter each, and their heads, unless blocks of a type without fifth bits
// do not follow each other.
INLINE struct nibbles split_blocks(const uint8_t *row, const size_t offset[4], bool follow, const struct shape *s,
                                   __m512i values, struct heads *h, int t, int i)
{
    struct nibbles n = split_nibbles(follow && picked_from_line(s) ? take_line(row + offset[0], s, h, t, i)
                                                                   : load_4_blocks(row + s->quants, offset));
    n.low = look_up(s, values, n.low);
    n.high = look_up(s, values, n.high);
    if (s->fifth >= 0) {
        const __m512i blocks = load_4_blocks(row, offset);
        take_first_words(h, blocks, t, i);
        n.low = _mm512_or_si512(n.low, fifth_bits(blocks, s->fifth, 0));
        n.high = _mm512_or_si512(n.high, fifth_bits(blocks, s->fifth, 16));
    }
    return n;
}

// Sums of four blocks, a quarter of v[j][t] each, for rows 4t ..; start[j] is what column j's begin with.
INLINE void dots_four_blocks(const struct rows16 *g, const size_t offset[4], bool follow, struct ahead ask,
                             const struct nibbles q[COLUMNS_MAX], const __m512i start[COLUMNS_MAX], int n,
                             const struct shape *s, __m512i v[COLUMNS_MAX][4], struct heads *h)
{
    const __m512i values = values_of(s);
    KEEP_LOOP
    for (int t = 0; t < 4; t++) {
        __m512i u[COLUMNS_MAX][4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            struct nibbles w = split_blocks(g->at[4 * t + i], offset, follow, s, values, h, t, i);
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
                         const struct view *x, int n, const struct shape *s, __m512i dot[COLUMNS_MAX][8], __m512 d[8],
                         __m512 m[8])
{
    KEEP_LOOP
    for (int p = 0; 4 * p < blocks; p++) {
        struct nibbles q[COLUMNS_MAX];
        __m512i start[COLUMNS_MAX], v[COLUMNS_MAX][4];
        const struct ahead ask = ahead_from(ahead, 4 * s->bytes * p);
        UNROLL
        for (int j = 0; j < n; j++) {
            q[j] = load_4_activations(x[j].q + 128 * p);
            start[j] = _mm512_add_epi32(offset_start(q[j].low, s->offset), offset_start(q[j].high, s->offset));
        }
        struct heads h = {{{0}}};
        const bool follow = 4 * p + 4 <= blocks;
        if (follow)
            dots_four_blocks(g, offset + 4 * p, true, ask, q, start, n, s, v, &h);
        else
            dots_four_blocks(g, offset + 4 * p, false, ask, q, start, n, s, v, &h);
        if (follow || !picked_from_line(s))
            scales_of_heads(&h, s, d + 4 * p, m + 4 * p);
        else
            load_scales(g, s, offset + 4 * p, blocks - 4 * p, d + 4 * p, m + 4 * p);
        UNROLL
        for (int j = 0; j < n; j++)
            part_quarters(v[j], dot[j] + 4 * p);
    }
}

// The sums S of 16 rows over `blocks` <= 8 blocks for each column: only these are multiplied, by twos or fours. Q8_0
// has no shape of nibbles: NULL.
INLINE void sums_32(const struct rows16 *g, const struct shape *s, size_t at, const struct ahead *ahead, int blocks,
                    const struct view *x, int n, __m512 sum[COLUMNS_MAX])
{
    size_t offset[8];
    __m512i dot[COLUMNS_MAX][8];
    __m512 d[8], m[8];
    block_offsets(at, blocks, s ? (size_t)s->bytes : 34, offset);
    if (s) {
        dots_nibbles(g, offset, blocks, ahead, x, n, s, dot, d, m);
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

// ---- all rows

// n columns, known to the compiler: eight blocks at a time, or what a row ends with.
INLINE void decode_rows(const struct matmul_args *a, const struct shape *s, int n)
{
    const size_t block = s ? (size_t)s->bytes : 34, bytes = 8 * block;
    const int64_t spans = q8_blocks(a->k);
    const struct row_cut cut = row_cut_neighbours(a->n_rows, GROUP);
    for (int group = 0; group < cut.groups; group++) {
        const int first = group * GROUP;
        struct rows16 g = rows_of_cut(a, &cut, group);
        __m512 d[COLUMNS_MAX], sum[COLUMNS_MAX];
        UNROLL
        for (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t span = 0; span < spans; span++) {
            struct ahead ahead = ahead_of(a, first, span, bytes, s ? 4 * block : 2 * block, s != NULL);
            struct view x[COLUMNS_MAX];
            int blocks = blocks_in_span(a, span);
            struct ahead whole = ahead;
            // A row's last blocks ask for a whole span of another.
            for (int r = 0; blocks < 8 && ahead.part == 1 && r < GROUP; r++)
                prefetch_row(&whole, (int)bytes);
            UNROLL
            for (int j = 0; j < n; j++)
                x[j] = view_of(a, j, span);
            sums_32(&g, s, (size_t)span * bytes, &ahead, blocks, x, n, sum);
            UNROLL
            for (int j = 0; j < n; j++)
                d[j] = _mm512_fmadd_ps(sum[j], _mm512_set1_ps(q8_scales(a->x[j], a->k)[span]), d[j]);
        }
        store(a, first, n, d);
    }
}

// `one` is for one column that is read by streams.
INLINE void decode_32(const struct matmul_args *a, const struct shape *s, matmul_fn *one, int n)
{
    if (n == 1 && reads_streams(a->reading) && (s || q8_blocks(a->k) <= ONE_Q8_0_MOST))
        one(a);
    else
        decode_rows(a, s, n);
}

// ---- the functions

// clang-format off
DECODE(q4_0, UP_TO_4, decode_32(a, &shape_q4_0, ISA_FN(matmul_q8_one_q4_0), n))
DECODE(q4_1, UP_TO_4, decode_32(a, &shape_q4_1, ISA_FN(matmul_q8_one_q4_1), n))
DECODE(q5_0, UP_TO_4, decode_32(a, &shape_q5_0, ISA_FN(matmul_q8_one_q5_0), n))
DECODE(q5_1, UP_TO_4, decode_32(a, &shape_q5_1, ISA_FN(matmul_q8_one_q5_1), n))
DECODE(q8_0, UP_TO_4, decode_32(a, NULL, ISA_FN(matmul_q8_one_q8_0), n))
DECODE(iq4_nl, UP_TO_4, decode_32(a, &shape_iq4_nl, ISA_FN(matmul_q8_one_iq4_nl), n))
DECODE(mxfp4, UP_TO_4, decode_32(a, &shape_mxfp4, ISA_FN(matmul_q8_one_mxfp4), n))
// clang-format on
