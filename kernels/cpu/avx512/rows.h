// What the kernels of few columns and those for 16 rows at a time share: blocks of columns, prefetches, sums across
// lanes, and the scales and headers of blocks, in which lane r of a register belongs to row r.
//
// Private to kernels/cpu/avx512/ and kernels/cpu/amx/. All functions are inlined; nothing is read outside of the
// blocks that are passed.
#ifndef QUERN_AVX512_ROWS_H
#define QUERN_AVX512_ROWS_H

#include "kernels/cpu/avx512/matmul_q8.h"

// ---- columns

// A block of 256 elements of a column: the quants, their sums over runs of 16, and their steps over runs of 32.
struct view {
    const int8_t *q;
    const int16_t *sums;
    const uint8_t *steps;
};

INLINE struct view view_of(const struct matmul_args *a, int column, int64_t block)
{
    const void *x = a->x[column];
    return (struct view){q8_quants(x) + SPAN * block, q8_sums(x, a->k) + Q8_SUMS * block,
                         q8_steps(x, a->k) + Q8_RUNS * block};
}

// The eight steps of a block, as bytes and as words.
INLINE __m128i bytes_of_steps(const struct view *x)
{
    return _mm_loadl_epi64((const __m128i *)x->steps);
}

INLINE __m256i words_of_steps(const struct view *x)
{
    return _mm256_cvtepu8_epi32(bytes_of_steps(x));
}

// ---- prefetches

// Distances of prefetches in bytes: beyond a group of rows, where bytes are prefetched in the order of memory; and in
// a stream.
enum { PREFETCH_BEYOND_GROUP = 4096, PREFETCH_STREAM_BYTES = 4096 };

// The bytes that are prefetched while 16 rows are multiplied. Each row, while it is read, prefetches a share, as many
// bytes as it has itself: either from the row at its place in a later group, or simply the next bytes in memory.
struct row_prefetch {
    const uint8_t *at;
    size_t row; // bytes from one row's share to the next
};

// Moves bytes that were prefetched before, and are read soon, into the L1 cache.
INLINE void prefetch_near(const uint8_t *at, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

// Prefetches one row's share and moves on to the next one. The empty instructions keep the compiler from collecting
// the prefetches of several rows in one place, where the core would have to wait for them.
INLINE void prefetch_row(struct row_prefetch *prefetch, int bytes)
{
    __asm__ volatile("");
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)prefetch->at + i, _MM_HINT_T1);
    __asm__ volatile("");
    prefetch->at += prefetch->row;
}

// The address of row `row` of a->w, only to prefetch it. Past the last group these are the caller's next rows, or,
// where those are not known, rows that are in the cache.
INLINE const uint8_t *row_to_prefetch(const struct matmul_args *a, int row)
{
    const int end = (a->n_rows + GROUP - 1) / GROUP * GROUP;
    if (row >= end && !a->next)
        return a->w;
    return row < end ? (const uint8_t *)a->w + (size_t)row * a->w_stride
                     : (const uint8_t *)a->next + (size_t)(row - end) * a->next_stride;
}

// Each row prefetches its own bytes `distance` spans further on, past its end those of the row that is 16 below.
INLINE struct row_prefetch prefetch_by_row(const struct matmul_args *a, int first, int64_t span, int64_t spans,
                                           size_t bytes, int64_t distance)
{
    const int64_t to = span + distance;
    return (struct row_prefetch){row_to_prefetch(a, first + GROUP * (int)(to / spans)) + (size_t)(to % spans) * bytes,
                                 a->w_stride};
}

// Prefetches what is a group and PREFETCH_BEYOND_GROUP bytes further on in memory, `share` bytes per row and span. (A
// group alone is too late for rows of 768; two are too much for rows of 5632.)
INLINE struct row_prefetch prefetch_in_order(const struct matmul_args *a, int first, int64_t span, size_t bytes,
                                             size_t share)
{
    const size_t end = (size_t)(a->n_rows + GROUP - 1) / GROUP * GROUP * a->w_stride;
    const size_t to = (size_t)(first + GROUP) * a->w_stride + (size_t)span * GROUP * bytes + PREFETCH_BEYOND_GROUP;
    const uint8_t *w = a->w, *at = to < end ? w + to : a->next ? (const uint8_t *)a->next + (to - end) : w;
    return (struct row_prefetch){at, share};
}

// ---- sums across lanes

