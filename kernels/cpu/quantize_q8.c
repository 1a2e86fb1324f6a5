// Rounds rows of activations to 8 bits for the 8-bit matmul: to q8 rows, to columns in tiles, and to columns in words
// (the layouts of kernels.h).
//
// The naive loop, for each block of 256 elements: d = max|x| / 2032; for each 32 of these, step = ceil(max|x| / (127 d))
// and q[i] = x[i] * (1 / d / step), rounded to the nearest integer, ties to even; sums[j] = q[16j] + .. + q[16j + 15].
// A block is read twice, once for its maxima and once to be rounded, and is in the L1 cache the second time. The sums
// are computed while the quants are in registers.
#include <float.h>

#include "kernels/cpu/vec.h"
#if defined(VEC_AVX512)
#include "kernels/cpu/avx512/matmul_q8.h"
#endif

// ---- one block

// tops_of_runs(): the largest magnitude of each 32 elements of a block, as the bits of a float. Compared as integers,
// magnitudes have the same order as floats, and infinity and NaN are the largest. Eight vectors of partial maxima are
// transposed as they are reduced.

// The largest magnitudes of 32 elements: element i is the largest of those whose index is i modulo VEC.
INLINE veci tops_of_run(const float x[Q8_RUN])
{
    veci top = {0};
    UNROLL_FOR (int i = 0; i < Q8_RUN; i += VEC)
        top = veci_max(top, (veci)vec_abs(vec_load(x + i)));
    return top;
}

#if defined(VEC_AVX512) || defined(VEC_AVX2)
INLINE __m256i tops_by_8(const float x[Q8_RUN])
{
#if defined(VEC_AVX512)
    const __m512i top = (__m512i)tops_of_run(x);
    return _mm256_max_epi32(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
#else
    return (__m256i)tops_of_run(x);
#endif
}

static void tops_of_runs(const float x[Q8_BLOCK], int32_t tops[Q8_RUNS])
{
    __m256i m[8];
    UNROLL_FOR (int j = 0; j < 8; j++)
        m[j] = tops_by_8(x + Q8_RUN * j);
    UNROLL_FOR (int j = 0; j < 8; j += 2)
        m[j] = _mm256_max_epi32(_mm256_unpacklo_epi32(m[j], m[j + 1]), _mm256_unpackhi_epi32(m[j], m[j + 1]));
    UNROLL_FOR (int j = 0; j < 8; j += 4)
        m[j] = _mm256_max_epi32(_mm256_unpacklo_epi64(m[j], m[j + 2]), _mm256_unpackhi_epi64(m[j], m[j + 2]));
    const __m256i low = _mm256_permute2x128_si256(m[0], m[4], 0x20), high = _mm256_permute2x128_si256(m[0], m[4], 0x31);
    _mm256_storeu_si256((__m256i *)tops, _mm256_max_epi32(low, high));
}
#else
static void tops_of_runs(const float x[Q8_BLOCK], int32_t tops[Q8_RUNS])
{
    for (int j = 0; j < Q8_RUNS; j += 4) {
        veci m[4];
        for (int i = 0; i < 4; i++)
            m[i] = tops_of_run(x + Q8_RUN * (j + i));
        for (int i = 0; i < 4; i += 2)
            m[i] = veci_max((veci)QUAD_SHUFFLE(m[i], m[i + 1], 0, 4, 1, 5),
                            (veci)QUAD_SHUFFLE(m[i], m[i + 1], 2, 6, 3, 7));
        m[0] = veci_max((veci)QUAD_SHUFFLE(m[0], m[2], 0, 1, 4, 5), (veci)QUAD_SHUFFLE(m[0], m[2], 2, 3, 6, 7));
        memcpy(tops + j, &m[0], sizeof(m[0]));
    }
}
#endif

// The place that a block is stored to.
struct block {
    int8_t *q;      // in pieces of 64 quants
    size_t stride;  // bytes from one piece to the next
    int16_t *sums;  // [Q8_BLOCK / Q8_SUMS]
    uint8_t *steps; // [Q8_RUNS]
};

// quantize_block(): rounds x[i] * factor[i / 32] to the nearest integers, ties to even, and stores these and their sums.
// The products must round to integers of -127 .. 127.
#if defined(VEC_AVX512)
INLINE __m512i nearest(const float *x, __m512 factor)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
}

