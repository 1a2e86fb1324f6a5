// Matmul of up to five columns by AVX-512, in place, of types with blocks of 32. A span of eight blocks takes the
// part of a block of 256 in in_place.h.
//
// The naive loop, for each row: for each span, S = 0; for each of its blocks S = fma(step * (w . q), d, S), with a
// minimum then S = fma(step * sum(q), m, S); D = fma(S, da, D). Every block has its own float scale, so its products
// must be added up before they are scaled. avx512/in_place.h describes how rows are read, four at a time. In addition:
//   - A register has 16 bytes of quants of four blocks, or 32 of two (Q8_0), of one row. Two rows are interleaved by
//     eight bytes (zip_8). So a 32-bit lane sums products of one row and one block only: half of the block's products,
//     with Q8_0 a fourth of them. Three operations add neighbouring lanes of two pairs of rows. Then each 128-bit
//     quarter of the register has the sums of four rows, of one block (with Q8_0 of half a block, and two quarters are
//     added). Activations are arranged in that order once per call.
//   - The headers of four blocks are in one cache line, or in the first 16 bytes of each block, and are extracted by
//     shuffles.
//   - Sums are stored to memory as floats, in the order in which the fma of four rows loads them. Before, they are
//     multiplied by the steps, a register at a time. Floats hold these products exactly. S is computed from them while
//     the next span is multiplied.
// avx512/matmul_q8.c chooses this up to the columns of matmul_q8_in_place_columns. One column of Q8_0 read by streams
// is passed on to avx512/one_column.c.
#include "kernels/cpu/avx512/in_place.h"

// Of a span; a part is what one cache line or one register holds.
enum { BLOCKS = 8, PARTS = 2, PART = BLOCKS / PARTS };

// A span of a column, prepared: the activations in the order of the weights, the values that sums start with, the
// steps (quarter b of a part is block b), and the sums of activations over 32 elements times their steps.
struct activations {
    __m512i q[8], start[4];
    __m512 steps[PARTS];
    float weighted[BLOCKS];
};

// A span of four rows whose sums are not added to D yet, one lane per row.
struct pending {
    _Alignas(64) __m128 dot[COLUMNS_MAX][BLOCKS], d[BLOCKS], m[BLOCKS];
    const struct activations *x[COLUMNS_MAX];
    float scale[COLUMNS_MAX];
};

struct kind {
    int bytes;             // of a span
    const struct shape *s; // layout of the nibbles; NULL: Q8_0
};

// ---- products

// The sums of a column with two pairs of rows, whose weights are w[0] and w[1], over `words` registers of activations
// from `from` on.
INLINE void dot_pairs(__m512i w[2][4], const struct activations *x, int from, int words, __m512i start, __m512i sum[2])
{
    sum[0] = sum[1] = start;
    UNROLL_FOR (int i = 0; i < words; i++) {
        const __m512i q = read_once(&x->q[from + i], 2); // used for both pairs
        UNROLL_FOR (int r = 0; r < 2; r++)
            sum[r] = _mm512_dpbusd_epi32(sum[r], w[r][i], q);
    }
}

// Stores the four rows' floats of four blocks; quarter b is block b.
INLINE void store_floats(__m128 to[PART], __m512 quarters)
{
    _mm512_storeu_ps((float *)to, quarters);
}

// Stores the sums of part p of column j, times their steps.
INLINE void store_sums(struct pending *t, int j, int p, __m512i sums)
{
    store_floats(t->dot[j] + PART * p, _mm512_mul_ps(_mm512_cvtepi32_ps(sums), t->x[j]->steps[p]));
}

// ---- nibbles

// Arranges activations: registers 4p .. 4p + 3 are blocks 4p .. 4p + 3, with elements 0-7, 8-15, 16-23 and 24-31 of
// each, each repeated.
INLINE void prepare_nibbles(const struct shape *s, const int8_t *q, struct activations *to)
{
    for (int p = 0; p < PARTS; p++, q += 32 * PART) {
        const __m512i low = load_4x16(q, q + 32, q + 64, q + 96), high = load_4x16(q + 16, q + 48, q + 80, q + 112);
        __m512i *q_of = to->q + 4 * p, start = _mm512_setzero_si512();
        zip_8(low, low, q_of);
        zip_8(high, high, q_of + 2);
        for (int i = 0; i < 4; i++)
            start = _mm512_add_epi32(start, offset_start(q_of[i], s->offset));
        to->start[p] = start;
    }
}

