// What an ISA level brings: one table of functions.
//
// The same sources, compiled once a level, give the same bits on every level: floats are summed in LANES lanes (element i in
// lane i % LANES, one fma after another), then by halves (8, 4, 2, 1); nothing is fused but what says fma. Quantised
// products are exact integers a block, then floats in the order of the blocks, see `matmul` below. So an output depends
// on its own row and column alone, never on how many rows stand beside it or on which thread computes it.
//
// Ownership: nothing is kept. Threads: any, each with its own scratch. Pointers need no alignment unless it is said;
// reads stay within the rows as given (q8 rows are padded, see below), writes within the outputs.
#ifndef QUERN_KERNELS_H
#define QUERN_KERNELS_H

#include "kernels/cpu.h"
#include "kernels/tensor.h"

enum { LANES = 16 };
enum { Q8_BLOCK = 256, Q8_SUMS = 16 }; // elements a scale; elements a partial sum
enum { SCRATCH_BYTES = 9 << 16 };      // of each thread, 64-byte aligned; most of it is for avx512/transposed.c

// A row of activations in 8 bits: K padded with zeros to whole blocks of 256, in three planes of one allocation.
//   d = max(max|x| / 127, 2^-126) of the block, q[i] = round to nearest even(x[i] * (1 / d)), each step in float32
//   d = 0 and q = 0 where all x are 0; d = NaN and q = 0 where one x is not finite, so that the fault shows
//   sums[j] = q[16j] + .. + q[16j+15]
// A row starts 64-byte aligned: int8 q[nb*256], then int16 sums[nb*16], then float d[nb], padded to 64.
static inline int64_t q8_blocks(int64_t k)
{
    return (k + Q8_BLOCK - 1) / Q8_BLOCK;
}
static inline size_t q8_row_bytes(int64_t k)
{
    return align_up((size_t)q8_blocks(k) * (Q8_BLOCK + 2 * (Q8_BLOCK / Q8_SUMS) + 4), 64);
}
static inline const int8_t *q8_quants(const void *row)
{
    return row;
}
static inline const int16_t *q8_sums(const void *row, int64_t k)
{
    return (const int16_t *)((const char *)row + q8_blocks(k) * Q8_BLOCK);
}
static inline const float *q8_scales(const void *row, int64_t k)
{
    return (const float *)((const char *)row + q8_blocks(k) * (Q8_BLOCK + 2 * (Q8_BLOCK / Q8_SUMS)));
}