// In each quarter, word i of the result is the sum of the four words of that quarter in v[i].
INLINE __m512i reduce_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// In each quarter, words 0 and 1 of `first` belong to one row, words 2 and 3 to another, and so in `second`. The
// result has the sums of the four rows in each quarter.
INLINE __m512i reduce_pairs(__m512i first, __m512i second)
{
    const __m512 a = _mm512_castsi512_ps(first), b = _mm512_castsi512_ps(second);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
}

// Word i of quarter t is the sum over all quarters of word i of v[t].
INLINE __m512i reduce_across_quarters(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// ---- scales of 16 rows, a lane a row

// Loads two bytes through a general register; otherwise compilers gather 16 such loads with slow inserts.
INLINE uint16_t load_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    uint32_t v = h;
    __asm__("" : "+r"(v));
    return (uint16_t)v;
}

// The float16 at byte `at` of each row.
INLINE __m512 load_halves(const struct rows16 *g, size_t at)
{
    uint16_t h[GROUP];
    for (int r = 0; r < GROUP; r++)
        h[r] = load_half(g->at[r] + at);
    return _mm512_cvtph_ps(load_256(h));
}

// The low, or the high, halves of the words, which are float16.
INLINE __m512 low_halves(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

INLINE __m512 high_halves(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
}

// ---- types with blocks of 32: eight consecutive blocks are handled together

// The layout of a block of nibbles; the low nibbles are elements 0-15.
struct shape {
    int bytes;            // of the block
    int m;                // byte of its minimum, -1: none; its scale is at byte 0
    int fifth;            // byte of its 32 fifth bits, -1: none
    int quants;           // byte of its 16 bytes of nibbles
    int offset;           // added to make weights unsigned
    const int8_t *values; // the values of nibbles, NULL: the nibble itself
    bool power_of_two;    // the scale is a byte, the exponent of half of it
};
static const struct shape shape_q4_0 = {.bytes = 18, .m = -1, .fifth = -1, .quants = 2, .offset = 8};
static const struct shape shape_q4_1 = {.bytes = 20, .m = 2, .fifth = -1, .quants = 4};
static const struct shape shape_q5_0 = {.bytes = 22, .m = -1, .fifth = 2, .quants = 6, .offset = 16};
static const struct shape shape_q5_1 = {.bytes = 24, .m = 2, .fifth = 4, .quants = 8};
static const struct shape shape_iq4_nl = {
    .bytes = 18, .m = -1, .fifth = -1, .quants = 2, .offset = 128, .values = iq4_values};
static const struct shape shape_mxfp4 = {
    .bytes = 17, .m = -1, .fifth = -1, .quants = 1, .offset = 12, .values = fp4_values, .power_of_two = true};

// The table of the nibbles' values plus the offset, for vpshufb.
INLINE __m512i values_of(const struct shape *s)
{
    __m128i values = s->values ? load_128(s->values) : _mm_setzero_si128();
    return _mm512_add_epi8(_mm512_broadcast_i32x4(values), _mm512_set1_epi8((char)s->offset));
}

// The values of nibbles. The caller adds fifth bits.
INLINE __m512i look_up(const struct shape *s, __m512i values, __m512i nibbles)
{
    return s->values ? _mm512_shuffle_epi8(values, nibbles) : nibbles;
}

// Bits 4i .. 4i + 3 of each word, each as bit 4 of one of its four bytes.
INLINE __m512i spread_fifth_bits(__m512i bits, int i)
{
    const __m512i each = _mm512_set1_epi32(i % 2 ? (int)0x80402010u : 0x08040201);
    const __m512i base = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i byte = _mm512_shuffle_epi8(bits, _mm512_add_epi8(base, _mm512_set1_epi8((char)(i / 2))));
    return _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(byte, each), 16);
}

// The two bytes at `field` of each of eight blocks, all of which (144, 160, 176 or 192 bytes) must be readable.
INLINE __m128i heads_of_nibbles(const uint8_t *b, int bytes, int field)
{
#define AT(j) (char)((j)*bytes + field), (char)((j)*bytes + field + 1)
#define TAIL(j) (char)((j)*bytes - tail + field), (char)((j)*bytes - tail + field + 1)
    const int tail = 8 * bytes - 64;
    const __m128i low = _mm_setr_epi8(AT(0), AT(1), AT(2), AT(0), AT(1), AT(2), 0, 0, 0, 0);
    const __m128i high = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TAIL(6), TAIL(7));
    __m512i v = _mm512_maskz_permutexvar_epi8(0x003f, _mm512_castsi128_si512(low), load_512(b));
    v = _mm512_mask_permutexvar_epi8(v, 0x0fc0, _mm512_castsi128_si512(low), load_512(b + 3 * bytes));
    v = _mm512_mask_permutexvar_epi8(v, 0xf000, _mm512_castsi128_si512(high), load_512(b + tail));
