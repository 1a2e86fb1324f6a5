// Prints the graph as text, one line for each node, for `quern dump graph` and for tests.
#include "kernels/graph.h"
#include "kernels/text.h"

const char *op_name(enum op op)
{
    static const char *const names[OP_COUNT] = {
#define OP(NAME, name, class) [OP_##NAME] = #name,
#include "kernels/op.def"
#undef OP
    };
    return (unsigned)op < OP_COUNT ? names[op] : "?";
}

static const char *act_name(enum act_kind kind)
{
    static const char *const names[] = {
        [ACT_NONE] = "none",         [ACT_SILU] = "silu",         [ACT_GELU_TANH] = "gelu_tanh",
        [ACT_GELU_ERF] = "gelu_erf", [ACT_RELU] = "relu",         [ACT_RELU2] = "relu2",
        [ACT_SIGMOID] = "sigmoid",   [ACT_SOFTPLUS] = "softplus", [ACT_SWIGLU_CLAMPED] = "swiglu_clamped",
    };
    return names[kind];
}

static const char *route_name(enum route_kind kind)
{
    static const char *const names[] = {
        [ROUTE_SOFTMAX] = "softmax", [ROUTE_SIGMOID] = "sigmoid", [ROUTE_EACH] = "each"};
    return names[kind];
}

static void print_attention(const struct tensor *n, struct text *out)
{
    text_print(out, " kv=%d heads=%d/%d dims=%d,%d scale=%g", n->p.attn.layer, n->p.attn.n_head, n->p.attn.n_head_kv,
               n->p.attn.dim_k, n->p.attn.dim_v, (double)n->p.attn.scale);
    if (n->p.attn.softcap > 0)
        text_print(out, " softcap=%g", (double)n->p.attn.softcap);
    if (n->p.attn.window > 0)
        text_print(out, " %s=%d", n->p.attn.chunked ? "chunks" : "window", n->p.attn.window);
    if (n->p.attn.both_ways)
        text_print(out, " both-ways");
}

