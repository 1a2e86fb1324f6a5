// Builds the graph of a decoder from a struct decoder: reads the keys that all families share, checks that widths fit
// each other, and writes the forward pass once, in straight lines (`forward`): embedding, layers of attention and feed
// forward or experts, final norm and output. A family only describes what differs (llama.c, gpt2.c, ...).
#include "models/decoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

// Limits of sizes. They are far above those of any model, and products of two of them do not overflow in graphs and
// machines.
enum { EMBD_MAX = 1 << 20, HEADS_MAX = 1 << 14, FFN_MAX = 1 << 24, EXPERTS_MAX = 1 << 14 };

// ---- The keys that every family has

// The largest N of all tensors "blk.N.", plus one.
static int64_t count_blocks(const struct gguf *file)
{
    int64_t count = 0;
    for (size_t i = 0; i < gguf_n_tensors(file); i++) {
        struct str name = gguf_tensor_at(file, i)->name;
        if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0)
            continue;
        int64_t n = 0;
        size_t at = 4;
        for (; at < name.len && at < 16 && name.data[at] >= '0' && name.data[at] <= '9'; at++)
            n = 10 * n + (name.data[at] - '0');
        if (at > 4 && at < name.len && name.data[at] == '.')
            count = MAX(count, n + 1);
    }
    return count;
}

static bool make_layers(struct decoder *d, struct hparams *h, struct arena *arena)
{
    int64_t n = hparam_int(h, "block_count", 1, UINT32_MAX), blocks = count_blocks(h->file);
    if (n != blocks)
        hparam_refuse(h, "block_count", "%" PRId64 " layers, but the tensors are of %" PRId64, n, blocks);
    if ((uint64_t)n > gguf_n_tensors(h->file))
        hparam_refuse(h, "block_count", "%" PRId64 " layers of %zu tensors", n, gguf_n_tensors(h->file));
    if (h->fault.code != E_OK)
        return false;
    d->n_layer = (int)n;
    d->layers = ARENA_ARRAY(arena, struct layer, (size_t)n);
    return d->layers || fail(&h->fault, E_MEMORY, "out of memory for %d layers", d->n_layer) == 0;
}

static void read_layers(struct decoder *d, struct hparams *h, struct arena *arena)
{
    if (!make_layers(d, h, arena))
        return;
    int *heads = ARENA_ARRAY(arena, int, (size_t)d->n_layer * 3);
    if (!heads) {
        fail(&h->fault, E_MEMORY, "out of memory for %d layers", d->n_layer);
        return;
    }
    int *heads_kv = heads + d->n_layer, *n_ff = heads_kv + d->n_layer;
    hparam_layers(h, "attention.head_count", d->n_layer, 1, HEADS_MAX, heads);
    memcpy(heads_kv, heads, (size_t)d->n_layer * sizeof *heads);
    hparam_layers_or(h, "attention.head_count_kv", d->n_layer, 1, HEADS_MAX, heads_kv);
    hparam_layers_or(h, "feed_forward_length", d->n_layer, 0, FFN_MAX, n_ff);
    for (int i = 0; i < d->n_layer; i++) {
        d->layers[i] = (struct layer){.n_head = heads[i], .n_head_kv = heads_kv[i], .n_ff = n_ff[i]};
        if (heads[i] % heads_kv[i] != 0)
            hparam_refuse(h, "attention.head_count", "%d heads are no multiple of %d KV heads", heads[i], heads_kv[i]);
    }
}

static void read_head_dims(struct decoder *d, struct hparams *h)
{
    int n_head = d->layers[0].n_head, whole = d->n_embd / n_head;
    d->dim_k = (int)hparam_int_or(h, "attention.key_length", 1, ATTENTION_DIM_MAX, 0);
    d->dim_v = (int)hparam_int_or(h, "attention.value_length", 1, ATTENTION_DIM_MAX, 0);
    const bool by_heads = !d->dim_k || !d->dim_v;
    if (by_heads && d->n_embd % n_head != 0)
        hparam_refuse(h, "attention.head_count", "%d heads do not share out %d columns", n_head, d->n_embd);
    else if (by_heads && whole > ATTENTION_DIM_MAX)
        hparam_refuse(h, "attention.head_count", "heads of %d columns; up to %d are served", whole,
                      (int)ATTENTION_DIM_MAX);
    d->dim_k = d->dim_k ? d->dim_k : whole;
    d->dim_v = d->dim_v ? d->dim_v : whole;
}

// Reads what all families have in common and presets the description.
static void read_common(struct decoder *d, struct hparams *h, const struct arch_options *o, struct arena *arena)
{
    read_layers(d, h, arena);
    d->n_embd = (int)hparam_int(h, "embedding_length", 1, EMBD_MAX);
    d->n_ctx_train = (int)MIN(hparam_int(h, "context_length", 1, UINT32_MAX), INT32_MAX);
    d->n_ctx = o->n_ctx > 0 ? o->n_ctx : d->n_ctx_train;
    if (h->fault.code != E_OK)
        return;
    read_head_dims(d, h);
    d->embed_scale = 1;
    d->attn_scale = 1 / sqrtf((float)d->dim_k);
    d->expert.scale = 1;
}

