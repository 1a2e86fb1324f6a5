// The names that a source file compiled once per ISA level gives its functions: ISA_FN(norm) is norm_avx2 in that
// level's library. kernels/cpu/meson.build passes -DQUERN_ISA=avx2.
#ifndef QUERN_LEVEL_H
#define QUERN_LEVEL_H

#include "kernels/cpu.h"
#include "kernels/cpu/kernels.h"

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa) ISA_PASTE_(name, isa)
#define ISA_FN(name) ISA_PASTE(name, QUERN_ISA)

// The head of a for loop, in place of `for (...)`:
//   UNROLL_FOR      every iteration is unrolled: the loop runs over registers, which have no address
//   UNROLL_FEW_FOR  four iterations at a time: the loop is short, and its last branch would be mispredicted
//   KEEP_LOOP_FOR   never unrolled: each iteration is long enough
#ifdef __clang__
#define UNROLL_FOR(...) _Pragma("clang loop unroll(full)") for (__VA_ARGS__)
#define UNROLL_FEW_FOR(...) _Pragma("clang loop unroll_count(4)") for (__VA_ARGS__)
#define KEEP_LOOP_FOR(...) _Pragma("clang loop unroll(disable)") for (__VA_ARGS__)
#else
#define UNROLL_FOR(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)
#define UNROLL_FEW_FOR(...) _Pragma("GCC unroll 4") for (__VA_ARGS__)
#define KEEP_LOOP_FOR(...) _Pragma("GCC unroll 1") for (__VA_ARGS__)
#endif

// How a level's CPUs read weights best (enum reading), as measured: AVX2 on Zen 3, AVX-512 on Zen 4, AMX, whose other
// files are of AVX-512 and which reads floats by row, on Emerald Rapids. A level that reads streams does so as the CPU's
// best one does (kernels_reading); one that reads by row always does.
#define READING_scalar READING_BY_ROW
#define READING_neon READING_BY_ROW
#define READING_dotprod READING_BY_ROW
#define READING_i8mm READING_BY_ROW
#define READING_avx2 READING_STREAMS
#define READING_avxvnni READING_STREAMS
#define READING_avx512 READING_PREFETCHED
#define READING_amx READING_PREFETCHED
#define ALWAYS_BY_ROW (ISA_FN(READING) == READING_BY_ROW)

// What the files of a level offer to level.c, which gathers them into `const struct kernels kernels_<isa>`; what each
// does is said in kernels.h.
extern matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT];    // matmul_q8_<family>.c
extern matmul_fn *const matmul_q8_table_amx[DT_COUNT];        // amx/matmul_q8.c, in the library of AVX-512
extern matmul_fn *const ISA_FN(matmul_f32_table)[DT_COUNT];   // matmul_f32.c
extern dtype_decode_fn *const ISA_FN(decode_table)[DT_COUNT]; // decode.c
extern dtype_encode_fn *const ISA_FN(encode_table)[DT_COUNT]; // encode.c
extern quantize_fn *const ISA_FN(quantize_blocks)[DT_COUNT];  // blocks_32.c
extern quantize_fn *const ISA_FN(quantize_k)[DT_COUNT];       // blocks_k.c
extern quantize_fn *const ISA_FN(quantize_grid)[DT_COUNT];    // blocks_codebook.c
bool matmul_q8_in_tiles_amx(enum dtype type, int64_t k, int64_t n, bool spare_adders);    // the same
bool matmul_q8_in_tiles_avx512(enum dtype type, int64_t k, int64_t n, bool spare_adders); // avx512/matmul_q8.c
void ISA_FN(attention)(const struct attention_args *a);                                   // attention.c

// rows.c
void ISA_FN(norm)(enum norm_kind kind, const float *x, const float *gain, const float *bias, float eps, int64_t n,
                  float *y);
void ISA_FN(act)(enum act_kind kind, const float *x, float *y, int64_t n);
void ISA_FN(glu)(enum act_kind kind, const float *gate, const float *up, float *y, int64_t n);
void ISA_FN(add)(const float *a, const float *b, float *y, int64_t n);
void ISA_FN(scale)(const float *x, float factor, float *y, int64_t n);
void ISA_FN(softcap)(const float *x, float cap, float *y, int64_t n);
void ISA_FN(rope)(const float *x, const float *table, int64_t n_pairs, int64_t head_dim, int64_t n_heads,
                  enum rope_layout layout, float *y);
void ISA_FN(route)(enum route_kind kind, const float *logits, int n_expert, int n_used, bool normalise, float scale,
                   float *weights, int32_t *ids);
void ISA_FN(combine)(const float *x, const float *weights, int n_used, int64_t n, float *y);

// quantize_q8.c
void ISA_FN(quantize_q8)(const float *x, int64_t k, void *row);
void ISA_FN(quantize_q8_columns)(const float *x, int64_t k, int64_t col, int64_t n, void *row);
void ISA_FN(quantize_q8_tiles)(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                               int column);
void ISA_FN(put_q8_tiles)(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column);
void quantize_q8_tiles_amx(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                           int column);
void put_q8_tiles_amx(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column);

#endif
