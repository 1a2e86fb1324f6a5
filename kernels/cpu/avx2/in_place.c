// Matmul of a few columns by AVX2, in place: weights are multiplied as they are unpacked, in registers, and no unpacked
// weight is stored.
//
// The naive loop: for each row, column and block of 256, isum = sum of scale[j] * (w . q)[j]; D = fma(isum * d, da, D).
// Here eight rows are a group, one lane per row. Their words are transposed and unpacked (avx2/unpack.h), and each word
// is multiplied with all columns as soon as it is unpacked. One column is memory-bound: unpacking must take few
// instructions, and the bytes must arrive in time, which depends on the order in which rows are read (uses_streams).
// Each column adds sums that stay in registers; with some types there are too few registers from six columns on.
// avx2/matmul_q8.c chooses it for up to matmul_q8_in_place_columns columns. One column of types with nibbles or blocks
// of 32 is served by avx2/one_column.c, except with AVX-VNNI.
#include "kernels/cpu/avx2/in_place.h"

// The end of a block of 32: S = fma(step * isum, d, S), with a minimum then S = fma(step * sum(q), m, S).
INLINE __m256 finish_32(const struct sink *s, struct type_format f, int j, int b, __m256 v)
{
    v = _mm256_fmadd_ps(float_of_block(s->sum[j], &s->columns[j].c, b), s->p->d[0], v);
    return f.mins ? _mm256_fmadd_ps(_mm256_set1_ps(s->columns[j].c.sums[b]), s->p->m[0], v) : v;
}

// Whether rows are read as eight long streams, an eighth of all rows apart, which the hardware prefetcher follows: one
// or two columns of types whose blocks are read from their first byte to their last. Where the CPU gains by it
// (READING_PREFETCHED), the streams are prefetched too. The rows of other types are neighbours, whose bytes are
// prefetched in the order of memory; so are all rows with three columns and more, which leave the time for it.
INLINE bool uses_streams(enum dtype type, int columns)
{
    return columns < 3 && (type == DT_Q8_0 || type == DT_Q4_0 || type == DT_Q4_1 || type == DT_Q4_K);
}

