// Tests 8-bit activations: rows are those of the definition, and the bytes of rows and tiles do not depend on how many
// columns are quantised at a time.
#include "tests/kernel_test.h"

#include <float.h>
#include <math.h>

static const int64_t sizes[] = {1, 3, 15, 16, 17, 31, 64, 100, 255, 1000, 4097};

// Some of 38 columns in tiles: the end of a group, a whole group, the start of the next.
enum { PARTS_ALL = 38, PARTS_FIRST = 12, PARTS_N = 24 };

// Writes the columns in two calls if there are two blocks. Neither other columns nor the padding of the last group may
// change.
static void check_q8_tiles(const struct kernels *l, const float *x, int64_t k)
{
    size_t size = align_up(l->tiles_bytes(k, PARTS_ALL), 64);
    uint8_t *tiles = aligned_alloc(64, size), *want = aligned_alloc(64, size),
            *row = aligned_alloc(64, q8_row_bytes(k));
    const int64_t half = q8_blocks(k) / 2 * Q8_BLOCK;
    const float *start[PARTS_N], *rest[PARTS_N];
    memset(tiles, 0xa5, size);
    memset(want, 0xa5, size);
    for (int j = 0; j < PARTS_N; j++) {
        start[j] = x + j * k, rest[j] = start[j] + half;
        l->quantize_q8(start[j], k, row);
        for (int64_t span = 0; span < q8_blocks(k); span++)
            l->put_q8_tiles(row, k, span, want, PARTS_ALL, PARTS_FIRST + j);
    }
    l->quantize_q8_tiles(start, PARTS_N, 0, half, tiles, PARTS_ALL, PARTS_FIRST);
    l->quantize_q8_tiles(rest, PARTS_N, half, k - half, tiles, PARTS_ALL, PARTS_FIRST);
    cr_assert_eq(memcmp(tiles, want, size), 0, "%s, k %lld: in tiles", l->name, (long long)k);
    free(tiles), free(want), free(row);
}

static void check_q8_parts(const float *x, int64_t k)
{
    size_t size = q8_row_bytes(k);
    int64_t half = q8_blocks(k) / 2 * Q8_BLOCK;
    uint8_t *want = aligned_alloc(64, size), *row = aligned_alloc(64, size);
    EACH_LEVEL (l) {
        l->quantize_q8(x, k, want);
        memset(row, 0xa5, size);
        l->quantize_q8_columns(x + half, k, half, k - half, row);
        l->quantize_q8_columns(x, k, 0, half, row);
        cr_assert_eq(memcmp(row, want, size), 0, "%s, k %lld: by parts", l->name, (long long)k);
        check_q8_tiles(l, x, k);
    }
    free(want), free(row);
}

// The padding columns of the last group are multiplied too, so they must not be subnormal.
Test(q8_activations, what_fills_tiles_up_has_no_scale)
{
    enum { K = 512, COLUMNS = 5 };
    struct random r = seeded("q8 fill");
    struct guarded x = random_floats(&r, COLUMNS * K, 1);
    const float *rows[COLUMNS];
    for (int j = 0; j < COLUMNS; j++)
        rows[j] = floats_of(x) + j * K;
    EACH_LEVEL (l) {
        if (strcmp(l->name, "amx"))
            continue;
        _Alignas(64) struct q8_words words[K / Q8_BLOCK];
        memset(words, 1, sizeof(words));
        l->quantize_q8_tiles(rows, COLUMNS, 0, K, words, COLUMNS, 0);
        for (int span = 0; span < K / Q8_BLOCK; span++)
            for (int j = 0; j < Q8_TILE_COLUMNS; j++)
                cr_assert((words[span].d[j] == 0) == (j >= COLUMNS), "span %d, column %d: %a", span, j,
                          (double)words[span].d[j]);
    }
    guarded_free(x);
}

Test(q8_activations, activations_by_columns_and_in_tiles_have_the_same_bytes)
{
    struct random r = seeded("q8 parts");
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        struct guarded x = random_floats(&r, PARTS_N * sizes[s], 1);
        floats_of(x)[sizes[s] / 2] = s % 3 ? 2.0f : INFINITY;
        check_q8_parts(floats_of(x), sizes[s]);
        guarded_free(x);
    }
}

