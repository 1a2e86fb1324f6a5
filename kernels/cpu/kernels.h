// The table of functions that an ISA level brings (struct kernels), and the layouts that these functions share.
//
// Every level returns the same bits. Floats are summed in LANES lanes: element i is added to lane i % LANES by fma, in
// order of i, and then the lanes are added by halves (8, 4, 2, 1). Other operations are not fused. A product of
// quantised numbers is an exact integer within a block; the blocks' floats are added in order (see struct matmul_args).
// So an output depends only on its own row and column. It does not depend on how many rows are computed with it, nor
// on the thread that computes it.
//
// The functions keep no state and own no memory. Any thread may call them with its own scratch. Pointers need no
// alignment unless a comment says so. Reads stay within the given rows (q8 rows are padded, see below), writes within
// the outputs.
#ifndef QUERN_KERNELS_H
#define QUERN_KERNELS_H

#include "kernels/cpu.h"
#include "kernels/tensor.h"

enum { LANES = 16 };
// Elements per scale; elements per step; elements per partial sum. Steps are 1 .. Q8_STEP_MAX.
enum { Q8_BLOCK = 256, Q8_RUN = 32, Q8_SUMS = 16, Q8_STEP_MAX = 16 };
enum { Q8_RUNS = Q8_BLOCK / Q8_RUN, Q8_BLOCK_BYTES = Q8_BLOCK + 2 * (Q8_BLOCK / Q8_SUMS) + Q8_RUNS + 4 };
enum { SCRATCH_BYTES = 9 << 16 }; // per thread, 64-byte aligned; avx512/transposed.c needs most of it

// A q8 row: a row of k activations in 8 bits, with a scale for every 32 elements. Element i is about
// d[i / 256] * steps[i / 32] * q[i]. The scale of 32 elements is the scale d of their block of 256 times a small
// integer, their step. So a product with quantised weights remains an exact integer over the 256 elements of a block:
// the steps are multiplied into the integer scales or sums of the weights (see struct matmul_args).
//
// k is padded with zeros to nb whole blocks of 256 elements. One allocation, 64-byte aligned, holds four arrays: int8
// q[nb * 256], int16 sums[nb * 16], uint8 steps[nb * 8] and float d[nb]. Its size is padded to a multiple of 64 bytes.
// With M = max|x| of the block, m = max|x| of 32 elements, and each operation in float32:
//   d         max(M / 2032, 2^-126), where 2032 = 127 * 16
//   steps[j]  ceil(m * (1 / d) * (1 / 127)), limited to 1 .. 16
//   q[i]      x[i] * ((1 / d) / steps[i / 32]), rounded to the nearest integer, ties to even; it is -127 .. 127
//   sums[j]   q[16j] + .. + q[16j + 15]
// If all x of a block are 0, d and q are 0. If one x is not finite, q is 0 and d is NaN, so that the fault shows in the
// outputs. In both cases the steps are 1.
static inline int64_t q8_blocks(int64_t k)
{
    return (k + Q8_BLOCK - 1) / Q8_BLOCK;
}
static inline size_t q8_row_bytes(int64_t k)
{
    return align_up((size_t)q8_blocks(k) * Q8_BLOCK_BYTES, 64);
}
static inline const int8_t *q8_quants(const void *row)
{
    return row;
}
static inline const int16_t *q8_sums(const void *row, int64_t k)
{
    return (const int16_t *)((const char *)row + q8_blocks(k) * Q8_BLOCK);
}
static inline const uint8_t *q8_steps(const void *row, int64_t k)
{
    return (const uint8_t *)row + q8_blocks(k) * (Q8_BLOCK + 2 * (Q8_BLOCK / Q8_SUMS));
}
static inline const float *q8_scales(const void *row, int64_t k)
{
    return (const float *)((const char *)row + q8_blocks(k) * (Q8_BLOCK_BYTES - 4));
}

