// Blocks of 32 elements with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4; and the types with one or two
// bits per element: Q1_0, Q2_0, TQ1_0 and TQ2_0. Sixteen blocks of 32 are searched at once, see scale_search.h.
#include "gguf/dtype_iq.h"
#include "kernels/cpu.h"
#include "kernels/cpu/quantize/scale_search.h"

enum { BLOCK = 32 };

// The rounded elements of 16 blocks of 32, in the layout of these types. In `low`, the low nibbles are the first half
// of a block and the high nibbles the second. Bit i of `fifth` is the fifth bit of element i.
struct nibbles {
    _Alignas(64) uint8_t low[TILE][16];
    _Alignas(64) int32_t fifth[TILE];
};

INLINE void round_nibbles(const struct tile *t, round_fn *round, struct rounding r, const float scale[TILE],
                          struct nibbles *out)
{
    _Alignas(64) float inverse[TILE];
    for (int at = 0; at < TILE; at += VEC)
        vec_store(inverse + at, inverse_or_0(vec_load(scale + at)));
    r.inverse = inverse;
    for (int at = 0; at < TILE; at += VEC) {
        veci word[4] = {{0}}, fifth = {0};
        UNROLL_FOR (int i = 0; i < 16; i++) {
            veci a = round(&r, t, i, at), b = round(&r, t, i + 16, at);
            word[i / 4] |= ((a & 15) | (b & 15) << 4) << i % 4 * 8;
            fifth |= a >> 4 << i | b >> 4 << (i + 16);
        }
        memcpy(out->fifth + at, &fifth, sizeof(fifth));
        vec turned[4] = {(vec)word[0], (vec)word[1], (vec)word[2], (vec)word[3]};
        vec_transpose4(turned);
        UNROLL_FOR (int l = 0; l < 4; l++)
            for (int q = 0; q < VEC / 4; q++)
                memcpy(out->low[at + 4 * q + l], (const char *)&turned[l] + 16 * q, 16);
    }
}

// Encodes up to 16 blocks to b.
typedef void tile_fn(const struct tile *t, int lanes, uint8_t *b);

INLINE void by_tiles(const float *x, const float *importance, uint8_t *b, int64_t n, int block, int bytes,
                     tile_fn *encode)
{
    struct tile t;
    for (int64_t at = 0; at < n; at += TILE * block, b += TILE * bytes) {
        int lanes = (int)MIN((n - at) / block, TILE);
        tile_load(&t, x + at, importance ? importance + at : NULL, lanes, block);
        encode(&t, lanes, b);
    }
}

// ---- x = d q

// Rounds the scales to half precision: `half` gets them as stored, limited to finite values, and `scale` gets the
// rounded values in units of the tile.
INLINE void to_halves(float scale[TILE], float unit, uint16_t half[TILE])
{
    for (int at = 0; at < TILE; at += VEC) {
        vec x = vec_load(scale + at) * unit;
        vec_to_f16(half + at, vec_at_least(vec_all(-65504), vec_at_most(vec_all(65504), x)));
        vec_store(scale + at, vec_from_f16(half + at) / unit);
    }
}

INLINE void fit_tile(const struct tile *t, const struct codec *c, uint16_t half[TILE], float scale[TILE])
{
    for (int at = 0; at < TILE; at += VEC)
        vec_store(scale + at, t->weighted ? fit_scale(t, at, c, true) : fit_scale(t, at, c, false));
    to_halves(scale, t->unit, half);
}

// Trial scales: the largest element becomes the lowest value, which has the larger magnitude, or the highest one. With
// some scales it is clipped, which gives the other elements finer steps.
static const float guesses_4[] = {-8.6f, -8.2f, -7.9f, -7.6f, -7.3f, -7, -6.6f, 7, 6.6f},
                   few_4[] = {-8.3f, -7.6f, -7.0f, 6.8f};