void decoder_read_experts(struct decoder *d, struct hparams *h)
{
    d->expert.n = (int)hparam_int_or(h, "expert_count", 0, EXPERTS_MAX, 0);
    d->expert.n_used = (int)hparam_int_or(h, "expert_used_count", 0, EXPERTS_MAX, 0);
    if (d->expert.n_used > d->expert.n || (d->expert.n && !d->expert.n_used))
        hparam_refuse(h, "expert_used_count", "%d experts are used of %d", d->expert.n_used, d->expert.n);
    d->expert.scale = hparam_factor_or(h, "expert_weights_scale", 1);
    d->expert.normalise = true;
}

void decoder_read_expert_width(struct decoder *d, struct hparams *h)
{
    d->expert.n_ff = (int)hparam_int_or(h, "expert_feed_forward_length", 0, FFN_MAX, 0);
    if (!d->expert.n_ff && d->expert.n_used)
        d->expert.n_ff = d->layers[0].n_ff / d->expert.n_used;
}

static void check_widths(const struct decoder *d, struct hparams *h)
{
    bool in_experts = d->expert.n && d->expert.n_ff;
    for (int i = 0; i < d->n_layer; i++)
        if (!d->layers[i].n_ff && !in_experts)
            hparam_refuse(h, "feed_forward_length", "layer %d has none", i);
}

// ---- The forward

static struct tensor *normalise(struct graph *g, const struct decoder *d, const char *name, struct tensor *x,
                                struct norm norm)
{
    return norm.present ? graph_norm(g, name, x, norm.gain, norm.bias, d->norm, d->norm_eps, 0) : x;
}

// Normalises each head separately: groups of dim_k columns, as many as the gain has.
static struct tensor *normalise_heads(struct graph *g, const struct decoder *d, const char *name, struct tensor *x,
                                      struct norm norm)
{
    return norm.present ? graph_norm(g, name, x, norm.gain, norm.bias, d->norm, d->norm_eps, d->dim_k) : x;
}

static struct tensor *multiply(struct graph *g, const char *name, const char *suffix, struct tensor *x, float factor)
{
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, suffix);
    return factor == 1 ? x : graph_scale(g, full, x, factor);
}

static struct tensor *project(struct graph *g, const char *name, struct tensor *x, const struct linear *l)
{
    x = multiply(g, name, "before", x, l->before);
    x = graph_matmul(g, name, x, l->w, l->bias);
    return multiply(g, name, "after", x, l->after);
}

static struct tensor *rotate(struct graph *g, const struct decoder *d, const char *name, struct tensor *x,
                             struct tensor *table)
{
    return d->rotary ? graph_rope(g, name, x, table, d->dim_k, d->rope_layout) : x;
}

static struct tensor *rope_table(struct graph *g, const struct decoder *d, const char *name, const double *inv_freq)
{
    return inv_freq ? graph_rope_table(g, name, d->rope.n_rot / 2, inv_freq, rope_magnitude(&d->rope)) : NULL;
}

static struct tensor *attend(struct graph *g, const struct decoder *d, const struct layer *l, struct tensor *x,
                             struct tensor *table)
{
    struct tensor *q = project(g, "attn_q", x, &l->q);      // (n_tok, n_head * dim_k)
    struct tensor *k = project(g, "attn_k", x, &l->k);      // (n_tok, n_head_kv * dim_k)
    struct tensor *v = project(g, "attn_v", x, &l->v);      // (n_tok, n_head_kv * dim_v)
    q = normalise_heads(g, d, "attn_q_norm", q, l->q_norm); // (n_tok, n_head * dim_k)
    k = normalise_heads(g, d, "attn_k_norm", k, l->k_norm); // (n_tok, n_head_kv * dim_k)
    q = rotate(g, d, "attn_q_rope", q, table);              // (n_tok, n_head * dim_k)
    k = rotate(g, d, "attn_k_rope", k, table);              // (n_tok, n_head_kv * dim_k)

    int cache = graph_kv_layer(g, l->n_head_kv, d->dim_k, d->dim_v);
    k = graph_kv_write(g, "attn_k_cache", k, cache, KV_KEY);
    v = graph_kv_write(g, "attn_v_cache", v, cache, KV_VALUE);
    struct attention_params p = {l->n_head, d->attn_scale, d->attn_softcap, l->window};
    return graph_attention(g, "attn", q, k, v, p); // (n_tok, n_head * dim_v)
}

static struct tensor *feed_forward(struct graph *g, const struct decoder *d, const struct layer *l, struct tensor *x)
{
    struct tensor *up = project(g, "ffn_up", x, &l->up); // (n, n_ff)
    if (!l->gate.w)
        return project(g, "ffn_down", graph_act(g, "ffn_act", up, d->act), &l->down);
    struct tensor *gate = project(g, "ffn_gate", x, &l->gate);
    struct tensor *y = graph_glu(g, "ffn_glu", gate, up, d->act);
    return project(g, "ffn_down", y, &l->down); // (n, n_embd)
}

