// Falcon: LayerNorm, rotary positions, an MLP, and the halves of a block side by side: after one norm, or in the large
// models each after its own.
#include "models/families.h"

struct tensor *build_falcon(struct build *b)
{
    build_read_layer_norm(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        struct tensor *y =
            weights_has(&b->ws, "attn_norm_2.weight") ? build_norm(b, "attn_norm_2", x) : n; // (n_tok, n_embd)
        y = attention(b, y, &a);                                                             // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        n = build_last_rows_of(b, i, "norm_rows", n);                      // (n, n_embd)
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        n = feed_forward_plain(b, n, b->n_ff[i], ACT_GELU_TANH);           // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, n);                         // (n, n_embd)
        x = build_layer_end(b, "attn_residual", x, y);                     // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
