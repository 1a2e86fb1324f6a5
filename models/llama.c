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
    x = attention_residual(b, x, y);                  // (n, n_embd)

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
    f.angles = build_rope_with_factors(b, "rope", &rope);
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
    struct block f = {.layout = ROPE_NEOX, .head_norms = true, .experts = experts_require(b)};
    experts_read_width(b, &f.experts);
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

// Qwen VL on text: positions of time, height and width are one, so that the rotation is that of Qwen.
struct tensor *build_qwen2vl(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope_read_sections(&b->h, &rope);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

struct tensor *build_qwen3vl(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope_read_sections(&b->h, &rope);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_NOT, .head_norms = true};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

struct tensor *build_qwen3vlmoe(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope_read_sections(&b->h, &rope);
    struct block f = {.layout = ROPE_NEOX, .head_norms = true, .experts = experts_require(b)};
    experts_read_width(b, &f.experts);
    f.experts.unscaled = true;
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

// Every fourth layer rotates nothing.
struct tensor *build_smollm3(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block turns = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT}, stays = turns;
    turns.angles = build_rope(b, "rope", &rope, NULL);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++)
        x = block(b, i, x, i % 4 == 3 ? &stays : &turns);
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_ernie4_5(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

struct tensor *build_internlm2(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

// Files with an attention temperature scale queries from the end of the original context on.
static void refuse_temperature(struct build *b, const struct rope *rope)
{
    const float scale = hparam_factor_or(&b->h, "attention.temperature_scale", 0);
    if (scale > 0 && b->n_ctx > rope->n_ctx_orig)
        hparam_refuse(&b->h, "attention.temperature_scale",
                      "scales queries beyond %d positions, which is not supported; up to there a context is served",
                      rope->n_ctx_orig);
}

struct tensor *build_mistral3(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope.log_multiplier = (double)hparam_factor_or(&b->h, "rope.scaling.yarn_log_multiplier", 0);
    refuse_temperature(b, &rope);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_RESULT, .experts = experts_read(b)};
    f.angles = build_rope_with_factors(b, "rope", &rope);
    return blocks(b, &f);
}
