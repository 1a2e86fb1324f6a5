// Each lookup searches the file's index by name, compares the shape and makes a view of the data; only vectors that
// are not aligned for floats are copied. A flag per tensor records its use, so that a tensor shared by two parts is
// counted once and unused tensors of layers are refused at the end.
#include "models/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

int weights_open(struct weights *ws, const struct gguf *file, struct arena *arena, struct error *err)
{
    *ws = (struct weights){.file = file, .arena = arena, .fault = err};
    ws->used = ARENA_ARRAY(arena, bool, gguf_n_tensors(file));
    return ws->used ? 0 : fail(err, E_MEMORY, "out of memory for the names of %zu tensors", gguf_n_tensors(file));
}

void weights_layer(struct weights *ws, int layer)
{
    ws->prefix[0] = '\0';
    if (layer >= 0)
        snprintf(ws->prefix, sizeof ws->prefix, "blk.%d.", layer);
    for (int i = 0; i < ws->n_adapters; i++)
        weights_layer(&ws->adapted[i], layer);
}

// ---- Adapters

// The file says what it is, and what its products are multiplied by.
static int check_adapter(const struct gguf *file, const char *arch, float *alpha, struct error *err)
{
    struct str type = {0}, kind = {0}, family = {0};
    if (gguf_get_str(file, "general.type", &type, err) < 0 || gguf_get_str(file, "adapter.type", &kind, err) < 0 ||
        gguf_get_str(file, "general.architecture", &family, err) < 0 ||
        gguf_get_f32(file, "adapter.lora.alpha", alpha, err) < 0)
        return -1;
    if (!str_equal_z(type, "adapter") || !str_equal_z(kind, "lora"))
        return fail(err, E_MODEL, "%s: is no LoRA adapter", gguf_path(file, 0));
    if (!str_equal_z(family, arch))
        return fail(err, E_MODEL, "%s: an adapter of the family %.*s, the model is of %s", gguf_path(file, 0),
                    (int)MIN(family.len, (size_t)64), family.data, arch);
    return isfinite(*alpha) ? 0 : fail(err, E_MODEL, "%s: adapter.lora.alpha is no number", gguf_path(file, 0));
}

int weights_adapt(struct weights *ws, const struct adapter *adapters, int n, const char *arch, struct error *err)
{
    ws->adapted = ARENA_ARRAY(ws->arena, struct weights, (size_t)n);
    ws->scales = ARENA_ARRAY(ws->arena, float, (size_t)n);
    ws->alphas = ARENA_ARRAY(ws->arena, float, (size_t)n);
    if (n && (!ws->adapted || !ws->scales || !ws->alphas))
        return fail(err, E_MEMORY, "out of memory for %d adapters", n);
    for (int i = 0; i < n; i++) {
        if (check_adapter(adapters[i].file, arch, &ws->alphas[i], err) ||
            weights_open(&ws->adapted[i], adapters[i].file, ws->arena, ws->fault))
            return -1;
        ws->scales[i] = adapters[i].scale;
        ws->n_adapters++;
    }
    return 0;
}

// ---- Names

struct name {
    char text[96];
};

static struct name full_name(const struct weights *ws, const char *name)
{
    struct name full;
    snprintf(full.text, sizeof full.text, "%s%s", ws->prefix, name);
    return full;
}

static struct name with_suffix(const char *name, const char *suffix)
{
    struct name full;
    snprintf(full.text, sizeof full.text, "%s.%s", name, suffix);
    return full;
}

// ---- Faults

void weights_refuse(struct weights *ws, const char *name, const char *fmt, ...)
{
    if (ws->fault->code != E_OK)
        return;
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct name full = full_name(ws, name);
    const struct gguf_tensor *t = gguf_find_tensor(ws->file, full.text);
    gguf_fail(ws->file, t ? t->shard : 0, t ? t->info_offset : ERR_NO_OFFSET, ws->fault, "tensor '%s': %s", full.text,
              text);
}

static void *refuse_memory(struct weights *ws)
{
    fail_first(ws->fault, E_MEMORY, "out of memory for the weights' shapes");
    return NULL;
}

// ---- Looking up

bool weights_has(const struct weights *ws, const char *name)
{
    return gguf_find_tensor(ws->file, full_name(ws, name).text);
}

