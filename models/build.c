// Reads the keys that all families share, and builds the parts that all models have: embeddings, norms, projections,
// rope tables, output.
#include "models/build.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

// Limits of sizes. They are far above those of any model, and products of two of them do not overflow in graphs and
// machines.
enum { EMBD_MAX = 1 << 20, HEADS_MAX = 1 << 14, FFN_MAX = 1 << 24 };

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

static bool read_layer_count(struct build *b)
{
    struct hparams *h = &b->h;
    int64_t n = hparam_int(h, "block_count", 1, UINT32_MAX), blocks = count_blocks(h->file);
    if (n != blocks)
        hparam_refuse(h, "block_count", "%" PRId64 " layers, but the tensors are of %" PRId64, n, blocks);
    if ((uint64_t)n > gguf_n_tensors(h->file))
        hparam_refuse(h, "block_count", "%" PRId64 " layers of %zu tensors", n, gguf_n_tensors(h->file));
    b->n_layer = h->fault->code == E_OK ? (int)n : 0;
    return h->fault->code == E_OK;
}

static void read_layers(struct build *b, enum family_kind kind)
{
    const int least = kind == FAMILY_RECURRENT ? 0 : 1; // heads
    struct hparams *h = &b->h;
    if (!read_layer_count(b))
        return;
    b->n_head = ARENA_ARRAY(&b->g->arena, int, (size_t)b->n_layer * 3);
    if (!b->n_head) {
        fail(h->fault, E_MEMORY, "out of memory for %d layers", b->n_layer);
        return;
    }
    b->n_head_kv = b->n_head + b->n_layer;
    b->n_ff = b->n_head_kv + b->n_layer;
    hparam_layers(h, "attention.head_count", b->n_layer, least, HEADS_MAX, b->n_head);
    memcpy(b->n_head_kv, b->n_head, (size_t)b->n_layer * sizeof *b->n_head);
    hparam_layers_or(h, "attention.head_count_kv", b->n_layer, least, HEADS_MAX, b->n_head_kv);
    hparam_layers_or(h, "feed_forward_length", b->n_layer, 0, FFN_MAX, b->n_ff);
    for (int i = 0; i < b->n_layer; i++)
        if (b->n_head_kv[i] && b->n_head[i] % b->n_head_kv[i] != 0)
            hparam_refuse(h, "attention.head_count", "%d heads are no multiple of %d KV heads", b->n_head[i],
                          b->n_head_kv[i]);
}

static void read_head_dims(struct build *b)
{
    struct hparams *h = &b->h;
    int n_head = 0;
    for (int i = 0; i < b->n_layer && !n_head; i++)
        n_head = b->n_head[i];
    if (!n_head) // no attention at all
        return;
    const int whole = b->n_embd / n_head;
    b->dim_k = (int)hparam_int_or(h, "attention.key_length", 1, ATTENTION_DIM_MAX, 0);
    b->dim_v = (int)hparam_int_or(h, "attention.value_length", 1, ATTENTION_DIM_MAX, 0);
    const bool by_heads = !b->dim_k || !b->dim_v;
    if (by_heads && b->n_embd % n_head != 0)
        hparam_refuse(h, "attention.head_count", "%d heads do not share out %d columns", n_head, b->n_embd);
    else if (by_heads && whole > ATTENTION_DIM_MAX)
        hparam_refuse(h, "attention.head_count", "heads of %d columns; up to %d are served", whole,
                      (int)ATTENTION_DIM_MAX);
    b->dim_k = b->dim_k ? b->dim_k : whole;
    b->dim_v = b->dim_v ? b->dim_v : whole;
}

static void read_common(struct build *b, enum family_kind kind, const struct arch_options *o)
{
    struct hparams *h = &b->h;
    read_layers(b, kind);
    b->n_embd = (int)hparam_int(h, "embedding_length", 1, EMBD_MAX);
    b->n_ctx_train = (int)MIN(hparam_int(h, "context_length", 1, UINT32_MAX), INT32_MAX);
    b->n_ctx = o->n_ctx > 0 ? o->n_ctx : b->n_ctx_train;
    b->both_ways = !hparam_flag_or(h, "attention.causal", kind != FAMILY_ENCODER);
    if (h->fault->code == E_OK)
        read_head_dims(b);
}

void build_read_rms(struct build *b)
{
    b->norm_eps = hparam_not_negative(&b->h, "attention.layer_norm_rms_epsilon");
}

