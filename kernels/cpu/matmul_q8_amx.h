// What the parts of the matmul in matrix tiles share: the tiles themselves, the columns in them, and what lies in scratch.
//
// matmul_q8_amx.c walks over rows, columns and spans; matmul_q8_amx_scaled.c multiplies blocks of 256, matmul_q8_amx_blocks.c
// those of 32. Private to these. The tiles are the CPU's own state: set up and given back in each call.
#ifndef QUERN_MATMUL_Q8_AMX_H
#define QUERN_MATMUL_Q8_AMX_H

#include "kernels/cpu/matmul_q8_avx512.h"

enum {
    TILE_COLS = 16,          // columns of activations a tile: its rows, as the instructions have it
    COLUMNS = 2 * TILE_COLS, // that go together
    ROWS = GROUP,            // rows of weights a tile
    SWEEP_ROWS = PLANE_ROWS, // rows whose bytes stay in the L1 cache while all columns pass
    HEIGHT = 128,            // rows that do so in turn, span by span: columns from far away come once for them
    SWEEPS = HEIGHT / SWEEP_ROWS,
    COLUMNS_PART = 512,      // that they serve
};

// ---- tiles. The compiler is told that memory is read and written; the order of volatile statements stays.

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Tiles 0-3 hold sums, 4 and 5 `width` elements of 16 columns each, 6 and 7 those of 16 rows of weights, in words of four.
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
// sums t += columns a (signed) . rows b
#define TILE_DOT_UNSIGNED(t, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #t ::)
#define TILE_DOT_SIGNED(t, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #t ::)
#define TILE_DOT(is_signed, t, a, b)                                                                                   \
    do {                                                                                                               \
        if (is_signed)                                                                                                 \
            TILE_DOT_SIGNED(t, a, b);                                                                                  \
        else                                                                                                           \
            TILE_DOT_UNSIGNED(t, a, b);                                                                                \
    } while (0)

// ---- what lies in scratch

// Up to 32 columns in a span: one group of tiles, or two.
struct tokens {
    const int8_t *quants;
    int16_t (*sums)[Q8_SUMS], (*sums_of_32)[Q8_SUMS / 2];
    const float *d;
    int first, n;  // within the part
};

// D of 16 rows and 32 columns, while it waits for the next span: a register a column.
struct sums {
    _Alignas(64) float d[COLUMNS][ROWS];
};

// Sums that have left the tiles, and wait for the floats while the next ones are formed.
struct job {
    struct tokens tokens;  // n = 0: nothing waits
    struct sums *sums;
    __mmask16 seen;        // 0 in the first span, where there is no D to go on with
    int lane;              // of the panel: first of the rows
    int block;             // of the span; blocks of 32 only
    bool last;             // the block is the span's last
    _Alignas(64) int32_t tile[2][COLUMNS][ROWS];  // of the high and the low plane, or of two groups of 16 rows
};

struct work {
    _Alignas(64) plane high, low;
    struct job job;
    struct sums span;      // S of the rows and columns at hand, 16 rows ..
    struct sums span_too;  // .. and the next 16
    // In the order in which they are made and used, so that they come out of the L2 cache in one stream.
    struct sums sums[SWEEPS][COLUMNS_PART / COLUMNS][SWEEP_ROWS / ROWS];
    _Alignas(64) int8_t gathered[COLUMNS_PART * Q8_TILE_COLUMN_BYTES];  // tiles of a span, where the caller has none
    struct panel panel;
};
_Static_assert(sizeof(struct work) <= SCRATCH_BYTES, "a panel and the sums fit the scratch");

// What a kind of type does with a span of up to 32 rows, which are unpacked, and some columns.
struct tile_runner {
    int width;  // elements a tile
    void (*run)(struct work *w, const struct tokens *t, int rows, int n_blocks, struct sums *sums, __mmask16 seen);
    void (*drain)(struct work *w);  // nothing waits any more
};
extern const struct tile_runner matmul_q8_unsigned_mins_of_32_amx, matmul_q8_unsigned_mins_of_16_amx, matmul_q8_signed_amx;
extern const struct tile_runner matmul_q8_blocks_amx, matmul_q8_blocks_mins_amx;

// By type, rows of weights as rows of tiles: matmul_q8_amx_rows*.c.
matmul_fn matmul_q8_q4_k_amx, matmul_q8_q5_k_amx, matmul_q8_q6_k_amx;
matmul_fn matmul_q8_q8_0_amx, matmul_q8_q4_0_amx, matmul_q8_q5_0_amx, matmul_q8_iq4_nl_amx, matmul_q8_mxfp4_amx,
    matmul_q8_q4_1_amx, matmul_q8_q5_1_amx;
matmul_fn matmul_q8_iq2_xxs_amx, matmul_q8_iq2_xs_amx, matmul_q8_iq2_s_amx,
    matmul_q8_iq3_xxs_amx, matmul_q8_iq3_s_amx, matmul_q8_iq1_s_amx, matmul_q8_iq1_m_amx;
matmul_fn matmul_q8_q2_k_amx, matmul_q8_q3_k_amx, matmul_q8_iq4_xs_amx, matmul_q8_tq1_0_amx, matmul_q8_tq2_0_amx;

#endif
