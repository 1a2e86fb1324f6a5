// Tests the 8-bit matmul of every ISA level: against exact integers, against an exact model in double, and against the
// bits of the scalar level.
//
// The types are those of the scalar level's table. A level without a kernel for a type is skipped; the first test
// states which types each level must have. Weights end at a guard page and may start at odd addresses; the gaps between
// the columns of y are poisoned.
#include "tests/kernel_test.h"

// The offsets of a type's scale and minimum in a block (-1: none), and the minimum with which the mean of random
// weights is 0 if the scale is 1.
static const struct scales {
    enum dtype type;
    int d, m;
    float centre;
} scales_of[] = {
    // clang-format off
    {DT_Q4_0, 0, -1, 0},      {DT_Q4_1, 0, 2, -7.5f}, {DT_Q5_0, 0, -1, 0},   {DT_Q5_1, 0, 2, -15.5f}, {DT_Q8_0, 0, -1, 0},
    {DT_Q2_K, 80, 82, 1.5f},  {DT_Q3_K, 108, -1, 0},  {DT_Q4_K, 0, 2, 7.5f}, {DT_Q5_K, 0, 2, 15.5f},  {DT_Q6_K, 208, -1, 0},
    {DT_IQ4_NL, 0, -1, 0},    {DT_IQ4_XS, 0, -1, 0},  {DT_MXFP4, 0, -1, 0},  {DT_TQ1_0, 52, -1, 0},   {DT_TQ2_0, 64, -1, 0},
    {DT_IQ2_XXS, 0, -1, 0},   {DT_IQ2_XS, 0, -1, 0},  {DT_IQ2_S, 0, -1, 0},  {DT_IQ3_XXS, 0, -1, 0},  {DT_IQ3_S, 0, -1, 0},
    {DT_IQ1_S, 0, -1, 0},     {DT_IQ1_M, 48, -1, 0},  {DT_Q1_0, 0, -1, 0},   {DT_Q2_0, 0, -1, 0},     {DT_NVFP4, 0, -1, 0},
    // clang-format on
};

static const struct scales *scales_find(enum dtype type)
{
    for (size_t i = 0; i < COUNT_OF(scales_of); i++)
        if (scales_of[i].type == type)
            return &scales_of[i];
    cr_assert_fail("%s: where its scales lie is not said here", dtype_info[type].name);
    return NULL;
}

// Returns a scale with which all weights are integers.
static float whole_scale(enum dtype type)
{
    switch (type) {
    case DT_IQ1_S:
    case DT_IQ1_M:
    case DT_IQ2_XXS:
    case DT_IQ2_XS:
    case DT_IQ2_S:
        return 8;
    case DT_IQ3_XXS:
        return 4;
    case DT_NVFP4:
        return 2;
    default:
        return 1;
    }
}

#define EACH_TYPE(type)                                                                                                \
    for (enum dtype type = 0; type < DT_COUNT; type++)                                                                 \
        if (scalar_level()->matmul_q8[type])

// ---- weights

// INNER_*: only the middle of a block is all zeros or ones; its ends, with some of its scales, are random.
enum content { RANDOM, ALL_ZERO, ALL_ONE, INNER_ZERO, INNER_ONE, CONTENTS };

// Sets the scale and the minimum of a block to d and m. Scales of MXFP4 and NVFP4 are set to the power of two below d.
static void put_scales(uint8_t *block, enum dtype type, float d, float m)
{
    const struct scales *s = scales_find(type);
    uint16_t half[2] = {f32_to_f16(d), f32_to_f16(m)};
    if (type == DT_MXFP4)
        block[0] = (uint8_t)(d > 0 ? 128 + ilogbf(d) : 0);
    else if (type == DT_NVFP4)
        memset(block, MAX(ilogbf(d) + 7, 0) << 3, 4);
    else if (type != DT_IQ1_M)
        memcpy(block + s->d, &half[0], 2);
    for (int i = 0; type == DT_IQ1_M && i < 4; i++) // four bits of d are on top of each word of scales
        block[s->d + 1 + 2 * i] = (uint8_t)((block[s->d + 1 + 2 * i] & 15) | (half[0] >> 4 * i & 15) << 4);
    if (s->m >= 0)
        memcpy(block + s->m, &half[1], 2);
}

static float random_scale(struct random *r)
{
    float magnitude = ldexpf((float)(1 + random_unit(r)), -3 - random_below(r, 6));
    return random_u64(r) & 1 ? magnitude : -magnitude;
}

