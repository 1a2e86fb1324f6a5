// Gathers what the files of this level offer into its one table.
#include "kernels/cpu/level.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const struct kernels ISA_FN(kernels) = {
    .name = STRING(QUERN_ISA),
    .norm = ISA_FN(norm),
    .act = ISA_FN(act),
    .glu = ISA_FN(glu),
    .add = ISA_FN(add),
    .scale = ISA_FN(scale),
    .softcap = ISA_FN(softcap),
    .rope = ISA_FN(rope),
    .route = ISA_FN(route),
    .quantize_q8 = ISA_FN(quantize_q8),
    .combine = ISA_FN(combine),
    .encode = ISA_FN(encode_table),
    .decode = ISA_FN(decode_table),
    .quantize_blocks = ISA_FN(quantize_blocks),
    .quantize_k = ISA_FN(quantize_k),
    .quantize_grid = ISA_FN(quantize_grid),
    .attention = ISA_FN(attention),
    .matmul_q8 = ISA_FN(matmul_q8_table),
    .matmul_f32 = ISA_FN(matmul_f32_table),
};
