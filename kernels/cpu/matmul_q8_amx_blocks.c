// Blocks of 32 in matrix tiles: their scales are floats, so the sums leave the tiles after every block.
//
// Weights lie with their signs in one plane of bytes. Tiles of 32 elements, half of what they could hold, form the sums
// of 32 rows by 32 columns for one block; while the next block is multiplied, S = fma(isum, dw, S) takes them in, two
// operations a register. S is in the L1 cache. Storing the tiles and these operations cost more than the products do,
// but all together is half of what vpdpbusd takes.
#include "kernels/cpu/matmul_q8_amx.h"

// ---- the floats of the block that waits: pieces of 8 columns of 16 rows, of 8

enum { PIECES = 8, PIECE = 2 * COLUMNS / PIECES };

INLINE void finish(struct work *w, int piece, bool mins)
{
    const struct job *job = &w->job;
    const struct tokens *t = &job->tokens;
    const int group = piece / (PIECES / 2), from = piece % (PIECES / 2) * PIECE, to = MIN(from + PIECE, t->n);
    const int block = job->block;
    if (from >= to)
        return;
    const __m512 d = _mm512_load_ps(w->panel.d[block] + group * ROWS),
                 m = _mm512_load_ps(w->panel.m[block] + group * ROWS);
    const __mmask16 started = block ? 0xffff : 0;
    struct sums *span = group ? &w->span_too : &w->span, *sums = job->sums + group;
    for (int j = from; j < to; j++) {
        __m512 s = _mm512_maskz_load_ps(started, span->d[j]);
        s = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(job->tile[group][j])), d, s);
        if (mins)
            s = _mm512_fmadd_ps(_mm512_set1_ps((float)t->sums_of_32[j][block]), m, s);
        if (job->last) {
            __m512 total = _mm512_maskz_load_ps(job->seen, sums->d[j]);
            _mm512_store_ps(sums->d[j], _mm512_fmadd_ps(s, _mm512_set1_ps(t->d[j]), total));
        } else {
            _mm512_store_ps(span->d[j], s);
        }
    }
}

// ---- the tiles

// A block of 32 rows and some columns. The one before it is finished meanwhile.
INLINE void multiply_block(struct work *w, const struct tokens *t, int block, bool mins)
{
    const bool both = t->n > TILE_COLS;
    const int8_t *q = t->quants + block / 2 * Q8_TILE_WIDTH * TILE_COLS + block % 2 * 32;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_LOAD(4, q, Q8_TILE_WIDTH);
    TILE_LOAD(6, w->high[0][block * 8], 64);
    TILE_DOT_SIGNED(0, 4, 6);
    finish(w, 0, mins);
    finish(w, 1, mins);
    TILE_LOAD(7, w->high[1][block * 8], 64);
    TILE_DOT_SIGNED(1, 4, 7);
    finish(w, 2, mins);
    finish(w, 3, mins);
    if (both) {
        TILE_LOAD(5, q + Q8_TILE_GROUP, Q8_TILE_WIDTH);
        TILE_DOT_SIGNED(2, 5, 6);
    }
    finish(w, 4, mins);
    finish(w, 5, mins);
    if (both)
        TILE_DOT_SIGNED(3, 5, 7);
    finish(w, 6, mins);
    finish(w, 7, mins);
    TILE_STORE(0, w->job.tile[0][0], 64);
    TILE_STORE(1, w->job.tile[1][0], 64);
    if (both) {
        TILE_STORE(2, w->job.tile[0][TILE_COLS], 64);
        TILE_STORE(3, w->job.tile[1][TILE_COLS], 64);
    }
}

INLINE void multiply_blocks(struct work *w, const struct tokens *t, int n_blocks, struct sums *sums, __mmask16 seen,
                            bool mins)
{
    for (int block = 0; block < n_blocks; block++) {
        multiply_block(w, t, block, mins);
        w->job.tokens = *t;
        w->job.sums = sums;
        w->job.seen = seen;
        w->job.block = block;
        w->job.last = block == n_blocks - 1;
    }
}

INLINE void finish_job(struct work *w, bool mins)
{
    for (int i = 0; i < PIECES; i++)
        finish(w, i, mins);
    w->job.tokens.n = 0;
}

#define RUNNER(name, mins)                                                                                             \
    static void run_##name(struct work *w, const struct tokens *t, int rows, int n_blocks, struct sums *sums,          \
                           __mmask16 seen)                                                                             \
    {                                                                                                                  \
        (void)rows;                                                                                                    \
        multiply_blocks(w, t, n_blocks, sums, seen, mins);                                                             \
    }                                                                                                                  \
    static void drain_##name(struct work *w)                                                                           \
    {                                                                                                                  \
        finish_job(w, mins);                                                                                           \
    }                                                                                                                  \
    const struct tile_runner matmul_q8_##name##_amx = {32, run_##name, drain_##name};

RUNNER(blocks, false)
RUNNER(blocks_mins, true)