static uint8_t byte_of(struct random *r, enum content content, bool inner)
{
    if (content == RANDOM || (content >= INNER_ZERO && !inner))
        return (uint8_t)random_u64(r);
    return content == ALL_ZERO || content == INNER_ZERO ? 0 : 255;
}

static void fill_row(struct random *r, enum dtype type, enum content content, uint8_t *row, int64_t k)
{
    int bytes = dtype_info[type].bytes;
    for (uint8_t *b = row; b < row + dtype_row_bytes(type, k); b += bytes) {
        int from = random_below(r, 20), to = bytes - random_below(r, 20);
        for (int i = 0; i < bytes; i++)
            b[i] = byte_of(r, content, i >= from && i < to);
        float d = random_scale(r);
        if (type != DT_NVFP4 || content != RANDOM) // which has scales from small to large, and no signs
            put_scales(b, type, type == DT_MXFP4 ? fabsf(d) : d, random_scale(r));
    }
}

// Rows a few bytes apart, the last of which ends at the guard page.
struct weights {
    struct guarded bytes;
    size_t stride;
};

static struct weights weights_new(struct random *r, enum dtype type, enum content content, int n_rows, int64_t k)
{
    size_t row = dtype_row_bytes(type, k);
    struct weights w = {.stride = row + (size_t)random_below(r, 4)};
    w.bytes = guarded_new((size_t)(n_rows - 1) * w.stride + row, 0);
    for (int i = 0; i < n_rows; i++)
        fill_row(r, type, content, w.bytes.data + (size_t)i * w.stride, k);
    return w;
}

// ---- activations

enum signs { ALL_PLUS, ALL_MINUS, MIXED, SIGNS };

static int16_t *sums_of(void *row, int64_t k)
{
    return (int16_t *)row + (q8_sums(row, k) - (const int16_t *)row);
}

// The largest activations that there can be, with a scale of d. Of mixed signs they also have mixed steps, else the
// largest.
static void extreme_activations(struct random *r, enum signs signs, int64_t k, float d, void *row)
{
    memset(row, 0, q8_row_bytes(k));
    int8_t *q = row;
    int16_t *sums = sums_of(row, k);
    uint8_t *steps = (uint8_t *)row + (q8_steps(row, k) - (const uint8_t *)row);
    float *scales = (float *)row + (q8_scales(row, k) - (const float *)row);
    for (int64_t j = 0; j < q8_blocks(k) * Q8_RUNS; j++)
        steps[j] = (uint8_t)(signs == MIXED ? 1 + random_below(r, Q8_STEP_MAX) : Q8_STEP_MAX);
    for (int64_t i = 0; i < k; i++) {
        q[i] = signs == ALL_PLUS || (signs == MIXED && random_u64(r) & 1) ? 127 : -127;
        sums[i / Q8_SUMS] = (int16_t)(sums[i / Q8_SUMS] + q[i]);
    }
    for (int64_t b = 0; b < q8_blocks(k); b++)
        scales[b] = d;
}

static void normal_activations(struct random *r, int64_t k, float *x, void *row)
{
    for (int64_t i = 0; i < k; i++)
        x[i] = random_normal(r);
    scalar_level()->quantize_q8(x, k, row);
}

// n rows that end at a guard page, every fifth of them extreme.
static struct guarded columns_new(struct random *r, int n, int64_t k)
{
    size_t bytes = q8_row_bytes(k);
    struct guarded g = guarded_new((size_t)n * bytes, 0);
    float *x = malloc((size_t)k * sizeof(*x));
    for (int j = 0; j < n; j++) {
        if (random_below(r, 5) == 0)
            extreme_activations(r, (enum signs)random_below(r, SIGNS), k, 0.037f, g.data + (size_t)j * bytes);
        else
            normal_activations(r, k, x, g.data + (size_t)j * bytes);
    }
    free(x);
    return g;
}

// ---- a call

struct call {
    enum dtype type;
    int64_t k;
    int n_rows, n_x;
    struct weights w;
    struct guarded x;
    bool mixed; // neighbouring columns are swapped, so that their distances in memory differ
};

static struct call call_new(struct random *r, enum dtype type, enum content content, int64_t k, int n_rows, int n_x)
{
    struct call c = {.type = type, .k = k, .n_rows = n_rows, .n_x = n_x};
    c.w = weights_new(r, type, content, n_rows, k);
    c.x = columns_new(r, n_x, k);
    return c;
}

