// Llama 4: the block of Llama, where every fourth layer sees all positions and rotates nothing, and the others rotate and
// see the positions of their own chunk. Some layers have a mixture of experts whose weights multiply what goes in, and
// to which an expert that all rows use is added.
#include "models/families.h"

enum { CHUNK = 8192, NO_ROPE_STEP = 4, WITHOUT_NORMS = 128 };

// The factors of the queries of layers that do not rotate: a rotation by no angle, whose cosines grow with the position.
static struct tensor *growth(struct build *b)
{
    const int64_t n_pairs = b->dim_k / 2;
    double *still = ARENA_ARRAY(&b->g->arena, double, (size_t)n_pairs + 1);
    if (!still)
        return fail_first(b->h.fault, E_MEMORY, "out of memory for %d frequencies", b->dim_k / 2), NULL;
    return graph_growing_rope_table(b->g, "growth", n_pairs, still, 1, 0.1F, CHUNK, 1); // (n_tok, dim_k)
}

static struct tensor *norm_of_heads(struct build *b, const char *name, struct tensor *x)
{
    return graph_norm(b->g, name, x, NULL, NULL, NORM_RMS, b->norm_eps, b->dim_k);
}

// The norms of heads come after the rotation, and have no gains.
static struct tensor *attend(struct build *b, struct tensor *x, const struct attention *a, struct tensor *grows,
                             bool norms)
{
    struct qkv y = attention_project(b, x, a);
    if (!a->angles)
        y.q = graph_rope(b->g, "attn_q_grown", y.q, grows, a->dim_k, a->layout);
    y = attention_rotate(b, y, a);
    if (a->angles && norms) {
        y.q = norm_of_heads(b, "attn_q_normed", y.q);
        y.k = norm_of_heads(b, "attn_k_normed", y.k);
    }
    return attention_attend(b, y, a);
}

// The chunks are of one size; a file may say that there are none, which no model of this family uses.
static void check_window(struct build *b)
{
    if (hparam_int_or(&b->h, "attention.sliding_window", 0, INT32_MAX, CHUNK) == 0)
        hparam_refuse(&b->h, "attention.sliding_window", "layers without chunks are not supported");
    if (b->dim_k % 2)
        hparam_refuse(&b->h, "attention.key_length", "%d columns of a head, which is odd", b->dim_k);
}

struct tensor *build_llama4(struct build *b)
{
    build_read_rms(b);
    check_window(b);
    struct experts e = experts_require(b);
    experts_read_width(b, &e);
    e.route = ROUTE_SIGMOID, e.normalise = false, e.unscaled = true;
    const int step = (int)hparam_int(&b->h, "interleave_moe_layer_step", 0, INT32_MAX);
    const struct rope far = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct rope near = far;
    near.base = (double)hparam_positive_or(&b->h, "rope.freq_base_swa", (float)far.base);
    struct tensor *far_angles = build_rope_with_factors(b, "rope", &far); // (n_tok, n_rot)
    struct tensor *near_angles = near.base == far.base ? far_angles : build_rope_with_factors(b, "rope_chunk", &near);
    struct tensor *grows = growth(b);     // (n_tok, dim_k)
    struct tensor *x = build_embed(b, 1); // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.window = build_window(b, i, CHUNK, 4), a.chunked = a.window > 0;
        a.angles = (i + 1) % NO_ROPE_STEP == 0 ? NULL : a.window ? near_angles : far_angles, a.layout = ROPE_NORM;
        build_layer(b, i);
        struct tensor *y = build_norm(b, "attn_norm", x);  // (n_tok, n_embd)
        y = attend(b, y, &a, grows, e.n != WITHOUT_NORMS); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                   // (n, n_embd)

        struct tensor *n = build_norm(b, "ffn_norm", x); // (n, n_embd)
        if (step > 0 && (i + 1) % step == 0) {
            y = mixture_weighed_before(b, n, &e, ACT_SILU);           // (n, n_embd)
            y = shared_expert(b, n, y, e.n_ff, ACT_SILU, SCALED_NOT); // (n, n_embd)
        } else {
            y = feed_forward(b, n, b->n_ff[i], ACT_SILU, SCALED_NOT); // (n, n_embd)
        }
        x = build_layer_end(b, "ffn_residual", x, y); // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
