// The steps of a gated delta net, in straight lines.
#include "models/blocks/delta_net.h"

struct delta_net delta_net_read(struct build *b)
{
    struct hparams *h = &b->h;
    struct delta_net d;
    d.kernel = (int)hparam_int(h, "ssm.conv_kernel", 2, CONV_KERNEL_MAX);
    d.dim = (int)hparam_int(h, "ssm.state_size", 1, DELTA_DIM_MAX);
    d.n_head = (int)hparam_int(h, "ssm.time_step_rank", 1, 1 << 14);
    d.n_head_k = (int)hparam_int(h, "ssm.group_count", 1, 1 << 14);
    const int64_t inner = hparam_int(h, "ssm.inner_size", 1, INT32_MAX);
    d.grouped = false;
    d.scaled = SCALED_PRODUCT;
    if (inner != (int64_t)d.n_head * d.dim)
        hparam_refuse(h, "ssm.inner_size", "wanted are %d heads of %d columns", d.n_head, d.dim);
    if (d.n_head_k < 1 || d.n_head % d.n_head_k != 0)
        hparam_refuse(h, "ssm.time_step_rank", "%d heads are no multiple of %d heads of keys", d.n_head, d.n_head_k);
    return d;
}

struct delta_gates delta_gates(struct build *b, struct tensor *x, const struct delta_net *d)
{
    struct delta_gates g;
    g.alpha = build_project(b, "ssm_alpha", x, d->n_head, SCALED_PRODUCT); // (n_tok, n_head)
    g.beta = build_project(b, "ssm_beta", x, d->n_head, SCALED_PRODUCT);   // (n_tok, n_head)
    return g;
}

struct delta_gates delta_gates_fused(struct build *b, struct tensor *x, const struct delta_net *d)
{
    const int heads = d->n_head / d->n_head_k;                                               // of each head of keys
    struct tensor *both = build_project(b, "ssm_ba", x, 2 * (int64_t)d->n_head, SCALED_NOT); // (n_tok, 2 * n_head)
    struct delta_gates g;
    g.beta = graph_slice(b->g, "ssm_beta", both, 2 * (int64_t)heads, 0, heads);       // (n_tok, n_head)
    g.alpha = graph_slice(b->g, "ssm_alpha", both, 2 * (int64_t)heads, heads, heads); // (n_tok, n_head)
    return g;
}

struct tensor *delta_net(struct build *b, struct tensor *x, struct delta_gates gates, const struct delta_net *d)
{
    const int64_t keys = (int64_t)d->n_head_k * d->dim, values = (int64_t)d->n_head * d->dim;
    struct weights *ws = &b->ws;
    const struct weight *conv = weights_matrix(ws, "ssm_conv1d.weight", d->kernel, 2 * keys + values, REQUIRED);
    const struct weight *rate = weights_vector(ws, "ssm_a", d->n_head, REQUIRED);
    const struct weight *bias = weights_vector(ws, "ssm_dt.bias", d->n_head, REQUIRED);
    struct delta_params p = {d->n_head_k, d->n_head, d->dim, d->dim, d->grouped, b->norm_eps};
    struct tensor *qkv = build_project(b, "attn_qkv", x, 2 * keys + values, d->scaled); // (n_tok, 2*keys + values)
    struct tensor *z = build_project(b, "attn_gate", x, values, d->scaled);             // (n_tok, n_head * dim)
    qkv = graph_short_conv(b->g, "ssm_conv", qkv, conv, NULL);
    qkv = graph_act(b->g, "ssm_conv_act", qkv, ACT_SILU);
    struct tensor *y = graph_delta_rule(b->g, "ssm_delta", qkv, gates.alpha, gates.beta, rate, bias, p);
    y = build_head_norm(b, "ssm_norm", y, d->dim);       // (n_tok, n_head * dim)
    return graph_glu(b->g, "ssm_gated", z, y, ACT_SILU); // (n_tok, n_head * dim)
}
