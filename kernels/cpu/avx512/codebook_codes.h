// The codebooks of IQ1 to IQ3 and the digits of TQ1_0 as small codes, which fit the table of a byte permute or the 16
// bits of a gather.
//
// A code byte stands for several elements, the first in the lowest bits:
//   IQ2      four elements of two bits; 0, 1, 2 mean 8, 25, 43
//   IQ1      four elements of two bits; 0, 1, 2 mean -1, 0, 1
//   TQ1_0    four digits of two bits
//   IQ3_S    two elements of three bits; i means 2i + 1
//   IQ3_XXS  two elements of three bits; i means 8i + 4, but 62 where that is 60: bit 6 (first element) and bit 7
//            (second element) say that 2 is to be added
// An entry of a codebook is two code bytes. They are in two tables, [0] and [1], or are the low and the high byte of a
// 16-bit number (these tables have one more number at the end, because gathers load 32 bits).
//
// The tables are constant; any thread may read them. Private to kernels/cpu/avx512/ and kernels/cpu/amx/.
#ifndef QUERN_AVX512_CODEBOOK_CODES_H
#define QUERN_AVX512_CODEBOOK_CODES_H

#include "gguf/base.h"

extern const uint8_t iq2_xxs_codes[2][256], iq2_xs_codes[2][512];
extern const uint16_t iq2_s_codes[1024 + 1];
extern const uint8_t iq3_xxs_codes[2][256], iq3_s_codes[2][512];
extern const uint16_t iq1_codes[2048 + 1];
extern const uint8_t tq1_codes[2][256]; // of a byte: digits 0-3, and digit 4

#endif
