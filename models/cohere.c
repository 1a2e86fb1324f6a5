// Command R and Cohere 2: LayerNorm, and the two halves of a block side by side after one norm. In Cohere 2 only layers
// with a window rotate. PLaMo: the same block with RMS norms.
#include "models/families.h"

static struct tensor *block(struct build *b, int layer, struct tensor *x, struct attention a, enum scaled scaled)
{
    build_layer(b, layer);
    attention_find_own_gains(b, &a);                  // Command R+
    struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    struct tensor *y = attention(b, n, &a);           // (n_tok, n_head * dim_v)
    build_last_rows(b, layer, &x, &y);
    n = build_last_rows_of(b, layer, "norm_rows", n);                  // (n, n_embd)
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    n = feed_forward(b, n, b->n_ff[layer], ACT_SILU, scaled);          // (n, n_embd)
    x = graph_add(b->g, "ffn_residual", x, n);                         // (n, n_embd)
    return graph_add(b->g, "attn_residual", x, y);                     // (n, n_embd)
}

struct tensor *build_command_r(struct build *b)
{
    build_read_layer_norm(b);
    const float logit_scale = hparam_factor_or(&b->h, "logit_scale", 1);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        x = block(b, i, x, a, SCALED_NOT);
    }
    x = build_output(b, x); // (n, n_vocab)
    return build_scale(b, "output_scaled", x, logit_scale);
}

struct tensor *build_cohere2(struct build *b)
{
    build_read_layer_norm(b);
    const float logit_scale = hparam_factor_or(&b->h, "logit_scale", 1);
    const int window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 4);
        a.angles = a.window ? angles : NULL, a.layout = ROPE_NORM;
        x = block(b, i, x, a, SCALED_RESULT);
    }
    x = build_output(b, x); // (n, n_vocab)
    return build_scale(b, "output_scaled", x, logit_scale);
}

struct tensor *build_plamo(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope.n_rot = b->dim_k;                                      // whatever the key says
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        x = block(b, i, x, a, SCALED_NOT);
    }
    return build_output(b, x); // (n, n_vocab)
}
