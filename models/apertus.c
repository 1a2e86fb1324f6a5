// Apertus: the block of Llama with norms of heads and a feed-forward without a gate, whose activation function has parameters
// of its own in each layer.
#include "models/families.h"

#include <math.h>
#include <stdio.h>

// Element `layer` of an array, or the number that all layers share. These keys do not begin with the family's name.
static float read_number(struct build *b, const char *key, int layer)
{
    struct error *fault = b->h.fault;
    const struct gguf_kv *kv = gguf_find(b->h.file, key);
    float v = 0;
    if (fault->code != E_OK)
        return 0;
    if (!kv) {
        gguf_fail(b->h.file, 0, ERR_NO_OFFSET, fault, "key '%s': is missing", key);
    } else if (kv->type != GGUF_ARRAY) {
        gguf_get_f32(b->h.file, key, &v, fault);
    } else if (gguf_get_array(b->h.file, key, GGUF_F32, &kv, fault) == 1) {
        if (kv->count >= (uint64_t)b->n_layer)
            v = gguf_array_f32(kv, (uint64_t)layer);
        else
            gguf_fail(b->h.file, kv->shard, kv->offset, fault, "key '%s': has %llu numbers of %d layers", key,
                      (unsigned long long)kv->count, b->n_layer);
    }
    if (fault->code == E_OK && !isfinite(v))
        gguf_fail(b->h.file, kv->shard, kv->offset, fault, "key '%s': %g is no finite number", key, (double)v);
    return v;
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

// The file has what softplus makes the factors of.
static struct xielu_params read_xielu(struct build *b, int layer)
{
    const float beta = read_number(b, "xielu.beta", layer);
    const double n = softplus((double)read_number(b, "xielu.alpha_n", layer));
    const double p = softplus((double)read_number(b, "xielu.alpha_p", layer));
    return (struct xielu_params){(float)((double)beta + n), (float)p, beta, read_number(b, "xielu.eps", layer)};
}

// down xielu(up x): (n, n_embd).
static struct tensor *feed_forward_of(struct build *b, struct tensor *x, int layer)
{
    const int n_ff = b->n_ff[layer];
    if (!n_ff)
        hparam_refuse(&b->h, "feed_forward_length", "layer %d has none", layer);
    struct tensor *y = n_ff ? build_project(b, "ffn_up", x, n_ff, SCALED_NOT) : NULL; // (n, n_ff)
    y = graph_xielu(b->g, "ffn_act", y, read_xielu(b, layer));                        // (n, n_ff)
    return build_project(b, "ffn_down", y, b->n_embd, SCALED_NOT);                    // (n, n_embd)
}

struct tensor *build_apertus(struct build *b)
{
    build_read_rms(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope_with_factors(b, "rope", &rope); // (n_tok, n_rot)
    const float scale = hparam_factor_or(&b->h, "attention.scale", 0);
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.head_norms = true;
        a.scale = scale > 0 ? scale : a.scale;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)

        y = feed_forward_of(b, build_norm(b, "ffn_norm", x), i); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);            // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
