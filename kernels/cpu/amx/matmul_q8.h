// What the files of the AMX matmul share: instructions for matrix tiles, and the kernels by type.
//
// Private to kernels/cpu/amx/. Matrix tiles are state of the CPU: each call configures them and releases them at its
// end.
#ifndef QUERN_AMX_MATMUL_Q8_H
#define QUERN_AMX_MATMUL_Q8_H

#include "kernels/cpu/avx512/matmul_q8.h"

enum { ROWS = GROUP }; // of weights in a tile

// ---- tiles. The compiler knows that memory is read and written; volatile statements keep their order.

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Configures the tiles for pieces of `width` elements (64 or 32). Tiles 0 to 3 hold sums of 16 rows by 16 columns, 4
// and 5 hold 16 rows of weights, 6 and 7 the words of 16 columns. With a width of 64 all tiles have the same shape, so
// any of them may serve for any of these.
INLINE void configure_tiles(int width)
{
    _Alignas(64) struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.rows[t] = (uint8_t)(t >= 6 ? width / 4 : 16);
        c.row_bytes[t] = (uint16_t)(t == 4 || t == 5 ? width : 64);
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(c) : "memory");
}

INLINE void release_tiles(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, from, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((long)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                                      \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((long)(stride)) : "memory")

// The kernels by type: amx/panel_256.c, panel_32.c, panel_table.c and codebook.c.
matmul_fn matmul_q8_q4_k_amx, matmul_q8_q5_k_amx, matmul_q8_q6_k_amx;
matmul_fn matmul_q8_q8_0_amx, matmul_q8_q4_0_amx, matmul_q8_q5_0_amx, matmul_q8_iq4_nl_amx, matmul_q8_mxfp4_amx,
    matmul_q8_q4_1_amx, matmul_q8_q5_1_amx;
matmul_fn matmul_q8_iq2_xxs_amx, matmul_q8_iq2_xs_amx, matmul_q8_iq2_s_amx, matmul_q8_iq3_xxs_amx, matmul_q8_iq3_s_amx,
    matmul_q8_iq1_s_amx, matmul_q8_iq1_m_amx;
matmul_fn matmul_q8_q2_k_amx, matmul_q8_q3_k_amx, matmul_q8_iq4_xs_amx, matmul_q8_tq1_0_amx, matmul_q8_tq2_0_amx;

#endif
