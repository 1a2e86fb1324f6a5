// Matmul of many columns by AVX2: rows are unpacked to a panel once, and all columns are multiplied with it.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da,
// D). Here lane r of a register belongs to row r (avx2/unpack.h transposes the words):
//   - vpmaddubsw multiplies four bytes of eight rows with four bytes of one column, which are broadcast, and leaves
//     two sums of 16 bits per row. Several of these are added up in 16 bits before vpmaddwd multiplies them by the
//     scale of the sub-block and widens them. The scale is multiplied by the column's step first. For Q4_K 18
//     operations are 256 products; if each sum were widened, 25 would be needed.
//   - 16 bits hold the sum of 8 words of weights up to 15, 4 words of weights up to 31, or 2 words of weights up to
//     63. If a type's weights have an offset, the sum starts with minus the offset times the sum of the same
//     activations, which centres the weights: then 8 words of weights from -16 to 15 fit, or 4 words of weights from
//     -32 to 31. Overflows on the way do no harm.
//   - Weights of the full 8 bits leave no room for a second product, and as unsigned bytes not even for one. With few
//     columns the signs of the weights are moved to the activations. With many columns both sides are widened to 16
//     bits once, and vpmaddwd alone multiplies. The weights of IQ4_XS are multiplied by their scales before (at most
//     32 * 127).
//   - AVX-VNNI has vpdpbusd, which adds four products to a sum of 32 bits. There weights of the full 8 bits have an
//     offset, too, and none is widened.
//   - Up to 32 columns: sixteen rows at a time, from their first block to their last, while the rows below are
//     prefetched in the order of memory. With more columns, a panel of 64 rows (32 where widened) by 256 elements
//     stays in the L1 cache while all columns are multiplied with it, and their sums D are kept in the scratch until
//     the next 256 elements.
// avx2/matmul_q8.c chooses it for more columns than are served in place.
#include "kernels/cpu/avx2/unpack.h"

enum {
    TILE_COLUMNS = 4,
    TILE_GROUPS = 2,
    FEW = 32,                         // up to so many columns, rows are read in the order of memory
    FEW_HEIGHT = TILE_GROUPS * GROUP, // rows that are multiplied at once then
    HEIGHT = 64,                      // rows of a panel for many columns
    HEIGHT_WIDE = 32,                 // the same where weights are widened to 16 bits
    COLUMNS_MAX = 1200,               // the most columns that a panel is multiplied with
};

#define FORMAT_ENTRY(name, NAME, ...) [DT_##NAME] = {__VA_ARGS__},
static const struct type_format formats[DT_COUNT] = {EACH_TYPE_256(FORMAT_ENTRY) EACH_TYPE_32(FORMAT_ENTRY)};

// ---- columns

// Word j of each half is the sum of the four words of that half of v[j], which are int16 pairs.
INLINE __m256i add_words(const __m256i v[4])
{
    __m256i t[4];
    transpose_words(v, t);
    return _mm256_add_epi16(_mm256_add_epi16(t[0], t[1]), _mm256_add_epi16(t[2], t[3]));
}

#ifndef __AVXVNNI__
// Computes `start` of each run. The two numbers of a pair are those that vpmaddubsw leaves: of elements 4i and 4i + 1 of
// the run, and of elements 4i + 2 and 4i + 3. None exceeds 16 * 127 * 16.
static void prepare_start(const int8_t *q, int offset, int run, int32_t *start)
{
    const __m256i by = _mm256_set1_epi8((char)offset);
    for (int half = 0; half < 2; half++) {
        __m256i v[4];
        for (int j = 0; j < 4; j++)
            v[j] = _mm256_maddubs_epi16(by, load_256(q + 128 * half + 32 * j));
        __m256i sums = _mm256_sub_epi16(_mm256_setzero_si256(), add_words(v));
        __m128i even = _mm256_castsi256_si128(sums), odd = _mm256_extracti128_si256(sums, 1); // of runs of 16
        if (run == 8) {
            _mm_storeu_si128((__m128i *)(start + 4 * half), _mm_add_epi16(even, odd));
            continue;
        }
        _mm_storeu_si128((__m128i *)(start + 8 * half), _mm_unpacklo_epi32(even, odd));
        _mm_storeu_si128((__m128i *)(start + 8 * half + 4), _mm_unpackhi_epi32(even, odd));
    }
}

