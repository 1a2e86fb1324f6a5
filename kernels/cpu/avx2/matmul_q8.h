// What the files of the AVX2 8-bit matmul share: the kernels' entry points, the panel that blocks are unpacked to, what
// kernels read of a column, and loads of eight rows at once, in which lane r of a register belongs to row r. All of it
// is compiled twice, for AVX2 alone and for AVX2 with AVX-VNNI.
//
// Private to kernels/cpu/avx2/. Panels and prepared columns are in the caller's scratch (one per thread) or on the
// stack; the functions keep no state. Nothing is read outside of the blocks that are passed.
#ifndef QUERN_AVX2_MATMUL_Q8_H
#define QUERN_AVX2_MATMUL_Q8_H

#include <immintrin.h>

#include "gguf/dtype_iq.h"
#include "kernels/cpu/level.h"

enum {
    GROUP = 8,          // rows that share a register, one lane per row
    SPAN = 256,         // elements of k in a panel
    WORDS = SPAN / 4,   // words of four elements in a span
    BLOCKS = SPAN / 32, // blocks of 32 elements in a span
};

// A span of eight rows, unpacked. Lane r of each register belongs to row r. A type fills the registers that its tiles
// read.
struct panel {
    __m256i w[WORDS];            // four bytes per lane: w + offset, unsigned; w itself for types with signed bytes
    __m256i scale[16];           // of each sub-block: an int16 pair (scale, scale); with AVX-VNNI an int32
    __m256i min[8];              // int16 pairs for two sub-blocks
    __m256 d[BLOCKS], m[BLOCKS]; // of the block of 256, or of its blocks of 32
};

// The blocks of eight rows, from some byte of each row on. Where a matrix ends within a group, the last row is
// repeated, and what is computed for the repetitions is not stored.
struct rows8 {
    const uint8_t *at[GROUP];
    bool prefetches; // while these rows are read, the bytes from `ahead` on are prefetched
    const uint8_t *ahead;
};

// How a type's products are added up and scaled. It is a compile-time constant of the type's tiles and unpacking.
struct type_format {
    int run;    // words whose products are added up before they are scaled; 0: weights are signed bytes (add_signed)
    int scaled; // words that share a scale, in blocks of 256; 0: blocks of 32
    int offset; // added to the weights in the panel
    int mins;   // words that share a minimum; 0: none
};

// Steps of 32 elements as floats, see float_of_sum.
struct float_steps {
    float step[BLOCKS], base[BLOCKS];
};

// What tiles read of a column in a span.
struct column {
    const int8_t *q;
    float da;
    bool has_rest; // whether any of `rest` is not 0
    // Of each run: minus the offset times the sums of its activations, as an int16 pair for the two sums that
    // vpmaddubsw leaves; with AVX-VNNI as an int32, for blocks of 32 plus FLOAT_BASE_BITS.
    int32_t start[16];
    union {
        int32_t steps[BLOCKS]; // as put_steps stores them
#ifdef __AVXVNNI__
        struct float_steps floats; // of types with blocks of 32
#endif
    };
    // For types with minima, the sums of q times their steps.
    union {
        int32_t pairs[8]; // in blocks of 256: int16 pairs, as `min` needs them
        struct {          // the same of 32 elements, where a sum may take two pairs, see prepare_pairs_of_32
            int32_t pairs_of_32[4], rest[4];
        };
        float sums[BLOCKS]; // in blocks of 32
    };
};

// The same with a copy of the activations, so that kernels find all columns of a span from one address.
struct packed_column {
    int8_t q[SPAN];
    struct column c;
    int32_t excess[BLOCKS]; // of blocks of 32 in one_column.c: how much the products' sums exceed step * (w . q)
};

// Whether the scratch holds the packed columns of all spans. Otherwise only matmul_q8_panel serves the call.
INLINE bool packed_columns_fit(const struct matmul_args *a)
{
    return (size_t)(q8_blocks(a->k) * a->n_x) <= SCRATCH_BYTES / sizeof(struct packed_column);
}

