// Reads files of control vectors tensor by tensor, and adds each direction to the sum of its layer.
#include "models/control.h"

#include "models/arch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { LAYERS_MAX = 1 << 16 };

// N of "direction.N"; -1: the name is another one, or N is out of range.
static int layer_of(struct str name)
{
    static const char start[] = "direction.";
    const size_t n = sizeof start - 1;
    int layer = 0;
    if (name.len <= n || name.len > n + 5 || memcmp(name.data, start, n) != 0)
        return -1;
    for (size_t i = n; i < name.len; i++) {
        if (name.data[i] < '0' || name.data[i] > '9')
            return -1;
        layer = 10 * layer + (name.data[i] - '0');
    }
    return layer < LAYERS_MAX ? layer : -1;
}

static int refuse(const struct gguf *file, const struct gguf_tensor *t, struct error *err, const char *what)
{
    return gguf_fail(file, t->shard, t->info_offset, err, "tensor '%.*s': %s", (int)MIN(t->name.len, (size_t)64),
                     t->name.data, what);
}

static int check(const struct gguf *file, const struct gguf_tensor *t, int64_t n_embd, struct error *err)
{
    const int layer = layer_of(t->name);
    if (layer < 0)
        return refuse(file, t, err, "is no direction of a control vector");
    if (layer == 0)
        return refuse(file, t, err, "layer 0 is never steered");
    if (t->type != DT_F32)
        return refuse(file, t, err, "is not F32");
    if (t->ne[0] == n_embd && t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1)
        return 0;
    return gguf_fail(file, t->shard, t->info_offset, err,
                     "tensor '%.*s': its shape is %" PRId64 " x %" PRId64 ", the model's rows have %" PRId64 " columns",
                     STR_ARG(t->name), t->ne[0], t->ne[1], n_embd);
}

// Tools name the family as they know it, which is not always the name that files have (Mistral's is llama). Only a hint at
// another family that quern knows is an error.
static int check_family(const struct gguf *file, const char *arch, struct error *err)
{
    struct str hint = {0};
    if (gguf_get_str(file, "controlvector.model_hint", &hint, err) < 0)
        return -1;
    if (!hint.len || str_equal_z(hint, arch) || !arch_is_known(hint))
        return 0;
    return fail(err, E_MODEL, "%s: a control vector of the family %.*s, the model is of %s", gguf_path(file, 0),
                (int)MIN(hint.len, (size_t)64), hint.data, arch);
}

static int grow(struct control *c, int n, struct arena *arena, struct error *err)
{
    if (n <= c->n)
        return 0;
    struct weight **behind = ARENA_ARRAY(arena, struct weight *, (size_t)n);
    bool *used = ARENA_ARRAY(arena, bool, (size_t)n);
    if (!behind || !used)
        return fail(err, E_MEMORY, "out of memory for control vectors of %d layers", n);
    for (int i = 0; i < c->n; i++)
        behind[i] = c->behind[i];
    *c = (struct control){behind, used, n};
    return 0;
}

static struct weight *zeros(int64_t n, struct arena *arena)
{
    struct weight *w = ARENA_NEW(arena, struct weight);
    float *data = ARENA_ARRAY(arena, float, (size_t)n);
    if (!w || !data)
        return NULL;
    *w = (struct weight){.name = "control", .type = DT_F32, .ne = {n, 1, 1}, .data = data};
    w->row_bytes = (size_t)n * sizeof *data;
    return w;
}

static int add(struct control *c, const struct gguf *file, const struct gguf_tensor *t, float scale,
               struct arena *arena, struct error *err)
{
    const int layer = layer_of(t->name);
    if (grow(c, layer + 1, arena, err))
        return -1;
    if (!c->behind[layer] && !(c->behind[layer] = zeros(t->ne[0], arena)))
        return fail(err, E_MEMORY, "out of memory for control vectors");
    float *to = (float *)(uintptr_t)c->behind[layer]->data;
    for (int64_t i = 0; i < t->ne[0]; i++) {
        float v;
        memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
        to[i] += scale * v;
        if (!isfinite(to[i]))
            return refuse(file, t, err, "has an element that is no number, or too large with its scale");
    }
    return 0;
}

int control_read(struct control *c, const struct adapter *vectors, int n, struct control_range range, int64_t n_embd,
                 const char *arch, struct arena *arena, struct error *err)
{
    *c = (struct control){0};
    for (int i = 0; i < n; i++) {
        const struct gguf *file = vectors[i].file;
        if (check_family(file, arch, err))
            return -1;
        if (!gguf_n_tensors(file))
            return fail(err, E_MODEL, "%s: has no directions", gguf_path(file, 0));
        for (size_t j = 0; j < gguf_n_tensors(file); j++) {
            const struct gguf_tensor *t = gguf_tensor_at(file, j);
            if (check(file, t, n_embd, err))
                return -1;
            const int layer = layer_of(t->name);
            if (layer < range.first || (range.last && layer > range.last))
                continue;
            if (add(c, file, t, vectors[i].scale, arena, err))
                return -1;
        }
    }
    return 0;
}

const struct weight *control_behind(struct control *c, int layer)
{
    if (layer < 0 || layer >= c->n)
        return NULL;
    c->used[layer] = true;
    return c->behind[layer];
}

int control_check_used(const struct control *c, const char *arch, int n_layer, struct error *err)
{
    for (int i = 0; i < c->n; i++) {
        if (!c->behind[i] || c->used[i])
            continue;
        if (i >= n_layer)
            return fail(err, E_MODEL,
                        "control vector: direction.%d is behind a layer that the model, of %d, does not have", i,
                        n_layer);
        return fail(err, E_MODEL, "the family %s takes no control vectors", arch);
    }
    return 0;
}