// Many columns once more, as the panels of AVX-512 read them, one span of 256 elements after another. Of each span:
//   the quants, by groups of 16 columns: of each four tiles of 1 KB, of each tile 64 elements of the 16 columns
//   int16 sums[column][16] of the columns, int16 of_32[column][8], float d[column],
//   uint16 most[column][2], the largest sum of magnitudes |q| of a run of 16, and of 32
// The last group is filled up with columns of whatever lies there.
enum {
    Q8_TILE_COLUMNS = 16,
    Q8_TILE_WIDTH = 64,
    Q8_TILE_GROUP = Q8_TILE_COLUMNS * Q8_BLOCK,
    Q8_TILE_COLUMN_BYTES = Q8_BLOCK + 2 * Q8_SUMS + Q8_SUMS + 4 + 4, // of a column in a span
};
enum { MOST_OF_16, MOST_OF_32, MOST_COUNT };
struct q8_tiles {
    int8_t *quants;
    int16_t (*sums)[Q8_SUMS], (*sums_of_32)[Q8_SUMS / 2];
    float *d;
    uint16_t (*most)[MOST_COUNT];
};
static inline size_t q8_tiles_bytes(int64_t k, int n_columns)
{
    return (size_t)q8_blocks(k) * Q8_TILE_COLUMN_BYTES * align_up((size_t)n_columns, Q8_TILE_COLUMNS);
}
static inline struct q8_tiles q8_tiles_at(void *tiles, int n_columns, int64_t span)
{
    size_t n = align_up((size_t)n_columns, Q8_TILE_COLUMNS);
    int8_t *at = (int8_t *)tiles + (size_t)span * Q8_TILE_COLUMN_BYTES * n;
    void *sums = at + n * Q8_BLOCK, *of_32 = at + n * (Q8_BLOCK + 2 * Q8_SUMS), *d = at + n * (Q8_BLOCK + 3 * Q8_SUMS);
    return (struct q8_tiles){at, sums, of_32, d, (void *)(at + n * (Q8_BLOCK + 3 * Q8_SUMS + 4))};
}
// The first 64 quants of a column; the next lie Q8_TILE_COLUMNS * Q8_TILE_WIDTH on.
static inline int8_t *q8_tiles_quants(const struct q8_tiles *t, int column)
{
    return t->quants + column / Q8_TILE_COLUMNS * Q8_TILE_GROUP + column % Q8_TILE_COLUMNS * Q8_TILE_WIDTH;
}
// A span of one column's q8 row into its tiles, all but `most`.
static inline void q8_tiles_put(const struct q8_tiles *t, int column, const void *row, int64_t k, int64_t span)
{
    const int8_t *q = q8_quants(row) + span * Q8_BLOCK;
    const int16_t *sums = q8_sums(row, k) + span * Q8_SUMS;
    for (int i = 0; i < Q8_BLOCK; i += Q8_TILE_WIDTH)
        memcpy(q8_tiles_quants(t, column) + i * Q8_TILE_COLUMNS, q + i, Q8_TILE_WIDTH);
    memcpy(t->sums[column], sums, sizeof(t->sums[column]));
    for (int i = 0; i < Q8_SUMS / 2; i++)
        t->sums_of_32[column][i] = (int16_t)(sums[2 * i] + sums[2 * i + 1]);
    t->d[column] = q8_scales(row, k)[span];
}
// `most` of a column, from its quants there.
static inline void q8_tiles_put_most(const struct q8_tiles *t, int column)
{
    uint16_t *most = t->most[column];
    most[MOST_OF_16] = most[MOST_OF_32] = 0;
    for (int i = 0; i < Q8_BLOCK; i += 32) {
        int in_tile = i % Q8_TILE_WIDTH;
        const int8_t *q = q8_tiles_quants(t, column) + (i - in_tile) * Q8_TILE_COLUMNS + in_tile;
        int low = 0, high = 0;
        for (int j = 0; j < 16; j++)
            low += q[j] < 0 ? -q[j] : q[j], high += q[16 + j] < 0 ? -q[16 + j] : q[16 + j];
        most[MOST_OF_16] = (uint16_t)MAX(most[MOST_OF_16], MAX(low, high));
        most[MOST_OF_32] = (uint16_t)MAX(most[MOST_OF_32], low + high);
    }
}

// The same for matrix tiles whose rows are rows of weights (AMX): 16 columns together, span after span, of a span group after
// group; words of four elements of the 16 columns side by side. As large as the above. Columns that fill the last group up
// have d = 0.
struct q8_words {
    int8_t words[Q8_BLOCK / Q8_TILE_WIDTH][Q8_TILE_WIDTH / 4][Q8_TILE_COLUMNS][4];
    int16_t pairs_of_16[Q8_SUMS / 2][Q8_TILE_COLUMNS][2], pairs_of_32[Q8_SUMS / 4][Q8_TILE_COLUMNS][2]; // sums of q
    int32_t total[Q8_TILE_COLUMNS];
    float d[Q8_TILE_COLUMNS];
};
_Static_assert(sizeof(struct q8_words) == Q8_TILE_COLUMNS * Q8_TILE_COLUMN_BYTES,
               "both ways of tiles take the same room");
static inline int q8_groups(int n_columns)
{
    return (n_columns + Q8_TILE_COLUMNS - 1) / Q8_TILE_COLUMNS;
}
static inline struct q8_words *q8_words_at(void *tiles, int n_columns, int64_t span, int column)
{
    return (struct q8_words *)tiles + span * q8_groups(n_columns) + column / Q8_TILE_COLUMNS;
}
// All but the quants of column `i` of 16.
static inline void q8_words_put_sums(struct q8_words *w, int i, const int16_t sums[Q8_SUMS], float d)
{
    int32_t total = 0;
    for (int j = 0; j < Q8_SUMS; j++) {
        w->pairs_of_16[j / 2][i][j % 2] = sums[j];
        total += sums[j];
    }
    for (int j = 0; j < Q8_SUMS / 2; j++)
        w->pairs_of_32[j / 2][i][j % 2] = (int16_t)(sums[2 * j] + sums[2 * j + 1]);
    w->total[i] = total;
    w->d[i] = d;
}
static inline void q8_words_put(struct q8_words *w, int i, const int8_t q[Q8_BLOCK], const int16_t sums[Q8_SUMS],
                                float d)
{
    for (int j = 0; j < Q8_BLOCK; j += 4)
        memcpy(w->words[j / Q8_TILE_WIDTH][j % Q8_TILE_WIDTH / 4][i], q + j, 4);
    q8_words_put_sums(w, i, sums, d);
}

