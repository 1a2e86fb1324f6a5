// Tensor types: how many numbers a block holds, in how many bytes, and how they are decoded.
//
// The scalar decode is the definition of the format: every fast path is compared with it, bit for bit. All functions
// are pure; any thread may call them. Blocks need no alignment.
#ifndef QUERN_DTYPE_H
#define QUERN_DTYPE_H

#include "gguf/base.h"

enum dtype {
#define DTYPE(NAME, name, id, elements, bytes, kind) DT_##NAME,
#include "gguf/dtype.def"
#undef DTYPE
    DT_COUNT
};

enum dtype_kind { DTYPE_KIND_FLOAT, DTYPE_KIND_QUANT, DTYPE_KIND_INT };

struct dtype_info {
    const char *name; // as users write it: "Q4_K"
    uint32_t id;      // in a GGUF file
    int block;        // elements per block
    int bytes;        // bytes per block
    enum dtype_kind kind;
};
extern const struct dtype_info dtype_info[DT_COUNT];

// Finds the type with this id in a file. -1 with an error that names a removed or unknown type.
int dtype_from_id(uint32_t id, enum dtype *out, struct error *err);
// Finds a type by name, in upper or lower case ("q4_k", "Q4_K"). -1 when there is none.
int dtype_from_name(struct str name, enum dtype *out);

// Bytes of a row of n elements, n a multiple of the block.
static inline size_t dtype_row_bytes(enum dtype type, int64_t n)
{
    return (size_t)(n / dtype_info[type].block) * (size_t)dtype_info[type].bytes;
}

// Decodes n elements (a multiple of the block) to float32. NULL in the table for types of kind INT, except F64.
typedef void dtype_decode_fn(const void *blocks, float *out, int64_t n);
extern dtype_decode_fn *const dtype_decode[DT_COUNT];

// Encodes n elements by rounding to nearest, without an importance matrix, for KV caches and synthetic models. There
// are encoders for F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K; NULL for the other types.
typedef void dtype_encode_fn(const float *x, void *blocks, int64_t n);
extern dtype_encode_fn *const dtype_encode[DT_COUNT];

// Conversions of half precision and bfloat16. They round to nearest, ties to even; a NaN becomes a quiet NaN.
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
static inline float bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
uint16_t f32_to_bf16(float f);

#endif
