// See tiny_graph.h.
#include "tests/tiny_graph.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

float tiny_noise(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((int64_t)(z ^ (z >> 31)) >> 40) * 0x1p-23f;
}

// Rows of noise, encoded; types without an encoder take random blocks' place through Q8_0's neighbours in other tests.
static const void *make_data(struct tiny *t, enum dtype type, int64_t k, int64_t rows, float size, float centre)
{
    cr_assert(dtype_encode[type] != NULL, "%s has no encoder", dtype_info[type].name);
    size_t bytes = dtype_row_bytes(type, k);
    uint8_t *data = arena_array(&t->data, (size_t)rows, bytes, 64);
    float *row = malloc((size_t)k * sizeof(*row));
    cr_assert(data != NULL && row != NULL);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < k; i++)
            row[i] = centre + size * tiny_noise(&t->seed);
        dtype_encode[type](row, data + (size_t)r * bytes, k);
    }
    free(row);
    return data;
}

static const struct weight *make_weight(struct tiny *t, enum dtype type, int64_t k, int64_t rows, int64_t matrices)
{
    cr_assert_lt(t->n_weights, TINY_WEIGHTS_MAX);
    struct weight *w = &t->weights[t->n_weights++];
    bool gain = rows == 1;
    *w = (struct weight){.name = "w", .type = type, .ne = {k, rows, matrices}, .row_bytes = dtype_row_bytes(type, k)};
    w->data = !t->with_data
                  ? (const void *)t->weights
                  : make_data(t, type, k, rows * matrices, gain ? 0.1f : 1.7f / sqrtf((float)k), gain ? 1 : 0);
    return w;
}

static struct tensor *dense_ffn(struct tiny *t, struct tensor *h)
{
    struct graph *g = t->graph;
    const int n_ff = t->n_ff ? t->n_ff : TINY_FFN;
    struct tensor *gate = graph_matmul(g, "gate", h, make_weight(t, t->type, TINY_EMBD, n_ff, 1), NULL);
    struct tensor *up = graph_matmul(g, "up", h, make_weight(t, t->type, TINY_EMBD, n_ff, 1), NULL);
    struct tensor *act = graph_glu(g, "glu", gate, up, ACT_SILU);
    return graph_matmul(g, "down", act, make_weight(t, t->type, n_ff, TINY_EMBD, 1), NULL);
}

static struct tensor *expert_ffn(struct tiny *t, struct tensor *h)
{
    struct graph *g = t->graph;
    struct tensor *router = graph_matmul(g, "router", h, make_weight(t, DT_F32, TINY_EMBD, TINY_EXPERTS, 1), NULL);
    struct tensor *route =
        graph_route(g, "route", router, NULL, (struct route_params){ROUTE_SOFTMAX, TINY_USED, true, 1.0f, 0, 0});
    const struct weight *wg = make_weight(t, t->type, TINY_EMBD, TINY_FFN, TINY_EXPERTS);
    const struct weight *wu = make_weight(t, t->type, TINY_EMBD, TINY_FFN, TINY_EXPERTS);
    struct tensor *gate = graph_expert_matmul(g, "gate", h, wg, NULL, route);
    struct tensor *up = graph_expert_matmul(g, "up", h, wu, NULL, route);
    struct tensor *act = graph_glu(g, "glu", gate, up, ACT_SILU);
    const struct weight *wd = make_weight(t, t->type, TINY_FFN, TINY_EMBD, TINY_EXPERTS);
    return graph_expert_combine(g, "combine", graph_expert_matmul(g, "down", act, wd, NULL, route), route);
}

static struct tensor *make_angles(struct graph *g)
{
    double inv_freq[TINY_DIM / 2];
    for (int i = 0; i < TINY_DIM / 2; i++)
        inv_freq[i] = pow(1e4, -2.0 * i / TINY_DIM);
    return graph_rope_table(g, "table", TINY_DIM / 2, inv_freq, 1.0f); // one a layer: equal nodes
}