// Columns in tiles: q8 rows that serve as the columns of a matmul, arranged as the panels of AVX-512 read them. Spans
// of 256 elements follow each other. A span has these arrays, for all columns:
//   quants              by groups of 16 columns: four tiles of 1 KB, each with 64 elements of each of the 16 columns
//   sums[column]        16 sums of 16 elements each
//   weighted[column]    the same sums, times their steps; at most 16 * 127 * 16, so they fit 16 bits
//   steps[column]       8 steps, each as a pair of two equal int16
//   d[column]           the scale
//   most[column]        the largest sum of magnitudes |q| over the runs of 16 elements, and over the runs of 32
// If n_columns is not a multiple of 16, the places of the missing columns in the last group are not initialised.
enum {
    Q8_TILE_COLUMNS = 16,
    Q8_TILE_WIDTH = 64,
    Q8_TILE_GROUP = Q8_TILE_COLUMNS * Q8_BLOCK,
    Q8_TILE_COLUMN_BYTES = Q8_BLOCK + 4 * Q8_SUMS + 4 * Q8_RUNS + 4 + 4, // per column and span, over all arrays
};
enum { MOST_OF_16, MOST_OF_32, MOST_COUNT };
struct q8_tiles {
    int8_t *quants;
    int16_t (*sums)[Q8_SUMS], (*weighted)[Q8_SUMS], (*steps)[Q8_RUNS][2];
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
    struct q8_tiles t = {.quants = at};
    t.sums = (void *)(at += n * Q8_BLOCK);
    t.weighted = (void *)(at += n * sizeof(*t.sums));
    t.steps = (void *)(at += n * sizeof(*t.weighted));
    t.d = (void *)(at += n * sizeof(*t.steps));
    t.most = (void *)(at + n * sizeof(*t.d));
    return t;
}
// The first 64 quants of a column. The next 64 are Q8_TILE_COLUMNS * Q8_TILE_WIDTH bytes further on.
static inline int8_t *q8_tiles_quants(const struct q8_tiles *t, int column)
{
    return t->quants + column / Q8_TILE_COLUMNS * Q8_TILE_GROUP + column % Q8_TILE_COLUMNS * Q8_TILE_WIDTH;
}
// Stores the weighted sums and the pairs of steps of column `column`, whose `sums` are in the tiles.
static inline void q8_tiles_put_steps(const struct q8_tiles *t, int column, const uint8_t steps[Q8_RUNS])
{
    for (int i = 0; i < Q8_SUMS; i++)
        t->weighted[column][i] = (int16_t)(t->sums[column][i] * steps[i / 2]);
    for (int i = 0; i < Q8_RUNS; i++)
        t->steps[column][i][0] = t->steps[column][i][1] = steps[i];
}
// Copies a span of a q8 row into the tiles as column `column`: everything but `most`.
static inline void q8_tiles_put(const struct q8_tiles *t, int column, const void *row, int64_t k, int64_t span)
{
    const int8_t *q = q8_quants(row) + span * Q8_BLOCK;
    for (int i = 0; i < Q8_BLOCK; i += Q8_TILE_WIDTH)
        memcpy(q8_tiles_quants(t, column) + i * Q8_TILE_COLUMNS, q + i, Q8_TILE_WIDTH);
    memcpy(t->sums[column], q8_sums(row, k) + span * Q8_SUMS, sizeof(t->sums[column]));
    q8_tiles_put_steps(t, column, q8_steps(row, k) + span * Q8_RUNS);
    t->d[column] = q8_scales(row, k)[span];
}
// Computes `most` of a column from its quants in the tiles.
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

// Columns in words: the same columns, arranged for AMX, whose matrix tiles have rows of weights. Each struct holds 16
// columns (a group) in one span. The groups of a span follow each other, then come those of the next span. A word is
// four elements of a column, and the words of the 16 columns are interleaved. The missing columns of the last group
// have d = 0 and steps = 0; their other places are not initialised.
//
// The products q * step are there as well, as bytes: q * step = 64 * high + low, with high = -32 .. 31 and low =
// 0 .. 63. A plane holds the bytes of one kind for the whole span; amx/panel.h says what the third plane is for.
enum { PLANE_HIGH, PLANE_LOW, PLANE_DIFFERENCE, PLANE_COUNT }; // high, low, low - high
struct q8_words {
    int8_t words[Q8_BLOCK / Q8_TILE_WIDTH][Q8_TILE_WIDTH / 4][Q8_TILE_COLUMNS][4]; // q
    int8_t planes[PLANE_COUNT][Q8_BLOCK / Q8_TILE_WIDTH][Q8_TILE_WIDTH / 4][Q8_TILE_COLUMNS][4];
    int16_t weighted[Q8_RUNS][Q8_TILE_COLUMNS][2]; // the two sums of 16 q of each run of 32, times its step
    float steps[Q8_RUNS][Q8_TILE_COLUMNS];
    int32_t total[Q8_TILE_COLUMNS]; // sum of all `weighted` of the span
    float d[Q8_TILE_COLUMNS];
};
static inline int q8_groups(int n_columns)
{
    return (n_columns + Q8_TILE_COLUMNS - 1) / Q8_TILE_COLUMNS;
}
static inline size_t q8_words_bytes(int64_t k, int n_columns)
{
    return (size_t)q8_blocks(k) * (size_t)q8_groups(n_columns) * sizeof(struct q8_words);
}
static inline struct q8_words *q8_words_at(void *tiles, int n_columns, int64_t span, int column)
{
    return (struct q8_words *)tiles + span * q8_groups(n_columns) + column / Q8_TILE_COLUMNS;
}
// Stores the sums, the steps and the scale of column i of the 16, but not its quants.
static inline void q8_words_put_sums(struct q8_words *w, int i, const int16_t sums[Q8_SUMS],
                                     const uint8_t steps[Q8_RUNS], float d)
{
    int32_t total = 0;
    for (int j = 0; j < Q8_SUMS; j++) {
        w->weighted[j / 2][i][j % 2] = (int16_t)(sums[j] * steps[j / 2]);
        total += sums[j] * steps[j / 2];
    }
    for (int j = 0; j < Q8_RUNS; j++)
        w->steps[j][i] = steps[j];
    w->total[i] = total;
    w->d[i] = d;
}

