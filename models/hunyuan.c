// Hunyuan, dense and with experts: the block of Llama with norms of heads after the rotation. HY 3 has them before it.
// Maincoder: as Hunyuan, dense, but neighbouring columns rotate.
#include "models/families.h"

#include <math.h>

// Extends the context as NTK-aware scaling does: the slowest pair turns alpha times slower, the fastest as before.
static void stretch(struct build *b, struct rope *rope)
{
    const double alpha = (double)hparam_factor_or(&b->h, "rope.scaling.alpha", 0);
    if (alpha > 0 && b->dim_k > 2)
        rope->base *= pow(alpha, b->dim_k / (b->dim_k - 2.0));
}

static struct tensor *attend(struct build *b, struct tensor *x, const struct attention *a)
{
    struct qkv y = attention_project(b, x, a);
    y = attention_rotate(b, y, a);
    y = attention_norm_heads(b, y, a);
    return attention_attend(b, y, a);
}

// All layers and the output of the dense ones: (n, n_vocab).
static struct tensor *dense_layers(struct build *b, const struct rope *rope, enum rope_layout layout)
{
    struct tensor *angles = build_rope(b, "rope", rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                      // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = layout;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attend(b, y, &a);                             // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                         // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
    }
    return build_output(b, x);
}

struct tensor *build_hunyuan_dense(struct build *b)
{
    build_read_rms(b);
    if (hparam_int_or(&b->h, "expert_count", 0, INT32_MAX, 0) > 1)
        hparam_refuse(&b->h, "expert_count", "this family has no experts");
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    stretch(b, &rope);
    return dense_layers(b, &rope, ROPE_NEOX);
}

struct tensor *build_maincoder(struct build *b)
{
    build_read_rms(b);
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    return dense_layers(b, &rope, ROPE_NORM);
}

// Every layer has experts of the width of the feed-forward, and one that all rows use.
struct tensor *build_hunyuan_moe(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    e.unscaled = true;
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attend(b, y, &a);                             // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        struct tensor *n = build_norm(b, "ffn_norm", x);                                    // (n, n_embd)
        y = mixture(b, n, &e, ACT_SILU);                                                    // (n, n_embd)
        y = shared_expert(b, n, y, n_shared ? n_shared : b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                                       // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// What a tensor of a layer that has experts is for nothing, as in llama.cpp.
static void ignore_dense(struct build *b, int n_ff)
{
    weights_matrix(&b->ws, "ffn_gate.weight", b->n_embd, n_ff, IGNORED);
    weights_matrix(&b->ws, "ffn_up.weight", b->n_embd, n_ff, IGNORED);
    weights_matrix(&b->ws, "ffn_down.weight", n_ff, b->n_embd, IGNORED);
}

// The second half of a layer of HY 3, which has experts if it has a router: (n, n_embd).
static struct tensor *second_half(struct build *b, struct tensor *x, const struct experts *e, int n_shared)
{
    const int n_ff = b->n_ff[b->layer];
    struct tensor *n = build_norm(b, "ffn_norm", x); // (n, n_embd)
    if (!weights_has(&b->ws, "ffn_gate_inp.weight"))
        return build_layer_end(b, "ffn_residual", x, feed_forward(b, n, n_ff, ACT_SILU, SCALED_RESULT));
    ignore_dense(b, n_ff);
    struct tensor *y = mixture(b, n, e, ACT_SILU);                  // (n, n_embd)
    y = shared_expert(b, n, y, n_shared, ACT_SILU, SCALED_PRODUCT); // (n, n_embd)
    return build_layer_end(b, "ffn_residual", x, y);                // (n, n_embd)
}

struct tensor *build_hy_v3(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    const int width = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.head_norms = true;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)
        x = second_half(b, x, &e, width ? width : e.n_ff);                  // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