static void print_params(const struct tensor *n, struct text *out)
{
    static const char *const input_name[] = {"token", "position", "zero"};
    switch (n->op) {
    case OP_EMBED:
        text_print(out, " by=%s scale=%g", input_name[n->p.embed.input], (double)n->p.embed.scale);
        break;
    case OP_NORM:
        text_print(out, " %s eps=%g", n->p.norm.kind == NORM_RMS ? "rms" : "layer", (double)n->p.norm.eps);
        if (n->p.norm.group)
            text_print(out, " group=%lld", (long long)n->p.norm.group);
        break;
    case OP_ROPE_TABLE:
        text_print(out, " pairs=%lld mscale=%g inv_freq=%g..%g", (long long)n->p.rope_table.n_pairs,
                   (double)n->p.rope_table.mscale, n->p.rope_table.inv_freq[0],
                   n->p.rope_table.inv_freq[n->p.rope_table.n_pairs - 1]);
        if (n->p.rope_table.growth != 0)
            text_print(out, " growth=%g/%d+%d", (double)n->p.rope_table.growth, n->p.rope_table.period,
                       n->p.rope_table.offset);
        break;
    case OP_ROPE:
        text_print(out, " head=%lld %s", (long long)n->p.rope.head_dim,
                   n->p.rope.layout == ROPE_NORM ? "norm" : "neox");
        break;
    case OP_KV_WRITE:
        text_print(out, " kv=%d %s head=%lld", n->p.kv.layer, n->p.kv.part == KV_KEY ? "key" : "value",
                   (long long)n->p.kv.head_dim);
        break;
    case OP_ATTENTION:
        print_attention(n, out);
        break;
    case OP_ACT:
    case OP_GLU:
    case OP_HEAD_GLU:
        text_print(out, " %s", act_name(n->p.act.kind));
        if (n->op == OP_GLU && n->src[1]->width > n->width)
            text_print(out, " from=%lld", (long long)n->p.act.first);
        break;
    case OP_SCALE:
        text_print(out, " factor=%g", (double)n->p.scale.factor);
        break;
    case OP_SOFTCAP:
    case OP_CLAMP:
        text_print(out, " %s=%g", n->op == OP_CLAMP ? "limit" : "cap", (double)n->p.scale.factor);
        break;
    case OP_XIELU:
        text_print(out, " alpha=%g,%g beta=%g eps=%g", (double)n->p.xielu.alpha_n, (double)n->p.xielu.alpha_p,
                   (double)n->p.xielu.beta, (double)n->p.xielu.eps);
        break;
    case OP_ROUTE:
        text_print(out, " %s used=%d%s scale=%g", route_name(n->p.route.kind), n->p.route.n_used,
                   n->p.route.normalise ? " normalised" : "", (double)n->p.route.scale);
        if (n->p.route.n_group)
            text_print(out, " groups=%d/%d", n->p.route.n_group_used, n->p.route.n_group);
        if (n->p.route.share)
            text_print(out, " share=%d", n->p.route.share);
        break;
    case OP_EXPERT_MATMUL:
        text_print(out, " used=%d%s", n->p.expert.n_used, n->p.expert.shared ? " shared" : "");
        break;
    case OP_EXPERT_COMBINE:
    case OP_EXPERT_WEIGH:
        text_print(out, " used=%d%s", n->p.expert.n_used, n->p.expert.plain ? " plain" : "");
        break;
    case OP_SLICE:
        text_print(out, " of=%lld from=%lld", (long long)n->p.slice.group, (long long)n->p.slice.from);
        break;
    case OP_JOIN:
        text_print(out, " parts=%lld+%lld", (long long)n->p.join.first, (long long)n->p.join.second);
        break;
    case OP_SHORT_CONV:
        text_print(out, " kernel=%d state=%lld", n->p.conv.kernel, (long long)n->p.conv.state);
        break;
    case OP_DELTA_RULE:
        text_print(out, "%s heads=%d/%d dims=%d,%d %s eps=%g state=%lld", n->p.delta.by_channel ? " by-channel" : "",
                   n->p.delta.n_head, n->p.delta.n_head_k, n->p.delta.dim_k, n->p.delta.dim_v,
                   n->p.delta.grouped ? "grouped" : "tiled", (double)n->p.delta.eps, (long long)n->p.delta.state);
        break;
    case OP_SELECTIVE_SCAN:
        text_print(out, " heads=%d/%d dim=%d states=%d b=%lld c=%lld%s state=%lld", n->p.scan.n_head, n->p.scan.n_group,
                   n->p.scan.dim, n->p.scan.n_state, (long long)n->p.scan.b_at, (long long)n->p.scan.c_at,
                   n->p.scan.rates ? " rates" : "", (long long)n->p.scan.state);
        break;
    case OP_QUANTIZE:
        text_print(out, " k=%lld%s", (long long)n->p.quantize.k, n->p.quantize.form == ACT_Q8 ? "" : " 16 bits");
        break;
    case OP_ROWS:
    case OP_MATMUL:
    case OP_ADD:
    case OP_GAIN:
    case OP_COUNT:
        break;
    }
}

// " weight=blk.0.attn_q.weight:Q4_K(4096,4096)"
static void print_weight(const struct weight *w, struct text *out)
{
    text_print(out, " weight=");
    text_print_name(out, w->name ? w->name : "?");
    text_print(out, ":%s(%lld", dtype_info[w->type].name, (long long)w->ne[0]);
    if (w->ne[1] != 1 || w->ne[2] != 1)
        text_print(out, ",%lld", (long long)w->ne[1]);
    if (w->ne[2] != 1)
        text_print(out, ",%lld", (long long)w->ne[2]);
    text_print(out, w->scale ? ")*scale" : ")");
}

static void print_node(const struct tensor *n, struct text *out)
{
    text_print(out, "%4d %-28s %-14s (%s, %lld)", n->id, n->name, op_name(n->op),
               n->rows == ROWS_TOKENS ? "tokens" : "outputs", (long long)n->width);
    for (int i = 0; i < SRC_MAX && n->src[i]; i++)
        text_print(out, "%s%s", i == 0 ? " <- " : ", ", n->src[i]->name);
    for (int i = 0; i < WEIGHT_MAX; i++)
        if (n->w[i])
            print_weight(n->w[i], out);
    print_params(n, out);
    text_print(out, "\n");
}

int graph_print(const struct graph *g, struct text *out)
{
    for (int i = 0; i < g->n_nodes; i++)
        print_node(g->nodes[i], out);
    return out->failed ? -1 : 0;
}
