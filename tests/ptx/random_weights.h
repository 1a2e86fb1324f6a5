// Random weights of every type for tests of products: moderate ones, whose products stay finite, and the largest that
// there can be. Floats are normal-sized. All functions take the state of the generator.
#ifndef QUERN_RANDOM_WEIGHTS_H
#define QUERN_RANDOM_WEIGHTS_H

#include "kernels/tensor.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

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

static inline uint8_t *random_weights(enum dtype t, size_t rows, size_t n_in, uint64_t *state)
{
    size_t block = (size_t)dtype_info[t].bytes, bytes = rows * dtype_row_bytes(t, (int64_t)n_in);
    uint8_t *w = allocate(bytes);
    for (size_t i = 0; i < bytes; i++)
        w[i] = (uint8_t)random_u64(state);
    for (size_t i = 0; i < bytes; i += block)
        make_moderate(t, w + i, state);
    return w;
}

// Weights that are as large as they can be: 64 rows with the smallest and the largest bytes, in the first 18 bytes of a
// block, in the last 18, and between them.
static inline void make_extreme(enum dtype t, uint8_t *w, size_t rows, size_t n_in, uint64_t *state)
{
    static const uint8_t values[] = {0, 0x7f, 0x80, 0xff};
    const size_t block = (size_t)dtype_info[t].bytes, row = dtype_row_bytes(t, (int64_t)n_in);
    for (size_t i = 0; i < rows * row; i++) {
        const size_t which = i / row, at = i % block;
        w[i] = values[which >> (at < 18 ? 0 : at < block - 18 ? 2 : 4) & 3];
    }
    for (size_t i = 0; i < rows * row; i += block)
        make_moderate(t, w + i, state);
}

// Floats of -1 to 1. Each 32 of them have a largest magnitude of their own.
static inline float *random_floats(size_t n, uint64_t *state)
{
    float *x = allocate(n * sizeof(*x));
    double most = 1;
    for (size_t i = 0; i < n; i++) {
        if (i % 32 == 0)
            most = (double)(1 + random_u64(state) % 16) / 16;
        x[i] = (float)(((double)(random_u64(state) >> 11) * 0x1p-52 - 1) * most);
    }
    return x;
}

#endif