static const float guesses_5[] = {-16.5f, -16, -15.6f, -15.2f, -14.8f, -14.4f, 15.3f, 15},
                   few_5[] = {-16.2f, -15.4f, -14.6f, 15.1f};
// [0]: a short search. [1]: a longer one, for tensors with an importance matrix.
static const struct codec codec_4[2] = {{-8, 7, NULL, few_4, COUNT_OF(few_4), 1},
                                        {-8, 7, NULL, guesses_4, COUNT_OF(guesses_4), 2}};
static const struct codec codec_5[2] = {{-16, 15, NULL, few_5, COUNT_OF(few_5), 1},
                                        {-16, 15, NULL, guesses_5, COUNT_OF(guesses_5), 2}};

INLINE void tile_q4_0(const struct tile *t, int lanes, uint8_t *b)
{
    uint16_t half[TILE];
    _Alignas(64) float scale[TILE];
    struct nibbles q;
    fit_tile(t, &codec_4[t->weighted], half, scale);
    round_nibbles(t, round_symmetric, (struct rounding){.codec = codec_4}, scale, &q);
    for (int l = 0; l < lanes; l++, b += 18) {
        half_store(b, half[l]);
        memcpy(b + 2, q.low[l], 16);
    }
}

static void quantize_q4_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, BLOCK, 18, tile_q4_0);
}

INLINE void tile_q5_0(const struct tile *t, int lanes, uint8_t *b)
{
    uint16_t half[TILE];
    _Alignas(64) float scale[TILE];
    struct nibbles q;
    fit_tile(t, &codec_5[t->weighted], half, scale);
    round_nibbles(t, round_symmetric, (struct rounding){.codec = codec_5}, scale, &q);
    for (int l = 0; l < lanes; l++, b += 22) {
        half_store(b, half[l]);
        memcpy(b + 2, &q.fifth[l], 4);
        memcpy(b + 6, q.low[l], 16);
    }
}

static void quantize_q5_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, BLOCK, 22, tile_q5_0);
}

// With 127 steps a search gains nothing, so the scale follows from the largest element.
static void quantize_q8_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    (void)importance;
    ISA_FN(encode_table)[DT_Q8_0](x, blocks, n);
}

// ---- IQ4_NL: x = d value[q]

static const float guesses_nl[] = {-133, -127, -122, -117, -112, -107, -102, 119, 113, 108, 103};
static const struct codec codec_nl = {0, 0, iq4_values, guesses_nl, COUNT_OF(guesses_nl), 2};

INLINE void tile_iq4_nl(const struct tile *t, int lanes, uint8_t *b)
{
    uint16_t half[TILE];
    _Alignas(64) float scale[TILE];
    struct nibbles q;
    fit_tile(t, &codec_nl, half, scale);
    round_nibbles(t, round_to_index, (struct rounding){.codec = &codec_nl}, scale, &q);
    for (int l = 0; l < lanes; l++, b += 18) {
        half_store(b, half[l]);
        memcpy(b + 2, q.low[l], 16);
    }
}

static void quantize_iq4_nl(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, BLOCK, 18, tile_iq4_nl);
}

// ---- x = d q + m

static const struct affine_codec affine_4[2] = {{15, true, -1.2f, 0.6f, 4, 1}, {15, true, -1.4f, 0.35f, 7, 2}};
static const struct affine_codec affine_5[2] = {{31, true, -1.4f, 0.6f, 4, 1}, {31, true, -1.6f, 0.4f, 6, 2}};

INLINE void fit_affine_tile(const struct tile *t, const struct affine_codec *c, float scale[TILE], float lowest[TILE])
{
    for (int at = 0; at < TILE; at += VEC) {
        struct affine f = t->weighted ? fit_affine(t, at, c, true) : fit_affine(t, at, c, false);
        vec_store(scale + at, f.scale);
        vec_store(lowest + at, -f.min);
    }
}