// Rounds 64 elements to bytes, which are two runs with a factor each. Packing leaves four of
// each 16 elements in every 128 bits; the permutation restores the order.
INLINE __m512i nearest_64(const float *x, const float factor[2])
{
    const __m512 a = _mm512_set1_ps(factor[0]), b = _mm512_set1_ps(factor[1]);
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i lo = _mm512_packs_epi32(nearest(x, a), nearest(x + 16, a));
    __m512i hi = _mm512_packs_epi32(nearest(x + 32, b), nearest(x + 48, b));
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(lo, hi));
}

// vpsadbw sums eight bytes each. It takes unsigned bytes, so 128 is added to each. A piece of 64 quants gives eight
// such sums, one in each 64 bits; those of piece i are shifted to word i of the four words there. The sum of 16 quants
// is that of two neighbouring sums.
static void quantize_block(const float x[Q8_BLOCK], const float factor[Q8_RUNS], struct block to)
{
    const __m512i order =
        _mm512_castsi256_si512(_mm256_set_epi16(27, 19, 11, 3, 26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0));
    __m512i words = _mm512_setzero_si512();
    UNROLL_FOR (int i = 0; i < 4; i++) {
        __m512i bytes = nearest_64(x + 64 * i, factor + 2 * i);
        _mm512_storeu_si512(to.q + to.stride * (size_t)i, bytes);
        __m512i eights = _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)), _mm512_setzero_si512());
        words = _mm512_or_si512(words, _mm512_slli_epi64(eights, 16 * i));
    }
    words = _mm512_add_epi16(words, _mm512_shuffle_epi32(words, 0x4e));
    __m256i all = _mm512_castsi512_si256(_mm512_permutexvar_epi16(order, words));
    _mm256_storeu_si256((__m256i *)to.sums, _mm256_sub_epi16(all, _mm256_set1_epi16(16 * 128)));
}
#elif defined(VEC_AVX2)
INLINE __m256i nearest(const float *x, __m256 factor)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), factor));
}

// Rounds 32 elements at a time. Packing leaves four of each eight elements in both halves; the permutation restores the
// order.
static void quantize_block(const float x[Q8_BLOCK], const float factor[Q8_RUNS], struct block to)
{
    const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    for (int i = 0; i < Q8_BLOCK; i += Q8_RUN) {
        const __m256 by = _mm256_set1_ps(factor[i / Q8_RUN]);
        __m256i lo = _mm256_packs_epi32(nearest(x + i, by), nearest(x + i + 8, by));
        __m256i hi = _mm256_packs_epi32(nearest(x + i + 16, by), nearest(x + i + 24, by));
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), order);
        _mm256_storeu_si256((__m256i *)(to.q + to.stride * (size_t)(i / 64) + i % 64), bytes);
        // vpsadbw sums eight bytes each. It takes unsigned bytes, so 128 is added to each.
        __m256i eights = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        eights = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
        to.sums[i / Q8_SUMS] = (int16_t)(_mm256_cvtsi256_si32(eights) - 16 * 128);
        to.sums[i / Q8_SUMS + 1] = (int16_t)(_mm256_extract_epi32(eights, 4) - 16 * 128);
    }
}
#else
static void quantize_block(const float x[Q8_BLOCK], const float factor[Q8_RUNS], struct block to)
{
    for (int i = 0; i < Q8_BLOCK; i += 4 * LANES) {
        struct lanes rounded[4];
        int8_t *q = to.q + to.stride * (size_t)(i / 64);
        for (int g = 0; g < 4; g++) {
            for (int p = 0; p < PARTS; p++) {
                int at = g * LANES + p * VEC;
                vec shifted = vec_load(x + i + at) * factor[(i + at) / Q8_RUN] + ROUND_MAGIC;
                veci_to_i8(q + at, (veci)shifted); // the low byte of each element is that of the integer
                rounded[g].part[p] = shifted - ROUND_MAGIC;
            }
        }
        quad four = lanes_sum4(rounded[0], rounded[1], rounded[2], rounded[3]);
        for (int g = 0; g < 4; g++)
            to.sums[i / Q8_SUMS + g] = (int16_t)four[g];
    }
}
#endif

// Stores the steps of a block, and what its elements are to be multiplied with. inverse: 1 / d.
static void choose_steps(const int32_t tops[Q8_RUNS], float inverse, uint8_t steps[Q8_RUNS], float factor[Q8_RUNS])
{
    float top[Q8_RUNS];
    int32_t step[Q8_RUNS];
    memcpy(top, tops, sizeof(top));
    for (int j = 0; j < Q8_RUNS; j++) {
        const float exact = top[j] * inverse * (1.0f / 127.0f); // 0 to little more than 16
        const int32_t whole = (int32_t)exact, up = whole + (exact > (float)whole);
        step[j] = MIN(MAX(up, 1), (int32_t)Q8_STEP_MAX);
        factor[j] = inverse / (float)step[j];
    }
    for (int j = 0; j < Q8_RUNS; j++)
        steps[j] = (uint8_t)step[j];
}

