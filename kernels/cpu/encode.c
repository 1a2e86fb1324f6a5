// Converts float32 to the types of the KV cache: F32, F16, BF16, Q8_0 and Q4_0. The results have the same bits as those
// of gguf/dtype_encode.c, whose plain loops over elements become loops over vectors of VEC elements here.
//
// Q8_0 and Q4_0 round a block of 32 elements to multiples of its scale d, a float16. An element x becomes the integer
// nearest to x * (1 / d), ties to even, limited to -127 .. 127 in Q8_0 and to -8 .. 7 in Q4_0; it is 0 if d is 0. If
// an element of the block is not finite, d is NaN and the integers' bits are 0.
//
// The file is compiled once for each ISA level.
#include "kernels/cpu/vec.h"

static void encode_f32(const float *x, void *blocks, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof(float));
}

// Converts to a type of 16 bits. `to` converts and stores one vector. The last n % VEC elements are converted as a
// padded vector and then copied.
INLINE void encode_16(void (*to)(void *, vec), const float *x, void *blocks, int64_t n)
{
    char *b = blocks;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        to(b + 2 * i, vec_load(x + i));
    if (i < n) {
        uint16_t padded[VEC];
        to(padded, vec_load_n(x + i, n - i));
        memcpy(b + 2 * i, padded, (size_t)(n - i) * 2);
    }
}

static void encode_f16(const float *x, void *blocks, int64_t n)
{
    encode_16(vec_to_f16, x, blocks, n);
}

static void encode_bf16(const float *x, void *blocks, int64_t n)
{
    encode_16(vec_to_bf16, x, blocks, n);
}

// ---- blocks of 32

// Bits of float16 numbers: a NaN, the largest finite number, and the sign.
enum { HALF_NAN = 0x7e00, HALF_MAX = 0x7bff, HALF_SIGN = 0x8000 };

// The largest magnitude of 32 elements. The bits of magnitudes are compared as integers, among which infinity is
// greater than all finite numbers and a NaN is greater still. So the result is not finite if any element is not.
static float largest_magnitude(const float x[32])
{
    veci top = {0};
    for (int i = 0; i < 32; i += VEC)
        top = veci_max(top, (veci)vec_abs(vec_load(x + i)));
    int32_t bits = veci_greatest(top);
    return float_load(&bits);
}

// The magnitude of the scale, as the bits of a float16, for a largest magnitude of `top`, which should be `steps` times
// the scale. It is the float16 h nearest to top / steps, or the next larger one if h * (steps + 0.5) < top. The latter
// happens near 2^-24, where float16 numbers are far apart. It is at most HALF_MAX.
static uint16_t step_half(float top, float steps)
{
    uint16_t h = f32_to_f16(top / steps);
    if (h >= HALF_MAX)
        return HALF_MAX;
    return half_load(&h) * (steps + 0.5f) < top ? h + 1 : h;
}

static void encode_q8_0(const float *x, void *blocks, int64_t n)
{
    for (uint8_t *b = blocks; n > 0; n -= 32, b += 34, x += 32) {
        float top = largest_magnitude(x);
        bool sound = isfinite(top);
        uint16_t h = sound ? step_half(top, 127) : HALF_NAN;
        float per_step = sound && h ? 1.0f / half_load(&h) : 0.0f;
        memcpy(b, &h, sizeof(h));
        if (per_step == 0)
            memset(b + 2, 0, 32);
        for (int i = 0; per_step > 0 && i < 32; i += VEC) {
            vec q = vec_at_most(vec_all(127), vec_at_least(vec_all(-127), vec_load(x + i) * per_step));
            veci_to_i8(b + 2 + i, (veci)(q + ROUND_MAGIC)); // the low byte of the sum is that of the integer
        }
    }
}

// Whether the first element whose magnitude is `top` is positive. `top` is the largest magnitude and finite.
//
// The bits of floats are compared as integers. The maximum of all x is then the largest positive element, and the
// maximum of all -x is the largest magnitude of a negative element. The greater of the two decides. Only if they are
// equal does a loop search for the first element of that magnitude.
static bool is_largest_positive(const float x[32], float top)
{
    veci above = (veci)vec_load(x), below = (veci)-vec_load(x);
    for (int i = VEC; i < 32; i += VEC) {
        above = veci_max(above, (veci)vec_load(x + i));
        below = veci_max(below, (veci)-vec_load(x + i));
    }
    const int32_t bits_above = veci_greatest(above), bits_below = veci_greatest(below);
    int first = 0;
    while (bits_above == bits_below && first < 31 && fabsf(x[first]) != top)
        first++;
    return top > 0 && (bits_above == bits_below ? x[first] > 0 : bits_above > bits_below);
}

// The codes of VEC elements, each in the low byte of its lane. A code is the rounded value plus 8, from 0 to 15.
INLINE veci nibbles(const float *x, float per_step)
{
    vec q = vec_at_most(vec_all(7), vec_at_least(vec_all(-8), vec_load(x) * per_step));
    return (veci)(q + (ROUND_MAGIC + 8));
}

// The range -8 .. 7 has no 8. So the sign of the scale is chosen such that the first element of the largest magnitude
// becomes -8. Byte i of a block holds the codes of element i (low nibble) and element 16 + i (high nibble).
static void encode_q4_0(const float *x, void *blocks, int64_t n)
{
    for (uint8_t *b = blocks; n > 0; n -= 32, b += 18, x += 32) {
        float top = largest_magnitude(x);
        bool sound = isfinite(top);
        uint16_t h = sound ? step_half(top, 8) | (is_largest_positive(x, top) ? HALF_SIGN : 0) : HALF_NAN;
        float d = half_load(&h), per_step = sound && d != 0 ? 1.0f / d : 0.0f;
        memcpy(b, &h, sizeof(h));
        if (!sound)
            memset(b + 2, 0, 16);
        for (int i = 0; sound && i < 16; i += VEC)
            veci_to_i8(b + 2 + i, nibbles(x + i, per_step) | nibbles(x + 16 + i, per_step) << 4);
    }
}

dtype_encode_fn *const ISA_FN(encode_table)[DT_COUNT] = {
    [DT_F32] = encode_f32,   [DT_F16] = encode_f16,   [DT_BF16] = encode_bf16,
    [DT_Q8_0] = encode_q8_0, [DT_Q4_0] = encode_q4_0,
};