// The part that Q4_1 and Q5_1 share: everything except the layout of the bits.
INLINE void quantize_with_min(const struct tile *t, const struct affine_codec *c, uint16_t d[TILE], uint16_t m[TILE],
                              struct nibbles *q)
{
    _Alignas(64) float scale[TILE], min[TILE];
    fit_affine_tile(t, c, scale, min);
    to_halves(scale, t->unit, d);
    to_halves(min, t->unit, m);
    for (int at = 0; at < TILE; at += VEC)
        vec_store(min + at, -vec_load(min + at));
    round_nibbles(t, round_affine, (struct rounding){.top = c->top, .min = min}, scale, q);
}

INLINE void tile_q4_1(const struct tile *t, int lanes, uint8_t *b)
{
    uint16_t d[TILE], m[TILE];
    struct nibbles q;
    quantize_with_min(t, &affine_4[t->weighted], d, m, &q);
    for (int l = 0; l < lanes; l++, b += 20) {
        half_store(b, d[l]);
        half_store(b + 2, m[l]);
        memcpy(b + 4, q.low[l], 16);
    }
}

static void quantize_q4_1(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, BLOCK, 20, tile_q4_1);
}

INLINE void tile_q5_1(const struct tile *t, int lanes, uint8_t *b)
{
    uint16_t d[TILE], m[TILE];
    struct nibbles q;
    quantize_with_min(t, &affine_5[t->weighted], d, m, &q);
    for (int l = 0; l < lanes; l++, b += 24) {
        half_store(b, d[l]);
        half_store(b + 2, m[l]);
        memcpy(b + 4, &q.fifth[l], 4);
        memcpy(b + 8, q.low[l], 16);
    }
}

static void quantize_q5_1(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, BLOCK, 24, tile_q5_1);
}

// ---- MXFP4: x = 2^(e - 127) e2m1[q]; the largest value is 6, twice of which is 12

// Magnitudes of FP4 are doubled here, as in fp4_values: 0, 1, 2, 3, 4, 6, 8, 12. fp4_nearest gives the magnitude
// nearest to v >= 0. Above bounds[k] the nearest magnitude is greater by steps[k].
static const float fp4_bounds[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
static const float fp4_steps[7] = {1, 1, 1, 1, 2, 2, 4};

INLINE vec fp4_nearest(vec v)
{
    vec best = {0};
    UNROLL_FOR (int k = 0; k < 7; k++)
        best += vec_select(v > fp4_bounds[k], vec_all(fp4_steps[k]), vec_all(0));
    return best;
}

INLINE float exponent_scale(int e)
{
    return ldexpf(1, e - 128); // half of 2^(e - 127), because the magnitudes are doubled
}

// Chooses the exponent with the smallest error: the one that follows from the largest element, or one of its two
// neighbours.
INLINE void fit_exponents(const struct tile *t, int lanes, int e[TILE], float scale[TILE])
{
    _Alignas(64) float best[TILE], error[TILE], tried[TILE];
    int first[TILE];
    for (int l = 0; l < TILE; l++) {
        float top = 0;
        for (int i = 0; i < t->n; i++)
            top = MAX(top, fabsf(t->x[i][l]));
        int exponent = 0;
        frexpf(top * t->unit, &exponent); // top = 2^exponent [0.5, 1)
        first[l] = top > 0 ? exponent - 3 + 127 : 1;
        best[l] = INFINITY;
        e[l] = 0;
    }
    for (int k = -1; k <= 1; k++) {
        for (int l = 0; l < TILE; l++)
            tried[l] = exponent_scale(MAX(0, MIN(254, first[l] + k))) / t->unit;
        for (int at = 0; at < TILE; at += VEC) {
            vec s = vec_load(tried + at), inverse = inverse_or_0(s), sum = {0};
            for (int i = 0; i < t->n; i++) {
                vec x = vec_abs(vec_load(&t->x[i][at])), d = fp4_nearest(x * inverse) * s - x;
                sum += t->weighted ? vec_load(&t->w[i][at]) * d * d : d * d;
            }
            vec_store(error + at, sum);
        }
        for (int l = 0; l < lanes; l++)
            if (error[l] < best[l]) {
                best[l] = error[l];
                e[l] = MAX(0, MIN(254, first[l] + k));
            }
    }
    for (int l = 0; l < TILE; l++)
        scale[l] = exponent_scale(e[l]) / t->unit;
}

INLINE veci round_to_fp4(const struct rounding *r, const struct tile *t, int i, int at)
{
    vec x = vec_load(&t->x[i][at]), v = vec_abs(x) * vec_load(r->inverse + at);
    veci index = (x < 0.0f) & 8;
    UNROLL_FOR (int k = 0; k < 7; k++)
        index -= v > fp4_bounds[k];
    return index;
}

INLINE void tile_mxfp4(const struct tile *t, int lanes, uint8_t *b)
{
    int e[TILE];
    _Alignas(64) float scale[TILE];
    struct nibbles q;
    fit_exponents(t, lanes, e, scale);
    round_nibbles(t, round_to_fp4, (struct rounding){0}, scale, &q);
    for (int l = 0; l < lanes; l++, b += 17) {
        b[0] = (uint8_t)e[l];
        memcpy(b + 1, q.low[l], 16);
    }
}

static void quantize_mxfp4(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, BLOCK, 17, tile_mxfp4);
}