// Quantises a block and returns its scale d.
static float quantize_block_scaled(const float x[Q8_BLOCK], struct block to)
{
    int32_t tops[Q8_RUNS], bits = 0;
    float top, factor[Q8_RUNS];
    tops_of_runs(x, tops);
    for (int j = 0; j < Q8_RUNS; j++)
        bits = MAX(bits, tops[j]);
    memcpy(&top, &bits, sizeof(top));
    if (top > 0 && top <= FLT_MAX) {
        float d = MAX(top / (127.0f * Q8_STEP_MAX), FLT_MIN);
        choose_steps(tops, 1.0f / d, to.steps, factor);
        quantize_block(x, factor, to);
        return d;
    }
    for (int i = 0; i < Q8_BLOCK; i += 64)
        memset(to.q + to.stride * (size_t)(i / 64), 0, 64);
    memset(to.sums, 0, Q8_BLOCK / Q8_SUMS * sizeof(*to.sums));
    memset(to.steps, 1, Q8_RUNS);
    return top == 0 ? 0 : NAN;
}

// x itself if the row has a whole block left, else a copy of its last n elements that is padded with zeros.
INLINE const float *whole_block(const float *x, int64_t n, float padded[Q8_BLOCK])
{
    if (n >= Q8_BLOCK)
        return x;
    memset(padded, 0, Q8_BLOCK * sizeof(float));
    memcpy(padded, x, (size_t)n * sizeof(float));
    return padded;
}

// ---- q8 rows

void ISA_FN(quantize_q8_columns)(const float *x, int64_t k, int64_t col, int64_t n, void *row)
{
    int8_t *q = row;
    int64_t n_blocks = q8_blocks(k), b = col / Q8_BLOCK;
    int16_t *sums = (int16_t *)row + (q8_sums(row, k) - (const int16_t *)row);
    uint8_t *steps = (uint8_t *)row + (q8_steps(row, k) - (const uint8_t *)row);
    float *d = (float *)row + (q8_scales(row, k) - (const float *)row), padded[Q8_BLOCK];
    for (; n > 0; b++, x += Q8_BLOCK, n -= Q8_BLOCK) {
        struct block to = {q + b * Q8_BLOCK, 64, sums + b * (Q8_BLOCK / Q8_SUMS), steps + b * Q8_RUNS};
        d[b] = quantize_block_scaled(whole_block(x, n, padded), to);
    }
    if (b == n_blocks)
        memset(d + n_blocks, 0, (size_t)((char *)row + q8_row_bytes(n_blocks * Q8_BLOCK) - (char *)(d + n_blocks)));
}

void ISA_FN(quantize_q8)(const float *x, int64_t k, void *row)
{
    ISA_FN(quantize_q8_columns)(x, k, 0, k, row);
}

// ---- columns in tiles

