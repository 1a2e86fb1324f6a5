// Qwen 2 MoE and Qwen 1.5 MoE: the block of Llama, where a mixture of experts whose weights are not divided by their sum
// is added to an expert that all rows use, which has a gate of its own.
#include "models/families.h"

struct tensor *build_qwen2moe(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    e.normalise = false, e.unscaled = true;
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
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

        struct tensor *n = build_norm(b, "ffn_norm", x);                                          // (n, n_embd)
        y = mixture(b, n, &e, ACT_SILU);                                                          // (n, n_embd)
        y = gated_shared_expert(b, n, y, n_shared ? n_shared : b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                                             // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
