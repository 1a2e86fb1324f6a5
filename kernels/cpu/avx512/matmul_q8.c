// The 8-bit matmul of AVX-512 with VNNI and VBMI: which of its ways serves a call.
//
// A few columns are bound by memory, and read each block once, in place (avx512/in_place_256.c, .._grid.c, .._runs.c).
// More columns are bound by multiplication: a panel of rows is unpacked once, and all columns sweep over it
// (avx512/panel.c). Between them, where the CPU shuffles beside its products (spare_adders), each word is turned,
// unpacked and multiplied in registers (avx512/transposed.c).
#include "kernels/cpu/avx512/matmul_q8.h"

static bool is_in_place(const struct matmul_args *a)
{
    return a->n_x <= ISA_FN(matmul_q8_in_place_columns)[a->type][reads_streams(a->reading)];
}

// Where there are tiles there may be no rows.
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
