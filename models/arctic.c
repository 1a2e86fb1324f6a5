// Snowflake Arctic: the block of Llama, where a mixture of experts stands beside the whole block: it sees what the block
// sees, with a norm of its own, and both are added. The feed-forward is as wide as the embeddings.
#include "models/families.h"

struct tensor *build_arctic(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b); // of the width that the file gives to the feed-forward
    e.unscaled = true;
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        build_layer(b, i);
        struct tensor *in = build_last_rows_of(b, i, "moe_rows", x); // (n, n_embd)
        struct tensor *y = build_norm(b, "attn_norm", x);            // (n_tok, n_embd)
        y = attention(b, y, &a);                                     // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                             // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                                 // (n, n_embd)
        y = feed_forward(b, y, b->n_embd, ACT_SILU, SCALED_NOT);          // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, y);                        // (n, n_embd)
        y = mixture(b, build_norm(b, "ffn_norm_exps", in), &e, ACT_SILU); // (n, n_embd)
        x = build_layer_end(b, "moe_residual", x, y);                     // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
