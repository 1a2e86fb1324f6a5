// What all machines share: the layout of a page of the KV cache, and the checks of graphs and steps.
#include "kernels/machine.h"

enum { KV_ALIGN = 64 };

// ---- The KV cache

// Bytes of the keys or the values of a layer within a page. SIZE_MAX: they do not fit a size_t.
static size_t part_bytes(struct kv_layer kv, const enum dtype kv_type[2], enum kv_part part)
{
    if (kv.keys_only && part == KV_VALUE)
        return 0;
    size_t row = dtype_row_bytes(kv_type[part], part == KV_KEY ? kv.dim_k : kv.dim_v), bytes;
    if (size_mul(row, (size_t)kv.n_head_kv * KV_PAGE, &bytes) || bytes > SIZE_MAX - KV_ALIGN)
        return SIZE_MAX;
    return align_up(bytes, KV_ALIGN);
}

// The bytes of the first n parts; part 2i is the keys of layer i, part 2i + 1 its values.
static size_t parts_bytes(const struct graph *g, const enum dtype kv_type[2], int64_t n)
{
    size_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (size_add(sum, part_bytes(g->kv[i / 2], kv_type, i % 2), &sum))
            return SIZE_MAX;
    return sum;
}

size_t kv_page_bytes(const struct graph *g, const enum dtype kv_type[2])
{
    return parts_bytes(g, kv_type, 2 * (int64_t)g->n_kv);
}

size_t kv_layer_offset(const struct graph *g, const enum dtype kv_type[2], int layer, enum kv_part part)
{
    return parts_bytes(g, kv_type, 2 * (int64_t)layer + kv_part_stored(&g->kv[layer], part));
}

size_t state_bytes(const struct graph *g)
{
    return align_up((size_t)g->state_floats * sizeof(float), KV_ALIGN);
}

static bool is_kv_type(enum dtype type)
{
    return type == DT_F32 || type == DT_F16 || type == DT_BF16 || type == DT_Q8_0 || type == DT_Q4_0;
}

int kv_check(const struct graph *g, const enum dtype kv_type[2], struct error *err)
{
    static const char *const part_names[] = {[KV_KEY] = "key", [KV_VALUE] = "value"};
    for (int part = 0; part < 2; part++) {
        bool known = (unsigned)kv_type[part] < DT_COUNT;
        if (!known || !is_kv_type(kv_type[part]))
            return fail(err, E_USAGE, "the %s cache cannot be of type %s: choose F32, F16, BF16, Q8_0 or Q4_0",
                        part_names[part], known ? dtype_info[kv_type[part]].name : "?");
        for (int i = 0; i < g->n_kv; i++) {
            const enum dtype type = kv_type[kv_part_stored(&g->kv[i], part)];
            int dim = part == KV_KEY ? g->kv[i].dim_k : g->kv[i].dim_v, block = dtype_info[type].block;
            if (dim % block != 0)
                return fail(err, E_USAGE,
                            "the %s cache cannot be of type %s: attention layer %d has heads of %d, no multiple of %d; "
                            "F16 takes any size",
                            part_names[part], dtype_info[type].name, i, dim, block);
        }
    }
    if (kv_page_bytes(g, kv_type) > PTRDIFF_MAX)
        return fail(err, E_MEMORY, "a page of the KV cache is larger than the address space");
    return 0;
}

// ---- Graphs

static int check_taps(const struct graph *g, const struct taps *taps, struct error *err)
{
    for (int i = 0; taps && i < taps->n; i++) {
        const struct tensor *n = taps->nodes[i];
        if (n->id < 0 || n->id >= g->n_nodes || g->nodes[n->id] != n)
            return fail(err, E_USAGE, "a tap on a node of another graph");
        if (n->op == OP_KV_WRITE)
            return fail(err, E_USAGE, "%s goes to the KV cache and has no value to see; its source has one", n->name);
    }
    return 0;
}

int compile_check(const struct graph *g, const struct compile_options *o, struct error *err)
{
    if (!g->logits)
        return fail(err, E_USAGE, "this graph was never finished");
    if (o->max_tokens < 1 || o->max_outputs < 0)
        return fail(err, E_USAGE, "a plan for %d tokens and %d outputs: wanted are 1 or more, and 0 or more",
                    o->max_tokens, o->max_outputs);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < WEIGHT_MAX; k++)
            if (g->nodes[i]->w[k] && !g->nodes[i]->w[k]->data)
                return fail(err, E_USAGE, "%s: the data of its weight is not loaded", g->nodes[i]->name);
    return check_taps(g, o->taps, err) ? -1 : kv_check(g, o->kv_type, err);
}

// ---- Steps

static int check_counts(const struct graph *g, const struct compile_options *o, const struct step *s, struct error *err)
{
    if (s->n_tokens < 1 || s->n_tokens > o->max_tokens)
        return fail(err, E_USAGE, "a step of %d tokens; the plan takes 1 to %d", s->n_tokens, o->max_tokens);
    if (s->n_outputs < 0 || s->n_outputs > o->max_outputs)
        return fail(err, E_USAGE, "a step of %d outputs; the plan takes 0 to %d", s->n_outputs, o->max_outputs);
    if (!s->tokens || !s->positions || !s->seqs || (s->n_outputs > 0 && (!s->outputs || !s->logits)))
        return fail(err, E_USAGE, "a step lacks one of its arrays");
    if (s->top_k < 0 || s->top_k > TOP_K_MAX || s->top_k > g->logits->width || (s->top_k && s->n_outputs && !s->top))
        return fail(err, E_USAGE, "a step that asks for the %d first of %lld logits; up to %d are served", s->top_k,
                    (long long)g->logits->width, (int)TOP_K_MAX);
    if (g->n_kv > 0 && (!s->kv || !s->pages || s->pages_stride < 1))
        return fail(err, E_USAGE, "a step lacks its KV cache or its page tables");
    return 0;
}

