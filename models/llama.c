// Llama and similar families: RMS norms before each half of a block, grouped queries, rotary positions, SwiGLU or a
// mixture of experts.
#include "models/families.h"

// What differs between these families.
struct block {
    struct tensor *angles;
    enum rope_layout layout;
    bool head_norms;
    struct experts experts;
    enum scaled ffn_scaled;
};

static struct tensor *block(struct build *b, int layer, struct tensor *x, const struct block *f)
{
    struct attention a = attention_of(b, layer);
    a.angles = f->angles, a.layout = f->layout, a.head_norms = f->head_norms;
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    y = attention(b, y, &a);                          // (n_tok, n_head * dim_v)
    build_last_rows(b, layer, &x, &y);
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    x = graph_add(b->g, "attn_residual", x, y);                        // (n, n_embd)

    y = build_norm(b, "ffn_norm", x); // (n, n_embd)
    y = f->experts.n ? mixture(b, y, &f->experts, ACT_SILU)
                     : feed_forward(b, y, b->n_ff[layer], ACT_SILU, f->ffn_scaled); // (n, n_embd)
    return graph_add(b->g, "ffn_residual", x, y);                                   // (n, n_embd)
}

static struct tensor *blocks(struct build *b, const struct block *f)
{
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++)
        x = block(b, i, x, f);
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_llama(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_RESULT, .experts = experts_read(b)};
    bool by_context = rope.scaling == ROPE_SCALING_LONGROPE;
    f.angles =
        build_rope(b, "rope", &rope, by_context ? build_rope_factors_by_context(b, &rope) : build_rope_freqs(b, &rope));
    return blocks(b, &f);
}

struct tensor *build_qwen2(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

struct tensor *build_qwen3(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_RESULT, .head_norms = true};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

struct tensor *build_qwen3moe(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NEOX, .head_norms = true, .experts = experts_read(b)};
    if (!f.experts.n)
        hparam_refuse(&b->h, "expert_count", "this family has experts, wanted 1 or more");
    experts_read_width(b, &f.experts);
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}