int64_t weights_n_rows(const struct weights *ws, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(ws->file, full_name(ws, name).text);
    return t ? t->ne[1] : 0;
}

static const struct gguf_tensor *find(struct weights *ws, const char *name, enum presence presence)
{
    if (ws->fault->code != E_OK)
        return NULL;
    const struct gguf_tensor *t = gguf_find_tensor(ws->file, full_name(ws, name).text);
    if (!t && presence == REQUIRED)
        weights_refuse(ws, name, "is missing");
    return t;
}

struct shape {
    char text[96];
};

// "64 x 128"
static struct shape print_shape(const int64_t *ne, int n)
{
    struct shape s;
    int at = 0;
    for (int i = 0; i < n; i++)
        at += snprintf(s.text + at, sizeof s.text - (size_t)at, "%s%" PRId64, i ? " x " : "", ne[i]);
    return s;
}

static bool check_shape(struct weights *ws, const char *name, const struct gguf_tensor *t, int n, const int64_t *want)
{
    bool equal = t->ne[3] == 1;
    for (int i = 0; i < 3; i++)
        equal = equal && t->ne[i] == (i < n ? want[i] : 1);
    if (!equal)
        weights_refuse(ws, name, "its shape is %s, wanted %s", print_shape(t->ne, t->n_dims).text,
                       print_shape(want, n).text);
    return equal;
}

static void count_use(struct weights *ws, const struct gguf_tensor *t)
{
    bool *used = &ws->used[t - gguf_tensor_at(ws->file, 0)]; // the entries of the file are one array
    if (*used)
        return;
    *used = true;
    ws->n_params += t->ne[0] * t->ne[1] * t->ne[2];
    ws->bytes += (int64_t)t->size;
}

// Makes a weight of a tensor whose shape has been checked.
static struct weight *make_weight(struct weights *ws, const char *name, const struct gguf_tensor *t)
{
    if (!dtype_decode[t->type]) {
        weights_refuse(ws, name, "is of type %s, which holds no weights", dtype_info[t->type].name);
        return NULL;
    }
    struct weight *w = ARENA_NEW(ws->arena, struct weight);
    char *copy = arena_strdup(ws->arena, t->name);
    if (!w || !copy)
        return refuse_memory(ws);
    *w = (struct weight){.name = copy,
                         .type = t->type,
                         .ne = {t->ne[0], t->ne[1], t->ne[2]},
                         .data = t->data,
                         .row_bytes = dtype_row_bytes(t->type, t->ne[0])};
    count_use(ws, t);
    return w;
}

const struct weight *weights_matrix(struct weights *ws, const char *name, int64_t k, int64_t rows,
                                    enum presence presence)
{
    const struct gguf_tensor *t = find(ws, name, presence);
    if (!t || !check_shape(ws, name, t, 2, (int64_t[]){k, rows ? rows : t->ne[1]}))
        return NULL;
    return make_weight(ws, name, t);
}

// Copies the data of vectors when it is not aligned for floats. A file may place tensors at any byte; vectors are
// small.
static bool align_data(struct weights *ws, struct weight *w)
{
    if ((uintptr_t)w->data % _Alignof(float) == 0)
        return true;
    void *copy = arena_alloc(ws->arena, w->row_bytes * (size_t)w->ne[1], _Alignof(float));
    if (!copy)
        return refuse_memory(ws) != NULL;
    memcpy(copy, w->data, w->row_bytes * (size_t)w->ne[1]);
    w->data = copy;
    return true;
}

// A tensor of n_dims dimensions, F32 and aligned.
static struct weight *floats(struct weights *ws, const char *name, int n_dims, const int64_t *ne,
                             enum presence presence)
{
    const struct gguf_tensor *t = find(ws, name, presence);
    if (!t || !check_shape(ws, name, t, n_dims, ne))
        return NULL;
    if (t->type != DT_F32) {
        weights_refuse(ws, name, "is of type %s, wanted F32", dtype_info[t->type].name);
        return NULL;
    }
    struct weight *w = make_weight(ws, name, t);
    return w && align_data(ws, w) ? w : NULL;
}

const struct weight *weights_vector(struct weights *ws, const char *name, int64_t n, enum presence presence)
{
    return floats(ws, name, 1, &n, presence);
}

