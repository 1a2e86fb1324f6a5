// Codebooks of the IQ types, shared by the scalar decoders and the kernels. They are constant; any thread may read
// them.
//
// An entry has 4 or 8 small numbers, one byte each, the first in the low byte. The codebooks of IQ2 and IQ3 hold
// magnitudes, because a block stores signs separately. The codebook of IQ1_S and IQ1_M holds -1, 0 and 1 as int8.
#ifndef QUERN_DTYPE_IQ_H
#define QUERN_DTYPE_IQ_H

#include "gguf/base.h"

// Entries of padding after a grid with entries of 4 bytes, because kernels may read 16 bytes for each entry.
enum { GRID_ROOM = 3 };

extern const uint64_t iq2_xxs_grid[256];
extern const uint64_t iq2_xs_grid[512];
extern const uint64_t iq2_s_grid[1024];
extern const uint32_t iq3_xxs_grid[256 + GRID_ROOM];
extern const uint32_t iq3_s_grid[512 + GRID_ROOM];
extern const uint64_t iq1_grid[2048];

extern const int8_t iq4_values[16]; // IQ4_NL and IQ4_XS: the values of a nibble
extern const int8_t fp4_values[16]; // MXFP4 and NVFP4: twice the values of e2m1, which are integers

// The eight signs for seven stored sign bits: the eighth makes the number of set bits even. Bit i set: element i is
// negative.
static inline uint8_t iq_signs(uint32_t seven_bits)
{
    return (uint8_t)(seven_bits | (uint32_t)__builtin_parity(seven_bits) << 7);
}

#endif