// In which order a matmul of few columns reads the rows of weights. CPUs differ in what is fastest. The bits of the
// results do not depend on it.
enum reading {
    // Neighbouring rows together. Each row prefetches its own bytes some distance ahead.
    READING_BY_ROW,
    // A few rows that are far apart, so that memory is read as a few streams, as long as possible, which the hardware
    // prefetcher follows; or neighbouring rows, whose bytes are prefetched in the order of memory.
    READING_STREAMS,
    // Streams as above. Kernels also prefetch into L2 further on in the streams where this is faster.
    READING_PREFETCHED,
    READING_COUNT,
};

static inline bool reads_streams(enum reading reading)
{
    return reading != READING_BY_ROW;
}

// A matmul: y[j][r] = sum over k of W[r][k] * x[j][k], for r < n_rows and j < n_x. For matmul_q8, x[j] is a q8 row; for
// matmul_f32, it is k floats. The order of operations is the same for any number of columns:
//
// matmul_q8: D = 0; then for each 256 elements, in order, D = fma(S, da, D), where da is the scale d of the activations;
// y = D. Below, r is the step of the activations that are summed. How S is computed depends on the type:
//   - Types with blocks of 256 and integer sub-scales (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0):
//       isum = sum_j r_j * scale_j * sum(w*q) and msum = sum_j r_j * min_j * sum(q), both exact in int32: the largest
//       isum is that of Q6_K, 256 * 32 * 127 * 128 * 16 = 2^31 - 2^24. This is why steps end at 16.
//       S = (float)isum * dw. If the type has minima (Q2_K, Q4_K, Q5_K), then S = fma(-(float)msum, mw, S).
//     In IQ1 to IQ3, scale_j = 2s + 1, and dw is d / 8 in IQ1 and IQ2, d / 4 in IQ3_XXS, and d in IQ3_S. There w is the
//     signed value of the codebook; in IQ1 it is the value with its shift, in eighths: 8 g + 1 or 8 g - 1.
//     In TQ1_0 and TQ2_0, scale_j = 1 and w is -1, 0 or 1.
//   - Types with blocks of 32 (Q4_0, Q5_0, Q8_0, IQ4_NL, MXFP4; with a minimum Q4_1 and Q5_1):
//       S = 0; then for each block, in order, S = fma((float)(r_j * isum_j), dw_j, S), and if the type has a minimum,
//       also S = fma((float)(r_j * sum(q)), mw_j, S). Both integers are below 2^24, so floats hold them exactly, and r_j
//       may as well be multiplied into dw_j, which has at most 11 bits: the result is the same, unless that overflows
//       (dw_j of MXFP4 may be as large as 2^127).
//   - Q1_0 and Q2_0: the same, with each block taken as 4 and as 2 blocks of 32. NVFP4: the same by its runs of 16.
//   isum includes the offset of w (-4 in Q3_K, -8 in Q4_0, -16 in Q5_0, -32 in Q6_K).
//
// matmul_f32: the weights w[i] of a row are decoded to float32, with the bits of dtype_decode. Then acc[i % LANES] =
// fma(w[i], x[i], acc[i % LANES]) in order of i, and the lanes are added by halves.
struct matmul_args {
    const void *w;   // first row
    size_t w_stride; // bytes from row to row
    int n_rows;
    int64_t k;            // elements of a row
    enum dtype type;      // of w; one kernel may serve several types
    const void *const *x; // [n_x]
    int n_x;
    void *x_tiles;        // columns in the layout of the level's put_q8_tiles, 64-byte aligned; NULL: not made
    int n_tiled, x_first; // the number of columns in x_tiles, and which of them is x[0]: a multiple of Q8_TILE_COLUMNS
    float *const *y;      // [n_x]; each points at the output of the first row
    void *scratch;        // SCRATCH_BYTES, 64-byte aligned
    const void *next;     // rows that this thread will probably read next, to be prefetched; NULL: not known
    size_t next_stride;   // bytes from one of these rows to the next
    int64_t next_rows;    // their number
    enum reading reading; // see kernels_reading
    bool spare_adders;    // see kernels_spare_adders
};
typedef void matmul_fn(const struct matmul_args *a);

