// The operations on one row: norms, activations, rope, routing, the 8-bit quantisation, and what is added and scaled.
//
// Elements are independent but in the norms, whose sums go in LANES double lanes (a square of a float is exact in
// double, and no magnitude overflows), and in the softmax of route, in LANES float lanes. Tails are whole vectors,
// loaded and stored in part.
#include <float.h>

#include "kernels/cpu/vec.h"
#if defined(VEC_AVX512)
#include "kernels/cpu/avx512/matmul_q8.h"
#endif

// ---- element by element

typedef vec unary_fn(vec x, float arg);
typedef vec binary_fn(vec a, vec b);

INLINE void map(unary_fn *f, const float *x, float arg, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, f(vec_load(x + i), arg));
    if (i < n)
        vec_store_n(y + i, f(vec_load_n(x + i, n - i), arg), n - i);
}

INLINE void map2(binary_fn *f, const float *a, const float *b, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, f(vec_load(a + i), vec_load(b + i)));
    if (i < n)
        vec_store_n(y + i, f(vec_load_n(a + i, n - i), vec_load_n(b + i, n - i)), n - i);
}

INLINE vec sum(vec a, vec b)
{
    return a + b;
}

INLINE vec product(vec x, float factor)
{
    return x * factor;
}

INLINE vec capped(vec x, float cap)
{
    return cap * vec_tanh(x / cap);
}

void ISA_FN(add)(const float *a, const float *b, float *y, int64_t n)
{
    map2(sum, a, b, y, n);
}

void ISA_FN(scale)(const float *x, float factor, float *y, int64_t n)
{
    map(product, x, factor, y, n);
}

void ISA_FN(softcap)(const float *x, float cap, float *y, int64_t n)
{
    map(capped, x, cap, y, n);
}

// ---- activations

INLINE vec silu(vec x)
{
    return x * vec_sigmoid(x);
}

// x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3) is x sigmoid(2u), which keeps its digits for x << 0.
INLINE vec gelu_tanh(vec x)
{
    vec cubic = vec_fma(x * x * 0.044715f, x, x);
    return x * vec_sigmoid(cubic * 1.5957691f);
}

INLINE vec gelu_erf(vec x)
{
    return x * vec_normal_cdf(x);
}

// A NaN stays.
INLINE vec relu(vec x)
{
    return (vec)(~(x < 0.0f) & (veci)x);
}

INLINE vec relu2(vec x)
{
    return relu(x) * relu(x);
}

#define ACTIVATIONS(X)                                                                                                 \
    X(SILU, silu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)                                                                                            \
    X(GELU_ERF, gelu_erf)                                                                                              \
    X(RELU, relu)                                                                                                      \
    X(RELU2, relu2)                                                                                                    \
    X(SIGMOID, vec_sigmoid)

#define UNARY(NAME, f)                                                                                                 \
    INLINE vec unary_##f(vec x, float unused)                                                                          \
    {                                                                                                                  \
        (void)unused;                                                                                                  \
        return f(x);                                                                                                   \
    }                                                                                                                  \
    INLINE vec gated_##f(vec gate, vec up)                                                                             \
    {                                                                                                                  \
        return f(gate) * up;                                                                                           \
    }
ACTIVATIONS(UNARY)
#undef UNARY