// ---- rows

// Largest magnitude of elements from .. to - 1; NaN if one is not finite.
static float top_of(const float *x, int64_t from, int64_t to)
{
    float top = 0;
    for (int64_t i = from; i < to; i++)
        top = isfinite(x[i]) && !isnan(top) ? fmaxf(top, fabsf(x[i])) : NAN;
    return top;
}

// The definition in kernels.h, in plain C: one block, of which n elements are in the row.
static void expect_q8_block(const float *x, int64_t n, int8_t *q, int16_t *sums, uint8_t *steps, float *d)
{
    const float top = top_of(x, 0, n);
    *d = isnan(top) ? NAN : top > 0 ? fmaxf(top / 2032.0f, FLT_MIN) : 0;
    for (int j = 0; j < Q8_RUNS; j++) {
        const int64_t from = MIN(n, (int64_t)Q8_RUN * j), to = MIN(n, from + Q8_RUN);
        const float step = *d > 0 ? ceilf(top_of(x, from, to) * (1.0f / *d) * (1.0f / 127.0f)) : 0;
        steps[j] = (uint8_t)fminf(fmaxf(step, 1), 16);
        for (int64_t i = from; *d > 0 && i < to; i++) {
            q[i] = (int8_t)rintf(x[i] * ((1.0f / *d) / (float)steps[j]));
            sums[i / Q8_SUMS] = (int16_t)(sums[i / Q8_SUMS] + q[i]);
        }
    }
}

static void expect_q8(const float *x, int64_t k, uint8_t *row)
{
    memset(row, 0, q8_row_bytes(k));
    for (int64_t b = 0; b < q8_blocks(k); b++)
        expect_q8_block(x + b * Q8_BLOCK, MIN(k - b * Q8_BLOCK, (int64_t)Q8_BLOCK),
                        (int8_t *)row + (q8_quants(row) + b * Q8_BLOCK - (const int8_t *)row),
                        (int16_t *)(void *)row + (q8_sums(row, k) + b * Q8_SUMS - (const int16_t *)(void *)row),
                        row + (q8_steps(row, k) + b * Q8_RUNS - row),
                        (float *)(void *)row + (q8_scales(row, k) + b - (const float *)(void *)row));
}

static void check_q8(const float *x, int64_t k)
{
    size_t size = q8_row_bytes(k);
    uint8_t *want = aligned_alloc(64, size);
    expect_q8(x, k, want);
    EACH_LEVEL (l) {
        struct guarded row = guarded_new(size, 0); // a multiple of 64: so the start is aligned, and the end guarded
        l->quantize_q8(x, k, row.data);
        cr_assert_eq(memcmp(row.data, want, (size_t)((const uint8_t *)q8_scales(want, k) - want)), 0,
                     "%s, k %lld: quants, sums or steps", l->name, (long long)k);
        expect_same_bits(q8_scales(row.data, k), q8_scales(want, k), q8_blocks(k), l->name);
        guarded_check(row, "q8");
        guarded_free(row);
    }
    free(want);
}

Test(q8_activations, quantize_q8_is_its_definition_bit_for_bit)
{
    struct random r = seeded("q8");
    const float magnitudes[] = {1, 1e-3f, 1e30f, 1e-37f, 1e-42f, 0};
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (size_t m = 0; m < COUNT_OF(magnitudes); m++) {
            struct guarded x = random_floats(&r, sizes[s], magnitudes[m]);
            for (int64_t i = 0; m == 1 && i < sizes[s]; i++) // ties: halves of a step
                floats_of(x)[i] = i % Q8_BLOCK ? (float)random_below(&r, 254) * 0.5f - 63.5f : 127.0f;
            check_q8(floats_of(x), sizes[s]);
            guarded_free(x);
        }
    }
}

Test(q8_activations, quantize_q8_marks_blocks_that_are_not_finite)
{
    struct random r = seeded("q8 not finite");
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 64; i++) {
        struct guarded x = random_floats(&r, 700, FLT_MAX / 10);
        floats_of(x)[random_below(&r, 700)] = bad[i % 4];
        check_q8(floats_of(x), 700);
        guarded_free(x);
    }
}
