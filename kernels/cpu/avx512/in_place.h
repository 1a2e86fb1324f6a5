// Up to seven columns, in place, four rows at a time: which rows these are, what is asked for, and what files have in common.
//
// The naive loop is: for each row, for each block of 256, D = fma(S, da, D). What S is made of is up to a type. Which four rows
// go together is a question of how the CPU reads (enum reading): neighbours, of which sixteen are worked on in turn, or
// (reads_streams) four that are a quarter of all apart. Zen 4 reads four long streams as fast as it reads anything, if their
// lines are touched in order: so nothing is read ahead of its block, nor done for more than four at once. While a block is
// read, as many bytes are asked for as it has, some way on, and near the end of the rows those of the caller's next ones.
// Without that, each item would begin at the speed of cache misses.
//
// Private to matmul_q8_avx512_decode*.c and .._one_q8_0.c. All is pure and inlined.
#ifndef QUERN_AVX512_IN_PLACE_H
#define QUERN_AVX512_IN_PLACE_H

#include "kernels/cpu/avx512/rows.h"

enum {
    FOUR = 4,
    COLUMNS_MAX = 7,
    STREAMS_COLUMNS_MAX = 5, // more are served elsewhere where rows are read by streams (matmul_q8_in_place)
    PREFETCH_BLOCKS = 3,     // blocks of 256 of sixteen neighbours between a row's request for its bytes and their use
    NEAR_BLOCKS = 8,         // of a stream, from the request that brings a block from L2 to L1 to its use
};

// The activations of a block in a column, and their sums over 16.
struct view {
    const int8_t *q;
    const int16_t *sums;
};

// What was stored to be read later, in parts. Left to itself gcc keeps numbers in vector registers and takes each out of these
// again, on the one port that is busiest.
#define STAYS_IN_MEMORY(array) __asm__("" : "+m"(array))

// What is asked for stays where it stands, after what makes v: more requests at once than a core has room for make it wait.
#define AFTER(v) __asm__ volatile("" : "+v"(v))

// With several columns gcc would read it again for each row, and a load takes as long as a product.
INLINE __m512i read_once(const __m512i *p, int n)
{
    __m512i v = *p;
    if (n > 1)
        __asm__("" : "+v"(v));
    return v;
}

// -offset times the sum of each four activations: with it in the accumulator, vpdpbusd of unsigned weights w + offset gives the
// sum of w * q.
INLINE __m512i offset_start(__m512i q, int offset)
{
    __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), q);
    return _mm512_sub_epi32(_mm512_setzero_si512(), sums);
}

INLINE struct view view_of(const struct matmul_args *a, int column, int64_t block)
{
    return (struct view){q8_quants(a->x[column]) + 256 * block, q8_sums(a->x[column], a->k) + 16 * block};
}

// ---- products of two rows in each register

// The first eight bytes of both in each quarter, and the others.
INLINE void zip_8(__m512i a, __m512i b, __m512i to[2])
{
    to[0] = _mm512_unpacklo_epi64(a, b), to[1] = _mm512_unpackhi_epi64(a, b);
}

// ---- four rows' blocks

// Where they lie, and what they ask for, as many bytes as they have themselves: far ones of each row, into L2; and those `near`
// bytes on, from L2 to L1 (0: none).
struct four {
    const uint8_t *at[FOUR], *far[FOUR];
    int near;
};

// For bytes from .. to - 1 of a block.
INLINE void prefetch_block(const struct four *g, int row, int from, int to)
{
    const char *far = (const char *)g->far[row], *near = (const char *)g->at[row] + g->near;
    __asm__ volatile("");
    for (int i = (from + 63) / 64 * 64; i < to; i += 64)
        _mm_prefetch(far + i, _MM_HINT_T1);
    for (int i = (from + 63) / 64 * 64; g->near && i < to; i += 64)
        _mm_prefetch(near + i, _MM_HINT_T0);
    __asm__ volatile("");
}

// A half of each, as floats.
INLINE __m128 load_four_halves(const uint8_t *const at[FOUR], size_t from)
{
    uint64_t four = 0;
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        four |= (uint64_t)load_half(at[i] + from) << 16 * i;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)four));
}

// A file's own: what a type brings, known to the compiler.
struct kind;

// Blocks of each row for which the scratch holds all columns': the sums of a row's further ones are added to those in y. They
// are prepared, a column's one behind the other.
struct part {
    int64_t from, n;
    const void *x;
};