// Computes `start` of each run, and the steps.
static void prepare_runs(const int8_t *q, const int16_t *q_sums, const uint8_t *steps, const struct type_format *f,
                         struct column *c)
{
    (void)q_sums;
    if (f->offset)
        prepare_start(q, f->offset, f->run, c->start);
    put_steps(steps, c->steps);
}

#else
static void prepare_runs(const int8_t *q, const int16_t *q_sums, const uint8_t *steps, const struct type_format *f,
                         struct column *c)
{
    (void)q;
    for (int i = 0; i < WORDS / f->run && (f->offset || !f->scaled); i++)
        c->start[i] = (f->scaled ? 0 : FLOAT_BASE_BITS) -
                      f->offset * (f->run == 8 ? q_sums[2 * i] + q_sums[2 * i + 1] : q_sums[i]);
    if (f->scaled)
        put_steps(steps, c->steps);
    else
        put_float_steps(steps, &c->floats);
}
#endif

// Sums of 32 elements times their steps are at most 32 * 127 * 16, nearly twice what fits 16 bits. They seldom exceed
// 16 bits, because activations have both signs. `pairs_of_32` are as near to them as 16 bits allow, `rest` is what is
// left.
static void prepare_pairs_of_32(__m256i sums, struct column *c)
{
    const __m128i near = _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m256i rest = _mm256_sub_epi32(sums, _mm256_cvtepi16_epi32(near));
    _mm_storeu_si128((__m128i *)c->pairs_of_32, near);
    _mm_storeu_si128((__m128i *)c->rest,
                     _mm_packs_epi32(_mm256_castsi256_si128(rest), _mm256_extracti128_si256(rest, 1)));
    c->has_rest = !_mm256_testz_si256(rest, rest);
}

// Computes the sums that types with minima read.
static void prepare_mins(const int16_t *q_sums, const uint8_t *steps, const struct type_format *f, struct column *c)
{
    const __m256i sums = load_256(q_sums), eight = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)steps));
    const __m256i twice = _mm256_or_si256(eight, _mm256_slli_epi32(eight, 16));
    if (f->mins == 4)
        _mm256_storeu_si256((__m256i *)c->pairs, _mm256_mullo_epi16(sums, twice));
    else if (f->scaled)
        prepare_pairs_of_32(_mm256_madd_epi16(sums, twice), c);
    else
        _mm256_storeu_ps(c->sums, _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, twice)));
}

void ISA_FN(matmul_q8_prepare)(const struct matmul_args *a, int j, int64_t span, struct column *c)
{
    const struct type_format *f = &formats[a->type];
    const void *x = a->x[j];
    const int16_t *q_sums = q8_sums(x, a->k) + span * Q8_SUMS;
    const uint8_t *steps = q8_steps(x, a->k) + span * Q8_RUNS;
    c->q = q8_quants(x) + span * SPAN;
    c->da = q8_scales(x, a->k)[span];
    prepare_runs(c->q, q_sums, steps, f, c);
    if (f->mins)
        prepare_mins(q_sums, steps, f, c);
}

// ---- tiles: n columns by two groups of rows. f and n are compile-time constants: all short loops are unrolled, and
// the arrays of a tile are registers.

// clang-format off
typedef __m256i tile_sums[TILE_COLUMNS][TILE_GROUPS];
typedef __m256 tile_floats[TILE_COLUMNS][TILE_GROUPS];

#define EACH_COLUMN UNROLL_FOR (int j = 0; j < n; j++)
#define EACH_GROUP UNROLL_FOR (int i = 0; i < TILE_GROUPS; i++)

INLINE void set_zero(tile_sums sum, int n)
{
    EACH_COLUMN
        EACH_GROUP
            sum[j][i] = _mm256_setzero_si256();
}

