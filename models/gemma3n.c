// Gemma 3n: the block of Gemma 3 between four streams of the width of the embeddings (AltUp, Baykal et al. 2023, arXiv
// 2301.13310). A layer predicts all streams from all, computes its block on the first one alone, and corrects all streams
// by how far the result is from the prediction. Beside attention stands a product of two narrow matrices (LAuReL, Menghani
// et al. 2024, arXiv 2411.07501), the first layers let only the largest gates through, each layer has embeddings of its own,
// and the last layers use the keys and values of earlier ones.
//
// Numbers that depend on the row, by which whole streams are multiplied, are spread over the columns of a stream by a
// matrix of ones and zeros. The root of a row's mean square is the mean of the products of its elements with those of its
// norm, and the deviation likewise, with those of its LayerNorm.
#include "models/families.h"

#include <math.h>
#include <stdio.h>

enum { OWN_KEYS = 20, SPARSE_LAYERS = 10, EXTRA_MAX = 1 << 20, STREAMS_MAX = 4, EMBD_MAX = 1 << 14 };
#define SPARSE_DEVIATIONS 1.6448533535003662 // exceeded by a twentieth of normal numbers
#define LEAST 1e-30F                         // in place of the epsilon of norms that have none

struct gemma3n {
    int n_own, n_extra; // layers with keys of their own; width of a layer's embedding
    int n;              // streams
    int window;
    const struct weight *take[STREAMS_MAX]; // of the numbers that make stream i of all streams: to their columns
    const struct weight *give[STREAMS_MAX]; // the number that belongs to stream i: to its columns
    struct tensor *near_angles, *far_angles;
    struct tensor *extra;    // (n_tok, n_layer * n_extra)
    struct qkv near, far;    // keys and values that later layers use
    const float *deviations; // [n_layer]: gates this many deviations above the mean count; not finite: all do
};

// ---- Matrices and vectors of constants

static struct weight *constants(struct build *b, const char *name, int64_t k, int64_t rows)
{
    struct weight *w = b->h.fault->code == E_OK ? ARENA_NEW(&b->g->arena, struct weight) : NULL;
    float *data = w ? ARENA_ARRAY(&b->g->arena, float, (size_t)(k * rows)) : NULL; // zeros
    if (!data)
        return fail_first(b->h.fault, E_MEMORY, "out of memory for %lld constants", (long long)(k * rows)), NULL;
    *w = (struct weight){.name = name, .type = DT_F32, .ne = {k, rows, 1}, .data = data};
    w->row_bytes = (size_t)k * sizeof *data;
    return w;
}

static const struct weight *filled(struct build *b, const char *name, int64_t k, int64_t rows, float value)
{
    struct weight *w = constants(b, name, k, rows);
    float *data = w ? (float *)(uintptr_t)w->data : NULL;
    for (int64_t i = 0; data && i < k * rows; i++)
        data[i] = value;
    return w;
}

// Rows of `groups` groups of n_embd columns, of which group g is number `first` + g of k numbers.
static const struct weight *spreading(struct build *b, int k, int first, int groups)
{
    struct weight *w = constants(b, "spread", k, (int64_t)groups * b->n_embd);
    float *data = w ? (float *)(uintptr_t)w->data : NULL;
    for (int64_t i = 0; data && i < (int64_t)groups * b->n_embd; i++)
        data[i * k + first + i / b->n_embd] = 1;
    return w;
}

// ---- Numbers of rows

// The root of the mean square of each row, or with NORM_LAYER the deviation, in every one of `width` columns.
static struct tensor *size_of(struct build *b, const char *name, struct tensor *x, enum norm_kind kind, int64_t width)
{
    if (!x)
        return NULL;
    char normed[48], product[48], mean[48], size[48];
    snprintf(mean, sizeof mean, "%s_mean", name);
    snprintf(normed, sizeof normed, "%s_normed", name);
    snprintf(product, sizeof product, "%s_product", name);
    snprintf(size, sizeof size, "%s_size", name);
    struct tensor *y = graph_norm(b->g, normed, x, NULL, NULL, kind, LEAST, 0);
    y = graph_glu(b->g, product, x, y, ACT_NONE);
    y = graph_matmul(b->g, mean, y, filled(b, "mean", x->width, 1, 1 / (float)x->width), NULL); // (n, 1)
    return graph_matmul(b->g, size, y, filled(b, "spread", 1, width, 1), NULL);                 // (n, width)
}

