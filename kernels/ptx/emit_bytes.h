// Emits code that unpacks a part (32 weights) to bytes, for the types whose weights are a small integer times a
// scale. Products with 8-bit activations use the bytes; emit_type.c converts them to floats.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_BYTES_H
#define QUERN_EMIT_BYTES_H

#include "kernels/ptx/emit_type.h"

enum ptx_scale {
    PTX_SCALE_NONE,     // the type has no such form
    PTX_SCALE_FLOAT,    // a float for each part: w = %d * (q - less), or with a minimum w = %d * q + %m
    PTX_SCALE_FLOAT_16, // a float for each run of 16: %d of the first, %m of the second
    // An integer for each run of 16: w = %d * %s<run> * (q - less), or with minima w = %d * %s<run> * q - %m *
    // %n<run>.
    PTX_SCALE_16,
    PTX_SCALE_32, // the same with one integer for the whole part: %s0 and %n0
};
struct ptx_bytes {
    enum ptx_scale scales;
    uint8_t less;
    bool min, is_signed; // is_signed: q is signed; otherwise q is 0 to 63 before `less` is subtracted
};
const struct ptx_bytes *ptx_bytes_of(enum dtype type); // NULL: the type has no such form

// Sets %q0 to %q7 to the 32 q of a part, and sets the scales. Has the inputs of ptx_type_part, and needs the
// registers of PTX_PART_REGS.
void ptx_type_bytes(const struct ptx_part *part);

#define PTX_PART_REGS                                                                                                  \
    "    .reg .pred %pred;\n"                                                                                          \
    "    .reg .b16 %h, %h1;\n"                                                                                         \
    "    .reg .b32 %q<8>, %x<8>, %t<4>, %s<2>, %n<2>;\n"                                                               \
    "    .reg .u64 %at, %piece;\n"                                                                                     \
    "    .reg .f32 %d, %m;\n"

#endif
