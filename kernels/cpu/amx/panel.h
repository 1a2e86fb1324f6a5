// Matmul of many columns by AMX: the rows of weights, unpacked, are the rows of matrix tiles. This is what the types
// share.
//
// The naive loop is that of kernels.h: for each row and column, for each block of 256, D = fma(S, da, D). Steps from
// there:
//   - Columns are words of four elements of 16 columns (q8_words in kernels.h). The caller makes them where it
//     quantises activations; if it has none, they are made here once per call.
//   - A row's block is unpacked into bytes that are multiplied by their scales already, and the columns' words are
//     multiplied by their steps, because otherwise the sums of each run of 32 elements would have to leave the tiles to
//     be scaled. Both products may need two bytes: w * scale = 64 h + l and q * step = 64 H + L. The bytes of one kind
//     are a matrix, which is called a plane. Products of planes are summed up in tiles of their own.
//   - If h and l are both needed, three products of planes suffice: with P = 64 hH + lL and N = (h - l)(L - H), each
//     summed up over the block, the sum of w * scale * q * step is 64 (P + N) + P. So h - l and L - H are planes, too.
//     h = -64 .. 64, l and L = 0 .. 63, H = -32 .. 31; therefore all planes are signed bytes. Types whose products w *
//     scale fit one byte have one plane W, and two products: 64 WH + WL.
//   - So a whole block is summed up in the tiles, exactly, and leaves them with one register per row and one lane per
//     column. (Sums that are combined may wrap at 32 bits. The result fits.) Blocks of 32, whose scales are floats,
//     leave the tiles one by one. They are sums of w * q, and are multiplied by the step as floats, which is exact
//     because the product is below 2^24.
//   - 32 rows by 256 elements are a piece. It is unpacked once, and then all groups of 16 columns are multiplied with
//     it. The columns' words come from the L2 cache, and each load serves two tiles of rows.
//   - While a group is multiplied, the sums of the group before are converted and added up as floats.
//   - With many columns, 128 rows (a stripe) are multiplied over a part of k before the next part (see PART).
//
// amx/matmul_q8.c chooses this from a number of columns on that depends on the type: from 3 (TQ1_0, TQ2_0) to 10 (Q8_0,
// Q4_1, Q5_1), from 8 or 9 for all others. A type's file defines its struct rows_type, how the headers of 16 blocks are
// read and how one row is unpacked; ROWS_KERNEL makes the kernel of these, in which all of them are compile-time
// constants.
//
// Cost on Sapphire Rapids, for a piece by a group of 16 columns. A product of tiles takes 16 cycles, a tile is loaded
// in 8, and there are two vector operations a cycle.
//                    products of tiles   tile loads   vector operations for each of 32 rows
//     three planes   24                  36           8, with minima 18
//     one plane      16                  16           5, with minima 15
//     blocks of 32   16                  32           25, with minima 33
// Without steps, two planes of weights take 16 products, one plane takes 8, and blocks of 32 take 17 vector operations.
// To multiply the steps into the sums of each 32 elements instead, as for blocks of 32, would take 32 products of tiles
// with two planes of weights and 16 with one, which would be half empty, and 3 vector operations for each sum.
//
// Private to kernels/cpu/amx/. All work is in the caller's scratch, one per thread.
#ifndef QUERN_AMX_PANEL_H
#define QUERN_AMX_PANEL_H

#include "kernels/cpu/amx/matmul_q8.h"
#include "kernels/cpu/avx512/rows.h"

enum {
    TILES = SPAN / Q8_TILE_WIDTH, // of 64 elements
    HALVES = 2,                   // of a piece, of 16 rows each
    PIECE_ROWS = HALVES * ROWS,
    GROUPS = 32,            // groups of 16 columns that are multiplied with a piece, at the most
    STRIPE = 128,           // rows whose sums are kept in scratch while the parts of k are multiplied
    TRANSPOSED_GROUPS = 16, // q8_words that the scratch holds, where the caller has made none
    PART = 64,              // q8_words, 830 KB of their planes, that stay in the L2 cache for all pieces of a stripe
};

struct rows_type {
    int bytes;     // of a block of 256, or of eight blocks of 32
    int planes;    // of a block of 256: 1 or 3
    bool mins;     // whether there are minima
    bool halved;   // the only plane holds (w * scale - 1) / 2
    bool negative; // the only plane holds -w * scale
};

