// For source files that are compiled once for each ISA level: the names of their functions, loop pragmas, and what
// these files offer to level.c. ISA_FN(norm) is norm_avx2 in the library of the AVX2 level, for which
// kernels/cpu/meson.build passes -DQUERN_ISA=avx2.
//
// Private to the files of the levels. Nothing here has state.
#ifndef QUERN_LEVEL_H
#define QUERN_LEVEL_H

#include "kernels/cpu.h"
#include "kernels/cpu/kernels.h"

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa) ISA_PASTE_(name, isa)
#define ISA_FN(name) ISA_PASTE(name, QUERN_ISA)

// Heads of for loops, in place of `for (...)`:
//   UNROLL_FOR      unrolls all iterations. It is needed for loops over registers, which cannot be indexed.
//   UNROLL_FEW_FOR  unrolls four iterations. It is for short loops, whose last branch would be mispredicted.
//   KEEP_LOOP_FOR   never unrolls. It is for loops whose iterations are long.
#ifdef __clang__
#define UNROLL_FOR(...) _Pragma("clang loop unroll(full)") for (__VA_ARGS__)
#define UNROLL_FEW_FOR(...) _Pragma("clang loop unroll_count(4)") for (__VA_ARGS__)
#define KEEP_LOOP_FOR(...) _Pragma("clang loop unroll(disable)") for (__VA_ARGS__)
#else
#define UNROLL_FOR(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)
#define UNROLL_FEW_FOR(...) _Pragma("GCC unroll 4") for (__VA_ARGS__)
#define KEEP_LOOP_FOR(...) _Pragma("GCC unroll 1") for (__VA_ARGS__)
#endif

// How the CPUs of a level read weights fastest (enum reading): measured for AVX2 on Zen 3, for AVX-512 on Zen 4 and for
// AMX on Emerald Rapids, where floats are read by row. A level that reads streams uses the mode of the CPU's best level
// (kernels_reading). A level that reads by row always does so.
#define READING_scalar READING_BY_ROW
#define READING_neon READING_BY_ROW
#define READING_dotprod READING_BY_ROW
#define READING_i8mm READING_BY_ROW
#define READING_avx2 READING_STREAMS
#define READING_avxvnni READING_STREAMS
#define READING_avx512 READING_PREFETCHED
#define READING_amx READING_PREFETCHED
#define ALWAYS_BY_ROW (ISA_FN(READING) == READING_BY_ROW)

// What the files of a level offer to level.c, which makes `const struct kernels kernels_<isa>` of it. kernels.h says
// what each function does.
extern matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT];    // <folder>/matmul_q8.c, matmul_q8_scalar.c
extern matmul_fn *const matmul_q8_table_amx[DT_COUNT];        // amx/matmul_q8.c, in the library of AVX-512
extern matmul_fn *const ISA_FN(matmul_f32_table)[DT_COUNT];   // matmul_f32.c
extern dtype_decode_fn *const ISA_FN(decode_table)[DT_COUNT]; // decode.c
extern dtype_encode_fn *const ISA_FN(encode_table)[DT_COUNT]; // encode.c
extern quantize_fn *const ISA_FN(quantize_blocks)[DT_COUNT];  // quantize/blocks_32.c
extern quantize_fn *const ISA_FN(quantize_k)[DT_COUNT];       // quantize/blocks_k.c
extern quantize_fn *const ISA_FN(quantize_grid)[DT_COUNT];    // quantize/blocks_codebook.c
bool matmul_q8_in_tiles_amx(enum dtype type, int64_t k, int64_t n, bool spare_adders);    // amx/matmul_q8.c
bool matmul_q8_in_tiles_avx512(enum dtype type, int64_t k, int64_t n, bool spare_adders); // avx512/matmul_q8.c
void ISA_FN(attention)(const struct attention_args *a);                                   // attention.c
void ISA_FN(short_conv)(const struct conv_args *a);                                       // scan.c
void ISA_FN(delta_rule)(const struct delta_args *a);
void ISA_FN(selective_scan)(const struct scan_args *a);

// rows.c
void ISA_FN(norm)(enum norm_kind kind, const float *x, const float *gain, const float *bias, float eps, int64_t n,
                  float *y);
void ISA_FN(act)(enum act_kind kind, const float *x, float *y, int64_t n);
void ISA_FN(glu)(enum act_kind kind, const float *gate, const float *up, float *y, int64_t n);
void ISA_FN(add)(const float *a, const float *b, float *y, int64_t n);
void ISA_FN(scale)(const float *x, float factor, float *y, int64_t n);
void ISA_FN(softcap)(const float *x, float cap, float *y, int64_t n);
void ISA_FN(clamp)(const float *x, float limit, float *y, int64_t n);
void ISA_FN(xielu)(const struct xielu_params *p, const float *x, float *y, int64_t n);
void ISA_FN(rope)(const float *x, const float *table, int64_t n_pairs, int64_t head_dim, int64_t n_heads,
                  enum rope_layout layout, float *y);
void ISA_FN(route)(const struct route_args *a, const float *logits, float *weights, int32_t *ids);
void ISA_FN(combine)(const float *x, const float *weights, int n_used, int64_t n, float *y);

// quantize_q8.c
void ISA_FN(quantize_q8)(const float *x, int64_t k, void *row);
void ISA_FN(quantize_q8_columns)(const float *x, int64_t k, int64_t col, int64_t n, void *row);
void ISA_FN(quantize_q8_tiles)(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                               int column);
void ISA_FN(put_q8_tiles)(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column);
// In the library of AVX-512:
void quantize_q8_tiles_amx(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                           int column);
void put_q8_tiles_amx(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column);

#endif