enum { FOURS = GROUP / FOUR };

// Sixteen neighbours, the last row standing in for those past it, what they ask for, and D of them, a lane a row.
struct sixteen {
    int64_t row[GROUP];
    struct rows16 rows;
    struct row_prefetch prefetch;
    __m128 d[FOURS][COLUMNS_MAX];
};

// Their rows 4t ..; their blocks begin at byte `at` of each.
INLINE struct four four_of(const struct sixteen *s, int t, size_t at)
{
    struct four g = {.near = 0};
    UNROLL_FOR (int i = 0; i < FOUR; i++) {
        g.at[i] = s->rows.at[FOUR * t + i] + at;
        g.far[i] = s->prefetch.at + (size_t)(FOUR * t + i) * s->prefetch.row;
    }
    return g;
}

// How a type's blocks are added to D in each of n columns; known to the compiler.
struct block_adder {
    int bytes;    // of a block of 256, or of eight blocks of 32
    int prepared; // of such a block of a column
    void (*prepare)(const struct matmul_args *a, const struct kind *k, int column, int64_t block, void *to);
    // All blocks of the part, of four rows; or one block, of sixteen.
    void (*add_blocks)(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, struct four g,
                       __m128 d[COLUMNS_MAX]);
    void (*add_block)(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, int64_t b,
                      struct sixteen *s);
};

// gcc would keep some addresses in vector registers, and others as sums in memory, each from the one before. Three columns
// of Q5_K then run at half their speed in a twentieth of all places that their code may have in memory.
INLINE void next_block(struct four *g, int bytes)
{
    UNROLL_FOR (int i = 0; i < FOUR; i++) {
        g->at[i] += bytes, g->far[i] += bytes;
        __asm__("" : "+r"(g->at[i]), "+r"(g->far[i]));
    }
}

INLINE float block_scale(const struct matmul_args *a, const struct part *part, int column, int64_t b)
{
    return q8_scales(a->x[column], a->k)[part->from + b];
}

INLINE struct part part_of(const struct matmul_args *a, const struct kind *k, const struct block_adder *adder,
                           int64_t from, int n)
{
    const int64_t room = SCRATCH_BYTES / adder->prepared / n;
    const struct part part = {from, MIN(q8_blocks(a->k) - from, room), a->scratch};
    char *to = a->scratch;
    for (int j = 0; j < n; j++)
        for (int64_t b = 0; b < part.n; b++, to += adder->prepared)
            adder->prepare(a, k, j, from + b, to);
    return part;
}

// D of rows row[i] before the part, and after it.
INLINE void load_rows(const struct matmul_args *a, const struct part *part, const int64_t row[FOUR], int n,
                      __m128 d[COLUMNS_MAX])
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        const float *y = a->y[j];
        d[j] = part->from ? _mm_setr_ps(y[row[0]], y[row[1]], y[row[2]], y[row[3]]) : _mm_setzero_ps();
    }
}

INLINE void store_rows(const struct matmul_args *a, const int64_t row[FOUR], int n, const __m128 d[COLUMNS_MAX])
{
    UNROLL_FOR (int j = 0; j < n; j++) {
        float four[FOUR];
        _mm_storeu_ps(four, d[j]);
        UNROLL_FOR (int i = 0; i < FOUR; i++)
            a->y[j][row[i]] = four[i];
    }
}

// ---- four long streams, the quarters of all rows

INLINE void rows_of_streams(int64_t rows, int64_t r, int64_t row[FOUR])
{
    const int64_t apart = (rows + FOUR - 1) / FOUR;
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        row[i] =
            i * apart + r < rows ? i * apart + r : r; // one that has no row any more does the first one's once more
}

INLINE int rows_of_stream(const struct matmul_args *a)
{
    return (a->n_rows + FOUR - 1) / FOUR;
}

// What the last rows of the streams ask for, `to` rows behind their end: the start of the caller's next rows; where these are not
// known, what is in the cache.
INLINE void prefetch_next(const struct matmul_args *a, int64_t to, const int64_t row[FOUR], const uint8_t *far[FOUR])
{
    const uint8_t *from = a->next ? a->next : a->w;
    const size_t stride = a->next ? a->next_stride : a->w_stride;
    int64_t other[FOUR];
    rows_of_streams(a->next_rows, a->next ? to : 0, other);
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        far[i] = from + (size_t)(a->next ? other[i] : row[i]) * stride;
}

