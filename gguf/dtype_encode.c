// Encoders that round to nearest, for KV caches, synthetic models and tests. All elements have the same weight.
//
// All quantised types here:
//   - round the scale to float16 first, and then the elements to multiples of the rounded scale;
//   - limit the scale to the largest half, so that huge inputs stay finite;
//   - set the scale to NaN when the block contains a NaN or an infinity, so that all of it decodes to NaN and an error
//     upstream shows instead of turning into plausible numbers.
#include <math.h>

#include "gguf/dtype_decode.h"

enum { HALF_MAX = 0x7bff, HALF_NAN = 0x7e00 };

static void store_u16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof(v));
}

// The largest magnitude of n elements; NaN or infinity when one of them is. The bits of magnitudes, as integers, have
// the order of the floats, with infinity and then NaNs at the top, so a single maximum finds all three.
static float largest_magnitude(const float *x, int n)
{
    uint32_t top = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        top = MAX(top, bits);
    }
    float f;
    memcpy(&f, &top, sizeof(f));
    return f;
}

// The half nearest to top / steps, or the next one when (steps + 0.5) times it is below top, which happens near 2^-24,
// where halves are far apart. No element is then off by more than half a step.
static uint16_t step_half(float top, int steps)
{
    uint16_t h = f32_to_f16(top / (float)steps);
    if (h >= HALF_MAX)
        return HALF_MAX;
    return f16_to_f32(h) * ((float)steps + 0.5f) < top ? h + 1 : h;
}

static float clamp(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static void clamp_all(float *out, const float *x, int n, float limit)
{
    for (int i = 0; i < n; i++)
        out[i] = clamp(x[i], -limit, limit);
}

// Rounds x to a whole number of steps, ties to even, limited to lo .. hi. With a step of 0 the number is 0, limited,
// too.
static int nearest(double x, double step, int lo, int hi)
{
    double q = step != 0 ? rint(x / step) : 0;
    return (int)fmax(lo, fmin(hi, q));
}

static void encode_f32(const float *x, void *blocks, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof(float));
}

static void encode_f16(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++)
        store_u16(b + 2 * i, f32_to_f16(x[i]));
}

static void encode_bf16(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i++)
        store_u16(b + 2 * i, f32_to_bf16(x[i]));
}

// With d, the largest magnitude is 127 steps. Elements are multiplied by 1/d instead of divided by d, because vector
// units multiply at full rate.
static void encode_q8_0(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 34, x += 32) {
        float top = largest_magnitude(x, 32);
        bool sound = isfinite(top);
        uint16_t h = sound ? step_half(top, 127) : HALF_NAN;
        float per_step = sound && h ? 1.0f / f16_to_f32(h) : 0.0f;
        store_u16(b, h);
        for (int i = 0; i < 32; i++) {
            float q = sound ? rintf(clamp(x[i] * per_step, -127.0f, 127.0f)) : 0.0f;
            b[2 + i] = (uint8_t)(int8_t)q;
        }
    }
}

// The element of the largest magnitude, with its sign.
static float largest(const float *x, int n)
{
    float top = 0;
    for (int i = 0; i < n; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    return top;
}

static uint8_t q4_0_nibble(float x, float per_step)
{
    return (uint8_t)(rintf(clamp(x * per_step, -8.0f, 7.0f)) + 8.0f);
}

// The element of the largest magnitude becomes -8, which decides the sign of d. An equally large element of the other
// sign is limited to 7.
static void encode_q4_0(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 18, x += 32) {
        memset(b, 0, 18);
        if (!isfinite(largest_magnitude(x, 32))) {
            store_u16(b, HALF_NAN);
            continue;
        }
        float top = largest(x, 32);
        uint16_t h = step_half(fabsf(top), 8) | (top > 0 ? 0x8000 : 0);
        float d = f16_to_f32(h), per_step = d != 0 ? 1.0f / d : 0.0f;
        store_u16(b, h);
        for (int i = 0; i < 16; i++)
            b[2 + i] = (uint8_t)(q4_0_nibble(x[i], per_step) | q4_0_nibble(x[i + 16], per_step) << 4);
    }
}

