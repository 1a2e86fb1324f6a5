// Conversions between the tensor types and float32, bit-equal with gguf/dtype.c: floats, and the types of the KV cache,
// in vectors; the others by the functions of gguf/.
#include "kernels/cpu/vec.h"

// ---- plain floats

static void decode_f32(const void *blocks, float *x, int64_t n)
{
    memcpy(x, blocks, (size_t)n * sizeof(float));
}

static void encode_f32(const float *x, void *blocks, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof(float));
}

// Types of 16 bits: whole vectors, and a tail by way of a padded copy.
INLINE void decode_16(vec (*from)(const void *), const void *blocks, float *x, int64_t n)
{
    const char *b = blocks;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, from(b + 2 * i));
    if (i < n) {
        uint16_t padded[VEC] = {0};
        memcpy(padded, b + 2 * i, (size_t)(n - i) * 2);
        vec_store_n(x + i, from(padded), n - i);
    }
}

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

static void decode_f16(const void *blocks, float *x, int64_t n)
{
    decode_16(vec_from_f16, blocks, x, n);
}

static void decode_bf16(const void *blocks, float *x, int64_t n)
{
    decode_16(vec_from_bf16, blocks, x, n);
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

// The integers, times d.
INLINE void decode_i8(const int8_t q[32], float d, float *x)
{
    for (int i = 0; i < 32; i += VEC)
        vec_store(x + i, vec_from_i8(q + i) * d);
}

static void decode_q8_0(const void *blocks, float *x, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 34, x += 32)
        decode_i8((const int8_t *)b + 2, half_load(b), x);
}

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static void decode_q4_0(const void *blocks, float *x, int64_t n)
{
    const uint8_t *b = blocks;
    for (; n > 0; n -= 32, b += 18, x += 32) {
        bytes16 packed, q[2];
        memcpy(&packed, b + 2, sizeof(packed));
        q[0] = (packed & 15) - 8;
        q[1] = (packed >> 4) - 8;
        decode_i8((const int8_t *)q, half_load(b), x);
    }
}

// ---- the tables

// A type that has no function above goes to gguf/; integers are no weights, but F64 is.
#define GENERIC(NAME, name)                                                                                            \
    static void generic_##name(const void *blocks, float *x, int64_t n)                                                \
    {                                                                                                                  \
        dtype_decode[DT_##NAME](blocks, x, n);                                                                         \
    }
#define GENERIC_FLOAT GENERIC
#define GENERIC_QUANT GENERIC
#define GENERIC_INT(NAME, name)
#define DTYPE(NAME, name, id, elements, bytes, kind) GENERIC_##kind(NAME, name)
#include "gguf/dtype.def"
#undef DTYPE
GENERIC(F64, f64)

static void encode_q8_0(const float *x, void *blocks, int64_t n)
{
    dtype_encode[DT_Q8_0](x, blocks, n);
}

static void encode_q4_0(const float *x, void *blocks, int64_t n)
{
    dtype_encode[DT_Q4_0](x, blocks, n);
}

// What stands first is overridden by what stands below.
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
dtype_decode_fn *const ISA_FN(decode_table)[DT_COUNT] = {
#define ENTRY_FLOAT(name) generic_##name
#define ENTRY_QUANT(name) generic_##name
#define ENTRY_INT(name) NULL
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = ENTRY_##kind(name),
#include "gguf/dtype.def"
#undef DTYPE
    [DT_F64] = generic_f64,  [DT_F32] = decode_f32,   [DT_F16] = decode_f16,
    [DT_BF16] = decode_bf16, [DT_Q8_0] = decode_q8_0, [DT_Q4_0] = decode_q4_0,
};

dtype_encode_fn *const ISA_FN(encode_table)[DT_COUNT] = {
    [DT_F32] = encode_f32,   [DT_F16] = encode_f16,   [DT_BF16] = encode_bf16,
    [DT_Q8_0] = encode_q8_0, [DT_Q4_0] = encode_q4_0,
};