// ---- ternary: x = d, 0 or -d; 256 elements

enum { TERNARY = 256 };

// The sums of w |x| and of w over the elements whose magnitude is above the threshold.
INLINE void ternary_sums(const float *x, const float *w, float threshold, float *wx, float *ww)
{
    struct lanes a = {{{0}}}, b = {{{0}}};
    for (int i = 0; i < TERNARY; i += LANES)
        UNROLL_FOR (int p = 0; p < PARTS; p++) {
            vec v = vec_abs(vec_load(x + i + p * VEC)), wi = w ? vec_load(w + i + p * VEC) : vec_all(1);
            wi = vec_select(v > threshold, wi, vec_all(0));
            a.part[p] += wi * v;
            b.part[p] += wi;
        }
    *wx = lanes_sum(a);
    *ww = lanes_sum(b);
}

// The d with the smallest error. For a given threshold it is the mean magnitude of the elements above it, and for a
// given d the best threshold is d / 2.
INLINE float fit_ternary(const float *x, const float *w)
{
    enum { GUESSES = 20 };
    float top = largest_of(x, TERNARY), best = 0, d = 0, wx, ww;
    if (w && largest_of(w, TERNARY) == 0)
        w = NULL;
    for (int k = 0; k < GUESSES + 3; k++) {
        ternary_sums(x, w, k < GUESSES ? top * (float)k / GUESSES : d / 2, &wx, &ww);
        double left = ww > 0 ? (double)wx * wx / ww : 0;
        if (left > best) {
            best = (float)left;
            d = wx / ww;
        }
    }
    return d;
}

// Rounds the elements to the digits 0, 1 and 2, which stand for -d, 0 and d. Returns d.
INLINE uint16_t ternary_digits(const float *x, const float *importance, uint8_t digit[TERNARY])
{
    float unit = unit_of(largest_of(x, TERNARY)), y[TERNARY];
    for (int i = 0; i < TERNARY; i++)
        y[i] = x[i] / unit;
    uint16_t half = half_of(fit_ternary(y, importance) * unit);
    float bound = f16_to_f32(half) / unit / 2;
    for (int i = 0; i < TERNARY; i++)
        digit[i] = (uint8_t)(1 + (y[i] > bound) - (y[i] < -bound));
    return half;
}

