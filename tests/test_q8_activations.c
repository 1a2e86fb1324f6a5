// Tests 8-bit activations: the bytes of rows and tiles do not depend on how many columns are quantised at a time.
#include "tests/kernel_test.h"

// Some of 38 columns in tiles: the end of a group, a whole group, the start of the next.
enum { PARTS_ALL = 38, PARTS_FIRST = 12, PARTS_N = 24 };

// Writes the columns in two calls if there are two blocks. Neither other columns nor the padding of the last group may
// change.
static void check_q8_tiles(const struct kernels *l, const float *x, int64_t k)
{
    size_t size = align_up(q8_tiles_bytes(k, PARTS_ALL), 64);
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
    static const int64_t sizes[] = {1, 3, 15, 16, 17, 31, 64, 100, 255, 1000, 4097};
    struct random r = seeded("q8 parts");
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        struct guarded x = random_floats(&r, PARTS_N * sizes[s], 1);
        floats_of(x)[sizes[s] / 2] = s % 3 ? 2.0f : INFINITY;
        check_q8_parts(floats_of(x), sizes[s]);
        guarded_free(x);
    }
}
