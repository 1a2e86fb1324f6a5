// The steps of latent attention, in straight lines. Matrices of heads are multiplied like those of experts, by a route to
// all of them.
#include "models/blocks/latent_attention.h"

#include <math.h>
#include <stdio.h>

enum { RANK_MAX = 1 << 16 };

struct latent_attention latent_attention_read(struct build *b, int dim_rot)
{
    struct hparams *h = &b->h;
    struct latent_attention a = {
        .n_head = b->n_head[0], .dim_k = b->dim_k, .dim_v = b->dim_v, .dim_rot = dim_rot, .factor = 1};
    a.rank_q = (int)hparam_int_or(h, "attention.q_lora_rank", 0, RANK_MAX, 0);
    a.rank_kv = (int)hparam_int(h, "attention.kv_lora_rank", 1, RANK_MAX);
    const int dim_k = (int)hparam_int_or(h, "attention.key_length_mla", 0, RANK_MAX, 0);
    const int dim_v = (int)hparam_int_or(h, "attention.value_length_mla", 0, RANK_MAX, 0);
    a.absorbed = dim_k && dim_v;
    if (!a.absorbed && gguf_find_tensor(h->file, "blk.0.attn_k_b.weight"))
        hparam_refuse(h, dim_k ? "attention.value_length_mla" : "attention.key_length_mla",
                      "is missing or 0, and the file has attn_k_b");
    if (a.absorbed)
        a.dim_k = dim_k, a.dim_v = dim_v;
    if (dim_rot >= a.dim_k + !a.absorbed)
        hparam_refuse(h, "rope.dimension_count",
                      "%d columns of a head turn, and it has %d, of which some must not turn", dim_rot, a.dim_k);
    a.scale = 1 / sqrtf((float)a.dim_k);
    return a;
}

// Queries of all heads: (n_tok, n_head * dim_k).
static struct tensor *queries(struct build *b, struct tensor *x, const struct latent_attention *a)
{
    const int64_t width = (int64_t)a->n_head * a->dim_k;
    if (!a->rank_q)
        return build_project(b, "attn_q", x, width, SCALED_NOT);
    x = build_project(b, "attn_q_a", x, a->rank_q, SCALED_NOT); // (n_tok, rank_q)
    x = build_norm(b, "attn_q_a_norm", x);                      // (n_tok, rank_q)
    return build_project(b, "attn_q_b", x, width, SCALED_NOT);
}

// A matrix of each head times its `k` columns of x: (rows of x, n_head * rows).
static struct tensor *project_heads(struct build *b, const char *name, struct tensor *x, int64_t k, int64_t rows,
                                    const struct latent_attention *a)
{
    const struct weight *w = weights_experts(&b->ws, name, k, rows, a->n_head, SCALED_NOT);
    char route[48];
    snprintf(route, sizeof route, "%s_heads", name);
    return graph_expert_matmul(b->g, name, x, w, NULL, graph_route_each(b->g, route, x, a->n_head));
}

// The parts of a head that rotate and that do not, of queries and of what keys are made of.
struct parts {
    struct tensor *q_rot, *q_rest; // (n_tok, n_head * dim_rot), (n_tok, n_head * (dim_k - dim_rot)); NULL if all rotate
    struct tensor *k_rot, *latent; // (n_tok, dim_rot), (n_tok, rank_kv)
};

static struct parts project(struct build *b, struct tensor *x, const struct latent_attention *a)
{
    const int64_t rest = a->dim_k - a->dim_rot, wide = (int64_t)a->rank_kv + a->dim_rot;
    struct tensor *q = queries(b, x, a);
    struct tensor *kv = build_project(b, "attn_kv_a_mqa", x, wide, SCALED_NOT); // (n_tok, rank_kv + dim_rot)
    struct parts y;
    y.q_rest = rest ? graph_slice(b->g, "attn_q_rest", q, a->dim_k, 0, rest) : NULL;
    y.q_rot = graph_slice(b->g, "attn_q_rot", q, a->dim_k, rest, a->dim_rot);
    y.k_rot = graph_slice(b->g, "attn_k_rot", kv, wide, a->rank_kv, a->dim_rot);
    y.latent = graph_slice(b->g, "attn_latent", kv, wide, 0, a->rank_kv);
    if (a->angles) {
        y.q_rot = graph_rope(b->g, "attn_q_rope", y.q_rot, a->angles, a->dim_rot, a->layout);
        y.k_rot = graph_rope(b->g, "attn_k_rope", y.k_rot, a->angles, a->dim_rot, a->layout);
    }
    y.latent = build_norm(b, "attn_kv_a_norm", y.latent);
    return y;
}

