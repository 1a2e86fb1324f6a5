// Matmul of any number of columns by AVX2 of types of few bits with a factor for a run of 16 or 32 elements: Q1_0,
// Q2_0, NVFP4.
//
// The naive loop, for each row: for each run, S = fma(step * sum of w * q, d, S). Here eight rows are multiplied together,
// one lane per row: their words are transposed first.
//   - A word (32 bits) of a row holds 32, 16 or 8 weights. Bringing these into the order of the elements would take
//     longer than multiplying them. So weights are unpacked from their words in an order of their own, four per row at
//     a time, and activations are arranged in that order once for all rows.
//   - Up to eight columns are multiplied with a register of weights as soon as it is unpacked. More columns are
//     multiplied in parts of up to eight, and each part unpacks all rows again. Storing the unpacked weights (a panel)
//     would save little: to unpack a register takes two or three operations, to multiply it with four columns eight.
//   - Weights plus their offset are 0 to 2, 0 to 3 and 0 to 24, so that the sums of two products over a run fit 16
//     bits.
// The order of the weights:
//   Q1_0   bit i of the bytes of a word are the elements i, 8 + i, 16 + i, 24 + i
//   Q2_0   bit pair e of the bytes of a word are the elements e, 4 + e, 8 + e, 12 + e
//   NVFP4  the low nibbles of two words are elements 0-7, the high nibbles 8-15
#include "kernels/cpu/avx2/unpack.h"

enum { COLUMNS_AT_ONCE = 8, TERNARY_OFFSET = 1, FP4_OFFSET = 12 };

struct layout {
    int bytes, size; // of a block, in bytes and in elements
    int run, words;  // the elements that share a factor, at the most, and the words of a row that hold them
    int offset;      // added to the weights to make them unsigned
};

// A span of a column, in the order of the weights.
struct ordered {
    _Alignas(32) int8_t q[SPAN];
    // Of each run: minus the offset times the sum of its activations, and times the step. With AVX-VNNI plus
    // FLOAT_BASE_BITS instead of times the step, see float_of_sum.
    int32_t start[SPAN / 16];
#ifdef __AVXVNNI__
    struct float_steps steps;
#else
    int32_t steps[BLOCKS];
#endif
};

// The blocks of eight rows, one lane per row: their transposed words, and the factors of their runs.
struct block8 {
    __m256i words[8];
    __m256 d[4];
};

typedef void load_fn(struct rows8 *g, size_t at, struct block8 *out);
// Unpacks four elements of a run of eight rows: register i of the run.
typedef __m256i weights_fn(const __m256i *words, int i);
// Arranges 32 activations in the order of the weights.
typedef __m256i order_fn(const int8_t *q);

// ---- Q1_0: weights are 1 or -1, plus 1

INLINE void load_q1_0(struct rows8 *g, size_t at, struct block8 *out)
{
    out->d[0] = out->d[1] = out->d[2] = out->d[3] = _mm256_cvtph_ps(load_heads(g, at));
    load_words(g, at + 2, out->words);
}

INLINE __m256i weights_q1_0(const __m256i *words, int i)
{
    return field(words[0], i - 1, 2);
}

INLINE __m256i order_q1_0(const int8_t *q)
{
    const __m128i low = load_128(q), high = load_128(q + 16);
    const __m128i a = _mm_unpacklo_epi8(low, _mm_srli_si128(low, 8)),
                  b = _mm_unpacklo_epi8(high, _mm_srli_si128(high, 8));
    return _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
}

// ---- Q2_0: weights are -1 to 2, plus 1

INLINE void load_q2_0(struct rows8 *g, size_t at, struct block8 *out)
{
    out->d[0] = out->d[1] = _mm256_cvtph_ps(load_heads(g, at));
    load_words(g, at + 2, out->words);
}

INLINE __m256i weights_q2_0(const __m256i *words, int i)
{
    return field(words[i / 4], i % 4 * 2, 3);
}

INLINE __m256i order_q2_0(const int8_t *q)
{
    const __m128i pick = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm256_shuffle_epi8(load_256(q), _mm256_broadcastsi128_si256(pick));
}

// ---- NVFP4: weights are doubled values, plus 12

