// The keys of experts, and the products with them in straight lines.
#include "models/blocks/mixture.h"
#include "models/blocks/feed_forward.h"

enum { EXPERTS_MAX = 1 << 14, WIDTH_MAX = 1 << 24 };

// Files of families without groups have none, or one of all experts.
static void read_groups(struct hparams *h, struct experts *e)
{
    const int n = (int)hparam_int_or(h, "expert_group_count", 0, EXPERTS_MAX, 0);
    const int n_used = (int)hparam_int_or(h, "expert_group_used_count", 0, EXPERTS_MAX, 0);
    if (n <= 1)
        return;
    const int size = e->n / n;
    if (size < 2 || e->n % n != 0)
        hparam_refuse(h, "expert_group_count", "%d experts in %d groups, wanted are groups of one size of 2 or more",
                      e->n, n);
    else if (n_used < 1 || n_used > n)
        hparam_refuse(h, "expert_group_used_count", "%d groups are used of %d", n_used, n);
    else if (e->n_used > n_used * size)
        hparam_refuse(h, "expert_used_count", "%d experts are used of %d groups of %d", e->n_used, n_used, size);
    e->n_group = n, e->n_group_used = n_used;
}

struct experts experts_read(struct build *b)
{
    struct hparams *h = &b->h;
    struct experts e = {.route = ROUTE_SOFTMAX, .normalise = true};
    e.n = (int)hparam_int_or(h, "expert_count", 0, EXPERTS_MAX, 0);
    e.n_used = (int)hparam_int_or(h, "expert_used_count", 0, EXPERTS_MAX, 0);
    if (e.n_used > e.n || (e.n && !e.n_used))
        hparam_refuse(h, "expert_used_count", "%d experts are used of %d", e.n_used, e.n);
    e.scale = hparam_factor_or(h, "expert_weights_scale", 1);
    read_groups(h, &e);
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

void experts_read_choice(struct build *b, struct experts *e, enum route_kind fallback)
{
    static const char key[] = "expert_gating_func";
    enum { GATING_NONE, GATING_SOFTMAX, GATING_SIGMOID };
    const int gating = (int)hparam_int_or(&b->h, key, 0, INT32_MAX, GATING_NONE);
    if (gating > GATING_SIGMOID)
        hparam_refuse(&b->h, key, "%d; 1 (softmax) and 2 (sigmoid) are supported", gating);
    e->route = gating == GATING_NONE ? fallback : gating == GATING_SOFTMAX ? ROUTE_SOFTMAX : ROUTE_SIGMOID;
    e->normalise = hparam_flag_or(&b->h, "expert_weights_norm", false);
    e->chosen_by_bias = true;
}

// The choice of experts for each row of x: (n, 2 * n_used).
static struct tensor *choose(struct build *b, struct tensor *x, const struct experts *e)
{
    struct linear router = weights_linear(&b->ws, "ffn_gate_inp", b->n_embd, e->n, SCALED_NOT, REQUIRED, OPTIONAL);
    const char *name = weights_has(&b->ws, "exp_probs_b") ? "exp_probs_b" : "exp_probs_b.bias"; // of HY 3: the first
    const struct weight *bias = e->chosen_by_bias ? weights_vector(&b->ws, name, e->n, OPTIONAL) : NULL;
    if (bias)
        weights_values(&b->ws, name, e->n, false); // refuses what is no number: it would choose in silence
    struct tensor *logits = build_project_by(b, "ffn_gate_inp", x, &router); // (n, n_expert)
    return graph_route(b->g, "ffn_route", logits, bias,
                       (struct route_params){e->route, e->n_used, e->normalise, e->scale, e->n_group, e->n_group_used});
}

// The products of x with a matrix of each chosen expert, plus a bias if the file has one: (n, n_used * rows).
static struct tensor *project_experts(struct build *b, const char *name, struct tensor *x, int64_t k, int64_t rows,
                                      const struct experts *e, struct tensor *route)
{
    const enum scaled scaled = e->unscaled ? SCALED_NOT : SCALED_PRODUCT;
    const struct weight *w = weights_experts(&b->ws, name, k, rows, e->n, scaled);
    return graph_expert_matmul(b->g, name, x, w, weights_expert_biases(&b->ws, name, rows, e->n), route);
}

// The products with the matrices of gates and of ups: (n, n_used * n_ff). A file may have both in one, ffn_gate_up_exps, the
// rows of the gate first.
struct gate_up {
    struct tensor *gate, *up;
};
static struct gate_up gate_and_up(struct build *b, struct tensor *x, int64_t n_ff, const struct experts *e,
                                  struct tensor *route)
{
    struct weights *ws = &b->ws;
    struct gate_up y;
    if (!weights_has(ws, "ffn_gate_up_exps.weight")) {
        y.gate = project_experts(b, "ffn_gate_exps", x, b->n_embd, n_ff, e, route);
        y.up = project_experts(b, "ffn_up_exps", x, b->n_embd, n_ff, e, route);
        return y;
    }
    const struct weight *both = weights_experts(ws, "ffn_gate_up_exps", b->n_embd, 2 * n_ff, e->n, SCALED_NOT);
    const struct weight *gate = weights_rows_of_each(ws, both, 0, n_ff),
                        *up = weights_rows_of_each(ws, both, n_ff, n_ff);
    y.gate = graph_expert_matmul(b->g, "ffn_gate_exps", x, gate, NULL, route);
    y.up = graph_expert_matmul(b->g, "ffn_up_exps", x, up, NULL, route);
    return y;
}

// down (act(gate x) * up x) of each chosen expert: (n, n_used * n_embd).
static struct tensor *outputs(struct build *b, struct tensor *x, const struct experts *e, enum act_kind act,
                              struct tensor *route)
{
    const int64_t n_ff = e->n_ff ? e->n_ff : b->n_ff[b->layer];
    if (!n_ff)
        hparam_refuse(&b->h, "feed_forward_length", "layer %d has none", b->layer);
    const struct gate_up in = gate_and_up(b, x, n_ff, e, route);
    struct tensor *y = gated_unit(b, "ffn_glu_exps", in.gate, in.up, act, e->limit); // (n, n_used * n_ff)
    return project_experts(b, "ffn_down_exps", y, n_ff, b->n_embd, e, route);        // (n, n_used * n_embd)
}

struct tensor *mixture(struct build *b, struct tensor *x, const struct experts *e, enum act_kind act)
{
    return mixture_chosen_by(b, x, x, e, act);
}

struct tensor *mixture_chosen_by(struct build *b, struct tensor *seen, struct tensor *x, const struct experts *e,
                                 enum act_kind act)
{
    struct tensor *route = choose(b, seen, e);                                         // (n, 2 * n_used)
    return graph_expert_combine(b->g, "ffn_moe", outputs(b, x, e, act, route), route); // (n, n_embd)
}

struct tensor *mixture_weighed_before(struct build *b, struct tensor *x, const struct experts *e, enum act_kind act)
{
    struct tensor *route = choose(b, x, e);                                        // (n, 2 * n_used)
    x = graph_expert_weigh(b->g, "ffn_weighed", x, route);                         // (n, n_used * n_embd)
    return graph_expert_sum(b->g, "ffn_moe", outputs(b, x, e, act, route), route); // (n, n_embd)
}

// The output of an expert that all rows use: (n, n_embd).
static struct tensor *shared_output(struct build *b, struct tensor *x, int n_ff, enum act_kind act, enum scaled scaled,
                                    float limit)
{
    struct tensor *up = build_project(b, "ffn_up_shexp", x, n_ff, scaled);     // (n, n_ff)
    struct tensor *gate = build_project(b, "ffn_gate_shexp", x, n_ff, scaled); // (n, n_ff)
    struct tensor *s = gated_unit(b, "ffn_glu_shexp", gate, up, act, limit);   // (n, n_ff)
    return build_project(b, "ffn_down_shexp", s, b->n_embd, scaled);           // (n, n_embd)
}

struct tensor *shared_expert(struct build *b, struct tensor *x, struct tensor *y, int n_ff, enum act_kind act,
                             enum scaled scaled)
{
    return graph_add(b->g, "ffn_shared", y, shared_output(b, x, n_ff, act, scaled, 0)); // (n, n_embd)
}

struct tensor *shared_expert_within(struct build *b, struct tensor *x, struct tensor *y, int n_ff, float limit)
{
    return graph_add(b->g, "ffn_shared", y, shared_output(b, x, n_ff, ACT_SILU, SCALED_NOT, limit)); // (n, n_embd)
}

// The gate is a route to the one expert that there is, and its weight is the sigmoid.
struct tensor *gated_shared_expert(struct build *b, struct tensor *x, struct tensor *y, int n_ff, enum act_kind act,
                                   enum scaled scaled)
{
    struct linear gate = weights_linear(&b->ws, "ffn_gate_inp_shexp", b->n_embd, 1, SCALED_NOT, REQUIRED, OPTIONAL);
    const struct route_params sigmoid = {.kind = ROUTE_SIGMOID, .n_used = 1, .scale = 1};
    struct tensor *logit = build_project_by(b, "ffn_gate_inp_shexp", x, &gate);        // (n, 1)
    struct tensor *route = graph_route(b->g, "ffn_route_shexp", logit, NULL, sigmoid); // (n, 2)
    struct tensor *s =
        graph_expert_combine(b->g, "ffn_gated", shared_output(b, x, n_ff, act, scaled, 0), route); // (n, n_embd)
    return graph_add(b->g, "ffn_shared", y, s);                                                    // (n, n_embd)
}

struct tensor *mixture_plain(struct build *b, struct tensor *seen, struct tensor *x, const struct experts *e,
                             enum act_kind act)
{
    if (!x)
        return NULL;
    struct tensor *route = choose(b, seen, e);                                            // (n, 2 * n_used)
    struct tensor *y = project_experts(b, "ffn_up_exps", x, x->width, e->n_ff, e, route); // (n, n_used * n_ff)
    y = project_experts(b, "ffn_down_exps", graph_act(b->g, "ffn_act", y, act), e->n_ff, x->width, e, route);
    return graph_expert_combine(b->g, "ffn_moe", y, route); // (n, width of x)
}
