// Matmul of up to seven columns in place by AVX-512, four rows at a time: which rows go together, what is prefetched,
// and the parts that the in-place kernels share.
//
// The naive loop is: for each row, for each block of 256, D = fma(S, da, D). How S is computed is up to the type's
// file. Which four rows go together depends on how the CPU reads memory best (enum reading):
//   - READING_BY_ROW: neighbouring rows, in groups of sixteen of which four are multiplied at a time.
//   - reads_streams(): four rows that are a quarter of all rows apart, so that memory is read as four long streams.
//     Zen 4 reads four long streams as fast as it reads anything if their cache lines are touched in order. So no
//     block is read before its turn, and no more than four blocks are worked on at once.
// While a block is read, as many bytes as it has are prefetched further on in the same stream or row; near the end of
// the rows, the first bytes of the caller's next rows are prefetched instead. Without that, each work item would
// begin at the speed of cache misses.
//
// Private to avx512/in_place_256.c, avx512/in_place_32.c and avx512/one_column.c. All functions are inlined.
#ifndef QUERN_AVX512_IN_PLACE_H
#define QUERN_AVX512_IN_PLACE_H

#include "kernels/cpu/avx512/rows.h"

enum {
    FOUR = 4,
    COLUMNS_MAX = 7,
    // Where rows are read by streams, more columns are served by other kernels (see matmul_q8_in_place_columns).
    STREAMS_COLUMNS_MAX = 5,
    PREFETCH_BLOCKS = 3, // distance of a prefetch of sixteen neighbouring rows, in blocks of 256
    NEAR_BLOCKS = 8,     // distance of the prefetch from L2 into L1 in a stream, in blocks
};

// Tells the compiler that the array is stored and read again in memory. Otherwise gcc keeps the numbers in vector
// registers and extracts each of them, on the execution port that is busiest.
#define STAYS_IN_MEMORY(array) __asm__("" : "+m"(array))

// Keeps a prefetch at its place in the code, after the instructions that compute v. If the compiler moved several
// prefetches together, the core would have to wait for free line buffers.
#define AFTER(v) __asm__ volatile("" : "+v"(v))

// Loads a value once, for all rows. With several columns gcc would load it again for each row, and a load takes as
// long as a product.
INLINE __m512i read_once(const __m512i *p, int n)
{
    __m512i v = *p;
    if (n > 1)
        __asm__("" : "+v"(v));
    return v;
}

// Minus the offset times the sum of each four activations. If an accumulator starts with this, vpdpbusd of the
// unsigned weights w + offset gives the sum of w * q.
INLINE __m512i offset_start(__m512i q, int offset)
{
    __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), q);
    return _mm512_sub_epi32(_mm512_setzero_si512(), sums);
}

// Broadcasts word q of `four` to all words of quarter q.
INLINE __m512i spread_words(__m128i four)
{
    const __m512i of_quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_epi32(of_quarter, _mm512_castsi128_si512(four));
}

// ---- products of two rows in each register

// Interleaves a and b by eight bytes: to[0] has the first eight bytes of both in each 128-bit quarter, to[1] the
// others.
INLINE void zip_8(__m512i a, __m512i b, __m512i to[2])
{
    to[0] = _mm512_unpacklo_epi64(a, b), to[1] = _mm512_unpackhi_epi64(a, b);
}

// ---- four rows' blocks

// Where the blocks of four rows are, and what is prefetched while they are read, as many bytes as they have
// themselves: the bytes at `far` of each row into L2, and those `near` bytes further on from L2 into L1 (0: none).
struct four {
    const uint8_t *at[FOUR], *far[FOUR];
    int near;
};

// Prefetches for bytes from .. to - 1 of a row's block.
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

// The float16 at byte `from` of each row's block, as floats.
INLINE __m128 load_four_halves(const uint8_t *const at[FOUR], size_t from)
{
    uint64_t four = 0;
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        four |= (uint64_t)load_half(at[i] + from) << 16 * i;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)four));
}

