// Matmul of a few columns (up to those of matmul_q8_in_place_columns) by AVX-512 of types of few bits with a factor
// for a run of 16 or 32 elements: Q1_0, Q2_0, NVFP4.
//
// The naive loop, for each row: for each run, S = fma(step * (sum of w * q), d, S). The integer sums are small, and
// there is one for each 16 or 32 weights: adding up the lanes of registers that belong to one row would cost more than
// the products. The steps of a column are multiplied into d, which stays exact: d has few bits.
//   - So 16 rows are multiplied together, and their bytes are transposed first, so that there is one lane per row. A
//     word of a row is then 32, 16 or 8 weights. The operation that makes bytes of weights out of words (an affine
//     product of bits, or a look-up) serves 16 rows at once.
//   - Weights are unpacked from their words in an order of their own. Activations are arranged in that order once for
//     all rows, and each four of them are one word that is broadcast to all lanes.
//   - Up to eight columns share the unpacked registers. More columns are multiplied with the transposed words, in
//     parts of up to twelve; the words stay in the L1 cache. The weights are unpacked again for each part, because
//     storing them takes longer.
// For 16 rows by 256 elements Q1_0 takes some 230 operations, Q2_0 300, NVFP4 430: 115, 150 and 215 cycles for 576,
// 1152 and 2304 bytes.
#include "kernels/cpu/avx512/codebook_unpack.h"
#include "kernels/cpu/avx512/rows.h"

enum { DIRECT_MAX = 8, COLUMNS_AT_ONCE = 12, COLUMNS_MAX = PANEL_TILES_MIN - 1 };

struct layout {
    int bytes, size;     // of a block, in bytes and in elements
    int run, words;      // the elements that share a factor, at the most, and the words of a row that hold them
    int offset;          // added to the weights to make them unsigned
    const uint8_t *pick; // permutes 64 elements to the order of the weights; NULL: the order is the same
};

// A span of a column.
struct column {
    _Alignas(64) int8_t q[SPAN];
    int32_t start[SPAN / 16]; // of each run: minus the offset times the sum of its activations
    float steps[Q8_RUNS];
};

// The blocks of 16 rows, one lane per row: their transposed words, and the factors of their runs.
struct block16 {
    __m512i words[8];
    __m512 d[4];
};

// A table of all factors of NVFP4. They have few significant bits, so the upper halves of the floats are enough.
struct factors {
    __m512i low[2], high[2]; // bytes 2 and 3 of the factors of codes 0x80-0xbf and 0xc0-0xff
};

typedef void load_fn(const struct rows16 *g, size_t at, const struct factors *f, struct block16 *out);
// Unpacks four elements of a run of 16 rows: register i of the run.
typedef __m512i weights_fn(const __m512i *words, int i);

// ---- Q1_0: a word is a run; bit i of its bytes are elements i, 8 + i, 16 + i, 24 + i; weights are 1 or -1, plus 1

// clang-format off
static const _Alignas(64) uint8_t pick_q1_0[64] = {
    0,  8,  16, 24, 1,  9,  17, 25, 2,  10, 18, 26, 3,  11, 19, 27, 4,  12, 20, 28, 5,  13, 21, 29, 6,  14, 22, 30, 7,  15, 23, 31,
    32, 40, 48, 56, 33, 41, 49, 57, 34, 42, 50, 58, 35, 43, 51, 59, 36, 44, 52, 60, 37, 45, 53, 61, 38, 46, 54, 62, 39, 47, 55, 63};
// clang-format on

INLINE void load_q1_0(const struct rows16 *g, size_t at, const struct factors *f, struct block16 *out)
{
    (void)f;
    out->d[0] = out->d[1] = out->d[2] = out->d[3] = low_halves(gather_words(g, at));
    load_words_16(g, at + 2, out->words);
}

INLINE __m512i weights_q1_0(const __m512i *words, int i)
{
    return move_bits(words[0], 1, i, i, 1);
}

// ---- Q2_0: a word is half a run; pair e of the bits of its bytes are elements e, 4 + e ..; weights are -1 to 2,
// plus 1

