// The steps of Mamba 1 and 2, in straight lines.
#include "models/blocks/mamba.h"

#include <stdio.h>

static struct mamba read_sizes(struct build *b)
{
    enum { INNER_MAX = 1 << 18 };
    struct mamba m = {.n_group = 1};
    m.kernel = (int)hparam_int(&b->h, "ssm.conv_kernel", 2, CONV_KERNEL_MAX);
    m.inner = (int)hparam_int(&b->h, "ssm.inner_size", 1, INNER_MAX);
    m.n_state = (int)hparam_int(&b->h, "ssm.state_size", 1, SCAN_STATE_MAX);
    m.rank = (int)hparam_int(&b->h, "ssm.time_step_rank", 1, INNER_MAX);
    return m;
}

struct mamba mamba_read(struct build *b)
{
    struct mamba m = read_sizes(b);
    m.plain_norms = hparam_flag_or(&b->h, "ssm.dt_b_c_rms", false);
    return m;
}

struct mamba mamba2_read(struct build *b)
{
    struct mamba m = read_sizes(b);
    m.n_group = (int)hparam_int(&b->h, "ssm.group_count", 1, m.inner);
    if (m.inner % m.rank != 0 || m.rank % m.n_group != 0)
        hparam_refuse(&b->h, "ssm.time_step_rank", "%d columns of %d heads in %d groups", m.inner, m.rank, m.n_group);
    return m;
}

// SiLU of the convolution of x.
static struct tensor *convolve(struct build *b, struct tensor *x, int64_t width, const struct mamba *m)
{
    const struct weight *w = weights_matrix(&b->ws, "ssm_conv1d.weight", m->kernel, width, REQUIRED);
    x = graph_short_conv(b->g, "ssm_conv", x, w, weights_vector(&b->ws, "ssm_conv1d.bias", width, OPTIONAL));
    return graph_act(b->g, "ssm_conv_act", x, ACT_SILU);
}

// The norm NAME.weight of x, if the file has it; with plain_norms, one without gains.
static struct tensor *norm_of(struct build *b, const char *name, struct tensor *x, const struct mamba *m)
{
    char full[32];
    snprintf(full, sizeof full, "%s.weight", name);
    if (weights_has(&b->ws, full))
        return build_norm(b, name, x);
    return m->plain_norms && x ? graph_norm(b->g, name, x, NULL, NULL, NORM_RMS, b->norm_eps, 0) : x;
}

struct tensor *mamba(struct build *b, struct tensor *x, const struct mamba *m)
{
    struct weights *ws = &b->ws;
    const int64_t n = m->inner;
    struct linear in = weights_linear(ws, "ssm_in", b->n_embd, 2 * n, SCALED_PRODUCT, REQUIRED, OPTIONAL);
    struct linear to_x = linear_rows(ws, &in, 0, n), to_z = linear_rows(ws, &in, n, n);
    struct tensor *z = build_project_by(b, "ssm_z", x, &to_z);      // (n_tok, inner)
    x = convolve(b, build_project_by(b, "ssm_in", x, &to_x), n, m); // (n_tok, inner)
    struct linear all =
        weights_linear(ws, "ssm_x", n, m->rank + 2 * (int64_t)m->n_state, SCALED_NOT, REQUIRED, OPTIONAL);
    struct linear to_dt = linear_rows(ws, &all, 0, m->rank), to_b = linear_rows(ws, &all, m->rank, m->n_state);
    struct linear to_c = linear_rows(ws, &all, m->rank + m->n_state, m->n_state);
    struct tensor *dt = norm_of(b, "ssm_dt_norm", build_project_by(b, "ssm_x_dt", x, &to_dt), m);    // (n_tok, rank)
    struct tensor *states_b = norm_of(b, "ssm_b_norm", build_project_by(b, "ssm_x_b", x, &to_b), m); // (n_tok, n_state)
    struct tensor *states_c = norm_of(b, "ssm_c_norm", build_project_by(b, "ssm_x_c", x, &to_c), m); // (n_tok, n_state)
    dt = build_project(b, "ssm_dt", dt, n, SCALED_NOT);                                              // (n_tok, inner)
    const struct weight *rate = weights_rows_as_vector(ws, "ssm_a", m->n_state, n, REQUIRED);
    const struct weight *skip = weights_vector(ws, "ssm_d", n, REQUIRED);
    struct scan_params p = {m->inner, 1, 1, m->n_state, 0, 0};
    struct tensor *y = graph_selective_scan(b->g, "ssm_scan", x, dt, states_b, states_c, rate, skip, p);
    return graph_glu(b->g, "ssm_gated", z, y, ACT_SILU); // (n_tok, inner)
}

struct tensor *mamba2(struct build *b, struct tensor *x, const struct mamba *m)
{
    struct weights *ws = &b->ws;
    const int64_t n = m->inner, states = (int64_t)m->n_group * m->n_state, conv = n + 2 * states;
    struct linear in = weights_linear(ws, "ssm_in", b->n_embd, n + conv + m->rank, SCALED_PRODUCT, REQUIRED, OPTIONAL);
    struct linear to_z = linear_rows(ws, &in, 0, n), to_xbc = linear_rows(ws, &in, n, conv);
    struct linear to_dt = linear_rows(ws, &in, n + conv, m->rank);
    if (in.bias)
        weights_refuse(ws, "ssm_in.bias", "is not served beside ssm_dt.bias");
    to_dt.bias = weights_vector(ws, "ssm_dt.bias", m->rank, REQUIRED);
    to_dt.before = in.after, to_dt.after = 1;                     // a scale is of the product alone
    struct tensor *z = build_project_by(b, "ssm_z", x, &to_z);    // (n_tok, inner)
    struct tensor *dt = build_project_by(b, "ssm_dt", x, &to_dt); // (n_tok, heads)
    struct tensor *xbc =
        convolve(b, build_project_by(b, "ssm_xbc", x, &to_xbc), conv, m); // (n_tok, inner + 2 * states)
    const struct weight *rate = weights_rows_as_vector(ws, "ssm_a", 1, m->rank, REQUIRED);
    const struct weight *skip = weights_rows_as_vector(ws, "ssm_d", 1, m->rank, REQUIRED);
    struct scan_params p = {m->rank, m->n_group, m->inner / m->rank, m->n_state, n, n + states};
    struct tensor *y = graph_selective_scan(b->g, "ssm_scan", xbc, dt, xbc, xbc, rate, skip, p);
    y = graph_glu(b->g, "ssm_gated", z, y, ACT_SILU); // (n_tok, inner)
    if (!weights_has(ws, "ssm_norm.weight"))
        return y;
    const struct weight *gain = weights_rows_as_vector(ws, "ssm_norm.weight", n / m->n_group, m->n_group, REQUIRED);
    return graph_norm(b->g, "ssm_norm", y, gain, NULL, NORM_RMS, b->norm_eps, n / m->n_group);
}