static void call_free(struct call *c)
{
    guarded_free(c->w.bytes);
    guarded_free(c->x);
}

enum { GAP = 5 }; // floats of poison between the columns of y
enum { FEW = 8 }; // columns up to which levels differ in how they read weights

// Makes tiles of the columns, which end at a guard page, if the level uses tiles; else no memory.
static struct guarded tiles_new(const struct kernels *k, const struct call *c, const void *const *x, int n_x)
{
    if (!k->in_tiles || !k->in_tiles(c->type, c->k, n_x, false))
        return (struct guarded){0};
    struct guarded g = guarded_new(k->tiles_bytes(c->k, n_x), 0);
    memset(g.data, POISON, g.size);
    for (int64_t span = 0; span < q8_blocks(c->k); span++)
        for (int j = 0; j < n_x; j++)
            k->put_q8_tiles(x[j], c->k, span, g.data, n_x, j);
    return g;
}

// Copies the columns to tiles in two parts, as the threads of a machine do.
static void multiply_in_two(const struct kernels *k, const struct matmul_args *a)
{
    struct matmul_args start = *a, rest = *a;
    start.n_x = rest.x_first = a->n_x / 2 / Q8_TILE_COLUMNS * Q8_TILE_COLUMNS;
    rest.x += rest.x_first, rest.y += rest.x_first, rest.n_x -= rest.x_first;
    k->matmul_q8[a->type](&start);
    k->matmul_q8[a->type](&rest);
}

// Whether a level depends on how weights are to be read or on the cost of an addition. Plain C and NEON do not: they
// read by rows and use no tiles.
static bool takes_notice(const struct kernels *k)
{
    return reads_streams(k->reading) || k->in_tiles;
}

// The bits do not depend on how weights are read.
static void read_otherwise(const struct kernels *k, struct matmul_args a, struct guarded out)
{
    void *before = malloc(out.size);
    memcpy(before, out.data, out.size);
    a.x_tiles = NULL;
    for (int i = 1; i < READING_COUNT; i++) {
        memset(out.data, POISON, out.size);
        a.reading = (enum reading)((a.reading + 1) % READING_COUNT);
        k->matmul_q8[a.type](&a);
        cr_assert_arr_eq(before, out.data, out.size, "%s %s: reading %d changes bits", k->name, dtype_info[a.type].name,
                         (int)a.reading);
    }
    free(before);
}

// Nor do they depend on the cost of shifts and additions on the CPU.
static void multiply_otherwise(const struct kernels *k, struct matmul_args a, struct guarded out)
{
    void *before = malloc(out.size);
    memcpy(before, out.data, out.size);
    memset(out.data, POISON, out.size);
    a.x_tiles = NULL;
    a.spare_adders = !a.spare_adders;
    k->matmul_q8[a.type](&a);
    cr_assert_arr_eq(before, out.data, out.size, "%s %s: spare_adders %d changes bits", k->name,
                     dtype_info[a.type].name, a.spare_adders);
    free(before);
}

// Computes columns first to first + n_x - 1 to y, n_rows floats apart. If the level uses tiles, checks that the bits
// are the same with and without them.
static void run(const struct kernels *k, const struct call *c, int first, int n_x, float *y)
{
    size_t stride = (size_t)c->n_rows + GAP;
    struct guarded out = guarded_new((size_t)n_x * stride * sizeof(float), 0);
    memset(out.data, POISON, out.size);
    const void **x = malloc((size_t)n_x * sizeof(*x));
    float **columns = malloc((size_t)n_x * sizeof(*columns));
    for (int j = 0; j < n_x; j++) {
        int column = first + (c->mixed && (j ^ 1) < n_x ? j ^ 1 : j);
        x[j] = c->x.data + (size_t)column * q8_row_bytes(c->k);
        columns[j] = floats_of(out) + (size_t)j * stride;
    }
    void *scratch = scratch_new();
    struct matmul_args a = {.w = c->w.bytes.data,
                            .w_stride = c->w.stride,
                            .n_rows = c->n_rows,
                            .k = c->k,
                            .type = c->type,
                            .x = x,
                            .n_x = n_x,
                            .y = columns,
                            .scratch = scratch,
                            .reading = k->reading};
    struct guarded tiles = tiles_new(k, c, x, n_x);
    if (tiles.data) {
        void *before = malloc(out.size);
        k->matmul_q8[c->type](&a);
        memcpy(before, out.data, out.size);
        memset(out.data, POISON, out.size);
        a.x_tiles = tiles.data;
        a.n_tiled = n_x;
        k->matmul_q8[c->type](&a);
        cr_assert_arr_eq(before, out.data, out.size, "%s %s: tiles change bits", k->name, dtype_info[c->type].name);
        memset(out.data, POISON, out.size);
        multiply_in_two(k, &a);
        cr_assert_arr_eq(before, out.data, out.size, "%s %s: tiles change bits", k->name, dtype_info[c->type].name);
        guarded_free(tiles);
        free(before);
    } else {
        k->matmul_q8[c->type](&a);
    }
    if (takes_notice(k)) {
        if (n_x <= FEW)
            read_otherwise(k, a, out);
        multiply_otherwise(k, a, out);
    }
    for (int j = 0; j < n_x; j++) {
        memcpy(y + (size_t)j * (size_t)c->n_rows, columns[j], (size_t)c->n_rows * sizeof(float));
        for (size_t i = (size_t)c->n_rows * sizeof(float); i < stride * sizeof(float); i++)
            cr_assert_eq(((uint8_t *)columns[j])[i], POISON, "%s %s wrote behind column %d", k->name,
                         dtype_info[c->type].name, j);
    }
    guarded_check(out, k->name);
    guarded_free(out);
    free(scratch);
    free(columns);
    free(x);
}