// Sets acc to the sums of a run: the products of f.run words from `word` on.
INLINE void multiply_run(tile_sums acc, const struct panel *p, const struct column *c, size_t word,
                         struct type_format f, int n)
{
    EACH_COLUMN
        EACH_GROUP
            acc[j][i] = start_of_run(&c[j], word / (size_t)f.run, f);
    UNROLL_FOR (size_t k = 0; k < (size_t)f.run; k++) {
        __m256i w[TILE_GROUPS];
        EACH_GROUP
            w[i] = p[i].w[word + k];
        EACH_COLUMN {
            __m256i q = broadcast_32(c[j].q + 4 * (word + k));
            EACH_GROUP
                add_products(&acc[j][i], w[i], q);
        }
    }
}

// The scales of the run that begins at `word`.
INLINE void load_scales(__m256i scale[TILE_GROUPS], const struct panel *p, size_t word, struct type_format f)
{
    EACH_GROUP
        scale[i] = p[i].scale[f.scaled ? word / (size_t)MAX(f.scaled, 1) : 0];
}

// sum += scale * step * acc
INLINE void add_runs(tile_sums sum, tile_sums acc, const struct panel *p, const struct column *c, size_t word,
                     struct type_format f, int n)
{
    __m256i scale[TILE_GROUPS];
    load_scales(scale, p, word, f);
    EACH_COLUMN
        EACH_GROUP
            add_run(&sum[j][i], acc[j][i], factor_of_run(scale[i], &c[j].steps[word / 8], f), f);
}

// sum += scale * step * (w . q) over eight words of signed weights, whose signs are moved to the activations.
INLINE void add_signed(tile_sums sum, const struct panel *p, const struct column *c, size_t word, struct type_format f,
                       int n)
{
    __m256i scale[TILE_GROUPS];
    tile_sums factor;
    load_scales(scale, p, word, f);
    EACH_COLUMN
        EACH_GROUP
            factor[j][i] = factor_of_run(scale[i], &c[j].steps[word / 8], f);
    UNROLL_FOR (size_t k = 0; k < 8; k++) {
        __m256i w[TILE_GROUPS], magnitude[TILE_GROUPS];
        EACH_GROUP
            w[i] = p[i].w[word + k], magnitude[i] = _mm256_abs_epi8(w[i]);
        EACH_COLUMN {
            __m256i q = broadcast_32(c[j].q + 4 * (word + k));
            EACH_GROUP {
                __m256i pairs = _mm256_maddubs_epi16(magnitude[i], _mm256_sign_epi8(q, w[i]));
                add_run(&sum[j][i], pairs, factor[j][i], f);
            }
        }
    }
}

// Whether the sums of 32 elements are multiplied by the step when they have been scaled: where there are two runs, this
// takes fewer operations than multiplying each run's scale, at least where vpmulld is one operation (on AMD's CPUs).
// With AVX-VNNI it would not.
INLINE bool steps_come_last(struct type_format f)
{
#ifdef __AVXVNNI__
    (void)f;
    return false;
#else
    return f.scaled && f.run == 4;
#endif
}

INLINE void add_two_runs(tile_sums sum, const struct panel *p, const struct column *c, size_t b, struct type_format f,
                         int n)
{
    tile_sums acc, scaled;
    set_zero(scaled, n);
    UNROLL_FOR (size_t k = 0; k < 8; k += 4) {
        __m256i scale[TILE_GROUPS];
        multiply_run(acc, p, c, 8 * b + k, f, n);
        load_scales(scale, p, 8 * b + k, f);
        EACH_COLUMN
            EACH_GROUP
                add_run(&scaled[j][i], acc[j][i], scale[i], f);
    }
    EACH_COLUMN {
        const __m256i step = _mm256_srli_epi32(broadcast_32(&c[j].steps[b]), 16);
        EACH_GROUP
            add_32(&sum[j][i], _mm256_mullo_epi32(scaled[j][i], step));
    }
}

// sum += scale * step * (w . q) over 32 elements, the words from 8 * b on.
INLINE void add_32_elements(tile_sums sum, const struct panel *p, const struct column *c, size_t b,
                            struct type_format f, int n)
{
    tile_sums acc;
    if (!f.run)
        add_signed(sum, p, c, 8 * b, f, n);
    else if (steps_come_last(f))
        add_two_runs(sum, p, c, b, f, n);
    else
        UNROLL_FOR (size_t k = 0; k < 8; k += (size_t)f.run) {
            multiply_run(acc, p, c, 8 * b + k, f, n);
            add_runs(sum, acc, p, c, 8 * b + k, f, n);
        }
}

