// LFM2: most layers are short convolutions between two gates, the others attention with norms of heads.
#include "models/families.h"

// in_proj has three parts, b, c and x; y = c * conv(b * x): (n_tok, n_embd).
static struct tensor *gated_convolution(struct build *b, struct tensor *x, int kernel)
{
    const int64_t n = b->n_embd;
    struct linear in = weights_linear(&b->ws, "shortconv.in_proj", n, 3 * n, SCALED_PRODUCT, REQUIRED, OPTIONAL);
    struct linear to_b = linear_rows(&b->ws, &in, 0, n), to_c = linear_rows(&b->ws, &in, n, n);
    struct linear to_x = linear_rows(&b->ws, &in, 2 * n, n);
    const struct weight *w = weights_matrix(&b->ws, "shortconv.conv.weight", kernel, n, REQUIRED);
    struct tensor *gate = build_project_by(b, "conv_b", x, &to_b);  // (n_tok, n_embd)
    struct tensor *after = build_project_by(b, "conv_c", x, &to_c); // (n_tok, n_embd)
    struct tensor *y = build_project_by(b, "conv_x", x, &to_x);     // (n_tok, n_embd)
    y = graph_glu(b->g, "conv_in", gate, y, ACT_NONE);              // (n_tok, n_embd)
    y = graph_short_conv(b->g, "conv", y, w, NULL);                 // (n_tok, n_embd)
    return graph_glu(b->g, "conv_out", after, y, ACT_NONE);         // (n_tok, n_embd)
}

// x plus what the layer mixes into it from the rows before: (n, n_embd).
static struct tensor *mixed(struct build *b, int layer, struct tensor *x, struct tensor *angles, int kernel, int window)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    if (!b->n_head_kv[layer])
        return build_residual(b, "shortconv.out_proj", x, gated_convolution(b, y, kernel), SCALED_PRODUCT);
    struct attention a = attention_of(b, layer);
    a.angles = angles, a.layout = ROPE_NEOX, a.head_norms = true, a.window = window;
    return attention_residual(b, x, attention(b, y, &a));
}

// The norm at the end has the name that the norm of embeddings has elsewhere.
static struct tensor *output(struct build *b, struct tensor *x)
{
    build_layer(b, -1);
    return build_logits(b, build_norm(b, "token_embd_norm", x)); // (n, n_vocab)
}

// Layers from the first `dense` ones on have a mixture of experts.
static struct tensor *blocks(struct build *b, const struct experts *e, int dense)
{
    build_read_rms(b);
    const int kernel = (int)hparam_int(&b->h, "shortconv.l_cache", 2, CONV_KERNEL_MAX);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        x = mixed(b, i, x, angles, kernel, window);
        struct tensor *y = build_norm(b, "ffn_norm", x); // (n, n_embd)
        y = i < dense ? feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT) : mixture(b, y, e, ACT_SILU);
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return output(b, x);
}

struct tensor *build_lfm2(struct build *b)
{
    return blocks(b, NULL, b->n_layer);
}

struct tensor *build_lfm2moe(struct build *b)
{
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.normalise = e.unscaled = true;
    return blocks(b, &e, (int)hparam_int_or(&b->h, "leading_dense_block_count", 0, INT32_MAX, 0));
}
