// BitNet b1.58 (arXiv 2402.17764) in files of weights of two bits or more: the block of Llama with a norm before the last
// matrix of each half. Talkie: the block of Llama whose norms have no gains, with norms of heads after the rotation, and the
// embeddings, times a number of the layer, added behind each layer.
#include "models/families.h"

// down (norm (silu(gate x) * up x)): (n, n_embd).
static struct tensor *normed_feed_forward(struct build *b, struct tensor *x, int n_ff)
{
    if (!n_ff)
        hparam_refuse(&b->h, "feed_forward_length", "layer %d has none", b->layer);
    struct tensor *up = build_project(b, "ffn_up", x, n_ff, SCALED_RESULT);     // (n, n_ff)
    struct tensor *gate = build_project(b, "ffn_gate", x, n_ff, SCALED_RESULT); // (n, n_ff)
    struct tensor *y = graph_glu(b->g, "ffn_glu", gate, up, ACT_SILU);          // (n, n_ff)
    return build_project(b, "ffn_down", build_norm(b, "ffn_sub_norm", y), b->n_embd, SCALED_RESULT);
}

struct tensor *build_bitnet(struct build *b)
{
    build_read_rms(b);
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a);   // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, build_norm(b, "attn_sub_norm", y));      // (n, n_embd)
        y = normed_feed_forward(b, build_norm(b, "ffn_norm", x), b->n_ff[i]); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                         // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// ---- Talkie

static struct tensor *bare_norm(struct build *b, const char *name, struct tensor *x, int dim)
{
    return graph_norm(b->g, name, x, NULL, NULL, NORM_RMS, b->norm_eps, dim);
}

// Norms of heads; each head of queries has one gain.
static struct qkv norm_heads(struct build *b, struct qkv y, const struct attention *a)
{
    const struct weight *gains = weights_rows_as_vector(&b->ws, "attn_q_norm.weight", 1, a->n_head, REQUIRED);
    if (!gains)
        return y;
    struct tensor *gain = graph_embed(b->g, "attn_q_gain", gains, INPUT_ZERO, 1); // (n_tok, n_head)
    y.q = graph_head_glu(b->g, "attn_q_gained", gain, bare_norm(b, "attn_q_norm", y.q, a->dim_k), ACT_NONE);
    y.k = bare_norm(b, "attn_k_norm", y.k, a->dim_k);
    return y;
}

struct tensor *build_talkie(struct build *b)
{
    build_read_rms(b);
    const float logit_scale = hparam_positive(&b->h, "logit_scale");
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL);    // (n_tok, n_rot)
    struct tensor *x = bare_norm(b, "embd", build_embed(b, 1), 0); // (n_tok, n_embd)
    struct tensor *skip = x;
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct qkv y = attention_project(b, bare_norm(b, "attn_norm", x, 0), &a);
        struct tensor *z =
            attention_attend(b, norm_heads(b, attention_rotate(b, y, &a), &a), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, z);                                            // (n, n_embd)
        skip = build_last_rows_of(b, i, "skip_rows", skip);                         // (n, n_embd)

        z = feed_forward(b, bare_norm(b, "ffn_norm", x, 0), b->n_ff[i], ACT_SILU, SCALED_PRODUCT); // (n, n_embd)
        x = graph_add(b->g, "ffn_residual", x, z);                                                 // (n, n_embd)
        const float *scale = weights_values(&b->ws, "layer_output_scale.weight", 1, false);
        x = build_layer_end(b, "skip_residual", x,
                            build_scale(b, "skip_scaled", skip, scale ? *scale : 1)); // (n, n_embd)
    }
    build_layer(b, -1);
    x = build_logits(b, bare_norm(b, "output_norm", x, 0)); // (n, n_vocab)
    return build_scale(b, "output_scaled", x, logit_scale);
}