// The unpacked bytes of half a piece: the planes h, l, h - l; or the only plane, which is the first.
typedef uint8_t piece[PLANE_COUNT][TILES][ROWS][Q8_TILE_WIDTH];

// Stores the products of 64 weights with their scales, which are elements 64t .. 64t + 63 of a row, in three planes.
INLINE void put_planes(struct planes products, int t, int row, piece *p)
{
    _mm512_store_si512((*p)[PLANE_HIGH][t][row], products.high);
    _mm512_store_si512((*p)[PLANE_LOW][t][row], products.low);
    _mm512_store_si512((*p)[PLANE_DIFFERENCE][t][row], _mm512_sub_epi8(products.high, products.low));
}

// The unpacked headers of half a piece's rows. `factor` is for the type's own use: what unpack_row needs of a row.
struct heads {
    _Alignas(64) uint8_t factor[ROWS][8];
    int32_t min[Q8_RUNS][ROWS]; // int16 pairs, for the two runs of 16 in each 32 elements
    float d[ROWS], m[ROWS];
};

typedef void read_heads_fn(const struct rows16 *g, size_t at, struct heads *h);
typedef void unpack_row_fn(const uint8_t *block, const struct heads *h, int row, piece *p);

typedef float sums16[ROWS][Q8_TILE_COLUMNS];

// The same for types with blocks of 32. Their scales are floats, so the sums of every block leave the tiles.
enum { BLOCKS = SPAN / 32 }; // of a span
struct block_heads {
    _Alignas(64) float d[BLOCKS][ROWS], m[BLOCKS][ROWS];
};
typedef uint8_t block_piece[TILES][ROWS][Q8_TILE_WIDTH]; // signed weights
typedef void read_block_heads_fn(const struct rows16 *g, size_t at, int n_blocks, struct block_heads *h);
typedef void unpack_blocks_fn(const uint8_t *blocks, int n_blocks, int row, block_piece *p);

struct rows_kind {
    struct rows_type type;
    read_heads_fn *read_heads;
    unpack_row_fn *unpack_row;
    read_block_heads_fn *read_block_heads;
    unpack_blocks_fn *unpack_blocks;
};

// A piece and 16 columns whose sums have left the tiles and are not converted to floats yet.
struct pending {
    const struct heads *heads;      // [HALVES]
    const struct q8_words *columns; // NULL: nothing is pending
    sums16 *sums[HALVES];
};

// The same of blocks of 32, for 16 rows.
struct pending_blocks {
    const struct block_heads *heads;
    const struct q8_words *columns;  // NULL: nothing is pending
    float (*of_32)[Q8_TILE_COLUMNS]; // sums of q of each block times its step, for types with a minimum
    sums16 *sums;
    int n_blocks;
};

struct rows_work {
    union {
        struct {
            _Alignas(64) piece piece[HALVES];
            struct heads heads[2][HALVES]; // of the current piece, and of the previous one while sums of it are pending
            struct pending pending;
            _Alignas(64) int32_t tile[HALVES][PLANE_COUNT][ROWS][Q8_TILE_COLUMNS]; // sums of products of planes
        };
        struct {
            _Alignas(64) block_piece block_piece[HALVES];
            struct block_heads block_heads[2][HALVES];
            struct pending_blocks pending_blocks;
            // Sums of the current columns, and of the pending ones.
            _Alignas(64) float of_32[2][BLOCKS][Q8_TILE_COLUMNS];
            _Alignas(64) int32_t block_sums[HALVES][BLOCKS][ROWS][Q8_TILE_COLUMNS];
        };
    };
    sums16 sums[STRIPE / ROWS][GROUPS];
    _Alignas(64) struct q8_words transposed[TRANSPOSED_GROUPS];
};
_Static_assert(sizeof(struct rows_work) <= SCRATCH_BYTES, "columns and sums fit the scratch");

// sums t += rows . columns, all of them signed. t, rows and columns are tile numbers.
#define TILE_DOT_ROWS(t, rows, columns) __asm__ volatile("tdpbssd %%tmm" #columns ", %%tmm" #rows ", %%tmm" #t ::)

// Transposes the columns from `first` on, in the spans from .. to - 1, into scratch. Where fewer columns are left
// than the groups have, the last one is repeated.
void matmul_q8_transpose_columns_amx(const struct matmul_args *a, int first, int groups, int64_t from, int64_t to);
// Stores the sums of a stripe of rows in y.
void matmul_q8_store_rows_amx(const struct matmul_args *a, int row, int end, int first, int groups);

