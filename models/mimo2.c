// MiMo V2: the block of Llama, where most layers have a window, other numbers of heads, and a sink for each of these, values
// may be narrower than keys, and layers with a router have a mixture of experts. Mellum 2: windows, norms of heads, and a
// mixture in every layer.
#include "models/families.h"

// What of a file tells how layers with and without a window rotate. Those with one have positions that are not scaled.
struct windows {
    int window;
    struct tensor *near_angles, *far_angles;
};

static struct windows read_windows(struct build *b, int window, float near_base)
{
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = near_base > 0 ? (double)near_base : far.base;
    near.scaling = ROPE_SCALING_NONE, near.factor = 1, near.attn_factor = 1;
    struct windows w = {.window = window, .far_angles = build_rope(b, "rope", &far, NULL)};
    w.near_angles = window ? build_rope(b, "rope_window", &near, NULL) : w.far_angles;
    return w;
}

static struct attention attention_within(struct build *b, int layer, const struct windows *w)
{
    struct attention a = attention_of(b, layer);
    a.window = build_window(b, layer, w->window, 4), a.layout = ROPE_NEOX;
    a.angles = a.window ? w->near_angles : w->far_angles;
    return a;
}

struct tensor *build_mimo2(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct experts e = experts_require(b);
    e.route = ROUTE_SIGMOID, e.unscaled = true, e.chosen_by_bias = true;
    e.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 1, 1 << 24);
    if (!hparam_is_array(&b->h, "attention.sliding_window_pattern"))
        hparam_refuse(&b->h, "attention.sliding_window_pattern", "is wanted as an array");
    const float scale = hparam_factor_or(&b->h, "attention.value_scale", 1);
    const float base = hparam_factor_or(&b->h, "rope.freq_base_swa", 10000);
    const struct windows w = read_windows(b, (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX), base);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_within(b, i, &w);
        build_layer(b, i);
        a.sinks = weights_has(&b->ws, "attn_sinks.weight");
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT);                // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, build_scale(b, "attn_scaled", y, scale)); // (n, n_embd)

        y = build_norm(b, "ffn_norm", x); // (n, n_embd)
        y = weights_has(&b->ws, "ffn_gate_inp.weight") ? mixture(b, y, &e, ACT_SILU)
                                                       : feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT);
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_mellum(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    const struct windows w = read_windows(b, (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0), 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_within(b, i, &w);
        a.head_norms = true;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)
        y = mixture(b, build_norm(b, "ffn_norm", x), &e, ACT_SILU);         // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                       // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