static float *floats_new(int64_t n)
{
    float *y = malloc((size_t)n * sizeof(*y));
    cr_assert_not_null(y);
    return y;
}

// ---- models in double

// Row i of the weights as the format defines them.
static void decode_row(const struct call *c, int i, float *w)
{
    dtype_decode[c->type](c->w.bytes.data + (size_t)i * c->w.stride, w, c->k);
}

// Returns the products of all rows with all quantised columns, exact except for the roundings of the decoder.
static void expect_model(const struct call *c, double *y)
{
    float *w = floats_new(c->k);
    for (int i = 0; i < c->n_rows; i++) {
        decode_row(c, i, w);
        for (int j = 0; j < c->n_x; j++) {
            const void *x = c->x.data + (size_t)j * q8_row_bytes(c->k);
            double sum = 0;
            for (int64_t e = 0; e < c->k; e++)
                sum += (double)w[e] * (double)q8_quants(x)[e] * (double)q8_steps(x, c->k)[e / Q8_RUN] *
                       (double)q8_scales(x, c->k)[e / Q8_BLOCK];
            y[(int64_t)j * c->n_rows + i] = sum;
        }
    }
    free(w);
}

// ---- tests

Test(matmul_q8, levels_have_a_path_for_the_types_that_models_use_most)
{
    static const enum dtype most[] = {DT_Q4_K, DT_Q6_K, DT_Q8_0, DT_Q5_K, DT_Q4_0, DT_Q2_K, DT_Q3_K,
                                      // clang-format off
                                      DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_IQ4_NL, DT_IQ4_XS, DT_MXFP4, DT_IQ1_S, DT_IQ1_M,
                                      // clang-format on
                                      DT_IQ2_XXS, DT_IQ2_XS, DT_IQ2_S, DT_IQ3_XXS, DT_IQ3_S, DT_TQ1_0, DT_TQ2_0};
    EACH_LEVEL (k) {
        printf("%s:", k->name);
        EACH_TYPE (t)
            printf("%s%s", k->matmul_q8[t] ? " " : " -", dtype_info[t].name);
        printf("\n");
        for (size_t i = 0; i < COUNT_OF(most); i++)
            cr_expect_not_null(k->matmul_q8[most[i]], "%s has no %s", k->name, dtype_info[most[i]].name);
    }
}

