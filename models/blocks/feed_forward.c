// The forms of a feed-forward, in straight lines.
#include "models/blocks/feed_forward.h"

#include <stdio.h>

// A file says the width by layer, and may say 0 for layers that have something else instead.
static struct tensor *checked(struct build *b, struct tensor *x, int n_ff)
{
    if (!n_ff)
        hparam_refuse(&b->h, "feed_forward_length", "layer %d has none", b->layer);
    return n_ff ? x : NULL;
}

struct tensor *gated_unit(struct build *b, const char *name, struct tensor *gate, struct tensor *up, enum act_kind act,
                          float limit)
{
    char acted[48], within[48], up_within[48];
    if (limit == 0)
        return graph_glu(b->g, name, gate, up, act);
    snprintf(acted, sizeof acted, "%s_act", name);
    snprintf(within, sizeof within, "%s_act_clamped", name);
    snprintf(up_within, sizeof up_within, "%s_up_clamped", name);
    gate = graph_clamp(b->g, within, graph_act(b->g, acted, gate, act), limit);
    return graph_glu(b->g, name, gate, graph_clamp(b->g, up_within, up, limit), ACT_NONE);
}

struct tensor *feed_forward_within(struct build *b, struct tensor *x, int n_ff, float limit)
{
    x = checked(b, x, n_ff);
    struct tensor *up = build_project(b, "ffn_up", x, n_ff, SCALED_NOT);     // (n, n_ff)
    struct tensor *gate = build_project(b, "ffn_gate", x, n_ff, SCALED_NOT); // (n, n_ff)
    struct tensor *y = gated_unit(b, "ffn_glu", gate, up, ACT_SILU, limit);  // (n, n_ff)
    return build_project(b, "ffn_down", y, b->n_embd, SCALED_NOT);           // (n, n_embd)
}

struct tensor *feed_forward(struct build *b, struct tensor *x, int n_ff, enum act_kind act, enum scaled scaled)
{
    x = checked(b, x, n_ff);
    struct tensor *up = build_project(b, "ffn_up", x, n_ff, scaled);     // (n, n_ff)
    struct tensor *gate = build_project(b, "ffn_gate", x, n_ff, scaled); // (n, n_ff)
    struct tensor *y = graph_glu(b->g, "ffn_glu", gate, up, act);        // (n, n_ff)
    return build_project(b, "ffn_down", y, b->n_embd, scaled);           // (n, n_embd)
}

struct tensor *feed_forward_fused(struct build *b, struct tensor *x, int n_ff, enum act_kind act)
{
    x = checked(b, x, n_ff);
    struct linear both =
        weights_linear(&b->ws, "ffn_up", b->n_embd, 2 * (int64_t)n_ff, SCALED_NOT, REQUIRED, b->biases);
    struct linear gate = linear_rows(&b->ws, &both, 0, n_ff), up = linear_rows(&b->ws, &both, n_ff, n_ff);
    struct tensor *u = build_project_by(b, "ffn_up", x, &up);     // (n, n_ff)
    struct tensor *g = build_project_by(b, "ffn_gate", x, &gate); // (n, n_ff)
    struct tensor *y = graph_glu(b->g, "ffn_glu", g, u, act);     // (n, n_ff)
    return build_project(b, "ffn_down", y, b->n_embd, SCALED_NOT);
}

struct tensor *feed_forward_plain(struct build *b, struct tensor *x, int n_ff, enum act_kind act)
{
    struct tensor *up = build_project(b, "ffn_up", checked(b, x, n_ff), n_ff, SCALED_NOT); // (n, n_ff)
    return build_project(b, "ffn_down", graph_act(b->g, "ffn_act", up, act), b->n_embd, SCALED_NOT);
}