#undef AT
#undef TAIL
    return _mm512_castsi512_si128(v);
}

// The same for Q8_0.
INLINE __m128i heads_of_q8_0(const uint8_t *b)
{
    const __m512i pick = _mm512_castsi128_si512(_mm_setr_epi8(0, 1, 34, 35, 0, 1, 34, 35, 0, 1, 34, 35, 0, 1, 34, 35));
    __m512i v = _mm512_maskz_permutexvar_epi8(0x000f, pick, load_512(b));
    v = _mm512_mask_permutexvar_epi8(v, 0x00f0, pick, load_512(b + 68));
    v = _mm512_mask_permutexvar_epi8(v, 0x0f00, pick, load_512(b + 136));
    v = _mm512_mask_permutexvar_epi8(v, 0xf000, pick, load_512(b + 204));
    return _mm512_castsi512_si128(v);
}

// The first bytes of eight blocks of 17 bytes, as 16-bit numbers. All of 136 bytes must be readable.
INLINE __m128i heads_of_mxfp4(const uint8_t *b)
{
    const __m512i pick = _mm512_castsi128_si512(_mm_setr_epi8(0, 0, 17, 0, 34, 0, 51, 0, 0, 0, 17, 0, 34, 0, 51, 0));
    __m512i v = _mm512_maskz_permutexvar_epi8(0x0055, pick, load_512(b));
    v = _mm512_mask_permutexvar_epi8(v, 0x5500, pick, load_512(b + 68));
    return _mm512_castsi512_si128(v);
}

// Words of two 16-bit numbers each from the headers of eight blocks: lane r of words[i] has those of blocks 2i and 2i
// + 1 of row r.
INLINE void load_head_words(const struct rows16 *g, size_t at, int bytes, int field, __m512i words[4])
{
    struct rows16 packed;
    __m128i row[GROUP];
    UNROLL_FOR (int r = 0; r < GROUP; r++) {
        const uint8_t *b = g->at[r] + at;
        row[r] = bytes == 34 ? heads_of_q8_0(b) : bytes == 17 ? heads_of_mxfp4(b) : heads_of_nibbles(b, bytes, field);
        packed.at[r] = (const uint8_t *)&row[r];
    }
    load_words_16(&packed, 0, words);
}

// Lane r of v[j] is the float16 at `field` of block j of row r. Fewer than eight blocks are loaded one by one.
INLINE void load_heads(const struct rows16 *g, const size_t offset[8], int n, int bytes, int field, __m512 v[8])
{
    if (n < 8) {
        for (int j = 0; j < n; j++)
            v[j] = load_halves(g, offset[j] + (size_t)field);
        return;
    }
    __m512i words[4];
    load_head_words(g, offset[0], bytes, field, words);
    for (int i = 0; i < 4; i++)
        v[2 * i] = low_halves(words[i]), v[2 * i + 1] = high_halves(words[i]);
}

// 2^(e - 128); for e < 2 the result is subnormal.
INLINE __m512 powers_of(__m512i e)
{
    __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __mmask16 tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(bits, tiny, _mm512_set1_epi32(0x00200000), e));
}

// The powers of two of the byte at the head of each block.
INLINE void load_powers(const struct rows16 *g, const size_t offset[8], int n, int bytes, __m512 v[8])
{
    __m512i words[4];
    uint32_t e[GROUP];
    if (n == 8) {
        load_head_words(g, offset[0], bytes, 0, words);
        for (int i = 0; i < 4; i++) {
            v[2 * i] = powers_of(_mm512_and_si512(words[i], _mm512_set1_epi32(0xff)));
            v[2 * i + 1] = powers_of(_mm512_srli_epi32(words[i], 16));
        }
        return;
    }
    for (int j = 0; j < n; j++) {
        for (int r = 0; r < GROUP; r++)
            e[r] = g->at[r][offset[j]];
        v[j] = powers_of(load_512(e));
    }
}

