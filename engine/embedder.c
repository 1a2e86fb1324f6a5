// Packs texts into steps, runs them, and makes a vector of the rows of each.
//
// A step takes the longest text that is left, then longer ones while they fit, then the shortest ones. What follows the
// rows (pooling, the dense layers or the head of some models, the norm) is computed here, in double, since it is little.
#include "engine/embedder.h"
#include "engine/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { SEQS_MAX = 64, POOL_BYTES = 256 << 20 };

struct embedder {
    const struct model *model;
    struct embedder_options o;
    struct plan *plan;
    struct buffer *kv;
    int n_seqs, n_pages, stride;
    int width;     // columns of a hidden row
    int out_width; // elements of a vector
    // A step.
    int n_rows, n_outputs, n_pieces, pages_used;
    int32_t *tokens, *positions, *seqs; // [n_batch]
    int32_t *outputs;                   // [most outputs] rows that are pooled
    int32_t *tables;                    // [n_seqs][stride]
    float *hidden;                      // [most outputs][width]
    struct piece *pieces;               // [n_seqs]
    double *sums;                       // [n_seqs][width] of the rows of each piece's text
    double *scratch[2];                 // [widest] the vector between two products
    float *row;                         // [widest] a row of a matrix
};

// Rows [from, from + n) of a text in a step, all of its sequence.
struct piece {
    const struct embedder_text *text;
    int from, n;
};

// ---- Opening

static enum pooling pooling_of_rows(const struct embedder *e)
{
    return e->o.pooling == POOLING_RANK ? e->model->info.pooling.before_rank : e->o.pooling;
}

static int max_outputs(const struct embedder *e)
{
    const enum pooling p = pooling_of_rows(e);
    return p == POOLING_MEAN || p == POOLING_NONE ? e->o.n_batch : e->n_seqs;
}

static int pages_of(int rows)
{
    return (rows + KV_PAGE - 1) / KV_PAGE;
}

static int set_sizes(struct embedder *e, struct error *err)
{
    const struct graph *g = e->model->graph;
    const struct arch_pooling *p = &e->model->info.pooling;
    struct embedder_options *o = &e->o;
    if (o->n_longest > g->position_rows)
        return fail(err, E_USAGE, "a text of %d tokens; this model knows %lld positions", o->n_longest,
                    (long long)g->position_rows);
    if (g->both_ways) {
        o->n_batch = MAX(o->n_batch, o->n_longest);
        o->kv_type[0] = o->kv_type[1] = DT_F32;
    }
    e->width = e->model->info.n_out;
    e->out_width = e->width;
    for (int i = 0; i < 2 && p->dense[i]; i++)
        e->out_width = (int)p->dense[i]->ne[1];
    if (o->pooling == POOLING_RANK)
        e->out_width = (int)(p->cls_out ? p->cls_out->ne[1] : p->cls ? p->cls->ne[1] : 0);
    if (!e->out_width)
        return fail(err, E_MODEL, "the model is no reranker: it has no cls.weight and no cls.output.weight");
    const size_t page = kv_page_bytes(g, o->kv_type);
    e->stride = pages_of(MAX(o->n_longest, 1));
    e->n_seqs = (int)MIN((size_t)MIN(o->n_batch, (int)SEQS_MAX), MAX((size_t)POOL_BYTES / MAX(page, 1u), 1u));
    e->n_pages = MAX(pages_of(o->n_batch), e->stride) + e->n_seqs;
    return 0;
}