// sum += min . (sums of q), by n_pairs pairs of the columns' `pairs` from `first` on.
INLINE void add_mins(tile_sums sum, const struct panel *p, const struct column *c, int first, int n_pairs, int n)
{
    UNROLL_FOR (int s = 0; s < n_pairs; s++) {
        __m256i min[TILE_GROUPS];
        EACH_GROUP
            min[i] = p[i].min[s];
        EACH_COLUMN {
            __m256i q = broadcast_32(&c[j].pairs[first + s]);
            EACH_GROUP
                add_32(&sum[j][i], _mm256_madd_epi16(min[i], q));
        }
    }
}

INLINE bool have_rest(const struct column *c, int n)
{
    bool any = false;
    EACH_COLUMN
        any |= c[j].has_rest;
    return any;
}

// D = fma(S, da, D); column j's D begin at d + j * HEIGHT.
INLINE void add_to_partial(float *d, tile_floats s, const struct column *c, int n)
{
    EACH_COLUMN
        EACH_GROUP {
            float *at = d + j * HEIGHT + GROUP * i;
            _mm256_storeu_ps(at, _mm256_fmadd_ps(s[j][i], _mm256_set1_ps(c[j].da), _mm256_loadu_ps(at)));
        }
}

// The end of a block of 256, from its integer sums.
INLINE void finish_scaled(tile_sums sum, const struct panel *p, const struct column *c, float *d, struct type_format f,
                          int n)
{
    tile_floats s;
    EACH_COLUMN
        EACH_GROUP
            s[j][i] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[j][i]), p[i].d[0]);
    if (f.mins) {
        tile_sums min;
        set_zero(min, n);
        add_mins(min, p, c, 0, 32 / f.mins, n);
        if (f.mins == 8 && have_rest(c, n))
            add_mins(min, p, c, 4, 4, n);
        EACH_COLUMN
            EACH_GROUP
                s[j][i] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min[j][i]), p[i].m[0], s[j][i]);
    }
    add_to_partial(d, s, c, n);
}

// A tile of types with blocks of 256.
INLINE void tile_scaled(const struct panel *p, const struct column *c, float *d, struct type_format f, int n)
{
    tile_sums sum;
    set_zero(sum, n);
    for (size_t b = 0; b < BLOCKS; b++) {
        add_32_elements(sum, p, c, b, f, n);
        __asm__("" : "+r"(b)); // all addresses share one index, instead of being advanced one by one
    }
    finish_scaled(sum, p, c, d, f, n);
}

// The end of block b of 32: S = fma(isum, d, S), with a minimum then S = fma(sum(q), m, S).
INLINE void add_block(tile_floats s, tile_sums sum, const struct panel *p, const struct column *c, size_t b,
                      struct type_format f, int n)
{
    EACH_COLUMN
        EACH_GROUP {
            s[j][i] = _mm256_fmadd_ps(float_of_block(sum[j][i], &c[j], b), p[i].d[b], s[j][i]);
            if (f.mins)
                s[j][i] = _mm256_fmadd_ps(_mm256_set1_ps(c[j].sums[b]), p[i].m[b], s[j][i]);
        }
}

INLINE void set_zero_floats(tile_floats s, int n)
{
    EACH_COLUMN
        EACH_GROUP
            s[j][i] = _mm256_setzero_ps();
}

// A tile of types with blocks of 32.
INLINE void tile_blocks(const struct panel *p, const struct column *c, int n_blocks, float *d, struct type_format f,
                        int n)
{
    tile_floats s;
    set_zero_floats(s, n);
    for (size_t b = 0; b < (size_t)n_blocks; b++) {
        tile_sums sum;
        set_zero(sum, n);
        add_32_elements(sum, p, c, b, f, n);
        add_block(s, sum, p, c, b, f, n);
        __asm__("" : "+r"(b));
    }
    add_to_partial(d, s, c, n);
}
// clang-format on

// ---- weights of the full 8 bits and many columns: both sides are widened to 16 bits. Of each eight words, the even
// bytes are stored first, then the odd bytes.

struct wide_panel {
    __m256i w[2 * WORDS];
};
struct wide_column {
    int32_t q[2 * WORDS];
};

