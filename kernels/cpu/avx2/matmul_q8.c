// The 8-bit matmul for AVX2, with or without AVX-VNNI: chooses the kernel that serves a call.
//
// y[j][r] = sum over k of W[r][k] * x[j][k], in the order of kernels.h. The naive loop (matmul_q8_scalar.c): for each
// row, column and block of 256, isum = sum of scale[j] * (w . q)[j], then D = fma(isum * d, da, D). In most kernels
// lane r of a register belongs to row r, so that nothing has to be added up across lanes. The choice depends on the
// type and the number of columns:
//   - One column of types with nibbles or blocks of 32, without AVX-VNNI: the rows are not transposed before the
//     products, one_column.c.
//   - A few columns (up to matmul_q8_in_place_columns of the type) are memory-bound. Weights are multiplied as they
//     are unpacked and never stored: in_place.c.
//   - More columns are compute-bound. Rows are unpacked to a panel once, and all columns are multiplied with it:
//     panel.c. It also serves rows that are so long that the scratch does not hold their columns.
//   - Types with factors of runs within their blocks, and types with a codebook, have one file each for any number of
//     columns: runs.c and codebook.c.
#include "kernels/cpu/avx2/matmul_q8.h"

static matmul_fn *one_column(enum dtype type)
{
#ifdef __AVXVNNI__
    (void)type;
    return NULL;
#else
    return ISA_FN(matmul_q8_one_column)[type];
#endif
}

static void matmul(const struct matmul_args *a)
{
    if (a->n_x > ISA_FN(matmul_q8_in_place_columns)[a->type] || !packed_columns_fit(a))
        ISA_FN(matmul_q8_panel)(a);
    else if (a->n_x == 1 && one_column(a->type))
        one_column(a->type)(a);
    else
        ISA_FN(matmul_q8_in_place)(a);
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
