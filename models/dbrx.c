// DBRX: LayerNorm without biases, queries, keys and values with a limit, and a mixture of experts in every layer.
#include "models/families.h"

struct tensor *build_dbrx(struct build *b)
{
    build_read_layer_norm(b);
    b->biases = IGNORED;
    struct experts e = experts_require(b); // of the width of the feed-forward
    e.unscaled = true;
    const float clamp = hparam_not_negative(&b->h, "attention.clamp_kqv");
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.clamp = clamp;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "attn_output_norm", x);     // (n, n_embd)
        y = mixture(b, y, &e, ACT_SILU);              // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