// ---- the position in a part of k: 32 rows, and a span of them

struct walk {
    int row, first_row, end;
    int64_t span, from, to, spans;
    int64_t prefetch_distance; // distance in spans to what is prefetched, of the rows `after`
    struct rows16 rows[HALVES], after[HALVES];
    // The columns of span `from`; those of the next span are `stride` groups further on.
    const struct q8_words *columns;
    int stride, groups;
};

INLINE void enter_rows(const struct matmul_args *a, struct walk *at, int row)
{
    at->row = row;
    at->span = at->from;
    // After the last rows of a part of k, the next part begins with the stripe's first rows.
    const bool again = row + PIECE_ROWS >= at->end && at->to < at->spans;
    at->prefetch_distance = again ? at->to - at->from : 0;
    for (int half = 0; half < HALVES; half++) {
        const int first = half * ROWS;
        at->rows[half] = rows_from(a, MIN(row + first, a->n_rows - 1));
        at->after[half] = again ? rows_from(a, MIN(at->first_row + first, a->n_rows - 1))
                                : rows_to_prefetch(a, row + PIECE_ROWS + first, PIECE_ROWS);
    }
}

INLINE bool advance(const struct matmul_args *a, struct walk *at)
{
    if (++at->span < at->to)
        return true;
    if (at->row + PIECE_ROWS >= at->end)
        return false;
    enter_rows(a, at, at->row + PIECE_ROWS);
    return true;
}

// While a piece is unpacked, and while each group of columns is multiplied, an even share of the next rows' blocks is
// prefetched, so that memory is always busy. The shares add up to 32 rows, in the same span, of the rows that follow.
struct share_prefetch {
    const struct rows16 *rows; // [HALVES]
    size_t at;
    int bytes, first, n; // bytes of a row; first row and number of rows of this share
};

INLINE struct share_prefetch share_of(const struct rows_kind *kind, const struct walk *at, int n_blocks, int share)
{
    const int shares = at->groups + 1, first = PIECE_ROWS * share / shares;
    const int bytes = kind->type.bytes * n_blocks / BLOCKS;
    const int64_t span = MIN(at->span + at->prefetch_distance, at->spans - 1);
    return (struct share_prefetch){at->after, (size_t)span * (size_t)kind->type.bytes, bytes, first,
                                   PIECE_ROWS * (share + 1) / shares - first};
}

// Prefetches part `part` of `parts` of a share.
INLINE void prefetch_part(const struct share_prefetch *it, int part, int parts)
{
    for (int i = it->n * part / parts; i < it->n * (part + 1) / parts; i++) {
        const int row = it->first + i;
        const uint8_t *at = it->rows[row / ROWS].at[row % ROWS] + it->at;
        for (int line = 0; line < it->bytes; line += 64)
            _mm_prefetch((const char *)at + line, _MM_HINT_T1);
    }
}

// ---- floats: what has left the tiles

// sums += pairs . one pair of 16-bit numbers, which is broadcast to every lane.
INLINE __m512i add_pairs(__m512i sums, __m512i pairs, const int32_t *pair)
{
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(pairs), "m"(*pair));
    return sums;
}

// The sum of w * scale * q * step of each column, from the sums of the products of planes.
INLINE __m512i whole_sums(const struct rows_work *w, const struct rows_type *type, const struct q8_words *c, int half,
                          int row)
{
    const int32_t(*sums)[ROWS][Q8_TILE_COLUMNS] = w->tile[half];
    __m512i dot = _mm512_slli_epi32(_mm512_load_si512(sums[PLANE_HIGH][row]), 6);
    dot = _mm512_add_epi32(dot, _mm512_load_si512(sums[PLANE_LOW][row]));
    if (type->planes == PLANE_COUNT) {
        __m512i upper = _mm512_add_epi32(dot, _mm512_load_si512(sums[PLANE_DIFFERENCE][row]));
        dot = _mm512_add_epi32(_mm512_slli_epi32(upper, 6), dot);
    }
    if (type->halved)
        dot = _mm512_add_epi32(_mm512_slli_epi32(dot, 1), _mm512_load_si512(c->total));
    if (type->negative)
        dot = _mm512_sub_epi32(_mm512_setzero_si512(), dot);
    return dot;
}

// What all rows need of the pending columns. It stays in registers while a group is multiplied.
struct column_values {
    __m512 d;
    __m512i weighted[Q8_RUNS];
};