// Row r of each stream, from the beginning of the part.
INLINE struct four four_of_streams(const struct matmul_args *a, const struct part *part, int bytes, int r,
                                   int64_t row[FOUR])
{
    const int64_t rows_on = (PREFETCH_STREAM_BYTES + (int64_t)a->w_stride - 1) / (int64_t)a->w_stride,
                  to = r + rows_on - rows_of_stream(a);
    struct four g = {.near = NEAR_BLOCKS * bytes};
    rows_of_streams(a->n_rows, r, row);
    if (to >= 0)
        prefetch_next(a, to, row, g.far);
    UNROLL_FOR (int i = 0; i < FOUR; i++) {
        g.at[i] = (const uint8_t *)a->w + (size_t)row[i] * a->w_stride + part->from * bytes;
        g.far[i] = to < 0 ? g.at[i] + PREFETCH_STREAM_BYTES : g.far[i] + part->from * bytes;
    }
    return g;
}

INLINE void in_place_streams(const struct matmul_args *a, const struct kind *k, const struct block_adder *adder,
                             const struct part *part, int n)
{
    for (int r = 0; r < rows_of_stream(a); r++) {
        int64_t row[FOUR];
        __m128 d[COLUMNS_MAX];
        const struct four g = four_of_streams(a, part, adder->bytes, r, row);
        load_rows(a, part, row, n, d);
        adder->add_blocks(a, k, part, n, g, d);
        store_rows(a, row, n, d);
    }
}

// ---- sixteen neighbours

INLINE void load_sixteen(const struct matmul_args *a, int first, const struct part *part, int n, struct sixteen *s)
{
    s->rows = rows_from(a, first);
    for (int i = 0; i < GROUP; i++)
        s->row[i] = MIN(first + i, a->n_rows - 1);
    for (int t = 0; t < FOURS; t++)
        load_rows(a, part, s->row + FOUR * t, n, s->d[t]);
}

INLINE void in_place_neighbours(const struct matmul_args *a, const struct kind *k, const struct block_adder *adder,
                                const struct part *part, int n)
{
    for (int first = 0; first < a->n_rows; first += GROUP) {
        struct sixteen s;
        load_sixteen(a, first, part, n, &s);
        for (int64_t b = 0; b < part->n; b++) {
            s.prefetch =
                prefetch_by_row(a, first, part->from + b, q8_blocks(a->k), (size_t)adder->bytes, PREFETCH_BLOCKS);
            adder->add_block(a, k, part, n, b, &s);
        }
        for (int t = 0; t < FOURS; t++)
            store_rows(a, s.row + FOUR * t, n, s.d[t]);
    }
}

INLINE void multiply_in_place(const struct matmul_args *a, const struct kind *k, const struct block_adder *adder, int n)
{
    struct part part;
    for (int64_t from = 0; from < q8_blocks(a->k); from += part.n) {
        part = part_of(a, k, adder, from, n);
        if (n <= STREAMS_COLUMNS_MAX && reads_streams(a->reading))
            in_place_streams(a, k, adder, &part, n);
        else
            in_place_neighbours(a, k, adder, &part, n);
    }
}

// ---- one column of Q8_0 that is read by streams, avx512/one_column.c

enum {
    BYTES_Q8_0 = 34,                   // of a block
    ONE_Q8_0_MOST = SCRATCH_BYTES / 8, // blocks of 256 of a row
};
matmul_fn ISA_FN(matmul_q8_one_q8_0);

// ---- the functions, a case for each number of columns

#define COLUMNS(N, CALL)                                                                                               \
    case N: {                                                                                                          \
        enum { n = N };                                                                                                \
        CALL;                                                                                                          \
        break;                                                                                                         \
    }
#define UP_TO_4(CALL) COLUMNS(1, CALL) COLUMNS(2, CALL) COLUMNS(3, CALL) COLUMNS(4, CALL)
#define UP_TO_5(CALL) UP_TO_4(CALL) COLUMNS(5, CALL)
#define UP_TO_7(CALL) UP_TO_5(CALL) COLUMNS(6, CALL) COLUMNS(7, CALL)
#define IN_PLACE(name, UP_TO, CALL)                                                                                    \
    void ISA_FN(matmul_q8_in_place_##name)(const struct matmul_args *a)                                                \
    {                                                                                                                  \
        switch (a->n_x) {                                                                                              \
            UP_TO(CALL)                                                                                                \
        }                                                                                                              \
    }

#endif
