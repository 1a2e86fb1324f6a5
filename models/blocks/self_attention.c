// The steps of attention, in straight lines.
#include "models/blocks/self_attention.h"

#include <math.h>

struct attention attention_of(const struct build *b, int layer)
{
    return (struct attention){.n_head = b->n_head[layer],
                              .n_head_kv = b->n_head_kv[layer],
                              .dim_k = b->dim_k,
                              .dim_v = b->dim_v,
                              .scale = 1 / sqrtf((float)b->dim_k),
                              .both_ways = b->both_ways};
}

const struct weight *attention_slopes(struct build *b, int n_head, float max_bias)
{
    if (max_bias == 0 || b->h.fault->code != E_OK)
        return NULL;
    struct weight *w = ARENA_NEW(&b->g->arena, struct weight);
    float *slopes = ARENA_ARRAY(&b->g->arena, float, (size_t)n_head);
    if (!w || !slopes)
        return fail_first(b->h.fault, E_MEMORY, "out of memory for %d slopes", n_head), NULL;
    int n = 1;
    while (2 * n <= n_head)
        n *= 2;
    for (int h = 0; h < n_head; h++)
        slopes[h] = (float)exp2(-(double)max_bias / n * (h < n ? h + 1 : h - n + 0.5));
    *w = (struct weight){.name = "slopes", .type = DT_F32, .ne = {n_head, 1, 1}, .data = slopes};
    w->row_bytes = (size_t)n_head * sizeof *slopes;
    return w;
}

// Queries, keys and values within their limit, if there is one.
static struct qkv clamped(struct build *b, struct qkv x, const struct attention *a)
{
    if (a->clamp == 0)
        return x;
    x.q = graph_clamp(b->g, "attn_q_clamped", x.q, a->clamp);
    x.k = graph_clamp(b->g, "attn_k_clamped", x.k, a->clamp);
    x.v = graph_clamp(b->g, "attn_v_clamped", x.v, a->clamp);
    return x;
}

struct qkv attention_project_fused(struct build *b, struct tensor *x, const struct attention *a, int64_t rows,
                                   enum scaled scaled)
{
    int64_t n_q = (int64_t)a->n_head * a->dim_k;
    int64_t n_k = (int64_t)a->n_head_kv * a->dim_k, n_v = (int64_t)a->n_head_kv * a->dim_v;
    struct linear all = weights_linear(&b->ws, "attn_qkv", b->n_embd, rows, scaled, REQUIRED, b->biases);
    struct linear q = linear_rows(&b->ws, &all, 0, n_q);
    struct linear k = linear_rows(&b->ws, &all, n_q, n_k);
    struct linear v = linear_rows(&b->ws, &all, n_q + n_k, n_v);
    struct qkv y = {build_project_by(b, "attn_q", x, &q), build_project_by(b, "attn_k", x, &k),
                    build_project_by(b, "attn_v", x, &v)};
    return clamped(b, y, a);
}

struct qkv attention_project(struct build *b, struct tensor *x, const struct attention *a)
{
    int64_t n_q = (int64_t)a->n_head * a->dim_k;
    int64_t n_k = (int64_t)a->n_head_kv * a->dim_k, n_v = (int64_t)a->n_head_kv * a->dim_v;
    if (weights_has(&b->ws, "attn_qkv.weight"))
        return attention_project_fused(b, x, a, n_q + n_k + n_v, SCALED_PRODUCT);
    struct qkv y;
    y.q = build_project(b, "attn_q", x, n_q, SCALED_PRODUCT); // (n_tok, n_head * dim_k)
    y.k = build_project(b, "attn_k", x, n_k, SCALED_PRODUCT); // (n_tok, n_head_kv * dim_k)
    y.v = build_project(b, "attn_v", x, n_v, SCALED_PRODUCT); // (n_tok, n_head_kv * dim_v)
    return clamped(b, y, a);
}

// Norms of heads with the gains of the matrix in the file, which has a row for each head.
static struct tensor *norm_by_rows(struct build *b, const char *name, const char *gains, struct tensor *x, int n_head,
                                   int dim)
{
    const struct weight *gain = weights_rows_as_vector(&b->ws, gains, dim, n_head, REQUIRED);
    return gain ? graph_norm(b->g, name, x, gain, NULL, b->norm, b->norm_eps, dim) : NULL;
}