// The quants of four blocks, one per quarter. `line` has the first three blocks' quants (in types without fifth
// bits).
INLINE __m512i quants_of_line(const struct shape *s, __m512i line, const uint8_t *blocks)
{
    const long long all = 0x0101010101010101, first = s->quants * all, step = s->bytes * all;
    const __m512i in_order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i pick = _mm512_add_epi8(
        in_order, _mm512_set_epi64(0, 0, first + 2 * step, first + 2 * step, first + step, first + step, first, first));
    return _mm512_mask_broadcast_i32x4(_mm512_permutexvar_epi8(pick, line), 0xf000,
                                       load_128(blocks + 3 * s->bytes + s->quants));
}

// The float16 values at the head of each block, of two rows: words j of the lower half are the first value of block j
// of both rows, those of the upper half the second. (Exponents are single bytes; the byte after each is not used.)
INLINE __m512i heads_of_lines(const struct shape *s, const __m512i line[2])
{
#define HALVES(j, from) (long long)(0x4140010041400100 + ((j)*s->bytes + (from)) * 0x0101010101010101)
    const int m = MAX(s->m, 0);
    const __m512i pick = _mm512_setr_epi64(HALVES(0, 0), HALVES(1, 0), HALVES(2, 0), HALVES(3, 0), //
                                           HALVES(0, m), HALVES(1, m), HALVES(2, m), HALVES(3, m));
#undef HALVES
    return _mm512_permutex2var_epi8(line[0], pick, line[1]);
}

INLINE __m512i load_4_blocks(const struct shape *s, const uint8_t *block)
{
    return load_4x16(block, block + s->bytes, block + 2 * s->bytes, block + 3 * s->bytes);
}

// In each quarter, the first words of a block of two rows, and then their second words.
INLINE __m512i heads_of_blocks(const struct shape *s, const uint8_t *const blocks[2])
{
    return _mm512_unpacklo_epi32(load_4_blocks(s, blocks[0]), load_4_blocks(s, blocks[1]));
}

// The fifth bits of elements 8i .. 8i + 7 of two rows, as bytes of 16 or 0. A byte of eight such bits becomes the row
// of a bit matrix that makes bit 4, by which the bytes 1, 2, 4 .. 128 are multiplied.
INLINE __m512i fifth_bits(const struct shape *s, __m512i heads, int i)
{
    const int byte = s->fifth + i;
    const char at = (char)(byte / 4 * 8 + byte % 4), no = (char)0x80;
    const __m128i pick = _mm_setr_epi8(no, no, no, at, no, no, no, no, no, no, no, (char)(at + 4), no, no, no, no);
    const __m512i ones = _mm512_set1_epi64((long long)0x8040201008040201);
    return _mm512_gf2p8affine_epi64_epi8(ones, _mm512_shuffle_epi8(heads, _mm512_broadcast_i32x4(pick)), 0);
}

INLINE void unpack_nibbles(const struct shape *s, __m512i bytes, __m512i heads, int i, __m512i w[4])
{
    if (s->fifth >= 0) {
        w[i] = masked_or(bytes, 15, fifth_bits(s, heads, i));
        w[2 + i] = _mm512_or_si512(high_nibbles(bytes), fifth_bits(s, heads, 2 + i));
    } else {
        const __m512i values = values_of(s);
        w[i] = look_up(s, values, low_nibbles(bytes));
        w[2 + i] = look_up(s, values, high_nibbles(bytes));
    }
}

// Loads the unsigned weights of four blocks of two rows, in the order of prepare_nibbles. Returns their headers.
INLINE __m512i load_pair(const struct shape *s, const uint8_t *const blocks[2], __m512i w[4])
{
    __m512i line[2], bytes[2], zipped[2];
    UNROLL_FOR (int i = 0; i < 2; i++) {
        if (s->fifth < 0) {
            line[i] = load_512(blocks[i]);
            AFTER(line[i]); // otherwise gcc loads it for each use
            bytes[i] = quants_of_line(s, line[i], blocks[i]);
        } else {
            bytes[i] = load_4_blocks(s, blocks[i] + s->quants);
        }
    }
    const __m512i heads = s->fifth < 0 ? heads_of_lines(s, line) : heads_of_blocks(s, blocks);
    zip_8(bytes[0], bytes[1], zipped);
    UNROLL_FOR (int i = 0; i < 2; i++)
        unpack_nibbles(s, zipped[i], heads, i, w);
    return heads;
}