void ISA_FN(act)(enum act_kind kind, const float *x, float *y, int64_t n)
{
    switch (kind) {
#define X(NAME, f)                                                                                                     \
    case ACT_##NAME:                                                                                                   \
        map(unary_##f, x, 0, y, n);                                                                                    \
        return;
        ACTIVATIONS(X)
#undef X
    }
}

void ISA_FN(glu)(enum act_kind kind, const float *gate, const float *up, float *y, int64_t n)
{
    switch (kind) {
#define X(NAME, f)                                                                                                     \
    case ACT_##NAME:                                                                                                   \
        map2(gated_##f, gate, up, y, n);                                                                               \
        return;
        ACTIVATIONS(X)
#undef X
    }
}

// ---- norms

static double halves(double lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static double mean_of(const float *x, int64_t n)
{
    vecd sums[2 * PARTS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int p = 0; p < PARTS; p++) {
            vec v = vec_load(x + i + p * VEC);
            sums[2 * p] += vec_to_double(v, 0);
            sums[2 * p + 1] += vec_to_double(v, 1);
        }
    }
    double lane[LANES];
    memcpy(lane, sums, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += (double)float_load(x + i);
    return halves(lane) / (double)n;
}

// The mean of x^2.
static double mean_square(const float *x, int64_t n)
{
    vecd sums[2 * PARTS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        UNROLL_FOR (int h = 0; h < 2 * PARTS; h++)
            sums[h] = vecd_add_square(sums[h], vecd_from_floats(x + i + h * VEC / 2));
    }
    double lane[LANES];
    memcpy(lane, sums, sizeof(lane));
    for (; i < n; i++)
        lane[i % LANES] += (double)float_load(x + i) * (double)float_load(x + i);
    return halves(lane) / (double)n;
}

// The mean of (x - mean)^2.
static double variance(const float *x, int64_t n, double mean)
{
    vecd sums[2 * PARTS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int p = 0; p < PARTS; p++) {
            vec v = vec_load(x + i + p * VEC);
            vecd lo = vec_to_double(v, 0) - mean, hi = vec_to_double(v, 1) - mean;
            sums[2 * p] += lo * lo;
            sums[2 * p + 1] += hi * hi;
        }
    }
    double lane[LANES];
    memcpy(lane, sums, sizeof(lane));
    for (; i < n; i++) {
        double d = (double)float_load(x + i) - mean;
        lane[i % LANES] += d * d;
    }
    return halves(lane) / (double)n;
}

// ((x - mean) * scale, rounded to float) * gain + bias: the difference in double, for a mean may be far above the
// spread.
INLINE vec normalised(vecd lo, vecd hi, double mean, double scale, vec gain, vec bias)
{
    return vec_fma(vec_from_doubles((lo - mean) * scale, (hi - mean) * scale), gain, bias);
}

INLINE void norm_row(const float *x, const float *gain, const float *bias, double mean, double scale, int64_t n,
                     float *y)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vec g = gain ? vec_load(gain + i) : vec_all(1), b = bias ? vec_load(bias + i) : vec_all(0);
        vecd lo = vecd_from_floats(x + i), hi = vecd_from_floats(x + i + VEC / 2);
        vec_store(y + i, normalised(lo, hi, mean, scale, g, b));
    }
    if (i < n) {
        int64_t left = n - i;
        vec v = vec_load_n(x + i, left);
        vec g = gain ? vec_load_n(gain + i, left) : vec_all(1), b = bias ? vec_load_n(bias + i, left) : vec_all(0);
        vec_store_n(y + i, normalised(vec_to_double(v, 0), vec_to_double(v, 1), mean, scale, g, b), left);
    }
}

void ISA_FN(norm)(enum norm_kind kind, const float *x, const float *gain, const float *bias, float eps, int64_t n,
                  float *y)
{
    double mean = kind == NORM_LAYER ? mean_of(x, n) : 0;
    double spread = kind == NORM_LAYER ? variance(x, n, mean) : mean_square(x, n);
    double scale = 1.0 / sqrt(spread + (double)eps);
    if (kind == NORM_RMS && gain && !bias) // the usual one: nothing to subtract, nothing to ask in the loop
        norm_row(x, gain, NULL, 0, scale, n, y);
    else
        norm_row(x, gain, bias, mean, scale, n, y);
}

// ---- rope

// Elements (i, i + n_pairs) of each head turn together: VEC pairs of all heads, and then the next, so that their
// cosines and sines stay in registers.
static void rope_neox(const float *x, const float *cosine, const float *sine, int64_t n_pairs, int64_t head_dim,
                      int64_t n_heads, float *y)
{
    int64_t i = 0;
    for (; i + VEC <= n_pairs; i += VEC) {
        vec c = vec_load(cosine + i), s = vec_load(sine + i);
        for (int64_t at = i; at < n_heads * head_dim; at += head_dim) {
            vec a = vec_load(x + at), b = vec_load(x + at + n_pairs);
            vec_store(y + at, a * c - b * s);
            vec_store(y + at + n_pairs, a * s + b * c);
        }
    }
    if (i == n_pairs)
        return;
    int64_t n = n_pairs - i;
    vec c = vec_load_n(cosine + i, n), s = vec_load_n(sine + i, n);
    for (int64_t at = i; at < n_heads * head_dim; at += head_dim) {
        vec a = vec_load_n(x + at, n), b = vec_load_n(x + at + n_pairs, n);
        vec_store_n(y + at, a * c - b * s, n);
        vec_store_n(y + at + n_pairs, a * s + b * c, n);
    }
}