// x = scale q - min, q from 0 to top. Both are at least 0.
struct fit {
    double scale, min;
};

static int fit_q(struct fit fit, float x, int top)
{
    return nearest((double)x + fit.min, fit.scale, 0, top);
}

static double fit_error(struct fit fit, const float *x, int n, int top)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double e = fit.scale * fit_q(fit, x[i], top) - fit.min - x[i];
        sum += e * e;
    }
    return sum;
}

// The fit whose values range from the smallest element (or 0, because min cannot be negative) to the largest.
static struct fit fit_range(const float *x, int n, int top)
{
    double lo = 0, hi = x[0];
    for (int i = 0; i < n; i++) {
        lo = MIN(lo, x[i]); // not fmin and fmax: gcc 12 for ARM crashes on them
        hi = MAX(hi, x[i]);
    }
    return (struct fit){(hi - lo) / top, -lo};
}

// Fits scale and min by least squares to the q of the given fit. When min would be negative, it is 0 and only the
// scale is fitted.
static struct fit fit_refined(struct fit fit, const float *x, int n, int top)
{
    double sq = 0, sqq = 0, sx = 0, sqx = 0;
    for (int i = 0; i < n; i++) {
        double q = fit_q(fit, x[i], top);
        sq += q;
        sqq += q * q;
        sx += x[i];
        sqx += q * x[i];
    }
    double det = n * sqq - sq * sq;
    if (det <= 0) // all q are equal
        return fit;
    double scale = (n * sqx - sq * sx) / det;
    double min = (scale * sq - sx) / n;
    if (min < 0)
        return (struct fit){fmax(0, sqx / sqq), 0};
    return (struct fit){fmax(0, scale), min};
}

// The fit by range, refined while that reduces the error, but at most twice, which gives most of the gain.
static struct fit fit_sub_block(const float *x, int n, int top)
{
    struct fit best = fit_range(x, n, top);
    double error = fit_error(best, x, n, top);
    for (int pass = 0; pass < 2; pass++) {
        struct fit next = fit_refined(best, x, n, top);
        double next_error = fit_error(next, x, n, top);
        if (next_error >= error)
            break;
        best = next;
        error = next_error;
    }
    return best;
}

// The best min for the rounded scale. A sub-block whose scale is rounded to 0 thus decodes to its mean instead of its
// lowest value.
static double min_for_scale(struct fit fit, double scale, const float *x, int n, int top)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += scale * fit_q(fit, x[i], top) - x[i];
    return fmax(0, sum / n);
}

