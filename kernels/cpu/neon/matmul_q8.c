// The 8-bit matmul for 64-bit ARM: chooses the kernel that serves a call.
//
// y[j][r] = sum over k of W[r][k] * x[j][k], in the order of kernels.h.
//   - One or two columns are memory-bound. Weights are multiplied as they are unpacked: in_place.c.
//   - More columns are compute-bound. Up to 32 rows are unpacked to panels of eight rows once, and all columns are
//     multiplied with them: panel.c.
//   - Q1_0, Q2_0 and NVFP4, whose factors are of runs, have a kernel of their own for any number of columns: runs.c.
#include "kernels/cpu/neon/matmul_q8.h"

static void multiply(const struct matmul_args *a)
{
    (a->n_x <= 2 ? ISA_FN(matmul_q8_in_place) : ISA_FN(matmul_q8_panel))[a->type](a);
}

matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT] = {
    [DT_Q4_0] = multiply,
    [DT_Q4_1] = multiply,
    [DT_Q5_0] = multiply,
    [DT_Q5_1] = multiply,
    [DT_Q8_0] = multiply,
    [DT_Q2_K] = multiply,
    [DT_Q3_K] = multiply,
    [DT_Q4_K] = multiply,
    [DT_Q5_K] = multiply,
    [DT_Q6_K] = multiply,
    [DT_IQ4_NL] = multiply,
    [DT_IQ4_XS] = multiply,
    [DT_MXFP4] = multiply,
    [DT_IQ1_S] = multiply,
    [DT_IQ1_M] = multiply,
    [DT_IQ2_XXS] = multiply,
    [DT_IQ2_XS] = multiply,
    [DT_IQ2_S] = multiply,
    [DT_IQ3_XXS] = multiply,
    [DT_IQ3_S] = multiply,
    [DT_TQ1_0] = multiply,
    [DT_TQ2_0] = multiply,
    [DT_Q1_0] = ISA_FN(matmul_q8_q1_0),
    [DT_Q2_0] = ISA_FN(matmul_q8_q2_0),
    [DT_NVFP4] = ISA_FN(matmul_q8_nvfp4),
};