// The address to prefetch from while `height` rows from `first` on are multiplied: the rows after them. After the last
// group these are the caller's next rows. If those are not known, it is the group itself, which is in the cache
// already. Rows are contiguous, so their bytes can be prefetched in the order of memory.
static inline const uint8_t *matmul_rows_after(const struct matmul_args *a, int first, int height)
{
    const int after = first + height < a->n_rows ? first + height : first;
    return after == first && a->next ? a->next : (const uint8_t *)a->w + (size_t)after * a->w_stride;
}

// How n rows are divided into groups of `height` rows that are multiplied together. A group has neighbouring rows, or
// rows that are far apart, so that memory is read as `height` long streams. If a group is not full, the last row of all
// takes the missing places.
struct row_cut {
    int n, groups;
    int group_step, row_step; // rows from one group to the next, and from one row of a group to the next
};

static inline struct row_cut row_cut_neighbours(int n, int height)
{
    return (struct row_cut){n, (n + height - 1) / height, height, 1};
}

// The rows of a group are `apart` rows apart, which is at least n / height.
static inline struct row_cut row_cut_apart(int n, int apart)
{
    return (struct row_cut){n, apart, 1, apart};
}

// Whether `height` streams, each `apart` bytes after the one before, begin in nearly the same sets of an L1 cache of
// eight ways of 4 KB, and so evict each other's lines.
static inline bool row_streams_meet(int height, size_t apart)
{
    enum { WAYS = 8, WAY = 4096, CLOSE = 128 };
    return (apart + CLOSE) % (size_t)(WAYS * WAY / height) < 2 * CLOSE;
}

// The rows of a group are as few rows apart as possible. If their streams would evict each other, and there are enough
// rows, they are one row further apart.
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

// Attention of some rows for one KV head and the query heads that share it. dim_k and dim_v are at most
// ATTENTION_DIM_MAX.
//
// Positions are divided into spans of ATTENTION_SPAN, counted from position 0. For each span, over the keys that the
// row sees:
//   s = scale * q.k, where q.k is summed in lanes over dim_k, capped, plus slope * (j - position); m = max s
//   p = exp(s - m), or 0 if s - m < -87
//   l = sum of p, in lane position % LANES
//   o = sum of p * v, one fma after another in order of position
// The spans' (m, l, o) are merged in order, behind (sink, 1, 0) if there are sinks. So the result of a row depends only on its own position and keys.
// Keys and values of Q8_0 are multiplied as integers, unless `exact` is set: queries and p become integers of 16 bits,
// and the order is that of attention_words.h. The error of this rounding (NMSE) is below 1e-8 for usual scores.
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
    bool chunked, both_ways;  // see attention_params
    int end;                  // positions of the last row's sequence, for attention both ways
    const float *sinks;       // [n_head], or NULL
    const float *slopes;      // [n_head], or NULL: none
    const int32_t *positions; // [n_rows]
    const int32_t *seqs;      // [n_rows]
    const int32_t *pages;     // [.][pages_stride]
    int pages_stride;
    // The rows of this layer and KV head in page 0: KV_PAGE rows of dim elements of the type, packed. Those of Q8_0 are
    // arranged as kv_words.h describes.
    const uint8_t *k, *v;
    size_t page_bytes;  // from page to page
    size_t v_row_bytes; // from a row of values to the next, which may be a longer row of keys
    enum dtype k_type, v_type;
    enum kv_part v_part; // whose layout values have: KV_KEY where they are the first columns of keys
    bool exact;          // keys and values of Q8_0 are multiplied as floats, too
    void *scratch;
    enum reading reading; // see kernels_reading
};