// Queries with their growth by position, which scales all columns.
static struct tensor *grown(struct build *b, struct tensor *q, int64_t dim, const struct latent_attention *a)
{
    return a->growth ? graph_rope(b->g, "attn_q_grown", q, a->growth, dim, ROPE_NORM) : q;
}

// Attention to latents: (n_tok, n_head * rank_kv).
static struct tensor *attend_to_latents(struct build *b, struct tensor *x, const struct latent_attention *a)
{
    const int64_t rest = a->dim_k - a->dim_rot;
    const int dim = a->rank_kv + a->dim_rot;
    struct parts y = project(b, x, a);
    struct tensor *q = project_heads(b, "attn_k_b", y.q_rest, rest, a->rank_kv, a); // (n_tok, n_head * rank_kv)
    q = graph_join(b->g, "attn_q_latent", q, a->rank_kv, y.q_rot, a->dim_rot);      // (n_tok, n_head * dim)
    struct tensor *k = graph_join(b->g, "attn_k_latent", y.latent, a->rank_kv, y.k_rot, a->dim_rot); // (n_tok, dim)
    q = grown(b, q, dim, a);
    const int cache = graph_kv_layer_of_keys(b->g, 1, dim, a->rank_kv);
    k = graph_kv_write(b->g, "attn_k_cache", k, cache, KV_KEY);
    return graph_attention(b->g, "attn", q, k, k, (struct attention_params){.n_head = a->n_head, .scale = a->scale});
}

// Attention to keys and values of all heads: (n_tok, n_head * dim_v).
static struct tensor *attend(struct build *b, struct tensor *q, struct tensor *k, struct tensor *v,
                             const struct latent_attention *a)
{
    q = grown(b, q, a->dim_k, a);
    const int cache = graph_kv_layer(b->g, a->n_head, a->dim_k, a->dim_v);
    k = graph_kv_write(b->g, "attn_k_cache", k, cache, KV_KEY);
    v = graph_kv_write(b->g, "attn_v_cache", v, cache, KV_VALUE);
    return graph_attention(b->g, "attn", q, k, v, (struct attention_params){.n_head = a->n_head, .scale = a->scale});
}

// The columns that rotate once for each head, which are its whole key: (n_tok, n_head * dim_rot). v: (n_tok, n_head *
// dim_v), to whose heads they are joined and cut off again.
static struct tensor *repeat_heads(struct build *b, struct tensor *v, struct tensor *k_rot,
                                   const struct latent_attention *a)
{
    struct tensor *both = graph_join(b->g, "attn_v_k", v, a->dim_v, k_rot, a->dim_rot);
    return graph_slice(b->g, "attn_k_head", both, a->dim_v + a->dim_rot, a->dim_v, a->dim_rot);
}

// Attention to keys and values of heads, made of the latent: (n_tok, n_head * dim_v).
static struct tensor *attend_to_heads(struct build *b, struct tensor *x, const struct latent_attention *a)
{
    const int64_t rest = a->dim_k - a->dim_rot, both = rest + a->dim_v;
    struct parts y = project(b, x, a);
    struct tensor *kv = build_project(b, "attn_kv_b", y.latent, a->n_head * both, SCALED_NOT);
    if (!rest)
        return attend(b, y.q_rot, repeat_heads(b, kv, y.k_rot, a), kv, a);
    struct tensor *q = graph_join(b->g, "attn_q_head", y.q_rest, rest, y.q_rot, a->dim_rot); // (n_tok, n_head * dim_k)
    struct tensor *k = graph_slice(b->g, "attn_k_rest", kv, both, 0, rest);                  // (n_tok, n_head * rest)
    struct tensor *v = graph_slice(b->g, "attn_v", kv, both, rest, a->dim_v);                // (n_tok, n_head * dim_v)
    k = graph_join(b->g, "attn_k_head", k, rest, y.k_rot, a->dim_rot);                       // (n_tok, n_head * dim_k)
    return attend(b, q, k, v, a);
}

struct tensor *latent_attention(struct build *b, struct tensor *x, struct tensor *normed,
                                const struct latent_attention *a)
{
    struct tensor *y = a->absorbed ? attend_to_latents(b, normed, a) : attend_to_heads(b, normed, a);
    build_last_rows(b, b->layer, &x, &y);
    if (a->absorbed)
        y = project_heads(b, "attn_v_b", y, a->rank_kv, a->dim_v, a);  // (n, n_head * dim_v)
    y = build_project(b, "attn_output", y, b->n_embd, SCALED_PRODUCT); // (n, n_embd)
    y = build_scale(b, "attn_scaled", y, a->factor);                   // (n, n_embd)
    return graph_add(b->g, "attn_residual", x, y);                     // (n, n_embd)
}