// Pairs (a, b): a cos - b sin and b cos + a sin, the sines of the first with their signs changed. Sums and differences
// are not left to the compiler's eye: gcc 12 makes fused ones of such a pattern, whatever -ffp-contract says.
INLINE vec turn_pairs(vec x, vec cosine, vec sine)
{
    return x * cosine + vec_swap_pairs(x) * sine;
}

// Elements (2i, 2i + 1) of each head turn together, VEC / 2 pairs of all heads at a time.
static void rope_norm(const float *x, const float *cosine, const float *sine, int64_t n_pairs, int64_t head_dim,
                      int64_t n_heads, float *y)
{
    enum { PAIRS = VEC / 2 };
    int64_t i = 0;
    for (; i + PAIRS <= n_pairs; i += PAIRS) {
        vec c = vec_load_twice(cosine + i), s = vec_negate_firsts(vec_load_twice(sine + i));
        for (int64_t at = 2 * i; at < n_heads * head_dim; at += head_dim)
            vec_store(y + at, turn_pairs(vec_load(x + at), c, s));
    }
    if (i == n_pairs)
        return;
    int64_t left = n_pairs - i;
    float few[2][PAIRS] = {{0}};
    memcpy(few[0], cosine + i, (size_t)left * sizeof(float));
    memcpy(few[1], sine + i, (size_t)left * sizeof(float));
    vec c = vec_load_twice(few[0]), s = vec_negate_firsts(vec_load_twice(few[1]));
    for (int64_t at = 2 * i; at < n_heads * head_dim; at += head_dim)
        vec_store_n(y + at, turn_pairs(vec_load_n(x + at, 2 * left), c, s), 2 * left);
}

void ISA_FN(rope)(const float *x, const float *table, int64_t n_pairs, int64_t head_dim, int64_t n_heads,
                  enum rope_layout layout, float *y)
{
    (layout == ROPE_NEOX ? rope_neox : rope_norm)(x, table, table + n_pairs, n_pairs, head_dim, n_heads, y);
    if (y == x || head_dim == 2 * n_pairs)
        return;
    for (int64_t at = 2 * n_pairs; at < n_heads * head_dim; at += head_dim)
        memcpy(y + at, x + at, (size_t)(head_dim - 2 * n_pairs) * sizeof(float));
}

// ---- mixture of experts

// The n_used greatest logits and their ids in descending order, the lower id first on a tie. The order of the logits is
// that of their softmax and sigmoid, and no rounding makes ties of it. (A NaN is greater than nothing.)
static void choose_experts(const float *logits, int n_expert, int n_used, float *top, int32_t *ids)
{
    int n = 0;
    for (int id = 0; id < n_expert; id++) {
        float logit = logits[id];
        int at = n;
        while (at > 0 && logit > top[at - 1])
            at--;
        if (at == n_used)
            continue;
        n = MIN(n + 1, n_used);
        memmove(top + at + 1, top + at, (size_t)(n - 1 - at) * sizeof(*top));
        memmove(ids + at + 1, ids + at, (size_t)(n - 1 - at) * sizeof(*ids));
        top[at] = logit;
        ids[at] = id;
    }
}

// The sum of e^(x - top), in lanes.
static float exp_sum(const float *x, int n, float top)
{
    struct lanes sums = {{{0}}};
    for (int i = 0; i < n; i += LANES) {
        float part[LANES];
        for (int j = 0; j < LANES; j++)
            part[j] = i + j < n ? x[i + j] : -INFINITY;
        for (int p = 0; p < PARTS; p++)
            sums.part[p] += vec_exp(vec_load(part + p * VEC) - top);
    }
    return lanes_sum(sums);
}

