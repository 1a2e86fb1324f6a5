// What the parts of the AVX2 8-bit matmul share: the panel into which blocks are unpacked, lane r of a register for row
// r, and the reading of eight rows at once.
//
// Private to matmul_q8_avx2*.c. A panel lives in the caller's scratch. Nothing is read outside of the blocks named.
#ifndef QUERN_AVX2_MATMUL_Q8_H
#define QUERN_AVX2_MATMUL_Q8_H

#include <immintrin.h>

#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

enum {
    GROUP = 8,        // rows that share a register, a lane a row
    SPAN = 256,       // elements of k that a panel holds
    WORDS = SPAN / 4, // words of four of them
    BLOCKS = SPAN / 32,
};

// A span of eight rows, unpacked: lane r of every register belongs to row r. A type fills what its tiles read.
struct panel {
    __m256i w[WORDS];            // four bytes a lane: w + offset, unsigned; or w itself, of types with signed bytes
    __m256i scale[16];           // of each sub-block: int16 pairs (scale, scale); with AVX-VNNI int32
    __m256i min[8];              // int16 pairs, of two sub-blocks
    __m256 d[BLOCKS], m[BLOCKS]; // of the block of 256, or of its blocks of 32
};

// Eight rows' bytes from some place on. Where a matrix ends within a group the last row stands in for those that are
// not there: what is computed for them is not stored.
struct rows8 {
    const uint8_t *at[GROUP];
    bool fetches; // asks for the bytes from `ahead` on while these are read
    const uint8_t *ahead;
};

// How a type multiplies. Its tiles and its unpacking are compiled for it.
struct form {
    int run;    // words whose products are added up before they are scaled; 0: weights are signed bytes, see add_signed
    int scaled; // words that share a scale, in blocks of 256; 0: blocks of 32
    int offset; // of the bytes in the panel
    int mins;   // words that share a minimum; 0: none
};

// What is to be known of a column in a span.
struct column {
    const int8_t *q;
    float da;
    int32_t start[16]; // of each run, what takes the offset off: int16 pairs for its two sums; with AVX-VNNI int32
    int32_t pairs[8];  // int16 pairs of sums of q, as `min` wants them
    float sums[8];     // of q, over 32
};

bool ISA_FN(matmul_q8_fits_in_place)(const struct matmul_args *a); // few columns, and their spans in the scratch
void ISA_FN(matmul_q8_in_place)(const struct matmul_args *a);
void ISA_FN(matmul_q8_panel)(const struct matmul_args *a); // any number
void ISA_FN(matmul_q8_q1_0)(const struct matmul_args *a);  // any number, of types with runs
void ISA_FN(matmul_q8_q2_0)(const struct matmul_args *a);
void ISA_FN(matmul_q8_nvfp4)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq1_s)(const struct matmul_args *a); // any number, of types with a codebook
void ISA_FN(matmul_q8_iq1_m)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq2_xxs)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq2_xs)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq2_s)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq3_xxs)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq3_s)(const struct matmul_args *a);
void ISA_FN(matmul_q8_prepare)(const struct matmul_args *a, int j, int64_t span, struct column *c);

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m128i load_128(const void *p)
{
    return _mm_loadu_si128(p);
}

// A four-byte word in all lanes.
INLINE __m256i broadcast_32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return _mm256_set1_epi32(v);
}

// The four words that unpacklo/unpackhi make of pairs, once more: lane by lane a transposition of 4 x 4 words.
INLINE void transpose_words(const __m256i v[4], __m256i t[4])
{
    __m256i u0 = _mm256_unpacklo_epi32(v[0], v[1]), u1 = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i u2 = _mm256_unpacklo_epi32(v[2], v[3]), u3 = _mm256_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm256_unpacklo_epi64(u0, u2);
    t[1] = _mm256_unpackhi_epi64(u0, u2);
    t[2] = _mm256_unpacklo_epi64(u1, u3);
    t[3] = _mm256_unpackhi_epi64(u1, u3);
}

// *sum += v, now: left to itself the compiler makes a tree of a loop's sums, and spills what it holds. The empty
// instruction keeps them in order.
INLINE void add_16(__m256i *sum, __m256i v)
{
    *sum = _mm256_add_epi16(*sum, v);
    __asm__("" : "+x"(*sum));
}

