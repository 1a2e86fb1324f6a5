// Gemma 4: the block of Gemma 3 with unscaled attention, norms of values, and a scale for each layer. Layers with a window
// have heads of another size than layers that see everything, and the values are the keys where a layer has no matrix
// for them. 26B-A4B: a mixture of experts beside the feed-forward. E2B and E4B: each layer adds an embedding of its own of
// each token, and the last layers attend to the keys and values of earlier ones.
#include "models/families.h"

#include <math.h>

enum { PER_LAYER_MAX = 1 << 16, EXPERT_WIDTH_MAX = 1 << 24 };

// Layers that see everything, or layers with a window.
struct kind {
    int dim; // of a head, for keys and values
    int window;
    struct tensor *angles; // (n_tok, n_rot)
    struct qkv kept;       // keys and values in the cache for the last layers, which have none of their own
};

struct gemma4 {
    bool *windowed; // [n_layer]
    struct kind far, near;
    int n_own; // the first layers, which have keys and values of their own
    struct experts experts;
    int n_extra;          // columns of the embeddings of each layer; 0: none
    struct tensor *extra; // those of all layers: (n_tok, n_layer * n_extra)
};

// ---- Keys

// Which layers have a window: a flag for each, or one for all.
static void read_windows(struct build *b, struct gemma4 *m)
{
    static const char key[] = "attention.sliding_window_pattern";
    m->windowed = ARENA_ARRAY(&b->g->arena, bool, (size_t)b->n_layer);
    if (!m->windowed) {
        fail_first(b->h.fault, E_MEMORY, "out of memory for %d layers", b->n_layer);
        return;
    }
    const bool each = hparam_is_array(&b->h, key), all = !each && hparam_int(&b->h, key, 0, INT32_MAX);
    for (int i = 0; i < b->n_layer; i++)
        m->windowed[i] = each ? hparam_layer_flag(&b->h, key, i, b->n_layer) : all;
}

static void read_dims(struct build *b, struct gemma4 *m)
{
    struct hparams *h = &b->h;
    m->far.dim = b->dim_k;
    m->near.dim = (int)hparam_int_or(h, "attention.key_length_swa", 1, ATTENTION_DIM_MAX, b->dim_k);
    const int near_v = (int)hparam_int_or(h, "attention.value_length_swa", 1, ATTENTION_DIM_MAX, b->dim_v);
    if (b->dim_v != b->dim_k)
        hparam_refuse(h, "attention.value_length", "%d, wanted %d as for keys", b->dim_v, b->dim_k);
    if (near_v != m->near.dim)
        hparam_refuse(h, "attention.value_length_swa", "%d, wanted %d as for keys", near_v, m->near.dim);
}

// Layers with a window have positions that are not scaled; the others divide frequencies by the factors of the file.
static void read_ropes(struct build *b, struct gemma4 *m)
{
    struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train), near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", 10000);
    near.scaling = ROPE_SCALING_NONE, near.factor = 1;
    near.n_rot = (int)hparam_int_or(&b->h, "rope.dimension_count_swa", 1, m->near.dim, far.n_rot);
    if (near.n_rot % 2 || near.n_rot > m->near.dim)
        hparam_refuse(&b->h, "rope.dimension_count_swa", "%d columns turn, wanted an even number up to %d", near.n_rot,
                      m->near.dim);
    m->far.angles = build_rope(b, "rope", &far, build_rope_freqs(b, &far));
    m->near.angles = build_rope(b, "rope_window", &near, NULL);
}

static void read_experts(struct build *b, struct gemma4 *m)
{
    m->experts = experts_read(b);
    if (m->experts.n)
        m->experts.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 1, EXPERT_WIDTH_MAX);
}

static void read_keys(struct build *b, struct gemma4 *m)
{
    build_read_rms(b);
    build_refuse_prediction(b);
    read_windows(b, m);
    read_dims(b, m);
    read_ropes(b, m);
    read_experts(b, m);
    m->near.window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX);
    m->n_own = b->n_layer - (int)hparam_int_or(&b->h, "attention.shared_kv_layers", 0, b->n_layer - 1, 0);
    m->n_extra = (int)hparam_int_or(&b->h, "embedding_length_per_layer_input", 0, PER_LAYER_MAX, 0);
}

// ---- Attention

static struct tensor *queries(struct build *b, struct tensor *x, const struct attention *a)
{
    x = build_project(b, "attn_q", x, (int64_t)a->n_head * a->dim_k, SCALED_PRODUCT); // (n_tok, n_head * dim)
    x = build_head_norm(b, "attn_q_norm", x, a->dim_k);
    return graph_rope(b->g, "attn_q_rope", x, a->angles, a->dim_k, a->layout);
}