// Matrices of heads, multiplied by a route to all of them; queries and keys are joined of two parts.
static struct tensor *latent_attention(struct tiny *t, struct tensor *h)
{
    struct graph *g = t->graph;
    struct tensor *table = make_angles(g), *heads = graph_route_each(g, "heads", h, TINY_HEADS);
    const struct weight *wq = make_weight(t, t->type, TINY_EMBD, TINY_HEADS * TINY_RANK, 1);
    const struct weight *wr = make_weight(t, t->type, TINY_EMBD, TINY_HEADS * TINY_DIM, 1);
    struct tensor *q = graph_matmul(g, "q", h, wq, NULL), *turned = graph_matmul(g, "q_rot", h, wr, NULL);
    struct tensor *latent = graph_matmul(g, "latent", h, make_weight(t, t->type, TINY_EMBD, TINY_RANK, 1), NULL);
    struct tensor *k = graph_matmul(g, "k_rot", h, make_weight(t, t->type, TINY_EMBD, TINY_DIM, 1), NULL);
    q = graph_expert_matmul(g, "q_b", q, make_weight(t, t->type, TINY_RANK, TINY_RANK, TINY_HEADS), NULL, heads);
    turned = graph_rope(g, "q_rope", turned, table, TINY_DIM, ROPE_NORM);
    k = graph_rope(g, "k_rope", k, table, TINY_DIM, ROPE_NORM);
    q = graph_join(g, "q_join", q, TINY_RANK, turned, TINY_DIM);
    k = graph_join(g, "k_join", latent, TINY_RANK, k, TINY_DIM);
    const int layer = graph_kv_layer_of_keys(g, 1, TINY_RANK + TINY_DIM, TINY_RANK);
    k = graph_kv_write(g, "k_store", k, layer, KV_KEY);
    struct tensor *a =
        graph_attention(g, "attn", q, k, k, (struct attention_params){.n_head = TINY_HEADS, .scale = 0.05f});
    a = graph_expert_matmul(g, "v_b", a, make_weight(t, t->type, TINY_RANK, TINY_DIM, TINY_HEADS), NULL, heads);
    return graph_matmul(g, "o", a, make_weight(t, t->type, TINY_HEADS * TINY_DIM, TINY_EMBD, 1), NULL);
}

static struct tensor *attention(struct tiny *t, struct tensor *h)
{
    struct graph *g = t->graph;
    struct tensor *table = make_angles(g);
    const int n_head_kv = t->n_head_kv ? t->n_head_kv : TINY_HEADS_KV, kv = n_head_kv * TINY_DIM;
    struct tensor *q = graph_matmul(g, "q", h, make_weight(t, t->type, TINY_EMBD, TINY_HEADS * TINY_DIM, 1), NULL);
    struct tensor *k = graph_matmul(g, "k", h, make_weight(t, t->type, TINY_EMBD, kv, 1), NULL);
    struct tensor *v = graph_matmul(g, "v", h, make_weight(t, t->type, TINY_EMBD, kv, 1), NULL);
    q = graph_rope(g, "q_rope", q, table, TINY_DIM, ROPE_NEOX);
    k = graph_rope(g, "k_rope", k, table, TINY_DIM, ROPE_NEOX);
    int layer = graph_kv_layer(g, n_head_kv, TINY_DIM, TINY_DIM);
    struct tensor *ks = graph_kv_write(g, "k_store", k, layer, KV_KEY);
    struct tensor *vs = graph_kv_write(g, "v_store", v, layer, KV_VALUE);
    struct attention_params p = {.n_head = TINY_HEADS, .scale = 0.125f, .window = t->window};
    struct tensor *a = graph_attention(g, "attn", q, ks, vs, p);
    return graph_matmul(g, "o", a, make_weight(t, t->type, TINY_HEADS * TINY_DIM, TINY_EMBD, 1), NULL);
}

void tiny_build(struct tiny *t)
{
    struct graph *g = t->graph = graph_new();
    cr_assert(g != NULL);
    const struct weight *gain = make_weight(t, DT_F32, TINY_EMBD, 1, 1);
    struct tensor *x = graph_embed(g, "embed", make_weight(t, DT_F32, TINY_EMBD, TINY_VOCAB, 1), INPUT_TOKENS, 1.0f);
    for (int il = 0; il < t->n_layer; il++) {
        graph_layer(g, il);
        struct tensor *h = graph_norm(g, "attn_norm", x, gain, NULL, NORM_RMS, 1e-5f, 0);
        graph_scale(g, "dead", h, 2.0f);
        x = graph_add(g, "attn_add", x, t->latent ? latent_attention(t, h) : attention(t, h));
        h = graph_norm(g, "ffn_norm", x, gain, NULL, NORM_RMS, 1e-5f, 0);
        x = graph_add(g, "ffn_add", x, t->experts ? expert_ffn(t, h) : dense_ffn(t, h));
    }
    graph_layer(g, -1);
    x = graph_norm(g, "norm", graph_output_rows(g, "rows", x), gain, NULL, NORM_RMS, 1e-5f, 0);
    struct error err = {0};
    x = graph_matmul(g, "logits", x, make_weight(t, t->type, TINY_EMBD, TINY_VOCAB, 1), NULL);
    cr_assert_eq(graph_finish(g, x, &err), 0, "%s", err.text);
}

void tiny_free(struct tiny *t)
{
    graph_free(t->graph);
    arena_free(&t->data);
}