// y[j][r] = sum over k of W[r][k] * x[j][k], r < n_rows, j < n_x: y[j] points at the output of the first row.
// In `matmul_q8` x[j] is a q8 row; in `matmul_f32` it is k floats. The canonical order, for one column or many:
//
// matmul_q8: D = 0; for each 256 elements in order D = fma(S, da, D); y = D. S is,
//   for types with blocks of 256 and integer sub-scales (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0):
//     isum = sum_j scale_j * sum(w*q), msum = sum_j min_j * sum(q), both exact in int32;
//     S = (float)isum * dw; with mins (Q2_K, Q4_K, Q5_K) then S = fma(-(float)msum, mw, S);
//     In IQ1 to IQ3 scale_j = 2s + 1, and dw = d / 8 in IQ1 and IQ2, d / 4 in IQ3_XXS, d in IQ3_S; w is the codebook's value
//     with its sign, in IQ1 the value and its shift in eighths: 8 g + 1 or 8 g - 1. TQ1_0 and TQ2_0: scale_j = 1, w = -1 .. 1.
//   for types with blocks of 32 (Q4_0, Q5_0, Q8_0, IQ4_NL, MXFP4; with a minimum Q4_1, Q5_1): S = 0, then for the up to 8
//     blocks in order S = fma((float)isum_j, dw_j, S), and with a minimum then S = fma((float)sum(q), mw_j, S).
//   for Q1_0 and Q2_0 the same, as if their blocks were 4 and 2 of 32; for NVFP4 the same by its runs of 16.
//   The offset of w (4 in Q3_K, 8 in Q4_0, 16 in Q5_0, 32 in Q6_K) is inside isum.
// matmul_f32: W decoded to float32 (exactly as dtype_decode does), then lanes: acc[i % LANES] = fma(w[i], x[i], acc[..]),
//   and the lanes summed by halves.
// How a few columns read memory fastest, in which CPUs differ. It changes no bits.
enum reading {
    READING_BY_ROW, // neighbours side by side, each row asks for its own bytes some way ahead
    READING_STREAMS, // few streams, as long as can be, that the hardware follows; or bytes asked for in the order of memory
    READING_PREFETCHED, // such streams; what lies further on in them is asked for as well, where that reads more, into L2
    READING_COUNT,
};

static inline bool reads_streams(enum reading reading)
{
    return reading != READING_BY_ROW;
}

struct matmul_args {
    const void *w;   // first row
    size_t w_stride; // bytes from row to row
    int n_rows;
    int64_t k;
    enum dtype type;      // of w (the generic kernels serve many)
    const void *const *x; // [n_x]
    int n_x;
    void *x_tiles;        // 64-byte aligned: n_tiled columns in tiles, for kernels that use these; NULL: not made
    int n_tiled, x_first; // of these columns x[0] is x_first, a multiple of Q8_TILE_COLUMNS
    float *const *y;      // [n_x]
    void *scratch;        // SCRATCH_BYTES, 64-byte aligned
    const void *next;     // rows that this thread will probably read after these, to be fetched ahead; NULL: not known
    size_t next_stride;   // bytes from one of these to the next
    int64_t next_rows;    // how many they are
    enum reading reading; // see kernels_reading
    bool spare_adders;    // see kernels_spare_adders
};
typedef void matmul_fn(const struct matmul_args *a);

// Where the rows behind a group of `height` rows from `first` on begin; where that is not known, these, which are in the
// cache. Rows lie one behind the other, so all their bytes can be asked for as they lie, while as many are multiplied.
static inline const uint8_t *matmul_rows_after(const struct matmul_args *a, int first, int height)
{
    const int after = first + height < a->n_rows ? first + height : first;
    return after == first && a->next ? a->next : (const uint8_t *)a->w + (size_t)after * a->w_stride;
}