// Define the kernel of a group for a type and a number of columns:
//   GROUP_256_AS(n_columns, function, name, NAME, streams)  blocks of 256, under a name of its own
//   GROUP_256(n_columns, name, NAME)                        blocks of 256: <name>_by_<n_columns>
//   GROUP_32(n_columns, name, NAME)                         blocks of 32: <name>_by_<n_columns>
// name, NAME: the type, of unpack_<name>, BYTES_<NAME>, FORMAT_<NAME>. streams: whether rows are read as streams.
#define GROUP_256_AS(n_columns, function, name, NAME, streams)                                                         \
    static void function(const struct group_args *l, __m256 out[])                                                     \
    {                                                                                                                  \
        struct rows8 g = *l->rows;                                                                                     \
        g.prefetches = !(streams);                                                                                     \
        const struct packed_column *c = l->columns;                                                                    \
        __m256 d[IN_PLACE_MAX] = {{0}};                                                                                \
        for (int64_t i = 0; i < l->spans; i++, c += n_columns, advance(&g, BYTES_##NAME)) {                            \
            struct panel p;                                                                                            \
            struct sink s = {.p = &p, .n = n_columns, .columns = c};                                                   \
            const uint8_t *end = g.ahead + GROUP * (size_t)BYTES_##NAME;                                               \
            if (!g.prefetches && l->prefetches)                                                                        \
                prefetch_streams(&g, 0, BYTES_##NAME);                                                                 \
            if (!g.prefetches && DT_##NAME == DT_Q6_K)                                                                 \
                prefetch_next_block(&g, BYTES_##NAME);                                                                 \
            unpack_##name(&g, &p, &s);                                                                                 \
            prefetch_until(&g, end);                                                                                   \
            EACH_IN_PLACE(j, if (j < n_columns) d[j] =                                                                 \
                                 finish_256(s.sum[j], &p, format_of(FORMAT_##NAME), &c[j].c, d[j]));                   \
        }                                                                                                              \
        EACH_IN_PLACE(j, if (j < n_columns) out[j] = d[j]);                                                            \
    }
#define GROUP_256(n_columns, name, NAME)                                                                               \
    GROUP_256_AS(n_columns, name##_by_##n_columns, name, NAME, uses_streams(DT_##NAME, n_columns))
#define GROUP_32(n_columns, name, NAME)                                                                                \
    static void name##_by_##n_columns(const struct group_args *l, __m256 out[])                                        \
    {                                                                                                                  \
        struct rows8 g = *l->rows;                                                                                     \
        g.prefetches = !uses_streams(DT_##NAME, n_columns);                                                            \
        const struct packed_column *c = l->columns;                                                                    \
        __m256 d[IN_PLACE_MAX] = {{0}};                                                                                \
        size_t at = 0;                                                                                                 \
        for (int64_t i = 0; i < l->spans; i++, c += n_columns) {                                                       \
            __m256 v[IN_PLACE_MAX] = {{0}};                                                                            \
            const int blocks = i + 1 < l->spans ? BLOCKS : l->last;                                                    \
            const uint8_t *end = g.ahead + (size_t)(GROUP * BYTES_##NAME * blocks);                                    \
            for (int b = 0; b < blocks; b++, at += BYTES_##NAME) {                                                     \
                struct panel p;                                                                                        \
                struct sink s = {.p = &p, .n = n_columns, .columns = c, .word = 8 * b};                                \
                if (!g.prefetches && l->prefetches && b % 2 == 0)                                                      \
                    prefetch_streams(&g, at, 2 * BYTES_##NAME);                                                        \
                unpack_##name(&g, at, &p.d[0], &p.m[0], &s);                                                           \
                EACH_IN_PLACE(j, if (j < n_columns) v[j] = finish_32(&s, format_of(FORMAT_##NAME), j, b, v[j]));       \
            }                                                                                                          \
            prefetch_until(&g, end);                                                                                   \
            EACH_IN_PLACE(j, if (j < n_columns) d[j] = _mm256_fmadd_ps(v[j], _mm256_set1_ps(c[j].c.da), d[j]));        \
        }                                                                                                              \
        EACH_IN_PLACE(j, if (j < n_columns) out[j] = d[j]);                                                            \
    }
// WIDTHS_<NAME>(kind, name, NAME) expands kind(n, name, NAME) for each number of columns from 2 on that is faster
// here than by panels. Sums that do not fit the registers are stored and loaded once per sub-block, which pays where
// it has 32 elements and little has to be unpacked. With AVX-VNNI the limit is five columns, as measured.
#define UP_TO_2(kind, name, NAME) kind(2, name, NAME)
#define UP_TO_5(kind, name, NAME) UP_TO_2(kind, name, NAME) kind(3, name, NAME) kind(4, name, NAME) kind(5, name, NAME)
#define UP_TO_8(kind, name, NAME) UP_TO_5(kind, name, NAME) kind(6, name, NAME) kind(7, name, NAME) kind(8, name, NAME)
#ifdef __SANITIZE_ADDRESS__ // as IN_PLACE_MAX
#define MOST UP_TO_2
#define FEWER UP_TO_2
#elif defined __AVXVNNI__
#define MOST UP_TO_5
#define FEWER UP_TO_5
#else
#define MOST UP_TO_8
#define FEWER UP_TO_5
#endif
#define WIDTHS_Q4_0 MOST
#define WIDTHS_Q4_1 MOST
#define WIDTHS_Q5_0 FEWER
#define WIDTHS_Q5_1 FEWER
#define WIDTHS_Q8_0 MOST
#define WIDTHS_IQ4_NL MOST
#define WIDTHS_MXFP4 MOST
#define WIDTHS_Q2_K FEWER
#define WIDTHS_Q3_K FEWER
#define WIDTHS_Q4_K MOST
#define WIDTHS_Q5_K FEWER
#define WIDTHS_Q6_K FEWER
#define WIDTHS_IQ4_XS FEWER
#define WIDTHS_TQ1_0 FEWER
#define WIDTHS_TQ2_0 FEWER

// FROM_1_x defines a type's kernels from one column on, FROM_2_x from two: one_column.c serves one column.
#define FROM_1_256(name, NAME, ...) GROUP_256(1, name, NAME) WIDTHS_##NAME(GROUP_256, name, NAME)
#define FROM_1_32(name, NAME, ...) GROUP_32(1, name, NAME) WIDTHS_##NAME(GROUP_32, name, NAME)
#define FROM_2_256(name, NAME, ...) WIDTHS_##NAME(GROUP_256, name, NAME)
#define FROM_2_32(name, NAME, ...) WIDTHS_##NAME(GROUP_32, name, NAME)
#define NTH(n, name, NAME) [(n)-1] = name##_by_##n,
#define KERNELS_FROM_1(name, NAME, ...) [DT_##NAME] = {name##_by_1, WIDTHS_##NAME(NTH, name, NAME)},
#define KERNELS_FROM_2(name, NAME, ...) [DT_##NAME] = {WIDTHS_##NAME(NTH, name, NAME)},
EACH_TYPE_OF_FIELDS(FROM_1_256)
#ifdef __AVXVNNI__
EACH_TYPE_OF_NIBBLES(FROM_1_256)
EACH_TYPE_32(FROM_1_32)
#define KERNELS_FROM_EITHER KERNELS_FROM_1
#else
EACH_TYPE_OF_NIBBLES(FROM_2_256)
EACH_TYPE_32(FROM_2_32)
#define KERNELS_FROM_EITHER KERNELS_FROM_2
#endif

static group_fn *const kernels[DT_COUNT][IN_PLACE_MAX] = {
    EACH_TYPE_OF_FIELDS(KERNELS_FROM_1) EACH_TYPE_OF_NIBBLES(KERNELS_FROM_EITHER) EACH_TYPE_32(KERNELS_FROM_EITHER)};

#define COUNT(n, name, NAME) +1
#define MOST_COLUMNS(name, NAME, ...) [DT_##NAME] = 1 WIDTHS_##NAME(COUNT, name, NAME),
const uint8_t ISA_FN(matmul_q8_in_place_columns)[DT_COUNT] = {EACH_TYPE_256(MOST_COLUMNS) EACH_TYPE_32(MOST_COLUMNS)};

// One column of Q5_K or Q6_K is also read as streams where the hardware follows these by itself (READING_STREAMS). This
// was measured on Zen 3 with AVX2, which now has one_column.c for them, and assumed for AVX-VNNI. With
// READING_PREFETCHED their rows are prefetched in the order of memory.
#ifdef __AVXVNNI__
GROUP_256_AS(1, q5_k_streams, q5_k, Q5_K, true)
GROUP_256_AS(1, q6_k_streams, q6_k, Q6_K, true)

static group_fn *kernel_of_streams(const struct matmul_args *a)
{
    if (a->n_x > 1 || a->reading != READING_STREAMS)
        return NULL;
    return a->type == DT_Q5_K ? q5_k_streams : a->type == DT_Q6_K ? q6_k_streams : NULL;
}
#else
static group_fn *kernel_of_streams(const struct matmul_args *a)
{
    (void)a;
    return NULL;
}
#endif

// ---- all rows

// Prefetches the heads of the caller's next rows, which will be cut in the same way: the hardware prefetcher does not
// know their streams yet.
static void prefetch_next_rows(const struct matmul_args *a, const struct row_cut *cut)
{
    for (int i = 0; i < GROUP; i++)
        for (int line = 0; line < 4; line++)
            _mm_prefetch((const char *)a->next + (size_t)row_of_cut(cut, 0, i) * a->next_stride + 64 * line,
                         _MM_HINT_T0);
}

// Whether none of a group's rows repeats another.
static bool is_whole(const struct row_cut *cut, int group)
{
    return group * cut->group_step + (GROUP - 1) * cut->row_step < cut->n;
}

static void seek_group(struct rows8 *g, const struct matmul_args *a, const struct row_cut *cut, int group)
{
    const size_t step = (size_t)cut->row_step * a->w_stride, last = (size_t)(cut->n - 1) * a->w_stride;
    size_t at = (size_t)(group * cut->group_step) * a->w_stride;
    for (int i = 0; i < GROUP; i++, at += step)
        g->at[i] = (const uint8_t *)a->w + MIN(at, last);
}

static void put_rows(const struct row_cut *cut, int group, const float d[GROUP], float *y)
{
    if (!is_whole(cut, group)) {
        for (int i = 0; i < GROUP; i++)
            y[row_of_cut(cut, group, i)] = d[i];
        return;
    }
    y += group * cut->group_step;
    for (int i = 0; i < GROUP; i++, y += cut->row_step)
        *y = d[i];
}

// The number of groups from this one on that are multiplied by one call, at most `most`: they are whole, and the last
// group of all is not among them unless it is this one, because the next rows are prefetched before it.
INLINE int groups_at_once(const struct row_cut *cut, int group, int most)
{
    int n = 1;
    while (n < most && group + n + 1 < cut->groups && is_whole(cut, group + n))
        n++;
    return n;
}

INLINE void multiply_groups(const struct matmul_args *a, struct group_args *l, group_fn *kernel,
                            const struct row_cut *cut, int group)
{
    __m256 d[GROUPS_MAX * IN_PLACE_MAX];
    struct rows8 rows = {.ahead = matmul_rows_after(a, group * GROUP, GROUP)};
    seek_group(&rows, a, cut, group);
    if (cut->row_step > 1 && group + 1 == cut->groups && a->next)
        prefetch_next_rows(a, cut);
    l->rows = &rows;
    kernel(l, d);
    for (int i = 0; i < l->groups; i++)
        for (int j = 0; j < a->n_x; j++)
            put_rows(cut, group + i, (const float *)&d[i * a->n_x + j], a->y[j]);
}

void ISA_FN(matmul_q8_groups)(const struct matmul_args *a, group_fn *kernel, bool streams, int most)
{
    const struct row_cut cut =
        streams ? row_cut_streams(a->n_rows, GROUP, a->w_stride) : row_cut_neighbours(a->n_rows, GROUP);
    struct group_args l = {.columns = a->scratch,
                           .spans = q8_blocks(a->k),
                           .last = blocks_in_span(a, q8_blocks(a->k) - 1),
                           .step = (size_t)cut.group_step * a->w_stride,
                           .prefetches = a->reading == READING_PREFETCHED};
    for (int group = 0; group < cut.groups; group += l.groups) {
        l.groups = groups_at_once(&cut, group, most);
        multiply_groups(a, &l, kernel, &cut, group);
    }
}

void ISA_FN(matmul_q8_pack_columns)(const struct matmul_args *a)
{
    struct packed_column *c = a->scratch;
    for (int64_t i = 0; i < q8_blocks(a->k); i++)
        for (int j = 0; j < a->n_x; j++, c++) {
            ISA_FN(matmul_q8_prepare)(a, j, i, &c->c);
            memcpy(c->q, c->c.q, (size_t)(32 * blocks_in_span(a, i)));
        }
}

void ISA_FN(matmul_q8_in_place)(const struct matmul_args *a)
{
    group_fn *const by_streams = kernel_of_streams(a);
    ISA_FN(matmul_q8_pack_columns)(a);
    if (by_streams)
        ISA_FN(matmul_q8_groups)(a, by_streams, true, 1);
    else
        ISA_FN(matmul_q8_groups)(a, kernels[a->type][a->n_x - 1], uses_streams(a->type, a->n_x), 1);
}
