// Hunyuan, dense and with experts: the block of Llama with norms of heads after the rotation.
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

struct tensor *build_hunyuan_dense(struct build *b)
{
    build_read_rms(b);
    if (hparam_int_or(&b->h, "expert_count", 0, INT32_MAX, 0) > 1)
        hparam_refuse(&b->h, "expert_count", "this family has no experts");
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    stretch(b, &rope);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attend(b, y, &a);                             // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                         // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, y);                // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
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

        struct tensor *n = build_norm(b, "ffn_norm", x);                        // (n, n_embd)
        y = mixture(b, n, &e, ACT_SILU);                                        // (n, n_embd)
        y = shared_expert(b, n, y, n_shared ? n_shared : b->n_ff[i], ACT_SILU); // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, y);                              // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
