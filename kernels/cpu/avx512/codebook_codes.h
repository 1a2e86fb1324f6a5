// The codebooks of IQ1 to IQ3 and the digits of TQ1_0 as codes that fit a byte permute's table, or 16 bits of a gather.
//
// A code byte stands for four elements of two bits, the first lowest: in IQ2 0, 1, 2 for 8, 25, 43; in IQ1 for -1, 0,
// 1; in TQ1_0 the digit. In IQ3 it stands for two elements of three bits: of IQ3_XXS i for 8i + 4, but that bits 6 and
// 7 say of the first and the second that 62 is meant and not 60; of IQ3_S i for 2i + 1. An entry has two such bytes,
// kept in two tables, or as the low and the high byte of a number (with one number more at the end, for gathers read 32
// bits). Constant; any thread may read. Private to matmul_q8_avx512*.c.
#ifndef QUERN_AVX512_CODEBOOK_CODES_H
#define QUERN_AVX512_CODEBOOK_CODES_H

#include "gguf/base.h"

extern const uint8_t iq2_xxs_codes[2][256], iq2_xs_codes[2][512];
extern const uint16_t iq2_s_codes[1024 + 1];
extern const uint8_t iq3_xxs_codes[2][256], iq3_s_codes[2][512];
extern const uint16_t iq1_codes[2048 + 1];
extern const uint8_t tq1_codes[2][256]; // of a byte: digits 0-3, and digit 4

#endif
