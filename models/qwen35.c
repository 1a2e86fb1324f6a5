// Qwen 3.5: three of four layers are gated delta nets, the others are attention with an output gate.
#include "models/blocks/delta_net.h"
#include "models/families.h"

// Whether each layer is a delta net: an array of flags, or all but the last of each so many layers.
static bool is_recurrent(struct build *b, int layer)
{
    if (hparam_is_array(&b->h, "attention.recurrent_layers"))
        return hparam_layer_flag(&b->h, "attention.recurrent_layers", layer, b->n_layer + b->n_layer_unused);
    const int interval = (int)hparam_int_or(&b->h, "full_attention_interval", 1, INT32_MAX, 4);
    return layer % interval != interval - 1;
}

// Attention whose queries come with a gate of their own: attn_q has for each head first its query, then its gate.
static struct tensor *gated_attention(struct build *b, struct tensor *x, const struct attention *a)
{
    const int dim = a->dim_k;
    struct tensor *wide = build_project(b, "attn_q", x, 2 * (int64_t)a->n_head * dim, SCALED_PRODUCT);
    struct qkv y;
    y.q = graph_slice(b->g, "attn_q_query", wide, 2 * (int64_t)dim, 0, dim);                  // (n_tok, n_head*dim)
    struct tensor *gate = graph_slice(b->g, "attn_q_gate", wide, 2 * (int64_t)dim, dim, dim); // (n_tok, n_head*dim)
    y.k = build_project(b, "attn_k", x, (int64_t)a->n_head_kv * dim, SCALED_PRODUCT);         // (n_tok, n_head_kv*dim)
    y.v = build_project(b, "attn_v", x, (int64_t)a->n_head_kv * dim, SCALED_PRODUCT);
    y = attention_rotate(b, attention_norm_heads(b, y, a), a);
    struct tensor *sums = attention_attend(b, y, a);               // (n_tok, n_head * dim)
    return graph_glu(b->g, "attn_gated", gate, sums, ACT_SIGMOID); // (n_tok, n_head * dim)
}

static struct attention attention_with(struct build *b, struct tensor *angles)
{
    struct attention a = attention_of(b, 0);
    a.angles = angles, a.layout = ROPE_NEOX;
    if (a.dim_k != a.dim_v)
        hparam_refuse(&b->h, "attention.value_length", "wanted are keys and values of the same length");
    return a;
}

// What differs between these families.
struct mixers {
    struct delta_net delta;
    bool fused_gates; // alpha and beta of delta nets come from one matrix
    struct tensor *angles;
};

// x plus what the layer mixes into it from the rows before: (n, n_embd).
static struct tensor *mixed(struct build *b, int layer, struct tensor *x, const struct mixers *m)
{
    build_layer(b, layer);
    struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
    if (!is_recurrent(b, layer)) {
        struct attention a = attention_with(b, m->angles);
        return attention_residual(b, x, gated_attention(b, y, &a));
    }
    const struct delta_gates g = m->fused_gates ? delta_gates_fused(b, y, &m->delta) : delta_gates(b, y, &m->delta);
    return build_residual(b, "ssm_out", x, delta_net(b, y, g, &m->delta), m->delta.scaled);
}

static struct mixers read_mixers(struct build *b, bool sections)
{
    build_read_rms(b);
    build_skip_prediction(b);
    b->biases = IGNORED;
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    if (sections)
        rope_read_sections(&b->h, &rope);
    struct mixers m = {.delta = delta_net_read(b)};
    m.angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    return m;
}

struct tensor *build_qwen35(struct build *b)
{
    const struct mixers m = read_mixers(b, true);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        x = mixed(b, i, x, &m);                                       // (n, n_embd)
        struct tensor *y = build_norm(b, "post_attention_norm", x);   // (n, n_embd)
        y = feed_forward(b, y, b->n_ff[i], ACT_SILU, SCALED_PRODUCT); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);                 // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// With a mixture of experts, and an expert that all rows use, which has a gate.
static struct tensor *blocks_with_experts(struct build *b, const struct mixers *m)
{
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    const int n_shared = (int)hparam_int_or(&b->h, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        x = mixed(b, i, x, m);                                      // (n, n_embd)
        struct tensor *n = build_norm(b, "post_attention_norm", x); // (n, n_embd)
        struct tensor *y = mixture(b, n, &e, ACT_SILU);             // (n, n_embd)
        if (n_shared)
            y = gated_shared_expert(b, n, y, n_shared, ACT_SILU, SCALED_PRODUCT);
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

struct tensor *build_qwen35moe(struct build *b)
{
    const struct mixers m = read_mixers(b, true);
    return blocks_with_experts(b, &m);
}

// Files may hold the projections of delta nets in a second form, ssm_in, which then goes unused.
static void leave_second_form(struct build *b, const struct delta_net *d)
{
    const int64_t rows = 2 * ((int64_t)d->n_head_k + d->n_head) * d->dim;
    for (int i = 0; i < b->n_layer; i++) {
        build_layer(b, i);
        if (weights_has(&b->ws, "attn_qkv.weight"))
            weights_linear(&b->ws, "ssm_in", b->n_embd, rows, SCALED_NOT, OPTIONAL, IGNORED);
    }
    build_layer(b, -1);
}

struct tensor *build_qwen3next(struct build *b)
{
    struct mixers m = read_mixers(b, false);
    m.delta.grouped = m.fused_gates = true;
    m.delta.scaled = SCALED_NOT;
    leave_second_form(b, &m.delta);
    return blocks_with_experts(b, &m);
}
