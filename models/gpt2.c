// GPT-2 and StarCoder: LayerNorm, learned positions, an MLP without a gate, and biases in all norms and matrices.
#include "models/families.h"

struct tensor *build_gpt2(struct build *b)
{
    build_read_layer_norm(b);
    b->biases = REQUIRED;
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    const struct weight *positions =
        weights_matrix(&b->ws, "position_embd.weight", b->n_embd, b->n_ctx_train, REQUIRED);
    struct tensor *p = graph_embed(b->g, "pos_embd", positions, INPUT_POSITIONS, 1); // (n_tok, n_embd)
    x = graph_add(b->g, "embd", x, p);                                               // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                        // (n, n_embd)
        y = feed_forward_plain(b, y, b->n_ff[i], ACT_GELU_TANH); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);            // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_starcoder(struct build *b)
{
    return build_gpt2(b);
}
