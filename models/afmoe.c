// AFMoE (Trinity): norms before and after each half of a block, attention whose result has a gate, windows in all but every
// fourth layer, which rotates nothing, and behind the first layers a mixture of experts. Muse Glimmer: the same without
// experts, where the norms after the halves have an epsilon of their own, and the embeddings have a norm.
#include "models/families.h"

#include <math.h>

enum { NO_ROPE_STEP = 4 };

// Attention, times a sigmoid of a product of its input: (n_tok, n_head * dim_v).
static struct tensor *gated_attention(struct build *b, struct tensor *x, const struct attention *a)
{
    struct tensor *gate = build_project(b, "attn_gate", x, (int64_t)a->n_head * a->dim_v, SCALED_NOT);
    return graph_glu(b->g, "attn_gated", gate, attention(b, x, a), ACT_SIGMOID);
}

// n_shared: columns of an expert that all rows use, or 0.
static struct tensor *experts(struct build *b, struct tensor *x, const struct experts *e, int n_shared)
{
    struct tensor *y = mixture(b, x, e, ACT_SILU); // (n, n_embd)
    return n_shared ? shared_expert(b, x, y, n_shared, ACT_SILU, SCALED_NOT) : y;
}

struct tensor *build_afmoe(struct build *b)
{
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int n_shared = (int)hparam_int(&b->h, "expert_shared_count", 0, 64) * e.n_ff;
    const int n_lead = (int)hparam_int_or(&b->h, "leading_dense_block_count", 0, INT32_MAX, 0);
    const int window = (int)hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, 0);
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", (float)far.base);
    struct tensor *far_angles = build_rope(b, "rope", &far, NULL); // (n_tok, n_rot)
    struct tensor *near_angles = near.base == far.base ? far_angles : build_rope(b, "rope_window", &near, NULL);
    struct tensor *x = build_embed(b, sqrtf((float)b->n_embd)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 4), a.layout = ROPE_NEOX, a.head_norms = true;
        a.angles = (i + 1) % NO_ROPE_STEP == 0 ? NULL : a.window ? near_angles : far_angles;
        build_layer(b, i);
        struct tensor *y = gated_attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT);                // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, build_norm(b, "post_attention_norm", y)); // (n, n_embd)

        y = build_norm(b, "ffn_norm", x); // (n, n_embd)
        y = i < n_lead ? feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT) : experts(b, y, &e, n_shared);
        x = build_layer_end(b, "ffn_residual", x, build_norm(b, "post_ffw_norm", y)); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// ---- Muse Glimmer

static struct tensor *post_norm(struct build *b, const char *name, const char *gains, struct tensor *x)
{
    const float eps = 1e-8F;
    const struct weight *gain = weights_vector(&b->ws, gains, b->n_embd, REQUIRED);
    return gain ? graph_norm(b->g, name, x, gain, NULL, NORM_RMS, eps, 0) : NULL;
}

struct tensor *build_muse_glimmer(struct build *b)
{
    build_read_rms(b);
    const int window = (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX);
    const float logit_scale = hparam_positive(&b->h, "logit_scale");
    const float softcap = hparam_factor_or(&b->h, "final_logit_softcapping", 0);
    struct rope near = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", (float)near.base);
    near.scaling = ROPE_SCALING_NONE, near.factor = 1;
    struct tensor *angles = build_rope(b, "rope", &near, NULL); // (n_tok, n_rot)
    struct tensor *x = graph_norm(b->g, "embd", build_embed(b, 1), NULL, NULL, NORM_RMS, b->norm_eps, 0);
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, window, 4), a.layout = ROPE_NORM, a.head_norms = true;
        a.angles = a.window ? angles : NULL;
        build_layer(b, i);
        struct tensor *y = gated_attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        y = post_norm(b, "post_attention_norm", "post_attention_norm.weight", y);
        x = graph_add(b->g, "attn_residual", x, y); // (n, n_embd)

        y = feed_forward(b, build_norm(b, "ffn_norm", x), b->n_ff[i], ACT_SILU, SCALED_NOT);
        x = build_layer_end(b, "ffn_residual", x, post_norm(b, "post_ffw_norm", "post_ffw_norm.weight", y));
    }
    x = build_scale(b, "output_scaled", build_output(b, x), logit_scale); // (n, n_vocab)
    return softcap > 0 ? graph_softcap(b->g, "output_softcap", x, softcap) : x;
}