// Half of the factors, which are unsigned floats with 4 bits of exponent and 3 of mantissa; read as float16 they are
// 128 times too small. The top bit is ignored, except that 0x7f means 0 and 0xff does not.
INLINE void factors_nvfp4(__m256i codes, __m256 d[4])
{
    const __m256i none = _mm256_cmpeq_epi8(codes, _mm256_set1_epi8(0x7f));
    const __m256i bits = _mm256_andnot_si256(none, _mm256_and_si256(codes, _mm256_set1_epi8(0x7f)));
    const __m256i even = _mm256_slli_epi16(bits, 7);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(bits, 1), _mm256_set1_epi16(0x3f80));
    split_halves(_mm256_and_si256(even, _mm256_set1_epi16(0x3f80)), &d[0], &d[2]);
    split_halves(odd, &d[1], &d[3]);
    UNROLL_FOR (int i = 0; i < 4; i++)
        d[i] = _mm256_mul_ps(d[i], _mm256_set1_ps(128));
}

INLINE void load_nvfp4(struct rows8 *g, size_t at, struct block8 *out)
{
    factors_nvfp4(load_word(g, at), out->d);
    load_words(g, at + 4, out->words);
    load_words(g, at + 20, out->words + 4);
}

INLINE __m256i weights_nvfp4(const __m256i *words, int i)
{
    return _mm256_shuffle_epi8(table_of(fp4_values, FP4_OFFSET), field(words[i % 2], i / 2 * 4, 15));
}

INLINE __m256i order_nvfp4(const int8_t *q)
{
    return load_256(q);
}

// ---- columns

// Sets the steps of a column's span, and what the sum of a run starts with: `correction`, the run's minus offset times
// the sum of its activations, is corrected before or after the step is multiplied in.
#ifdef __AVXVNNI__
INLINE void prepare_steps(const uint8_t *steps, struct ordered *out)
{
    put_float_steps(steps, &out->steps);
}

INLINE int32_t start_with(int32_t correction, int32_t step)
{
    (void)step;
    return FLOAT_BASE_BITS + correction;
}
#else
INLINE void prepare_steps(const uint8_t *steps, struct ordered *out)
{
    put_steps(steps, out->steps);
}

INLINE int32_t start_with(int32_t correction, int32_t step)
{
    return correction * step;
}
#endif

// Arranges a span of n columns and computes `start` and the steps.
INLINE void prepare_columns(const struct matmul_args *a, int first, int n, int64_t span, const struct layout *l,
                            order_fn *order, struct ordered *out)
{
    for (int j = 0; j < n; j++) {
        const void *x = a->x[first + j];
        const int8_t *q = q8_quants(x) + span * SPAN;
        const int16_t *sums = q8_sums(x, a->k) + span * Q8_SUMS;
        const uint8_t *steps = q8_steps(x, a->k) + span * Q8_RUNS;
        prepare_steps(steps, &out[j]);
        for (int i = 0; i < SPAN; i += 32)
            _mm256_store_si256((__m256i *)(out[j].q + i), order(q + i));
        for (int i = 0; i < SPAN / l->run; i++)
            out[j].start[i] = start_with(-l->offset * (l->run == 16 ? sums[i] : sums[2 * i] + sums[2 * i + 1]),
                                         steps[i * l->run / Q8_RUN]);
    }
}

// ---- n columns, up to eight: all rows

// The value that a run's sum starts with, and the sum times the step at its end. AVX2 has two sums of 16 bits per lane,
// which are joined, multiplied by the step and corrected at the end.
INLINE __m256i begin_run(const int32_t *start)
{
#ifdef __AVXVNNI__
    return broadcast_32(start);
#else
    (void)start;
    return _mm256_setzero_si256();
#endif
}

INLINE __m256 end_run(__m256i acc, const struct ordered *c, int run, int step)
{
#ifdef __AVXVNNI__
    (void)run;
    return float_of_sum(acc, &c->steps, (size_t)step);
#else
    const __m256i sum = _mm256_madd_epi16(acc, broadcast_32(&c->steps[step]));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(sum, broadcast_32(&c->start[run])));
#endif
}