// A block with integer weights (d about 1 and m = 0, or d = 0 and m = 1) times the largest activations with a scale of
// 1: the output is an integer that is rounded to float once. The factors, integers of at most 14 bits, come from the
// decoder.
static void check_integers(struct random *r, enum dtype type, enum content content, float d, float m)
{
    enum { COLUMNS = 20 }; // with all patterns of signs in turn; enough for a level to use matrix tiles
    int64_t k = dtype_info[type].block;
    struct call c = call_new(r, type, content, k, 1, COLUMNS);
    put_scales(c.w.bytes.data, type, d, m);
    for (int s = 0; s < COLUMNS; s++)
        extreme_activations(r, (enum signs)(s % SIGNS), k, 1.0f, c.x.data + (size_t)s * q8_row_bytes(k));
    float w[Q8_BLOCK], want[COLUMNS], got[COLUMNS];
    decode_row(&c, 0, w);
    for (int s = 0; s < COLUMNS; s++) {
        const void *x = c.x.data + (size_t)s * q8_row_bytes(k);
        int64_t sum = 0;
        for (int64_t i = 0; i < k; i++) {
            cr_assert_eq(w[i], nearbyintf(w[i]), "%s: element %d is no whole number", dtype_info[type].name, (int)i);
            sum += (int64_t)w[i] * q8_quants(x)[i] * q8_steps(x, k)[i / Q8_RUN];
        }
        want[s] = (float)sum;
    }
    EACH_LEVEL (level) {
        if (!level->matmul_q8[type])
            continue;
        char what[96];
        snprintf(what, sizeof what, "%s %s, content %d, d %g, m %g", level->name, dtype_info[type].name, content,
                 (double)d, (double)m);
        run(level, &c, 0, COLUMNS, got);
        for (int s = 0; s < COLUMNS; s++)
            cr_assert_eq(got[s], want[s], "%s, signs %d: %a, not %a", what, s % SIGNS, (double)got[s], (double)want[s]);
        for (int s = 0; s < SIGNS; s++) {
            run(level, &c, s, 1, got);
            cr_assert_eq(got[0], want[s], "%s, signs %d alone: %a, not %a", what, s, (double)got[0], (double)want[s]);
        }
    }
    call_free(&c);
}

Test(matmul_q8, integers_are_exact_where_weights_and_activations_are_as_large_as_can_be)
{
    struct random r = seeded("matmul_q8 integers");
    EACH_TYPE (type)
        for (int content = 0; content < CONTENTS; content++)
            for (int repeat = 0; repeat < (content == RANDOM ? 20 : 1); repeat++) {
                check_integers(&r, type, (enum content)content, whole_scale(type), 0);
                if (scales_find(type)->m >= 0)
                    check_integers(&r, type, (enum content)content, 0, 1);
            }
}

static const int row_counts[] = {1, 3, 15, 16, 17, 31, 33, 63, 64, 65, 67, 129};
static const int column_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 24, 25, 33, 48, 64, 81};

// Lengths in whole blocks; with blocks of 32 also lengths that are not a multiple of 256.
enum { LENGTHS = 11 };
static int64_t length_of(enum dtype type, int i)
{
    static const int64_t blocks_of_256[LENGTHS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17};
    static const int64_t blocks_of_32[LENGTHS] = {1, 3, 4, 8, 9, 10, 12, 14, 15, 29, 64};
    int block = dtype_info[type].block;
    return block == 256 ? 256 * blocks_of_256[i] : block * blocks_of_32[i];
}

// NaNs may differ in their payload.
static void make_nans_alike(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(y[i]))
            y[i] = NAN;
}

static void check_levels(const struct call *c)
{
    int64_t n = (int64_t)c->n_rows * c->n_x;
    float *want = floats_new(n), *got = floats_new(n);
    run(scalar_level(), c, 0, c->n_x, want);
    make_nans_alike(want, n);
    EACH_LEVEL (k) {
        if (k == scalar_level() || !k->matmul_q8[c->type])
            continue;
        char what[96];
        snprintf(what, sizeof what, "%s %s, k %lld, %d rows, %d columns", k->name, dtype_info[c->type].name,
                 (long long)c->k, c->n_rows, c->n_x);
        run(k, c, 0, c->n_x, got);
        make_nans_alike(got, n);
        expect_same_bits(got, want, n, what);
    }
    free(want);
    free(got);
}

Test(matmul_q8, every_level_gives_the_bits_of_the_scalar_level, .timeout = 280)
{
    struct random r = seeded("matmul_q8 levels");
    EACH_TYPE (type)
        for (int i = 0; i < LENGTHS; i++)
            for (size_t j = 0; j < COUNT_OF(column_counts); j++) {
                int n_rows = row_counts[random_below(&r, COUNT_OF(row_counts))];
                enum content content = random_below(&r, 4) ? RANDOM : (enum content)random_below(&r, CONTENTS);
                struct call c = call_new(&r, type, content, length_of(type, i), n_rows, column_counts[j]);
                check_levels(&c);
                call_free(&c);
            }
}

