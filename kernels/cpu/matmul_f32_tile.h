// The register tile of products of floats: TILE_ROWS rows of weights by up to TILE_COLS columns of activations.
//
// The naive loop, for each row r and column c of the tile:
//   for k in 0 .. K-1: sum[r][c][k % LANES] = fma(w[r][k], x[c][k], sum[r][c][k % LANES])
// The tile goes through k for all its rows and columns together, so that each load serves several products. The order
// of an output's sums does not depend on the size of the tile. If a vector has fewer than LANES elements and there
// are several columns, the tile goes through k once for each part of the lanes, because the registers hold no more
// sums.
//
// Compiled for every ISA level. attention.c uses the sizes and loads of these tiles as well. Ownership: none.
// Threads: no state.
#ifndef QUERN_MATMUL_F32_TILE_H
#define QUERN_MATMUL_F32_TILE_H

#include "kernels/cpu/vec.h"

#if defined(VEC_AVX512) || defined(VEC_NEON) // 32 registers, of which 24 are accumulators
enum { TILE_ROWS = 4, TILE_COLS = 6, TILE_SUMS = 24 };
#elif defined(VEC_AVX2) // 16 registers, of which 12 are accumulators
enum { TILE_ROWS = 4, TILE_COLS = 3, TILE_SUMS = 12 };
#else
enum { TILE_ROWS = 4, TILE_COLS = 1, TILE_SUMS = 8 };
#endif

_Static_assert(TILE_ROWS == 4, "four rows are summed together");

// How weights that come from memory are prefetched while a tile goes through k (enum reading). In each case the start
// of the next rows is prefetched near the end of the rows.
//   READING_BY_ROW      each row FETCH_AHEAD bytes ahead, into L1
//   READING_STREAMS     nothing but the first FETCH_HEADS bytes of the next rows, into L1: the tile's rows are four
//                       streams that the hardware prefetcher follows, and more prefetches would slow Zen 3 down
//   READING_PREFETCHED  each row FETCH_STREAM bytes ahead, into L2: Zen 4 then reads at 0.95 of its bandwidth, which
//                       is 0.85 otherwise (for one column see matmul_streams)
// FETCH_START: the bytes at the start of each stream of the next item that matmul_streams prefetches.
// FETCH_LINE: a cache line.
enum { FETCH_AHEAD = 2048, FETCH_STREAM = 4096, FETCH_HEADS = 256, FETCH_START = 2048, FETCH_LINE = 64 };

// ---- loads of weights in place

INLINE size_t weight_bytes(enum dtype type)
{
    return type == DT_F32 ? 4 : 2;
}

INLINE vec weight_load(enum dtype type, const char *p)
{
    return type == DT_F16 ? vec_from_f16(p) : type == DT_BF16 ? vec_from_bf16(p) : vec_load(p);
}

// Loads the last n < LANES elements of a row as floats, padded with zeros.
INLINE void weight_tail(enum dtype type, const char *p, int64_t n, float tail[LANES])
{
    char padded[LANES * 4] = {0};
    memcpy(padded, p, (size_t)n * weight_bytes(type));
    for (int i = 0; i < LANES; i += VEC)
        vec_store(tail + i, weight_load(type, padded + (size_t)i * weight_bytes(type)));
}

// ---- the register tile

struct tile {
    const char *w[TILE_ROWS];
    const char *next[TILE_ROWS]; // rows read after these, to be prefetched; [0] NULL: w is in the cache
    enum reading reading;
    const float *x[TILE_COLS];
    int64_t k;
    const struct lanes *from; // [TILE_ROWS][TILE_COLS] sums to start from; NULL: zeros
    struct lanes *to;         // [TILE_ROWS][TILE_COLS] resulting sums
};

// Adds the products of LANES elements from `at` on, for `parts` parts of the lanes from `first` on. `parts` is a
// constant at compile time, `first` need not be.
INLINE void tile_step(enum dtype type, int cols, int first, int parts, const char *const w[TILE_ROWS],
                      const float *const x[TILE_COLS], int64_t at, vec sums[TILE_ROWS][TILE_COLS][PARTS])
{
    UNROLL_FOR (int p = 0; p < parts; p++) {
        vec column[TILE_COLS];
        UNROLL_FOR (int c = 0; c < cols; c++)
            column[c] = vec_load(x[c] + at + (first + p) * VEC);
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            vec weight = weight_load(type, w[r] + (size_t)(at + (first + p) * VEC) * weight_bytes(type));
            UNROLL_FOR (int c = 0; c < cols; c++)
                sums[r][c][p] = vec_fma(weight, column[c], sums[r][c][p]);
        }
    }
}