// c: the pending columns, or any if nothing is pending.
INLINE struct column_values pending_values(const struct rows_type *type, const struct q8_words *c)
{
    struct column_values v = {.d = _mm512_load_ps(c->d)};
    if (type->mins)
        UNROLL_FOR (int i = 0; i < Q8_RUNS; i++)
            v.weighted[i] = _mm512_load_si512(c->weighted[i]);
    return v;
}

// Converts the pending rows row .. row + n - 1 of half a piece and adds them to D, if any are pending.
INLINE void finish_rows(struct rows_work *w, const struct pending *it, const struct rows_type *type,
                        const struct column_values *v, int half, int row, int n)
{
    const struct q8_words *c = it->columns;
    if (!c)
        return;
    const struct heads *h = it->heads + half;
    UNROLL_FOR (int r = row; r < row + n; r++) {
        __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(whole_sums(w, type, c, half, r)), _mm512_set1_ps(h->d[r]));
        if (type->mins) {
            __m512i min = _mm512_setzero_si512();
            UNROLL_FOR (int i = 0; i < Q8_RUNS; i++)
                min = add_pairs(min, v->weighted[i], &h->min[i][r]);
            s = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min), _mm512_set1_ps(h->m[r]), s);
        }
        float *total = (*it->sums[half])[r];
        _mm512_store_ps(total, _mm512_fmadd_ps(s, v->d, _mm512_load_ps(total)));
    }
}

// ---- the tiles. Tiles 2p and 2p + 1 hold the sums of product p of planes, of the two halves of a piece.

#define FINISH(first, n) finish_rows(w, it, type, v, t / 2, t % 2 * ROWS / 2 + (first), n)

// Multiplies a quarter of a piece's only plane by 16 columns. Between the products a quarter of the pending rows is
// converted.
INLINE void multiply_one_plane(struct rows_work *w, const struct pending *it, const struct rows_type *type,
                               const struct column_values *v, const struct q8_words *c, int t)
{
    TILE_LOAD(6, c->planes[PLANE_HIGH][t], 64);
    TILE_LOAD(4, w->piece[0][0][t], 64);
    TILE_DOT_ROWS(0, 4, 6);
    FINISH(0, 2);
    TILE_LOAD(7, c->planes[PLANE_LOW][t], 64);
    TILE_DOT_ROWS(2, 4, 7);
    FINISH(2, 2);
    TILE_LOAD(5, w->piece[1][0][t], 64);
    TILE_DOT_ROWS(1, 5, 6);
    FINISH(4, 2);
    TILE_DOT_ROWS(3, 5, 7);
    FINISH(6, 2);
}

// Multiplies a quarter of one of three planes, and finishes two pending rows. first, second: the tiles of the sums.
#define MULTIPLY_PLANE(plane, first, second, row)                                                                      \
    do {                                                                                                               \
        TILE_LOAD(7, c->planes[plane][t], 64);                                                                         \
        TILE_LOAD(6, w->piece[0][plane][t], 64);                                                                       \
        TILE_DOT_ROWS(first, 6, 7);                                                                                    \
        FINISH(row, 2);                                                                                                \
        TILE_LOAD(6, w->piece[1][plane][t], 64);                                                                       \
        TILE_DOT_ROWS(second, 6, 7);                                                                                   \
    } while (0)

// The same with three planes, whose six sums leave two tiles for what is multiplied.
INLINE void multiply_three_planes(struct rows_work *w, const struct pending *it, const struct rows_type *type,
                                  const struct column_values *v, const struct q8_words *c, int t)
{
    MULTIPLY_PLANE(PLANE_HIGH, 0, 1, 0);
    MULTIPLY_PLANE(PLANE_LOW, 2, 3, 2);
    FINISH(4, 2);
    MULTIPLY_PLANE(PLANE_DIFFERENCE, 4, 5, 6);
}

INLINE void store_tiles(struct rows_work *w, const struct rows_type *type)
{
    TILE_STORE(0, w->tile[0][PLANE_HIGH], 64);
    TILE_STORE(1, w->tile[1][PLANE_HIGH], 64);
    TILE_STORE(2, w->tile[0][PLANE_LOW], 64);
    TILE_STORE(3, w->tile[1][PLANE_LOW], 64);
    if (type->planes == PLANE_COUNT) {
        TILE_STORE(4, w->tile[0][PLANE_DIFFERENCE], 64);
        TILE_STORE(5, w->tile[1][PLANE_DIFFERENCE], 64);
    }
}