// Stores scale and min s of eight in the 12 bytes that q4_k_scale_min in dtype.c reads. The bytes must be zero before.
static void store_scale_min(uint8_t *p, int s, int scale, int min)
{
    if (s < 4) {
        p[s] |= (uint8_t)scale;
        p[s + 4] |= (uint8_t)min;
    } else {
        p[s + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
        p[s - 4] |= (uint8_t)(scale >> 4 << 6);
        p[s] |= (uint8_t)(min >> 4 << 6);
    }
}

// The part that Q4_K (top 15) and Q5_K (top 31) share: writes d, dmin and the scales (16 bytes) and computes all q.
static void encode_scales_mins(const float *source, int top, uint8_t *head, uint8_t q[256])
{
    memset(head, 0, 16);
    memset(q, 0, 256);
    if (!isfinite(largest_magnitude(source, 256))) {
        store_u16(head, HALF_NAN);
        return;
    }
    struct fit fits[8], most = {0, 0};
    float x[256];
    clamp_all(x, source, 256, 65504.0f * 63);
    for (int s = 0; s < 8; s++) {
        fits[s] = fit_sub_block(x + 32 * s, 32, top);
        most.scale = fmax(most.scale, fits[s].scale);
        most.min = fmax(most.min, fits[s].min);
    }
    store_u16(head, step_half((float)most.scale, 63));
    store_u16(head + 2, step_half((float)most.min, 63));
    double d = load_f16(head), dmin = load_f16(head + 2);
    for (int s = 0; s < 8; s++) {
        int scale = nearest(fits[s].scale, d, 0, 63);
        int min = nearest(min_for_scale(fits[s], d * scale, x + 32 * s, 32, top), dmin, 0, 63);
        store_scale_min(head + 4, s, scale, min);
        for (int i = 32 * s; i < 32 * s + 32; i++)
            q[i] = (uint8_t)fit_q((struct fit){d * scale, dmin * min}, x[i], top);
    }
}

// Stores the low four bits of q in the nibbles that decode_q4_k reads.
static void store_nibbles(uint8_t qs[128], const uint8_t q[256])
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *pair = q + i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

static void encode_q4_k(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks, q[256];
    for (; n > 0; n -= 256, b += 144, x += 256) {
        encode_scales_mins(x, 15, b, q);
        store_nibbles(b + 16, q);
    }
}

static void encode_q5_k(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks, q[256];
    for (; n > 0; n -= 256, b += 176, x += 256) {
        encode_scales_mins(x, 31, b, q);
        memset(b + 16, 0, 32);
        for (int i = 0; i < 256; i++)
            b[16 + i % 32] |= (uint8_t)(q[i] >> 4 << i / 32);
        store_nibbles(b + 48, q);
    }
}

// The scale, positive or negative, of x = scale q with q from -32 to 31. It starts from the largest element and is
// refined by least squares while that reduces the error.
static double fit_symmetric(const float *x, int n)
{
    double best = largest(x, n) / -32.0, best_error = INFINITY;
    double scale = best;
    for (int pass = 0; pass < 3; pass++) {
        double error = 0, sqx = 0, sqq = 0;
        for (int i = 0; i < n; i++) {
            double q = nearest(x[i], scale, -32, 31), e = scale * q - x[i];
            error += e * e;
            sqx += q * x[i];
            sqq += q * q;
        }
        if (error >= best_error)
            break;
        best = scale;
        best_error = error;
        scale = sqq > 0 ? sqx / sqq : 0;
    }
    return best;
}

// Stores `q`, which is the value of element i plus 32, in the bits that decode_q6_k reads. They must be zero before.
static void store_q6(uint8_t *b, int i, int q)
{
    int half = i / 128, k = i / 32 % 4, at = i % 32;
    b[half * 64 + k % 2 * 32 + at] |= (uint8_t)((q & 15) << k / 2 * 4);
    b[128 + half * 32 + at] |= (uint8_t)(q >> 4 << k * 2);
}

static void encode_q6_k_block(const float *source, uint8_t *b)
{
    memset(b, 0, 210);
    if (!isfinite(largest_magnitude(source, 256))) {
        store_u16(b + 208, HALF_NAN);
        return;
    }
    float x[256];
    clamp_all(x, source, 256, 65504.0f * 127 * 31);
    double scales[16], most = 0;
    for (int s = 0; s < 16; s++) {
        scales[s] = fit_symmetric(x + 16 * s, 16);
        most = fmax(most, fabs(scales[s]));
    }
    store_u16(b + 208, step_half((float)most, 127));
    double d = load_f16(b + 208);
    for (int s = 0; s < 16; s++) {
        int scale = nearest(scales[s], d, -127, 127);
        b[192 + s] = (uint8_t)(int8_t)scale;
        for (int i = 16 * s; i < 16 * s + 16; i++)
            store_q6(b, i, nearest(x[i], d * scale, -32, 31) + 32);
    }
}

static void encode_q6_k(const float *x, void *blocks, int64_t n)
{
    uint8_t *b = blocks;
    for (; n > 0; n -= 256, b += 210, x += 256)
        encode_q6_k_block(x, b);
}

dtype_encode_fn *const dtype_encode[DT_COUNT] = {
    [DT_F32] = encode_f32,   [DT_F16] = encode_f16,   [DT_BF16] = encode_bf16, [DT_Q8_0] = encode_q8_0,
    [DT_Q4_0] = encode_q4_0, [DT_Q4_K] = encode_q4_k, [DT_Q5_K] = encode_q5_k, [DT_Q6_K] = encode_q6_k,
};