void build_read_layer_norm(struct build *b)
{
    b->norm = NORM_LAYER;
    b->norm_eps = hparam_not_negative(&b->h, "attention.layer_norm_epsilon");
}

int build_window(struct build *b, int layer, int window, int period)
{
    static const char key[] = "attention.sliding_window_pattern";
    if (hparam_is_array(&b->h, key))
        return hparam_layer_flag(&b->h, key, layer, b->n_layer + b->n_layer_unused) ? window : 0;
    period = (int)hparam_int_or(&b->h, key, 1, INT32_MAX, period);
    return layer % period == period - 1 ? 0 : window;
}

void build_refuse_prediction(struct build *b)
{
    if (hparam_int_or(&b->h, "nextn_predict_layers", 0, INT32_MAX, 0) > 0)
        hparam_refuse(&b->h, "nextn_predict_layers", "layers that predict further tokens are not supported");
}

void build_skip_prediction(struct build *b)
{
    const int n = (int)hparam_int_or(&b->h, "nextn_predict_layers", 0, INT32_MAX, 0);
    if (n >= b->n_layer && n > 0)
        hparam_refuse(&b->h, "nextn_predict_layers", "%d layers predict further tokens, of %d layers", n, b->n_layer);
    else
        b->n_layer -= n;
    b->ws.n_layer = n ? b->n_layer : 0;
    b->n_layer_unused = n;
}

// ---- Norms and projections

void build_layer(struct build *b, int layer)
{
    b->layer = layer;
    graph_layer(b->g, layer);
    weights_layer(&b->ws, layer);
}

struct tensor *build_norm(struct build *b, const char *name, struct tensor *x)
{
    if (!x)
        return NULL;
    struct norm norm = weights_norm(&b->ws, name, x->width, REQUIRED, b->biases);
    return graph_norm(b->g, name, x, norm.gain, norm.bias, b->norm, b->norm_eps, 0);
}

struct tensor *build_head_norm(struct build *b, const char *name, struct tensor *x, int dim)
{
    struct norm norm = weights_norm(&b->ws, name, dim, REQUIRED, OPTIONAL);
    return graph_norm(b->g, name, x, norm.gain, norm.bias, b->norm, b->norm_eps, dim);
}

struct tensor *build_scale(struct build *b, const char *name, struct tensor *x, float factor)
{
    return factor == 1 ? x : graph_scale(b->g, name, x, factor);
}

static struct tensor *multiply(struct build *b, const char *name, const char *suffix, struct tensor *x, float factor)
{
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, suffix);
    return build_scale(b, full, x, factor);
}

// y plus what adapters make of x.
static struct tensor *add_loras(struct build *b, const char *name, struct tensor *x, struct tensor *y,
                                const struct lora *l)
{
    for (int i = 0; l; i++, l = l->next) {
        char full[64];
        snprintf(full, sizeof full, "%s_lora%d_a", name, i);
        struct tensor *low = graph_matmul(b->g, full, x, l->a, NULL); // (n, rank)
        snprintf(full, sizeof full, "%s_lora%d_b", name, i);
        struct tensor *more = graph_matmul(b->g, full, low, l->b, NULL); // the shape of y
        snprintf(full, sizeof full, "%s_lora%d_scale", name, i);
        more = build_scale(b, full, more, l->scale);
        snprintf(full, sizeof full, "%s_lora%d", name, i);
        y = graph_add(b->g, full, y, more);
    }
    return y;
}

struct tensor *build_project_by(struct build *b, const char *name, struct tensor *x, const struct linear *l)
{
    if (!l->w)
        return NULL;
    x = multiply(b, name, "before", x, l->before);
    struct tensor *y = add_loras(b, name, x, graph_matmul(b->g, name, x, l->w, l->bias), l->loras);
    return multiply(b, name, "after", y, l->after);
}

struct tensor *build_project(struct build *b, const char *name, struct tensor *x, int64_t rows, enum scaled scaled)
{
    if (!x)
        return NULL;
    struct linear l = weights_linear(&b->ws, name, x->width, rows, scaled, REQUIRED, b->biases);
    return build_project_by(b, name, x, &l);
}

// ---- Embeddings and output