// Multiplies a piece by 16 columns; meanwhile the pending sums are converted.
INLINE void multiply_group(struct rows_work *w, const struct rows_kind *kind, const struct q8_words *c,
                           const struct share_prefetch *prefetch)
{
    const struct rows_type *type = &kind->type;
    const struct pending it = w->pending;
    const struct column_values v = pending_values(type, it.columns ? it.columns : c);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    if (type->planes == PLANE_COUNT) {
        TILE_ZERO(4);
        TILE_ZERO(5);
    }
    UNROLL_FOR (int t = 0; t < TILES; t++) {
        if (type->planes == PLANE_COUNT)
            multiply_three_planes(w, &it, type, &v, c, t);
        else
            multiply_one_plane(w, &it, type, &v, c, t);
        prefetch_part(prefetch, t, TILES);
    }
    store_tiles(w, type);
}

// Unpacks the current piece.
INLINE void unpack_piece(struct rows_work *w, const struct rows_kind *kind, const struct walk *at, struct heads *heads)
{
    const size_t bytes = (size_t)at->span * (size_t)kind->type.bytes;
    const struct share_prefetch prefetch = share_of(kind, at, BLOCKS, 0);
    for (int half = 0; half < HALVES; half++) {
        kind->read_heads(at->rows + half, bytes, heads + half);
        for (int row = 0; row < ROWS; row++) {
            prefetch_part(&prefetch, half * ROWS + row, PIECE_ROWS);
            kind->unpack_row(at->rows[half].at[row] + bytes, heads + half, row, w->piece + half);
        }
    }
}

INLINE void multiply_scaled(struct rows_work *w, const struct rows_kind *kind, const struct walk *at, int i,
                            const struct q8_words *c, sums16 (*sums)[GROUPS])
{
    if (i == 0)
        w->pending = (struct pending){0};
    unpack_piece(w, kind, at, w->heads[i % 2]);
    for (int g = 0; g < at->groups; g++) {
        const struct share_prefetch prefetch = share_of(kind, at, BLOCKS, g + 1);
        multiply_group(w, kind, c + g, &prefetch);
        w->pending = (struct pending){w->heads[i % 2], c + g, {&sums[0][g], &sums[1][g]}};
    }
}

INLINE void finish_scaled(struct rows_work *w, const struct rows_kind *kind)
{
    const struct column_values v = pending_values(&kind->type, w->pending.columns);
    for (int half = 0; half < HALVES; half++)
        finish_rows(w, &w->pending, &kind->type, &v, half, 0, ROWS);
}

// ---- blocks of 32: half a piece by 16 columns, block by block

// Row `row` of the pending sums: S = fma(step * isum, d, S) for its blocks in order, with a minimum S = fma(step * sum,
// m, S) after each.
INLINE void finish_block_row(struct rows_work *w, const struct pending_blocks *it, bool mins, int half, int row,
                             int n_blocks)
{
    __m512 s = _mm512_setzero_ps();
    for (int j = 0; j < n_blocks; j++) {
        __m512 isum = _mm512_cvtepi32_ps(_mm512_load_si512(w->block_sums[half][j][row]));
        isum = _mm512_mul_ps(isum, _mm512_load_ps(it->columns->steps[j]));
        s = _mm512_fmadd_ps(isum, _mm512_set1_ps(it->heads->d[j][row]), s);
        if (mins)
            s = _mm512_fmadd_ps(_mm512_load_ps(it->of_32[j]), _mm512_set1_ps(it->heads->m[j][row]), s);
    }
    float *total = (*it->sums)[row];
    _mm512_store_ps(total, _mm512_fmadd_ps(s, _mm512_load_ps(it->columns->d), _mm512_load_ps(total)));
}

INLINE void finish_block_rows(struct rows_work *w, const struct pending_blocks *it, bool mins, int half, int row, int n)
{
    if (!it->columns)
        return;
    if (it->n_blocks == BLOCKS) {
        UNROLL_FOR (int r = row; r < row + n; r++)
            finish_block_row(w, it, mins, half, r, BLOCKS);
    } else {
        KEEP_LOOP_FOR (int r = row; r < row + n; r++)
            finish_block_row(w, it, mins, half, r, it->n_blocks);
    }
}

