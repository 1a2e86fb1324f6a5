// ChatGLM and GLM 4: the block of Llama with rope on a part of each head and gates in one matrix with what they gate;
// from GLM 4 on norms after each half of a block, too.
#include "models/families.h"

static struct tensor *blocks(struct build *b, const struct rope *rope, enum rope_layout layout, bool norms_after)
{
    struct tensor *angles = build_rope(b, "rope", rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                      // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = layout;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        if (norms_after)
            y = build_norm(b, "post_attention_norm", y); // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, y);      // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                   // (n, n_embd)
        y = feed_forward_fused(b, y, b->n_ff[i], ACT_SILU); // (n, n_embd)
        if (norms_after)
            y = build_norm(b, "post_ffw_norm", y);    // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_chatglm(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    return blocks(b, &rope, ROPE_NORM, false);
}

// The vision models tell pairs apart, and then their halves lie apart, too.
struct tensor *build_glm4(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    const bool sections = rope_read_sections(&b->h, &rope);
    build_refuse_prediction(b);
    return blocks(b, &rope, sections ? ROPE_NEOX : ROPE_NORM, true);
}
