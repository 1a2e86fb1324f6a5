// Seed-OSS: the block of Llama, where the norm before the feed-forward is called after the attention that it follows.
#include "models/families.h"

struct tensor *build_seed_oss(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "post_attention_norm", x);              // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