// Keys and values of this layer, in the cache.
static struct qkv keys_and_values(struct build *b, struct tensor *x, const struct attention *a)
{
    const int64_t width = (int64_t)a->n_head_kv * a->dim_k;
    struct qkv y = {0};
    y.v = y.k = build_project(b, "attn_k", x, width, SCALED_PRODUCT); // (n_tok, n_head_kv * dim)
    if (weights_has(&b->ws, "attn_v.weight"))
        y.v = build_project(b, "attn_v", x, width, SCALED_PRODUCT); // (n_tok, n_head_kv * dim)
    y.k = build_head_norm(b, "attn_k_norm", y.k, a->dim_k);
    y.k = graph_rope(b->g, "attn_k_rope", y.k, a->angles, a->dim_k, a->layout);
    y.v = graph_norm(b->g, "attn_v_norm", y.v, NULL, NULL, b->norm, b->norm_eps, a->dim_v);
    return attention_store(b, y, a);
}

// A layer without keys and values of its own takes those of the last layer that has some, or of the one before it if it
// has a window. Files may hold its projections, which nothing uses.
static struct qkv shared_keys_and_values(struct build *b, int layer, const struct kind *kind, const struct attention *a)
{
    const int64_t width = (int64_t)a->n_head_kv * a->dim_k;
    weights_matrix(&b->ws, "attn_k.weight", b->n_embd, width, OPTIONAL);
    weights_matrix(&b->ws, "attn_v.weight", b->n_embd, width, OPTIONAL);
    weights_vector(&b->ws, "attn_k_norm.weight", a->dim_k, OPTIONAL);
    if (!kind->kept.k)
        hparam_refuse(&b->h, "attention.shared_kv_layers",
                      "layer %d has a window where the layer whose keys it takes has none, or the reverse", layer);
    return kind->kept;
}

// (n_tok, n_embd) to (n_tok, n_head * dim)
static struct tensor *attend(struct build *b, struct gemma4 *m, int layer, struct tensor *x)
{
    struct kind *kind = m->windowed[layer] ? &m->near : &m->far;
    const struct attention a = {.n_head = b->n_head[layer],
                                .n_head_kv = b->n_head_kv[layer],
                                .dim_k = kind->dim,
                                .dim_v = kind->dim,
                                .angles = kind->angles,
                                .layout = ROPE_NEOX,
                                .scale = 1,
                                .window = kind->window};
    struct qkv y;
    if (layer < m->n_own)
        y = keys_and_values(b, x, &a);
    else
        y = shared_keys_and_values(b, layer, kind, &a);
    if (layer == m->n_own - (m->windowed[layer] ? 2 : 1))
        kind->kept = y;
    y.q = queries(b, x, &a);
    return attention_look(b, y, &a);
}

// ---- Feed-forward

// The matrices of the experts. A file may have both in one, the rows of the gate first.
struct gate_up {
    const struct weight *gate, *up;
};

static struct gate_up gate_and_up(struct build *b, int64_t n_ff, int64_t n)
{
    struct weights *ws = &b->ws;
    if (!weights_has(ws, "ffn_gate_up_exps.weight"))
        return (struct gate_up){weights_experts(ws, "ffn_gate_exps", b->n_embd, n_ff, n, SCALED_PRODUCT),
                                weights_experts(ws, "ffn_up_exps", b->n_embd, n_ff, n, SCALED_PRODUCT)};
    const struct weight *both = weights_experts(ws, "ffn_gate_up_exps", b->n_embd, 2 * n_ff, n, SCALED_NOT);
    return (struct gate_up){weights_rows_of_each(ws, both, 0, n_ff), weights_rows_of_each(ws, both, n_ff, n_ff)};
}

// The experts of x, chosen by what the router sees of `seen`, the sum that x is the norm of: (n, n_embd).
static struct tensor *experts(struct build *b, struct tensor *seen, struct tensor *x, const struct experts *e)
{
    const int64_t n_ff = e->n_ff;
    const struct weight *gain = weights_vector(&b->ws, "ffn_gate_inp.scale", b->n_embd, REQUIRED);
    struct tensor *y = graph_norm(b->g, "ffn_router_norm", seen, gain, NULL, b->norm, b->norm_eps, 0); // (n, n_embd)
    y = build_scale(b, "ffn_router_scaled", y, 1 / sqrtf((float)b->n_embd));
    y = build_project(b, "ffn_gate_inp", y, e->n, SCALED_NOT); // (n, n_expert)
    const struct route_params choice = {.kind = e->route, .n_used = e->n_used, .normalise = e->normalise, .scale = 1};
    struct tensor *route = graph_route(b->g, "ffn_route", y, NULL, choice); // (n, 2 * n_used)
    const struct gate_up w = gate_and_up(b, n_ff, e->n);
    struct tensor *gate = graph_expert_matmul(b->g, "ffn_gate_exps", x, w.gate, NULL, route); // (n, n_used * n_ff)
    struct tensor *up = graph_expert_matmul(b->g, "ffn_up_exps", x, w.up, NULL, route);       // (n, n_used * n_ff)
    const struct weight *w_down = weights_experts(&b->ws, "ffn_down_exps", n_ff, b->n_embd, e->n, SCALED_PRODUCT);
    y = graph_glu(b->g, "ffn_glu_exps", gate, up, ACT_GELU_TANH);           // (n, n_used * n_ff)
    y = graph_expert_matmul(b->g, "ffn_down_exps", y, w_down, NULL, route); // (n, n_used * n_embd)
    return graph_expert_combine(b->g, "ffn_moe", y, route);                 // (n, n_embd)
}

