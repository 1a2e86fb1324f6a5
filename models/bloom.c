// BLOOM, MPT, Jais and Refact: no rotation, but scores that fall with the distance (ALiBi).
#include "models/families.h"

// The factor of the slopes in families whose files do not tell it.
#define MAX_BIAS 8.0F

// GPT-2 with a norm of the embeddings, and without positions.
struct tensor *build_bloom(struct build *b)
{
    build_read_layer_norm(b);
    b->biases = REQUIRED;
    struct tensor *x = build_norm(b, "token_embd_norm", build_embed(b, 1)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.slopes = attention_slopes(b, a.n_head, MAX_BIAS);
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                        // (n, n_embd)
        y = feed_forward_plain(b, y, b->n_ff[i], ACT_GELU_TANH); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);            // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// Norms of all queries and of all keys, if the file has both. A norm of keys alone is for nothing, as in llama.cpp.
static struct qkv norm_rows_of_mpt(struct build *b, struct qkv y)
{
    if (weights_has(&b->ws, "attn_q_norm.weight"))
        return attention_norm_rows(b, y);
    weights_vector(&b->ws, "attn_k_norm.weight", b->n_embd, IGNORED);
    weights_vector(&b->ws, "attn_k_norm.bias", b->n_embd, IGNORED);
    return y;
}

// What the columns of the activations are multiplied by: the reciprocals of ffn.act.scales; NULL: nothing.
static const struct weight *read_act_gains(struct build *b, int n_ff)
{
    const float *scales = n_ff ? weights_values(&b->ws, "ffn.act.scales", n_ff, true) : NULL;
    struct weight *w = scales ? ARENA_NEW(&b->g->arena, struct weight) : NULL;
    float *gains = w ? ARENA_ARRAY(&b->g->arena, float, (size_t)n_ff) : NULL;
    if (!gains)
        return scales ? fail_first(b->h.fault, E_MEMORY, "out of memory for %d gains", n_ff), NULL : NULL;
    for (int i = 0; i < n_ff; i++)
        gains[i] = 1 / scales[i];
    *w = (struct weight){.name = "ffn.act.gains", .type = DT_F32, .ne = {n_ff, 1, 1}, .data = gains};
    w->row_bytes = (size_t)n_ff * sizeof *gains;
    return w;
}

// down (gelu(up x) / scales): (n, n_embd). Files whose weights were scaled by their activations (AWQ) have scales.
static struct tensor *feed_forward_of_mpt(struct build *b, struct tensor *x, int n_ff)
{
    const struct weight *gains = read_act_gains(b, n_ff);
    if (!gains)
        return feed_forward_plain(b, x, n_ff, ACT_GELU_TANH);
    struct tensor *y = build_project(b, "ffn_up", x, n_ff, SCALED_NOT);                    // (n, n_ff)
    y = graph_gain(b->g, "ffn_gain", graph_act(b->g, "ffn_act", y, ACT_GELU_TANH), gains); // (n, n_ff)
    return build_project(b, "ffn_down", y, b->n_embd, SCALED_NOT);                         // (n, n_embd)
}

static struct tensor *embed_mpt(struct build *b)
{
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    if (!weights_has(&b->ws, "position_embd.weight"))
        return x;
    const struct weight *table = weights_matrix(&b->ws, "position_embd.weight", b->n_embd, b->n_ctx_train, REQUIRED);
    struct tensor *p = graph_embed(b->g, "pos_embd", table, INPUT_POSITIONS, 1); // (n_tok, n_embd)
    return graph_add(b->g, "embd", x, p);                                        // (n_tok, n_embd)
}

struct tensor *build_mpt(struct build *b)
{
    build_read_layer_norm(b);
    const float clamp = hparam_factor_or(&b->h, "attention.clamp_kqv", 0);
    const float max_bias = hparam_factor_or(&b->h, "attention.max_alibi_bias", 0);
    struct tensor *x = embed_mpt(b); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.clamp = clamp, a.slopes = attention_slopes(b, a.n_head, max_bias);
        build_layer(b, i);
        struct qkv y = attention_project(b, build_norm(b, "attn_norm", x), &a);
        x = attention_residual(b, x, attention_attend(b, norm_rows_of_mpt(b, y), &a)); // (n, n_embd)

        struct tensor *n = build_norm(b, "ffn_norm", x); // (n, n_embd)
        n = feed_forward_of_mpt(b, n, b->n_ff[i]);       // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, n);    // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// LayerNorm, biases everywhere, SwiGLU, and scores divided by the columns of a head.
struct tensor *build_jais(struct build *b)
{
    build_read_layer_norm(b);
    b->biases = REQUIRED;
    const float max_bias = hparam_factor_or(&b->h, "attention.max_alibi_bias", 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.slopes = attention_slopes(b, a.n_head, max_bias), a.scale = 1 / (float)b->dim_k;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);                         // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);             // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// No model of this family has experts. llama.cpp takes files with experts and uses none: all that is left of the second half
// of a block is the activation function, so that this is what such a file means.
static struct tensor *without_feed_forward(struct build *b, struct tensor *x, int n_ff, int n_expert)
{
    weights_matrix(&b->ws, "ffn_gate_inp.weight", b->n_embd, n_expert, REQUIRED);
    weights_experts(&b->ws, "ffn_gate_exps", b->n_embd, n_ff, n_expert, SCALED_NOT);
    weights_experts(&b->ws, "ffn_up_exps", b->n_embd, n_ff, n_expert, SCALED_NOT);
    weights_experts(&b->ws, "ffn_down_exps", n_ff, b->n_embd, n_expert, SCALED_NOT);
    return graph_act(b->g, "ffn_act", x, ACT_SILU);
}

// The block of Llama. Of the biases, those of queries, keys and values count, as in llama.cpp.
struct tensor *build_refact(struct build *b)
{
    build_read_rms(b);
    const int n_expert = (int)hparam_int_or(&b->h, "expert_count", 0, 1 << 14, 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.slopes = attention_slopes(b, a.n_head, MAX_BIAS);
        build_layer(b, i);
        b->biases = OPTIONAL;
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        b->biases = IGNORED;
        x = attention_residual(b, x, y); // (n, n_embd)

        y = build_norm(b, "ffn_norm", x); // (n, n_embd)
        y = n_expert ? without_feed_forward(b, y, b->n_ff[i], n_expert)
                     : feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                        // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