INLINE void add_32(__m256i *sum, __m256i v)
{
    *sum = _mm256_add_epi32(*sum, v);
    __asm__("" : "+x"(*sum));
}

// The two operations that AVX-VNNI has and AVX2 makes of others. *acc += w . q, four products a lane: AVX2 leaves two
// sums of 16 bits a lane.
INLINE void add_products(__m256i *acc, __m256i w, __m256i q)
{
#ifdef __AVXVNNI__
    *acc = _mm256_dpbusd_avx_epi32(*acc, w, q);
#else
    add_16(acc, _mm256_maddubs_epi16(w, q));
#endif
}

// *sum += the sums of a run, times the scale where there is one. With AVX-VNNI a run of 4 words without an offset fits
// 16 bits (Q2_K; Q4_K: 15 * 127 * 16), and its scale is not negative: the upper halves add nothing.
INLINE void add_run(__m256i *sum, __m256i acc, __m256i scale, struct form f)
{
#ifdef __AVXVNNI__
    if (f.scaled && f.run == 4 && !f.offset)
        *sum = _mm256_dpwssd_avx_epi32(*sum, acc, scale);
    else
        add_32(sum, f.scaled ? _mm256_mullo_epi32(acc, scale) : acc);
#else
    add_32(sum, _mm256_madd_epi16(acc, f.scaled ? scale : _mm256_set1_epi16(1)));
#endif
}

// Step by step, and where they are wanted: eight products of 64 bits hold a core up for longer, and so does a copy, 16
// bytes at a time, of addresses just written one by one.
INLINE void seek_rows(struct rows8 *g, const struct matmul_args *a, int first)
{
    const uint8_t *at = (const uint8_t *)a->w + (size_t)MIN(first, a->n_rows - 1) * a->w_stride;
    for (int r = 0; r < GROUP; r++, at += first + r < a->n_rows ? a->w_stride : 0)
        g->at[r] = at;
}

INLINE struct rows8 rows_from(const struct matmul_args *a, int first)
{
    struct rows8 g = {.ahead = a->w};
    seek_rows(&g, a, first);
    return g;
}

INLINE struct rows8 rows_moved(const struct rows8 *rows, size_t bytes)
{
    struct rows8 g = {.fetches = rows->fetches, .ahead = rows->ahead + GROUP * bytes};
    for (int r = 0; r < GROUP; r++)
        g.at[r] = rows->at[r] + bytes;
    return g;
}

INLINE size_t span_bytes(enum dtype type)
{
    return (size_t)(dtype_info[type].bytes * (SPAN / dtype_info[type].block));
}

INLINE int blocks_in_span(const struct matmul_args *a, int64_t span)
{
    return (int)MIN((a->k - span * SPAN) / 32, BLOCKS);
}

// Where 16 bytes of each of eight rows are read, asks for 128 of those ahead: the rows behind these, one byte after the
// other, whichever order a block is read in. So memory is read nearly twice as fast (by Zen 3) as eight places at a
// time are; a little at a time, because a core waits once it has asked for some twenty lines. The empty instructions
// keep the compiler from gathering a block's requests in one place. A group may be larger than the first-level cache.
INLINE void fetch_ahead(struct rows8 *rows)
{
    if (!rows->fetches)
        return;
    __asm__ volatile("");
    _mm_prefetch((const char *)rows->ahead, _MM_HINT_T1);
    _mm_prefetch((const char *)rows->ahead + 64, _MM_HINT_T1);
    __asm__ volatile("");
    rows->ahead += 128;
}

// At the end of a block, or of some: what was not read 16 bytes at a time.
INLINE void fetch_until(struct rows8 *rows, const uint8_t *end)
{
    __asm__ volatile("");
    for (; rows->fetches && rows->ahead < end; rows->ahead += 64)
        _mm_prefetch((const char *)rows->ahead, _MM_HINT_T1);
    rows->ahead = end;
}

INLINE void store_rows(float *y, const float *d, int n)
{
    memcpy(y, d, (size_t)MIN(n, GROUP) * sizeof(float));
}

#endif