static int alloc(struct embedder *e, struct error *err)
{
    const struct arch_pooling *p = &e->model->info.pooling;
    const size_t n = (size_t)e->o.n_batch, n_seqs = (size_t)e->n_seqs, width = (size_t)e->width;
    size_t widest = MAX(width, (size_t)e->out_width);
    for (int i = 0; i < 2; i++)
        widest = MAX(widest, p->dense[i] ? (size_t)p->dense[i]->ne[1] : 0);
    widest = MAX(widest, p->cls ? (size_t)p->cls->ne[1] : 0);
    e->tokens = calloc(n, sizeof *e->tokens);
    e->positions = calloc(n, sizeof *e->positions);
    e->seqs = calloc(n, sizeof *e->seqs);
    e->outputs = calloc((size_t)max_outputs(e), sizeof *e->outputs);
    e->tables = calloc(n_seqs * (size_t)e->stride, sizeof *e->tables);
    e->hidden = calloc((size_t)max_outputs(e) * width, sizeof *e->hidden);
    e->pieces = calloc(n_seqs, sizeof *e->pieces);
    e->sums = calloc(n_seqs * width, sizeof *e->sums);
    e->scratch[0] = calloc(widest, sizeof(double));
    e->scratch[1] = calloc(widest, sizeof(double));
    e->row = calloc(widest, sizeof *e->row);
    const bool ok = e->tokens && e->positions && e->seqs && e->outputs && e->tables && e->hidden && e->pieces &&
                    e->sums && e->scratch[0] && e->scratch[1] && e->row;
    return ok ? 0 : fail(err, E_MEMORY, "no memory for steps of %d rows", e->o.n_batch);
}

// Compares what a step takes with the memory that is free, before any of it is touched.
static int check_memory(const struct embedder *e, size_t kv_bytes, struct error *err)
{
    const struct machine *m = e->model->machine;
    struct memory_free free_now;
    char need[24], have[24];
    if (m->v->memory)
        return 0;
    memory_query("", &free_now);
    const uint64_t bytes = kv_bytes + (m->v->plan_bytes ? m->v->plan_bytes(e->plan) : 0) +
                           (uint64_t)max_outputs(e) * (uint64_t)e->width * sizeof(float);
    if (bytes <= free_now.bytes)
        return 0;
    memory_format(bytes, need);
    memory_format(free_now.bytes, have);
    return fail(err, E_MEMORY, "%s needed for steps of %d rows, %s free by %s; try a smaller -ub or shorter texts",
                need, e->o.n_batch, have, free_now.limit);
}

int embedder_open(struct embedder **out, const struct model *m, const struct embedder_options *o, struct error *err)
{
    assert(m->hidden);
    struct embedder *e = calloc(1, sizeof *e);
    if (!e)
        return fail(err, E_MEMORY, "no memory for an embedder");
    e->model = m;
    e->o = *o;
    const struct machine_vtable *v = m->machine->v;
    if (set_sizes(e, err))
        goto failed;
    const struct compile_options compile = {
        .max_tokens = e->o.n_batch, .max_outputs = max_outputs(e), .kv_type = {e->o.kv_type[0], e->o.kv_type[1]}};
    if (v->compile(m->machine, m->graph, &compile, &e->plan, err))
        goto failed;
    if (v->watch)
        v->watch(e->plan, e->o.cancel);
    const size_t kv_bytes = kv_page_bytes(m->graph, e->o.kv_type) * (size_t)e->n_pages;
    if (check_memory(e, kv_bytes, err) || alloc(e, err) || v->alloc(m->machine, kv_bytes, &e->kv, err))
        goto failed;
    *out = e;
    return 0;
failed:
    embedder_close(e);
    return -1;
}

void embedder_close(struct embedder *e)
{
    if (!e)
        return;
    const struct machine_vtable *v = e->model->machine->v;
    if (e->kv)
        v->free(e->model->machine, e->kv);
    if (e->plan)
        v->plan_free(e->model->machine, e->plan);
    void *const parts[] = {e->tokens, e->positions, e->seqs,       e->outputs,    e->tables, e->hidden,
                           e->pieces, e->sums,      e->scratch[0], e->scratch[1], e->row,    e};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        free(parts[i]);
}

int embedder_width(const struct embedder *e)
{
    return e->out_width;
}

void embedder_describe(const struct embedder *e, struct text *out)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    text_print(out, "pooling: %s; steps of %d rows, up to %d texts\n", names[e->o.pooling], e->o.n_batch, e->n_seqs);
    e->model->machine->v->describe(e->model->machine, e->plan, out);
}

// ---- A step

static bool is_pooled(const struct embedder *e, const struct piece *p, int i)
{
    switch (pooling_of_rows(e)) {
    case POOLING_FIRST:
        return p->from + i == 0;
    case POOLING_LAST:
        return p->from + i == p->text->n - 1;
    default:
        return true;
    }
}

static void begin_step(struct embedder *e)
{
    e->n_rows = e->n_outputs = e->n_pieces = e->pages_used = 0;
}