// Which of n rows go together, `height` of them: neighbours, or rows far apart, so that memory is read as `height` long
// streams. Where a group hangs over, the last row stands in for those that are not there.
struct row_cut {
    int n, groups;
    int group_step, row_step; // rows between groups, and between a group's rows
};

static inline struct row_cut row_cut_neighbours(int n, int height)
{
    return (struct row_cut){n, (n + height - 1) / height, height, 1};
}

// So many rows apart, n / height at least.
static inline struct row_cut row_cut_apart(int n, int apart)
{
    return (struct row_cut){n, apart, 1, apart};
}

// Whether streams so many bytes apart begin at the same place of a way of the first-level cache, more of them than half of its
// eight ways.
static inline bool row_streams_meet(int height, size_t apart)
{
    enum { WAYS = 8, WAY = 4096, CLOSE = 128 };
    return (apart + CLOSE) % (size_t)(WAYS * WAY / height) < 2 * CLOSE;
}

// As few rows apart as can be, or, of many, one more where these would meet, and drive each other out of the cache.
static inline struct row_cut row_cut_streams(int n, int height, size_t stride)
{
    enum { MANY = 8 };
    const size_t apart = (size_t)((n + height - 1) / height);
    const bool move =
        apart >= MANY && row_streams_meet(height, apart * stride) && !row_streams_meet(height, (apart + 1) * stride);
    return row_cut_apart(n, (int)apart + move);
}

static inline int row_of_cut(const struct row_cut *cut, int group, int i)
{
    return MIN(group * cut->group_step + i * cut->row_step, cut->n - 1);
}

// Attention of some rows for one KV head and the query heads that share it.
// Keys are taken in spans of ATTENTION_SPAN positions, counted from position 0: in each span the scores of all seen keys
// (s = scale * q.k, q.k in lanes over dim_k), their greatest m, p = exp(s - m), and 0 where s - m < -87, l = sum of p
// (position % LANES is the lane), o = sum of p*v, one fma after another in order of position; the spans' (m, l, o) are
// merged in order. So a row's result depends on its own position and keys alone. The dimensions are at most
// ATTENTION_DIM_MAX.
// Keys and values of Q8_0 are multiplied as integers, unless `exact` is set: with queries and powers of 16 bits, in the order
// that attention_words.h states. What that rounds is an NMSE below 1e-8 for usual scores.
enum { ATTENTION_SPAN = 512 };
struct attention_args {
    const float *q;  // row r, head h: q + r * q_stride + h * dim_k, h over the heads of the group
    size_t q_stride; // floats
    float *out;      // row r, head h: out + r * out_stride + h * dim_v
    size_t out_stride;
    int n_rows;
    int n_head; // query heads of this KV head
    int dim_k, dim_v;
    float scale, softcap;
    int window;
    const int32_t *positions; // [n_rows]
    const int32_t *seqs;      // [n_rows]
    const int32_t *pages;     // [.][pages_stride]
    int pages_stride;
    // Of this layer and KV head in page 0: KV_PAGE rows of dim elements of the type, packed; of Q8_0 as kv_words.h arranges them.
    const uint8_t *k, *v;
    size_t page_bytes; // from page to page
    enum dtype k_type, v_type;
    bool exact; // 8-bit keys and values, too, are multiplied as floats
    void *scratch;
    enum reading reading; // see kernels_reading
};

// The (row, head) pairs of a sequence that are taken together, on every level: a page of keys or values is made ready once
// for all of them. The scratch holds their scores, sums and, where these are widened to whole LANES or become integers of 16
// bits, queries, beside a page in float32 and LANES rows of keys.
static inline int attention_pairs(int dim_k, int dim_v)
{
    int64_t k = (dim_k + LANES - 1) / LANES * LANES, v = (dim_v + LANES - 1) / LANES * LANES;
    int64_t page = KV_PAGE * (MAX(k, v) + LANES) + LANES * k;
    int64_t pair = ATTENTION_SPAN + v + (k == dim_k ? k / 2 : k) + LANES; // LANES: what is noted of it
    return (int)((SCRATCH_BYTES / (int)sizeof(float) - page) / pair);
}

