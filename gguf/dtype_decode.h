// The scalar decoders by name, and the loads that they share. Private to gguf/; other code uses dtype_decode[].
//
// Blocks are bytes of a file and need no alignment; their numbers are little-endian.
#ifndef QUERN_DTYPE_DECODE_H
#define QUERN_DTYPE_DECODE_H

#include "gguf/dtype.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF blocks are little-endian, and the loads below assume that the machine is too"
#endif

static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

#define DTYPE(NAME, name, id, elements, bytes, kind) void decode_##name(const void *blocks, float *out, int64_t n);
#include "gguf/dtype.def"
#undef DTYPE

#endif
