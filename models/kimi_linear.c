// Kimi Linear (arXiv 2510.26692): layers without heads of keys are delta nets with a decay for each channel, the others
// latent attention that rotates nothing. Behind the first layers stands a mixture of experts with an expert that all rows use.
#include "models/blocks/latent_attention.h"
#include "models/families.h"

#include <stdio.h>

struct channel_delta {
    int n_head, dim, kernel;
};

// The convolution of a projection of x, NAME of attn_NAME and ssm_conv1d_NAME: (n_tok, n_head * dim).
static struct tensor *convolved(struct build *b, struct tensor *x, char name, const struct channel_delta *d)
{
    const int64_t width = (int64_t)d->n_head * d->dim;
    char project[16], weight[32], conv[24], act[24];
    snprintf(project, sizeof project, "attn_%c", name);
    snprintf(weight, sizeof weight, "ssm_conv1d_%c.weight", name);
    snprintf(conv, sizeof conv, "ssm_conv_%c", name);
    snprintf(act, sizeof act, "ssm_act_%c", name);
    const struct weight *w = weights_columns(&b->ws, weight, d->kernel, width, REQUIRED);
    x = build_project(b, project, x, width, SCALED_NOT);
    return w ? graph_act(b->g, act, graph_short_conv(b->g, conv, x, w, NULL), ACT_SILU) : NULL;
}

// The product of two narrow matrices with x: (n_tok, n_head * dim).
static struct tensor *narrow(struct build *b, const char *first, const char *second, struct tensor *x,
                             const struct weight *bias, const struct channel_delta *d)
{
    struct tensor *y = build_project(b, first, x, d->dim, SCALED_NOT); // (n_tok, dim)
    struct linear wide =
        weights_linear(&b->ws, second, d->dim, (int64_t)d->n_head * d->dim, SCALED_NOT, REQUIRED, IGNORED);
    wide.bias = bias;
    return y ? build_project_by(b, second, y, &wide) : NULL;
}

// Projections, convolutions, delta rule, norm, gate: (n_tok, n_head * dim).
static struct tensor *delta_net_of(struct build *b, struct tensor *x, const struct channel_delta *d)
{
    const int64_t width = (int64_t)d->n_head * d->dim;
    const struct weight *bias = weights_vector(&b->ws, "ssm_dt.bias", width, REQUIRED);
    const struct weight *rate = weights_rows_as_vector(&b->ws, "ssm_a", 1, d->n_head, REQUIRED);
    struct tensor *q = convolved(b, x, 'q', d), *k = convolved(b, x, 'k', d), *v = convolved(b, x, 'v', d);
    struct tensor *qkv = graph_join(b->g, "ssm_qk", q, width, k, width);
    qkv = graph_join(b->g, "ssm_qkv", qkv, 2 * width, v, width);                  // (n_tok, 3 * width)
    struct tensor *steps = narrow(b, "ssm_f_a", "ssm_f_b", x, bias, d);           // (n_tok, width)
    steps = graph_act(b->g, "ssm_steps", steps, ACT_SOFTPLUS);                    // (n_tok, width)
    struct tensor *beta = build_project(b, "ssm_beta", x, d->n_head, SCALED_NOT); // (n_tok, n_head)
    const struct delta_params p = {d->n_head, d->n_head, d->dim, d->dim, false, b->norm_eps};
    struct tensor *y = graph_channel_delta_rule(b->g, "ssm_delta", qkv, steps, beta, rate, p); // (n_tok, width)
    struct tensor *gate = narrow(b, "ssm_g_a", "ssm_g_b", x, NULL, d);                         // (n_tok, width)
    return graph_glu(b->g, "ssm_gated", gate, y ? build_head_norm(b, "ssm_norm", y, d->dim) : NULL, ACT_SIGMOID);
}

// Old files have attn_kv_b in place of attn_k_b and attn_v_b.
static bool is_absorbed(struct build *b)
{
    bool absorbed = true;
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        absorbed = absorbed && !weights_has(&b->ws, "attn_kv_b.weight");
    }
    build_layer(b, -1);
    return absorbed;
}

static struct latent_attention read_latent(struct build *b)
{
    const int n_rot = (int)hparam_int(&b->h, "rope.dimension_count", 1, 1 << 16);
    hparam_int(&b->h, "attention.key_length_mla", 1, 1 << 16);
    hparam_int(&b->h, "attention.value_length_mla", 1, 1 << 16);
    struct latent_attention a = latent_attention_read(b, n_rot);
    a.absorbed = is_absorbed(b);
    return a;
}

struct tensor *build_kimi_linear(struct build *b)
{
    build_read_rms(b);
    b->biases = IGNORED;
    const struct latent_attention a = read_latent(b);
    struct channel_delta d = {.n_head = b->n_head[0]};
    d.dim = (int)hparam_int(&b->h, "kda.head_dim", 1, DELTA_DIM_MAX);
    d.kernel = (int)hparam_int(&b->h, "ssm.conv_kernel", 2, CONV_KERNEL_MAX);
    struct experts e = experts_require(b);
    e.n_ff = (int)hparam_int(&b->h, "expert_feed_forward_length", 1, 1 << 24);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.normalise = e.unscaled = true;
    const int n_shared = (int)hparam_int(&b->h, "expert_shared_count", 0, 64) * e.n_ff;
    const int n_lead = (int)hparam_int_or(&b->h, "leading_dense_block_count", 0, INT32_MAX, 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer && b->h.fault->code == E_OK; i++) {
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        x = b->n_head_kv[i] ? latent_attention(b, x, y, &a)
                            : build_residual(b, "attn_output", x, delta_net_of(b, y, &d), SCALED_NOT); // (n, n_embd)
        struct tensor *n = build_norm(b, "ffn_norm", x);                                               // (n, n_embd)
        y = i < n_lead ? feed_forward(b, n, b->n_ff[i], ACT_SILU, SCALED_NOT) : mixture(b, n, &e, ACT_SILU);
        if (i >= n_lead && weights_has(&b->ws, "ffn_up_shexp.weight"))
            y = shared_expert(b, n, y, MAX(n_shared, e.n_ff), ACT_SILU, SCALED_NOT);
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
