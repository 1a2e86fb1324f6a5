// Phi 2: LayerNorm, rope on a part of each head, and an MLP beside the attention, after one norm. Phi 3: the block of
// Llama with fused projections and rope on a part of each head. Phi 3.5 MoE: a mixture of experts, and biases. From Phi
// 3 on longer contexts use one of two tables of rope factors.
#include "models/families.h"

struct tensor *build_phi2(struct build *b)
{
    build_read_layer_norm(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        struct tensor *y = attention(b, n, &a);           // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        n = build_last_rows_of(b, i, "norm_rows", n);                      // (n, n_embd)
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        n = feed_forward_plain(b, n, b->n_ff[i], ACT_GELU_TANH);           // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, n);                         // (n, n_embd)
        x = build_layer_end(b, "attn_residual", x, y);                     // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// Phi 3 and 3.5 MoE; without experts the feed-forward is fused.
static struct tensor *blocks(struct build *b, const struct experts *e)
{
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    struct tensor *angles = build_rope(b, "rope", &rope, build_rope_factors_by_context(b, &rope)); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                                                          // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.window = window;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                                                       // (n, n_embd)
        y = e->n ? mixture(b, y, e, ACT_SILU) : feed_forward_fused(b, y, b->n_ff[i], ACT_SILU); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                                           // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_phi3(struct build *b)
{
    build_read_rms(b);
    return blocks(b, &(struct experts){0});
}

struct tensor *build_phimoe(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    e.unscaled = true;
    return blocks(b, &e);
}
