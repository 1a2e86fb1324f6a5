// StarCoder 2, CodeShell, Nemotron, Jais 2 and Arcee: the block of Llama with a feed-forward that has no gate. All but
// Arcee have LayerNorm.
#include "models/families.h"

static struct tensor *blocks(struct build *b, struct tensor *angles, enum rope_layout layout, enum act_kind act)
{
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = layout;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);              // (n, n_embd)
        y = feed_forward_plain(b, y, b->n_ff[i], act); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);  // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_starcoder2(struct build *b)
{
    build_read_layer_norm(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    return blocks(b, build_rope(b, "rope", &rope, NULL), ROPE_NEOX, ACT_GELU_TANH);
}

struct tensor *build_codeshell(struct build *b)
{
    return build_starcoder2(b);
}

struct tensor *build_nemotron(struct build *b)
{
    build_read_layer_norm(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    return blocks(b, build_rope(b, "rope", &rope, NULL), ROPE_NEOX, ACT_RELU2);
}

struct tensor *build_jais2(struct build *b)
{
    return build_nemotron(b);
}

struct tensor *build_arcee(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    return blocks(b, build_rope_with_factors(b, "rope", &rope), ROPE_NORM, ACT_RELU2);
}
