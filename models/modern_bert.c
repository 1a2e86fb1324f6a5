// Encoders with norms before each half of a block, as in Llama, and rotary positions:
//   modern-bert  LayerNorm without biases, layers with a window between those that see everything, GeGLU
//   neo-bert     RMS norms, fused matrices
//   eurobert     Llama that sees the whole text
//   llama-embed  the same with the rope of Llama 3
#include "models/families.h"

// The layers of a period see everything in the first of them, and a window in the others.
static int window_of(struct build *b, int layer, int window)
{
    static const char key[] = "attention.sliding_window_pattern";
    if (hparam_is_array(&b->h, key))
        return hparam_layer_flag(&b->h, key, layer, b->n_layer) ? window : 0;
    return layer % (int)hparam_int_or(&b->h, key, 1, INT32_MAX, 3) ? window : 0;
}

// GeGLU, unless the file names SiLU.
static enum act_kind act_of(struct build *b)
{
    static const char *const words[] = {"gelu", "silu", "swiglu", "geglu", NULL};
    static const enum act_kind acts[] = {ACT_GELU_TANH, ACT_SILU, ACT_SILU, ACT_GELU_TANH};
    return acts[hparam_word_or(&b->h, "hidden_activation", words, 0)];
}

// A block whose gate and up are one matrix.
static struct tensor *block(struct build *b, int layer, struct tensor *x, const struct attention *a, enum act_kind act)
{
    build_layer(b, layer);
    const bool plain = layer == 0 && !weights_has(&b->ws, "attn_norm.weight"); // the first layer of ModernBERT
    struct tensor *y = plain ? x : build_norm(b, "attn_norm", x);              // (n_tok, n_embd)
    y = attention(b, y, a);                                                    // (n_tok, n_head * dim_v)
    x = attention_residual(b, x, y);                                           // (n, n_embd)
    y = build_norm(b, "ffn_norm", x);                                          // (n, n_embd)
    y = feed_forward_fused(b, y, b->n_ff[layer], act);                         // (n, n_embd)
    return graph_add(b->g, "ffn_residual", x, y);                              // (n, n_embd)
}

struct tensor *build_modern_bert(struct build *b)
{
    build_read_layer_norm(b);
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", 10000);
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    const enum act_kind act = act_of(b);
    b->pooling->before_rank = POOLING_MEAN, b->pooling->gelu = true;
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = window ? build_rope(b, "rope_window", &near, NULL) : NULL;
    struct tensor *x = build_norm(b, "token_embd_norm", build_embed(b, 1)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = window_of(b, i, window);
        a.angles = a.window ? near_angles : far_angles, a.layout = ROPE_NEOX;
        x = block(b, i, x, &a, act);
    }
    build_layer(b, -1);
    return build_norm(b, "output_norm", x); // (n, n_embd)
}

struct tensor *build_neo_bert(struct build *b)
{
    build_read_rms(b);
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        x = block(b, i, x, &a, ACT_SILU);
    }
    build_layer(b, -1);
    return build_norm(b, "enc.output_norm", x); // (n, n_embd)
}

struct tensor *build_eurobert(struct build *b)
{
    build_read_rms(b);
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                         // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, y);                // (n, n_embd)
    }
    build_layer(b, -1);
    return build_norm(b, "output_norm", x); // (n, n_embd)
}

struct tensor *build_llama_embed(struct build *b)
{
    build_llama(b);
    return b->hidden; // (n, n_embd)
}