const struct weight *weights_rows_as_vector(struct weights *ws, const char *name, int64_t k, int64_t rows,
                                            enum presence presence)
{
    struct weight *w = floats(ws, name, 2, (int64_t[]){k, rows}, presence);
    if (!w)
        return NULL;
    w->ne[0] *= w->ne[1];
    w->row_bytes *= (size_t)w->ne[1];
    w->ne[1] = 1;
    return w;
}

const struct weight *weights_columns(struct weights *ws, const char *name, int64_t k, int64_t columns,
                                     enum presence presence)
{
    const struct gguf_tensor *t = find(ws, name, presence);
    const bool flat = t && t->ne[1] == columns && t->ne[2] == 1;
    struct weight *w =
        t ? floats(ws, name, flat ? 2 : 3, flat ? (int64_t[]){k, columns} : (int64_t[]){k, 1, columns}, presence)
          : NULL;
    if (w && !flat)
        w->ne[1] = columns, w->ne[2] = 1;
    return w;
}

const float *weights_values(struct weights *ws, const char *name, int64_t n, bool nonzero)
{
    const struct weight *w = weights_vector(ws, name, n, OPTIONAL);
    if (!w)
        return NULL;
    const float *v = w->data;
    if (!v) {
        weights_refuse(ws, name, "its values are needed, but the file was opened without them");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(v[i]) && (v[i] != 0 || !nonzero))
            continue;
        weights_refuse(ws, name, "element %" PRId64 " is %g", i, (double)v[i]);
        return NULL;
    }
    return v;
}

// ---- Parts of a model

struct norm weights_norm(struct weights *ws, const char *name, int64_t n, enum presence presence, enum presence bias)
{
    struct norm norm = {.gain = weights_vector(ws, with_suffix(name, "weight").text, n, presence)};
    norm.present = norm.gain;
    if (norm.present)
        norm.bias = weights_vector(ws, with_suffix(name, "bias").text, n, bias);
    if (bias == IGNORED)
        norm.bias = NULL;
    return norm;
}

// The pair of matrices that an adapter has for NAME.weight, before those of later adapters; `next` if it has none.
static const struct lora *take_lora(struct weights *ws, int adapter, const char *name, const struct weight *w,
                                    const struct lora *next)
{
    struct weights *from = &ws->adapted[adapter];
    struct lora *l = ARENA_NEW(ws->arena, struct lora);
    if (!l)
        return refuse_memory(ws);
    l->a = weights_matrix(from, with_suffix(name, "weight.lora_a").text, w->ne[0], 0, OPTIONAL);
    if (!l->a)
        return next;
    l->b = weights_matrix(from, with_suffix(name, "weight.lora_b").text, l->a->ne[1], w->ne[1], REQUIRED);
    if (!l->b)
        return next;
    l->next = next;
    l->scale = ws->scales[adapter] * (ws->alphas[adapter] != 0 ? ws->alphas[adapter] / (float)l->a->ne[1] : 1);
    return l;
}

struct linear weights_linear(struct weights *ws, const char *name, int64_t k, int64_t rows, enum scaled scaled,
                             enum presence presence, enum presence bias)
{
    struct linear l = {
        .w = weights_matrix(ws, with_suffix(name, "weight").text, k, rows, presence), .before = 1, .after = 1};
    if (!l.w)
        return l;
    l.bias = weights_vector(ws, with_suffix(name, "bias").text, rows, bias);
    if (bias == IGNORED)
        l.bias = NULL;
    const float *scale = scaled == SCALED_NOT ? NULL : weights_values(ws, with_suffix(name, "scale").text, 1, false);
    if (scale)
        *(scaled == SCALED_PRODUCT && l.bias ? &l.before : &l.after) = *scale;
    for (int i = ws->n_adapters - 1; i >= 0; i--)
        l.loras = take_lora(ws, i, name, l.w, l.loras);
    return l;
}

// The same adapters of rows first .. first + n - 1 of a product.
static const struct lora *lora_rows(struct weights *ws, const struct lora *fused, int64_t first, int64_t n)
{
    if (!fused)
        return NULL;
    struct lora *part = ARENA_NEW(ws->arena, struct lora);
    struct weight *b = ARENA_NEW(ws->arena, struct weight);
    if (!part || !b)
        return refuse_memory(ws);
    *part = *fused;
    *b = weight_rows(fused->b, first, n);
    part->b = b;
    part->next = lora_rows(ws, fused->next, first, n);
    return part;
}

