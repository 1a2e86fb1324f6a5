// Command R and Cohere 2: LayerNorm, and the two halves of a block side by side after one norm. In Cohere 2 only layers
// with a window rotate. Cohere 2 MoE: behind the first layers a mixture of experts in place of the feed-forward. PLaMo: the
// same block with RMS norms.
#include "models/families.h"

static struct tensor *block(struct build *b, int layer, struct tensor *x, struct attention a, enum scaled scaled)
{
    build_layer(b, layer);
    attention_find_own_gains(b, &a);                  // Command R+
    struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    struct tensor *y = attention(b, n, &a);           // (n_tok, n_head * dim_v)
    build_last_rows(b, layer, &x, &y);
    n = build_last_rows_of(b, layer, "norm_rows", n);                  // (n, n_embd)
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    n = feed_forward(b, n, b->n_ff[layer], ACT_SILU, scaled);          // (n, n_embd)
    x = graph_add(b->g, "ffn_residual", x, n);                         // (n, n_embd)
    return build_layer_end(b, "attn_residual", x, y);                  // (n, n_embd)
}

struct tensor *build_command_r(struct build *b)
{
    build_read_layer_norm(b);
    const float logit_scale = hparam_factor_or(&b->h, "logit_scale", 1);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        x = block(b, i, x, a, SCALED_NOT);
    }
    x = build_output(b, x); // (n, n_vocab)
    return build_scale(b, "output_scaled", x, logit_scale);
}

struct tensor *build_cohere2(struct build *b)
{
    build_read_layer_norm(b);
    const float logit_scale = hparam_factor_or(&b->h, "logit_scale", 1);
    const int window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 4);
        a.angles = a.window ? angles : NULL, a.layout = ROPE_NORM;
        x = block(b, i, x, a, SCALED_RESULT);
    }
    x = build_output(b, x); // (n, n_vocab)
    return build_scale(b, "output_scaled", x, logit_scale);
}

struct tensor *build_plamo(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    rope.n_rot = b->dim_k;                                      // whatever the key says
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        x = block(b, i, x, a, SCALED_NOT);
    }
    return build_output(b, x); // (n, n_vocab)
}

// The mixture, or the mean of it and of an expert of n_shared columns that all rows use: (n, n_embd).
static struct tensor *mixture_of_cohere(struct build *b, struct tensor *x, const struct experts *e, int n_shared)
{
    struct tensor *y = mixture(b, x, e, ACT_SILU); // (n, n_embd)
    if (!n_shared)
        return y;
    y = shared_expert(b, x, y, n_shared, ACT_SILU, SCALED_PRODUCT); // (n, n_embd)
    return graph_scale(b->g, "ffn_mean", y, 0.5F);
}

// Reads the norm: RMS if the file has an epsilon of it that is not 0.
static void read_norm(struct build *b)
{
    const float eps = hparam_factor_or(&b->h, "attention.layer_norm_rms_epsilon", 0);
    if (eps > 0)
        b->norm = NORM_RMS, b->norm_eps = eps;
    else
        build_read_layer_norm(b);
}

// Which layers have a window: an array says it, or all but the first of each period have one.
static bool has_window(struct build *b, int layer)
{
    static const char key[] = "attention.sliding_window_pattern";
    if (hparam_is_array(&b->h, key))
        return hparam_layer_flag(&b->h, key, layer, b->n_layer + b->n_layer_unused);
    return layer % (int)hparam_int(&b->h, key, 1, INT32_MAX) != 0;
}

// The columns of all experts that each row uses together.
static int read_shared(struct build *b, const struct experts *e)
{
    const int n = (int)hparam_int_or(&b->h, "expert_shared_count", 0, 64, 0);
    const int width = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    return n == 0 ? 0 : width ? width : n * (e->n_ff ? e->n_ff : b->n_ff[0]);
}

// The first layers, which have no experts, rotate with or without a window.
struct tensor *build_cohere2moe(struct build *b)
{
    read_norm(b);
    build_skip_prediction(b);
    const float logit_scale = hparam_positive(&b->h, "logit_scale");
    struct experts e = experts_require(b);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.chosen_by_bias = false;
    e.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 0, 1 << 24); // 0: as the feed-forward
    const int n_shared = read_shared(b, &e);
    const int n_lead = (int)hparam_int(&b->h, "leading_dense_block_count", 0, INT32_MAX);
    const int window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                              // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = has_window(b, i) ? window : 0;
        a.angles = a.window || i < n_lead ? angles : NULL, a.layout = ROPE_NORM;
        build_layer(b, i);
        struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        struct tensor *y = attention(b, n, &a);           // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        n = build_last_rows_of(b, i, "norm_rows", n);                      // (n, n_embd)
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        n = i < n_lead ? feed_forward(b, n, b->n_ff[i], ACT_SILU, SCALED_PRODUCT)
                       : mixture_of_cohere(b, n, &e, n_shared); // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, n);              // (n, n_embd)
        x = build_layer_end(b, "attn_residual", x, y);          // (n, n_embd)
    }
    return build_scale(b, "output_scaled", build_output(b, x), logit_scale);
}