// x, all parts of which get the size of `like`, in parts of n_embd columns.
static struct tensor *resize(struct build *b, const char *name, struct tensor *x, struct tensor *like)
{
    if (!x)
        return NULL;
    char normed[48], sized[48];
    snprintf(normed, sizeof normed, "%s_scaleless", name);
    snprintf(sized, sizeof sized, "%s_sized", name);
    struct tensor *y = graph_norm(b->g, normed, x, NULL, NULL, NORM_RMS, LEAST, b->n_embd);
    return graph_glu(b->g, sized, y, size_of(b, name, like, NORM_RMS, x->width), ACT_NONE);
}

static struct tensor *stream(struct build *b, const char *name, struct tensor *x, const struct gemma3n *m, int from,
                             int n)
{
    const int64_t width = b->n_embd;
    return graph_slice(b->g, name, x, m->n * width, from * width, n * width);
}

// The numbers that a stream gives for all: (n_tok, n).
static struct tensor *modalities(struct build *b, const char *name, struct tensor *x, const struct gemma3n *m)
{
    char normed[48], scaled[48], product[48];
    snprintf(normed, sizeof normed, "%s_normed", name);
    snprintf(scaled, sizeof scaled, "%s_scaled", name);
    snprintf(product, sizeof product, "%s_product", name);
    const struct weight *gain = weights_vector(&b->ws, "altup_router_norm.weight", b->n_embd, REQUIRED);
    const struct weight *w = weights_matrix(&b->ws, "altup_router.weight", b->n_embd, m->n, REQUIRED);
    if (!gain || !w)
        return NULL;
    x = graph_norm(b->g, normed, x, gain, NULL, NORM_RMS, b->norm_eps, 0);
    x = graph_matmul(b->g, product, graph_scale(b->g, scaled, x, 1 / (float)b->n_embd), w, NULL);
    return graph_softcap(b->g, name, x, 1); // tanh
}

// Joins n values of n_embd columns.
static struct tensor *join(struct build *b, const char *name, struct tensor *const *parts, int n)
{
    struct tensor *y = parts[0];
    for (int i = 1; i < n; i++) {
        char full[48];
        snprintf(full, sizeof full, "%s_%d", name, i);
        y = graph_join(b->g, full, y, (int64_t)i * b->n_embd, parts[i], b->n_embd);
    }
    return y;
}

// x plus, for each stream, the sum of all streams times numbers of the row: (n_tok, n * n_embd).
static struct tensor *predict(struct build *b, struct tensor *x, const struct gemma3n *m)
{
    const int n = m->n;
    struct tensor *numbers = modalities(b, "altup_seen", stream(b, "altup_active", x, m, 0, 1), m); // (n_tok, n)
    const struct weight *w = weights_matrix(&b->ws, "altup_predict_coef.weight", n, (int64_t)n * n, REQUIRED);
    numbers = w ? graph_matmul(b->g, "altup_predict_coef", numbers, w, NULL) : NULL; // (n_tok, n * n)
    struct tensor *parts = graph_route_each(b->g, "altup_parts", x, n), *to[STREAMS_MAX] = {0};
    for (int i = 0; i < n; i++) {
        char spread[32], product[32], sum[32];
        snprintf(spread, sizeof spread, "altup_spread_%d", i);
        snprintf(product, sizeof product, "altup_product_%d", i);
        snprintf(sum, sizeof sum, "altup_sum_%d", i);
        struct tensor *y = graph_matmul(b->g, spread, numbers, m->take[i], NULL); // (n_tok, n * n_embd)
        to[i] = graph_expert_sum(b->g, sum, graph_glu(b->g, product, x, y, ACT_NONE), parts);
    }
    return graph_add(b->g, "altup_predicted", x, join(b, "altup_joined", to, n));
}

// The predictions, each plus the difference of y from the active one times 1 plus a number of the row.
static struct tensor *correct(struct build *b, struct tensor *predicted, struct tensor *active, struct tensor *y,
                              const struct gemma3n *m)
{
    const struct weight *w = weights_matrix(&b->ws, "altup_correct_coef.weight", m->n, m->n, REQUIRED);
    struct tensor *numbers = modalities(b, "altup_made", y, m), *to[STREAMS_MAX] = {0}; // (n_tok, n)
    numbers = w ? graph_matmul(b->g, "altup_correct_coef", numbers, w, filled(b, "one", m->n, 1, 1)) : NULL;
    y = graph_add(b->g, "altup_new", y, graph_scale(b->g, "altup_old", active, -1)); // (n_tok, n_embd)
    for (int i = 0; i < m->n; i++) {
        char spread[32], product[32];
        snprintf(spread, sizeof spread, "altup_share_%d", i);
        snprintf(product, sizeof product, "altup_change_%d", i);
        to[i] = graph_glu(b->g, product, y, graph_matmul(b->g, spread, numbers, m->give[i], NULL), ACT_NONE);
    }
    return graph_add(b->g, "altup_corrected", predicted, join(b, "altup_changes", to, m->n));
}

