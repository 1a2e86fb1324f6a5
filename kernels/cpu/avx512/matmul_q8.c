// The 8-bit matmul of AVX-512 with VNNI and VBMI: chooses the kernel that serves a call.
//
// y[j][r] = sum over k of W[r][k] * x[j][k], in the order of kernels.h. The choice depends on the type, the number of
// columns, the reading mode and spare_adders. The first rule that applies decides:
//   1. Columns that the caller passes in tiles (x_tiles) are multiplied by panel.c.
//   2. On CPUs with spare_adders (which shuffle in parallel with their products), 16 rows or more with 3 to 64 columns
//      (some types: from 4, 5 or 6 on), but not of types with a codebook, of three values or with factors of runs: the
//      words of 16 rows are transposed, unpacked and multiplied in registers, transposed.c. The exact limits are in
//      matmul_q8_is_transposed.
//   3. A few columns (up to matmul_q8_in_place_columns of the type and reading mode: 4 to 7, or 12 to 31 of types with
//      a codebook, of three values or with factors of runs) are memory-bound. Each block is read once, in place:
//      in_place_256.c and in_place_32.c, codebook.c and codebook_few.c, runs.c.
//   4. More columns are compute-bound. A panel of 64 rows (16 with few columns) is unpacked once, and all columns are
//      multiplied with it: panel.c.
#include "kernels/cpu/avx512/matmul_q8.h"

static bool is_in_place(const struct matmul_args *a)
{
    return a->n_x <= ISA_FN(matmul_q8_in_place_columns)[a->type][reads_streams(a->reading)];
}

// Columns in tiles (x_tiles) are served by the panel alone, since the caller may not have made rows of them.
static void matmul(const struct matmul_args *a)
{
    if (a->x_tiles)
        ISA_FN(matmul_q8_panel)[a->type](a);
    else if (a->spare_adders && a->n_rows >= GROUP && ISA_FN(matmul_q8_is_transposed)(a->type, a->k, a->n_x))
        ISA_FN(matmul_q8_transposed)(a);
    else
        (is_in_place(a) ? ISA_FN(matmul_q8_in_place) : ISA_FN(matmul_q8_panel))[a->type](a);
}

bool ISA_FN(matmul_q8_in_tiles)(enum dtype type, int64_t k, int64_t n, bool spare_adders)
{
    return ISA_FN(matmul_q8_panel)[type] && n >= PANEL_TILES_MIN &&
           !(spare_adders && ISA_FN(matmul_q8_is_transposed)(type, k, n));
}

matmul_fn *const ISA_FN(matmul_q8_table)[DT_COUNT] = {
    [DT_Q4_0] = matmul,    [DT_Q4_1] = matmul,   [DT_Q5_0] = matmul,  [DT_Q5_1] = matmul,    [DT_Q8_0] = matmul,
    [DT_Q2_K] = matmul,    [DT_Q3_K] = matmul,   [DT_Q4_K] = matmul,  [DT_Q5_K] = matmul,    [DT_Q6_K] = matmul,
    [DT_IQ4_NL] = matmul,  [DT_IQ4_XS] = matmul, [DT_MXFP4] = matmul, [DT_IQ1_S] = matmul,   [DT_IQ1_M] = matmul,
    [DT_IQ2_XXS] = matmul, [DT_IQ2_XS] = matmul, [DT_IQ2_S] = matmul, [DT_IQ3_XXS] = matmul, [DT_IQ3_S] = matmul,
    [DT_TQ1_0] = matmul,   [DT_TQ2_0] = matmul,  [DT_Q1_0] = matmul,  [DT_Q2_0] = matmul,    [DT_NVFP4] = matmul,
};
