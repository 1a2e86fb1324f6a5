// Tensor types: how many numbers a block holds, in how many bytes, and what they mean.
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
    int block;        // elements a block
    int bytes;        // bytes a block
    enum dtype_kind kind;
};
extern const struct dtype_info dtype_info[DT_COUNT];

// The type with that id in a file: 0 and *out, or -1 with an error that names a removed or unknown type.
int dtype_from_id(uint32_t id, enum dtype *out, struct error *err);
// By name, in either case ("q4_k", "Q4_K"): -1 when there is none.
int dtype_from_name(struct str name, enum dtype *out);

// Bytes of a row of n elements, n a multiple of the block.
static inline size_t dtype_row_bytes(enum dtype type, int64_t n)
{
    return (size_t)(n / dtype_info[type].block) * (size_t)dtype_info[type].bytes;
}

// Decodes n elements (a multiple of the block) to float32. Types of kind INT but F64 have no decode: NULL in the table.
typedef void dtype_decode_fn(const void *blocks, float *out, int64_t n);
extern dtype_decode_fn *const dtype_decode[DT_COUNT];

// Encodes n elements by round to nearest, without weights of importance: what a KV cache and a synthetic model need.
// F32, F16, BF16, Q8_0, Q4_0 and the K-quants Q4_K, Q5_K, Q6_K; NULL for the others.
typedef void dtype_encode_fn(const float *x, void *blocks, int64_t n);
extern dtype_encode_fn *const dtype_encode[DT_COUNT];

// Half precision and bfloat16, to nearest even; NaN stays NaN, quiet.
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
