// Step 3.5 and Laguna: the block of Llama with norms of heads, a gate for the result of each head, other numbers of heads and
// other rotations in layers with a window, and behind the first layers a mixture of experts with an expert that all rows use.
// In Step 3.5 the factors of gated units have limits, which differ from layer to layer.
#include "models/families.h"

#include <math.h>

// How layers rotate that see all keys, and those that have a window. In these positions are not scaled.
struct windows {
    int window;
    struct tensor *near_angles, *far_angles;
};

static struct rope near_of(struct build *b, const struct rope *far, float base, int n_rot)
{
    struct rope near = *far;
    near.base = (double)base;
    near.n_rot = (int)hparam_int_or(&b->h, "rope.dimension_count_swa", 1, b->dim_k, n_rot);
    near.scaling = ROPE_SCALING_NONE, near.factor = 1, near.attn_factor = 1;
    if (near.n_rot % 2 != 0)
        hparam_refuse(&b->h, "rope.dimension_count_swa", "%d columns turn, which is odd: they turn in pairs",
                      near.n_rot);
    return near;
}

// What attention makes of x, where each head, or each column, is multiplied by `act` of a product of x with attn_gate, if the
// file has that: (n_tok, n_head * dim_v).
static struct tensor *gated_attention(struct build *b, struct tensor *x, const struct attention *a, enum act_kind act)
{
    struct tensor *y = attention(b, x, a);
    const int64_t columns = (int64_t)a->n_head * a->dim_v, rows = weights_n_rows(&b->ws, "attn_gate.weight");
    if (!rows)
        return y;
    struct tensor *gate = build_project(b, "attn_gate", x, rows == columns ? columns : a->n_head, SCALED_NOT);
    return rows == columns ? graph_glu(b->g, "attn_gated", gate, y, act)
                           : graph_head_glu(b->g, "attn_gated", gate, y, act);
}

// ---- Step 3.5

// The limit of a layer: an element of an array, a number for all layers, or 0 without the key: there is none. What silu makes
// is not below -0.2785, so that above this a limit on both sides is one from above.
static float limit_of(struct build *b, const char *name, int layer)
{
    const float least = 0.2785f, limit = hparam_layer_number_or(&b->h, name, layer, b->n_layer, 0);
    if (limit > 1e-6f && limit < least)
        hparam_refuse(&b->h, name, "layer %d has a limit of %g; 0 or more than %g is served", layer, (double)limit,
                      (double)least);
    return limit > 1e-6f ? limit : 0;
}

static struct windows read_step35(struct build *b)
{
    struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct windows w = {.window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX)};
    const struct rope near = near_of(b, &far, hparam_positive_or(&b->h, "rope.freq_base_swa", 10000), far.n_rot);
    const int stored = MAX(far.n_rot / 2, near.n_rot) / 2;
    const float *factors = weights_values(&b->ws, "rope_freqs.weight", stored, true);
    far.n_rot /= 2; // of the layers without a window
    if (far.n_rot % 2 != 0 || far.n_rot < 2)
        hparam_refuse(&b->h, "rope.dimension_count", "half of these columns turn in pairs, which %d do not", far.n_rot);
    if (!hparam_is_array(&b->h, "attention.sliding_window_pattern"))
        hparam_refuse(&b->h, "attention.sliding_window_pattern", "is wanted as an array");
    w.far_angles = build_rope(b, "rope", &far, factors);
    w.near_angles = build_rope(b, "rope_window", &near, NULL);
    return w;
}

struct tensor *build_step35(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct experts e = experts_require(b);
    e.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 1, 1 << 24);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int n_shared = (int)hparam_int(&b->h, "expert_shared_feed_forward_length", 1, 1 << 24);
    const struct windows w = read_step35(b);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, w.window, 4), a.layout = ROPE_NEOX;
        a.angles = a.window ? w.near_angles : w.far_angles;
        build_layer(b, i);
        a.head_norms = weights_has(&b->ws, "attn_q_norm.weight");
        struct tensor *y =
            gated_attention(b, build_norm(b, "attn_norm", x), &a, ACT_SIGMOID); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                        // (n, n_embd)

        struct tensor *n = build_norm(b, "ffn_norm", x); // (n, n_embd)
        const float limit = limit_of(b, "swiglu_clamp_shexp", i);
        e.limit = limit_of(b, "swiglu_clamp_exp", i);
        y = weights_has(&b->ws, "ffn_gate_inp.weight")
                ? shared_expert_within(b, n, mixture(b, n, &e, ACT_SILU), n_shared, limit)
                : feed_forward_within(b, n, b->n_ff[i], limit); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);           // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// ---- Laguna

// The first layer of each period sees all keys, the others have the window, if there is one.
static struct windows read_laguna(struct build *b)
{
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct windows w = {.window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0)};
    w.far_angles = build_rope(b, "rope", &far, NULL);
    if (!w.window)
        return w;
    const struct rope near =
        near_of(b, &far, hparam_positive_or(&b->h, "rope.freq_base_swa", (float)far.base), far.n_rot);
    w.near_angles = build_rope(b, "rope_window", &near, NULL);
    return w;
}

struct tensor *build_laguna(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    e.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 1, 1 << 24);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int all = (int)hparam_int_or(&b->h, "expert_shared_count", 1, 64, 1) * e.n_ff;
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 1, 1 << 24, all);
    const int n_lead = (int)hparam_int(&b->h, "leading_dense_block_count", 0, INT32_MAX);
    const int period = (int)hparam_int_or(&b->h, "attention.sliding_window_pattern", 1, INT32_MAX, 4);
    const struct windows w = read_laguna(b);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = i % period ? w.window : 0, a.layout = ROPE_NEOX, a.head_norms = true;
        a.angles = a.window ? w.near_angles : w.far_angles;
        build_layer(b, i);
        struct tensor *y =
            gated_attention(b, build_norm(b, "attn_norm", x), &a, ACT_SOFTPLUS); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                         // (n, n_embd)

        struct tensor *n = build_norm(b, "ffn_norm", x); // (n, n_embd)
        y = i < n_lead
                ? feed_forward(b, n, b->n_ff[i], ACT_SILU, SCALED_NOT)
                : shared_expert(b, n, mixture(b, n, &e, ACT_SILU), n_shared, ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                                               // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