static struct tensor *mixture(struct graph *g, const struct decoder *d, const struct layer *l, struct tensor *x)
{
    struct tensor *logits = project(g, "ffn_gate_inp", x, &l->router); // (n, n_expert)
    struct tensor *route = graph_route(g, "ffn_route", logits, ROUTE_SOFTMAX, d->expert.n_used, d->expert.normalise,
                                       d->expert.scale);                                   // (n, 2 * n_used)
    struct tensor *gate = graph_expert_matmul(g, "ffn_gate_exps", x, l->gate_exps, route); // (n, n_used * n_ff)
    struct tensor *up = graph_expert_matmul(g, "ffn_up_exps", x, l->up_exps, route);       // (n, n_used * n_ff)
    struct tensor *y = graph_glu(g, "ffn_glu", gate, up, d->act);                          // (n, n_used * n_ff)
    y = graph_expert_matmul(g, "ffn_down_exps", y, l->down_exps, route);                   // (n, n_used * n_embd)
    return graph_expert_combine(g, "ffn_moe", y, route);                                   // (n, n_embd)
}

static struct tensor *embed(struct graph *g, const struct decoder *d)
{
    struct tensor *x = graph_embed(g, "tok_embd", d->tok_embd, INPUT_TOKENS, d->embed_scale); // (n_tok, n_embd)
    if (!d->learned_positions)
        return x;
    struct tensor *pos = graph_embed(g, "pos_embd", d->pos_embd, INPUT_POSITIONS, 1); // (n_tok, n_embd)
    return graph_add(g, "embd", x, pos);
}

// The forward pass of all families. A part that the model does not have returns its input. In the shapes, n is n_tok,
// and from the output projection of the last layer's attention on the number of rows that want logits.
static struct tensor *forward(struct graph *g, const struct decoder *d)
{
    struct tensor *far = rope_table(g, d, "rope", d->inv_freq); // (n_tok, n_rot)
    struct tensor *near = d->window_inv_freq ? rope_table(g, d, "rope_window", d->window_inv_freq) : far;
    struct tensor *x = embed(g, d); // (n_tok, n_embd)

    for (int i = 0; i < d->n_layer; i++) {
        const struct layer *l = &d->layers[i];
        graph_layer(g, i);
        struct tensor *y = normalise(g, d, "attn_norm", x, l->attn_norm); // (n_tok, n_embd)
        y = attend(g, d, l, y, l->window ? near : far);                   // (n_tok, n_head * dim_v)
        if (i == d->n_layer - 1) { // no later node mixes rows, so only the rows that want logits are computed on
            y = graph_output_rows(g, "attn_rows", y);
            x = graph_output_rows(g, "rows", x);
        }
        y = project(g, "attn_output", y, &l->o);                          // (n, n_embd)
        y = normalise(g, d, "post_attention_norm", y, l->attn_post_norm); // (n, n_embd)
        x = graph_add(g, "attn_residual", x, y);                          // (n, n_embd)

        y = normalise(g, d, "ffn_norm", x, l->ffn_norm);                  // (n, n_embd)
        y = l->router.w ? mixture(g, d, l, y) : feed_forward(g, d, l, y); // (n, n_embd)
        y = normalise(g, d, "post_ffw_norm", y, l->ffn_post_norm);        // (n, n_embd)
        x = graph_add(g, "ffn_residual", x, y);                           // (n, n_embd)
    }
    graph_layer(g, -1);
    x = normalise(g, d, "output_norm", x, d->output_norm); // (n, n_embd)
    x = project(g, "output", x, &d->output);               // (n, n_vocab)
    return d->logit_softcap > 0 ? graph_softcap(g, "output_softcap", x, d->logit_softcap) : x;
}

// ---- The whole

static int take_fault(const struct error *fault, struct error *err)
{
    if (err)
        *err = *fault;
    return -1;
}

int decoder_build(const struct gguf *file, const char *arch, decoder_describe_fn *describe,
                  const struct arch_options *o, struct graph *g, struct arch_info *info, struct error *err)
{
    struct decoder d = {0};
    struct hparams h = {.file = file, .arch = arch};
    read_common(&d, &h, o, &g->arena);
    if (h.fault.code != E_OK)
        return take_fault(&h.fault, err);
    describe(&d, &h);
    check_widths(&d, &h);
    if (h.fault.code != E_OK)
        return take_fault(&h.fault, err);

    struct weights ws;
    if (weights_open(&ws, file, &g->arena, err) != 0)
        return -1;
    decoder_load(&d, &ws);
    weights_check_unused(&ws, arch);
    if (ws.fault.code != E_OK)
        return take_fault(&ws.fault, err);
    if (graph_finish(g, forward(g, &d), err) != 0)
        return -1;

    info->n_vocab = d.n_vocab;
    info->n_ctx_train = d.n_ctx_train;
    info->n_embd = d.n_embd;
    info->n_layer = d.n_layer;
    info->n_params = ws.n_params;
    info->weight_bytes = ws.bytes;
    return 0;
}