// How many (row, head) pairs of a sequence attention computes together, on every level; a page of keys or values is
// decoded once for all of them. As many are taken as fit the scratch: it holds a page in float32, LANES rows of keys,
// and for each pair its scores, its sums, its state, and its query if that is padded to whole LANES or converted to
// integers of 16 bits.
static inline int attention_pairs(int dim_k, int dim_v)
{
    int64_t k = (dim_k + LANES - 1) / LANES * LANES, v = (dim_v + LANES - 1) / LANES * LANES;
    int64_t page = KV_PAGE * (MAX(k, v) + LANES) + LANES * k;
    int64_t pair = ATTENTION_SPAN + v + (k == dim_k ? k / 2 : k) + LANES; // LANES: room for its state
    return (int)((SCRATCH_BYTES / (int)sizeof(float) - page) / pair);
}

// The rows of one sequence in a step, as operations with state take them. A part of the state is float32 at the same
// place in every slot.
struct scan_rows {
    int n;
    const float *x; // row 0; strides are floats from row to row
    size_t x_stride;
    float *y;
    size_t y_stride;
    const float *from; // the state before row 0; NULL: zeros
    float *states;     // the same place in slot 0, and the floats of a slot
    size_t slot;
    const int32_t *to; // [n]: the slot that the state after a row is stored to; -1: to none
    void *scratch;     // SCRATCH_BYTES, 64-byte aligned
};

// A short convolution of n columns, of which x, y, w and bias give the first; see graph_short_conv. The state has
// kernel - 1 rows of `width` columns of a slot, the oldest first.
struct conv_args {
    struct scan_rows rows;
    const void *w;    // [n][kernel] F32
    const void *bias; // [n] F32, or NULL
    int kernel;
    int64_t width, n;
};

// Columns col0 .. col1 - 1 of one head of a delta rule; see graph_delta_rule. In a row of x the head's query, key and
// value begin at elements q, k and v; y begins at column col0. The state is in blocks of DELTA_COLUMNS columns, the last
// one narrower: each has dim_k rows. col0 is a multiple of DELTA_COLUMNS, and so is col1 unless it is dim_v.
struct delta_args {
    struct scan_rows rows;
    int64_t q, k, v;
    const float *alpha, *beta; // of row 0
    size_t alpha_stride, beta_stride;
    float rate, bias, eps;
    bool by_channel; // alpha has the steps of dim_k columns, see graph_channel_delta_rule
    int dim_k, dim_v, col0, col1;
};
enum { DELTA_COLUMNS = 32 };

// Columns col0 .. col1 - 1 of a selective scan, which belong to one group; see graph_selective_scan. x, dt, rate and skip are
// those of column 0 and head 0 of the whole row, b and c those of the group; y begins at column col0. The state is in blocks of DELTA_COLUMNS
// columns, the last one of a group narrower: each has n_state rows. col0 is the beginning of a block, and so is col1 unless
// the group ends there.
struct scan_args {
    struct scan_rows rows;
    const float *dt, *b, *c; // of row 0
    size_t dt_stride, b_stride, c_stride;
    const void *rate, *skip; // F32; skip may be NULL
    bool rates;
    int dim, n_state;
    int64_t col0, col1;
};

// The parameters of a route, see graph_route.
struct route_args {
    enum route_kind kind;
    int n_expert, n_used;
    bool normalise;
    float scale;
    const float *bias;         // [n_expert], or NULL
    int n_group, n_group_used; // 0: no groups
    float *scratch;            // with a bias or groups: room for 2 * n_expert
    int share;                 // so many neighbouring ids become one; 0: each is one
};

struct kernels {
    const char *name;