// ---- The block

// Attention, with keys and values of an earlier layer in the last ones: (n_tok, n_head * dim_v).
static struct tensor *attend(struct build *b, int layer, struct tensor *x, struct gemma3n *m)
{
    struct attention a = attention_of(b, layer);
    a.window = build_window(b, layer, m->window, 5), a.layout = ROPE_NEOX, a.scale = 1;
    a.angles = a.window ? m->near_angles : m->far_angles;
    struct qkv *kept = a.window ? &m->near : &m->far, y = *kept;
    const int64_t keys = (int64_t)a.n_head_kv * a.dim_k, values = (int64_t)a.n_head_kv * a.dim_v;
    if (layer < m->n_own) {
        y = attention_norm_heads(b, attention_project(b, x, &a), &a);
        y.v = graph_norm(b->g, "attn_v_norm", y.v, NULL, NULL, NORM_RMS, b->norm_eps, a.dim_v);
        y = attention_store(b, attention_rotate(b, y, &a), &a);
        *kept = layer == m->n_own - (a.window ? 2 : 1) ? y : *kept;
        return attention_look(b, y, &a);
    }
    weights_matrix(&b->ws, "attn_k.weight", b->n_embd, keys, IGNORED);
    weights_matrix(&b->ws, "attn_v.weight", b->n_embd, values, IGNORED);
    weights_vector(&b->ws, "attn_k_norm.weight", a.dim_k, IGNORED);
    if (!y.k)
        hparam_refuse(&b->h, "attention.shared_kv_layers",
                      "layer %d has a window where the layer whose keys it takes has none, or the reverse", layer);
    y.q = build_project(b, "attn_q", x, (int64_t)a.n_head * a.dim_k, SCALED_PRODUCT);
    y.q = build_head_norm(b, "attn_q_norm", y.q, a.dim_k);
    y.q = graph_rope(b->g, "attn_q_rope", y.q, a.angles, a.dim_k, a.layout);
    return attention_look(b, y, &a);
}

// x plus a norm of the product of two narrow matrices with it: (n_tok, n_embd).
static struct tensor *laurel(struct build *b, struct tensor *x)
{
    const struct weight *l = weights_matrix(&b->ws, "laurel_l.weight", b->n_embd, 0, REQUIRED);
    if (!l)
        return NULL;
    struct tensor *y = graph_matmul(b->g, "laurel_l", x, l, NULL); // (n_tok, rank)
    y = build_project(b, "laurel_r", y, b->n_embd, SCALED_NOT);    // (n_tok, n_embd)
    return graph_add(b->g, "laurel", x, build_norm(b, "laurel_post_norm", y));
}

// What of the gates is so many deviations above their mean, else 0. The deviation is that of a sample.
static struct tensor *largest(struct build *b, struct tensor *gate, double deviations)
{
    const double n = (double)gate->width, times = deviations * sqrt(n / fmax(n - 1, 1));
    struct tensor *y = graph_norm(b->g, "ffn_gate_standard", gate, NULL,
                                  filled(b, "cut", gate->width, 1, (float)-times), NORM_LAYER, LEAST, 0);
    y = graph_act(b->g, "ffn_gate_cut", y, ACT_RELU);
    return graph_glu(b->g, "ffn_gate_largest", y, size_of(b, "ffn_gate", gate, NORM_LAYER, gate->width), ACT_NONE);
}

static struct tensor *sparse_feed_forward(struct build *b, struct tensor *x, int layer, const struct gemma3n *m)
{
    const double times = (double)m->deviations[layer];
    const int n_ff = b->n_ff[layer];
    if (!isfinite(times) || !n_ff)
        return feed_forward(b, x, n_ff, ACT_GELU_TANH, SCALED_NOT);
    struct tensor *gate = build_project(b, "ffn_gate", x, n_ff, SCALED_NOT); // (n_tok, n_ff)
    struct tensor *up = build_project(b, "ffn_up", x, n_ff, SCALED_NOT);     // (n_tok, n_ff)
    struct tensor *y = gate ? graph_glu(b->g, "ffn_glu", largest(b, gate, times), up, ACT_GELU_TANH) : NULL;
    return build_project(b, "ffn_down", y, b->n_embd, SCALED_NOT);
}