void ISA_FN(route)(enum route_kind kind, const float *logits, int n_expert, int n_used, bool normalise, float scale,
                   float *weights, int32_t *ids)
{
    choose_experts(logits, n_expert, n_used, weights, ids);
    float top = weights[0], total = kind == ROUTE_SOFTMAX ? exp_sum(logits, n_expert, top) : 0, sum_used = 0;
    for (int i = 0; i < n_used; i += VEC) {
        int n = MIN(n_used - i, VEC);
        vec x = vec_load_n(weights + i, n);
        vec_store_n(weights + i, kind == ROUTE_SOFTMAX ? vec_exp(x - top) / total : vec_sigmoid(x), n);
    }
    for (int i = 0; i < n_used; i++)
        sum_used += weights[i];
    float divisor = normalise ? MAX(sum_used, 0x1p-14f) : 1.0f;
    for (int i = 0; i < n_used; i++)
        weights[i] = weights[i] / divisor * scale;
}

void ISA_FN(combine)(const float *x, const float *weights, int n_used, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i += VEC) {
        int64_t left = MIN(n - i, VEC);
        vec total = {0};
        for (int j = 0; j < n_used; j++) {
            vec part = vec_load_n(x + j * n + i, left);
            total = vec_fma(vec_all(weights[j]), part, total);
        }
        vec_store_n(y + i, total, left);
    }
}

// ---- activations in 8 bits

// The largest magnitude as the bits of a float: integers order them, with infinity and the NaNs on top.
static int32_t largest_magnitude(const float x[Q8_BLOCK])
{
    veci top = {0};
    for (int i = 0; i < Q8_BLOCK; i += VEC)
        top = veci_max(top, (veci)vec_abs(vec_load(x + i)));
    return veci_greatest(top);
}

// Where a block goes: its quants in pieces of 64, `stride` bytes apart.
struct block {
    int8_t *q;
    size_t stride;
    int16_t *sums;
};

// q and the sums of a block whose elements times per_step are at most 127 and a rounding: the nearest integers, ties to
// even.
#if defined(VEC_AVX512)
INLINE __m512i nearest(const float *x, __m512 per_step)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), per_step));
}

// 64 elements. Packing leaves four of each sixteen in every 128 bits: the permutation brings them together.
INLINE __m512i nearest_64(const float *x, __m512 per_step)
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i lo = _mm512_packs_epi32(nearest(x, per_step), nearest(x + 16, per_step));
    __m512i hi = _mm512_packs_epi32(nearest(x + 32, per_step), nearest(x + 48, per_step));
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(lo, hi));
}

// Sums of eight bytes (plus 128 each, for vpsadbw knows no signs) of the four quarters, side by side in words; a sum of
// sixteen is that of two 64-bit halves, and stands in the word of its quarter.
static void quantize_block(const float x[Q8_BLOCK], float per_step, struct block to)
{
    const __m512i order =
        _mm512_castsi256_si512(_mm256_set_epi16(27, 19, 11, 3, 26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0));
    __m512i words = _mm512_setzero_si512();
    UNROLL_FOR (int i = 0; i < 4; i++) {
        __m512i bytes = nearest_64(x + 64 * i, _mm512_set1_ps(per_step));
        _mm512_storeu_si512(to.q + to.stride * (size_t)i, bytes);
        __m512i eights = _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)), _mm512_setzero_si512());
        words = _mm512_or_si512(words, _mm512_slli_epi64(eights, 16 * i));
    }
    words = _mm512_add_epi16(words, _mm512_shuffle_epi32(words, 0x4e));
    __m256i all = _mm512_castsi512_si256(_mm512_permutexvar_epi16(order, words));
    _mm256_storeu_si256((__m256i *)to.sums, _mm256_sub_epi16(all, _mm256_set1_epi16(16 * 128)));
}
#elif defined(VEC_AVX2)
INLINE __m256i nearest(const float *x, __m256 per_step)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), per_step));
}

