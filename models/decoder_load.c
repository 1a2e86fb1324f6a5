// Looks up the weights for the description of a decoder.
#include "models/decoder.h"

#include <inttypes.h>

static struct norm load_norm(const struct decoder *d, struct weights *ws, const char *name, bool wanted)
{
    if (!wanted)
        return (struct norm){0};
    return weights_norm(ws, name, d->n_embd, REQUIRED, d->biased ? REQUIRED : OPTIONAL);
}

static struct linear load_linear(const struct decoder *d, struct weights *ws, const char *name, int64_t k, int64_t rows,
                                 enum scaled scaled)
{
    return weights_linear(ws, name, k, rows, scaled, REQUIRED, d->biased ? REQUIRED : OPTIONAL);
}

static void load_attention(const struct decoder *d, struct weights *ws, struct layer *l)
{
    int64_t n_q = (int64_t)l->n_head * d->dim_k;
    int64_t n_k = (int64_t)l->n_head_kv * d->dim_k, n_v = (int64_t)l->n_head_kv * d->dim_v;
    if (d->fused_qkv || weights_has(ws, "attn_qkv.weight")) {
        struct linear qkv = load_linear(d, ws, "attn_qkv", d->n_embd, n_q + n_k + n_v, SCALED_PRODUCT);
        l->q = linear_rows(ws, &qkv, 0, n_q);
        l->k = linear_rows(ws, &qkv, n_q, n_k);
        l->v = linear_rows(ws, &qkv, n_q + n_k, n_v);
    } else {
        l->q = load_linear(d, ws, "attn_q", d->n_embd, n_q, SCALED_PRODUCT);
        l->k = load_linear(d, ws, "attn_k", d->n_embd, n_k, SCALED_PRODUCT);
        l->v = load_linear(d, ws, "attn_v", d->n_embd, n_v, SCALED_PRODUCT);
    }
    if (d->qk_norm) {
        l->q_norm = weights_norm(ws, "attn_q_norm", d->dim_k, REQUIRED, OPTIONAL);
        l->k_norm = weights_norm(ws, "attn_k_norm", d->dim_k, REQUIRED, OPTIONAL);
    }
    l->o = load_linear(d, ws, "attn_output", (int64_t)l->n_head * d->dim_v, d->n_embd, SCALED_PRODUCT);
}

static void load_feed_forward(const struct decoder *d, struct weights *ws, struct layer *l)
{
    if (d->gate == GATE_FUSED) {
        struct linear both = load_linear(d, ws, "ffn_up", d->n_embd, 2 * (int64_t)l->n_ff, d->ffn_scaled);
        l->gate = linear_rows(ws, &both, 0, l->n_ff);
        l->up = linear_rows(ws, &both, l->n_ff, l->n_ff);
    } else {
        l->up = load_linear(d, ws, "ffn_up", d->n_embd, l->n_ff, d->ffn_scaled);
    }
    if (d->gate == GATE_SEPARATE)
        l->gate = load_linear(d, ws, "ffn_gate", d->n_embd, l->n_ff, d->ffn_scaled);
    l->down = load_linear(d, ws, "ffn_down", l->n_ff, d->n_embd, d->ffn_scaled);
}

static void load_experts(const struct decoder *d, struct weights *ws, struct layer *l)
{
    int64_t n_ff = d->expert.n_ff ? d->expert.n_ff : l->n_ff, n = d->expert.n;
    l->router = weights_linear(ws, "ffn_gate_inp", d->n_embd, n, SCALED_NOT, REQUIRED, OPTIONAL);
    l->gate_exps = weights_experts(ws, "ffn_gate_exps", d->n_embd, n_ff, n);
    l->up_exps = weights_experts(ws, "ffn_up_exps", d->n_embd, n_ff, n);
    l->down_exps = weights_experts(ws, "ffn_down_exps", n_ff, d->n_embd, n);
}

static void load_layer(const struct decoder *d, struct weights *ws, struct layer *l)
{
    l->attn_norm = load_norm(d, ws, "attn_norm", d->norm_before);
    load_attention(d, ws, l);
    l->attn_post_norm = load_norm(d, ws, "post_attention_norm", d->norm_after);
    l->ffn_norm = load_norm(d, ws, "ffn_norm", d->norm_before);
    if (d->expert.n)
        load_experts(d, ws, l);
    else
        load_feed_forward(d, ws, l);
    l->ffn_post_norm = load_norm(d, ws, "post_ffw_norm", d->norm_after);
}

// The size of the vocabulary is the number of rows of the embeddings. When the file has a tokenizer, both must agree.
static void load_embeddings(struct decoder *d, struct weights *ws)
{
    static const char name[] = "token_embd.weight";
    d->tok_embd = weights_matrix(ws, name, d->n_embd, 0, REQUIRED);
    const struct gguf_kv *tokens;
    int found = gguf_get_array(ws->file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens,
                               ws->fault.code == E_OK ? &ws->fault : NULL);
    if (!d->tok_embd || found < 0)
        return;
    int64_t rows = d->tok_embd->ne[1];
    if (found && tokens->count != (uint64_t)rows)
        weights_refuse(ws, name, "has %" PRId64 " rows, but the vocabulary has %" PRIu64 " tokens", rows,
                       tokens->count);
    if (rows > INT32_MAX)
        weights_refuse(ws, name, "has %" PRId64 " rows, more than tokens can be", rows);
    d->n_vocab = (int)rows;
    if (d->learned_positions)
        d->pos_embd = weights_matrix(ws, "position_embd.weight", d->n_embd, d->n_ctx_train, REQUIRED);
}

static void load_output(struct decoder *d, struct weights *ws)
{
    d->output_norm = load_norm(d, ws, "output_norm", true);
    d->output = weights_linear(ws, "output", d->n_embd, d->n_vocab, SCALED_PRODUCT, OPTIONAL, OPTIONAL);
    if (!d->output.w) // tied to the embeddings
        d->output = (struct linear){.w = d->tok_embd, .before = 1, .after = 1};
}

static double *make_frequencies(struct weights *ws, const struct rope *rope, const float *factors)
{
    double *inv_freq = ARENA_ARRAY(ws->arena, double, (size_t)rope->n_rot / 2);
    if (inv_freq)
        rope_frequencies(rope, factors, inv_freq);
    else
        fail_first(&ws->fault, E_MEMORY, "out of memory for %d frequencies", rope->n_rot / 2);
    return inv_freq;
}

static void load_rope(struct decoder *d, struct weights *ws)
{
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    const float *factors = NULL;
    int64_t n = d->rope.n_rot / 2;
    if (d->rope_factors == FACTORS_FREQS)
        factors = weights_values(ws, "rope_freqs.weight", n, true);
    if (d->rope_factors == FACTORS_BY_CONTEXT)
        factors = weights_values(ws, names[rope_is_long(&d->rope, d->n_ctx)], n, true);
    d->inv_freq = make_frequencies(ws, &d->rope, factors);
    if (d->window_rope_base > 0 && d->window_rope_base != d->rope.base) {
        struct rope near = d->rope;
        near.base = d->window_rope_base;
        d->window_inv_freq = make_frequencies(ws, &near, factors);
    }
}

void decoder_load(struct decoder *d, struct weights *ws)
{
    load_embeddings(d, ws);
    if (d->rotary)
        load_rope(d, ws);
    for (int i = 0; i < d->n_layer; i++) {
        weights_layer(ws, i);
        load_layer(d, ws, &d->layers[i]);
    }
    weights_layer(ws, -1);
    load_output(d, ws);
}
