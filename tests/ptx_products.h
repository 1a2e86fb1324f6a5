// Shared by the tests of products on the PTX interpreter: random weights of every type, device memory, launches.
//
// Blocks are random bytes with finite scales of moderate size. Device buffers have exactly the size of their contents,
// and outputs start as not written, so that the interpreter detects every access beyond them. Threads: one.
#ifndef QUERN_PTX_PRODUCTS_H
#define QUERN_PTX_PRODUCTS_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/ptx/emit_matmul.h"
#include "tests/ptx/interpreter.h"

enum { SEED = 20261122, TEXT = 1 << 19, GUARD = 64 };

static inline uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline void *allocate(size_t n)
{
    void *p = calloc(MAX(n, (size_t)1), 1);
    cr_assert_not_null(p);
    return p;
}

// ---- weights

// The offsets of a block's halves, ended by -1. They are set to numbers between 2^-9 and 2^-5.
// clang-format off
static const struct {
    enum dtype type;
    int at[3];
} halves[] = {
    {DT_Q4_0, {0, -1}},     {DT_Q4_1, {0, 2, -1}},  {DT_Q5_0, {0, -1}},   {DT_Q5_1, {0, 2, -1}},  {DT_Q8_0, {0, -1}},
    {DT_Q2_K, {80, 82, -1}}, {DT_Q3_K, {108, -1}},   {DT_Q4_K, {0, 2, -1}}, {DT_Q5_K, {0, 2, -1}}, {DT_Q6_K, {208, -1}},
    {DT_IQ2_XXS, {0, -1}},  {DT_IQ2_XS, {0, -1}},   {DT_IQ2_S, {0, -1}},  {DT_IQ3_XXS, {0, -1}},  {DT_IQ3_S, {0, -1}},
    {DT_IQ1_S, {0, -1}},    {DT_IQ4_NL, {0, -1}},   {DT_IQ4_XS, {0, -1}}, {DT_TQ1_0, {52, -1}},   {DT_TQ2_0, {64, -1}},
    {DT_Q1_0, {0, -1}},     {DT_Q2_0, {0, -1}},     {DT_F16, {0, -1}},
};
// clang-format on

static inline void put_u16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8);
}

static inline uint32_t moderate_half(uint64_t *state)
{
    uint64_t r = random_u64(state);
    return (uint32_t)((r & 0x8000) | (6 + (r >> 16) % 4) << 10 | (r & 0x3ff));
}

static inline void make_moderate(enum dtype t, uint8_t *block, uint64_t *state)
{
    for (size_t i = 0; i < COUNT_OF(halves); i++)
        for (const int *at = halves[i].at; halves[i].type == t && *at >= 0; at++)
            put_u16(block + *at, moderate_half(state));
    if (t == DT_F32 || t == DT_BF16) { // the high half is a bfloat16 between 2^-9 and 2^-5
        uint64_t r = random_u64(state);
        put_u16(block + (t == DT_F32 ? 2 : 0), (uint32_t)((r & 0x8000) | (118 + (r >> 16) % 4) << 7 | (r & 127)));
    }
    if (t == DT_MXFP4)
        block[0] = (uint8_t)(random_u64(state) % 16 ? 118 + random_u64(state) % 5 : random_u64(state) % 3);
    if (t == DT_IQ1_M) { // d is spread over the top four bits of each word of scales
        uint32_t d = moderate_half(state);
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (d >> 4 * i & 15) << 4);
    }
}

// extreme: 64 rows of the smallest and largest bytes, in the first 18 bytes of a block, in the last 18, and between.
static inline uint8_t *make_weights(enum dtype t, size_t rows, size_t n_in, bool extreme, uint64_t *state)
{
    static const uint8_t values[] = {0, 0x7f, 0x80, 0xff};
    const size_t block = (size_t)dtype_info[t].bytes, row = dtype_row_bytes(t, (int64_t)n_in);
    uint8_t *w = allocate(rows * row);
    for (size_t i = 0; i < rows * row; i++) {
        const size_t shift = i % block < 18 ? 0 : i % block + 18 < block ? 2 : 4;
        w[i] = extreme ? values[i / row >> shift & 3] : (uint8_t)random_u64(state);
    }
    for (size_t i = 0; i < rows * row; i += block)
        make_moderate(t, w + i, state);
    return w;
}

// Floats of -1 to 1. Each 32 of them have a largest magnitude of their own.
static inline float *random_floats(size_t n, uint64_t *state)
{
    float *x = allocate(n * sizeof(*x)), most = 1;
    for (size_t i = 0; i < n; i++) {
        most = i % 32 ? most : (float)(1 + random_u64(state) % 16) / 16;
        x[i] = (float)((double)(random_u64(state) >> 11) * 0x1p-52 - 1) * most;
    }
    return x;
}

// ---- running

struct gpu {
    struct simt *s;
    struct error err;
    char text[TEXT];
};

static inline struct gpu *gpu_open(void)
{
    struct gpu *g = allocate(sizeof(*g));
    g->s = simt_new();
    cr_assert_not_null(g->s);
    return g;
}

static inline void gpu_close(struct gpu *g)
{
    simt_free(g->s);
    free(g);
}

static inline uint64_t upload(struct gpu *g, const void *data, size_t size)
{
    uint64_t address = simt_alloc(g->s, size);
    cr_assert_eq(simt_put(g->s, address, data, size, &g->err), 0, "%s", g->err.text);
    return address;
}

// grid1: number of CTAs in y.
static inline void launch(struct gpu *g, const struct ptx *p, const struct ptx_launch *l, uint32_t grid1,
                          const void *params, size_t size)
{
    char entry[64];
    snprintf(entry, sizeof(entry), "%s_7", l->entry);
    cr_assert_eq(simt_load(g->s, (struct str){p->data, p->size}, &g->err), 0, "%s: %s", entry, g->err.text);
    const struct simt_kernel *k = simt_find(g->s, entry);
    cr_assert_not_null(k, "%s", entry);
    cr_assert_eq(simt_launch(g->s, k, (struct simt_dim){l->grid[0], grid1, 1}, (struct simt_dim){l->block[0], 1, 1},
                             l->shared, params, size, &g->err),
                 0, "%s", g->err.text);
}

struct repack_params {
    uint64_t raw, tiles;
    uint32_t n_rows;
};

// Uploads n matrices as contiguous tiles.
static inline uint64_t upload_weights(struct gpu *g, enum dtype t, uint32_t n_in, uint32_t n_out, uint32_t n,
                                      const void *w)
{
    struct ptx p;
    struct ptx_launch l;
    size_t tiles, raw = n_out * dtype_row_bytes(t, n_in);
    cr_assert_eq(ptx_tiles_bytes(t, n_in, n_out, &tiles, &g->err), 0, "%s", g->err.text);
    uint64_t to = simt_alloc(g->s, n * tiles);
    for (uint32_t i = 0; i < n; i++) {
        ptx_start(&p, g->text, TEXT);
        cr_assert_eq(ptx_emit_repack(&p, &(struct ptx_repack){7, t, n_in}, &l, &g->err), 0, "%s", g->err.text);
        struct repack_params params = {upload(g, (const uint8_t *)w + i * raw, raw), to + i * tiles, n_out};
        launch(g, &p, &l, ptx_tiles(n_out, PTX_TILE_ROWS), &params, 20);
    }
    return to;
}

#endif