// Multiplies two blocks of 16 rows, from element 64t on, by 16 columns, while four pending rows are converted. t:
// tile of the piece. first, second: the tiles that hold the two blocks' sums.
#define TWO_BLOCKS(t, first, second)                                                                                   \
    do {                                                                                                               \
        TILE_LOAD(6, c->words[t][0], 64);                                                                              \
        TILE_LOAD(4, w->block_piece[half][t][0], Q8_TILE_WIDTH);                                                       \
        TILE_ZERO(first);                                                                                              \
        TILE_DOT_ROWS(first, 4, 6);                                                                                    \
        finish_block_rows(w, &it, mins, !half, 4 * (t), 2);                                                            \
        TILE_LOAD(7, c->words[t][8], 64);                                                                              \
        TILE_LOAD(5, w->block_piece[half][t][0] + 32, Q8_TILE_WIDTH);                                                  \
        TILE_ZERO(second);                                                                                             \
        TILE_DOT_ROWS(second, 5, 7);                                                                                   \
        finish_block_rows(w, &it, mins, !half, 4 * (t) + 2, 2);                                                        \
    } while (0)

#define STORE_TWO(t, first, second)                                                                                    \
    do {                                                                                                               \
        TILE_STORE(first, w->block_sums[half][2 * (t)][0], 64);                                                        \
        TILE_STORE(second, w->block_sums[half][2 * (t) + 1][0], 64);                                                   \
    } while (0)

// Multiplies half a piece by 16 columns. Sums are stored while the next ones are formed; meanwhile the pending sums
// of the other half are converted.
INLINE void multiply_half(struct rows_work *w, const struct q8_words *c, bool mins, int half,
                          const struct share_prefetch *prefetch)
{
    const struct pending_blocks it = w->pending_blocks;
    TWO_BLOCKS(0, 0, 1);
    prefetch_part(prefetch, 4 * half, 8);
    TWO_BLOCKS(1, 2, 3);
    STORE_TWO(0, 0, 1);
    prefetch_part(prefetch, 4 * half + 1, 8);
    TWO_BLOCKS(2, 0, 1);
    STORE_TWO(1, 2, 3);
    prefetch_part(prefetch, 4 * half + 2, 8);
    TWO_BLOCKS(3, 2, 3);
    prefetch_part(prefetch, 4 * half + 3, 8);
    STORE_TWO(2, 0, 1);
    STORE_TWO(3, 2, 3);
}

// Unpacks the current piece. Elements past the end of a row are 0, and so are their products.
INLINE void unpack_block_piece(struct rows_work *w, const struct rows_kind *kind, const struct walk *at, int n_blocks,
                               struct block_heads *heads)
{
    const size_t bytes = (size_t)at->span * (size_t)kind->type.bytes;
    const struct share_prefetch prefetch = share_of(kind, at, n_blocks, 0);
    for (int half = 0; half < HALVES; half++) {
        if (n_blocks < BLOCKS)
            memset(w->block_piece[half], 0, sizeof(block_piece));
        kind->read_block_heads(at->rows + half, bytes, n_blocks, heads + half);
        for (int row = 0; row < ROWS; row++) {
            prefetch_part(&prefetch, half * ROWS + row, PIECE_ROWS);
            kind->unpack_blocks(at->rows[half].at[row] + bytes, n_blocks, row, w->block_piece + half);
        }
    }
}

INLINE void sum_columns(const struct q8_words *c, float sums[BLOCKS][Q8_TILE_COLUMNS])
{
    for (int j = 0; j < BLOCKS; j++) {
        __m512i sum = _mm512_madd_epi16(_mm512_load_si512(c->weighted[j]), _mm512_set1_epi16(1));
        _mm512_store_ps(sums[j], _mm512_cvtepi32_ps(sum));
    }
}

INLINE void multiply_blocks(struct rows_work *w, const struct rows_kind *kind, const struct walk *at, int i,
                            int n_blocks, const struct q8_words *c, sums16 (*sums)[GROUPS])
{
    const bool mins = kind->type.mins;
    if (i == 0)
        w->pending_blocks = (struct pending_blocks){0};
    unpack_block_piece(w, kind, at, n_blocks, w->block_heads[i % 2]);
    for (int g = 0; g < at->groups; g++) {
        float(*of_32)[Q8_TILE_COLUMNS] = w->of_32[(i * at->groups + g) % 2];
        if (mins)
            sum_columns(c + g, of_32);
        const struct share_prefetch prefetch = share_of(kind, at, n_blocks, g + 1);
        for (int half = 0; half < HALVES; half++) {
            multiply_half(w, c + g, mins, half, &prefetch);
            w->pending_blocks =
                (struct pending_blocks){&w->block_heads[i % 2][half], c + g, of_32, &sums[half][g], n_blocks};
        }
    }
}