// Below the number of columns from which tiles are used, levels divide columns in many ways.
Test(matmul_q8, every_count_of_few_columns)
{
    struct random r = seeded("matmul_q8 few columns");
    EACH_TYPE (type)
        for (int n_x = 1; n_x <= 33; n_x++) {
            enum content content = random_below(&r, 2) ? RANDOM : (enum content)random_below(&r, CONTENTS);
            struct call c =
                call_new(&r, type, content, length_of(type, n_x % LENGTHS), 1 + (int)random_below(&r, 40), n_x);
            check_levels(&c);
            call_free(&c);
        }
}

// A kernel may read the last blocks of a row together with earlier ones, whose products it must not add. Zero times
// infinity is NaN, so this test has a block with an infinite scale in each row.
Test(matmul_q8, blocks_that_are_read_once_more_add_nothing)
{
    static const int lengths[] = {9, 10, 11, 13, 14, 15};
    struct random r = seeded("matmul_q8 infinite scales");
    EACH_TYPE (type)
        for (size_t i = 0; dtype_info[type].block == 32 && type != DT_MXFP4 && i < COUNT_OF(lengths); i++)
            for (int n_x = 1; n_x <= 3; n_x++) {
                struct call c = call_new(&r, type, RANDOM, 32 * lengths[i], lengths[i], n_x);
                for (int row = 0; row < lengths[i]; row++) // one in each row, another block in each
                    put_scales(c.w.bytes.data + (size_t)row * (c.w.stride + (size_t)dtype_info[type].bytes), type,
                               INFINITY, 0);
                check_levels(&c);
                call_free(&c);
            }
}

// With many or long rows, kernels process rows that are far apart together; a further row may be left between two of
// them.
Test(matmul_q8, one_column_of_many_rows_and_of_long_ones, .timeout = 280)
{
    static const struct {
        int n_rows;
        int64_t k;
    } shapes[] = {{128, 2048}, {135, 1024}, {256, 2048}, {300, 512}, {33, 10240}};
    struct random r = seeded("matmul_q8 far apart");
    EACH_TYPE (type)
        for (size_t i = 0; i < COUNT_OF(shapes); i++) {
            struct call c = call_new(&r, type, RANDOM, shapes[i].k, shapes[i].n_rows, 1);
            check_levels(&c);
            call_free(&c);
        }
}

static void check_cut(struct row_cut cut, int height, const char *what)
{
    int seen[400] = {0};
    for (int group = 0; group < cut.groups; group++)
        for (int i = 0; i < height; i++) {
            int row = row_of_cut(&cut, group, i);
            cr_assert(row >= 0 && row < cut.n, "%s of %d rows, height %d: row %d", what, cut.n, height, row);
            seen[row]++;
        }
    for (int row = 0; row < cut.n - 1; row++) // kernels read the last row in place of missing ones
        cr_assert_eq(seen[row], 1, "%s of %d rows, height %d: row %d %d times", what, cut.n, height, row, seen[row]);
    cr_assert(seen[cut.n - 1] >= 1, "%s of %d rows, height %d: no last row", what, cut.n, height);
}

Test(matmul_q8, a_cut_has_each_row_once_and_streams_do_not_meet_in_a_set)
{
    static const size_t strides[] = {34, 66, 144, 384, 1152, 1280, 1536, 1680, 2176, 2304, 3360, 4620, 11760};
    for (int height = 8; height <= 16; height += 8)
        for (int n = 1; n < 400; n++)
            for (size_t i = 0; i < COUNT_OF(strides); i++) {
                struct row_cut cut = row_cut_streams(n, height, strides[i]);
                check_cut(cut, height, "streams");
                check_cut(row_cut_neighbours(n, height), height, "neighbours");
                size_t apart = (size_t)cut.row_step * strides[i], same = height == 8 ? 4096 : 2048;
                cr_expect(cut.row_step < 8 || strides[i] < 256 || apart % same,
                          "height %d, %d rows of %zu bytes: %zu apart", height, n, strides[i], apart);
            }
}

// A column of +-most or +-(most - 1), all of one sign or mixed.
static void level_activations(struct random *r, enum signs signs, int most, int64_t k, void *row)
{
    extreme_activations(r, signs, k, 0.037f, row);
    int8_t *q = row;
    int16_t *sums = sums_of(row, k);
    memset(sums, 0, (size_t)q8_blocks(k) * (Q8_BLOCK / Q8_SUMS) * sizeof(*sums));
    for (int64_t i = 0; i < k; i++) {
        int magnitude = most - (random_u64(r) & 1);
        q[i] = (int8_t)(q[i] < 0 ? -magnitude : magnitude);
        sums[i / Q8_SUMS] = (int16_t)(sums[i / Q8_SUMS] + q[i]);
    }
}

