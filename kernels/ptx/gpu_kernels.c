// The kernels that are loaded on the GPU; each distinct PTX text is loaded once.
#include "kernels/ptx/emit_early.h"
#include "kernels/ptx/gpu.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT_BYTES = 4 << 20 }; // the longest PTX of a kernel, in bytes

void *gpu_grow(void *items, int n, int *cap, size_t size)
{
    if (n < *cap)
        return items;
    int larger = MAX(16, 2 * *cap);
    void *grown = realloc(items, (size_t)larger * size);
    if (grown)
        *cap = larger;
    return grown;
}

static int emit_whole(struct ptx *p, const struct gpu_spec *s, struct ptx_launch *l, struct error *err)
{
    struct ptx_whole w = *s->whole.of;
    w.node = s->node;
    return ptx_emit_whole(p, &w, l, err);
}

static int emit(struct ptx *p, const struct gpu_spec *s, struct ptx_launch *l, struct error *err)
{
    switch (s->kind) {
    case GPU_ELEMENTS:
        return ptx_emit_elements(p, &s->elements, l, err);
    case GPU_PICK:
        return ptx_emit_pick(p, &s->pick, l, err);
    case GPU_NORM:
        return ptx_emit_norm(p, &s->norm, l, err);
    case GPU_ROPE_TABLE:
        return ptx_emit_rope_table(p, &s->rope_table, l, err);
    case GPU_ROPE:
        return ptx_emit_rope(p, &s->rope, l, err);
    case GPU_KV_WRITE:
        return ptx_emit_kv_write(p, &s->kv_write, l, err);
    case GPU_ATTEND:
        return ptx_emit_attend(p, &s->attend, l, err);
    case GPU_ROUTE:
        return ptx_emit_route(p, &s->route, l, err);
    case GPU_COMBINE:
        return ptx_emit_combine(p, &s->combine, l, err);
    case GPU_WEIGH:
        return ptx_emit_weigh(p, &s->combine, l, err);
    case GPU_MATMUL:
        return ptx_emit_matmul(p, &s->matmul, l, err);
    case GPU_GROUP:
        return ptx_emit_group(p, &s->group, l, err);
    case GPU_GET_ROWS:
        return ptx_emit_get_rows(p, &s->get_rows, l, err);
    case GPU_REPACK:
        return ptx_emit_repack(p, &s->repack, l, err);
    case GPU_QUANTIZE:
        return ptx_emit_quantize(p, &s->quantize, l, err);
    case GPU_HALVE:
        return ptx_emit_halve(p, &s->halve, l, err);
    case GPU_FUSED:
        return ptx_emit_fused(p, &s->fused, l, err);
    case GPU_ROW:
        return ptx_emit_row(p, &s->row, l, err);
    case GPU_TOP:
        return ptx_emit_top(p, &s->top, l, err);
    case GPU_SLICE:
        return ptx_emit_slice(p, &s->slice, l, err);
    case GPU_JOIN:
        return ptx_emit_join(p, &s->join, l, err);
    case GPU_CONV:
        return ptx_emit_conv(p, &s->conv, l, err);
    case GPU_DELTA:
        return ptx_emit_delta(p, &s->delta, l, err);
    case GPU_SCAN:
        return ptx_emit_scan(p, &s->scan, l, err);
    case GPU_WHOLE:
        return emit_whole(p, s, l, err);
    }
    return fail(err, E_GPU, "PTX: no emitter of kind %d", (int)s->kind);
}

// Emits the kernel's PTX for the given node number into the machine's buffer.
static int emit_for(struct gpu *g, const struct gpu_spec *spec, uint32_t node, struct ptx *p, struct ptx_launch *l,
                    struct error *err)
{
    struct gpu_spec s = *spec;
    s.node = node;
    ptx_start(p, g->emission, TEXT_BYTES);
    return emit(p, &s, l, err) || (s.early && ptx_begin_early(p, err)) ? -1 : 0;
}

static char *keep(const struct ptx *p)
{
    char *copy = malloc(p->size + 1);
    if (copy)
        memcpy(copy, p->data, p->size + 1);
    return copy;
}

static void kernel_free(struct gpu *g, struct gpu_kernel *k)
{
    if (!k)
        return;
    if (k->module)
        driver_unload(g->driver, k->module);
    free(k->key);
    free(k->text);
    free(k);
}

void gpu_kernels_free(struct gpu *g)
{
    for (int i = 0; i < g->n_kernels; i++)
        kernel_free(g, g->kernels[i]);
    free(g->kernels);
    free(g->emission);
    g->kernels = NULL;
    g->emission = NULL;
    g->n_kernels = g->cap_kernels = 0;
}

static struct gpu_kernel *find(const struct gpu *g, const struct ptx *p)
{
    for (int i = 0; i < g->n_kernels; i++)
        if (g->kernels[i]->key_size == p->size && !memcmp(g->kernels[i]->key, p->data, p->size))
            return g->kernels[i];
    return NULL;
}

// Loads a new kernel. On entry, p holds its PTX for node 0, which becomes the key. The PTX for its own node number then
// takes its place in the buffer.
static int make(struct gpu *g, const struct gpu_spec *spec, struct ptx *p, struct gpu_kernel *k, struct error *err)
{
    char name[96];
    k->key_size = p->size;
    if (!(k->key = keep(p)))
        return fail(err, E_MEMORY, "no memory for a kernel's text");
    if (emit_for(g, spec, spec->node, p, &k->launch, err))
        return -1;
    k->text_size = p->size;
    if (!(k->text = keep(p)))
        return fail(err, E_MEMORY, "no memory for a kernel's text");
    snprintf(name, sizeof name, "%s_%u", k->launch.entry, spec->node);
    if (driver_load(g->driver, (struct str){k->text, k->text_size}, &k->module, err))
        return -1;
    return driver_find(g->driver, k->module, name, &k->kernel, err);
}

int gpu_kernel_text(struct gpu *g, const struct gpu_spec *spec, struct str *out, struct error *err)
{
    struct ptx p;
    struct ptx_launch launch;
    if (!g->emission && !(g->emission = malloc(TEXT_BYTES)))
        return fail(err, E_MEMORY, "no memory for the text of kernels");
    if (emit_for(g, spec, 0, &p, &launch, err))
        return -1;
    *out = (struct str){p.data, p.size};
    return 0;
}

int gpu_kernel_get(struct gpu *g, const struct gpu_spec *spec, struct gpu_kernel **out, struct error *err)
{
    struct ptx p;
    struct ptx_launch launch;
    if (!g->emission && !(g->emission = malloc(TEXT_BYTES)))
        return fail(err, E_MEMORY, "no memory for the text of kernels");
    if (emit_for(g, spec, 0, &p, &launch, err))
        return -1;
    if ((*out = find(g, &p))) {
        (*out)->users++;
        return 0;
    }
    struct gpu_kernel **grown = gpu_grow(g->kernels, g->n_kernels, &g->cap_kernels, sizeof *grown);
    struct gpu_kernel *k = grown ? calloc(1, sizeof *k) : NULL;
    if (grown)
        g->kernels = grown;
    if (!k)
        return fail(err, E_MEMORY, "no memory for a kernel");
    if (make(g, spec, &p, k, err)) {
        kernel_free(g, k);
        return -1;
    }
    k->users = 1;
    g->kernels[g->n_kernels++] = *out = k;
    return 0;
}
