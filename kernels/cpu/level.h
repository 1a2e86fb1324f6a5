// The names that a source file compiled once per ISA level gives its functions: ISA_FN(norm) is norm_avx2 in that level's
// library. kernels/cpu/meson.build passes -DQUERN_ISA=avx2.
#ifndef QUERN_LEVEL_H
#define QUERN_LEVEL_H

#include "kernels/cpu/kernels.h"

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa) ISA_PASTE_(name, isa)
#define ISA_FN(name) ISA_PASTE(name, QUERN_ISA)

// What the files of a level offer to level.c, which gathers them into `const struct kernels kernels_<isa>`.
extern matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT];   // matmul_q8_<family>.c
extern matmul_fn *const ISA_FN(matmul_f32_table)[DT_COUNT];  // matmul_f32.c

#endif
