// Grok 1 and 2: norms before and after each half of a block, scores with a soft cap, and a mixture of experts with GELU.
// Grok 2 has a feed-forward beside the mixture, and the mean of both, times sqrt 2, counts.
#include "models/families.h"

#include <math.h>
#include <stdio.h>

// Files of Grok 1 from before there were keys for the factors have these.
#define EMBEDDING_SCALE 78.38367176906169F
#define LOGIT_SCALE 0.5773502691896257F
#define SCORE_SCALE 0.08838834764831845F
#define SOFTCAP 30.0F

// The files tell YaRN by keys of their own. Frequencies that are blended by another share than all are refused.
static void read_yarn(struct build *b, struct rope *rope)
{
    static const char share[] = "rope.scaling.yarn_ext_factor";
    rope->beta_fast = (double)hparam_positive_or(&b->h, "rope.scaling.yarn_beta_fast", 8);
    rope->attn_factor *= (double)hparam_positive_or(&b->h, "rope.scaling.yarn_attn_factor", 1);
    float v = -1; // not said
    char key[80];
    snprintf(key, sizeof key, "%s.%s", b->h.arch, share);
    if (b->h.fault->code == E_OK && gguf_get_f32(b->h.file, key, &v, b->h.fault) == 1 && v >= 0 && v != 1)
        hparam_refuse(&b->h, share, "%g; only 1 is supported", (double)v);
}

// What the second half of a block adds to the normed x, before its last norm: (n, n_embd).
static struct tensor *second_half(struct build *b, struct tensor *x, const struct experts *e)
{
    struct tensor *y = mixture(b, x, e, ACT_GELU_TANH); // (n, n_embd)
    if (!weights_has(&b->ws, "ffn_up.weight"))
        return y;
    struct tensor *dense = feed_forward(b, x, b->n_ff[b->layer], ACT_GELU_TANH, SCALED_NOT); // (n, n_embd)
    return graph_scale(b->g, "ffn_both", graph_add(b->g, "ffn_sum", dense, y), (float)M_SQRT1_2);
}

struct tensor *build_grok(struct build *b)
{
    struct hparams *h = &b->h;
    build_read_rms(b);
    struct experts e = experts_require(b);
    e.unscaled = true;
    e.n_ff = (int)hparam_int_or(h, "expert_feed_forward_length", 0, 1 << 24, 0); // 0: as the feed-forward
    const float scale = hparam_factor_or(h, "attention.output_scale", SCORE_SCALE);
    const float softcap = hparam_factor_or(h, "attn_logit_softcapping", SOFTCAP);
    const float last_softcap = hparam_factor_or(h, "final_logit_softcapping", 0);
    struct rope rope = rope_read(h, b->dim_k, b->n_ctx_train);
    read_yarn(b, &rope);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL);                                 // (n_tok, n_rot)
    struct tensor *x = build_embed(b, hparam_factor_or(h, "embedding_scale", EMBEDDING_SCALE)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.scale = scale, a.softcap = softcap;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        build_last_rows(b, i, &x, &y);
        y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT);             // (n, n_embd)
        x = graph_add(b->g, "attn_residual", x, build_norm(b, "attn_output_norm", y)); // (n, n_embd)

        y = second_half(b, build_norm(b, "ffn_norm", x), &e); // (n, n_embd)
        y = build_norm(b, weights_has(&b->ws, "layer_output_norm.weight") ? "layer_output_norm" : "post_ffw_norm", y);
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    x = build_scale(b, "output_scaled", build_output(b, x), hparam_factor_or(h, "logit_scale", LOGIT_SCALE));
    return last_softcap > 0 ? graph_softcap(b->g, "output_softcap", x, last_softcap) : x;
}