// Adds rows of a text. The pages of a text that goes on are those of the step before, whose only text it was.
static void add_piece(struct embedder *e, const struct embedder_text *text, int from, int n)
{
    const int seq = e->n_pieces++;
    const struct piece p = {text, from, n};
    e->pieces[seq] = p;
    for (int i = 0; from == 0 && i < pages_of(text->n); i++)
        e->tables[(size_t)seq * (size_t)e->stride + (size_t)i] = e->pages_used++;
    if (from == 0)
        memset(e->sums + (size_t)seq * (size_t)e->width, 0, (size_t)e->width * sizeof *e->sums);
    for (int i = 0; i < n; i++) {
        if (is_pooled(e, &p, i))
            e->outputs[e->n_outputs++] = e->n_rows;
        e->tokens[e->n_rows] = text->ids[from + i];
        e->positions[e->n_rows] = from + i;
        e->seqs[e->n_rows++] = seq;
    }
}

static bool has_room(const struct embedder *e, const struct embedder_text *text)
{
    return e->n_pieces < e->n_seqs && e->n_rows + text->n <= e->o.n_batch &&
           e->pages_used + pages_of(text->n) <= e->n_pages;
}

// ---- From rows to a vector

// out[j] = sum over i of w[j][i] x[i], plus the bias
static void multiply(struct embedder *e, const struct weight *w, const struct weight *bias, const double *x,
                     double *out)
{
    const int64_t k = w->ne[0];
    for (int64_t j = 0; j < w->ne[1]; j++) {
        double sum = bias ? (double)((const float *)bias->data)[j] : 0;
        dtype_decode[w->type]((const uint8_t *)w->data + (size_t)j * w->row_bytes, e->row, k);
        for (int64_t i = 0; i < k; i++)
            sum += (double)e->row[i] * x[i];
        out[j] = sum;
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static void layer_norm(double *x, int64_t n, const float *gain, double eps)
{
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    for (int64_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(squares / (double)n + eps) * (double)gain[i];
}

static void softmax(double *x, int n)
{
    double greatest = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        greatest = fmax(greatest, x[i]);
    for (int i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - greatest);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

// The scores of a reranker's head. x is one of e->scratch; returns the other or the same.
static double *rank(struct embedder *e, double *x)
{
    const struct arch_pooling *p = &e->model->info.pooling;
    double *y = x == e->scratch[0] ? e->scratch[1] : e->scratch[0];
    if (p->cls) {
        multiply(e, p->cls, p->cls_bias, x, y);
        for (int64_t i = 0; i < p->cls->ne[1]; i++)
            y[i] = p->gelu ? gelu(y[i]) : tanh(y[i]);
        if (p->cls_norm)
            layer_norm(y, p->cls->ne[1], p->cls_norm->data, (double)p->norm_eps);
        double *swap = x;
        x = y, y = swap;
    }
    if (p->cls_out) {
        multiply(e, p->cls_out, p->cls_out_bias, x, y);
        x = y;
    }
    if (p->softmax)
        softmax(x, e->out_width);
    return x;
}

static double length_of(const double *x, int n, int power)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum = power == EMBED_LARGEST ? fmax(sum, fabs(x[i])) : sum + pow(fabs(x[i]), power);
    return power == EMBED_LARGEST ? sum / 32760 : pow(sum, 1.0 / power);
}

// Ends the vector in e->scratch[0] and stores it.
static int finish_vector(struct embedder *e, float *out, struct error *err)
{
    const struct arch_pooling *p = &e->model->info.pooling;
    double *x = e->scratch[0];
    const bool ranks = e->o.pooling == POOLING_RANK;
    for (int i = 0; !ranks && i < 2 && p->dense[i]; i++) {
        double *y = e->scratch[(i + 1) % 2];
        multiply(e, p->dense[i], NULL, x, y);
        x = y;
    }
    if (ranks)
        x = rank(e, x);
    double length = ranks || e->o.normalise < 0 ? 1 : length_of(x, e->out_width, e->o.normalise);
    for (int i = 0; i < e->out_width; i++) {
        out[i] = (float)(length > 0 ? x[i] / length : 0);
        if (!isfinite(x[i]) || !isfinite(out[i]))
            return gguf_check_whole(e->model->file, err)
                       ? -1
                       : fail(err, E_MODEL, "a vector that is not finite: the weights hold values that are no numbers");
    }
    return 0;
}

// Makes vectors of the pooled rows of a piece, the first of which is `hidden`. Returns how many rows these were.
static int pool(struct embedder *e, int seq, const float *hidden, struct error *err)
{
    const struct piece *p = &e->pieces[seq];
    const size_t width = (size_t)e->width;
    double *sums = e->sums + (size_t)seq * width;
    int rows = 0;
    for (int i = 0; i < p->n; i++) {
        if (!is_pooled(e, p, i))
            continue;
        const float *x = hidden + (size_t)rows++ * width;
        for (size_t j = 0; j < width; j++)
            sums[j] = e->o.pooling == POOLING_NONE ? (double)x[j] : sums[j] + (double)x[j];
        if (e->o.pooling != POOLING_NONE)
            continue;
        memcpy(e->scratch[0], sums, width * sizeof *sums);
        if (finish_vector(e, p->text->out + (size_t)(p->from + i) * (size_t)e->out_width, err))
            return -1;
    }
    if (e->o.pooling == POOLING_NONE || p->from + p->n < p->text->n)
        return rows;
    const double n = pooling_of_rows(e) == POOLING_MEAN ? p->text->n : 1;
    for (size_t j = 0; j < width; j++)
        e->scratch[0][j] = sums[j] / n;
    return finish_vector(e, p->text->out, err) ? -1 : rows;
}

static int run_step(struct embedder *e, struct error *err)
{
    const struct machine_vtable *v = e->model->machine->v;
    const struct step step = {.n_tokens = e->n_rows,
                              .n_outputs = e->n_outputs,
                              .tokens = e->tokens,
                              .positions = e->positions,
                              .seqs = e->seqs,
                              .outputs = e->outputs,
                              .pages = e->tables,
                              .pages_stride = e->stride,
                              .kv = e->kv,
                              .logits = e->hidden};
    if (v->run(e->model->machine, e->plan, &step, err))
        return -1;
    const float *hidden = e->hidden;
    for (int i = 0, rows; i < e->n_pieces; i++, hidden += (size_t)rows * (size_t)e->width)
        if ((rows = pool(e, i, hidden, err)) < 0)
            return -1;
    return 0;
}

// ---- All texts

struct order {
    int n;    // tokens
    size_t i; // number of the text
};

static int longer_first(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x->i > y->i) - (x->i < y->i);
}

// A text that is longer than a step, alone.
static int run_long(struct embedder *e, const struct embedder_text *text, struct error *err)
{
    for (int from = 0; from < text->n; from += e->o.n_batch) {
        begin_step(e);
        add_piece(e, text, from, MIN(e->o.n_batch, text->n - from));
        if (run_step(e, err))
            return -1;
    }
    return 0;
}

static bool cancelled(const struct embedder *e)
{
    return e->o.cancel && atomic_load(e->o.cancel);
}

int embedder_run(struct embedder *e, const struct embedder_text *texts, size_t n, struct error *err)
{
    struct order *order = calloc(MAX(n, 1u), sizeof *order);
    if (!order)
        return fail(err, E_MEMORY, "no memory for %zu texts", n);
    for (size_t i = 0; i < n; i++) {
        assert(texts[i].n >= 1 && texts[i].n <= e->o.n_longest);
        order[i] = (struct order){texts[i].n, i};
    }
    qsort(order, n, sizeof *order, longer_first);
    size_t first = 0, end = n; // texts that are left: order[first] is the longest, order[end - 1] the shortest
    int status = 0;
    for (; !status && first < end && order[first].n > e->o.n_batch; first++)
        status = cancelled(e) ? fail(err, E_INTERRUPTED, "interrupted") : run_long(e, &texts[order[first].i], err);
    while (!status && first < end) {
        if (cancelled(e)) {
            status = fail(err, E_INTERRUPTED, "interrupted");
            break;
        }
        begin_step(e);
        while (first < end && has_room(e, &texts[order[first].i]))
            add_piece(e, &texts[order[first].i], 0, order[first].n), first++;
        while (first < end && has_room(e, &texts[order[end - 1].i]))
            end--, add_piece(e, &texts[order[end].i], 0, order[end].n);
        status = run_step(e, err);
    }
    free(order);
    return status;
}