// If a level sums runs in 16 bits, activations of about half the maximum decide how long a run may be.
Test(matmul_q8, sums_are_exact_where_they_come_near_to_16_bits)
{
    static const int n_columns[] = {1, 3, 8, 25};
    struct random r = seeded("matmul_q8 sums of 16 bits");
    EACH_TYPE (type)
        for (int content = 0; content < CONTENTS; content++)
            for (int most = 30; most <= 72; most++) {
                struct call c = call_new(&r, type, (enum content)content, 512, 33, n_columns[most % 4]);
                for (int j = 0; j < c.n_x; j++)
                    level_activations(&r, (enum signs)random_below(&r, SIGNS), most, 512,
                                      c.x.data + (size_t)j * q8_row_bytes(512));
                check_levels(&c);
                call_free(&c);
            }
}

// The buffer in which columns are kept for the following rows holds a limited number of spans.
Test(matmul_q8, rows_longer_than_what_scratch_holds_of_their_columns)
{
    struct random r = seeded("matmul_q8 long rows");
    EACH_TYPE (type)
        for (int n_x = 8; n_x <= 9; n_x++) {
            int block = dtype_info[type].block;
            struct call c = call_new(&r, type, RANDOM, 256 * 230 + block % 256, 18, n_x);
            check_levels(&c);
            call_free(&c);
        }
}

// The buffer for the permuted copy of one or two columns holds a limited number of blocks, and so does that for the
// sums of each eight elements of four columns.
Test(matmul_q8, rows_longer_than_what_scratch_holds_of_few_columns)
{
    static const struct {
        int blocks, n_x;
    } longer[] = {{1153, 1}, {577, 2}, {2305, 4}};
    struct random r = seeded("matmul_q8 longest rows");
    for (size_t i = 0; i < COUNT_OF(longer); i++)
        EACH_TYPE (type) {
            struct call c = call_new(&r, type, RANDOM, 256 * longer[i].blocks, 7, longer[i].n_x);
            check_levels(&c);
            call_free(&c);
        }
}

// So many columns that only a part of k is processed at a time, and more rows than are kept for the next part.
Test(matmul_q8, columns_that_pass_by_parts_of_k)
{
    struct random r = seeded("matmul_q8 parts of k");
    EACH_TYPE (type) {
        bool often = type == DT_Q4_K || type == DT_Q8_0 || type == DT_Q3_K;
        struct call c = call_new(&r, type, RANDOM, 256 * 11 + dtype_info[type].block % 256, often ? 161 : 17, 201);
        check_levels(&c);
        call_free(&c);
    }
}

Test(matmul_q8, more_columns_than_a_panel_serves_at_a_time)
{
    struct random r = seeded("matmul_q8 many columns");
    EACH_TYPE (type) {
        struct call c = call_new(&r, type, RANDOM, 256, 3, 2503);
        check_levels(&c);
        call_free(&c);
    }
}

Test(matmul_q8, a_column_has_the_same_bits_alone_and_among_others)
{
    struct random r = seeded("matmul_q8 columns");
    enum { ROWS = 37, COLUMNS = 27 };
    static float among[COLUMNS][ROWS], alone[ROWS];
    EACH_TYPE (type)
        EACH_LEVEL (k) {
            if (!k->matmul_q8[type])
                continue;
            struct call c = call_new(&r, type, RANDOM, length_of(type, 7), ROWS, COLUMNS);
            run(k, &c, 0, COLUMNS, among[0]);
            for (int j = 0; j < COLUMNS; j++) {
                run(k, &c, j, 1, alone);
                expect_same_bits(alone, among[j], ROWS, dtype_info[type].name);
            }
            call_free(&c);
        }
}

Test(matmul_q8, a_row_has_the_same_bits_whatever_rows_stand_beside_it)
{
    struct random r = seeded("matmul_q8 rows");
    enum { ROWS = 70, COLUMNS = 4 };
    static float among[COLUMNS][ROWS], alone[COLUMNS];
    EACH_TYPE (type)
        EACH_LEVEL (k) {
            if (!k->matmul_q8[type])
                continue;
            struct call c = call_new(&r, type, RANDOM, length_of(type, 4), ROWS, COLUMNS);
            run(k, &c, 0, COLUMNS, among[0]);
            for (int i = 0; i < ROWS; i += 1 + random_below(&r, 9)) {
                struct call row = c;
                row.n_rows = 1;
                row.w.bytes.data += (size_t)i * c.w.stride;
                run(k, &row, 0, COLUMNS, alone);
                for (int j = 0; j < COLUMNS; j++)
                    expect_same_bits(&alone[j], &among[j][i], 1, dtype_info[type].name);
            }
            call_free(&c);
        }
}

