// Codebooks of the IQ types, shared by the scalar decoders and the kernels. Constant; any thread may read.
//
// An entry is 4 or 8 small numbers, a byte each, the first in the low byte. The IQ2 and IQ3 books hold magnitudes
// (signs are stored apart in the block); the IQ1 book, which IQ1_S and IQ1_M share, holds -1, 0 and 1 as int8.
#ifndef QUERN_DTYPE_IQ_H
#define QUERN_DTYPE_IQ_H

#include "gguf/base.h"

enum {
    GRID_ROOM = 3
}; // behind the last entry of 4 bytes: each may be read as 16, of which those that follow are not used

extern const uint64_t iq2_xxs_grid[256];
extern const uint64_t iq2_xs_grid[512];
extern const uint64_t iq2_s_grid[1024];
extern const uint32_t iq3_xxs_grid[256 + GRID_ROOM];
extern const uint32_t iq3_s_grid[512 + GRID_ROOM];
extern const uint64_t iq1_grid[2048];

extern const int8_t iq4_values[16]; // IQ4_NL and IQ4_XS: what a nibble stands for
extern const int8_t fp4_values[16]; // MXFP4 and NVFP4: e2m1, twice its value, so that it is whole

// Seven stored sign bits stand for eight signs: the eighth makes their number even. Bit i set: element i is negative.
static inline uint8_t iq_signs(uint32_t seven_bits)
{
    return (uint8_t)(seven_bits | (uint32_t)__builtin_parity(seven_bits) << 7);
}

#endif