// One column, by type, NULL where there is no such kernel: avx2/one_column.c, for AVX2 alone.
extern matmul_fn *const ISA_FN(matmul_q8_one_column)[DT_COUNT];
// Up to matmul_q8_in_place_columns[type] columns: avx2/in_place.c. It does not serve one column of the types above.
void ISA_FN(matmul_q8_in_place)(const struct matmul_args *a);
extern const uint8_t ISA_FN(matmul_q8_in_place_columns)[DT_COUNT];
// Any number of columns: avx2/panel.c.
void ISA_FN(matmul_q8_panel)(const struct matmul_args *a);
// Any number of columns of types with factors of runs: avx2/runs.c.
void ISA_FN(matmul_q8_q1_0)(const struct matmul_args *a);
void ISA_FN(matmul_q8_q2_0)(const struct matmul_args *a);
void ISA_FN(matmul_q8_nvfp4)(const struct matmul_args *a);
// Any number of columns of types with a codebook: avx2/codebook.c.
void ISA_FN(matmul_q8_iq1_s)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq1_m)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq2_xxs)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq2_xs)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq2_s)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq3_xxs)(const struct matmul_args *a);
void ISA_FN(matmul_q8_iq3_s)(const struct matmul_args *a);

// Sets up column j in a span: avx2/panel.c.
void ISA_FN(matmul_q8_prepare)(const struct matmul_args *a, int j, int64_t span, struct column *c);

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m128i load_128(const void *p)
{
    return _mm_loadu_si128(p);
}

// Broadcasts a four-byte word to all lanes.
INLINE __m256i broadcast_32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return _mm256_set1_epi32(v);
}

// Transposes 4 x 4 words in each half: word i of half h of t[k] is word k of half h of v[i].
INLINE void transpose_words(const __m256i v[4], __m256i t[4])
{
    __m256i u0 = _mm256_unpacklo_epi32(v[0], v[1]), u1 = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i u2 = _mm256_unpacklo_epi32(v[2], v[3]), u3 = _mm256_unpackhi_epi32(v[2], v[3]);
    t[0] = _mm256_unpacklo_epi64(u0, u2);
    t[1] = _mm256_unpackhi_epi64(u0, u2);
    t[2] = _mm256_unpacklo_epi64(u1, u3);
    t[3] = _mm256_unpackhi_epi64(u1, u3);
}

// *sum += v. The empty instruction keeps the additions in order; otherwise the compiler adds up the sums of a loop as a
// tree, and spills registers.
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

// *acc += w . q, four products per lane, in one operation with AVX-VNNI. AVX2 leaves two sums of 16 bits per lane.
INLINE void add_products(__m256i *acc, __m256i w, __m256i q)
{
#ifdef __AVXVNNI__
    *acc = _mm256_dpbusd_avx_epi32(*acc, w, q);
#else
    add_16(acc, _mm256_maddubs_epi16(w, q));
#endif
}

// Stores the steps of a span as sums are multiplied by them: as int16 pairs (step, step), with AVX-VNNI as int32.
INLINE void put_steps(const uint8_t steps[Q8_RUNS], int32_t out[BLOCKS])
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)steps));
#ifndef __AVXVNNI__
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 16));
#endif
    _mm256_storeu_si256((__m256i *)out, v);
}

// With AVX-VNNI, the sums of blocks of 32 are multiplied by their steps at no cost. A sum starts with the bits of the
// float 1.5 * 2^23, whose lowest bit means 1. Adding an integer below 2^22 to these bits adds it to the float, and
// one fma takes the place of the conversion: (base + sum) * step - base * step, which is exact.
enum { FLOAT_BASE = 3 << 22, FLOAT_BASE_BITS = 0x4b400000 };

INLINE void put_float_steps(const uint8_t steps[Q8_RUNS], struct float_steps *out)
{
    __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)steps)));
    _mm256_storeu_ps(out->step, v);
    _mm256_storeu_ps(out->base, _mm256_mul_ps(v, _mm256_set1_ps(-(float)FLOAT_BASE)));
}

INLINE __m256 float_of_sum(__m256i sum, const struct float_steps *f, size_t i)
{
    return _mm256_fmadd_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(f->step[i]), _mm256_set1_ps(f->base[i]));
}

// The value that the sum of a run starts with.
INLINE __m256i start_of_run(const struct column *c, size_t run, struct type_format f)
{
#ifdef __AVXVNNI__
    const bool prepared = f.offset || !f.scaled;
#else
    const bool prepared = f.offset;
#endif
    return prepared ? broadcast_32(&c->start[run]) : _mm256_setzero_si256();
}

