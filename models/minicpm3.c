// MiniCPM 3: latent attention and SwiGLU, where embeddings, what each half of a block adds, and what the output matrix
// multiplies have factors as in MiniCPM 1 and 2. Longer contexts use one of two tables of rope factors.
// PLM: latent attention, and a feed-forward without a gate.
#include "models/blocks/latent_attention.h"
#include "models/families.h"

#include <math.h>

struct tensor *build_minicpm3(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct latent_attention a = latent_attention_read(b, rope.n_rot);
    if (!a.rank_q || a.absorbed)
        hparam_refuse(&b->h, a.absorbed ? "attention.key_length_mla" : "attention.q_lora_rank",
                      "is not of this family");
    a.layout = ROPE_NEOX, a.factor = 1.4F / sqrtf((float)b->n_layer);
    a.angles = build_rope(b, "rope", &rope, build_rope_factors_by_context(b, &rope)); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 12);                                            // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        x = latent_attention(b, x, build_norm(b, "attn_norm", x), &a); // (n, n_embd)

        struct tensor *y = build_norm(b, "ffn_norm", x);          // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        y = build_scale(b, "ffn_scaled", y, a.factor);            // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
    }
    build_layer(b, -1);
    x = build_norm(b, "output_norm", x);                                                   // (n, n_embd)
    return build_logits(b, build_scale(b, "output_scaled", x, 256.0F / (float)b->n_embd)); // (n, n_vocab)
}

struct tensor *build_plm(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct latent_attention a = latent_attention_read(b, rope.n_rot);
    if (a.rank_q || a.absorbed)
        hparam_refuse(&b->h, a.absorbed ? "attention.key_length_mla" : "attention.q_lora_rank",
                      "is not of this family");
    a.angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);          // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        x = latent_attention(b, x, build_norm(b, "attn_norm", x), &a); // (n, n_embd)

        struct tensor *y = build_norm(b, "ffn_norm", x);     // (n, n_embd)
        y = feed_forward_plain(b, y, b->n_ff[i], ACT_RELU2); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);        // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
