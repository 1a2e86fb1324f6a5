// The 8-bit matmul for AVX2: which of its regimes serves a call.
//
// The naive loop (matmul_q8_scalar.c): for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j], then
// a step of the float chain. Here a lane of a register is a row, so that nothing is added up across lanes. Weights are
// multiplied as they are unpacked, with up to eight columns at once (avx2/in_place.c); one column by types with blocks
// of 32 or with nibbles needs no lanes before a sub-block's sums (avx2/one_column.h). For many columns most
// types are unpacked to a panel once (avx2/panel.c). Types whose factors belong to runs within their blocks
// have one way for both (avx2/runs.c), and so have types with a codebook, whose rows stay as they lie
// (avx2/codebook.c).
#include "kernels/cpu/avx2/matmul_q8.h"

static void matmul(const struct matmul_args *a)
{
    (ISA_FN(matmul_q8_fits_in_place)(a) ? ISA_FN(matmul_q8_in_place) : ISA_FN(matmul_q8_panel))(a);
}

// clang-format off
matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT] = {
    [DT_Q4_0] = matmul,   [DT_Q4_1] = matmul,   [DT_Q5_0] = matmul,  [DT_Q5_1] = matmul, [DT_Q8_0] = matmul,
    [DT_Q2_K] = matmul,   [DT_Q3_K] = matmul,   [DT_Q4_K] = matmul,  [DT_Q5_K] = matmul, [DT_Q6_K] = matmul,
    [DT_IQ4_NL] = matmul, [DT_IQ4_XS] = matmul, [DT_MXFP4] = matmul, [DT_TQ1_0] = matmul, [DT_TQ2_0] = matmul,
    [DT_Q1_0] = ISA_FN(matmul_q8_q1_0),       [DT_Q2_0] = ISA_FN(matmul_q8_q2_0),
    [DT_NVFP4] = ISA_FN(matmul_q8_nvfp4),     [DT_IQ1_S] = ISA_FN(matmul_q8_iq1_s),
    [DT_IQ1_M] = ISA_FN(matmul_q8_iq1_m),     [DT_IQ2_XXS] = ISA_FN(matmul_q8_iq2_xxs),
    [DT_IQ2_XS] = ISA_FN(matmul_q8_iq2_xs),   [DT_IQ2_S] = ISA_FN(matmul_q8_iq2_s),
    [DT_IQ3_XXS] = ISA_FN(matmul_q8_iq3_xxs), [DT_IQ3_S] = ISA_FN(matmul_q8_iq3_s),
};
// clang-format on
