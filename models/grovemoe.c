// GroveMoE: the block of Qwen 3 with a mixture of experts, to whose output a second, smaller mixture is added that sees it:
// neighbouring experts of the first share one of the second, and the same logits choose both.
#include "models/families.h"

#include <stdio.h>

struct grove {
    struct experts first;
    int n_second, n_ff_second, share; // smaller experts, their width, and how many of the first share one
    float scale;                      // of what the second mixture adds
};

static struct grove grove_read(struct build *b)
{
    struct hparams *h = &b->h;
    struct grove g = {.first = experts_require(b)};
    const struct experts *e = &g.first;
    experts_read_width(b, &g.first);
    g.share = (int)hparam_int(h, "experts_per_group", 1, MAX(e->n, 1));
    g.n_ff_second = (int)hparam_int_or(h, "expert_chunk_feed_forward_length", 0, 1 << 24, 0);
    g.scale = hparam_positive(h, "expert_group_scale");
    if (e->n % g.share != 0)
        hparam_refuse(h, "experts_per_group", "%d experts in groups of %d", e->n, g.share);
    if (e->n_group)
        hparam_refuse(h, "expert_group_count", "this family has no groups of this kind");
    g.n_second = e->n / g.share;
    g.n_ff_second = g.n_ff_second ? g.n_ff_second : b->dim_k;
    return g;
}

// The weighted sum of down (silu(gate x) * up x) over the experts of a row; kind: the end of the matrices' names.
static struct tensor *mix(struct build *b, const char *kind, struct tensor *x, int64_t n_ff, int64_t n,
                          struct tensor *route)
{
    char gate[32], up[32], down[32], glu[32], sum[32];
    snprintf(gate, sizeof gate, "ffn_gate_%s", kind);
    snprintf(up, sizeof up, "ffn_up_%s", kind);
    snprintf(down, sizeof down, "ffn_down_%s", kind);
    snprintf(glu, sizeof glu, "ffn_glu_%s", kind);
    snprintf(sum, sizeof sum, "ffn_moe_%s", kind);
    const struct weight *w_gate = weights_experts(&b->ws, gate, b->n_embd, n_ff, n, SCALED_NOT);
    const struct weight *w_up = weights_experts(&b->ws, up, b->n_embd, n_ff, n, SCALED_NOT);
    const struct weight *w_down = weights_experts(&b->ws, down, n_ff, b->n_embd, n, SCALED_NOT);
    struct tensor *g = graph_expert_matmul(b->g, gate, x, w_gate, NULL, route); // (n, n_used * n_ff)
    struct tensor *u = graph_expert_matmul(b->g, up, x, w_up, NULL, route);     // (n, n_used * n_ff)
    struct tensor *y = graph_glu(b->g, glu, g, u, ACT_SILU);                    // (n, n_used * n_ff)
    y = graph_expert_matmul(b->g, down, y, w_down, NULL, route);                // (n, n_used * n_embd)
    return graph_expert_combine(b->g, sum, y, route);                           // (n, n_embd)
}

static struct tensor *mixtures(struct build *b, struct tensor *x, const struct grove *g)
{
    const struct experts *e = &g->first;
    struct route_params p = {.kind = ROUTE_SOFTMAX, .n_used = e->n_used, .normalise = true, .scale = e->scale};
    struct tensor *logits = build_project(b, "ffn_gate_inp", x, e->n, SCALED_NOT); // (n, n_expert)
    struct tensor *route = graph_route(b->g, "ffn_route", logits, NULL, p);        // (n, 2 * n_used)
    struct tensor *y = mix(b, "exps", x, e->n_ff, e->n, route);                    // (n, n_embd)
    p.n_used = MIN(p.n_used, g->n_second);
    route = graph_route_shared(b->g, "ffn_route_chexps", logits, p, g->share);  // (n, 2 * n_used)
    struct tensor *z = mix(b, "chexps", y, g->n_ff_second, g->n_second, route); // (n, n_embd)
    return graph_add(b->g, "ffn_both", y, build_scale(b, "ffn_second", z, g->scale));
}

struct tensor *build_grovemoe(struct build *b)
{
    build_read_rms(b);
    const struct grove g = grove_read(b);
    struct rope rope = rope_read(&b->h, b->dim_k, b->n_ctx_train);
    struct tensor *angles = build_rope(b, "rope", &rope, NULL); // (n_tok, n_rot)
    struct tensor *x = build_embed(b, 1);                       // (n_tok, n_embd)
    for (int i = 0; i < b->n_layer; i++) {
        struct attention a = attention_of(b, i);
        a.angles = angles, a.layout = ROPE_NEOX, a.head_norms = true;
        build_layer(b, i);
        struct tensor *y = attention(b, build_norm(b, "attn_norm", x), &a); // (n_tok, n_head * dim_v)
        x = attention_residual(b, x, y);                                    // (n, n_embd)

        y = mixtures(b, build_norm(b, "ffn_norm", x), &g); // (n, n_embd)
        x = build_layer_end(b, "ffn_residual", x, y);      // (n, n_embd)
    }
    return build_output(b, x); // (n, n_vocab)
}
