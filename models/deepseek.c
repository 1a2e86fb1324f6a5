// DeepSeek 1 and families of its form: the block of Llama, where the first layers have a feed-forward and the others a
// mixture of experts, to which an expert that all rows use is added. dots.llm1, Ling (BailingMoE), GLM 4.5 and later, and
// ERNIE 4.5 MoE differ in how experts are chosen. K-EXAONE has windows, and only the layers with a window rotate.
#include "models/blocks/latent_attention.h"
#include "models/families.h"

#include <math.h>

// The widths of all experts that each row uses together: `expert_shared_count` of them of the width of an expert.
static int read_shared(struct build *b, int n_ff)
{
    return (int)hparam_int(&b->h, "expert_shared_count", 0, 64) * n_ff;
}

static int read_lead(struct build *b)
{
    return (int)hparam_int_or(&b->h, "leading_dense_block_count", 0, INT32_MAX, 0);
}

// A mixture, to which an expert of n_shared columns is added if that is not 0: (n, n_embd).
static struct tensor *experts(struct build *b, struct tensor *x, const struct experts *e, int n_shared)
{
    struct tensor *y = mixture(b, x, e, ACT_SILU); // (n, n_embd)
    return n_shared ? shared_expert(b, x, y, n_shared, ACT_SILU, SCALED_NOT) : y;
}

// x plus the mixture of the normed x, or plus its feed-forward: (n, n_embd).
static struct tensor *second_half(struct build *b, struct tensor *x, const char *norm, bool dense,
                                  const struct experts *e, int n_shared)
{
    struct tensor *y = build_norm(b, norm, x); // (n, n_embd)
    if (dense)
        y = feed_forward(b, y, b->n_ff[b->layer], ACT_SILU, SCALED_NOT); // (n, n_embd)
    else
        y = experts(b, y, e, n_shared);              // (n, n_embd)
    return build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
}

// A block with a mixture, or with a feed-forward if `dense` is set. ffn_norm: the name of the norm in its middle.
static struct tensor *block(struct build *b, int layer, struct tensor *x, const struct attention *a,
                            const char *ffn_norm, bool dense, const struct experts *e, int n_shared)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    y = attention(b, y, a);                           // (n_tok, n_head * dim_v)
    x = attention_residual(b, x, y);                  // (n, n_embd)
    return second_half(b, x, ffn_norm, dense, e, n_shared);
}

struct tensor *build_deepseek(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    e.normalise = false, e.unscaled = true;
    const int n_lead = read_lead(b), n_shared = read_shared(b, e.n_ff);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        x = block(b, i, x, &a, "ffn_norm", i < n_lead, &e, n_shared);
    }
    return build_output(b, x); // (n, n_vocab)
}

// Whether the experts of a file that does not say so are chosen by sigmoids, as in GLM 4.7 Flash.
static bool is_glm_flash(const struct build *b)
{
    return (b->n_layer == 47 || b->n_layer == 48) && b->n_vocab == 154880;
}

// The scale of the scores grows with the context that YaRN adds. The file's multiplier is a tenth of the paper's
// `mscale_all_dim`, and where there is one the rotated columns do not grow.
static void read_yarn(struct build *b, struct rope *rope, struct latent_attention *a)
{
    const double multiplier = (double)hparam_factor_or(&b->h, "rope.scaling.yarn_log_multiplier", 0);
    if (rope->scaling != ROPE_SCALING_YARN || rope->factor <= 1)
        return;
    rope->log_multiplier = multiplier != 0;
    double growth = rope->attn_factor * (1 + multiplier * log(rope->factor));
    if (multiplier == 0)
        growth *= 1 + 0.1 * log(rope->factor);
    a->scale *= (float)(growth * growth);
}