INLINE void load_scales(const struct rows16 *g, const struct shape *s, const size_t offset[8], int n, __m512 d[8],
                        __m512 m[8])
{
    if (s->power_of_two)
        load_powers(g, offset, n, s->bytes, d);
    else
        load_heads(g, offset, n, s->bytes, 0, d);
    if (s->m >= 0)
        load_heads(g, offset, n, s->bytes, s->m, m);
}

// ---- types with blocks of 256

// The unpacked header of Q4_K and Q5_K for 16 rows. Byte j of lane r of scale[h] is scale 4h + j of row r; `min` has
// the same order.
struct header_k4 {
    __m512i scale[2], min[2];
    __m512 d, m;
};

INLINE struct header_k4 load_header_k4(const struct rows16 *g, size_t at)
{
    const __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(0x30);
    __m512i t[4]; // d and dmin; then bytes 0-3, 4-7 and 8-11 of the packed scales
    load_words_16(g, at, t);
    struct header_k4 h = {.d = low_halves(t[0]), .m = high_halves(t[0])};
    h.scale[0] = _mm512_and_si512(t[1], six);
    h.min[0] = _mm512_and_si512(t[2], six);
    // The other scales: a nibble of bytes 8-11, below the two top bits of bytes 0-3 or 4-7, which are moved to bits 4
    // and 5.
    __m512i scale_top = _mm512_and_si512(_mm512_srli_epi32(t[1], 2), top);
    __m512i min_top = _mm512_and_si512(_mm512_srli_epi32(t[2], 2), top);
    h.scale[1] = _mm512_or_si512(_mm512_and_si512(t[3], four), scale_top);
    h.min[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(t[3], 4), four), min_top);
    return h;
}

// The sixteen signed scales of Q3_K: byte j of lane r of scale[i] is scale 4i + j of row r.
INLINE void load_scales_q3_k(const struct rows16 *g, size_t at, __m512i scale[4])
{
    const __m512i four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(0x30), centre = _mm512_set1_epi8(32);
    // T[1] and t[2]: nibbles of eight scales each; t[3]: pairs of upper bits; t[0] is not part of the scales.
    __m512i t[4];
    load_words_16(g, at + 92, t);
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_and_si512(i < 2 ? t[1 + i] : _mm512_srli_epi32(t[i - 1], 4), four);
        __m512i high = i < 2 ? _mm512_slli_epi32(t[3], 4 - 2 * i) : _mm512_srli_epi32(t[3], 2 * i - 4);
        scale[i] = _mm512_sub_epi8(_mm512_ternarylogic_epi64(low, high, top, 0xf8), centre);
    }
}

// The eight signed scales of IQ4_XS: byte j of lane r of scale[h] is scale 4h + j of row r. Returns d.
INLINE __m512 load_scales_iq4_xs(const struct rows16 *g, size_t at, __m512i scale[2])
{
    __m512i t[4]; // d and the pairs of upper bits; the nibbles; quants
    load_words_16(g, at, t);
    for (int h = 0; h < 2; h++) {
        __m512i pairs = _mm512_and_si512(_mm512_srli_epi32(t[0], 16 + 8 * h), _mm512_set1_epi32(0xff));
        __m512i nibbles = _mm512_and_si512(_mm512_srli_epi32(t[1], 16 * h), _mm512_set1_epi32(0xffff));
        // Moves four nibbles of 16 bits to four bytes, and four pairs of 8 bits to bits 4 and 5 of four bytes.
        __m512i low = _mm512_or_si512(nibbles, _mm512_slli_epi32(nibbles, 8));
        low = _mm512_and_si512(low, _mm512_set1_epi32(0x00ff00ff));
        low = _mm512_and_si512(_mm512_or_si512(low, _mm512_slli_epi32(low, 4)), _mm512_set1_epi8(15));
        __m512i high = _mm512_or_si512(_mm512_slli_epi32(pairs, 4), _mm512_slli_epi32(pairs, 10));
        high = _mm512_ternarylogic_epi64(_mm512_and_si512(high, _mm512_set1_epi32(0x00003030)),
                                         _mm512_or_si512(_mm512_slli_epi32(pairs, 16), _mm512_slli_epi32(pairs, 22)),
                                         _mm512_set1_epi32(0x30300000), 0xf8);
        scale[h] = _mm512_sub_epi8(_mm512_or_si512(low, high), _mm512_set1_epi8(32));
    }
    return low_halves(t[0]);
}

#endif