// N2: only the float roundings of the kernel and of the decoder remain.
Test(matmul_q8, products_are_those_of_the_quantised_activations)
{
    struct random r = seeded("matmul_q8 model");
    enum { ROWS = 24, COLUMNS = 5 };
    static float y[COLUMNS * ROWS];
    static double want[COLUMNS * ROWS];
    EACH_TYPE (type)
        for (int i = 0; i < LENGTHS; i++) {
            struct call c = call_new(&r, type, RANDOM, length_of(type, i), ROWS, COLUMNS);
            expect_model(&c, want);
            EACH_LEVEL (k) {
                if (!k->matmul_q8[type])
                    continue;
                run(k, &c, 0, COLUMNS, y);
                double error = nmse(y, want, COLUMNS * ROWS);
                cr_assert_leq(error, 1e-10, "%s %s, k %lld: NMSE %g", k->name, dtype_info[type].name, (long long)c.k,
                              error);
            }
            call_free(&c);
        }
}

// Blocks of the same scale with a mean of about 0; a few large ones would make the error depend on chance.
static void centre_weights(const struct call *c)
{
    for (int i = 0; i < c->n_rows; i++)
        for (int64_t b = 0; b < c->k / dtype_info[c->type].block; b++)
            put_scales(c->w.bytes.data + (size_t)i * c->w.stride +
                           dtype_row_bytes(c->type, b * dtype_info[c->type].block),
                       c->type, 1, scales_find(c->type)->centre);
}

// N3: normal activations are rounded to steps of max / 127 in each 32 elements, or little more (see q8 rows in
// kernels.h). The square of that maximum is 5.5 on average, and 5.5 / 127^2 / 12 = 2.9e-5; the steps add a tenth. With a
// scale for each 256 elements it would be 4.9e-5.
Test(matmul_q8, products_of_normal_activations_are_within_3_4e_5_of_float64)
{
    struct random r = seeded("matmul_q8 normal");
    enum { ROWS = 256, COLUMNS = 512, K = 256 };
    static float y[COLUMNS * ROWS], x[COLUMNS][K], w[K];
    static double want[COLUMNS * ROWS];
    EACH_TYPE (type) {
        struct call c = {.type = type, .k = K, .n_rows = ROWS, .n_x = COLUMNS};
        c.w = weights_new(&r, type, RANDOM, ROWS, K);
        centre_weights(&c);
        c.x = guarded_new(COLUMNS * q8_row_bytes(K), 0);
        for (int j = 0; j < COLUMNS; j++)
            normal_activations(&r, K, x[j], c.x.data + (size_t)j * q8_row_bytes(K));
        for (int i = 0; i < ROWS; i++) {
            decode_row(&c, i, w);
            for (int j = 0; j < COLUMNS; j++) {
                want[j * ROWS + i] = 0;
                for (int e = 0; e < K; e++)
                    want[j * ROWS + i] += (double)w[e] * (double)x[j][e];
            }
        }
        run(kernels_best()->matmul_q8[type] ? kernels_best() : scalar_level(), &c, 0, COLUMNS, y);
        double error = nmse(y, want, COLUMNS * ROWS);
        printf("%s: NMSE %.2g\n", dtype_info[type].name, error);
        cr_assert_leq(error, 3.4e-5, "%s: NMSE %g", dtype_info[type].name, error);
        call_free(&c);
    }
}

Test(matmul_q8, activations_of_zero_give_zero)
{
    struct random r = seeded("matmul_q8 zero");
    enum { ROWS = 20, COLUMNS = 3 };
    float y[COLUMNS * ROWS];
    EACH_TYPE (type)
        EACH_LEVEL (k) {
            if (!k->matmul_q8[type])
                continue;
            struct call c = call_new(&r, type, RANDOM, 512, ROWS, COLUMNS);
            memset(c.x.data, 0, c.x.size);
            run(k, &c, 0, COLUMNS, y);
            for (int i = 0; i < COLUMNS * ROWS; i++)
                cr_assert_eq(y[i], 0.0f, "%s %s", k->name, dtype_info[type].name);
            call_free(&c);
        }
}