struct kernels {
    const char *name;

    // One row each. y may be x.
    void (*norm)(enum norm_kind kind, const float *x, const float *gain, const float *bias, float eps, int64_t n,
                 float *y);
    void (*act)(enum act_kind kind, const float *x, float *y, int64_t n);
    void (*glu)(enum act_kind kind, const float *gate, const float *up, float *y, int64_t n);
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*scale)(const float *x, float factor, float *y, int64_t n);
    void (*softcap)(const float *x, float cap, float *y, int64_t n);
    void (*rope)(const float *x, const float *table, int64_t n_pairs, int64_t head_dim, int64_t n_heads,
                 enum rope_layout layout, float *y);
    void (*route)(enum route_kind kind, const float *logits, int n_expert, int n_used, bool normalise, float scale,
                  float *weights, int32_t *ids);
    void (*quantize_q8)(const float *x, int64_t k, void *row);
    // Columns col .. col+n-1 alone of a row of k, x[0] the first of them: whole blocks, from a block's start.
    void (*quantize_q8_columns)(const float *x, int64_t k, int64_t col, int64_t n, void *row);
    // The same of n_x rows, to the columns `column` .. of n_columns in the tiles that this level reads; and a span of a row
    // that is quantised.
    void (*quantize_q8_tiles)(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                              int column);
    void (*put_q8_tiles)(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column);
    void (*combine)(const float *x, const float *weights, int n_used, int64_t n,
                    float *y); // sum_j weights[j]*x[j*n ..]
    // Conversions of n elements (a multiple of the type's block).
    void (*const *encode)(const float *x, void *blocks,
                          int64_t n); // [DT_COUNT]; the KV types; same bits as dtype_encode
    void (*const *decode)(const void *blocks, float *x,
                          int64_t n); // [DT_COUNT]; all that decode; same bits as dtype_decode

    // Of a model's weights, by a search for what leaves the least error; [DT_COUNT], see quantize_fn in machine.h.
    quantize_fn *const *quantize_blocks, *const *quantize_k, *const *quantize_grid;

    void (*attention)(const struct attention_args *a);

    // Tables of DT_COUNT. A type with no 8-bit path on this level has NULL, and matmul_f32 serves it (named in -v).
    matmul_fn *const *matmul_q8;
    matmul_fn *const *matmul_f32; // never NULL for a type that decodes
    // Whether matmul_q8 multiplies n columns of k by a type in tiles, and is faster with x_tiles, on a CPU with spare_adders or
    // without; NULL: the level has none.
    bool (*in_tiles)(enum dtype type, int64_t k, int64_t n, bool spare_adders);
    enum reading reading; // where this is the best level of a CPU
    bool
        floats_by_row; // weights of products of floats, and the cache, by row whatever `reading` is: see reading_of_floats
    int64_t item_weights; // about, that a call for few rows is best given at the most: longer ones stream no better
};

// The levels that this binary holds, best first, ended by NULL; and the best that this CPU runs (cpuid and xgetbv, HWCAP).
#define ISA(NAME, name, ...) extern const struct kernels kernels_##name;
#include "kernels/cpu/isa.def"
#undef ISA
const struct kernels *kernels_best(void);
// By name: NULL with an error that lists what there is, or says that this CPU cannot run it.
const struct kernels *kernels_find(const char *name, struct error *err);
int kernels_count(void);                 // levels of this binary that this CPU runs
const struct kernels *kernels_at(int i); // best first
// How this CPU reads with a level: a level that reads streams does so as the CPU's best one does, where that reads streams.
enum reading kernels_reading(const struct kernels *k);
// And how it reads in products of floats and the cache, where it reads as `reading` says for those of 8 bits.
static inline enum reading reading_of_floats(const struct kernels *k, enum reading reading)
{
    return k->floats_by_row ? READING_BY_ROW : reading;
}
// Whether this CPU multiplies 512 bits of bytes once a cycle while it shifts, blends and adds beside that, and loads them,
// for nothing: AMD's Zen 4 does. Others do these in the units that multiply, or were not measured. It changes no bits.
bool kernels_spare_adders(void);

#endif