// The growth of queries by their position (Mistral Large 3): a rotation by no angle, with a factor.
static struct tensor *build_growth(struct build *b, const struct latent_attention *a)
{
    const float growth = hparam_factor_or(&b->h, "attention.temperature_scale", 0);
    if (growth == 0)
        return NULL;
    const int period = (int)hparam_int(&b->h, "attention.temperature_length", 1, INT32_MAX);
    const int pairs = (a->absorbed ? a->rank_kv + a->dim_rot : a->dim_k) / 2;
    double *still = ARENA_ARRAY(&b->g->arena, double, (size_t)MAX(pairs, 1)); // zeros
    if (!still) {
        fail_first(b->h.fault, E_MEMORY, "out of memory for %d frequencies", pairs);
        return NULL;
    }
    return graph_growing_rope_table(b->g, "attn_growth", pairs, still, 1, growth, period, 0);
}

struct tensor *build_deepseek2(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, is_glm_flash(b) ? ROUTE_SIGMOID : ROUTE_SOFTMAX);
    e.unscaled = true;
    const int n_lead = read_lead(b), n_shared = read_shared(b, e.n_ff);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct latent_attention a = latent_attention_read(b, rope.n_rot);
    read_yarn(b, &rope, &a);
    a.angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    a.growth = build_growth(b, &a);
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        x = latent_attention(b, x, build_norm(b, "attn_norm", x), &a); // (n, n_embd)
        x = second_half(b, x, "ffn_norm", i < n_lead, &e, n_shared);   // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// Mistral Small 4: as DeepSeek 2, under a name of its own.
struct tensor *build_mistral4(struct build *b)
{
    return build_deepseek2(b);
}

// All layers and the output, where heads have norms and rotate by halves: (n, n_vocab). The first n_lead layers are dense.
static struct tensor *layers_with_head_norms(struct build *b, const struct experts *e, int n_lead, int n_shared)
{
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.head_norms = true;
        x = block(b, i, x, &a, "ffn_norm", i < n_lead, e, n_shared);
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_dots1(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int n_lead = read_lead(b), n_shared = read_shared(b, e.n_ff);
    return layers_with_head_norms(b, &e, n_lead, n_shared);
}

// Every layer has experts.
struct tensor *build_bailingmoe(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    e.normalise = hparam_flag_or(&b->h, "expert_weights_norm", false), e.unscaled = true;
    const int n_shared = read_shared(b, e.n_ff);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM, a.scale = 1 / sqrtf((float)rope.n_rot);
        x = block(b, i, x, &a, "ffn_norm", false, &e, n_shared);
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_bailingmoe2(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int width = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    const int n_lead = read_lead(b), n_shared = read_shared(b, width ? width : e.n_ff);
    return layers_with_head_norms(b, &e, n_lead, n_shared);
}

// GLM 4.5 has norms of heads, GLM 4.5 Air does not. On text the vision models rotate by one position.
struct tensor *build_glm4moe(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int n_lead = read_lead(b), n_shared = read_shared(b, e.n_ff);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope_read_sections(&b->h, &rope);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        a.head_norms = weights_has(&b->ws, "attn_q_norm.weight");
        x = block(b, i, x, &a, "post_attention_norm", i < n_lead, &e, n_shared);
    }
    return build_output(b, x); // (n, n_vocab)
}

// Behind the first layers every `interleave_moe_layer_step`-th has experts.
struct tensor *build_ernie4_5_moe(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    e.unscaled = true, e.chosen_by_bias = true;
    const int n_lead = read_lead(b), step = (int)hparam_int(&b->h, "interleave_moe_layer_step", 1, INT32_MAX);
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer && step > 0; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        x = block(b, i, x, &a, "ffn_norm", i < n_lead || (i + 1) % step != 0, &e, n_shared);
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_exaone_moe(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int width = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    const int n_lead = read_lead(b);
    const int window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 4);
        a.angles = a.window ? angles : NULL, a.layout = ROPE_NEOX, a.head_norms = true;
        x = block(b, i, x, &a, "ffn_norm", i < n_lead, &e, width ? width : e.n_ff);
    }
    return build_output(b, x); // (n, n_vocab)
}