struct qkv attention_norm_heads(struct build *b, struct qkv x, const struct attention *a)
{
    if (a->own_gains) {
        x.q = norm_by_rows(b, "attn_q_norm", "attn_q_norm.weight", x.q, a->n_head, a->dim_k);
        x.k = norm_by_rows(b, "attn_k_norm", "attn_k_norm.weight", x.k, a->n_head_kv, a->dim_k);
    } else {
        x.q = build_head_norm(b, "attn_q_norm", x.q, a->dim_k);
        x.k = build_head_norm(b, "attn_k_norm", x.k, a->dim_k);
    }
    return x;
}

void attention_find_own_gains(struct build *b, struct attention *a)
{
    a->head_norms = a->own_gains = weights_has(&b->ws, "attn_q_norm.weight");
}

struct qkv attention_norm_rows(struct build *b, struct qkv x)
{
    x.q = build_norm(b, "attn_q_norm", x.q);
    x.k = build_norm(b, "attn_k_norm", x.k);
    return x;
}

struct qkv attention_rotate(struct build *b, struct qkv x, const struct attention *a)
{
    if (!a->angles)
        return x;
    x.q = graph_rope(b->g, "attn_q_rope", x.q, a->q_angles ? a->q_angles : a->angles, a->dim_k, a->layout);
    x.k = graph_rope(b->g, "attn_k_rope", x.k, a->angles, a->dim_k, a->layout);
    return x;
}

// The KV layer of this layer. Where rows see the whole text, nothing is left of it behind the step, and all layers take
// turns with two.
static int kv_layer_of(struct build *b, const struct attention *a)
{
    const int turn = b->layer % 2;
    const struct kv_layer *kv = a->both_ways && turn < b->g->n_kv ? &b->g->kv[turn] : NULL;
    if (kv && kv->n_head_kv == a->n_head_kv && kv->dim_k == a->dim_k && kv->dim_v == a->dim_v)
        return turn;
    return graph_kv_layer(b->g, a->n_head_kv, a->dim_k, a->dim_v);
}

struct qkv attention_store(struct build *b, struct qkv x, const struct attention *a)
{
    int cache = kv_layer_of(b, a);
    x.k = graph_kv_write(b->g, "attn_k_cache", x.k, cache, KV_KEY);
    x.v = graph_kv_write(b->g, "attn_v_cache", x.v, cache, KV_VALUE);
    return x;
}

struct tensor *attention_look(struct build *b, struct qkv x, const struct attention *a)
{
    struct attention_params p = {.n_head = a->n_head,
                                 .scale = a->scale,
                                 .softcap = a->softcap,
                                 .window = a->window,
                                 .chunked = a->chunked,
                                 .both_ways = a->both_ways,
                                 .slopes = a->slopes};
    if (a->sinks)
        p.sinks = weights_vector(&b->ws, "attn_sinks.weight", a->n_head, REQUIRED);
    return graph_attention(b->g, "attn", x.q, x.k, x.v, p);
}

struct tensor *attention_attend(struct build *b, struct qkv x, const struct attention *a)
{
    return attention_look(b, attention_store(b, x, a), a);
}

struct tensor *attention(struct build *b, struct tensor *x, const struct attention *a)
{
    struct qkv y = attention_project(b, x, a);
    if (a->head_norms)
        y = attention_norm_heads(b, y, a);
    return attention_attend(b, attention_rotate(b, y, a), a);
}

struct tensor *attention_of_rows(struct build *b, struct tensor *x, const struct attention *a)
{
    struct qkv y;
    y.q = build_project(b, "attn_q", x, (int64_t)a->n_head * a->dim_k, SCALED_NOT);    // (n_tok, n_head * dim_k)
    y.k = build_project(b, "attn_k", x, (int64_t)a->n_head_kv * a->dim_k, SCALED_NOT); // (n_tok, n_head_kv * dim_k)
    y.v = build_project(b, "attn_v", x, (int64_t)a->n_head_kv * a->dim_v, SCALED_NOT); // (n_tok, n_head_kv * dim_v)
    y = attention_norm_rows(b, y);
    return attention_attend(b, attention_rotate(b, y, a), a);
}

struct tensor *attention_residual(struct build *b, struct tensor *x, struct tensor *y)
{
    return attention_residual_by(b, x, y, b->biases);
}

struct tensor *attention_residual_by(struct build *b, struct tensor *x, struct tensor *y, enum presence bias)
{
    if (!y)
        return NULL;
    build_last_rows(b, b->layer, &x, &y);
    struct linear out =
        weights_linear(&b->ws, "attn_output", y ? y->width : 1, b->n_embd, SCALED_PRODUCT, REQUIRED, bias);
    y = build_project_by(b, "attn_output", y, &out); // (n, n_embd)
    return graph_add(b->g, "attn_residual", x, y);   // (n, n_embd)
}
