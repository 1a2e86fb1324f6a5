// Computes one 8-bit product of one level. bench/neon_count.py runs it to count instructions:
//   neon_count LEVEL TYPE COLUMNS ROWS K
// The numbers do not matter to the count, so the blocks are random bytes.
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "kernels/cpu/kernels.h"

static void *random_bytes(size_t size)
{
    uint8_t *p = aligned_alloc(64, align_up(size, 64));
    uint32_t state = 1;
    for (size_t i = 0; p && i < size; i++, state = state * 1664525 + 1013904223)
        p[i] = (uint8_t)(state >> 24);
    return p;
}

int main(int argc, char **argv)
{
    struct error err;
    if (argc != 6)
        return 2;
    const struct kernels *k = kernels_find(argv[1], &err);
    enum dtype type = 0;
    while (type < DT_COUNT && (!dtype_info[type].name || strcasecmp(dtype_info[type].name, argv[2]) != 0))
        type++;
    enum { COLUMNS = 64 };
    int n_x = atoi(argv[3]), n_rows = atoi(argv[4]);
    int64_t length = atoi(argv[5]);
    if (!k || type == DT_COUNT || !k->matmul_q8[type] || n_x < 1 || n_x > COLUMNS)
        return 2;
    size_t row = dtype_row_bytes(type, length);
    const void *w = random_bytes((size_t)n_rows * row), *x[COLUMNS];
    float *y[COLUMNS];
    for (int j = 0; j < n_x; j++) {
        x[j] = random_bytes(q8_row_bytes(length));
        y[j] = random_bytes((size_t)n_rows * sizeof(float));
    }
    struct matmul_args a = {
        .w = w, .w_stride = row, .n_rows = n_rows, .k = length, .type = type, .x = x, .n_x = n_x, .y = y};
    a.scratch = random_bytes(SCRATCH_BYTES);
    k->matmul_q8[type](&a);
    return 0;
}