// Stores the largest sums of magnitudes over runs of 16 and of 32 elements of a block that is in tiles.
#if defined(VEC_AVX512)
INLINE void put_most(const struct q8_tiles *t, int column)
{
    const int8_t *q = q8_tiles_quants(t, column);
    uint16_t *most = t->most[column];
    const __m512i top = _mm512_set1_epi8(-128); // |q| is |(q + 128) - 128|, which vpsadbw sums
    __m512i v[4];
    UNROLL_FOR (int i = 0; i < 4; i++)
        v[i] = _mm512_sad_epu8(_mm512_xor_si512(_mm512_loadu_si512(q + Q8_TILE_COLUMNS * Q8_TILE_WIDTH * i), top), top);
    __m512i of_8 = _mm512_packus_epi32(_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
    __m512i of_16 =
        _mm512_madd_epi16(of_8, _mm512_set1_epi16(1)); // the two halves of a run of 32 are in neighbouring quarters
    __m512i of_32 = _mm512_add_epi32(of_16, _mm512_shuffle_i32x4(of_16, of_16, 0xb1));
    __m512i both = _mm512_packus_epi32(of_16, of_32);
    __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    __m128i max = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    max = _mm_max_epu16(max, _mm_srli_epi64(max, 32));
    max = _mm_max_epu16(max, _mm_srli_epi64(max, 16));
    most[MOST_OF_16] = (uint16_t)_mm_extract_epi16(max, 0);
    most[MOST_OF_32] = (uint16_t)_mm_extract_epi16(max, 4);
}
#else
INLINE void put_most(const struct q8_tiles *t, int column)
{
    q8_tiles_put_most(t, column);
}
#endif

static void quantize_tile_column(const float *x, int64_t col, int64_t n, void *tiles, int n_columns, int column)
{
    float padded[Q8_BLOCK];
    uint8_t steps[Q8_RUNS];
    for (int64_t span = col / Q8_BLOCK; n > 0; span++, x += Q8_BLOCK, n -= Q8_BLOCK) {
        struct q8_tiles t = q8_tiles_at(tiles, n_columns, span);
        struct block to = {q8_tiles_quants(&t, column), Q8_TILE_COLUMNS * Q8_TILE_WIDTH, t.sums[column], steps};
        t.d[column] = quantize_block_scaled(whole_block(x, n, padded), to);
        q8_tiles_put_steps(&t, column, steps);
        put_most(&t, column);
    }
}

void ISA_FN(quantize_q8_tiles)(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                               int column)
{
    for (int j = 0; j < n_x; j++)
        quantize_tile_column(x[j], col, n, tiles, n_columns, column + j);
}

void ISA_FN(put_q8_tiles)(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column)
{
    struct q8_tiles t = q8_tiles_at(tiles, n_columns, span);
    q8_tiles_put(&t, column, row, k, span);
    q8_tiles_put_most(&t, column);
}

// ---- columns in words

#if defined(VEC_AVX512)
// The lanes of n columns from `column` on, within a group of 16.
INLINE __mmask16 lanes_of(int column, int n)
{
    return (__mmask16)(((1u << n) - 1) << column);
}

// Quantises a span of n columns of a group of 16, of which `column` is the first. Their words are interleaved by
// transposing registers; lanes of other columns hold copies, which are not stored.
static void quantize_words(const float *const *x, int n, int64_t at, int64_t left, struct q8_words *w, int column)
{
    _Alignas(64) int8_t q[Q8_TILE_COLUMNS][Q8_BLOCK];
    int16_t sums[Q8_SUMS];
    uint8_t steps[Q8_RUNS];
    float padded[Q8_BLOCK];
    struct rows16 g;
    for (int i = 0; i < Q8_TILE_COLUMNS; i++)
        g.at[i] = (const uint8_t *)q[0];
    for (int j = 0; j < n; j++) {
        float d = quantize_block_scaled(whole_block(x[j] + at, left, padded),
                                        (struct block){q[j], Q8_TILE_WIDTH, sums, steps});
        g.at[column + j] = (const uint8_t *)q[j];
        q8_words_put_sums(w, column + j, sums, steps, d);
    }
    store_words(&g, 0, lanes_of(column, n), w);
}

// Sets the scales and the steps of the missing columns of the last group to 0. These columns are multiplied too, with
// uninitialised quants. If these factors were not 0, subnormal results would be possible, and such operations take a
// hundred times as long.
static void zero_missing_columns(struct q8_words *w, int column, int n_columns)
{
    for (int j = column % Q8_TILE_COLUMNS + 1; column == n_columns - 1 && j < Q8_TILE_COLUMNS; j++) {
        w->d[j] = 0;
        for (int i = 0; i < Q8_RUNS; i++)
            w->steps[i][j] = 0;
    }
}

void quantize_q8_tiles_amx(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                           int column)
{
    for (int64_t at = 0; at < n; at += Q8_BLOCK)
        for (int j = 0, m; j < n_x; j += m) {
            int first = (column + j) % Q8_TILE_COLUMNS;
            m = MIN(n_x - j, Q8_TILE_COLUMNS - first);
            struct q8_words *w = q8_words_at(tiles, n_columns, (col + at) / Q8_BLOCK, column + j);
            quantize_words(x + j, m, at, n - at, w, first);
            zero_missing_columns(w, column + j + m - 1, n_columns);
        }
}

void put_q8_tiles_amx(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column)
{
    const int i = column % Q8_TILE_COLUMNS;
    struct q8_words *w = q8_words_at(tiles, n_columns, span, column);
    struct rows16 g;
    for (int j = 0; j < Q8_TILE_COLUMNS; j++)
        g.at[j] = (const uint8_t *)q8_quants(row);
    q8_words_put_sums(w, i, q8_sums(row, k) + span * Q8_SUMS, q8_steps(row, k) + span * Q8_RUNS,
                      q8_scales(row, k)[span]);
    store_words(&g, (size_t)span * Q8_BLOCK, lanes_of(i, 1), w);
    zero_missing_columns(w, column, n_columns);
}
#endif
