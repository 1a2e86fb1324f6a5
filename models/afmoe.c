// AFMoE (Trinity): norms before and after each half of a block, attention whose result has a gate, windows in all but every
// fourth layer, which rotates nothing, and behind the first layers a mixture of experts.
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
