// MiniMax M2: norms of all queries and of all keys of a token, rope on a part of each head, and a mixture of experts in
// every layer, which a bias helps to choose. MiniMax M3: norms of heads, the gated unit of gpt-oss, and behind the first
// layers experts and blocks of keys that are chosen. Here all blocks are seen, which is the same as long as there are no
// more than are chosen; a note tells of longer contexts.
#include "models/families.h"

struct tensor *build_minimax_m2(struct build *b)
{
    build_read_rms(b);
    b->biases = IGNORED;
    struct experts e = experts_require(b); // of the width of the feed-forward
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.normalise = true, e.unscaled = true;
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x); // (n_tok, n_embd)
        y = attention_of_rows(b, y, &a);                  // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                  // (n, n_embd)

        y = build_norm(b, "ffn_norm", x);             // (n, n_embd)
        y = mixture(b, y, &e, ACT_SILU);              // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}

// The matrices that choose blocks of keys, which are for nothing where a row sees all of them.
static void ignore_indexer(struct build *b, int n_head, int dim)
{
    struct weights *ws = &b->ws;
    weights_matrix(ws, "indexer.q_proj.weight", b->n_embd, (int64_t)n_head * dim, IGNORED);
    weights_matrix(ws, "indexer.k_proj.weight", b->n_embd, dim, IGNORED);
    weights_vector(ws, "indexer.q_norm.weight", dim, IGNORED);
    weights_vector(ws, "indexer.k_norm.weight", dim, IGNORED);
}

struct tensor *build_minimax_m3(struct build *b)
{
    struct hparams *h = &b->h;
    build_read_rms(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    experts_read_choice(b, &e, ROUTE_SIGMOID);
    e.unscaled = true;
    const int n_shared = (int)hparam_int(h, "expert_shared_count", 0, 64) * e.n_ff;
    const int n_lead = (int)hparam_int_or(h, "leading_dense_block_count", 0, INT32_MAX, 0);
    const int n_index = (int)hparam_int(h, "attention.indexer.head_count", 1, 1 << 14);
    const int dim = (int)hparam_int(h, "attention.indexer.key_length", 1, 1 << 14);
    b->sparse_from = hparam_int(h, "attention.indexer.top_k", 1, INT32_MAX) *
                     hparam_int(h, "attention.indexer.block_size", 1, INT32_MAX);
    struct rope rope = rope_read(h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.head_norms = true;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual_by(b, x, y, IGNORED);                        // (n, n_embd)

        struct tensor *n = build_norm(b, "ffn_norm", x); // (n, n_embd)
        if (i < n_lead) {
            y = feed_forward(b, n, b->n_ff[i], ACT_SWIGLU_CLAMPED, SCALED_NOT); // (n, n_embd)
        } else {
            ignore_indexer(b, n_index, dim);
            y = mixture(b, n, &e, ACT_SWIGLU_CLAMPED);                                           // (n, n_embd)
            y = n_shared ? shared_expert(b, n, y, n_shared, ACT_SWIGLU_CLAMPED, SCALED_NOT) : y; // (n, n_embd)
        }
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