// What the layer makes of its own embedding is added to all streams but the first.
static struct tensor *add_extra(struct build *b, int layer, struct tensor *x, const struct gemma3n *m)
{
    struct tensor *first = stream(b, "altup_first", x, m, 0, 1), *parts[STREAMS_MAX] = {0};
    const struct weight *gain = weights_vector(&b->ws, "altup_correct_scale.weight", b->n_embd, REQUIRED);
    if (!gain)
        return NULL;
    struct tensor *y =
        build_project(b, "inp_gate", graph_gain(b->g, "altup_gained", first, gain), m->n_extra, SCALED_NOT);
    y = graph_glu_from(b->g, "inp_glu", y, m->extra, ACT_GELU_TANH, (int64_t)layer * m->n_extra); // (n_tok, n_extra)
    y = build_norm(b, "post_norm", build_project(b, "proj", y, b->n_embd, SCALED_NOT));           // (n_tok, n_embd)
    for (int i = 1; i < m->n; i++)
        parts[i] = y;
    y = join(b, "inp_repeated", parts + 1, m->n - 1);
    struct tensor *rest = graph_add(b->g, "inp_residual", stream(b, "altup_rest", x, m, 1, m->n - 1), y);
    return graph_join(b->g, "altup_all", first, b->n_embd, rest, (int64_t)(m->n - 1) * b->n_embd);
}

static struct tensor *block(struct build *b, int layer, struct tensor *x, struct gemma3n *m)
{
    build_layer(b, layer);
    struct tensor *predicted = predict(b, x, m);                          // (n_tok, n * n_embd)
    struct tensor *active = stream(b, "altup_input", predicted, m, 0, 1); // (n_tok, n_embd)
    struct tensor *n = build_norm(b, "attn_norm", active);                // (n_tok, n_embd)
    struct tensor *y = attend(b, layer, n, m);                            // (n_tok, n_head * dim_v)
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT);    // (n_tok, n_embd)
    y = graph_add(b->g, "attn_residual", active, build_norm(b, "post_attention_norm", y));
    y = graph_scale(b->g, "attn_laurel", graph_add(b->g, "attn_sum", y, laurel(b, n)), (float)M_SQRT1_2);

    n = sparse_feed_forward(b, build_norm(b, "ffn_norm", y), layer, m); // (n_tok, n_embd)
    y = graph_add(b->g, "ffn_residual", y, build_norm(b, "post_ffw_norm", n));
    return add_extra(b, layer, correct(b, predicted, active, y, m), m); // (n_tok, n * n_embd)
}

// ---- Before and behind the layers

// The embeddings of all layers: of the token, and a projection of its common embedding x.
static struct tensor *extra_embeddings(struct build *b, struct tensor *x, const struct gemma3n *m)
{
    const int64_t width = (int64_t)b->n_layer * m->n_extra;
    const struct weight *table = weights_matrix(&b->ws, "per_layer_token_embd.weight", width, b->n_vocab, REQUIRED);
    if (!table)
        return NULL;
    struct tensor *e = graph_embed(b->g, "per_layer_embd", table, INPUT_TOKENS, sqrtf((float)m->n_extra));
    struct tensor *y = build_project(b, "per_layer_model_proj", x, width, SCALED_NOT); // (n_tok, n_layer * n_extra)
    y = build_scale(b, "per_layer_scaled", y, 1 / sqrtf((float)b->n_embd));
    y = build_head_norm(b, "per_layer_proj_norm", y, m->n_extra);
    return build_scale(b, "per_layer_input", graph_add(b->g, "per_layer_sum", y, e), (float)M_SQRT1_2);
}

// The products of a stream, or of all but the first, with a matrix of each of these: (n_tok, (n - 1) * n_embd).
static struct tensor *project_streams(struct build *b, const char *name, struct tensor *x, struct tensor *route,
                                      const struct gemma3n *m)
{
    const struct weight *w = weights_experts(&b->ws, name, b->n_embd, b->n_embd, m->n - 1, SCALED_NOT);
    return w ? graph_expert_matmul(b->g, name, x, w, NULL, route) : NULL;
}

static struct tensor *begin(struct build *b, struct tensor *x, const struct gemma3n *m)
{
    struct tensor *each = graph_route_each(b->g, "altup_each", x, m->n - 1);
    struct tensor *y = resize(b, "altup_begin", project_streams(b, "altup_proj", x, each, m), x);
    return graph_join(b->g, "altup_embd", x, b->n_embd, y, (int64_t)(m->n - 1) * b->n_embd);
}