// Stores the scales and minima of four blocks from two pairs of headers. For the first `again` blocks it stores
// zeros.
INLINE void store_heads(const struct shape *s, const __m512i heads[2], int again, __m128 d[PART], __m128 m[PART])
{
    const __mmask16 of = (__mmask16)(0xffff << 4 * again);
    if (s->fifth >= 0) {
        const __m512i words = _mm512_unpacklo_epi64(heads[0], heads[1]);
        store_floats(d, _mm512_maskz_mov_ps(of, low_halves(words)));
        if (s->m >= 0)
            store_floats(m, _mm512_maskz_mov_ps(of, high_halves(words)));
        return;
    }
    const __m512i halves = _mm512_mask_blend_epi32(0xaaaa, heads[0], heads[1]);
    const __m256i first = _mm512_castsi512_si256(halves);
    const __m512 scales = s->power_of_two
                              ? powers_of(_mm512_and_si512(_mm512_cvtepu16_epi32(first), _mm512_set1_epi32(0xff)))
                              : _mm512_cvtph_ps(first);
    store_floats(d, _mm512_maskz_mov_ps(of, scales));
    if (s->m >= 0)
        store_floats(m, _mm512_maskz_mov_ps(of, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))));
}

// Multiplies the first `parts` (a compile-time constant) of a span. The first `again` of its blocks have been
// multiplied before.
INLINE void make_nibbles(const struct shape *s, const struct four *g, int parts, int again, int n, struct pending *t)
{
    const int bytes = PART * s->bytes;
    __m512i heads[PARTS][2];
    UNROLL_FOR (int p = 0; p < parts; p++) {
        __m512i w[2][4];
        UNROLL_FOR (int i = 0; i < 2; i++) {
            const uint8_t *const blocks[2] = {g->at[2 * i] + p * bytes, g->at[2 * i + 1] + p * bytes};
            heads[p][i] = load_pair(s, blocks, w[i]);
            AFTER(w[i][3]);
            prefetch_block(g, 2 * i, p * bytes, (p + 1) * bytes);
            prefetch_block(g, 2 * i + 1, p * bytes, (p + 1) * bytes);
        }
        UNROLL_FOR (int j = 0; j < n; j++) {
            __m512i sum[2];
            dot_pairs(w, t->x[j], 4 * p, 4, s->offset ? read_once(&t->x[j]->start[p], 2) : _mm512_setzero_si512(), sum);
            store_sums(t, j, p, reduce_pairs(sum[0], sum[1]));
        }
    }
    UNROLL_FOR (int p = 0; p < parts; p++)
        store_heads(s, heads[p], p ? 0 : again, t->d + PART * p, t->m + PART * p);
}

// ---- Q8_0

// Arranges activations: registers 2p and 2p + 1 are blocks 2p and 2p + 1; a quarter has 8 of their elements,
// repeated, and then the next 8.
INLINE void prepare_q8_0(const int8_t *q, struct activations *to)
{
    for (int p = 0; p < BLOCKS / 2; p++) {
        const __m512i two = load_512(q + 64 * p);
        zip_8(two, two, to->q + 2 * p);
        to->start[p] = _mm512_add_epi32(offset_start(to->q[2 * p], 128), offset_start(to->q[2 * p + 1], 128));
    }
}

// Loads two blocks each of two rows, at byte `from`, as unsigned weights.
INLINE void load_pair_q8_0(const uint8_t *const at[2], int from, __m512i w[4])
{
    __m512i two[2];
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const uint8_t *b = at[i] + from + 2;
        two[i] = _mm512_xor_si512(load_2x32(b, b + BYTES_Q8_0), _mm512_set1_epi8((char)0x80));
    }
    zip_8(two[0], two[1], w);
}