// Adds the products of the last t->k - at < LANES elements, padded with zeros.
INLINE void tile_tail(enum dtype type, int cols, int first, int parts, const struct tile *t, int64_t at,
                      vec sums[TILE_ROWS][TILE_COLS][PARTS])
{
    float weights[TILE_ROWS][LANES], columns[TILE_COLS][LANES] = {{0}};
    const char *w[TILE_ROWS];
    const float *x[TILE_COLS];
    for (int r = 0; r < TILE_ROWS; r++) {
        weight_tail(type, t->w[r] + (size_t)at * weight_bytes(type), t->k - at, weights[r]);
        w[r] = (const char *)weights[r];
    }
    for (int c = 0; c < cols; c++) {
        memcpy(columns[c], t->x[c] + at, (size_t)(t->k - at) * sizeof(float));
        x[c] = columns[c];
    }
    tile_step(DT_F32, cols, first, parts, w, x, 0, sums);
}

// Adds the products of whole cache lines from element `from` to `end`. Meanwhile as many bytes at ahead[r] are
// prefetched, into L1 (level 1) or L2 (level 2), or not at all (level 0). Returns the first element that is left.
INLINE int64_t tile_lines(enum dtype type, int cols, int first, int parts, const struct tile *t, int64_t from,
                          int64_t end, const char *const ahead[TILE_ROWS], int level,
                          vec sums[TILE_ROWS][TILE_COLS][PARTS])
{
    const int64_t line = FETCH_LINE / (int64_t)weight_bytes(type);
    int64_t at = from;
    for (; at + line <= end; at += line) {
        UNROLL_FOR (int r = 0; level && r < TILE_ROWS; r++)
            if (level == 1)
                __builtin_prefetch(ahead[r] + (size_t)(at - from) * weight_bytes(type));
            else
                __builtin_prefetch(ahead[r] + (size_t)(at - from) * weight_bytes(type), 0, 2);
        UNROLL_FOR (int64_t i = 0; i < line; i += LANES)
            tile_step(type, cols, first, parts, t->w, t->x, at + i, sums);
    }
    return at;
}

// Adds the products of rows that come from memory, up to the last whole cache line. Prefetches `distance` bytes
// ahead, and for the last `distance` bytes the start of the next rows. Returns the first element that is left.
INLINE int64_t tile_fetch(enum dtype type, int cols, int first, int parts, const struct tile *t, int distance,
                          int level, vec sums[TILE_ROWS][TILE_COLS][PARTS])
{
    const char *ahead[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++)
        ahead[r] = t->w[r] + distance;
    const int64_t turn = MAX(t->k - distance / (int64_t)weight_bytes(type), 0);
    const int64_t at = tile_lines(type, cols, first, parts, t, 0, turn, ahead, level, sums);
    return tile_lines(type, cols, first, parts, t, at, t->k, t->next, MAX(level, 1), sums);
}

// Does the same with the distance and level for the way of reading.
INLINE int64_t tile_stream(enum dtype type, int cols, int first, int parts, const struct tile *t,
                           vec sums[TILE_ROWS][TILE_COLS][PARTS])
{
    if (ALWAYS_BY_ROW || t->reading == READING_BY_ROW)
        return tile_fetch(type, cols, first, parts, t, FETCH_AHEAD, 1, sums);
    if (t->reading == READING_PREFETCHED)
        return tile_fetch(type, cols, first, parts, t, FETCH_STREAM, 2, sums);
    return tile_fetch(type, cols, first, parts, t, FETCH_HEADS, 0, sums);
}

// Computes the sums over all of t->k, for `parts` parts of the lanes from `first` on.
INLINE void tile_run(enum dtype type, int cols, int first, int parts, const struct tile *t)
{
    vec sums[TILE_ROWS][TILE_COLS][PARTS];
    const char *w[TILE_ROWS];
    const float *x[TILE_COLS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
        w[r] = t->w[r];
        UNROLL_FOR (int c = 0; c < cols; c++) {
            x[c] = t->x[c];
            UNROLL_FOR (int p = 0; p < parts; p++)
                sums[r][c][p] = t->from ? t->from[r * TILE_COLS + c].part[first + p] : (vec){0};
        }
    }
    int64_t at = t->next[0] ? tile_stream(type, cols, first, parts, t, sums) : 0;
    for (; at + LANES <= t->k; at += LANES)
        tile_step(type, cols, first, parts, w, x, at, sums);
    if (at < t->k)
        tile_tail(type, cols, first, parts, t, at, sums);
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int c = 0; c < cols; c++)
            UNROLL_FOR (int p = 0; p < parts; p++)
                t->to[r * TILE_COLS + c].part[first + p] = sums[r][c][p];
}

// Computes all lanes at once if the registers hold their sums, otherwise one part after the other.
INLINE void tile_cols(enum dtype type, int cols, const struct tile *t)
{
    if (cols * PARTS <= (TILE_COLS > (int)PARTS ? (int)TILE_COLS : (int)PARTS)) {
        tile_run(type, cols, 0, PARTS, t);
        return;
    }
    for (int p = 0; p < (int)PARTS; p++)
        tile_run(type, cols, p, 1, t);
}

