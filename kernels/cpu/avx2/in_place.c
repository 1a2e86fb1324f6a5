// Up to eight columns: rows are read in place, for what is unpacked of them stays in registers.
//
// One column waits for memory, so that what counts is how few instructions a byte takes, and that bytes come in time:
// see reads_apart. Eight rows go together, a lane a row. Each word is multiplied with all columns as soon as it is
// unpacked (the sink of avx2/unpack.h): no weight is stored. More columns have too many sums for the registers,
// some types already from six on.
// One column by types with blocks of 32, or with nibbles, goes a way of its own (avx2/one_column.h).
#include "kernels/cpu/avx2/in_place.h"

// The end of a block of 32: S = fma(isum, d, S), with a minimum then S = fma(sum(q), m, S).
INLINE __m256 finish_32(const struct sink *s, struct form f, int j, int b, __m256 v)
{
    v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s->sum[j]), s->p->d[0], v);
    return f.mins ? _mm256_fmadd_ps(_mm256_set1_ps(s->columns[j].c.sums[b]), s->p->m[0], v) : v;
}

// One column by these types meets rows beside each other, of which nothing is turned (avx2/one_column.h).
static bool goes_beside(enum dtype type, int columns)
{
#define TAKEN_BESIDE(name, NAME, ...) [DT_##NAME] = true,
    static const bool taken[DT_COUNT] = {[DT_F32] = false, EACH_TYPE_BESIDE(TAKEN_BESIDE)};
    return columns == 1 && taken[type];
}

// Types whose blocks are read from their first byte to their last are read as eight long streams, rows an eighth of all
// apart, which the hardware follows; where the CPU gains by it (READING_PREFETCHED) they are asked for, too. Of the others, rows
// that are neighbours, the bytes are asked for in memory's order; and of all, where three columns and more leave the time
// for it.
INLINE bool reads_apart(enum dtype type, int columns)
{
    return columns < 3 && (type == DT_Q8_0 || type == DT_Q4_0 || type == DT_Q4_1 || type == DT_Q4_K);
}

