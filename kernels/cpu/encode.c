// From float32 to the types of the KV cache, bit-equal with gguf/dtype_encode.c: floats and Q8_0 in vectors.
#include "kernels/cpu/vec.h"

static void encode_f32(const float *x, void *blocks, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof(float));
}

// Types of 16 bits: whole vectors, and a tail by way of a padded copy.
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

// The largest magnitude: NaN or infinity when one element is, for so integers order the bits.
static float largest_magnitude(const float x[32])
{
    veci top = {0};
    for (int i = 0; i < 32; i += VEC)
        top = veci_max(top, (veci)vec_abs(vec_load(x + i)));
    int32_t bits = veci_greatest(top);
    return float_load(&bits);
}

// The half nearest to top / 127, or the next one where halfs lie so far apart that 127.5 steps do not reach top.
static uint16_t step_half(float top)
{
    uint16_t h = f32_to_f16(top / 127.0f);
    if (h >= 0x7bff)
        return 0x7bff;
    return half_load(&h) * 127.5f < top ? h + 1 : h;
}

static void encode_q8_0(const float *x, void *blocks, int64_t n)
{
    for (uint8_t *b = blocks; n > 0; n -= 32, b += 34, x += 32) {
        float top = largest_magnitude(x);
        bool sound = isfinite(top);
        uint16_t h = sound ? step_half(top) : 0x7e00;
        float per_step = sound && h ? 1.0f / half_load(&h) : 0.0f;
        memcpy(b, &h, sizeof(h));
        if (per_step == 0)
            memset(b + 2, 0, 32);
        for (int i = 0; per_step > 0 && i < 32; i += VEC) {
            vec q = vec_at_most(vec_all(127), vec_at_least(vec_all(-127), vec_load(x + i) * per_step));
            veci_to_i8(b + 2 + i, (veci)(q + ROUND_MAGIC)); // whose low byte is the integer's
        }
    }
}

static void encode_q4_0(const float *x, void *blocks, int64_t n)
{
    dtype_encode[DT_Q4_0](x, blocks, n);
}

dtype_encode_fn *const ISA_FN(encode_table)[DT_COUNT] = {
    [DT_F32] = encode_f32,   [DT_F16] = encode_f16,   [DT_BF16] = encode_bf16,
    [DT_Q8_0] = encode_q8_0, [DT_Q4_0] = encode_q4_0,
};
