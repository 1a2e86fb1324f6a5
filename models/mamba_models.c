// Models of Mamba layers alone, and of Mamba layers beside layers of attention.
#include "models/families.h"

static struct tensor *mamba_blocks(struct build *b, const struct mamba *m,
                                   struct tensor *mixer(struct build *b, struct tensor *x, const struct mamba *m))
{
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        x = build_residual(b, "ssm_out", x, mixer(b, build_norm(b, "attn_norm", x), m), SCALED_PRODUCT); // (n, n_embd)
        x = build_control(b, x);
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_mamba(struct build *b)
{
    build_read_rms(b);
    const struct mamba m = mamba_read(b);
    return mamba_blocks(b, &m, mamba);
}

struct tensor *build_mamba2(struct build *b)
{
    build_read_rms(b);
    const struct mamba m = mamba2_read(b);
    return mamba_blocks(b, &m, mamba2);
}

// Attention without positions in some layers, Mamba 1 in the others; a mixture of experts in some, a feed-forward in the
// others.
struct tensor *build_jamba(struct build *b)
{
    build_read_rms(b);
    const struct mamba m = mamba_read(b);
    struct experts e = experts_read(b);
    e.normalise = false, e.unscaled = true;
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        const struct attention a = attention_of(b, i);
        x = b->n_head_kv[i] ? attention_residual(b, x, attention(b, y, &a))
                            : build_residual(b, "ssm_out", x, mamba(b, y, &m), SCALED_PRODUCT); // (n, n_embd)
        y = build_norm(b, "ffn_norm", x);                                                       // (n, n_embd)
        y = e.n && weights_has(&b->ws, "ffn_gate_inp.weight")
                ? mixture(b, y, &e, ACT_SILU)
                : feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                   // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// The name of this norm has no ".weight" in files of this family.
static struct tensor *ffn_norm(struct build *b, struct tensor *x)
{
    if (weights_has(&b->ws, "ffn_norm.weight"))
        return build_norm(b, "ffn_norm", x);
    const struct weight *gain = weights_vector(&b->ws, "ffn_norm", b->n_embd, REQUIRED);
    return x ? graph_norm(b->g, "ffn_norm", x, gain, NULL, NORM_RMS, b->norm_eps, 0) : NULL;
}

// Attention and Mamba 2 beside each other in every layer: both read the same norm, and both are added.
struct tensor *build_falcon_h1(struct build *b)
{
    build_read_rms(b);
    const struct mamba m = mamba2_read(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        a.scale = hparam_factor_or(&b->h, "attention.scale", a.scale);
        struct tensor *n = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        struct tensor *y = attention(b, n, &a);           // (n_tok, n_head * dim_v)
        struct tensor *s = mamba2(b, n, &m);              // (n_tok, inner)
        s = build_last_rows_of(b, i, "ssm_rows", s);
        build_last_rows(b, i, &x, &y);
        struct linear out = weights_linear(&b->ws, "attn_output", (int64_t)a.n_head * a.dim_v, b->n_embd,
                                           SCALED_PRODUCT, REQUIRED, IGNORED);
        y = build_project_by(b, "attn_output", y, &out);               // (n, n_embd)
        s = build_project(b, "ssm_out", s, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, graph_add(b->g, "mixed", y, s));
        y = ffn_norm(b, x); // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT);
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// A feed-forward with a squared ReLU, or a mixture of such experts and one that all rows use. Experts may compute on fewer
// columns, made by ffn_latent_down.
static struct tensor *squared_relu(struct build *b, struct tensor *x, const struct experts *e, int n_shared)
{
    if (!e->n) {
        struct tensor *y = build_project(b, "ffn_up", x, b->n_ff[b->layer], SCALED_RESULT); // (n, n_ff)
        return build_project(b, "ffn_down", graph_act(b->g, "ffn_act", y, ACT_RELU2), b->n_embd, SCALED_RESULT);
    }
    const bool latent = weights_has(&b->ws, "ffn_latent_down.weight");
    const int64_t width = hparam_int_or(&b->h, "moe_latent_size", 0, 1 << 24, 0);
    struct tensor *in = latent ? build_project(b, "ffn_latent_down", x, width, SCALED_NOT) : x;
    struct tensor *y = mixture_plain(b, x, in, e, ACT_RELU2);
    if (latent)
        y = build_project(b, "ffn_latent_up", y, b->n_embd, SCALED_NOT);             // (n, n_embd)
    struct tensor *s = build_project(b, "ffn_up_shexp", x, n_shared, SCALED_RESULT); // (n, n_shared)
    s = build_project(b, "ffn_down_shexp", graph_act(b->g, "ffn_act_shexp", s, ACT_RELU2), b->n_embd, SCALED_RESULT);
    return graph_add(b->g, "ffn_shared", y, s); // (n, n_embd)
}

// Layers of one kind each: Mamba 2, attention without positions, or a feed-forward. A layer with heads of keys but without
// a feed-forward is attention.
struct tensor *build_nemotron_h(struct build *b)
{
    build_read_rms(b);
    build_skip_prediction(b);
    const struct mamba m = mamba2_read(b);
    struct experts e = experts_read(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.route = ROUTE_SIGMOID;
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        struct attention a = attention_of(b, i);
        a.scale = hparam_factor_or(&b->h, "attention.scale", a.scale);
        if (b->n_ff[i]) {
            build_last_rows(b, i, &x, &y);
            x = graph_add(b->g, "ffn_residual", x, squared_relu(b, y, &e, n_shared)); // (n, n_embd)
        } else if (b->n_head_kv[i]) {
            x = attention_residual(b, x, attention(b, y, &a)); // (n, n_embd)
        } else {
            x = build_residual(b, "ssm_out", x, mamba2(b, y, &m), SCALED_PRODUCT); // (n, n_embd)
        }
        x = build_control(b, x);
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_nemotron_h_moe(struct build *b)
{
    return build_nemotron_h(b);
}