// 32 elements at a time. Packing leaves four of each eight in both halves: the permutation brings them together.
static void quantize_block(const float x[Q8_BLOCK], float per_step, struct block to)
{
    const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    __m256 step = _mm256_set1_ps(per_step);
    for (int i = 0; i < Q8_BLOCK; i += 32) {
        __m256i lo = _mm256_packs_epi32(nearest(x + i, step), nearest(x + i + 8, step));
        __m256i hi = _mm256_packs_epi32(nearest(x + i + 16, step), nearest(x + i + 24, step));
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), order);
        _mm256_storeu_si256((__m256i *)(to.q + to.stride * (size_t)(i / 64) + i % 64), bytes);
        // Sums of eight bytes, plus 128 each, for vpsadbw knows no signs.
        __m256i eights = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        eights = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
        to.sums[i / Q8_SUMS] = (int16_t)(_mm256_cvtsi256_si32(eights) - 16 * 128);
        to.sums[i / Q8_SUMS + 1] = (int16_t)(_mm256_extract_epi32(eights, 4) - 16 * 128);
    }
}
#else
static void quantize_block(const float x[Q8_BLOCK], float per_step, struct block to)
{
    for (int i = 0; i < Q8_BLOCK; i += 4 * LANES) {
        struct lanes rounded[4];
        int8_t *q = to.q + to.stride * (size_t)(i / 64);
        for (int g = 0; g < 4; g++) {
            for (int p = 0; p < PARTS; p++) {
                int at = g * LANES + p * VEC;
                vec shifted = vec_load(x + i + at) * per_step + ROUND_MAGIC;
                veci_to_i8(q + at, (veci)shifted); // whose low byte is the integer's
                rounded[g].part[p] = shifted - ROUND_MAGIC;
            }
        }
        quad four = lanes_sum4(rounded[0], rounded[1], rounded[2], rounded[3]);
        for (int g = 0; g < 4; g++)
            to.sums[i / Q8_SUMS + g] = (int16_t)four[g];
    }
}
#endif

static float quantize_block_scaled(const float x[Q8_BLOCK], struct block to)
{
    int32_t bits = largest_magnitude(x);
    float top;
    memcpy(&top, &bits, sizeof(top));
    if (top > 0 && top <= FLT_MAX) {
        float d = MAX(top / 127.0f, FLT_MIN);
        quantize_block(x, 1.0f / d, to);
        return d;
    }
    for (int i = 0; i < Q8_BLOCK; i += 64)
        memset(to.q + to.stride * (size_t)(i / 64), 0, 64);
    memset(to.sums, 0, Q8_BLOCK / Q8_SUMS * sizeof(*to.sums));
    return top == 0 ? 0 : NAN;
}

// The n elements that are left of a row, if they are less than a block: filled up with zeros in `padded`.
INLINE const float *whole_block(const float *x, int64_t n, float padded[Q8_BLOCK])
{
    if (n >= Q8_BLOCK)
        return x;
    memset(padded, 0, Q8_BLOCK * sizeof(float));
    memcpy(padded, x, (size_t)n * sizeof(float));
    return padded;
}

void ISA_FN(quantize_q8_columns)(const float *x, int64_t k, int64_t col, int64_t n, void *row)
{
    int8_t *q = row;
    int64_t n_blocks = q8_blocks(k), b = col / Q8_BLOCK;
    int16_t *sums = (int16_t *)row + (q8_sums(row, k) - (const int16_t *)row);
    float *d = (float *)row + (q8_scales(row, k) - (const float *)row), padded[Q8_BLOCK];
    for (; n > 0; b++, x += Q8_BLOCK, n -= Q8_BLOCK) {
        struct block to = {q + b * Q8_BLOCK, 64, sums + b * (Q8_BLOCK / Q8_SUMS)};
        d[b] = quantize_block_scaled(whole_block(x, n, padded), to);
    }
    if (b == n_blocks)
        memset(d + n_blocks, 0, (size_t)((char *)row + q8_row_bytes(n_blocks * Q8_BLOCK) - (char *)(d + n_blocks)));
}

void ISA_FN(quantize_q8)(const float *x, int64_t k, void *row)
{
    ISA_FN(quantize_q8_columns)(x, k, 0, k, row);
}