static int check_row(const struct graph *g, const struct step *s, int row, struct error *err)
{
    if (s->tokens[row] < 0 || s->tokens[row] >= g->token_rows)
        return fail(err, E_USAGE, "row %d: token %d is not within the vocabulary of %lld", row, s->tokens[row],
                    (long long)g->token_rows);
    if (s->positions[row] < 0 || s->positions[row] == INT32_MAX) // so that position + 1 is a number
        return fail(err, E_USAGE, "row %d: position %d is out of range", row, s->positions[row]);
    if (s->positions[row] >= g->position_rows)
        return fail(err, E_USAGE, "row %d: position %d; this model knows %lld positions, a smaller context would fit",
                    row, s->positions[row], (long long)g->position_rows);
    if (s->seqs[row] < 0)
        return fail(err, E_USAGE, "row %d: sequence %d is negative", row, s->seqs[row]);
    if (g->n_kv > 0 && s->positions[row] / KV_PAGE >= s->pages_stride)
        return fail(err, E_USAGE, "row %d: position %d lies beyond its page table of %d pages", row, s->positions[row],
                    s->pages_stride);
    return 0;
}

static int check_outputs(const struct step *s, struct error *err)
{
    for (int i = 0; i < s->n_outputs; i++) {
        if (s->outputs[i] < 0 || s->outputs[i] >= s->n_tokens)
            return fail(err, E_USAGE, "output %d is row %d of %d", i, s->outputs[i], s->n_tokens);
        if (i > 0 && s->outputs[i] <= s->outputs[i - 1])
            return fail(err, E_USAGE, "output %d is row %d, after row %d: rows must ascend", i, s->outputs[i],
                        s->outputs[i - 1]);
    }
    return 0;
}

int step_check_pages(const struct graph *g, const struct step *s, size_t n_pages, struct error *err)
{
    if (g->n_kv == 0)
        return 0;
    int seq = -1, done_from = 0, done_to = 0; // pages of `seq` that were checked for earlier rows
    for (int row = 0; row < s->n_tokens; row++) {
        int position = s->positions[row];
        int from = g->window > 0 && position >= g->window ? (position - g->window + 1) / KV_PAGE : 0;
        int to = position / KV_PAGE + 1;
        const int32_t *table = s->pages + (size_t)s->seqs[row] * (size_t)s->pages_stride;
        bool same = s->seqs[row] == seq && from >= done_from && from <= done_to;
        for (int i = same ? done_to : from; i < to; i++)
            if (table[i] < 0 || (size_t)table[i] >= n_pages)
                return fail(err, E_USAGE, "row %d: page %d of sequence %d is number %d of %zu", row, i, s->seqs[row],
                            table[i], n_pages);
        done_to = same ? MAX(done_to, to) : to;
        done_from = same ? done_from : from;
        seq = s->seqs[row];
    }
    return 0;
}

// Whether a row before the run of rows that begins at `row` belongs to the same sequence.
static bool has_earlier_run(const struct step *s, int row)
{
    for (int i = row - 1; i >= 0; i--)
        if (s->seqs[i] == s->seqs[row])
            return true;
    return false;
}

int step_check_slots(const struct graph *g, const struct step *s, size_t n_slots, struct error *err)
{
    for (int row = 0; g->state_floats && row < s->n_tokens; row++) {
        const int64_t from = step_begins(s, row) ? s->state_from[row] : -1, to = s->state_to[row];
        if (from < -1 || to < -1 || MAX(from, to) >= (int64_t)n_slots)
            return fail(err, E_USAGE, "row %d: states %lld and %lld of %zu", row, (long long)from, (long long)to,
                        n_slots);
    }
    return 0;
}

// Checks that the rows of each sequence follow each other, as operations with state need it, and attention both ways.
static int check_runs(const struct graph *g, const struct step *s, struct error *err)
{
    if (!g->state_floats && !g->both_ways)
        return 0;
    if (g->state_floats && (!s->state_from || !s->state_to || !s->states))
        return fail(err, E_USAGE, "a step of a graph with state has no slots for it");
    for (int row = 0; row < s->n_tokens; row++) {
        if (!step_begins(s, row) && s->positions[row] != s->positions[row - 1] + 1)
            return fail(err, E_USAGE, "row %d: position %d after %d of its sequence", row, s->positions[row],
                        s->positions[row - 1]);
        if (g->both_ways && step_begins(s, row) && s->positions[row])
            return fail(err, E_USAGE, "row %d: sequence %d begins at position %d; this model sees whole texts only",
                        row, s->seqs[row], s->positions[row]);
        if (step_begins(s, row) && has_earlier_run(s, row))
            return fail(err, E_USAGE, "row %d: the rows of sequence %d do not follow each other", row, s->seqs[row]);
    }
    return step_check_slots(g, s, (size_t)INT32_MAX + 1, err);
}

int step_check(const struct graph *g, const struct compile_options *o, const struct step *s, struct error *err)
{
    if (check_counts(g, o, s, err))
        return -1;
    for (int row = 0; row < s->n_tokens; row++)
        if (check_row(g, s, row, err))
            return -1;
    if (check_outputs(s, err) || check_runs(g, s, err))
        return -1;
    return step_check_pages(g, s, (size_t)INT32_MAX + 1, err);
}

void step_choose(const struct graph *g, const struct step *s)
{
    for (int i = 0; s->top_k && i < s->n_outputs; i++)
        top_k_of(s->logits + (size_t)i * (size_t)g->logits->width, g->logits->width, s->top_k,
                 s->top + (size_t)i * (size_t)s->top_k);
}