// Adds the halves of blocks, which are a quarter each, of two blocks in each register.
INLINE __m512i add_halves(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

INLINE void make_q8_0(const struct four *g, int parts, int again, int n, struct pending *t)
{
    __m512i half[COLUMNS_MAX][2];
    UNROLL_FOR (int p = 0; p < parts * PART / 2; p++) {
        const int from = 2 * BYTES_Q8_0 * p, to = from + 2 * BYTES_Q8_0;
        __m512i w[2][4];
        UNROLL_FOR (int i = 0; i < 2; i++) {
            load_pair_q8_0(g->at + 2 * i, from, w[i]);
            AFTER(w[i][1]);
            prefetch_block(g, 2 * i, from, to);
            prefetch_block(g, 2 * i + 1, from, to);
        }
        UNROLL_FOR (int j = 0; j < n; j++) {
            __m512i sum[2];
            dot_pairs(w, t->x[j], 2 * p, 2, read_once(&t->x[j]->start[p], 2), sum);
            half[j][p % 2] = reduce_pairs(sum[0], sum[1]);
            if (p % 2)
                store_sums(t, j, p / 2, add_halves(half[j][0], half[j][1]));
        }
    }
    UNROLL_FOR (int b = 0; b < parts * PART; b++)
        t->d[b] = b < again ? _mm_setzero_ps() : load_four_halves(g->at, (size_t)(BYTES_Q8_0 * b));
}

// ---- a span of four rows

INLINE bool is_whole(const struct matmul_args *a, int64_t span)
{
    return SPAN * (span + 1) <= a->k;
}

// The blocks of a row's last span, if it is not whole.
INLINE int blocks_left(const struct matmul_args *a)
{
    return (int)(a->k % SPAN / 32);
}

// The memory after a row may not be readable. So the last parts of a row end where it ends, and begin with so many
// blocks that have been multiplied before and are multiplied with zeros now.
INLINE int blocks_again(const struct matmul_args *a)
{
    return (BLOCKS - blocks_left(a)) % PART;
}

// Whether a row is too short to have such earlier blocks.
INLINE bool is_short(const struct matmul_args *a)
{
    return a->k < SPAN && blocks_again(a);
}

// The steps, and the sums times the steps. Zeros stand for the first `again` blocks.
INLINE void prepare_steps(const struct view *x, int again, struct activations *to)
{
    const __mmask8 of = (__mmask8)(0xff << again);
    const __m256i of_32 = _mm256_madd_epi16(load_256(x->sums), _mm256_set1_epi16(1));
    const __m256i steps = _mm256_maskz_expand_epi32(of, words_of_steps(x));
    const __m256i weighted = _mm256_mullo_epi32(_mm256_maskz_expand_epi32(of, of_32), steps);
    _mm256_storeu_ps(to->weighted, _mm256_cvtepi32_ps(weighted));
    to->steps[0] = _mm512_cvtepi32_ps(spread_words(_mm256_castsi256_si128(steps)));
    to->steps[1] = _mm512_cvtepi32_ps(spread_words(_mm256_extracti128_si256(steps, 1)));
}

INLINE void prepare_span(const struct matmul_args *a, const struct kind *k, int column, int64_t span, void *to)
{
    const struct view x = view_of(a, column, span);
    const int again = is_whole(a, span) ? 0 : blocks_again(a);
    struct activations *prepared = to;
    _Alignas(64) int8_t q[SPAN] = {0};
    memcpy(q + 32 * again, x.q, SPAN - 32 * (size_t)again);
    if (k->s)
        prepare_nibbles(k->s, q, prepared);
    else
        prepare_q8_0(q, prepared);
    prepare_steps(&x, again, prepared);
}

// Points `t` at span b of the part in each column.
INLINE void point_at_span(const struct matmul_args *a, const struct part *part, int n, int64_t b, struct pending *t)
{
    const struct activations *x = part->x;
    UNROLL_FOR (int j = 0; j < n; j++) {
        t->x[j] = x + j * part->n + b;
        t->scale[j] = block_scale(a, part, j, b);
    }
}

INLINE void make_parts(const struct kind *k, const struct four *g, int parts, int again, int n, struct pending *t)
{
    if (k->s)
        make_nibbles(k->s, g, parts, again, n, t);
    else
        make_q8_0(g, parts, again, n, t);
}

INLINE struct four four_back(const struct four *g, int bytes)
{
    struct four back = *g;
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        back.at[i] -= bytes;
    return back;
}

// Multiplies a row's last blocks, which are less than a span.
INLINE void make_last(const struct matmul_args *a, const struct kind *k, const struct four *g, int n, struct pending *t)
{
    const int again = blocks_again(a), bytes = k->bytes / BLOCKS;
    const struct four last = four_back(g, again * bytes);
    if (blocks_left(a) > PART)
        make_parts(k, &last, PARTS, again, n, t);
    else
        make_parts(k, &last, 1, again, n, t);
}

// Adds the first `parts` of a span to D.
INLINE void add_pending(const struct kind *k, const struct pending *t, int parts, int n, __m128 d[COLUMNS_MAX])
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        __m128 s = _mm_setzero_ps();
        UNROLL_FOR (int b = 0; b < parts * PART; b++) {
            s = _mm_fmadd_ps(t->dot[j][b], t->d[b], s);
            if (k->s && k->s->m >= 0)
                s = _mm_fmadd_ps(_mm_set1_ps(t->x[j]->weighted[b]), t->m[b], s);
        }
        d[j] = _mm_fmadd_ps(s, _mm_set1_ps(t->scale[j]), d[j]);
    }
}

// Adds the last span of a row, or of a part of it.
INLINE void add_last(const struct kind *k, const struct pending *t, int left, int n, __m128 d[COLUMNS_MAX])
{
    if (left && left <= PART)
        add_pending(k, t, 1, n, d);
    else
        add_pending(k, t, PARTS, n, d);
}