INLINE void finish_blocks(struct rows_work *w, const struct rows_kind *kind)
{
    finish_block_rows(w, &w->pending_blocks, kind->type.mins, 1, 0, ROWS);
}

// Multiplies the i-th piece of a part of k by all columns of its span.
INLINE void multiply_piece(const struct matmul_args *a, const struct rows_kind *kind, const struct walk *at, int i,
                           const struct q8_words *c, sums16 (*sums)[GROUPS])
{
    if (kind->unpack_blocks)
        multiply_blocks(a->scratch, kind, at, i, blocks_in_span(a, at->span), c, sums);
    else
        multiply_scaled(a->scratch, kind, at, i, c, sums);
}

INLINE void multiply_part(const struct matmul_args *a, const struct rows_kind *kind, struct walk at)
{
    struct rows_work *w = a->scratch;
    enter_rows(a, &at, at.first_row);
    for (int i = 0; i >= 0; i = advance(a, &at) ? i + 1 : -1) {
        sums16(*sums)[GROUPS] = w->sums + (at.row - at.first_row) / ROWS;
        for (int half = 0; half < HALVES && !at.span; half++)
            memset(sums[half], 0, (size_t)at.groups * sizeof(sums16));
        multiply_piece(a, kind, &at, i, at.columns + (at.span - at.from) * at.stride, sums);
    }
    if (kind->unpack_blocks)
        finish_blocks(w, kind);
    else
        finish_scaled(w, kind);
}

// ---- all rows and columns: stripes of rows, groups of columns, parts of k

// Multiplies a stripe by the columns first .. first + 16 * groups - 1, over all of k, part by part.
INLINE void multiply_stripe(const struct matmul_args *a, const struct rows_kind *kind, int row, int first, int groups)
{
    struct rows_work *w = a->scratch;
    const int64_t spans = q8_blocks(a->k),
                  part = MIN(spans, (int64_t)((a->x_tiles ? PART : TRANSPOSED_GROUPS) / groups));
    struct walk at = {.first_row = row,
                      .end = MIN(row + STRIPE, a->n_rows),
                      .spans = spans,
                      .columns = w->transposed,
                      .stride = groups,
                      .groups = groups};
    if (a->x_tiles)
        at.stride = q8_groups(a->n_tiled);
    for (at.from = 0; at.from < spans; at.from = at.to) {
        at.to = MIN(at.from + part, spans);
        if (a->x_tiles)
            at.columns = q8_words_at(a->x_tiles, a->n_tiled, at.from, a->x_first + first);
        else if (part < spans || row == 0)
            matmul_q8_transpose_columns_amx(a, first, groups, at.from, at.to);
        multiply_part(a, kind, at);
    }
    matmul_q8_store_rows_amx(a, row, at.end, first, groups);
}

INLINE void multiply_by_rows(const struct matmul_args *a, const struct rows_kind *kind)
{
    const int all = q8_groups(a->n_x), most = a->x_tiles ? GROUPS : TRANSPOSED_GROUPS;
    configure_tiles(kind->unpack_blocks ? 32 : Q8_TILE_WIDTH);
    for (int first = 0; first < all; first += most)
        for (int row = 0; row < a->n_rows; row += STRIPE)
            multiply_stripe(a, kind, row, first * Q8_TILE_COLUMNS, MIN(all - first, most));
    release_tiles();
}

// Defines the kernel matmul_q8_<name>_amx. The arguments after the name are the members of struct rows_kind.
#define ROWS_FUNCTION(name, ...)                                                                                       \
    static const struct rows_kind kind_##name = {__VA_ARGS__};                                                         \
    void matmul_q8_##name##_amx(const struct matmul_args *a)                                                           \
    {                                                                                                                  \
        multiply_by_rows(a, &kind_##name);                                                                             \
    }
// Defines the kernel of a type with blocks of 256. Arguments: the type's name, its struct rows_type, read_heads and
// unpack_row.
#define ROWS_KERNEL(name, ...) ROWS_FUNCTION(name, __VA_ARGS__, NULL, NULL)

#endif