// The sum of block b of 32, times its step.
INLINE __m256 float_of_block(__m256i sum, const struct column *c, size_t b)
{
#ifdef __AVXVNNI__
    return float_of_sum(sum, &c->floats, b);
#else
    (void)c, (void)b;
    return _mm256_cvtepi32_ps(sum);
#endif
}

// What the sums of a run are multiplied by: the column's step, times the scale if the format has scales (at most 128 *
// 16). With AVX-VNNI, the upper half of the step is 0, so that vpmaddwd multiplies the lower halves alone.
INLINE __m256i factor_of_run(__m256i scale, const int32_t *step, struct type_format f)
{
    if (!f.scaled)
        return broadcast_32(step);
#ifdef __AVXVNNI__
    return _mm256_madd_epi16(scale, broadcast_32(step));
#else
    return _mm256_mullo_epi16(scale, broadcast_32(step));
#endif
}

// Adds the sums of a run to *sum, multiplied by `factor` (factor_of_run). With AVX-VNNI:
//   - Sums of blocks of 32 are not multiplied here, but by float_of_block.
//   - The sum of a run of 4 words without an offset fits 16 bits (Q2_K; Q4_K: 15 * 127 * 16). vpdpwssd multiplies its
//     upper half, which is only its sign, by the upper half of the factor; that is 0, because these scales are not
//     negative.
INLINE void add_run(__m256i *sum, __m256i acc, __m256i factor, struct type_format f)
{
#ifdef __AVXVNNI__
    if (f.scaled && f.run == 4 && !f.offset)
        *sum = _mm256_dpwssd_avx_epi32(*sum, acc, factor);
    else
        add_32(sum, f.scaled ? _mm256_mullo_epi32(acc, factor) : acc);
#else
    (void)f;
    add_32(sum, _mm256_madd_epi16(acc, factor));
#endif
}

// Stores the addresses of eight rows directly where they are needed, each from the one before. Eight multiplications of
// 64 bits would take longer, and so would a copy, 16 bytes at a time, of addresses that were just stored one by one.
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

// The same rows, `bytes` further on.
INLINE struct rows8 rows_moved(const struct rows8 *rows, size_t bytes)
{
    struct rows8 g = {.prefetches = rows->prefetches, .ahead = rows->ahead + GROUP * bytes};
    for (int r = 0; r < GROUP; r++)
        g.at[r] = rows->at[r] + bytes;
    return g;
}

INLINE size_t span_bytes(enum dtype type)
{
    return (size_t)(dtype_info[type].bytes * (SPAN / dtype_info[type].block));
}

// The number of blocks of 32 that a row has in this span.
INLINE int blocks_in_span(const struct matmul_args *a, int64_t span)
{
    return (int)MIN((a->k - span * SPAN) / 32, BLOCKS);
}

// Prefetches the next 128 bytes of the rows below, in the order of memory, when 16 bytes of each of eight rows are
// read. Memory is read nearly twice as fast in this way (by Zen 3) as at eight places at a time. Only 128 bytes are
// prefetched at once, because a core waits when some twenty lines are in flight; the empty instructions keep the
// compiler from collecting the prefetches of a block. They go to L2, because a group of rows may be larger than L1.
INLINE void prefetch_ahead(struct rows8 *rows)
{
    if (!rows->prefetches)
        return;
    __asm__ volatile("");
    _mm_prefetch((const char *)rows->ahead, _MM_HINT_T1);
    _mm_prefetch((const char *)rows->ahead + 64, _MM_HINT_T1);
    __asm__ volatile("");
    rows->ahead += 128;
}

// At the end of a block or several: prefetches what is left up to `end`, for the bytes that load_words did not read.
INLINE void prefetch_until(struct rows8 *rows, const uint8_t *end)
{
    __asm__ volatile("");
    for (; rows->prefetches && rows->ahead < end; rows->ahead += 64)
        _mm_prefetch((const char *)rows->ahead, _MM_HINT_T1);
    rows->ahead = end;
}

INLINE void store_rows(float *y, const float *d, int n)
{
    memcpy(y, d, (size_t)MIN(n, GROUP) * sizeof(float));
}

#endif
