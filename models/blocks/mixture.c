// The keys of experts, and the products with them in straight lines.
#include "models/blocks/mixture.h"

enum { EXPERTS_MAX = 1 << 14, WIDTH_MAX = 1 << 24 };

struct experts experts_read(struct build *b)
{
    struct hparams *h = &b->h;
    struct experts e = {.route = ROUTE_SOFTMAX, .normalise = true};
    e.n = (int)hparam_int_or(h, "expert_count", 0, EXPERTS_MAX, 0);
    e.n_used = (int)hparam_int_or(h, "expert_used_count", 0, EXPERTS_MAX, 0);
    if (e.n_used > e.n || (e.n && !e.n_used))
        hparam_refuse(h, "expert_used_count", "%d experts are used of %d", e.n_used, e.n);
    e.scale = hparam_factor_or(h, "expert_weights_scale", 1);
    return e;
}

struct experts experts_require(struct build *b)
{
    struct experts e = experts_read(b);
    if (!e.n)
        hparam_refuse(&b->h, "expert_count", "this family has experts, wanted 1 or more");
    return e;
}

void experts_read_width(struct build *b, struct experts *e)
{
    e->n_ff = (int)hparam_int_or(&b->h, "expert_feed_forward_length", 0, WIDTH_MAX, 0);
    if (!e->n_ff && e->n_used)
        e->n_ff = b->n_ff[0] / e->n_used;
}

struct tensor *mixture(struct build *b, struct tensor *x, const struct experts *e, enum act_kind act)
{
    const int64_t n_ff = e->n_ff ? e->n_ff : b->n_ff[b->layer];
    if (!n_ff)
        hparam_refuse(&b->h, "feed_forward_length", "layer %d has none", b->layer);
    const enum scaled scaled = e->unscaled ? SCALED_NOT : SCALED_PRODUCT;
    struct linear router = weights_linear(&b->ws, "ffn_gate_inp", b->n_embd, e->n, SCALED_NOT, REQUIRED, OPTIONAL);
    const struct weight *w_gate = weights_experts(&b->ws, "ffn_gate_exps", b->n_embd, n_ff, e->n, scaled);
    const struct weight *w_up = weights_experts(&b->ws, "ffn_up_exps", b->n_embd, n_ff, e->n, scaled);
    const struct weight *w_down = weights_experts(&b->ws, "ffn_down_exps", n_ff, b->n_embd, e->n, scaled);
    struct tensor *logits = build_project_by(b, "ffn_gate_inp", x, &router); // (n, n_expert)
    struct tensor *route =
        graph_route(b->g, "ffn_route", logits, e->route, e->n_used, e->normalise, e->scale); // (n, 2 * n_used)
    struct tensor *gate = graph_expert_matmul(b->g, "ffn_gate_exps", x, w_gate, route);      // (n, n_used * n_ff)
    struct tensor *up = graph_expert_matmul(b->g, "ffn_up_exps", x, w_up, route);            // (n, n_used * n_ff)
    struct tensor *y = graph_glu(b->g, "ffn_glu", gate, up, act);                            // (n, n_used * n_ff)
    y = graph_expert_matmul(b->g, "ffn_down_exps", y, w_down, route);                        // (n, n_used * n_embd)
    return graph_expert_combine(b->g, "ffn_moe", y, route);                                  // (n, n_embd)
}

// The output of an expert that all rows use: (n, n_embd).
static struct tensor *shared_output(struct build *b, struct tensor *x, int n_ff, enum act_kind act)
{
    struct tensor *up = build_project(b, "ffn_up_shexp", x, n_ff, SCALED_NOT);     // (n, n_ff)
    struct tensor *gate = build_project(b, "ffn_gate_shexp", x, n_ff, SCALED_NOT); // (n, n_ff)
    struct tensor *s = graph_glu(b->g, "ffn_glu_shexp", gate, up, act);            // (n, n_ff)
    return build_project(b, "ffn_down_shexp", s, b->n_embd, SCALED_NOT);           // (n, n_embd)
}

struct tensor *shared_expert(struct build *b, struct tensor *x, struct tensor *y, int n_ff, enum act_kind act)
{
    return graph_add(b->g, "ffn_shared", y, shared_output(b, x, n_ff, act)); // (n, n_embd)
}

// The gate is a route to the one expert that there is, and its weight is the sigmoid.
struct tensor *gated_shared_expert(struct build *b, struct tensor *x, struct tensor *y, int n_ff, enum act_kind act)
{
    struct linear gate = weights_linear(&b->ws, "ffn_gate_inp_shexp", b->n_embd, 1, SCALED_NOT, REQUIRED, OPTIONAL);
    struct tensor *logit = build_project_by(b, "ffn_gate_inp_shexp", x, &gate);                        // (n, 1)
    struct tensor *route = graph_route(b->g, "ffn_route_shexp", logit, ROUTE_SIGMOID, 1, false, 1);    // (n, 2)
    struct tensor *s = graph_expert_combine(b->g, "ffn_gated", shared_output(b, x, n_ff, act), route); // (n, n_embd)
    return graph_add(b->g, "ffn_shared", y, s);                                                        // (n, n_embd)
}