// TILE(name, run, type): defines a function that calls `run` with the number of columns as a constant.
//   name   the function
//   run    tile_cols or packed_cols
//   type   the type of the weights (enum dtype)
// clang-format off
#define TILE(name, run, type) \
    static __attribute__((unused)) void name(int cols, const struct tile *t) \
    { \
        switch (MIN(cols, TILE_COLS)) { \
        case 1: run(type, 1, t); break; \
        case 2: run(type, MIN(2, TILE_COLS), t); break; \
        case 3: run(type, MIN(3, TILE_COLS), t); break; \
        case 4: run(type, MIN(4, TILE_COLS), t); break; \
        case 5: run(type, MIN(5, TILE_COLS), t); break; \
        case 6: run(type, MIN(6, TILE_COLS), t); break; \
        } \
    }
// clang-format on
TILE(tile_f32, tile_cols, DT_F32)
TILE(tile_f16, tile_cols, DT_F16)
TILE(tile_bf16, tile_cols, DT_BF16)

// ---- the register tile with packed rows
//
// The rows of a tile are stored in the order in which it reads them, padded with zeros to whole LANES. The layout is
// [PARTS][k / LANES][TILE_ROWS][VEC]. It begins at tile.w[0].

// Packs a row of n elements of `bytes` bytes. to: the place of its first element in the packed tile.
INLINE void pack_row(size_t bytes, const char *row, int64_t n, char *to)
{
    const size_t vector = VEC * bytes, step = TILE_ROWS * vector, part = (size_t)((n + LANES - 1) / LANES) * step;
    int64_t at = 0;
    for (; at + LANES <= n; at += LANES, row += LANES * bytes, to += step)
        UNROLL_FOR (size_t p = 0; p < PARTS; p++)
            memcpy(to + p * part, row + p * vector, vector);
    if (at == n)
        return;
    char last[LANES * sizeof(float)] = {0};
    memcpy(last, row, (size_t)(n - at) * bytes);
    for (size_t p = 0; p < PARTS; p++)
        memcpy(to + p * part, last + p * vector, vector);
}

// Adds the products of VEC elements of each row. w: a vector of each row, one after the other; at: its place in x.
INLINE void packed_step(enum dtype type, int cols, const char *w, const float *const x[TILE_COLS], int64_t at,
                        vec sums[TILE_ROWS][TILE_COLS])
{
    vec column[TILE_COLS];
    UNROLL_FOR (int c = 0; c < cols; c++)
        column[c] = vec_held(vec_load(x[c] + at));
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
        vec weight = vec_held(weight_load(type, w + (size_t)r * VEC * weight_bytes(type)));
        UNROLL_FOR (int c = 0; c < cols; c++)
            sums[r][c] = vec_fma(weight, column[c], sums[r][c]);
    }
}

// Computes the sums over all of t->k, for one part of the lanes.
INLINE void packed_part(enum dtype type, int cols, int p, const struct tile *t)
{
    const size_t step = TILE_ROWS * VEC * weight_bytes(type);
    const char *w = t->w[0] + (size_t)p * (size_t)((t->k + LANES - 1) / LANES) * step;
    const float *x[TILE_COLS];
    vec sums[TILE_ROWS][TILE_COLS];
    UNROLL_FOR (int c = 0; c < cols; c++) {
        x[c] = t->x[c] + p * VEC;
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
            sums[r][c] = t->from ? t->from[r * TILE_COLS + c].part[p] : (vec){0};
    }
    int64_t at = 0;
    UNROLL_FEW_FOR (; at + LANES <= t->k; at += LANES, w += step)
        packed_step(type, cols, w, x, at, sums);
    if (at < t->k) {
        float last[TILE_COLS][LANES] = {{0}};
        for (int c = 0; c < cols; c++) {
            memcpy(last[c], t->x[c] + at, (size_t)(t->k - at) * sizeof(float));
            x[c] = last[c] + p * VEC;
        }
        packed_step(type, cols, w, x, 0, sums);
    }
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int c = 0; c < cols; c++)
            t->to[r * TILE_COLS + c].part[p] = sums[r][c];
}

INLINE void packed_cols(enum dtype type, int cols, const struct tile *t)
{
    for (int p = 0; p < (int)PARTS; p++)
        packed_part(type, cols, p, t);
}

TILE(packed_f32, packed_cols, DT_F32)
TILE(packed_f16, packed_cols, DT_F16)
TILE(packed_bf16, packed_cols, DT_BF16)

// Returns where part i begins if n items are divided into the fewest parts of at most `most` items, of nearly equal
// size.
static inline int tile_cut(int i, int n, int most)
{
    int n_parts = (n + most - 1) / most;
    return (int)((int64_t)i * n / n_parts);
}

// Adds up the lanes of column c of a tile's sums, and stores the results of the first n rows in y.
static inline void tile_put(const struct lanes *sums, int c, int n, float *y)
{
    const struct lanes *s = sums + c;
    quad four = lanes_sum4(s[0], s[TILE_COLS], s[2 * TILE_COLS], s[3 * TILE_COLS]);
    memcpy(y, &four, (size_t)MIN(n, TILE_ROWS) * sizeof(float));
}

#endif