// clang-format off
static const _Alignas(64) uint8_t pick_q2_0[64] = {
    0,  4,  8,  12, 1,  5,  9,  13, 2,  6,  10, 14, 3,  7,  11, 15, 16, 20, 24, 28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31,
    32, 36, 40, 44, 33, 37, 41, 45, 34, 38, 42, 46, 35, 39, 43, 47, 48, 52, 56, 60, 49, 53, 57, 61, 50, 54, 58, 62, 51, 55, 59, 63};
// clang-format on

INLINE void load_q2_0(const struct rows16 *g, size_t at, const struct factors *f, struct block16 *out)
{
    (void)f;
    out->d[0] = out->d[1] = low_halves(gather_words(g, at));
    load_words_16(g, at + 2, out->words);
}

INLINE __m512i weights_q2_0(const __m512i *words, int i)
{
    return move_bits(words[i / 4], 2, i % 4 * 2, i % 4 * 2, 0);
}

// ---- NVFP4: two words are a run; their low nibbles are elements 0-7, their high nibbles 8-15

INLINE void make_factors(struct factors *f)
{
    _Alignas(64) uint8_t low[128], high[128];
    for (int i = 0; i < 128; i += GROUP) {
        const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        const __m512i bits = _mm512_castps_si512(factors_nvfp4(_mm512_add_epi32(lanes, _mm512_set1_epi32(0x80 + i))));
        _mm_store_si128((__m128i *)(low + i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 16)));
        _mm_store_si128((__m128i *)(high + i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 24)));
    }
    *f = (struct factors){{load_512(low), load_512(low + 64)}, {load_512(high), load_512(high + 64)}};
}

// Codes have seven bits. The eighth is ignored, except that 0x7f means 0 and 0xff does not.
INLINE void load_nvfp4(const struct rows16 *g, size_t at, const struct factors *f, struct block16 *out)
{
    const __m512i codes = gather_words(g, at), upper = _mm512_set1_epi32((int)0xffff0000u);
    const __mmask64 numbers = _mm512_cmpneq_epi8_mask(codes, _mm512_set1_epi8(0x7f));
    const __m512i low = _mm512_maskz_permutex2var_epi8(numbers, f->low[0], codes, f->low[1]);
    const __m512i high = _mm512_maskz_permutex2var_epi8(numbers, f->high[0], codes, f->high[1]);
    __m512i pairs[2]; // runs 0 and 2, 1 and 3
    part_rows(low, high, pairs);
    for (int i = 0; i < 2; i++) {
        out->d[i] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
        out->d[2 + i] = _mm512_castsi512_ps(_mm512_and_si512(pairs[i], upper));
    }
    load_words_32(g, at + 4, out->words);
}

// vpermb uses six bits of an index. The 16 values are repeated four times, so the bits above the nibble do not
// matter.
INLINE __m512i weights_nvfp4(const __m512i *words, int i)
{
    const __m512i nibbles = i < 2 ? words[i] : _mm512_srli_epi32(words[i - 2], 4);
    return _mm512_permutexvar_epi8(nibbles, values_of(&shape_mxfp4));
}

// ---- columns

INLINE void prepare_columns(const struct matmul_args *a, int64_t span, const struct layout *l, struct column *out)
{
    for (int j = 0; j < a->n_x; j++) {
        const struct view x = view_of(a, j, span);
        for (int i = 0; i < SPAN; i += 64) {
            __m512i v = load_512(x.q + i);
            _mm512_store_si512(out[j].q + i, l->pick ? _mm512_permutexvar_epi8(load_512(l->pick), v) : v);
        }
        starts_of_runs(x.sums, l->run, l->offset, out[j].start);
        _mm256_storeu_ps(out[j].steps, _mm256_cvtepi32_ps(words_of_steps(&x)));
    }
}

// Prepares a span of all columns, once for all rows as far as the scratch holds their spans.
INLINE const struct column *columns_of_span(const struct matmul_args *a, int64_t span, bool first,
                                            const struct layout *l, struct column *columns, size_t bytes)
{
    const int64_t room = (int64_t)(bytes / sizeof(*columns)) / a->n_x;
    struct column *c = columns + MIN(span, room - 1) * a->n_x;
    if (first || span >= room - 1)
        prepare_columns(a, span, l, c);
    return c;
}