// The description of a type. Each file that includes this header defines its own; it is a compile-time constant in
// each kernel.
struct kind;

// A range of each row's blocks, as long as the scratch holds the prepared activations of all columns. The sums of a
// row's later parts are added to those in y. Prepared blocks lie column after column.
struct part {
    int64_t from, n;
    const void *x;
};

enum { FOURS = GROUP / FOUR };

// Sixteen neighbouring rows, what is prefetched for them, and their sums D with one lane per row. Past the end of the
// matrix the last row is repeated.
struct sixteen {
    int64_t row[GROUP];
    struct rows16 rows;
    struct row_prefetch prefetch;
    __m128 d[FOURS][COLUMNS_MAX];
};

// Rows 4t .. 4t + 3 of the sixteen; their blocks begin at byte `at` of each row.
INLINE struct four four_of(const struct sixteen *s, int t, size_t at)
{
    struct four g = {.near = 0};
    UNROLL_FOR (int i = 0; i < FOUR; i++) {
        g.at[i] = s->rows.at[FOUR * t + i] + at;
        g.far[i] = s->prefetch.at + (size_t)(FOUR * t + i) * s->prefetch.row;
    }
    return g;
}

// How a type's blocks are added to D in each of n columns. All members and n are compile-time constants.
struct block_adder {
    int bytes;    // bytes of a block of 256, or of eight blocks of 32
    int prepared; // bytes of such a block of a column after it is prepared
    void (*prepare)(const struct matmul_args *a, const struct kind *k, int column, int64_t block, void *to);
    // add_blocks adds all blocks of the part to D of four rows; add_block adds one block to D of sixteen rows.
    void (*add_blocks)(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, struct four g,
                       __m128 d[COLUMNS_MAX]);
    void (*add_block)(const struct matmul_args *a, const struct kind *k, const struct part *part, int n, int64_t b,
                      struct sixteen *s);
};

// Advances the four rows' pointers in general registers. Otherwise gcc keeps some addresses in vector registers and
// computes others as sums in memory, each from the one before; three columns of Q5_K then run at half their speed at
// one in twenty of all addresses that their code may have.
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

// The sums D of rows row[i] before the part, and after it.
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
    // A stream that has no row left repeats the row of the first stream.
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        row[i] = i * apart + r < rows ? i * apart + r : r;
}

INLINE int rows_of_stream(const struct matmul_args *a)
{
    return (a->n_rows + FOUR - 1) / FOUR;
}

// Where the last rows of the streams prefetch from, `to` rows after the end of the streams: the first of the caller's
// next rows, or, where these are not known, rows that are in the cache already.
INLINE void prefetch_next(const struct matmul_args *a, int64_t to, const int64_t row[FOUR], const uint8_t *far[FOUR])
{
    const uint8_t *from = a->next ? a->next : a->w;
    const size_t stride = a->next ? a->next_stride : a->w_stride;
    int64_t other[FOUR];
    rows_of_streams(a->next_rows, a->next ? to : 0, other);
    UNROLL_FOR (int i = 0; i < FOUR; i++)
        far[i] = from + (size_t)(a->next ? other[i] : row[i]) * stride;
}

// Row r of each stream, from the first block of the part.
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

// ---- one column of Q8_0 that is read by streams (avx512/one_column.c)

enum {
    BYTES_Q8_0 = 34,                    // bytes of a block
    ONE_Q8_0_MOST = SCRATCH_BYTES / 64, // the most blocks of 256 that a row may have
};
matmul_fn ISA_FN(matmul_q8_one_q8_0);

// ---- the entry points: X-macros that instantiate a kernel for each number of columns
//
// COLUMNS(N, CALL): a switch case for N columns; CALL is a statement that uses the compile-time constant n.
// UP_TO_x(CALL): the cases for 1 .. x columns.
// IN_PLACE(name, UP_TO, CALL): defines matmul_q8_in_place_<name>; UP_TO is the macro of its cases.

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
