// OLMo 1, 2 and 3 and OLMoE. OLMo 1 has LayerNorms without a gain. The later ones normalise all queries of a token
// together, and all keys; OLMo 2 and 3 have norms only after each half of a block, and OLMo 3 has windows.
#include "models/families.h"

// OLMo 1: nothing but matrices.
static struct tensor *plain_norm(struct build *b, const char *name, struct tensor *x)
{
    return graph_norm(b->g, name, x, NULL, NULL, NORM_LAYER, b->norm_eps, 0);
}

struct tensor *build_olmo(struct build *b)
{
    build_read_layer_norm(b);
    const float clamp = hparam_factor_or(&b->h, "attention.clamp_kqv", 0);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM, a.clamp = clamp;
        build_layer(b, i);
        struct tensor *y = plain_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = plain_norm(b, "ffn_norm", x);                         // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
    }
    build_layer(b, -1);
    return build_logits(b, plain_norm(b, "output_norm", x)); // (n, n_vocab)
}

// Layers with a window have positions that are not scaled.
struct tensor *build_olmo2(struct build *b)
{
    build_read_rms(b);
    b->biases = IGNORED;
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.scaling = ROPE_SCALING_NONE, near.factor = 1, near.attn_factor = 1;
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL);                                // (n_tok, n_rot)
    struct tensor *near_angles = window ? build_rope(b, "rope_window", &near, NULL) : far_angles; // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                                                         // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 4);
        a.angles = a.window ? near_angles : far_angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = attention_of_rows(b, x, &a); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        y = build_norm(b, "post_attention_norm", y);                       // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, y);                        // (n, n_embd)

        y = feed_forward(b, x, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        y = build_norm(b, "post_ffw_norm", y);                    // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_olmoe(struct build *b)
{
    build_read_rms(b);
    b->biases = IGNORED;
    struct experts e = experts_require(b);
    e.normalise = false, e.unscaled = true;
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention_of_rows(b, y, &a);                  // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);             // (n, n_embd)
        y = mixture(b, y, &e, ACT_SILU);              // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