INLINE void sums_of_32(const int16_t sums[Q8_SUMS], int16_t of_32[Q8_SUMS / 2])
{
#if defined(VEC_AVX512)
    __m256i pairs = _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)sums), _mm256_set1_epi16(1));
    _mm_storeu_si128((__m128i *)of_32, _mm256_cvtepi32_epi16(pairs));
#else
    for (int i = 0; i < Q8_SUMS / 2; i++)
        of_32[i] = (int16_t)(sums[2 * i] + sums[2 * i + 1]);
#endif
}

// The largest sums of magnitudes of runs of 16 and 32 of a block that lies in tiles.
#if defined(VEC_AVX512)
INLINE void note_most(const struct q8_tiles *t, int column)
{
    const int8_t *q = q8_tiles_quants(t, column);
    uint16_t *most = t->most[column];
    const __m512i top = _mm512_set1_epi8(-128); // |q| is the distance of q + 128 from 128
    __m512i v[4];
    UNROLL_FOR (int i = 0; i < 4; i++)
        v[i] = _mm512_sad_epu8(_mm512_xor_si512(_mm512_loadu_si512(q + Q8_TILE_COLUMNS * Q8_TILE_WIDTH * i), top), top);
    __m512i of_8 = _mm512_packus_epi32(_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
    __m512i of_16 =
        _mm512_madd_epi16(of_8, _mm512_set1_epi16(1)); // pairs that make a run of 32 in neighbouring quarters
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
INLINE void note_most(const struct q8_tiles *t, int column)
{
    q8_tiles_put_most(t, column);
}
#endif

static void quantize_tile_column(const float *x, int64_t col, int64_t n, void *tiles, int n_columns, int column)
{
    float padded[Q8_BLOCK];
    for (int64_t span = col / Q8_BLOCK; n > 0; span++, x += Q8_BLOCK, n -= Q8_BLOCK) {
        struct q8_tiles t = q8_tiles_at(tiles, n_columns, span);
        struct block to = {q8_tiles_quants(&t, column), Q8_TILE_COLUMNS * Q8_TILE_WIDTH, t.sums[column]};
        t.d[column] = quantize_block_scaled(whole_block(x, n, padded), to);
        sums_of_32(t.sums[column], t.sums_of_32[column]);
        note_most(&t, column);
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

#if defined(VEC_AVX512)
// A span of n columns of a group of 16, the first of them `column`: all 16 are turned together, a line of words at a time.
static void quantize_words(const float *const *x, int n, int64_t at, int64_t left, struct q8_words *w, int column)
{
    _Alignas(64) int8_t q[Q8_TILE_COLUMNS][Q8_BLOCK];
    int16_t sums[Q8_SUMS];
    float padded[Q8_BLOCK];
    struct rows16 g;
    for (int j = 0; j < n; j++) {
        float d =
            quantize_block_scaled(whole_block(x[j] + at, left, padded), (struct block){q[j], Q8_TILE_WIDTH, sums});
        g.at[j] = (const uint8_t *)q[j];
        if (n == Q8_TILE_COLUMNS)
            q8_words_put_sums(w, column + j, sums, d);
        else
            q8_words_put(w, column + j, q[j], sums, d);
    }
    if (n == Q8_TILE_COLUMNS)
        store_words(&g, 0, w);
}

// What fills the last group up is multiplied, too, and by whatever lies there; its scale is 0, lest sums become subnormal,
// which takes a hundred times as long.
static void fill_up(struct q8_words *w, int column, int n_columns)
{
    for (int j = column % Q8_TILE_COLUMNS + 1; column == n_columns - 1 && j < Q8_TILE_COLUMNS; j++)
        w->d[j] = 0;
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
            fill_up(w, column + j + m - 1, n_columns);
        }
}

void put_q8_tiles_amx(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column)
{
    struct q8_words *w = q8_words_at(tiles, n_columns, span, column);
    q8_words_put(w, column % Q8_TILE_COLUMNS, q8_quants(row) + span * Q8_BLOCK, q8_sums(row, k) + span * Q8_SUMS,
                 q8_scales(row, k)[span]);
    fill_up(w, column, n_columns);
}
#endif
