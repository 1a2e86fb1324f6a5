// Weights in GPU memory: each weight is uploaded once, and a kernel on the GPU repacks its rows from the file's
// layout to tiles.
#include "kernels/ptx/gpu.h"

#include <stdlib.h>

enum { STAGE_BYTES = 64 << 20 }; // rows in the file's layout that are uploaded at a time, in bytes

static struct gpu_weight *find(struct gpu *g, const void *data, size_t size, bool tiles)
{
    for (int i = 0; i < g->n_weights; i++)
        if (g->weights[i].data == data && g->weights[i].size == size && g->weights[i].tiles == tiles)
            return &g->weights[i];
    return NULL;
}

// Adds an entry and allocates `bytes` of GPU memory for it. The entry starts with one use.
static int add(struct gpu *g, const void *data, size_t size, bool tiles, size_t bytes, uint64_t *at, struct error *err)
{
    struct gpu_weight *grown = gpu_grow(g->weights, g->n_weights, &g->cap_weights, sizeof *grown);
    if (!grown)
        return fail(err, E_MEMORY, "no memory for a list of weights");
    g->weights = grown;
    if (driver_reserve(g->driver, MAX(bytes, (size_t)1), at, err))
        return -1;
    g->weights[g->n_weights++] = (struct gpu_weight){data, size, tiles, *at, bytes, 1};
    return 0;
}

void gpu_weight_release(struct gpu *g, uint64_t at)
{
    for (int i = 0; i < g->n_weights; i++)
        if (g->weights[i].at == at && --g->weights[i].uses == 0) {
            driver_free(g->driver, at);
            g->weights[i] = g->weights[--g->n_weights];
            return;
        }
}

int gpu_weight_floats(struct gpu *g, const void *data, size_t n, uint64_t *at, struct error *err)
{
    size_t size = n * sizeof(float);
    struct gpu_weight *w = find(g, data, size, false);
    if (w) {
        w->uses++;
        *at = w->at;
        return 0;
    }
    if (add(g, data, size, false, size, at, err))
        return -1;
    if (driver_put(g->driver, *at, data, size, err)) {
        gpu_weight_release(g, *at);
        return -1;
    }
    return 0;
}

// ---- tiles

// Uploads one matrix in pieces of `rows` rows, a multiple of PTX_TILE_ROWS. Each piece is copied to `stage` in the
// file's layout, and a kernel repacks it to tiles.
static int repack_matrix(struct gpu *g, const struct gpu_kernel *k, const struct weight *w, const uint8_t *from,
                         uint64_t to, uint64_t stage, int64_t rows, struct error *err)
{
    for (int64_t row = 0; row < w->ne[1]; row += rows) {
        uint32_t n = (uint32_t)MIN(rows, w->ne[1] - row);
        size_t at = 0;
        if (row && ptx_tiles_bytes(w->type, (uint32_t)w->ne[0], (uint32_t)row, &at, err))
            return -1;
        uint64_t tiles = to + at;
        void *params[] = {&stage, &tiles, &n};
        struct driver_launch l = {.params = params};
        memcpy(l.grid, k->launch.grid, sizeof l.grid);
        memcpy(l.block, k->launch.block, sizeof l.block);
        l.grid[1] = ptx_tiles(n, PTX_TILE_ROWS);
        if (driver_put(g->driver, stage, from + (size_t)row * w->row_bytes, n * w->row_bytes, err) ||
            driver_run(g->driver, k->kernel, &l, err))
            return -1;
    }
    return 0;
}

static int repack(struct gpu *g, const struct weight *w, uint64_t to, size_t matrix_bytes, struct error *err)
{
    struct gpu_spec spec = {.kind = GPU_REPACK, .repack = {0, w->type, (uint32_t)w->ne[0]}};
    struct gpu_kernel *k;
    int64_t rows = MAX((int64_t)1, STAGE_BYTES / (int64_t)w->row_bytes / PTX_TILE_ROWS) * PTX_TILE_ROWS;
    uint64_t stage = 0;
    rows = MIN(rows, (w->ne[1] + PTX_TILE_ROWS - 1) / PTX_TILE_ROWS * PTX_TILE_ROWS);
    if (gpu_kernel_get(g, &spec, &k, err) || driver_reserve(g->driver, (size_t)rows * w->row_bytes, &stage, err))
        return -1;
    int status = 0;
    for (int64_t m = 0; m < w->ne[2] && !status; m++)
        status = repack_matrix(g, k, w, (const uint8_t *)w->data + (size_t)weight_row_number(w, m, 0) * w->row_bytes,
                               to + (uint64_t)m * matrix_bytes, stage, rows, err);
    driver_free(g->driver, stage);
    return status;
}

int gpu_weight_tiles(struct gpu *g, const struct weight *w, uint64_t *at, struct error *err)
{
    size_t matrix, bytes, size = (size_t)w->ne[1] * (size_t)w->ne[2] * w->row_bytes;
    struct gpu_weight *there = find(g, w->data, size, true);
    if (there) {
        there->uses++;
        *at = there->at;
        return 0;
    }
    if (w->ne[0] > INT32_MAX || w->ne[1] > INT32_MAX)
        return fail(err, E_GPU, "%s: %lld x %lld is too large for the card", w->name, (long long)w->ne[0],
                    (long long)w->ne[1]);
    if (ptx_tiles_bytes(w->type, (uint32_t)w->ne[0], (uint32_t)w->ne[1], &matrix, err))
        return -1;
    if (size_mul(matrix, (size_t)w->ne[2], &bytes))
        return fail(err, E_MEMORY, "%s: larger than the address space", w->name);
    if (add(g, w->data, size, true, bytes, at, err))
        return -1;
    if (repack(g, w, *at, matrix, err)) {
        gpu_weight_release(g, *at);
        return -1;
    }
    return 0;
}