// Adds the runs of block i of a span to S, and prefetches as many bytes as the blocks have from `ahead` on. l, load,
// weights and n are compile-time constants.
INLINE void add_block(struct rows8 *g, size_t at, const uint8_t *ahead, const struct layout *l, load_fn *load,
                      weights_fn *weights, const struct ordered *c, int i, int n, __m256 s[])
{
    struct block8 b;
    const int runs = l->size / l->run;
    for (int bytes = 0; bytes < GROUP * l->bytes; bytes += 64)
        _mm_prefetch((const char *)ahead + bytes, _MM_HINT_T0);
    load(g, at, &b);
    UNROLL_FOR (int r = 0; r < runs; r++) {
        __m256i acc[COLUMNS_AT_ONCE];
        UNROLL_FOR (int j = 0; j < n; j++)
            acc[j] = begin_run(&c[j].start[i * runs + r]);
        UNROLL_FOR (int t = 0; t < l->run / 4; t++) {
            const __m256i w = weights(b.words + r * l->words, t);
            UNROLL_FOR (int j = 0; j < n; j++)
                add_products(&acc[j], w, broadcast_32(c[j].q + i * l->size + r * l->run + 4 * t));
        }
        UNROLL_FOR (int j = 0; j < n; j++) {
            const int run = i * runs + r;
            s[j] = _mm256_fmadd_ps(end_run(acc[j], &c[j], run, run * l->run / Q8_RUN), b.d[r], s[j]);
        }
    }
}

// Multiplies columns column .. column + n - 1. A span of the columns is prepared once for all rows, as far as the
// scratch holds the spans.
INLINE void multiply_runs(const struct matmul_args *a, int column, const struct layout *l, load_fn *load,
                          weights_fn *weights, order_fn *order, int n)
{
    struct ordered *columns = a->scratch;
    const int blocks = SPAN / l->size;
    const int64_t spans = q8_blocks(a->k), room = SCRATCH_BYTES / ((int64_t)sizeof(*columns) * n);
    for (int first = 0; first < a->n_rows; first += GROUP) {
        struct rows8 g = rows_from(a, first);
        const uint8_t *ahead = matmul_rows_after(a, first, GROUP);
        __m256 d[COLUMNS_AT_ONCE];
        UNROLL_FOR (int j = 0; j < n; j++)
            d[j] = _mm256_setzero_ps();
        for (int64_t span = 0; span < spans; span++) {
            struct ordered *c = columns + MIN(span, room - 1) * n;
            const int here = (int)MIN(a->k / l->size - span * blocks, blocks);
            const size_t at = (size_t)(span * blocks * l->bytes);
            __m256 s[COLUMNS_AT_ONCE];
            if (first == 0 || span >= room - 1)
                prepare_columns(a, column, n, span, l, order, c);
            UNROLL_FOR (int j = 0; j < n; j++)
                s[j] = _mm256_setzero_ps();
            for (int i = 0; i < here; i++, ahead += GROUP * l->bytes)
                add_block(&g, at + (size_t)(i * l->bytes), ahead, l, load, weights, c, i, n, s);
            UNROLL_FOR (int j = 0; j < n; j++)
                d[j] = _mm256_fmadd_ps(s[j], _mm256_set1_ps(q8_scales(a->x[column + j], a->k)[span]), d[j]);
        }
        UNROLL_FOR (int j = 0; j < n; j++) {
            float lanes[GROUP];
            _mm256_storeu_ps(lanes, d[j]);
            store_rows(a->y[column + j] + first, lanes, a->n_rows - first);
        }
    }
}

static const struct layout layout_q1_0 = {18, 128, 32, 1, TERNARY_OFFSET},
                           layout_q2_0 = {18, 64, 32, 2, TERNARY_OFFSET}, layout_nvfp4 = {36, 64, 16, 2, FP4_OFFSET};

// MATMUL_RUNS(name) defines the function matmul_q8_<name>: columns go in parts of about equal width. CASE(name, n): the
// case of n columns.
#define CASE(name, n)                                                                                                  \
    case n:                                                                                                            \
        multiply_runs(a, first, &layout_##name, load_##name, weights_##name, order_##name, n);                         \
        break;
#define MATMUL_RUNS(name)                                                                                              \
    void ISA_FN(matmul_q8_##name)(const struct matmul_args *a)                                                         \
    {                                                                                                                  \
        const int parts = (a->n_x + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;                                            \
        for (int i = 0, first = 0, n; i < parts; i++, first += n) {                                                    \
            n = a->n_x / parts + (i < a->n_x % parts);                                                                 \
            switch (n) {                                                                                               \
                CASE(name, 1)                                                                                          \
                CASE(name, 2)                                                                                          \
                CASE(name, 3)                                                                                          \
                CASE(name, 4)                                                                                          \
                CASE(name, 5)                                                                                          \
                CASE(name, 6)                                                                                          \
                CASE(name, 7)                                                                                          \
                CASE(name, 8)                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }

// clang-format off
MATMUL_RUNS(q1_0)
MATMUL_RUNS(q2_0)
MATMUL_RUNS(nvfp4)
// clang-format on
