// Blocks of 256 in matrix tiles: the scales go into the weights before they are multiplied.
//
// A tile product forms 16 columns x 16 rows x 64 elements, eight times what vpdpbusd does in that time, but it knows no
// scales: what a scale must multiply has to leave the tile first. So the scales go in beforehand. Blocks are unpacked
// as for AVX-512, and go into two planes of bytes, high and low, of the weights times their integer scales
// (put_scaled): w * scale = high * 2^shift + low.
//   Q2_K, Q4_K, Q5_K  scale = 8 s1 + s0, high = w * s1, low = w * s0: unsigned, at most 31 * 7 = 217 (shift 3)
//   all others        |w * scale| <= 4096 with its sign: high = (product + 32) >> 6, |high| <= 64, and low is what is
//   left,
//                     -32 .. 31 (shift 6)
// Then a whole block is summed up in the tiles, and isum = (sum of high << shift) + sum of low, exact as ever. What
// comes out of the tiles (a register a column, a lane a row) goes through the floats of kernels.h while the next ones
// are multiplied.
#include "kernels/cpu/matmul_q8_amx.h"

// ---- the floats of what has left the tiles, columns from .. to - 1

INLINE void finish(struct work *w, int from, int to, int shift, int min_pairs)
{
    to = MIN(to, w->job.tokens.n);
    if (from >= to)
        return;
    const int lane = w->job.lane;
    const struct tokens *t = &w->job.tokens;
    const int32_t *pairs = min_pairs == 8 ? (const int32_t *)t->sums : (const int32_t *)t->sums_of_32;
    const struct panel *panel = &w->panel;
    const __m512 d = _mm512_load_ps(panel->d[0] + lane), m = _mm512_load_ps(panel->m[0] + lane);
    __m512i min_of[8];
    UNROLL
    for (int s = 0; s < min_pairs; s++)
        min_of[s] = _mm512_load_si512(panel->min[s] + lane);
    for (int j = from; j < to; j++) {
        __m512i high = _mm512_load_si512(w->job.tile[0][j]), low = _mm512_load_si512(w->job.tile[1][j]);
        __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, (unsigned)shift), low), min = _mm512_setzero_si512();
        __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), d);
        UNROLL
        for (int i = 0; i < min_pairs; i++)
            min = _mm512_dpwssd_epi32(min, min_of[i], _mm512_set1_epi32(pairs[j * min_pairs + i]));
        if (min_pairs)
            s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min), m, s);
        float *total = w->job.sums->d[j];
        s = _mm512_fmadd_ps(s, _mm512_set1_ps(t->d[j]), _mm512_maskz_load_ps(w->job.seen, total));
        _mm512_store_ps(total, s);
    }
}

// ---- the tiles

// 16 rows from `lane` on with some columns, over 256 elements. The job before this one is finished meanwhile.
INLINE void multiply_tiles(struct work *w, const struct tokens *t, int lane, struct sums *sums, __mmask16 seen,
                           bool is_signed, int shift, int min_pairs)
{
    const bool both = t->n > TILE_COLS;
    const uint8_t *high = w->high[lane / ROWS][0][0], *low = w->low[lane / ROWS][0][0];
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int k = 0; k < SPAN; k += Q8_TILE_WIDTH) {
        TILE_LOAD(4, t->quants + k * TILE_COLS, Q8_TILE_WIDTH);
        TILE_LOAD(6, high + k * ROWS, 64);
        TILE_DOT(is_signed, 0, 4, 6);
        TILE_LOAD(7, low + k * ROWS, 64);
        TILE_DOT(is_signed, 1, 4, 7);
        if (both) {
            TILE_LOAD(5, t->quants + Q8_TILE_GROUP + k * TILE_COLS, Q8_TILE_WIDTH);
            TILE_DOT(is_signed, 2, 5, 6);
            TILE_DOT(is_signed, 3, 5, 7);
        }
        finish(w, k / 8, k / 8 + 8, shift, min_pairs);
    }
    TILE_STORE(0, w->job.tile[0][0], 64);
    TILE_STORE(1, w->job.tile[1][0], 64);
    TILE_STORE(2, w->job.tile[0][TILE_COLS], 64);
    TILE_STORE(3, w->job.tile[1][TILE_COLS], 64);
    w->job.tokens = *t;
    w->job.lane = lane;
    w->job.sums = sums;
    w->job.seen = seen;
}

// What waits is finished, and nothing waits any more.
INLINE void finish_job(struct work *w, int shift, int min_pairs)
{
    finish(w, 0, COLUMNS, shift, min_pairs);
    w->job.tokens.n = 0;
}

#define RUNNER(name, is_signed, shift, min_pairs)                                                                      \
    static void run_##name(struct work *w, const struct tokens *t, int rows, int n_blocks, struct sums *sums,          \
                           __mmask16 seen)                                                                             \
    {                                                                                                                  \
        (void)n_blocks;                                                                                                \
        for (int lane = 0; lane < rows; lane += ROWS)                                                                  \
            multiply_tiles(w, t, lane, &sums[lane / ROWS], seen, is_signed, shift, min_pairs);                         \
    }                                                                                                                  \
    static void drain_##name(struct work *w)                                                                           \
    {                                                                                                                  \
        finish_job(w, shift, min_pairs);                                                                               \
    }                                                                                                                  \
    const struct tile_runner matmul_q8_##name##_amx = {Q8_TILE_WIDTH, run_##name, drain_##name};

RUNNER(unsigned_mins_of_32, false, 3, 4)
RUNNER(unsigned_mins_of_16, false, 3, 8)
RUNNER(signed, true, 6, 0)
