// The codebooks of IQ1 to IQ3 and the digits of TQ1_0 as small codes, which fit the table of a byte permute or the 16
// bits of a gather.
//
// A code byte stands for four elements of two bits each, the first in the lowest bits: in IQ2 0, 1, 2 mean 8, 25, 43;
// in IQ1 they mean -1, 0, 1; in TQ1_0 they are the digit. In IQ3 a code byte stands for two elements of three bits
// each: in IQ3_S i means 2i + 1; in IQ3_XXS i means 8i + 4, and bits 6 and 7 add 2 to the first and to the second
// element (62 instead of 60). An entry of a codebook has two such bytes. They are in two tables, or are the low and
// the high byte of a number (with one more number at the end, because gathers load 32 bits).
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
