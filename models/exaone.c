// EXAONE 4: norms of heads, and norms only after each half of a block. The 32B model has windows, and only the layers
// with a window rotate.
#include "models/families.h"

enum { LAYERS_OF_32B = 64 };

struct tensor *build_exaone4(struct build *b)
{
    build_read_rms(b);
    build_refuse_prediction(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    const bool windows = b->n_layer == LAYERS_OF_32B;
    const int window = windows ? (int)hparam_int_or(&b->h, "attention.sliding_window", 1, INT32_MAX, 4096) : 0;
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = windows ? build_window(b, i, window, 4) : 0;
        a.angles = windows && !a.window ? NULL : angles, a.layout = ROPE_NEOX;
        a.head_norms = true;
        build_layer(b, i);
        struct tensor *y = attention(b, x, &a); // (n_tok, n_head * dim_v)
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