// Rows are read in the order of memory: while a block of 16 rows is transposed, the bytes 16 rows further on are
// prefetched.
INLINE void prefetch_group(const uint8_t *prefetch, const struct layout *l)
{
    for (int at = 0; at < GROUP * l->bytes; at += 64)
        _mm_prefetch((const char *)prefetch + at, _MM_HINT_T0);
}

INLINE int blocks_here(const struct matmul_args *a, const struct layout *l, int64_t span)
{
    const int blocks = SPAN / l->size;
    return (int)MIN(a->k / l->size - span * blocks, blocks);
}

// ---- n columns, up to eight

// Adds the runs of block i to S. l, weights and n are compile-time constants.
INLINE void add_block(const struct block16 *b, const struct layout *l, weights_fn *weights, const struct column *c,
                      int i, int n, __m512 s[])
{
    const int runs = l->size / l->run;
    UNROLL_FOR (int r = 0; r < runs; r++) {
        __m512i dot[COLUMNS_AT_ONCE];
        UNROLL_FOR (int j = 0; j < n; j++)
            dot[j] = _mm512_set1_epi32(c[j].start[i * runs + r]);
        UNROLL_FOR (int t = 0; t < l->run / 4; t++) {
            const __m512i w = weights(b->words + r * l->words, t);
            UNROLL_FOR (int j = 0; j < n; j++)
                dot[j] = _mm512_dpbusd_epi32(dot[j], w, broadcast_32(c[j].q + i * l->size + r * l->run + 4 * t));
        }
        UNROLL_FOR (int j = 0; j < n; j++) {
            const float step = c[j].steps[i * (l->size / Q8_RUN) + r * l->run / Q8_RUN];
            s[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[j]), _mm512_mul_ps(b->d[r], _mm512_set1_ps(step)), s[j]);
        }
    }
}

INLINE void in_place(const struct matmul_args *a, const struct layout *l, load_fn *load, weights_fn *weights, int n)
{
    struct factors f = {0};
    const int blocks = SPAN / l->size;
    if (l->run == 16)
        make_factors(&f);
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 g = rows_from(a, first);
        const uint8_t *prefetch = matmul_rows_after(a, first, GROUP);
        __m512 d[DIRECT_MAX];
        UNROLL_FOR (int j = 0; j < n; j++)
            d[j] = _mm512_setzero_ps();
        for (int64_t span = 0; span < q8_blocks(a->k); span++) {
            const struct column *c = columns_of_span(a, span, first == 0, l, a->scratch, SCRATCH_BYTES);
            const int here = blocks_here(a, l, span);
            __m512 s[DIRECT_MAX];
            UNROLL_FOR (int j = 0; j < n; j++)
                s[j] = _mm512_setzero_ps();
            for (int i = 0; i < here; i++, prefetch += GROUP * l->bytes) {
                struct block16 b;
                prefetch_group(prefetch, l);
                load(&g, (size_t)(span * blocks + i) * (size_t)l->bytes, &f, &b);
                add_block(&b, l, weights, c, i, n, s);
            }
            UNROLL_FOR (int j = 0; j < n; j++)
                d[j] = _mm512_fmadd_ps(s[j], _mm512_set1_ps(q8_scales(a->x[j], a->k)[span]), d[j]);
        }
        UNROLL_FOR (int j = 0; j < n; j++)
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), d[j]);
    }
}

// ---- more: n columns pass over the blocks of a span

// Multiplies columns c[0] .. c[n - 1], whose scales are da, with the blocks of a span.
typedef void sweep_fn(const struct block16 *b, int blocks, const struct column *c, const float *da, __m512 *d);
INLINE void sweep(const struct block16 *b, int blocks, const struct layout *l, weights_fn *weights,
                  const struct column *c, const float *da, int n, __m512 *d)
{
    __m512 s[COLUMNS_AT_ONCE];
    UNROLL_FOR (int j = 0; j < n; j++)
        s[j] = _mm512_setzero_ps();
    KEEP_LOOP_FOR (int i = 0; i < blocks; i++)
        add_block(&b[i], l, weights, c, i, n, s);
    UNROLL_FOR (int j = 0; j < n; j++)
        d[j] = _mm512_fmadd_ps(s[j], _mm512_set1_ps(da[j]), d[j]);
}

// The contents of a thread's scratch.
struct work {
    struct block16 blocks[SPAN / 64]; // of a span
    __m512 d[COLUMNS_MAX];
    struct column columns[];
};