INLINE void widen(__m256i v, __m256i *even, __m256i *odd)
{
    *even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    *odd = _mm256_srai_epi16(v, 8);
}

// The activations are multiplied by their steps.
static void widen_column(const struct column *c, struct wide_column *out)
{
    for (int b = 0; b < BLOCKS; b++) {
        __m256i even, odd;
        const __m256i step = broadcast_32(&c->steps[b]);
        widen(load_256(c->q + 32 * b), &even, &odd);
        _mm256_storeu_si256((__m256i *)(out->q + 16 * b), _mm256_mullo_epi16(even, step));
        _mm256_storeu_si256((__m256i *)(out->q + 16 * b + 8), _mm256_mullo_epi16(odd, step));
    }
}

static void widen_panel(const struct panel *p, bool scaled, struct wide_panel *out)
{
    for (int k = 0; k < WORDS; k++) {
        __m256i even, odd;
        widen(p->w[k], &even, &odd);
        if (scaled)
            even = _mm256_mullo_epi16(even, p->scale[k / 8]), odd = _mm256_mullo_epi16(odd, p->scale[k / 8]);
        out->w[k / 8 * 16 + k % 8] = even;
        out->w[k / 8 * 16 + 8 + k % 8] = odd;
    }
}

// clang-format off
// sum += w . q over a block of 32.
INLINE void add_wide(tile_sums sum, const struct wide_panel *p, const struct wide_column *c, int b, int n)
{
    UNROLL_FOR (int k = 0; k < 16; k++) {
        __m256i w[TILE_GROUPS];
        EACH_GROUP
            w[i] = p[i].w[16 * b + k];
        EACH_COLUMN {
            __m256i q = broadcast_32(&c[j].q[16 * b + k]);
            EACH_GROUP
                add_32(&sum[j][i], _mm256_madd_epi16(w[i], q));
        }
    }
}
// clang-format on

INLINE void tile_wide(const struct panel *p, const struct wide_panel *wide, const struct column *c,
                      const struct wide_column *wide_c, int n_blocks, float *d, struct type_format f, int n)
{
    tile_sums sum;
    tile_floats s;
    set_zero(sum, n);
    set_zero_floats(s, n);
    for (int b = 0; b < n_blocks; b++) {
        add_wide(sum, wide, wide_c, b, n);
        if (f.scaled)
            continue;
        add_block(s, sum, p, c, (size_t)b, f, n);
        set_zero(sum, n);
    }
    if (f.scaled)
        finish_scaled(sum, p, c, d, f, n);
    else
        add_to_partial(d, s, c, n);
}

// Each shape of a tile is a function of its own.
typedef void tile_fn(const struct panel *p, const struct column *c, int n_blocks, float *d);
typedef void wide_fn(const struct panel *p, const struct wide_panel *wide, const struct column *c,
                     const struct wide_column *wide_c, int n_blocks, float *d);
struct tiles {
    tile_fn *by[TILE_COLUMNS + 1];   // by the number of columns
    wide_fn *wide[TILE_COLUMNS + 1]; // for many columns of types with weights of the full 8 bits; else NULL
};

// Define the tiles of types that share a format:
//   TILE(kind, N, format)       the tile of N columns, <kind>_by_<N>
//   TILE_WIDE(kind, N, format)  the tile of N columns with widened weights, <kind>_wide_<N>
//   TILES(kind, format)         all tiles, and their table <kind>
//   TILES_SIGNED(kind, format)  the same for types with weights of the full 8 bits, which also have widened tiles
// format: the numbers run, scaled, offset, mins of struct type_format. Of the offset, tiles only use whether there is
// one.
#define TILE(kind, N, ...)                                                                                             \
    static void kind##_by_##N(const struct panel *p, const struct column *c, int n_blocks, float *d)                   \
    {                                                                                                                  \
        const struct type_format f = {__VA_ARGS__};                                                                    \
        if (f.scaled)                                                                                                  \
            tile_scaled(p, c, d, f, N);                                                                                \
        else                                                                                                           \
            tile_blocks(p, c, n_blocks, d, f, N);                                                                      \
    }