// (n, n_embd) to (n, n_embd)
static struct tensor *dense(struct build *b, int layer, struct tensor *x)
{
    struct tensor *y = build_norm(b, "ffn_norm", x);                         // (n, n_embd)
    return feed_forward(b, y, b->n_ff[layer], ACT_GELU_TANH, SCALED_RESULT); // (n, n_embd)
}

// The feed-forward with the mixture of experts beside it, each between norms of its own.
static struct tensor *dense_and_experts(struct build *b, int layer, struct tensor *x, const struct experts *e)
{
    struct tensor *y = build_norm(b, "post_ffw_norm_1", dense(b, layer, x)); // (n, n_embd)
    struct tensor *z = build_norm(b, "pre_ffw_norm_2", x);                   // (n, n_embd)
    z = build_norm(b, "post_ffw_norm_2", experts(b, x, z, e));               // (n, n_embd)
    return graph_add(b->g, "ffn_both", y, z);                                // (n, n_embd)
}

// ---- Embeddings of layers

// The embeddings of all layers: of the token, and a projection of its common embedding x.
static struct tensor *extra_embeddings(struct build *b, const struct gemma4 *m, struct tensor *x)
{
    const int64_t width = (int64_t)b->n_layer * m->n_extra;
    const struct weight *table = weights_matrix(&b->ws, "per_layer_token_embd.weight", width, b->n_vocab, REQUIRED);
    struct tensor *e =
        table ? graph_embed(b->g, "per_layer_embd", table, INPUT_TOKENS, sqrtf((float)m->n_extra)) : NULL;
    struct tensor *y = build_project(b, "per_layer_model_proj", x, width, SCALED_NOT); // (n_tok, n_layer * n_extra)
    y = build_scale(b, "per_layer_scaled", y, 1 / sqrtf((float)b->n_embd));
    y = build_head_norm(b, "per_layer_proj_norm", y, m->n_extra);
    y = graph_add(b->g, "per_layer_sum", y, e);
    return build_scale(b, "per_layer_input", y, (float)M_SQRT1_2);
}

// x plus what the layer makes of its embedding: (n, n_embd).
static struct tensor *add_extra(struct build *b, const struct gemma4 *m, int layer, struct tensor *x)
{
    struct tensor *extra = build_last_rows_of(b, layer, "per_layer_rows", m->extra);           // (n, n_layer * n_extra)
    struct tensor *y = build_project(b, "inp_gate", x, m->n_extra, SCALED_NOT);                // (n, n_extra)
    y = graph_glu_from(b->g, "inp_glu", y, extra, ACT_GELU_TANH, (int64_t)layer * m->n_extra); // (n, n_extra)
    y = build_project(b, "proj", y, b->n_embd, SCALED_NOT);                                    // (n, n_embd)
    y = build_norm(b, "post_norm", y);                                                         // (n, n_embd)
    return graph_add(b->g, "inp_residual", x, y);
}

// ---- The whole

static struct tensor *block(struct build *b, struct gemma4 *m, int layer, struct tensor *x)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    y = attend(b, m, layer, y);                       // (n_tok, n_head * dim)
    build_last_rows(b, layer, &x, &y);
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    y = build_norm(b, "post_attention_norm", y);                       // (n, n_embd)
    x = graph_add(b->g, "attn_residual", x, y);                        // (n, n_embd)

    if (m->experts.n && weights_has(&b->ws, "ffn_gate_inp.weight"))
        y = dense_and_experts(b, layer, x, &m->experts); // (n, n_embd)
    else
        y = dense(b, layer, x);                // (n, n_embd)
    y = build_norm(b, "post_ffw_norm", y);     // (n, n_embd)
    x = graph_add(b->g, "ffn_residual", x, y); // (n, n_embd)
    if (m->extra)
        x = add_extra(b, m, layer, x); // (n, n_embd)
    const float *scale = weights_values(&b->ws, "layer_output_scale.weight", 1, false);
    return build_control(b, build_scale(b, "layer_scaled", x, scale ? *scale : 1));
}

struct tensor *build_gemma4(struct build *b)
{
    struct gemma4 m = {0};
    read_keys(b, &m);
    const float last_softcap = hparam_factor_or(&b->h, "final_logit_softcapping", 0);
    if (b->h.fault->code != E_OK)
        return NULL;
    struct tensor *x = build_embed(b, sqrtf((float)b->n_embd)); // (n_tok, n_embd)
    m.extra = m.n_extra ? extra_embeddings(b, &m, x) : NULL;
    for (int i = 0; i < b->n_layer; i++)
        x = block(b, &m, i, x);
    x = build_output(b, x); // (n, n_vocab)
    return last_softcap > 0 ? graph_softcap(b->g, "output_softcap", x, last_softcap) : x;
}