// The size of the vocabulary is the number of rows of the embeddings. When the file has a tokenizer, both must agree.
static const struct weight *embeddings(struct build *b)
{
    static const char name[] = "token_embd.weight";
    struct weights *ws = &b->ws;
    const struct weight *w = weights_matrix(ws, name, b->n_embd, 0, REQUIRED);
    const struct gguf_kv *tokens;
    int found = w ? gguf_get_array(ws->file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, ws->fault) : -1;
    if (found < 0)
        return NULL;
    int64_t rows = w->ne[1];
    if (found && tokens->count != (uint64_t)rows)
        weights_refuse(ws, name, "has %" PRId64 " rows, but the vocabulary has %" PRIu64 " tokens", rows,
                       tokens->count);
    if (rows > INT32_MAX)
        weights_refuse(ws, name, "has %" PRId64 " rows, more than tokens can be", rows);
    b->n_vocab = (int)rows;
    return w;
}

struct tensor *build_embed(struct build *b, float scale)
{
    const struct weight *w = embeddings(b);
    return w ? graph_embed(b->g, "tok_embd", w, INPUT_TOKENS, scale) : NULL;
}

void build_last_rows(struct build *b, int layer, struct tensor **x, struct tensor **y)
{
    *y = build_last_rows_of(b, layer, "attn_rows", *y);
    *x = build_last_rows_of(b, layer, "rows", *x);
}

struct tensor *build_last_rows_of(struct build *b, int layer, const char *name, struct tensor *x)
{
    return layer < b->n_layer - 1 ? x : graph_output_rows(b->g, name, x);
}

struct tensor *build_residual(struct build *b, const char *name, struct tensor *x, struct tensor *y, enum scaled scaled)
{
    build_last_rows(b, b->layer, &x, &y);
    y = build_project(b, name, y, b->n_embd, scaled); // (n, n_embd)
    return graph_add(b->g, "attn_residual", x, y);    // (n, n_embd)
}

struct tensor *build_control(struct build *b, struct tensor *x)
{
    const struct weight *direction = control_behind(&b->control, b->layer);
    if (!direction || !x)
        return x;
    struct tensor *v = graph_embed(b->g, "control", direction, INPUT_ZERO, 1); // (n_tok, n_embd)
    if (x->rows == ROWS_OUTPUTS)
        v = graph_output_rows(b->g, "control_rows", v);
    return graph_add(b->g, "controlled", x, v);
}

struct tensor *build_layer_end(struct build *b, const char *name, struct tensor *x, struct tensor *y)
{
    return build_control(b, graph_add(b->g, name, x, y));
}

struct tensor *build_output(struct build *b, struct tensor *x)
{
    build_layer(b, -1);
    return build_logits(b, build_norm(b, "output_norm", x));
}

struct tensor *build_logits(struct build *b, struct tensor *x)
{
    build_layer(b, -1);
    b->hidden = x;
    struct linear l = weights_linear(&b->ws, "output", b->n_embd, b->n_vocab, SCALED_PRODUCT, OPTIONAL, b->output_bias);
    if (!l.w) // tied to the embeddings
        l = (struct linear){.w = embeddings(b), .before = 1, .after = 1};
    return build_project_by(b, "output", x, &l);
}

// ---- Rope

struct tensor *build_rope(struct build *b, const char *name, const struct rope *r, const float *factors)
{
    if (b->h.fault->code != E_OK) // then n_rot may be anything
        return NULL;
    double *inv_freq = ARENA_ARRAY(&b->g->arena, double, (size_t)r->n_rot / 2);
    if (!inv_freq) {
        fail_first(b->h.fault, E_MEMORY, "out of memory for %d frequencies", r->n_rot / 2);
        return NULL;
    }
    rope_frequencies(r, factors, inv_freq);
    b->rotary = true;
    return graph_growing_rope_table(b->g, name, r->n_rot / 2, inv_freq, rope_magnitude(r), r->growth, r->period, 0);
}

const float *build_rope_freqs(struct build *b, const struct rope *r)
{
    return weights_values(&b->ws, "rope_freqs.weight", r->n_rot / 2, true);
}

const float *build_rope_factors_by_context(struct build *b, const struct rope *r)
{
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    return weights_values(&b->ws, names[rope_is_long(r, b->n_ctx)], r->n_rot / 2, true);
}

struct tensor *build_rope_with_factors(struct build *b, const char *name, const struct rope *r)
{
    const bool by_context = r->scaling == ROPE_SCALING_LONGROPE;
    return build_rope(b, name, r, by_context ? build_rope_factors_by_context(b, r) : build_rope_freqs(b, r));
}

// ---- The whole