// Multiplies all columns in parts of about the same width.
INLINE void sweep_all(struct work *w, int blocks, const struct column *c, const float *da, sweep_fn *const *by, int n)
{
    const int parts = (n + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;
    for (int p = 0, first = 0, width; p < parts; p++, first += width) {
        width = n / parts + (p < n % parts);
        by[width](w->blocks, blocks, c + first, da + first, w->d + first);
    }
}

INLINE void in_place_many(const struct matmul_args *a, const struct layout *l, load_fn *load, sweep_fn *const *by)
{
    struct work *w = a->scratch;
    struct factors f = {0};
    const int n = a->n_x, blocks = SPAN / l->size;
    if (l->run == 16)
        make_factors(&f);
    for (int first = 0; first < a->n_rows; first += GROUP) {
        const struct rows16 g = rows_from(a, first);
        const uint8_t *prefetch = matmul_rows_after(a, first, GROUP);
        for (int j = 0; j < n; j++)
            w->d[j] = _mm512_setzero_ps();
        for (int64_t span = 0; span < q8_blocks(a->k); span++) {
            const struct column *c = columns_of_span(a, span, first == 0, l, w->columns, SCRATCH_BYTES - sizeof(*w));
            const int here = blocks_here(a, l, span);
            float da[COLUMNS_MAX];
            for (int j = 0; j < n; j++)
                da[j] = q8_scales(a->x[j], a->k)[span];
            for (int i = 0; i < here; i++, prefetch += GROUP * l->bytes) {
                prefetch_group(prefetch, l);
                load(&g, (size_t)(span * blocks + i) * (size_t)l->bytes, &f, &w->blocks[i]);
            }
            sweep_all(w, here, c, da, by, n);
        }
        for (int j = 0; j < n; j++)
            _mm512_mask_storeu_ps(a->y[j] + first, rows_mask(a, first), w->d[j]);
    }
}

static const struct layout layout_q1_0 = {18, 128, 32, 1, TERNARY_OFFSET, pick_q1_0},
                           layout_q2_0 = {18, 64, 32, 2, TERNARY_OFFSET, pick_q2_0},
                           layout_nvfp4 = {36, 64, 16, 2, FP4_OFFSET, NULL};

// SWEEP(n, name): the function of n columns. EACH_WIDTH(X, name): X for each number of columns that is a part.
// IN_PLACE(name): matmul_q8_in_place_<name>, with a case for up to eight columns and a table for more.
#define SWEEP(n, name)                                                                                                 \
    static void name##_by_##n(const struct block16 *b, int blocks, const struct column *c, const float *da, __m512 *d) \
    {                                                                                                                  \
        sweep(b, blocks, &layout_##name, weights_##name, c, da, n, d);                                                 \
    }
#define EACH_WIDTH(X, name) X(6, name) X(7, name) X(8, name) X(9, name) X(10, name) X(11, name) X(12, name)
#define ENTRY(n, name) [n] = name##_by_##n,
#define CASE(name, n)                                                                                                  \
    case n:                                                                                                            \
        in_place(a, &layout_##name, load_##name, weights_##name, n);                                                   \
        break;
#define IN_PLACE(name)                                                                                                 \
    EACH_WIDTH(SWEEP, name)                                                                                            \
    void ISA_FN(matmul_q8_in_place_##name)(const struct matmul_args *a)                                                \
    {                                                                                                                  \
        static sweep_fn *const by[COLUMNS_AT_ONCE + 1] = {EACH_WIDTH(ENTRY, name)};                                    \
        switch (a->n_x) {                                                                                              \
            CASE(name, 1)                                                                                              \
            CASE(name, 2)                                                                                              \
            CASE(name, 3)                                                                                              \
            CASE(name, 4)                                                                                              \
            CASE(name, 5)                                                                                              \
            CASE(name, 6)                                                                                              \
            CASE(name, 7)                                                                                              \
            CASE(name, 8)                                                                                              \
        default:                                                                                                       \
            in_place_many(a, &layout_##name, load_##name, by);                                                         \
        }                                                                                                              \
    }

// clang-format off
IN_PLACE(q1_0)
IN_PLACE(q2_0)
IN_PLACE(nvfp4)
// clang-format on
