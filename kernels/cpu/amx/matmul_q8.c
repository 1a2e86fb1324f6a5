// The 8-bit matmul of AMX: chooses the kernel that serves a call. From a number of columns on, which depends on the
// type, it multiplies by matrix tiles (amx/panel.h); fewer columns, and types without such a kernel, are served as on
// AVX-512.
#include "kernels/cpu/amx/matmul_q8.h"

// The types that are multiplied in matrix tiles, and from how many columns on.
static const struct {
    matmul_fn *multiply;
    int from;
} by_rows[DT_COUNT] = {
    [DT_Q4_K] = {matmul_q8_q4_k_amx, 9},       [DT_Q5_K] = {matmul_q8_q5_k_amx, 9},
    [DT_Q6_K] = {matmul_q8_q6_k_amx, 9},       [DT_Q2_K] = {matmul_q8_q2_k_amx, 8},
    [DT_Q3_K] = {matmul_q8_q3_k_amx, 8},       [DT_IQ4_XS] = {matmul_q8_iq4_xs_amx, 8},
    [DT_TQ1_0] = {matmul_q8_tq1_0_amx, 3},     [DT_TQ2_0] = {matmul_q8_tq2_0_amx, 3},
    [DT_Q8_0] = {matmul_q8_q8_0_amx, 10},      [DT_Q4_0] = {matmul_q8_q4_0_amx, 8},
    [DT_Q5_0] = {matmul_q8_q5_0_amx, 8},       [DT_IQ4_NL] = {matmul_q8_iq4_nl_amx, 8},
    [DT_MXFP4] = {matmul_q8_mxfp4_amx, 8},     [DT_Q4_1] = {matmul_q8_q4_1_amx, 10},
    [DT_Q5_1] = {matmul_q8_q5_1_amx, 10},      [DT_IQ2_XXS] = {matmul_q8_iq2_xxs_amx, 8},
    [DT_IQ2_XS] = {matmul_q8_iq2_xs_amx, 8},   [DT_IQ2_S] = {matmul_q8_iq2_s_amx, 8},
    [DT_IQ3_XXS] = {matmul_q8_iq3_xxs_amx, 8}, [DT_IQ3_S] = {matmul_q8_iq3_s_amx, 8},
    [DT_IQ1_S] = {matmul_q8_iq1_s_amx, 8},     [DT_IQ1_M] = {matmul_q8_iq1_m_amx, 8},
};

bool matmul_q8_in_tiles_amx(enum dtype type, int64_t k, int64_t n, bool spare_adders)
{
    (void)k, (void)spare_adders;
    return by_rows[type].multiply && n >= by_rows[type].from;
}

// Calls that are not multiplied in matrix tiles ignore x_tiles: those were made as q8_words, which the kernels of
// AVX-512 cannot read.
static void matmul(const struct matmul_args *a)
{
    if (by_rows[a->type].multiply && (a->x_tiles || a->n_x >= by_rows[a->type].from)) {
        by_rows[a->type].multiply(a);
        return;
    }
    struct matmul_args rows = *a;
    rows.x_tiles = NULL;
    bool in_place = a->n_x <= ISA_FN(matmul_q8_in_place_columns)[a->type][reads_streams(a->reading)];
    (in_place ? ISA_FN(matmul_q8_in_place) : ISA_FN(matmul_q8_panel))[a->type](&rows);
}

matmul_fn *const matmul_q8_table_amx[DT_COUNT] = {
    [DT_Q4_0] = matmul,    [DT_Q4_1] = matmul,   [DT_Q5_0] = matmul,  [DT_Q5_1] = matmul,    [DT_Q8_0] = matmul,
    [DT_Q2_K] = matmul,    [DT_Q3_K] = matmul,   [DT_Q4_K] = matmul,  [DT_Q5_K] = matmul,    [DT_Q6_K] = matmul,
    [DT_IQ4_NL] = matmul,  [DT_IQ4_XS] = matmul, [DT_MXFP4] = matmul, [DT_IQ1_S] = matmul,   [DT_IQ1_M] = matmul,
    [DT_IQ2_XXS] = matmul, [DT_IQ2_XS] = matmul, [DT_IQ2_S] = matmul, [DT_IQ3_XXS] = matmul, [DT_IQ3_S] = matmul,
    [DT_TQ1_0] = matmul,   [DT_TQ2_0] = matmul,  [DT_Q1_0] = matmul,  [DT_Q2_0] = matmul,    [DT_NVFP4] = matmul,
};