#define PLACE_256_READ(n_columns, function, name, NAME, apart)                                                         \
    static void function(const struct place *l, __m256 out[])                                                          \
    {                                                                                                                  \
        struct rows8 g = *l->rows;                                                                                     \
        g.fetches = !(apart);                                                                                          \
        const struct placed_column *c = l->columns;                                                                    \
        __m256 d[IN_PLACE] = {{0}};                                                                                    \
        for (int64_t i = 0; i < l->spans; i++, c += n_columns, advance(&g, BYTES_##NAME)) {                            \
            struct panel p;                                                                                            \
            struct sink s = {.p = &p, .n = n_columns, .columns = c};                                                   \
            const uint8_t *end = g.ahead + GROUP * (size_t)BYTES_##NAME;                                               \
            if (!g.fetches && l->asks)                                                                                 \
                ask_streams(&g, 0, BYTES_##NAME);                                                                      \
            if (!g.fetches && DT_##NAME == DT_Q6_K)                                                                    \
                bring_next(&g, BYTES_##NAME);                                                                          \
            unpack_##name(&g, &p, &s);                                                                                 \
            fetch_until(&g, end);                                                                                      \
            EACH_PLACED(j, if (j < n_columns) d[j] = finish_256(s.sum[j], &p, form_of(FORM_##NAME), &c[j].c, d[j]));   \
        }                                                                                                              \
        EACH_PLACED(j, if (j < n_columns) out[j] = d[j]);                                                              \
    }
#define PLACE_256(n_columns, name, NAME)                                                                               \
    PLACE_256_READ(n_columns, name##_by_##n_columns, name, NAME, reads_apart(DT_##NAME, n_columns))
#define PLACE_32(n_columns, name, NAME)                                                                                \
    static void name##_by_##n_columns(const struct place *l, __m256 out[])                                             \
    {                                                                                                                  \
        struct rows8 g = *l->rows;                                                                                     \
        g.fetches = !reads_apart(DT_##NAME, n_columns);                                                                \
        const struct placed_column *c = l->columns;                                                                    \
        __m256 d[IN_PLACE] = {{0}};                                                                                    \
        size_t at = 0;                                                                                                 \
        for (int64_t i = 0; i < l->spans; i++, c += n_columns) {                                                       \
            __m256 v[IN_PLACE] = {{0}};                                                                                \
            const int blocks = i + 1 < l->spans ? BLOCKS : l->last;                                                    \
            const uint8_t *end = g.ahead + (size_t)(GROUP * BYTES_##NAME * blocks);                                    \
            for (int b = 0; b < blocks; b++, at += BYTES_##NAME) {                                                     \
                struct panel p;                                                                                        \
                struct sink s = {.p = &p, .n = n_columns, .columns = c, .word = 8 * b};                                \
                if (!g.fetches && l->asks && b % 2 == 0)                                                               \
                    ask_streams(&g, at, 2 * BYTES_##NAME);                                                             \
                unpack_##name(&g, at, &p.d[0], &p.m[0], &s);                                                           \
                EACH_PLACED(j, if (j < n_columns) v[j] = finish_32(&s, form_of(FORM_##NAME), j, b, v[j]));             \
            }                                                                                                          \
            fetch_until(&g, end);                                                                                      \
            EACH_PLACED(j, if (j < n_columns) d[j] = _mm256_fmadd_ps(v[j], _mm256_set1_ps(c[j].c.da), d[j]));          \
        }                                                                                                              \
        EACH_PLACED(j, if (j < n_columns) out[j] = d[j]);                                                              \
    }
// Up to how many columns a type is faster here than by panels: sums that do not fit the registers are stored and loaded once a
// sub-block, which pays where it has 32 elements and little to unpack. With AVX-VNNI five, as they were timed.
#define UP_TO_2(kind, name, NAME) kind(2, name, NAME)
#define UP_TO_5(kind, name, NAME) UP_TO_2(kind, name, NAME) kind(3, name, NAME) kind(4, name, NAME) kind(5, name, NAME)
#define UP_TO_8(kind, name, NAME) UP_TO_5(kind, name, NAME) kind(6, name, NAME) kind(7, name, NAME) kind(8, name, NAME)
#ifdef __SANITIZE_ADDRESS__ // IN_PLACE
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

#define NTH(n, name, NAME) [(n)-1] = name##_by_##n,
#define ENTRY(one, name, NAME) [DT_##NAME] = {one, WIDTHS_##NAME(NTH, name, NAME)},
#define TURNED_256(name, NAME, ...) PLACE_256(1, name, NAME) WIDTHS_##NAME(PLACE_256, name, NAME)
#define TURNED_32(name, NAME, ...) PLACE_32(1, name, NAME) WIDTHS_##NAME(PLACE_32, name, NAME)
#define BESIDE_256(name, NAME, ...) WIDTHS_##NAME(PLACE_256, name, NAME)
#define BESIDE_32(name, NAME, ...) WIDTHS_##NAME(PLACE_32, name, NAME)
#define ENTRY_TURNED(name, NAME, ...) ENTRY(name##_by_1, name, NAME)
#define ENTRY_BESIDE(name, NAME, ...) ENTRY(ISA_FN(name##_beside), name, NAME)
EACH_TYPE_OF_FIELDS(TURNED_256)
#ifdef __AVXVNNI__
EACH_TYPE_OF_NIBBLES(TURNED_256)
EACH_TYPE_32(TURNED_32)
#define ENTRY_EITHER ENTRY_TURNED
#else
EACH_TYPE_OF_NIBBLES(BESIDE_256)
EACH_TYPE_32(BESIDE_32)
#define ENTRY_EITHER ENTRY_BESIDE
#endif

static place_fn *const place_of[DT_COUNT][IN_PLACE] = {
    EACH_TYPE_OF_FIELDS(ENTRY_TURNED) EACH_TYPE_OF_NIBBLES(ENTRY_EITHER) EACH_TYPE_32(ENTRY_EITHER)};

// One column by Q5_K and Q6_K in turned words is read as streams, too, where the hardware reads by itself (READING_STREAMS):
// timed on Zen 3, whose AVX2 has left them since, and taken for AVX-VNNI. Where they are asked for, memory's order stands.
#ifdef __AVXVNNI__
PLACE_256_READ(1, q5_k_followed, q5_k, Q5_K, true)
PLACE_256_READ(1, q6_k_followed, q6_k, Q6_K, true)

static place_fn *followed(const struct matmul_args *a)
{
    if (a->n_x > 1 || a->reading != READING_STREAMS)
        return NULL;
    return a->type == DT_Q5_K ? q5_k_followed : a->type == DT_Q6_K ? q6_k_followed : NULL;
}
#else
static place_fn *followed(const struct matmul_args *a)
{
    (void)a;
    return NULL;
}
#endif

#define OFFSET_ENTRY(name, NAME, ...) [DT_##NAME] = FORM_##NAME >> 16,
static const int offsets[DT_COUNT] = {EACH_TYPE_32(OFFSET_ENTRY)};

bool ISA_FN(matmul_q8_fits_in_place)(const struct matmul_args *a)
{
    return a->n_x <= IN_PLACE && place_of[a->type][a->n_x - 1] &&
           (size_t)(q8_blocks(a->k) * a->n_x) <= SCRATCH_BYTES / sizeof(struct placed_column);
}

// The caller's next rows, cut alike: these begin where no row so far has led the hardware.
static void fetch_heads(const struct matmul_args *a, const struct row_cut *cut)
{
    for (int i = 0; i < GROUP; i++)
        for (int line = 0; line < 4; line++)
            _mm_prefetch((const char *)a->next + (size_t)row_of_cut(cut, 0, i) * a->next_stride + 64 * line,
                         _MM_HINT_T0);
}

// Whether all rows of a group are there.
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

// How many groups from this one on, at most `most`, are multiplied together: whole ones. The last one goes alone, for before it
// the start of the next rows is asked for.
INLINE int groups_together(const struct row_cut *cut, int group, int most)
{
    int n = 1;
    while (n < most && group + n + 1 < cut->groups && is_whole(cut, group + n))
        n++;
    return n;
}

INLINE void multiply_groups(const struct matmul_args *a, struct place *l, place_fn *place, const struct row_cut *cut,
                            int group)
{
    __m256 d[TOGETHER * IN_PLACE];
    struct rows8 rows = {.ahead = matmul_rows_after(a, group * GROUP, GROUP)};
    seek_group(&rows, a, cut, group);
    if (cut->row_step > 1 && group + 1 == cut->groups && a->next)
        fetch_heads(a, cut);
    l->rows = &rows;
    place(l, d);
    for (int i = 0; i < l->groups; i++)
        for (int j = 0; j < a->n_x; j++)
            put_rows(cut, group + i, (const float *)&d[i * a->n_x + j], a->y[j]);
}

static int sum_of_negatives(const int8_t q[32])
{
    const __m256i ones = _mm256_set1_epi8(1), negative = _mm256_min_epi8(load_256(q), _mm256_setzero_si256());
    const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, negative), _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

// What is taken off the sums of a block. (Turned words begin with it taken off: `start`.)
static void put_excess(const struct matmul_args *a, int j, int64_t span, struct placed_column *c)
{
    const int16_t *sums = q8_sums(a->x[j], a->k) + span * Q8_SUMS;
    for (int b = 0; b < blocks_in_span(a, span); b++)
        c->excess[b] =
            a->type == DT_Q8_0 ? sum_of_negatives(c->q + 32 * b) : offsets[a->type] * (sums[2 * b] + sums[2 * b + 1]);
}

static void place_columns(const struct matmul_args *a, bool beside, struct placed_column *c)
{
    for (int64_t i = 0; i < q8_blocks(a->k); i++)
        for (int j = 0; j < a->n_x; j++, c++) {
            ISA_FN(matmul_q8_prepare)(a, j, i, &c->c);
            memcpy(c->q, c->c.q, (size_t)(32 * blocks_in_span(a, i)));
            if (beside)
                put_excess(a, j, i, c);
        }
}

void ISA_FN(matmul_q8_in_place)(const struct matmul_args *a)
{
    const bool beside = goes_beside(a->type, a->n_x);
    const bool apart = beside || reads_apart(a->type, a->n_x) || followed(a);
    const struct row_cut cut =
        apart ? row_cut_streams(a->n_rows, GROUP, a->w_stride) : row_cut_neighbours(a->n_rows, GROUP);
    place_fn *const place = followed(a) ? followed(a) : place_of[a->type][a->n_x - 1];
    struct place l = {.columns = a->scratch,
                      .spans = q8_blocks(a->k),
                      .last = blocks_in_span(a, q8_blocks(a->k) - 1),
                      .step = (size_t)cut.group_step * a->w_stride,
                      .asks = a->reading == READING_PREFETCHED};
    place_columns(a, beside, a->scratch);
    for (int group = 0; group < cut.groups; group += l.groups) {
        l.groups = groups_together(&cut, group, beside ? TOGETHER : 1);
        multiply_groups(a, &l, place, &cut, group);
    }
}