// Packs five digits in base 3 into a byte: a fraction of 256, rounded up. Multiplying it by 3 again and again gives the
// digits one by one.
INLINE uint8_t ternary_byte(const uint8_t *digit, int stride, int n)
{
    int v = 0;
    for (int k = 0; k < 5; k++)
        v = v * 3 + (k < n ? digit[k * stride] : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

static void quantize_tq1_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    uint8_t digit[TERNARY];
    for (uint8_t *b = blocks; n > 0; n -= TERNARY, b += 54, x += TERNARY) {
        half_store(b + 52, ternary_digits(x, importance, digit));
        for (int i = 0; i < 32; i++)
            b[i] = ternary_byte(digit + i, 32, 5);
        for (int i = 0; i < 16; i++)
            b[32 + i] = ternary_byte(digit + 160 + i, 16, 5);
        for (int i = 0; i < 4; i++)
            b[48 + i] = ternary_byte(digit + 240 + i, 4, 4);
        importance = importance ? importance + TERNARY : NULL;
    }
}

static void quantize_tq2_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    uint8_t digit[TERNARY];
    for (uint8_t *b = blocks; n > 0; n -= TERNARY, b += 66, x += TERNARY) {
        half_store(b + 64, ternary_digits(x, importance, digit));
        for (int i = 0; i < 64; i++) {
            const uint8_t *d = digit + i / 32 * 128 + i % 32;
            b[i] = (uint8_t)(d[0] | d[32] << 2 | d[64] << 4 | d[96] << 6);
        }
        importance = importance ? importance + TERNARY : NULL;
    }
}

// ---- Q1_0: x = d or -d, 128 elements. The best d is the mean magnitude.

static void quantize_q1_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    enum { SIGNS = 128 };
    for (uint8_t *b = blocks; n > 0; n -= SIGNS, b += 18, x += SIGNS) {
        double sum = 0, weights = 0;
        memset(b, 0, 18);
        for (int i = 0; i < SIGNS; i++) {
            double w = importance ? importance[i] : 1;
            sum += w * fabsf(x[i]);
            weights += w;
            b[2 + i / 8] |= (uint8_t)((x[i] >= 0) << i % 8);
        }
        half_store(b, half_of(weights > 0 ? (float)(sum / weights) : 0));
        importance = importance ? importance + SIGNS : NULL;
    }
}

// ---- Q2_0: x = d q, q from -1 to 2, 64 elements

static const float guesses_2[] = {2.5f, 2.1f, 1.8f, 1.5f, 1.25f, 1, -0.8f, -1, -1.25f, -1.5f, -1.8f, -2.1f, -2.5f};
static const struct codec codec_2 = {-1, 2, NULL, guesses_2, COUNT_OF(guesses_2), 2};

INLINE void tile_q2_0(const struct tile *t, int lanes, uint8_t *b)
{
    uint16_t half[TILE];
    float scale[TILE];
    uint8_t q[TILE][TILE_N];
    fit_tile(t, &codec_2, half, scale);
    round_tile(t, round_symmetric, (struct rounding){.codec = &codec_2}, scale, q[0], TILE_N);
    for (int l = 0; l < lanes; l++, b += 18) {
        half_store(b, half[l]);
        for (int i = 0; i < 16; i++) {
            const uint8_t *four = q[l] + 4 * i;
            b[2 + i] = (uint8_t)(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
        }
    }
}

static void quantize_q2_0(const float *x, const float *importance, void *blocks, int64_t n)
{
    by_tiles(x, importance, blocks, n, 64, 18, tile_q2_0);
}

quantize_fn *const ISA_FN(quantize_blocks)[DT_COUNT] = {
    [DT_Q4_0] = quantize_q4_0, [DT_Q4_1] = quantize_q4_1,     [DT_Q5_0] = quantize_q5_0,   [DT_Q5_1] = quantize_q5_1,
    [DT_Q8_0] = quantize_q8_0, [DT_IQ4_NL] = quantize_iq4_nl, [DT_MXFP4] = quantize_mxfp4, [DT_Q1_0] = quantize_q1_0,
    [DT_Q2_0] = quantize_q2_0, [DT_TQ1_0] = quantize_tq1_0,   [DT_TQ2_0] = quantize_tq2_0,
};
