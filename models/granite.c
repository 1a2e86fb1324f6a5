// Granite and MiniCPM: the block of Llama, where embeddings, scores, what each half of a block adds, and logits are
// multiplied by factors.
#include "models/families.h"

#include <math.h>

struct factors {
    float embeddings, residuals, logits;
    float scores; // 0: 1/sqrt(dim_k)
    bool windows; // layers have windows and sinks
};

// A mixture of experts, to which a shared expert of n_shared columns is added if that is not 0.
static struct tensor *experts(struct build *b, struct tensor *x, const struct experts *e, int n_shared)
{
    struct tensor *y = mixture(b, x, e, ACT_SILU); // (n, n_embd)
    return n_shared ? shared_expert(b, x, y, n_shared, ACT_SILU, SCALED_NOT) : y;
}

// What a layer mixes from the rows before, and the name of the matrix that follows. m: NULL, or what layers without heads of
// keys are.
static struct tensor *mixed(struct build *b, struct tensor *x, const struct attention *a, const struct mamba *m,
                            const char **name)
{
    *name = m && !a->n_head_kv ? "ssm_out" : "attn_output";
    return m && !a->n_head_kv ? mamba2(b, x, m) : attention(b, x, a);
}

// Granite with windows: which layers have one and which rotate, and a sink for each head.
static void read_windows(struct build *b, int layer, struct attention *a)
{
    static const char key[] = "attention.rope_pattern";
    a->window = build_window(b, layer, (int)hparam_int(&b->h, "attention.sliding_window", 1, INT32_MAX), 1);
    a->sinks = true;
    if (hparam_is_array(&b->h, key) && !hparam_layer_flag(&b->h, key, layer, b->n_layer))
        a->angles = NULL;
}

static struct tensor *blocks(struct build *b, struct tensor *angles, const struct factors *f, const struct mamba *m)
{
    struct experts e = experts_read(b);
    e.unscaled = true;
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    struct tensor *x = build_embed(b, f->embeddings); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NORM;
        a.scale = f->scores > 0 ? f->scores : a.scale;
        if (f->windows)
            read_windows(b, i, &a);
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        const char *name;
        y = mixed(b, y, &a, m, &name); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, name, y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
        y = build_scale(b, "attn_scaled", y, f->residuals);       // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, y);               // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                                                             // (n, n_embd)
        y = e.n ? experts(b, y, &e, n_shared) : feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        y = build_scale(b, "ffn_scaled", y, f->residuals);                                            // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                                                 // (n, n_embd)
    }
    x = build_output(b, x); // (n, n_vocab)
    return build_scale(b, "output_scaled", x, f->logits);
}

// All but the factor of logits.
static struct factors read_factors(struct build *b)
{
    struct factors f = {0};
    f.embeddings = hparam_factor_or(&b->h, "embedding_scale", 1);
    f.residuals = hparam_factor_or(&b->h, "residual_scale", 1);
    f.scores = hparam_factor_or(&b->h, "attention.scale", 0);
    return f;
}

// The key that elsewhere tells of a context extended by training says here whether positions rotate at all.
struct tensor *build_granite(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    const bool rotates = hparam_flag_or(&b->h, "rope.scaling.finetuned", true);
    struct tensor *angles = rotates ? build_rope_with_factors(b, "rope", &rope) : NULL; // (n_tok, n_rot)
    struct factors f = read_factors(b);
    f.logits = 1 / hparam_positive(&b->h, "logit_scale");
    return blocks(b, angles, &f, NULL);
}

// Some layers are Mamba 2. Here the factor of logits may be missing.
struct tensor *build_granitehybrid(struct build *b)
{
    build_read_rms(b);
    const struct mamba m = mamba2_read(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    const bool rotates = hparam_flag_or(&b->h, "rope.scaling.finetuned", true);
    struct tensor *angles = rotates ? build_rope_with_factors(b, "rope", &rope) : NULL; // (n_tok, n_rot)
    struct factors f = read_factors(b);
    f.logits = 1 / hparam_factor_or(&b->h, "logit_scale", 1);
    return blocks(b, angles, &f, &m);
}

struct tensor *build_granitemoe(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct factors f = read_factors(b);
    f.logits = 1 / hparam_positive(&b->h, "logit_scale");
    return blocks(b, build_rope_with_factors(b, "rope", &rope), &f, NULL);
}

struct tensor *build_granite_swa(struct build *b)
{
    build_read_rms(b);
    if (hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, INT32_MAX, 0) > 0)
        hparam_refuse(&b->h, "expert_shared_feed_forward_length", "shared experts of this family are not supported");
    if (!hparam_is_array(&b->h, "attention.sliding_window_pattern"))
        hparam_refuse(&b->h, "attention.sliding_window_pattern", "is wanted as an array");
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct factors f = read_factors(b);
    f.logits = 1 / hparam_positive(&b->h, "logit_scale");
    f.windows = true;
    return blocks(b, build_rope_with_factors(b, "rope", &rope), &f, NULL);
}

// Files from before there were keys for the factors have those of MiniCPM 2B.
struct tensor *build_minicpm(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct factors f = {0};
    f.embeddings = hparam_factor_or(&b->h, "embedding_scale", 12);
    f.residuals = hparam_factor_or(&b->h, "residual_scale", 1.4F / sqrtf((float)b->n_layer));
    f.logits = 1 / hparam_factor_or(&b->h, "logit_scale", (float)b->n_embd / 256);
    return blocks(b, build_rope_with_factors(b, "rope", &rope), &f, NULL);
}
