// StableLM: LayerNorm, rope on a part of each head, SwiGLU. StableLM 2 12B has norms of heads, each with gains of its own,
// and the two halves of a block side by side after one norm.
#include "models/families.h"

struct tensor *build_stablelm(struct build *b)
{
    build_read_layer_norm(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        attention_find_own_gains(b, &a);
        struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        struct tensor *y = attention(b, n, &a);           // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        const bool side_by_side = !weights_has(&b->ws, "ffn_norm.weight");
        y = side_by_side ? build_last_rows_of(b, i, "norm_rows", n) : build_norm(b, "ffn_norm", x); // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT);                                   // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                                               // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
