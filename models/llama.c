// Llama and similar families: RMS norms before each half of a block, grouped queries, rotary positions, SwiGLU or a
// mixture of experts.
#include "models/families.h"

// What differs between these families.
struct block {
    struct tensor *angles, *q_angles;
    enum rope_layout layout;
    bool head_norms, ignores_output_bias;
    float max_bias; // of scores that fall with the distance, see attention_slopes; 0: they do not
    struct experts experts;
    enum scaled ffn_scaled;
};

static struct tensor *block(struct build *b, int layer, struct tensor *x, const struct block *f)
{
    struct attention a = attention_of(b, layer);
    a.angles = f->angles, a.q_angles = f->q_angles, a.layout = f->layout, a.head_norms = f->head_norms;
    a.slopes = attention_slopes(b, a.n_head, f->max_bias);
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x);                                 // (n_tok, n_embd)
    y = attention(b, y, &a);                                                          // (n_tok, n_head * dim_v)
    x = attention_residual_by(b, x, y, f->ignores_output_bias ? IGNORED : b->biases); // (n, n_embd)

    y = build_norm(b, "ffn_norm", x); // (n, n_embd)
    y = f->experts.n ? mixture(b, y, &f->experts, ACT_SILU)
                     : feed_forward(b, y, b->n_ff[layer], ACT_SILU, f->ffn_scaled); // (n, n_embd)
    return build_layer_end(b, "ffn_residual", x, y);                                // (n, n_embd)
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
    b->pooling->before_rank = POOLING_LAST, b->pooling->softmax = true; // rerankers of this family
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
    b->output_bias = IGNORED; // as in llama.cpp, which reads it for this family and does not add it
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
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT, .ignores_output_bias = true};
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

struct tensor *build_xverse(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

// The 7B models rotate. In the 13B models scores fall with the distance. Others do neither, as in llama.cpp.
struct tensor *build_baichuan(struct build *b)
{
    enum { LAYERS_OF_7B = 32, LAYERS_OF_13B = 40 };
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT};
    if (b->n_layer == LAYERS_OF_7B)
        f.angles = build_rope(b, "rope", &rope, NULL);
    f.max_bias = b->n_layer == LAYERS_OF_13B ? 8 : 0;
    return blocks(b, &f);
}

struct tensor *build_exaone(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope_with_factors(b, "rope", &rope);
    return blocks(b, &f);
}

// Factors of rope that a file of this family may hold are for nothing.
struct tensor *build_pangu_embedded(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

// Models that run through their layers several times are refused.
struct tensor *build_nanbeige(struct build *b)
{
    build_read_rms(b);
    if (hparam_int_or(&b->h, "num_loops", 1, INT32_MAX, 1) > 1)
        hparam_refuse(&b->h, "num_loops", "layers that run more than once are not supported");
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_RESULT};
    f.angles = build_rope_with_factors(b, "rope", &rope);
    return blocks(b, &f);
}

// The widths and heads of each layer differ. Layers without attention or without a feed-forward are refused by their
// keys.
struct tensor *build_deci(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope_with_factors(b, "rope", &rope);
    return blocks(b, &f);
}

// Orion has LayerNorm.
struct tensor *build_orion(struct build *b)
{
    build_read_layer_norm(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct block f = {.layout = ROPE_NEOX, .ffn_scaled = SCALED_NOT};
    f.angles = build_rope(b, "rope", &rope, NULL);
    return blocks(b, &f);
}

// The table of the queries, which an attention temperature lets grow with their position; NULL: as that of the keys.
static struct tensor *growing_angles(struct build *b, const struct rope *rope)
{
    struct rope grows = *rope;
    grows.growth = hparam_factor_or(&b->h, "attention.temperature_scale", 0);
    grows.period = MAX(rope->n_ctx_orig, 1);
    if (grows.growth > 0 && rope->n_rot != b->dim_k)
        hparam_refuse(&b->h, "attention.temperature_scale", "heads that do not rotate whole are not supported");
    return grows.growth > 0 ? build_rope_with_factors(b, "rope_grown", &grows) : NULL; // (n_tok, n_rot)
}

struct tensor *build_mistral3(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope.log_multiplier = (double)hparam_factor_or(&b->h, "rope.scaling.yarn_log_multiplier", 0);
    struct block f = {.layout = ROPE_NORM, .ffn_scaled = SCALED_RESULT, .experts = experts_read(b)};
    f.angles = build_rope_with_factors(b, "rope", &rope);
    f.q_angles = growing_angles(b, &rope);
    return blocks(b, &f);
}
