// BERT (Devlin et al. 2018, arXiv 1810.04805) and its kin, which see the whole text: norms behind each half of a block, and
// no output matrix. The result is the hidden rows, of which an embedding is made.
//   bert            learned positions
//   nomic-bert      rotary positions, a gated feed-forward
//   nomic-bert-moe  rotary positions, a mixture of experts in every second layer
//   jina-bert-v2    slopes by distance (ALiBi), a gated feed-forward whose gate may be one matrix with up
//   jina-bert-v3    rotary positions
// GELU is the approximation with tanh, as in the program that the files are made for.
#include "models/families.h"

// The embeddings of the tokens, plus that of the first kind of token, since a text is not divided into two.
static struct tensor *embed(struct build *b)
{
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    const int64_t kinds = hparam_int_or(&b->h, "token_type_count", 1, INT32_MAX, 2);
    const struct weight *types = weights_matrix(&b->ws, "token_types.weight", b->n_embd, kinds, OPTIONAL);
    if (!types)
        return x;
    struct tensor *type = graph_embed(b->g, "type_embd", types, INPUT_ZERO, 1); // (n_tok, n_embd)
    return graph_add(b->g, "embd_type", x, type);                               // (n_tok, n_embd)
}

static struct tensor *embed_positions(struct build *b, struct tensor *x)
{
    const struct weight *table = weights_matrix(&b->ws, "position_embd.weight", b->n_embd, b->n_ctx_train, REQUIRED);
    struct tensor *p = graph_embed(b->g, "pos_embd", table, INPUT_POSITIONS, 1); // (n_tok, n_embd)
    return graph_add(b->g, "embd", x, p);                                        // (n_tok, n_embd)
}

// One block; `feed` is its feed-forward, of (n, n_embd).
typedef struct tensor *feed_fn(struct build *b, struct tensor *x, const void *arg);

static struct tensor *block(struct build *b, int layer, struct tensor *x, const struct attention *a, feed_fn *feed,
                            const void *arg)
{
    build_layer(b, layer);
    struct tensor *y = attention(b, x, a);     // (n_tok, n_head * dim_v)
    x = attention_residual(b, x, y);           // (n, n_embd)
    x = build_norm(b, "attn_output_norm", x);  // (n, n_embd)
    y = feed(b, x, arg);                       // (n, n_embd)
    x = graph_add(b->g, "ffn_residual", x, y); // (n, n_embd)
    return build_norm(b, "layer_output_norm", x);
}

static struct tensor *feed_plain(struct build *b, struct tensor *x, const void *arg)
{
    (void)arg;
    return feed_forward_plain(b, x, b->n_ff[b->layer], ACT_GELU_TANH);
}

static struct tensor *feed_gated(struct build *b, struct tensor *x, const void *arg)
{
    (void)arg;
    return feed_forward(b, x, b->n_ff[b->layer], ACT_SILU, SCALED_NOT);
}

static struct tensor *feed_experts(struct build *b, struct tensor *x, const void *experts)
{
    return mixture_plain(b, x, x, experts, ACT_GELU_TANH);
}

static struct attention rotating(struct build *b, int layer, struct tensor *angles)
{
    struct attention a = attention_of(b, layer);
    a.angles = angles, a.layout = ROPE_NEOX;
    return a;
}

struct tensor *build_bert(struct build *b)
{
    build_read_layer_norm(b);
    struct tensor *x = build_norm(b, "token_embd_norm", embed_positions(b, embed(b))); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        const struct attention a = attention_of(b, i);
        x = block(b, i, x, &a, feed_plain, NULL);
    }
    return x; // (n, n_embd)
}

static struct tensor *rotating_blocks(struct build *b, feed_fn *feed)
{
    build_read_layer_norm(b);
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL);    // (n_tok, n_rot)
    struct tensor *x = build_norm(b, "token_embd_norm", embed(b)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        const struct attention a = rotating(b, i, angles);
        x = block(b, i, x, &a, feed, NULL);
    }
    return x; // (n, n_embd)
}

struct tensor *build_nomic_bert(struct build *b)
{
    return rotating_blocks(b, feed_gated);
}

struct tensor *build_jina_bert_v3(struct build *b)
{
    return rotating_blocks(b, feed_plain);
}

struct tensor *build_nomic_bert_moe(struct build *b)
{
    build_read_layer_norm(b);
    const struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct experts e = experts_require(b);
    e.normalise = false;
    const int period = (int)hparam_int_or(&b->h, "moe_every_n_layers", 0, INT32_MAX, 0);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL);    // (n_tok, n_rot)
    struct tensor *x = build_norm(b, "token_embd_norm", embed(b)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        const struct attention a = rotating(b, i, angles);
        e.n_ff = b->n_ff[i];
        x = block(b, i, x, &a, period && i % period == 1 ? feed_experts : feed_plain, &e);
    }
    return x; // (n, n_embd)
}

// Norms of all queries and of all keys of a row, if the file has them.
static struct qkv norm_if_there(struct build *b, struct qkv x)
{
    if (weights_has(&b->ws, "attn_q_norm.weight"))
        x.q = build_norm(b, "attn_q_norm", x.q);
    if (weights_has(&b->ws, "attn_k_norm.weight"))
        x.k = build_norm(b, "attn_k_norm", x.k);
    return x;
}

// A gate beside up, or before it in one matrix of twice the width, or none.
static struct tensor *feed_jina(struct build *b, struct tensor *x)
{
    const int n_ff = b->n_ff[b->layer];
    if (weights_has(&b->ws, "ffn_gate.weight"))
        return feed_forward(b, x, n_ff, ACT_GELU_TANH, SCALED_NOT);
    const bool fused = weights_n_rows(&b->ws, "ffn_up.weight") == 2 * (int64_t)n_ff;
    return fused ? feed_forward_fused(b, x, n_ff, ACT_GELU_TANH) : feed_forward_plain(b, x, n_ff, ACT_GELU_TANH);
}

struct tensor *build_jina_bert_v2(struct build *b)
{
    const float max_bias = 8;
    build_read_layer_norm(b);
    struct tensor *x = build_norm(b, "token_embd_norm", embed(b)); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.slopes = attention_slopes(b, a.n_head, max_bias);
        build_layer(b, i);
        struct qkv y = norm_if_there(b, attention_project(b, x, &a));
        struct tensor *in = build_last_rows_of(b, i, "again_rows", x);              // (n, n_embd)
        x = attention_residual(b, x, attention_attend(b, y, &a));                   // (n, n_embd)
        x = build_norm(b, "attn_output_norm", x);                                   // (n, n_embd)
        if (weights_has(&b->ws, "attn_norm_2.weight"))                              // the input once more
            x = build_norm(b, "attn_norm_2", graph_add(b->g, "attn_again", x, in)); // (n, n_embd)
        x = build_norm(b, "layer_output_norm", graph_add(b->g, "ffn_residual", feed_jina(b, x), x)); // (n, n_embd)
    }
    return x; // (n, n_embd)
}