#define TILE_WIDE(kind, N, ...)                                                                                        \
    static void kind##_wide_##N(const struct panel *p, const struct wide_panel *wide, const struct column *c,          \
                                const struct wide_column *wide_c, int n_blocks, float *d)                              \
    {                                                                                                                  \
        const struct type_format f = {__VA_ARGS__};                                                                    \
        tile_wide(p, wide, c, wide_c, n_blocks, d, f, N);                                                              \
    }
#define EACH_TILE(kind, ...)                                                                                           \
    TILE(kind, 1, __VA_ARGS__)                                                                                         \
    TILE(kind, 2, __VA_ARGS__)                                                                                         \
    TILE(kind, 3, __VA_ARGS__)                                                                                         \
    TILE(kind, 4, __VA_ARGS__)
#define TILES(kind, ...)                                                                                               \
    EACH_TILE(kind, __VA_ARGS__)                                                                                       \
    static const struct tiles kind = {.by = {NULL, kind##_by_1, kind##_by_2, kind##_by_3, kind##_by_4}};
#define TILES_SIGNED(kind, ...)                                                                                        \
    EACH_TILE(kind, __VA_ARGS__)                                                                                       \
    TILE_WIDE(kind, 1, __VA_ARGS__)                                                                                    \
    TILE_WIDE(kind, 2, __VA_ARGS__)                                                                                    \
    TILE_WIDE(kind, 3, __VA_ARGS__)                                                                                    \
    TILE_WIDE(kind, 4, __VA_ARGS__)                                                                                    \
    static const struct tiles kind = {.by = {NULL, kind##_by_1, kind##_by_2, kind##_by_3, kind##_by_4},                \
                                      .wide = {NULL, kind##_wide_1, kind##_wide_2, kind##_wide_3, kind##_wide_4}};

// clang-format off
#ifdef __AVXVNNI__
TILES(tiles_q2_k, 4, 4, 0, 4)
TILES(tiles_q4_k, 4, 8, 0, 8)
TILES(tiles_q5_k, 8, 8, 0, 8)
TILES(tiles_centred, 4, 4, 1, 0)
TILES(tiles_iq4_xs, 8, 8, 1, 0)
#define tiles_ternary tiles_iq4_xs
TILES(tiles_32_centred, 8, 0, 1, 0)
TILES(tiles_32_mins, 8, 0, 0, 8)
#define tiles_q4_1 tiles_32_mins
#define tiles_q5_1 tiles_32_mins
#define tiles_32_signed tiles_32_centred
#else
TILES(tiles_q2_k, 4, 4, 0, 4)
TILES(tiles_q4_k, 8, 8, 0, 8)
TILES(tiles_q5_k, 4, 8, 0, 8)
TILES(tiles_centred, 4, 4, 1, 0)
TILES_SIGNED(tiles_iq4_xs, 0, 8, 0, 0)
TILES(tiles_ternary, 8, 8, 1, 0)
TILES(tiles_32_centred, 8, 0, 1, 0)
TILES(tiles_q4_1, 8, 0, 0, 8)
TILES(tiles_q5_1, 4, 0, 0, 8)
TILES_SIGNED(tiles_32_signed, 0, 0, 0, 0)
#endif

static const struct tiles *const tiles_of[DT_COUNT] = {
    [DT_Q2_K] = &tiles_q2_k,        [DT_Q3_K] = &tiles_centred,    [DT_Q4_K] = &tiles_q4_k,
    [DT_Q5_K] = &tiles_q5_k,        [DT_Q6_K] = &tiles_centred,    [DT_IQ4_XS] = &tiles_iq4_xs,
    [DT_Q4_0] = &tiles_32_centred,  [DT_Q5_0] = &tiles_32_centred, [DT_MXFP4] = &tiles_32_centred,
    [DT_Q4_1] = &tiles_q4_1,        [DT_Q5_1] = &tiles_q5_1,
    [DT_Q8_0] = &tiles_32_signed,   [DT_IQ4_NL] = &tiles_32_signed, [DT_TQ1_0] = &tiles_ternary,
    [DT_TQ2_0] = &tiles_ternary,
};
// clang-format on

// ---- unpacking of a span of eight rows; of types with blocks of 32, it has n_blocks. UNPACK_256 and UNPACK_32 define
// panel_<name>.

typedef void unpack_fn(const struct rows8 *rows, int n_blocks, struct panel *p);
#define UNPACK_256(name, NAME, ...)                                                                                    \
    static void panel_##name(const struct rows8 *rows, int n_blocks, struct panel *p)                                  \
    {                                                                                                                  \
        struct rows8 g = *rows;                                                                                        \
        struct sink s = {.p = p, .stores = true, .words = p->w};                                                       \
        (void)n_blocks;                                                                                                \
        unpack_##name(&g, p, &s);                                                                                      \
        prefetch_until(&g, rows->ahead + GROUP * (size_t)BYTES_##NAME);                                                \
    }
#define UNPACK_32(name, NAME, ...)                                                                                     \
    static void panel_##name(const struct rows8 *rows, int n_blocks, struct panel *p)                                  \
    {                                                                                                                  \
        struct rows8 g = *rows;                                                                                        \
        for (int b = 0; b < n_blocks; b++) {                                                                           \
            struct sink s = {.p = p, .stores = true, .words = p->w + 8 * b};                                           \
            unpack_##name(&g, (size_t)b *BYTES_##NAME, &p->d[b], &p->m[b], &s);                                        \
        }                                                                                                              \
        prefetch_until(&g, rows->ahead + (size_t)(GROUP * BYTES_##NAME * n_blocks));                                   \
    }
EACH_TYPE_256(UNPACK_256)
EACH_TYPE_32(UNPACK_32)

#define ENTRY(name, NAME, ...) [DT_##NAME] = panel_##name,
static unpack_fn *const unpack_of[DT_COUNT] = {EACH_TYPE_256(ENTRY) EACH_TYPE_32(ENTRY)};

static void unpack_rows(const struct matmul_args *a, const struct rows8 *rows, int64_t span, struct panel *p)
{
    struct rows8 g = rows_moved(rows, (size_t)span * span_bytes(a->type));
    unpack_of[a->type](&g, blocks_in_span(a, span), p);
}

// The number of columns of the next tile, if n are left: four, except that five to seven are split evenly in two tiles.
static int tile_width(int n)
{
    return n >= 2 * TILE_COLUMNS ? TILE_COLUMNS : n > TILE_COLUMNS ? (n + 1) / 2 : n;
}

// ---- few columns: two groups of rows, from their first block to their last

struct few {
    struct panel panel[TILE_GROUPS];
    float d[FEW][HEIGHT];    // the first FEW_HEIGHT are used: HEIGHT is the distance of columns in all tiles
    struct column columns[]; // by span, then by column
};

// Whether the scratch holds n columns of all spans.
static bool few_fit(const struct matmul_args *a, int n)
{
    return (size_t)q8_blocks(a->k) <= (SCRATCH_BYTES - sizeof(struct few)) / sizeof(struct column) / (size_t)n;
}

// While they are unpacked, each of the two groups prefetches half of the rows below both.
static void seek_groups(struct rows8 rows[TILE_GROUPS], const struct matmul_args *a, int row)
{
    const uint8_t *ahead = matmul_rows_after(a, row, FEW_HEIGHT);
    for (int g = 0; g < TILE_GROUPS; g++, ahead += GROUP * a->w_stride) {
        rows[g] = rows_from(a, row + g * GROUP);
        rows[g].prefetches = true;
        rows[g].ahead = ahead;
    }
}

static void multiply_span(const struct matmul_args *a, const struct rows8 rows[TILE_GROUPS], int64_t span,
                          struct few *f)
{
    const struct tiles *t = tiles_of[a->type];
    const struct column *c = f->columns + span * a->n_x;
    const int n_blocks = blocks_in_span(a, span);
    for (int g = 0; g < TILE_GROUPS; g++)
        unpack_rows(a, &rows[g], span, &f->panel[g]);
    for (int j = 0, width; j < a->n_x; j += width) {
        width = tile_width(a->n_x - j);
        t->by[width](f->panel, c + j, n_blocks, f->d[j]);
    }
}

static void multiply_few(const struct matmul_args *a)
{
    struct few *f = a->scratch;
    const int64_t spans = q8_blocks(a->k);
    for (int64_t span = 0; span < spans; span++)
        for (int j = 0; j < a->n_x; j++)
            ISA_FN(matmul_q8_prepare)(a, j, span, &f->columns[span * a->n_x + j]);
    for (int row = 0; row < a->n_rows; row += FEW_HEIGHT) {
        struct rows8 rows[TILE_GROUPS];
        seek_groups(rows, a, row);
        for (int j = 0; j < a->n_x; j++)
            for (int i = 0; i < FEW_HEIGHT; i++)
                f->d[j][i] = 0;
        for (int64_t span = 0; span < spans; span++)
            multiply_span(a, rows, span, f);
        for (int j = 0; j < a->n_x; j++)
            memcpy(a->y[j] + row, f->d[j], (size_t)MIN(FEW_HEIGHT, a->n_rows - row) * sizeof(float));
    }
}

// ---- many columns

struct many {
    struct panel panel[HEIGHT / GROUP];
    struct wide_panel wide[HEIGHT_WIDE / GROUP];
    struct wide_column wide_columns[TILE_COLUMNS];
    struct column columns[TILE_COLUMNS];
    float d[COLUMNS_MAX][HEIGHT];
};
_Static_assert(sizeof(struct many) <= SCRATCH_BYTES, "panels and partial sums fit the scratch");

// Prefetches some bytes of each row from byte `at` on.
INLINE void prefetch_next(const struct rows8 *rows, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        for (int r = 0; r < GROUP; r++)
            _mm_prefetch((const char *)rows->at[r] + at + i, _MM_HINT_T0);
}

static void unpack_panels(const struct matmul_args *a, int row, int groups, int64_t span, struct many *m)
{
    const size_t bytes = span_bytes(a->type);
    for (int g = 0; g < groups; g++) {
        struct rows8 rows = rows_from(a, row + g * GROUP);
        prefetch_next(&rows, (size_t)(span + 1) * bytes, bytes);
        unpack_rows(a, &rows, span, &m->panel[g]);
        if (!formats[a->type].run)
            widen_panel(&m->panel[g], formats[a->type].scaled, &m->wide[g]);
    }
}

// Multiplies n columns with the panels. The second of two groups may hold what an older panel has left there; its
// results are not stored.
static void run_tiles(const struct tiles *t, struct many *m, int n, int groups, int n_blocks, float *d)
{
    for (int g = 0; g < groups; g += TILE_GROUPS)
        if (t->wide[n])
            t->wide[n](&m->panel[g], &m->wide[g], m->columns, m->wide_columns, n_blocks, d + g * GROUP);
        else
            t->by[n](&m->panel[g], m->columns, n_blocks, d + g * GROUP);
}

static void prepare_columns(const struct matmul_args *a, int first, int n, int64_t span, struct many *m)
{
    for (int j = 0; j < n; j++) {
        ISA_FN(matmul_q8_prepare)(a, first + j, span, &m->columns[j]);
        if (!formats[a->type].run)
            widen_column(&m->columns[j], &m->wide_columns[j]);
    }
}

static void multiply_panel(const struct matmul_args *a, int first, int n, int row, int rows)
{
    struct many *m = a->scratch;
    const int groups = (rows + GROUP - 1) / GROUP;
    memset(m->d, 0, (size_t)n * sizeof(m->d[0]));
    for (int64_t span = 0, spans = q8_blocks(a->k); span < spans; span++) {
        unpack_panels(a, row, groups, span, m);
        for (int j = 0, width; j < n; j += width) {
            width = tile_width(n - j);
            prepare_columns(a, first + j, width, span, m);
            run_tiles(tiles_of[a->type], m, width, groups, blocks_in_span(a, span), m->d[j]);
        }
    }
    for (int j = 0; j < n; j++)
        memcpy(a->y[first + j] + row, m->d[j], (size_t)rows * sizeof(float));
}

static void multiply_many(const struct matmul_args *a)
{
    int height = formats[a->type].run ? HEIGHT : HEIGHT_WIDE;
    for (int row = 0; row < a->n_rows; row += height)
        for (int first = 0; first < a->n_x; first += COLUMNS_MAX)
            multiply_panel(a, first, MIN(COLUMNS_MAX, a->n_x - first), row, MIN(height, a->n_rows - row));
}

void ISA_FN(matmul_q8_panel)(const struct matmul_args *a)
{
    if (a->n_x <= FEW && few_fit(a, a->n_x))
        multiply_few(a);
    else
        multiply_many(a);
}
