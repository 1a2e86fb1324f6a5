// GPT-NeoX, Pythia: LayerNorm, rope on a part of each head, an MLP. The halves of a block stand side by side, each with
// a norm of its own, or one after the other.
#include "models/families.h"

// Both halves read x.
static struct tensor *block_side_by_side(struct build *b, int layer, struct tensor *x, const struct attention *a)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    y = attention(b, y, a);                           // (n_tok, n_head * dim_v)
    build_last_rows(b, layer, &x, &y);
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    struct tensor *z = build_norm(b, "ffn_norm", x);                   // (n, n_embd)
    z = feed_forward_plain(b, z, b->n_ff[layer], ACT_GELU_TANH);       // (n, n_embd)
    x = graph_add(b->g, "ffn_residual", x, z);                         // (n, n_embd)
    return build_layer_end(b, "attn_residual", x, y);                  // (n, n_embd)
}

static struct tensor *block_in_turn(struct build *b, int layer, struct tensor *x, const struct attention *a)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    y = attention(b, y, a);                           // (n_tok, n_head * dim_v)
    x = attention_residual(b, x, y);                  // (n, n_embd)

    y = build_norm(b, "ffn_norm", x);                            // (n, n_embd)
    y = feed_forward_plain(b, y, b->n_ff[layer], ACT_GELU_TANH); // (n, n_embd)
    return build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
}

struct tensor *build_gptneox(struct build *b)
{
    build_read_layer_norm(b);
    const bool side_by_side = hparam_flag(&b->h, "use_parallel_residual");
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        x = side_by_side ? block_side_by_side(b, i, x, &a) : block_in_turn(b, i, x, &a);
    }
    return build_output(b, x); // (n, n_vocab)
}