    // Operations on one row of n elements (rope: n_heads * head_dim). y may be x. graph.h and ref.c define what they
    // compute. norm: gain and bias may be NULL. rope: the table has n_pairs cosines and then n_pairs sines.
    // route: stores the weights and the ids of the n_used chosen experts.
    void (*norm)(enum norm_kind kind, const float *x, const float *gain, const float *bias, float eps, int64_t n,
                 float *y);
    void (*act)(enum act_kind kind, const float *x, float *y, int64_t n);
    void (*glu)(enum act_kind kind, const float *gate, const float *up, float *y, int64_t n);
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*scale)(const float *x, float factor, float *y, int64_t n);
    void (*softcap)(const float *x, float cap, float *y, int64_t n);
    void (*clamp)(const float *x, float limit, float *y, int64_t n);
    void (*xielu)(const struct xielu_params *p, const float *x, float *y, int64_t n);
    void (*rope)(const float *x, const float *table, int64_t n_pairs, int64_t head_dim, int64_t n_heads,
                 enum rope_layout layout, float *y);
    void (*route)(const struct route_args *a, const float *logits, float *weights, int32_t *ids);
    // Rounds k floats to a q8 row.
    void (*quantize_q8)(const float *x, int64_t k, void *row);
    // The same for elements col .. col + n - 1 of a row of k. x[0] is element col. col is a multiple of Q8_BLOCK, and
    // so is n unless the row ends there.
    void (*quantize_q8_columns)(const float *x, int64_t k, int64_t col, int64_t n, void *row);
    // The same for n_x rows, which become columns `column` .. column + n_x - 1 of n_columns in the layout that this
    // level reads: columns in words on AMX, else columns in tiles. put_q8_tiles copies one span of a q8 row there.
    void (*quantize_q8_tiles)(const float *const *x, int n_x, int64_t col, int64_t n, void *tiles, int n_columns,
                              int column);
    void (*put_q8_tiles)(const void *row, int64_t k, int64_t span, void *tiles, int n_columns, int column);
    // The bytes of n_columns columns of k elements in that layout.
    size_t (*tiles_bytes)(int64_t k, int n_columns);
    void (*combine)(const float *x, const float *weights, int n_used, int64_t n,
                    float *y); // y[i] = sum over j of weights[j] * x[j * n + i], for i < n
    // Conversions of n elements (a multiple of the type's block).
    void (*const *encode)(const float *x, void *blocks,
                          int64_t n); // [DT_COUNT]; the types of the KV cache; same bits as dtype_encode
    void (*const *decode)(const void *blocks, float *x,
                          int64_t n); // [DT_COUNT]; all types that decode; same bits as dtype_decode

    // Quantise weights of a model by a search for the least error; [DT_COUNT], see quantize_fn in kernels/cpu.h. The
    // tables are for types with blocks of 32 or without sub-scales, for types with blocks of 256 and integer
    // sub-scales, and for types with a codebook.
    quantize_fn *const *quantize_blocks, *const *quantize_k, *const *quantize_grid;

    void (*attention)(const struct attention_args *a);
    void (*short_conv)(const struct conv_args *a);
    void (*delta_rule)(const struct delta_args *a);
    void (*selective_scan)(const struct scan_args *a);

    // [DT_COUNT]. NULL for a type that has no 8-bit kernel on this level: matmul_f32 serves it (-v lists such types).
    matmul_fn *const *matmul_q8;
    matmul_fn *const *matmul_f32; // [DT_COUNT]; never NULL for a type that decodes
    // Whether matmul_q8 is faster if the caller makes x_tiles, for n columns of k elements by weights of a type, on a
    // CPU with or without spare_adders. NULL: never on this level.
    bool (*in_tiles)(enum dtype type, int64_t k, int64_t n, bool spare_adders);
    enum reading reading; // on CPUs whose best level this is
    // matmul_f32 and attention read by row, whatever `reading` is; see reading_of_floats.
    bool floats_by_row;
    int64_t item_weights; // about the most weights that a work item of few rows should have; more stream no faster
};

// The levels that this binary holds, and the best one that this CPU runs (by cpuid and xgetbv, or HWCAP).
#define ISA(NAME, name, ...) extern const struct kernels kernels_##name;
#include "kernels/cpu/isa.def"
#undef ISA
const struct kernels *kernels_best(void);
// Finds a level by name. Returns NULL with an error if this binary does not hold it or this CPU cannot run it.
const struct kernels *kernels_find(const char *name, struct error *err);
int kernels_count(void);                 // levels of this binary that this CPU runs
const struct kernels *kernels_at(int i); // best first
// How a level reads on this CPU. If both the level and the CPU's best level read streams, it is the best level's mode.
enum reading kernels_reading(const struct kernels *k);
// How matmul_f32 and attention read, on a level whose 8-bit matmuls read as `reading` says.
static inline enum reading reading_of_floats(const struct kernels *k, enum reading reading)
{
    return k->floats_by_row ? READING_BY_ROW : reading;
}
// Whether this CPU shifts, blends, adds and loads in parallel with one multiplication of 512 bits of bytes per cycle.
// AMD's Zen 4 does. Other CPUs use the multiplying units for these, or were not measured. The bits of the results do
// not depend on it.
bool kernels_spare_adders(void);

#endif
