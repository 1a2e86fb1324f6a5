// Emits code that unpacks a part (32 weights) to bytes, for the types whose weights are a small integer times a
// scale. Products with 8-bit activations use the bytes; emit_type.c converts them to floats.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_BYTES_H
#define QUERN_EMIT_BYTES_H

#include "kernels/ptx/emit_type.h"

enum ptx_scale {
    PTX_SCALE_NONE,  // the type is none of these
    PTX_SCALE_FLOAT, // of the part, in floats: w = %d * (q - less), with a minimum w = %d * q + %m
    PTX_SCALE_16,    // in integers, for runs of 16: w = %d * %s<run> * (q - less), with minima less %m * %n<run>
    PTX_SCALE_32,    // the same for the part: %s0 and %n0
};
struct ptx_bytes {
    enum ptx_scale scales;
    uint8_t less;
    bool min, is_signed; // is_signed: q is; otherwise it is 0 to 63, before less is taken off
};
const struct ptx_bytes *ptx_bytes_of(enum dtype type); // NULL: none

// %q0 to %q7 = the part's 32 q, and its scales. Needs what ptx_type_part needs, and PTX_PART_REGS declared.
void ptx_type_bytes(const struct ptx_part *part);

#define PTX_PART_REGS                                                                                                  \
    "    .reg .pred %pred;\n"                                                                                          \
    "    .reg .b16 %h, %h1;\n"                                                                                         \
    "    .reg .b32 %q<8>, %x<8>, %t<4>, %s<2>, %n<2>;\n"                                                               \
    "    .reg .u64 %at, %piece;\n"                                                                                     \
    "    .reg .f32 %d, %m;\n"

#endif