struct linear linear_rows(struct weights *ws, const struct linear *fused, int64_t first, int64_t n)
{
    struct linear part = *fused;
    struct weight *w = ARENA_NEW(ws->arena, struct weight);
    struct weight *bias = ARENA_NEW(ws->arena, struct weight);
    if (!fused->w || !w || !bias) {
        if (fused->w)
            refuse_memory(ws);
        return (struct linear){.before = 1, .after = 1};
    }
    *w = weight_rows(fused->w, first, n);
    part.w = w;
    if (fused->bias) {
        // a bias is one row, so a part of it is a shorter row that begins later
        *bias = *fused->bias;
        bias->ne[0] = n;
        bias->row_bytes = (size_t)n * sizeof(float);
        if (bias->data)
            bias->data = (const float *)bias->data + first;
        part.bias = bias;
    }
    part.loras = lora_rows(ws, fused->loras, first, n);
    return part;
}

const struct weight *weights_experts(struct weights *ws, const char *name, int64_t k, int64_t rows, int64_t n_expert,
                                     enum scaled scaled)
{
    struct name weight = with_suffix(name, "weight");
    const struct gguf_tensor *t = find(ws, weight.text, REQUIRED);
    if (!t || !check_shape(ws, weight.text, t, 3, (int64_t[]){k, rows, n_expert}))
        return NULL;
    struct weight *w = make_weight(ws, weight.text, t);
    if (w && scaled != SCALED_NOT)
        w->scale = weights_values(ws, with_suffix(name, "scale").text, n_expert, false);
    return w;
}

const struct weight *weights_rows_of_each(struct weights *ws, const struct weight *w, int64_t first, int64_t n)
{
    struct weight *part = w ? ARENA_NEW(ws->arena, struct weight) : NULL;
    if (!part)
        return w ? refuse_memory(ws) : NULL;
    *part = weight_rows_of_each(w, first, n);
    return part;
}

const struct weight *weights_expert_biases(struct weights *ws, const char *name, int64_t rows, int64_t n_expert)
{
    return floats(ws, with_suffix(name, "bias").text, 2, (int64_t[]){rows, n_expert}, OPTIONAL);
}

// ---- Tensors that were not looked up

// Whether a name "blk.N.rest" is of a layer that is left out.
static bool is_left_out(const struct weights *ws, struct str name)
{
    int64_t n = 0;
    for (size_t i = 4; i < name.len && i < 16 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        n = 10 * n + (name.data[i] - '0');
    return ws->n_layer && n >= ws->n_layer;
}

static bool ends_with(struct str s, const char *end)
{
    size_t n = strlen(end);
    return s.len >= n && memcmp(s.data + s.len - n, end, n) == 0;
}

// Every matrix that an adapter changes must be one that is multiplied by itself, unlike those of experts.
static void check_adapters(struct weights *ws)
{
    for (int i = 0; i < ws->n_adapters; i++) {
        struct weights *a = &ws->adapted[i];
        for (size_t j = 0; j < gguf_n_tensors(a->file) && ws->fault->code == E_OK; j++) {
            struct str name = gguf_tensor_at(a->file, j)->name;
            char text[96];
            snprintf(text, sizeof text, "%.*s", (int)MIN(name.len, sizeof text - 1), name.data);
            if (!a->used[j])
                weights_refuse(a, text, "this adapter changes what quern does not adapt in this model");
        }
    }
}

void weights_check_unused(struct weights *ws, const char *arch)
{
    weights_layer(ws, -1);
    check_adapters(ws);
    for (size_t i = 0; i < gguf_n_tensors(ws->file) && ws->fault->code == E_OK; i++) {
        struct str name = gguf_tensor_at(ws->file, i)->name;
        bool of_layer = name.len > 4 && memcmp(name.data, "blk.", 4) == 0;
        if (!of_layer || ws->used[i] || is_left_out(ws, name) || ends_with(name, ".scale") ||
            ends_with(name, ".input_scale"))
            continue;
        char text[96];
        snprintf(text, sizeof text, "%.*s", (int)MIN(name.len, sizeof text - 1), name.data);
        weights_refuse(ws, text, "is no part of a model of the family %s, and would go unused", arch);
    }
}
