// From float32 to the types of the KV cache, bit-equal with gguf/dtype_encode.c: floats in vectors, the blocks by the
// functions of gguf/.
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

static void encode_q8_0(const float *x, void *blocks, int64_t n)
{
    dtype_encode[DT_Q8_0](x, blocks, n);
}

static void encode_q4_0(const float *x, void *blocks, int64_t n)
{
    dtype_encode[DT_Q4_0](x, blocks, n);
}

dtype_encode_fn *const ISA_FN(encode_table)[DT_COUNT] = {
    [DT_F32] = encode_f32,   [DT_F16] = encode_f16,   [DT_BF16] = encode_bf16,
    [DT_Q8_0] = encode_q8_0, [DT_Q4_0] = encode_q4_0,
};
