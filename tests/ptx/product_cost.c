#include "tests/ptx/product_cost.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/kernels.h"
#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/loop_cost.h"
#include "tests/ptx/interpreter.h"

enum { N_IN = 4096, N_OUT = 128, TEXT = 1 << 19 };

struct params {
    uint64_t x, w, y, bias, residual, ids, scale;
    uint32_t n_rows;
};

// Allocates `size` bytes of device memory and fills them. Returns 0 if that fails.
static uint64_t upload_any(struct simt *s, size_t size, struct error *err)
{
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; bytes && i < size; i++)
        bytes[i] = (uint8_t)(i * 181 >> 3);
    uint64_t to = bytes ? simt_alloc(s, size) : 0;
    if (!to)
        fail(err, E_MEMORY, "no memory for %zu bytes of a product", size);
    else if (simt_put(s, to, bytes, size, err))
        to = 0;
    free(bytes);
    return to;
}

static int run(struct simt *s, const struct ptx_matmul *m, const struct ptx *p, const struct ptx_launch *l,
               uint32_t n_rows, struct error *err)
{
    struct params params = {.n_rows = n_rows};
    size_t tiles;
    char entry[64];
    if (ptx_tiles_bytes(m->type, N_IN, N_OUT, &tiles, err) || !(params.w = upload_any(s, tiles, err)) ||
        !(params.x = upload_any(s, (size_t)n_rows * m->x_stride, err)))
        return -1;
    if (!(params.y = simt_alloc(s, (size_t)n_rows * m->y_stride)))
        return fail(err, E_MEMORY, "no memory for %u rows of a product", n_rows);
    if (simt_load(s, (struct str){p->data, p->size}, err))
        return -1;
    snprintf(entry, sizeof entry, "%s_%u", l->entry, m->node);
    return simt_launch(s, simt_find(s, entry), (struct simt_dim){l->grid[0], ptx_matmul_grid(m, n_rows), 1},
                       (struct simt_dim){l->block[0], 1, 1}, l->shared, &params, 60, err);
}

int product_cost(enum dtype type, uint32_t n_rows, uint32_t target, struct product_cost *out, struct error *err)
{
    bool q8 = ptx_takes_q8(type);
    struct ptx_matmul m = {.type = type,
                           .n_in = N_IN,
                           .n_out = N_OUT,
                           .target = target,
                           .q8 = q8,
                           .x_stride = q8 ? (uint32_t)q8_row_bytes(N_IN) : 4 * N_IN,
                           .y_stride = 4 * N_OUT};
    m.rows = ptx_matmul_rows(&m, n_rows, target);
    struct ptx p;
    struct ptx_launch l;
    struct simt *s = simt_new();
    char *text = malloc(TEXT);
    int status = s && text ? 0 : fail(err, E_MEMORY, "no memory for a product's text");
    if (!status) {
        ptx_start(&p, text, TEXT);
        status = ptx_emit_matmul(&p, &m, &l, err) || run(s, &m, &p, &l, n_rows, err) ? -1 : 0;
    }
    if (!status) {
        struct simt_counters n = simt_count(s);
        *out = (struct product_cost){.rows = m.rows,
                                     .instructions = 32.0 * (double)n.instructions / N_IN / N_OUT / n_rows,
                                     .loop = ptx_loop_cost((struct str){p.data, p.size}),
                                     .bytes = (double)n.global_read / N_IN / N_OUT};
    }
    if (s)
        simt_free(s);
    free(text);
    return status;
}
