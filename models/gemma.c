// Gemma 1, 2 and 3: scaled embeddings, GeGLU; from Gemma 2 on norms before and after each half of a block, and layers
// with a window between those that see everything.
#include "models/families.h"

#include <math.h>

static struct tensor *block(struct build *b, int layer, struct tensor *x, const struct attention *a, bool norms_after)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    y = attention(b, y, a);                           // (n_tok, n_head * dim_v)
    build_last_rows(b, layer, &x, &y);
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    if (norms_after)
        y = build_norm(b, "post_attention_norm", y); // (n, n_embd)
    x = graph_add(b->g, "attn_residual", x, y);      // (n, n_embd)

    y = build_norm(b, "ffn_norm", x);                                  // (n, n_embd)
    y = feed_forward(b, y, b->n_ff[layer], ACT_GELU_TANH, SCALED_NOT); // (n, n_embd)
    if (norms_after)
        y = build_norm(b, "post_ffw_norm", y);       // (n, n_embd)
    return build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
}

static struct tensor *embed(struct build *b)
{
    return build_embed(b, sqrtf((float)b->n_embd));
}

// The largest models of Gemma 2 and 3 scale queries by n_embd / n_head, which is not the width of their heads.
static float attention_scale(const struct build *b, int layers_of_largest)
{
    return 1 / sqrtf((float)(b->n_layer == layers_of_largest ? b->n_embd / b->n_head[0] : b->dim_k));
}

struct tensor *build_gemma(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = embed(b);                                // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        x = block(b, i, x, &a, false);
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_gemma2(struct build *b)
{
    build_read_rms(b);
    struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train), near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", (float)far.base);
    const float softcap = hparam_positive_or(&b->h, "attn_logit_softcapping", 50);
    const float last_softcap = hparam_positive_or(&b->h, "final_logit_softcapping", 30);
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 1, INT32_MAX, 4096);
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = near.base == far.base ? far_angles : build_rope(b, "rope_window", &near, NULL);
    struct tensor *x = embed(b); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 2);
        a.angles = a.window ? near_angles : far_angles, a.layout = ROPE_NEOX;
        a.scale = attention_scale(b, 46), a.softcap = softcap;
        x = block(b, i, x, &a, true);
    }
    x = build_output(b, x); // (n, n_vocab)
    return graph_softcap(b->g, "output_softcap", x, last_softcap);
}

// Layers with a window have a rope base of their own and positions that are not scaled.
struct tensor *build_gemma3(struct build *b)
{
    build_read_rms(b);
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", 10000);
    near.scaling = ROPE_SCALING_NONE, near.factor = 1;
    const float last_softcap = hparam_factor_or(&b->h, "final_logit_softcapping", 0);
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = window ? build_rope(b, "rope_window", &near, NULL) : NULL;
    struct tensor *x = embed(b); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 6);
        a.angles = a.window ? near_angles : far_angles, a.layout = ROPE_NEOX;
        a.scale = attention_scale(b, 62), a.head_norms = true;
        x = block(b, i, x, &a, true);
    }
    x = build_output(b, x); // (n, n_vocab)
    return last_softcap > 0 ? graph_softcap(b->g, "output_softcap", x, last_softcap) : x;
}

// Gemma 3 that sees the whole text, or half a window on either side.
struct tensor *build_gemma_embedding(struct build *b)
{
    build_gemma3(b);
    return b->hidden; // (n, n_embd)
}
