// PLaMo 2: layers of Mamba and layers of attention, each followed by a feed-forward, with norms before and after both. Its
// Mamba has a rate for each head, as Mamba 2, and makes dt, B and C of the convolved values, as Mamba 1, and gates and
// values of a head stand together. PLaMo 3: attention alone, with windows, and heads that share the gains of their norms.
#include "models/blocks/mamba.h"
#include "models/families.h"

#include <stdio.h>

// The norm of a vector NAME or NAME.weight.
static struct tensor *norm_by(struct build *b, const char *name, struct tensor *x)
{
    char full[48];
    snprintf(full, sizeof full, "%s%s", name, weights_has(&b->ws, name) ? "" : ".weight");
    const struct weight *gain = x ? weights_vector(&b->ws, full, x->width, REQUIRED) : NULL;
    return gain ? graph_norm(b->g, name, x, gain, NULL, NORM_RMS, b->norm_eps, 0) : NULL;
}

// Projection, convolution, scan, gate: (n_tok, inner).
static struct tensor *mix(struct build *b, struct tensor *x, const struct mamba *m)
{
    struct weights *ws = &b->ws;
    const int64_t n = m->inner, dim = n / m->rank, states = m->n_state, rank = MAX(64, b->n_embd / 16);
    struct tensor *zx = build_project(b, "ssm_in", x, 2 * n, SCALED_NOT);      // (n_tok, 2 * inner)
    struct tensor *z = graph_slice(b->g, "ssm_z", zx, 2 * dim, 0, dim);        // (n_tok, inner)
    struct tensor *u = graph_slice(b->g, "ssm_values", zx, 2 * dim, dim, dim); // (n_tok, inner)
    u = graph_short_conv(b->g, "ssm_conv", u, weights_matrix(ws, "ssm_conv1d.weight", m->kernel, n, REQUIRED), NULL);
    u = graph_act(b->g, "ssm_conv_act", u, ACT_SILU);
    struct linear all = weights_linear(ws, "ssm_x", n, rank + 2 * states, SCALED_NOT, REQUIRED, OPTIONAL);
    struct linear to_b = linear_rows(ws, &all, 0, states), to_c = linear_rows(ws, &all, states, states);
    struct linear to_dt = linear_rows(ws, &all, 2 * states, rank);
    struct tensor *states_b = norm_by(b, "ssm_b_norm", build_project_by(b, "ssm_x_b", u, &to_b)); // (n_tok, n_state)
    struct tensor *states_c = norm_by(b, "ssm_c_norm", build_project_by(b, "ssm_x_c", u, &to_c)); // (n_tok, n_state)
    struct tensor *dt = norm_by(b, "ssm_dt_norm", build_project_by(b, "ssm_x_dt", u, &to_dt));    // (n_tok, rank)
    dt = build_project(b, "ssm_dt", dt, m->rank, SCALED_NOT);                                     // (n_tok, heads)
    const struct weight *rate = weights_vector(ws, "ssm_a", m->rank, REQUIRED);
    const struct weight *skip = weights_vector(ws, "ssm_d", m->rank, REQUIRED);
    struct scan_params p = {m->rank, 1, (int)dim, m->n_state, 0, 0};
    struct tensor *y = graph_selective_scan(b->g, "ssm_scan", u, dt, states_b, states_c, rate, skip, p);
    return graph_glu(b->g, "ssm_gated", z, y, ACT_SILU); // (n_tok, inner)
}

// Norms of heads, which have gains of their own, before the rotation: (n_tok, n_head * dim_v).
static struct tensor *attend(struct build *b, struct tensor *x, struct attention *a)
{
    const int64_t rows = (int64_t)a->n_head * a->dim_k + (int64_t)a->n_head_kv * (a->dim_k + a->dim_v);
    a->own_gains = true;
    struct qkv y = attention_norm_heads(b, attention_project_fused(b, x, a, rows, SCALED_NOT), a);
    return attention_attend(b, attention_rotate(b, y, a), a);
}

static struct mamba read_mamba(struct build *b)
{
    struct mamba m = mamba_read(b);
    if (m.inner % m.rank != 0)
        hparam_refuse(&b->h, "ssm.time_step_rank", "%d columns of %d heads", m.inner, m.rank);
    if (hparam_int_or(&b->h, "ssm.group_count", 0, INT32_MAX, 0) > 1)
        hparam_refuse(&b->h, "ssm.group_count", "this family has no groups");
    return m;
}

// Layers whose number of heads of keys is 0 are Mamba.
struct tensor *build_plamo2(struct build *b)
{
    build_read_rms(b);
    const struct mamba m = read_mamba(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = b->dim_k ? build_rope(b, "rope", &rope, NULL) : NULL; // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                                         // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = a.n_head_kv ? attend(b, y, &a) : mix(b, y, &m);
        build_last_rows(b, i, &x, &y);
        y = build_project(b, a.n_head_kv ? "attn_output" : "ssm_out", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, norm_by(b, "post_attention_norm", y));               // (n, n_embd)

        y = feed_forward_fused(b, build_norm(b, "ffn_norm", x), b->n_ff[i], ACT_SILU); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, norm_by(b, "post_ffw_norm", y));     // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_plamo3(struct build *b)
{
    build_read_rms(b);
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", 10000);
    near.factor = 1;
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = window ? build_rope(b, "rope_window", &near, NULL) : far_angles;
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 8), a.layout = ROPE_NEOX, a.head_norms = true;
        a.angles = a.window ? near_angles : far_angles;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT);             // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, norm_by(b, "post_attention_norm", y)); // (n, n_embd)

        y = feed_forward_fused(b, build_norm(b, "ffn_norm", x), b->n_ff[i], ACT_SILU); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, norm_by(b, "post_ffw_norm", y));     // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