// The blocks of the part's last span, or 0 where it is whole.
INLINE int blocks_left_of(const struct matmul_args *a, const struct part *part)
{
    return is_whole(a, part->from + part->n - 1) ? 0 : blocks_left(a);
}

INLINE void add_spans(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, struct four g,
                      __m128 d[COLUMNS_MAX])
{
    const int left = blocks_left_of(a, part);
    const int64_t whole = part->n - (left > 0);
    struct pending pending[2];
    for (int64_t b = 0; b < whole; b++) {
        point_at_span(a, part, n, b, &pending[b % 2]);
        make_parts(k, &g, PARTS, 0, n, &pending[b % 2]);
        STAYS_IN_MEMORY(pending);
        if (b > 0)
            add_pending(k, &pending[(b - 1) % 2], PARTS, n, d);
        next_block(&g, k->bytes);
    }
    if (left) {
        point_at_span(a, part, n, whole, &pending[whole % 2]);
        make_last(a, k, &g, n, &pending[whole % 2]);
        STAYS_IN_MEMORY(pending);
        if (whole > 0)
            add_pending(k, &pending[(whole - 1) % 2], PARTS, n, d);
    }
    add_last(k, &pending[(part->n - 1) % 2], left, n, d);
}

INLINE void add_span(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, int64_t b,
                     struct sixteen *s)
{
    const int left = b == part->n - 1 ? blocks_left_of(a, part) : 0;
    struct pending pending[FOURS];
    KEEP_LOOP_FOR (int t = 0; t < FOURS; t++) {
        const struct four g = four_of(s, t, (size_t)((part->from + b) * k->bytes));
        point_at_span(a, part, n, b, &pending[t]);
        if (left)
            make_last(a, k, &g, n, &pending[t]);
        else
            make_parts(k, &g, PARTS, 0, n, &pending[t]);
    }
    STAYS_IN_MEMORY(pending);
    KEEP_LOOP_FOR (int t = 0; t < FOURS; t++)
        add_last(k, &pending[t], left, n, s->d[t]);
}

// Multiplies rows that are too short for this from copies, padded with zeros to a whole span.
static void in_place_short(const struct matmul_args *a, int span)
{
    enum { COPIES = 64 };
    const size_t bytes = dtype_row_bytes(a->type, a->k), all = (size_t)(COPIES * span);
    uint8_t *copies = (uint8_t *)a->scratch + SCRATCH_BYTES - all;
    float *y[COLUMNS_MAX];
    struct matmul_args some = *a;
    some.w = copies, some.w_stride = (size_t)span, some.k = SPAN, some.y = y, some.next = NULL;
    memset(copies, 0, all);
    for (int row = 0; row < a->n_rows; row += some.n_rows) {
        some.n_rows = MIN(COPIES, a->n_rows - row);
        for (int i = 0; i < some.n_rows; i++)
            memcpy(copies + i * span, (const uint8_t *)a->w + (size_t)(row + i) * a->w_stride, bytes);
        for (int j = 0; j < a->n_x; j++)
            y[j] = a->y[j] + row;
        ISA_FN(matmul_q8_in_place)[a->type](&some);
    }
}

INLINE void in_place_32(const struct matmul_args *a, const struct shape *s, int n)
{
    const struct kind k = {BLOCKS * (s ? s->bytes : BYTES_Q8_0), s};
    const struct block_adder adder = {k.bytes, sizeof(struct activations), prepare_span, add_spans, add_span};
    if (is_short(a))
        in_place_short(a, k.bytes);
    else if (n == 1 && !s && reads_streams(a->reading) && q8_blocks(a->k) <= ONE_Q8_0_MOST)
        ISA_FN(matmul_q8_one_q8_0)(a);
    else
        multiply_in_place(a, &k, &adder, n);
}

// ---- the entry points

// clang-format off
IN_PLACE(q4_0, UP_TO_4, in_place_32(a, &shape_q4_0, n))
IN_PLACE(q4_1, UP_TO_4, in_place_32(a, &shape_q4_1, n))
IN_PLACE(q5_0, UP_TO_5, in_place_32(a, &shape_q5_0, n))
IN_PLACE(q5_1, UP_TO_4, in_place_32(a, &shape_q5_1, n))
IN_PLACE(q8_0, UP_TO_4, in_place_32(a, NULL, n))
IN_PLACE(iq4_nl, UP_TO_5, in_place_32(a, &shape_iq4_nl, n))
IN_PLACE(mxfp4, UP_TO_4, in_place_32(a, &shape_mxfp4, n))
// clang-format on