// The mean of the streams, of the rows that want logits: (n, n_embd).
static struct tensor *finish(struct build *b, struct tensor *x, const struct gemma3n *m)
{
    x = graph_output_rows(b->g, "rows", x); // (n, n_streams * n_embd)
    struct tensor *first = stream(b, "altup_first", x, m, 0, 1), *rest = stream(b, "altup_rest", x, m, 1, m->n - 1);
    struct tensor *each = graph_route_each(b->g, "altup_output_each", rest, m->n - 1);
    rest = resize(b, "altup_end", project_streams(b, "altup_unembd_proj", rest, each, m), first);
    x = graph_add(b->g, "altup_total", first, graph_expert_sum(b->g, "altup_rest_sum", rest, each));
    return graph_scale(b->g, "altup_mean", x, 1 / (float)m->n);
}

// By how many deviations each layer cuts its gates: what the file says, or that of the first layers.
static const float *read_deviations(struct build *b)
{
    float *to = ARENA_ARRAY(&b->g->arena, float, (size_t)b->n_layer);
    const struct gguf_kv *array = NULL;
    char key[80];
    snprintf(key, sizeof key, "%s.activation_sparsity_scale", b->h.arch);
    if (!to || b->h.fault->code != E_OK)
        return to ? NULL : (fail_first(b->h.fault, E_MEMORY, "out of memory for %d layers", b->n_layer), NULL);
    const int found = gguf_get_array(b->h.file, key, GGUF_F32, &array, b->h.fault);
    if (found == 1 && array->count != (uint64_t)b->n_layer)
        hparam_refuse(&b->h, "activation_sparsity_scale", "is an array of %llu, wanted one of %d",
                      (unsigned long long)array->count, b->n_layer);
    for (int i = 0; i < b->n_layer && b->h.fault->code == E_OK; i++)
        to[i] = found == 1          ? gguf_array_f32(array, (uint64_t)i)
                : i < SPARSE_LAYERS ? (float)SPARSE_DEVIATIONS
                                    : -INFINITY;
    return b->h.fault->code == E_OK ? to : NULL;
}

static void read_keys(struct build *b, struct gemma3n *m)
{
    struct hparams *h = &b->h;
    build_read_rms(b);
    if (b->n_embd > EMBD_MAX)
        hparam_refuse(h, "embedding_length", "%d columns; up to %d are served", b->n_embd, (int)EMBD_MAX);
    m->n = (int)hparam_int_or(h, "altup.num_inputs", 2, STREAMS_MAX, 4);
    if (hparam_int_or(h, "altup.active_idx", 0, STREAMS_MAX, 0) != 0)
        hparam_refuse(h, "altup.active_idx", "only the first stream can be the active one");
    m->n_extra = (int)hparam_int_or(h, "embedding_length_per_layer_input", 1, EXTRA_MAX, 256);
    m->n_own = b->n_layer -
               (int)hparam_int_or(h, "attention.shared_kv_layers", 0, b->n_layer - 1, MAX(0, b->n_layer - OWN_KEYS));
    m->window = (int)hparam_int(h, "attention.sliding_window", 1, INT32_MAX);
    m->deviations = read_deviations(b);
    const struct rope far = rope_read(h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(h, "rope.freq_base_swa", 10000);
    near.scaling = ROPE_SCALING_NONE, near.factor = 1;
    m->far_angles = build_rope(b, "rope", &far, NULL);
    m->near_angles = build_rope(b, "rope_window", &near, NULL);
    for (int i = 0; i < m->n; i++) {
        m->take[i] = spreading(b, m->n * m->n, i * m->n, m->n);
        m->give[i] = spreading(b, m->n, i, 1);
    }
}

struct tensor *build_gemma3n(struct build *b)
{
    struct gemma3n m = {0};
    read_keys(b, &m);
    const float softcap = hparam_factor_or(&b->h, "final_logit_softcapping", 30);
    if (b->h.fault->code != E_OK)
        return NULL;
    struct tensor *x = build_embed(b, sqrtf((float)b->n_embd)); // (n_tok, n_embd)
    m.extra = extra_embeddings(b, x, &m);
    x = begin(b, x, &m); // (n_tok, n * n_embd)
    for (int i = 0; i < b->n_layer; i++)
        x = block(b, i, x, &m);
    build_layer(b, -1);
    x = build_output(b, finish(b, x, &m)); // (n, n_vocab)
    return graph_softcap(b->g, "output_softcap", x, softcap);
}
