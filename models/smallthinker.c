// SmallThinker: the block of Llama with a mixture of experts with ReLU, which are chosen by what comes into the block, before
// its first norm. With windows, every fourth layer sees all positions and rotates nothing.
#include "models/families.h"

enum { WINDOW = 4096, NO_ROPE_STEP = 4 };

struct tensor *build_smallthinker(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.normalise = true, e.unscaled = true, e.chosen_by_bias = false;
    e.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 1, 1 << 24);
    const bool windows = hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0) > 0; // all of one size
    const int period = (int)hparam_int_or(&b->h, "attention.sliding_window_pattern", 1, INT32_MAX, 4);
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", (float)far.base);
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = near.base == far.base ? far_angles : build_rope(b, "rope_window", &near, NULL);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = windows && i % period ? WINDOW : 0, a.layout = ROPE_NEOX;
        a.angles = windows && i % NO_ROPE_STEP == 0 ? NULL : a.window ? near_angles : far_angles;
        build_layer(b, i);
        struct tensor *seen = build_last_rows_of(b, i, "router_rows", x);   // (n, n_embd)
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                // (n, n_embd)
        y = mixture_chosen_by(b, seen, y, &e, ACT_RELU); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);    // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
