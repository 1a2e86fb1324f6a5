// gpt-oss: attention with a sink for each head and a window in every second layer, and a mixture of experts with biases
// and limits. The norm before the mixture is named as one after attention.
#include "models/families.h"

struct tensor *build_gpt_oss(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e); // a softmax over the chosen experts alone is one over all, divided by the sum of theirs
    e.unscaled = true;
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", (float)far.base);
    const int window = (int)hparam_int(&b->h, "attention.sliding_window", 0, INT32_MAX);
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = near.base == far.base ? far_angles : build_rope(b, "rope_window", &near, NULL);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 2);
        a.angles = a.window ? near_angles : far_angles, a.layout = ROPE_NEOX, a.sinks = true;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "post_attention_norm", x);  // (n, n_embd)
        y = mixture(b, y, &e, ACT_SWIGLU_CLAMPED);    // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