// The tensors behind the pooled row: layers of any width, one after another.
static void read_pooling(struct build *b)
{
    struct arch_pooling *p = b->pooling;
    struct weights *ws = &b->ws;
    weights_layer(ws, -1);
    p->dense[0] = weights_matrix(ws, "dense_2.weight", b->n_embd, 0, OPTIONAL);
    p->dense[1] = p->dense[0] ? weights_matrix(ws, "dense_3.weight", p->dense[0]->ne[1], 0, OPTIONAL) : NULL;
    p->cls = weights_matrix(ws, "cls.weight", b->n_embd, 0, OPTIONAL);
    const int64_t width = p->cls ? p->cls->ne[1] : b->n_embd;
    p->cls_bias = p->cls ? weights_vector(ws, "cls.bias", width, OPTIONAL) : NULL;
    p->cls_norm = p->cls ? weights_vector(ws, "cls.norm.weight", width, OPTIONAL) : NULL;
    p->norm_eps = b->norm_eps;
    p->cls_out = weights_matrix(ws, "cls.output.weight", width, 0, OPTIONAL);
    p->cls_out_bias = p->cls_out ? weights_vector(ws, "cls.output.bias", p->cls_out->ne[1], OPTIONAL) : NULL;
}

// What an embedding is made of: the last node that all rows of the text have alike.
static struct tensor *result_of(struct build *b, struct tensor *result, enum family_kind kind, bool hidden,
                                struct error *fault)
{
    if (kind == FAMILY_ENCODER || !hidden || fault->code != E_OK)
        return result;
    if (!b->hidden)
        fail_first(fault, E_MODEL, "the family %s makes no embeddings", b->h.arch);
    return b->hidden;
}

static struct tensor *build_checked(struct build *b, build_fn *build, enum family_kind kind,
                                    const struct arch_options *o)
{
    read_common(b, kind, o);
    if (b->h.fault->code != E_OK || weights_open(&b->ws, b->h.file, &b->g->arena, b->h.fault) != 0 ||
        weights_adapt(&b->ws, o->adapters, o->n_adapters, b->h.arch, b->h.fault) != 0 ||
        control_read(&b->control, o->controls, o->n_controls, o->control_range, b->n_embd, b->h.arch, &b->g->arena,
                     b->h.fault) != 0)
        return NULL;
    const int64_t pooling = hparam_int_or(&b->h, "pooling_type", -1, UINT32_MAX, POOLING_NONE);
    if (pooling > POOLING_RANK && pooling != UINT32_MAX)
        hparam_refuse(&b->h, "pooling_type", "%lld is no way to make a vector", (long long)pooling);
    b->pooling->kind =
        pooling >= 0 && pooling <= POOLING_RANK ? (enum pooling)pooling : POOLING_NONE; // writers save -1 for none
    b->pooling->before_rank = POOLING_FIRST;
    struct tensor *result = result_of(b, build(b), kind, o->hidden, b->h.fault);
    read_pooling(b);
    weights_check_unused(&b->ws, b->h.arch);
    if (b->h.fault->code == E_OK)
        control_check_used(&b->control, b->h.arch, b->n_layer, b->h.fault);
    return result;
}

int build_model(const struct gguf *file, const char *arch, build_fn *build, enum family_kind kind,
                const struct arch_options *o, struct graph *g, struct arch_info *info, struct error *err)
{
    struct build b = {.g = g, .h = {.file = file, .arch = arch, .fault = &g->fault}, .norm = NORM_RMS};
    b.biases = OPTIONAL;
    b.pooling = &info->pooling;
    struct tensor *result = build_checked(&b, build, kind, o);
    if (graph_finish(g, result, err) != 0)
        return -1;
    assert(result); // a graph without a result is not finished
    info->n_vocab = b.n_vocab;
    info->n_out = (int)result->width;
    info->rotary = b.rotary;
    info->encoder = b.both_ways || kind == FAMILY_ENCODER;
    info->n_ctx_train = b.n_ctx_train;
    info->n_embd = b.n_embd;
    info->n_layer = b.n_layer;
    info->n_layer_unused = b.n_layer_unused;
    info->sparse_from = b.sparse_from;
    info->n_params = b.ws.n_params;
    info->weight_bytes = b.ws.bytes;
    for (int i = 0; i < b.ws.n_adapters; i++)
        info->weight_bytes += b.ws.adapted[i].bytes;
    return 0;
}
