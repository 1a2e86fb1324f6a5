// Runs one step of a compiled graph on a pool of threads, as a schedule says (kernels/cpu/schedule.h).
//
// Every thread walks through the phases. In a phase it runs the prologue for itself and then takes one item after
// another from a counter that all threads share; on each item it runs the nodes of the item's chain. It enters the
// next phase when all items of this one are done. While it waits it prefetches the weights that it will read first.
//
// What an operation does with an item stands in one function, do_NAME, which calls the kernels of the ISA level
// (kernels/cpu/kernels.h). A table that is made from op.def finds it.
#include "kernels/cpu/item_access.h"
#include "kernels/cpu/host.h"
#include "kernels/cpu/kv_words.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>

enum { CACHE_LINE = 128, BLAS_ROWS = 32 };

// Which items of a phase are taken and how many are done. The first item that thread i takes is item i: it is
// reserved for the thread, which can therefore prefetch its weights while it still waits for the phase. A thread that
// finds no other item takes the reserved ones of threads that have not arrived.
struct counter {
    _Alignas(CACHE_LINE) _Atomic int64_t taken; // of the items that are not reserved
    _Atomic uint64_t begun;                     // bit i: reserved item i is taken
    _Atomic int64_t done;                       // of all items
};
enum { RESERVED_MAX = 64 };

static const struct upcoming not_known = {NULL, 0, 0};

size_t exec_counter_bytes(int n_phases)
{
    return (size_t)n_phases * sizeof(struct counter);
}

// ---- Operations that select rows

static void do_embed(const struct item *it, const struct tensor *n)
{
    const struct run *r = it->run;
    const struct weight *table = n->w[0];
    const int32_t *const inputs[] = {r->step->tokens, r->step->positions, NULL}, *ids = inputs[n->p.embed.input];
    for (int row = it->row0; row < it->row1; row++) {
        float *y = at(it, n, row, 0);
        r->k->decode[table->type](weight_row(table, ids ? ids[row] : 0), y, n->width);
        if (n->p.embed.scale != 1.0f)
            r->k->scale(y, n->p.embed.scale, y, n->width);
    }
}

static void do_rows(const struct item *it, const struct tensor *n)
{
    for (int row = it->row0; row < it->row1; row++)
        memcpy(at(it, n, row, 0), at(it, n->src[0], it->run->step->outputs[row], 0), (size_t)n->width * sizeof(float));
}

// Angles are computed in double: in float they would be off by 3e-3 at position 131071.
static void do_rope_table(const struct item *it, const struct tensor *n)
{
    int64_t pairs = n->p.rope_table.n_pairs;
    for (int row = it->row0; row < it->row1; row++) {
        float *y = at(it, n, row, 0);
        const double factor = rope_table_factor(n, it->run->step->positions[row]);
        for (int64_t i = 0; i < pairs; i++) {
            double sine, cosine;
            sincos(it->run->step->positions[row] * n->p.rope_table.inv_freq[i], &sine, &cosine);
            y[i] = (float)(cosine * factor);
            y[pairs + i] = (float)(sine * factor);
        }
    }
}

static void do_slice(const struct item *it, const struct tensor *n)
{
    const int64_t group = n->p.slice.group, groups = n->src[0]->width / group, width = n->width / groups;
    for (int row = it->row0; row < it->row1; row++)
        for (int64_t i = 0; i < groups; i++)
            memcpy(at(it, n, row, i * width), at(it, n->src[0], row, i * group + n->p.slice.from),
                   (size_t)width * sizeof(float));
}

static void do_join(const struct item *it, const struct tensor *n)
{
    const int64_t first = n->p.join.first, second = n->p.join.second, parts = n->src[0]->width / first;
    const bool same = n->src[1]->width == second;
    for (int row = it->row0; row < it->row1; row++)
        for (int64_t i = 0; i < parts; i++) {
            float *y = at(it, n, row, i * (first + second));
            memcpy(y, at(it, n->src[0], row, i * first), (size_t)first * sizeof(float));
            memcpy(y + first, at(it, n->src[1], row, same ? 0 : i * second), (size_t)second * sizeof(float));
        }
}

// ---- Operations on whole rows or on heads

static void do_norm(const struct item *it, const struct tensor *n)
{
    int64_t group = n->p.norm.group ? n->p.norm.group : n->width;
    const float *gain = n->w[0] ? n->w[0]->data : NULL, *bias = n->w[1] ? n->w[1]->data : NULL;
    for (int row = it->row0; row < it->row1; row++)
        for (int64_t c = it->col0; c < it->col1; c += group)
            it->run->k->norm(
                n->p.norm.kind, at(it, n->src[0], row, c), gain ? gain + (n->p.norm.by_column ? c : 0) : NULL,
                bias ? bias + (n->p.norm.by_column ? c : 0) : NULL, n->p.norm.eps, group, at(it, n, row, c));
}

// A row holds several vectors of k floats, one for each expert that the token chose; each is quantised by itself.
static void quantize_each(const struct item *it, const struct tensor *n)
{
    int64_t k = n->p.quantize.k;
    size_t bytes = q8_row_bytes(k);
    for (int row = it->row0; row < it->row1; row++)
        for (int64_t i = 0; i < n->width / k; i++)
            it->run->k->quantize_q8(at(it, n->src[0], row, i * k), k,
                                    (uint8_t *)row_at(it, n, row) + (size_t)i * bytes);
}

// Copies the item's blocks of a quantised row to the tiles.
static void put_in_tiles(const struct item *it, const struct tensor *n, void *tiles, int row)
{
    for (int64_t span = it->col0 / Q8_BLOCK; span < q8_blocks(it->col1); span++)
        it->run->k->put_q8_tiles(row_at(it, n, row), n->width, span, tiles, rows_of(it->run, n->rows), row);
}

// Quantises the item's columns to tiles only. The rows of one group of Q8_TILE_COLUMNS are quantised in one call,
// because their bytes are interleaved.
static void quantize_tiles(const struct item *it, const struct tensor *n, void *tiles)
{
    const int columns = rows_of(it->run, n->rows);
    const float *x[Q8_TILE_COLUMNS];
    for (int row = it->row0, m; row < it->row1; row += m) {
        m = MIN(it->row1 - row, Q8_TILE_COLUMNS - row % Q8_TILE_COLUMNS);
        for (int j = 0; j < m; j++)
            x[j] = at(it, n->src[0], row + j, it->col0);
        it->run->k->quantize_q8_tiles(x, m, it->col0, it->col1 - it->col0, tiles, columns, row);
    }
}

// Quantises the item's columns of each row; they are whole blocks of Q8_BLOCK.
static void do_quantize(const struct item *it, const struct tensor *n)
{
    const struct kernels *k = it->run->k;
    int64_t c = it->col0;
    if (n->p.quantize.k != n->width) {
        quantize_each(it, n);
        return;
    }
    void *tiles = tiles_of(it, n);
    if (tiles && value_of(it->run, n)->tiles_alone) {
        quantize_tiles(it, n, tiles);
        return;
    }
    for (int row = it->row0; row < it->row1; row++) {
        k->quantize_q8_columns(at(it, n->src[0], row, c), n->width, c, it->col1 - c, row_at(it, n, row));
        if (tiles)
            put_in_tiles(it, n, tiles, row);
    }
}

// Weights of 1, and then the numbers of all experts.
static void route_each(int n, float *y)
{
    for (int32_t j = 0; j < n; j++) {
        y[j] = 1;
        memcpy(y + n + j, &j, sizeof j);
    }
}

static void do_route(const struct item *it, const struct tensor *n)
{
    _Static_assert(2 * SCORED_EXPERTS_MAX * sizeof(float) <= SCRATCH_BYTES, "the scores of experts fit the scratch");
    const struct route_args a = {n->p.route.kind,      (int)n->src[0]->width,   n->p.route.n_used,
                                 n->p.route.normalise, n->p.route.scale,        n->w[0] ? n->w[0]->data : NULL,
                                 n->p.route.n_group,   n->p.route.n_group_used, (float *)it->local,
                                 n->p.route.share};
    for (int row = it->row0; row < it->row1; row++) {
        float *y = at(it, n, row, 0);
        if (a.kind == ROUTE_EACH)
            route_each(a.n_used, y);
        else
            it->run->k->route(&a, at(it, n->src[0], row, 0), y, (int32_t *)(y + a.n_used));
    }
}

static void do_expert_combine(const struct item *it, const struct tensor *n)
{
    for (int row = it->row0; row < it->row1; row++)
        it->run->k->combine(at(it, n->src[0], row, 0), n->p.expert.plain ? NULL : at(it, n->src[1], row, 0),
                            n->p.expert.n_used, n->width, at(it, n, row, 0));
}

static void do_expert_weigh(const struct item *it, const struct tensor *n)
{
    for (int row = it->row0; row < it->row1; row++)
        for (int64_t j = 0, width = n->src[0]->width; j < n->p.expert.n_used; j++)
            it->run->k->scale(at(it, n->src[0], row, 0), *at(it, n->src[1], row, j), at(it, n, row, j * width), width);
}

// ---- Operations on columns

static void do_element(const struct item *it, const struct tensor *n)
{
    const struct kernels *k = it->run->k;
    int64_t c = it->col0, m = it->col1 - it->col0;
    for (int row = it->row0; row < it->row1; row++) {
        const float *x = at(it, n->src[0], row, c);
        float *y = at(it, n, row, c);
        if (n->op == OP_ADD)
            k->add(x, at(it, n->src[1], row, c), y, m);
        else if (n->op == OP_GLU)
            k->glu(n->p.act.kind, x, at(it, n->src[1], row, c + n->p.act.first), y, m);
        else if (n->op == OP_ACT)
            k->act(n->p.act.kind, x, y, m);
        else if (n->op == OP_SCALE)
            k->scale(x, n->p.scale.factor, y, m);
        else if (n->op == OP_XIELU)
            k->xielu(&n->p.xielu, x, y, m);
        else
            (n->op == OP_CLAMP ? k->clamp : k->softcap)(x, n->p.scale.factor, y, m);
    }
}

static void do_gain(const struct item *it, const struct tensor *n)
{
    for (int row = it->row0; row < it->row1; row++)
        it->run->k->glu(ACT_NONE, at(it, n->src[0], row, 0), n->w[0]->data, at(it, n, row, 0), n->width);
}

static void do_rope(const struct item *it, const struct tensor *n)
{
    const struct tensor *table = n->src[1];
    int64_t head = n->p.rope.head_dim;
    for (int row = it->row0; row < it->row1; row++)
        it->run->k->rope(at(it, n->src[0], row, it->col0), at(it, table, row, 0), table->p.rope_table.n_pairs, head,
                         (it->col1 - it->col0) / head, n->p.rope.layout, at(it, n, row, it->col0));
}

// The page that holds `position` of a row's sequence: where it keeps the keys or values of a layer, from slot 0 of KV
// head 0 on. `base` is the first byte of the KV cache.
static uint8_t *kv_page(const struct run *r, int row, int position, int layer, enum kv_part part, uint8_t *base)
{
    const struct step *s = r->step;
    int32_t page = s->pages[(size_t)s->seqs[row] * (size_t)s->pages_stride + (size_t)(position / KV_PAGE)];
    return base + (size_t)page * r->plan->page_bytes + r->plan->kv[layer].part[part];
}

// Encodes a key or value of `dim` floats to a slot. `page` is where the page keeps the slots of its KV head.
static void kv_put(const struct run *r, const float *x, int dim, enum kv_part part, int slot, uint8_t *page)
{
    const enum dtype type = r->plan->options.kv_type[part];
    if (!kv_in_words(type)) {
        r->k->encode[type](x, page + (size_t)slot * dtype_row_bytes(type, dim), dim);
        return;
    }
    uint8_t row[ATTENTION_DIM_MAX / KV_BLOCK * KV_BLOCK_BYTES];
    r->k->encode[type](x, row, dim);
    kv_words_put(row, dim, part, slot, page);
}

static void do_kv_write(const struct item *it, const struct tensor *n)
{
    const struct run *r = it->run;
    int64_t dim = n->p.kv.head_dim;
    size_t head = KV_PAGE * dtype_row_bytes(r->plan->options.kv_type[n->p.kv.part], dim);
    for (int row = it->row0; row < it->row1; row++) {
        int position = r->step->positions[row];
        uint8_t *page = kv_page(r, row, position, n->p.kv.layer, n->p.kv.part, buffer_data(r->step->kv));
        for (int64_t c = it->col0; c < it->col1; c += dim)
            kv_put(r, at(it, n->src[0], row, c), (int)dim, n->p.kv.part, position % KV_PAGE,
                   page + (size_t)(c / dim) * head);
    }
}

// ---- Matrix products

// The rows that a product reads (x) and writes (y): n pointers each, in the thread's own memory, which has room for
// max(max_tokens, max_outputs) of each.
struct row_pointers {
    const void **x;
    float **y;
    int n;
};

// How many pointers to rows of each kind there is room for.
static int rows_most(const struct run *r)
{
    return MAX(r->plan->options.max_tokens, r->plan->options.max_outputs);
}

static struct row_pointers empty_rows(const struct item *it)
{
    const struct plan *p = it->run->plan;
    void *memory = it->local + p->pointers_at;
    return (struct row_pointers){.x = memory, .y = (float **)memory + rows_most(it->run)};
}

// The arguments of the product of `rows` with the item's columns of one matrix of w. q8: activations are in 8 bits.
// Where they are floats, weights of every type are read as reading_of_floats says, although most types are decoded
// first.
static struct matmul_args matmul_of(const struct item *it, const struct weight *w, int64_t matrix,
                                    struct row_pointers rows, bool q8)
{
    const struct plan *p = it->run->plan;
    return (struct matmul_args){.w = weight_row(w, weight_row_number(w, matrix, it->col0)),
                                .w_stride = w->row_bytes,
                                .n_rows = (int)(it->col1 - it->col0),
                                .k = w->ne[0],
                                .type = w->type,
                                .x = rows.x,
                                .n_x = rows.n,
                                .y = rows.y,
                                .scratch = it->local,
                                .next = it->next.w,
                                .next_stride = it->next.stride,
                                .next_rows = it->next.n_rows,
                                .reading = q8 ? p->reading : reading_of_floats(it->run->k, p->reading),
                                .spare_adders = p->spare_adders};
}

static void multiply(const struct run *r, const struct matmul_args *a, bool q8)
{
    (q8 ? r->k->matmul_q8 : r->k->matmul_f32)[a->type](a);
}

static void do_matmul(const struct item *it, const struct tensor *n)
{
    const struct run *r = it->run;
    bool q8 = n->src[0]->op == OP_QUANTIZE;
    struct row_pointers rows = empty_rows(it);
    for (int row = it->row0; row < it->row1; row++) {
        rows.x[rows.n] = row_at(it, n->src[0], row);
        rows.y[rows.n++] = at(it, n, row, it->col0);
    }
    struct matmul_args a = matmul_of(it, n->w[0], 0, rows, q8);
    if (q8) {
        a.x_tiles = tiles_of(it, n->src[0]);
        a.n_tiled = rows_of(r, n->rows);
        a.x_first = it->row0;
    }
    bool done = r->plan->blas && !q8 && rows.n >= BLAS_ROWS &&
                blas_matmul(&a, value_of(r, n->src[0])->row_bytes, value_of(r, n)->row_bytes);
    if (!done)
        multiply(r, &a, q8);
    if (n->w[1])
        for (int j = 0; j < rows.n; j++)
            r->k->add(rows.y[j], (const float *)n->w[1]->data + it->col0, rows.y[j], a.n_rows);
}

// The ids of the n_used experts that a row chose; n is a product of experts.
static const int32_t *expert_ids(const struct item *it, const struct tensor *n, int row)
{
    return (const int32_t *)(at(it, n->src[1], row, 0) + n->p.expert.n_used);
}

// The expert of a choice, or -1: see share_expert.
static int expert_of(const struct item *it, const struct tensor *n, int choice)
{
    const size_t stride = value_of(it->run, n->src[1])->row_bytes / sizeof(int32_t);
    return share_expert(n, rows_of(it->run, n->rows), expert_ids(it, n, 0), stride, choice);
}

// The item's columns of one expert's product, of the rows that were gathered.
static void multiply_expert(const struct item *it, const struct tensor *n, int expert, struct row_pointers rows)
{
    if (!rows.n)
        return;
    const bool q8 = n->src[0]->op == OP_QUANTIZE;
    struct matmul_args a = matmul_of(it, n->w[0], expert, rows, q8);
    multiply(it->run, &a, q8);
    for (int j = 0; n->w[0]->scale && j < rows.n; j++)
        it->run->k->scale(rows.y[j], n->w[0]->scale[expert], rows.y[j], a.n_rows);
    const float *bias = n->w[1] ? (const float *)weight_row(n->w[1], expert) + it->col0 : NULL;
    for (int j = 0; bias && j < rows.n; j++)
        it->run->k->add(rows.y[j], bias, rows.y[j], a.n_rows);
}

// The item's columns of one expert's product, for the rows of the step that chose the expert. A row chooses an expert
// at most once, unless experts share one: then there may be more places than pointers, and they are multiplied in parts.
static void do_expert_matmul(const struct item *it, const struct tensor *n)
{
    const bool q8 = n->src[0]->op == OP_QUANTIZE;
    int used = n->p.expert.n_used, expert = expert_of(it, n, it->choice);
    if (expert < 0)
        return;
    int64_t k = n->w[0]->ne[0];
    size_t x_bytes = n->p.expert.shared ? 0 : q8 ? q8_row_bytes(k) : (size_t)k * sizeof(float);
    struct row_pointers rows = empty_rows(it);
    for (int row = it->row0; row < it->row1; row++) {
        const int32_t *ids = expert_ids(it, n, row);
        for (int j = 0; j < used; j++) {
            if (ids[j] != expert)
                continue;
            if (rows.n == rows_most(it->run)) {
                multiply_expert(it, n, expert, rows);
                rows.n = 0;
            }
            rows.x[rows.n] = (const uint8_t *)row_at(it, n->src[0], row) + (size_t)j * x_bytes;
            rows.y[rows.n++] = at(it, n, row, j * n->w[0]->ne[1] + it->col0);
        }
    }
    multiply_expert(it, n, expert, rows);
}

static void do_attention(const struct item *it, const struct tensor *n)
{
    const struct run *r = it->run;
    const struct plan *p = r->plan;
    const struct step *s = r->step;
    int layer = n->p.attn.layer, group = n->p.attn.n_head / n->p.attn.n_head_kv, dim_k = n->p.attn.dim_k;
    int dim_v = n->p.attn.dim_v;
    int64_t kv_head = it->col0 / (group * dim_v);
    size_t head = (size_t)kv_head * KV_PAGE;
    const enum kv_part part_v = kv_part_stored(&p->graph->kv[layer], KV_VALUE);
    const enum dtype type_k = p->options.kv_type[KV_KEY], type_v = p->options.kv_type[part_v];
    const size_t v_row_bytes = dtype_row_bytes(type_v, kv_dim_stored(&p->graph->kv[layer], KV_VALUE));
    const uint8_t *kv = buffer_data(s->kv);
    struct attention_args a = {
        .q = at(it, n->src[0], it->row0, kv_head * group * dim_k),
        .q_stride = value_of(r, n->src[0])->row_bytes / sizeof(float),
        .out = at(it, n, it->row0, it->col0),
        .out_stride = value_of(r, n)->row_bytes / sizeof(float),
        .n_rows = it->row1 - it->row0,
        .n_head = group,
        .dim_k = dim_k,
        .dim_v = dim_v,
        .scale = n->p.attn.scale,
        .softcap = n->p.attn.softcap,
        .window = n->p.attn.window,
        .chunked = n->p.attn.chunked,
        .both_ways = n->p.attn.both_ways,
        .end = n->p.attn.both_ways ? step_end(s, it->row1 - 1) : 0,
        .sinks = n->w[0] ? (const float *)n->w[0]->data + kv_head * group : NULL,
        .slopes = n->w[1] ? (const float *)n->w[1]->data + kv_head * group : NULL,
        .positions = s->positions + it->row0,
        .seqs = s->seqs + it->row0,
        .pages = s->pages,
        .pages_stride = s->pages_stride,
        .k = kv + p->kv[layer].part[KV_KEY] + head * dtype_row_bytes(type_k, dim_k),
        .v = kv + p->kv[layer].part[KV_VALUE] + head * v_row_bytes,
        .page_bytes = p->page_bytes,
        .v_row_bytes = v_row_bytes,
        .k_type = type_k,
        .v_type = type_v,
        .v_part = part_v,
        .exact = p->exact,
        .scratch = it->local,
        .reading = reading_of_floats(r->k, p->reading),
    };
    r->k->attention(&a);
}

// One function serves all operations on elements.
#define do_act do_element
#define do_glu do_element
#define do_add do_element
#define do_scale do_element
#define do_softcap do_element
#define do_clamp do_element
#define do_xielu do_element

// Every operation of op.def has its kernel here: where one has no function do_NAME, this does not compile.
typedef void do_fn(const struct item *it, const struct tensor *n);
static do_fn *const do_op[] = {
#define OP(NAME, name, class) [OP_##NAME] = do_##name,
#include "kernels/op.def"
#undef OP
};
_Static_assert(COUNT_OF(do_op) == OP_COUNT, "op.def lists every operation");

static bool has_kernel(enum op op)
{
    return (unsigned)op < OP_COUNT && do_op[op];
}

int exec_check(const struct graph *g, struct error *err)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!has_kernel(g->nodes[i]->op))
            return fail(err, E_MODEL, "%s: the CPU machine has no kernel for operation %s", g->nodes[i]->name,
                        op_name(g->nodes[i]->op));
    return 0;
}

// ---- The weights that a thread reads next

// Item i of a chain.
static struct item item_at(const struct run *r, uint8_t *local, const struct chain *c, const struct grid *g, int64_t i)
{
    struct share s = share_at(c, g, i);
    return (struct item){.run = r,
                         .local = local,
                         .first = s.row0,
                         .row0 = s.row0,
                         .row1 = s.row1,
                         .col0 = s.col0,
                         .col1 = s.col1,
                         .choice = s.choice};
}

// The weights of the first product among nodes `from` and later of a chain, for some columns; `otherwise` where none of
// them is a product.
static struct upcoming first_weights(const struct chain *c, int from, int64_t col0, int64_t col1,
                                     struct upcoming otherwise)
{
    for (int i = from; i < c->n_nodes; i++)
        if (c->nodes[i]->op == OP_MATMUL)
            return (struct upcoming){weight_row(c->nodes[i]->w[0], col0), c->nodes[i]->w[0]->row_bytes, col1 - col0};
    return otherwise;
}

// The weights of an item of a chain of experts; unknown where the experts are chosen in a later phase than `phase`.
static struct upcoming expert_weights(const struct run *r, int thread, int phase, const struct tensor *n,
                                      const struct share *s)
{
    const struct item it = {.run = r, .local = local_of(r, thread)};
    const struct weight *w = n->w[0];
    const int expert = value_of(r, n->src[1])->phase > phase ? -1 : expert_of(&it, n, s->choice);
    return expert < 0 ? not_known
                      : (struct upcoming){weight_row(w, weight_row_number(w, expert, s->col0)), w->row_bytes,
                                          s->col1 - s->col0};
}

// The weights that are read first in item i of a chain.
static struct upcoming first_weights_of(const struct run *r, int thread, int phase, const struct chain *c,
                                        const struct grid *g, int64_t i)
{
    struct share s = share_at(c, g, i);
    if (c->kind == CHAIN_EXPERTS)
        return expert_weights(r, thread, phase, c->nodes[0], &s);
    return c->kind == CHAIN_COLUMNS ? first_weights(c, 0, s.col0, s.col1, not_known) : not_known;
}

// Predicts the weights that a thread reads after item i of a phase. Threads mostly take items in turn, so that the
// thread's next item is i + the number of threads. Where the phase has no such item, it is the thread's first item in
// the next phase with weights, of the two that follow. A wrong prediction costs a few useless cache lines.
static struct upcoming predict_after(const struct run *r, int thread, int phase, int64_t i)
{
    i += pool_size(r->pool);
    for (int ph = phase; ph < MIN(phase + 3, r->schedule->n_phases); ph++, i = thread)
        for (int c = 0; c < r->schedule->phases[ph].n_chains; c++) {
            const struct chain *chain = &r->schedule->phases[ph].chains[c];
            const struct grid *g = &r->sharing->grids[ph][c];
            if (ph > phase && chain->kind != CHAIN_COLUMNS && chain->kind != CHAIN_EXPERTS)
                continue; // attention reads no weights: look at what follows it
            if (i < g->items)
                return first_weights_of(r, thread, phase, chain, g, i);
            i -= g->items;
        }
    return not_known;
}

// ---- Items

// Runs n nodes on the item, one after another; whole_rows: on all columns of each.
static void run_nodes(struct item *it, struct tensor *const *nodes, int n, bool whole_rows)
{
    for (int i = 0; i < n; i++) {
        const struct tensor *node = nodes[i];
        if (whole_rows) {
            it->col0 = 0;
            it->col1 = node->op == OP_KV_WRITE ? node->src[0]->width : node->width;
        }
        struct profile *profile = it->run->plan->profile;
        uint64_t since = profile ? profile_now() : 0;
        assert(has_kernel(node->op));
        do_op[node->op](it, node);
        if (profile)
            profile_add(profile, it->thread, node, since);
    }
}

// Once the step is cancelled, the other items of this phase are done by nobody, and so no thread may wait for them: all
// waiting threads are released. A thread that this releases into the next phase sees in last_phase that it must return.
static bool is_cancelled(struct run *r, int phase)
{
    const atomic_bool *cancel = r->plan->cancel;
    if (!cancel || !atomic_load_explicit(cancel, memory_order_relaxed))
        return false;
    atomic_store_explicit(&r->last_phase, phase, memory_order_relaxed);
    pool_reach(r->pool, POOL_END);
    return true;
}

static void run_prologue(const struct run *r, uint8_t *local, int thread, const struct phase *ph)
{
    for (int i = 0; i < ph->n_prologue; i++) {
        struct item it = {.run = r, .local = local, .thread = thread, .row1 = rows_of(r, ph->prologue[i]->rows)};
        run_nodes(&it, &ph->prologue[i], 1, true);
    }
}

// Runs the nodes of a chain on one item: the first n_whole on all of its rows, the others on one tile of rows after
// another. Each product is told the weights that are read after it; the last one is told `after`.
static void run_chain(struct item *it, const struct chain *chain, struct upcoming after)
{
    bool whole_rows = chain->kind == CHAIN_ROWS;
    for (int i = 0; i < chain->n_whole; i++) {
        it->next = first_weights(chain, i + 1, it->col0, it->col1, after);
        run_nodes(it, &chain->nodes[i], 1, whole_rows);
    }
    if (chain->n_whole == chain->n_nodes)
        return;
    for (int row = it->first, end = it->row1; row < end; row += chain->tile) {
        it->row0 = row;
        it->row1 = MIN(end, row + chain->tile);
        run_nodes(it, chain->nodes + chain->n_whole, chain->n_nodes - chain->n_whole, whole_rows);
    }
}

// Runs item i of a phase, counted over all of its chains. False: the phase has no such item.
static bool run_item(const struct run *r, uint8_t *local, int thread, int phase, int64_t i)
{
    const struct phase *ph = &r->schedule->phases[phase];
    int64_t in_chain = i;
    for (int c = 0; c < ph->n_chains; c++) {
        const struct chain *chain = &ph->chains[c];
        const struct grid *g = &r->sharing->grids[phase][c];
        if (in_chain < g->items) {
            struct item it = item_at(r, local, chain, g, in_chain);
            it.thread = thread;
            run_chain(&it, chain, predict_after(r, thread, phase, i));
            return true;
        }
        in_chain -= g->items;
    }
    return false;
}

// True when item i, which is reserved for thread i, was taken by nobody before.
static bool take_reserved(struct counter *c, int64_t i)
{
    uint64_t bit = UINT64_C(1) << i;
    return !(atomic_load_explicit(&c->begun, memory_order_relaxed) & bit) &&
           !(atomic_fetch_or_explicit(&c->begun, bit, memory_order_relaxed) & bit);
}

// The next item for a thread: the one reserved for it, then one that is not reserved, then one reserved for another
// thread. n_items or more: none is left.
static int64_t take_item(struct counter *c, int thread, int64_t n_reserved, int64_t n_items)
{
    if (thread < n_reserved && take_reserved(c, thread))
        return thread;
    int64_t i = n_reserved + atomic_fetch_add_explicit(&c->taken, 1, memory_order_relaxed);
    for (int64_t reserved = 0; i >= n_items && reserved < n_reserved; reserved++)
        if (take_reserved(c, reserved))
            return reserved;
    return i;
}

// Runs items of a phase until none is left. The phase is complete when all items are done, whoever did them: a thread
// that is kept from its core between two items delays nobody.
static void run_items(struct run *r, uint8_t *local, int thread, int phase, int64_t n_items)
{
    struct counter *counter = (struct counter *)r->plan->counters + phase;
    int64_t done = 0, n_reserved = MIN(n_items, MIN(pool_size(r->pool), RESERVED_MAX));
    while (!is_cancelled(r, phase) &&
           run_item(r, local, thread, phase, take_item(counter, thread, n_reserved, n_items)))
        done++;
    if (done && atomic_fetch_add_explicit(&counter->done, done, memory_order_acq_rel) + done == n_items)
        pool_reach(r->pool, (uint32_t)phase + 1);
}

// Copies the logits to the caller's memory unless they were written there. Only the product of a COLUMNS chain is;
// the small graphs of tests have other logits. Thread 0 calls this at the end of a run.
static void copy_logits(const struct run *r, uint8_t *local)
{
    const struct tensor *logits = r->plan->program.logits;
    struct item it = {.run = r, .local = local};
    if (value_of(r, logits)->place == PLACE_OUTPUT)
        return;
    for (int row = 0; row < rows_of(r, logits->rows); row++)
        memcpy(r->step->logits + (size_t)row * (size_t)logits->width, row_at(&it, logits, row),
               (size_t)logits->width * sizeof(float));
}

// Prefetches the weights that a thread reads first in a phase, or after it, one cache line after another, until
// n_phases phases are complete. With few rows the speed of memory is the limit, and a thread that only waits leaves
// half of it unused.
static void prefetch_until(const struct run *r, int thread, int phase, int n_phases)
{
    if (n_phases == 0 || r->schedule->kind != SCHEDULE_FEW)
        return;
    struct upcoming first = predict_after(r, thread, phase - 1, INT64_MAX / 2);
    size_t bytes = first.w ? (size_t)first.n_rows * first.stride : 0;
    for (size_t i = 0; i < bytes && !pool_has_reached(r->pool, (uint32_t)n_phases); i += 64)
        __builtin_prefetch((const char *)first.w + i, 0, 2);
}

// Waits until n_phases phases are complete.
static void wait_for(const struct run *r, int thread, int n_phases)
{
    struct profile *profile = r->plan->profile;
    uint64_t since = profile ? profile_now() : 0;
    pool_wait_for(r->pool, (uint32_t)n_phases);
    if (profile)
        profile_add_wait(profile, thread, since);
}

// Shows the tapped values that a phase made, after all threads have left it. Where each thread has a copy of a value,
// thread 0's is shown.
static void show_taps(const struct run *r, uint8_t *local, int phase)
{
    const struct taps *taps = r->plan->options.taps;
    struct item it = {.run = r, .local = local};
    for (int i = 0; i < taps->n; i++) {
        const struct tensor *n = r->plan->program.of[taps->nodes[i]->id];
        const struct value *v = value_of(r, n);
        if (v->phase == phase)
            taps->see(taps->arg, i, row_at(&it, n, 0), v->row_bytes / sizeof(float), rows_of(r, n->rows));
    }
}

bool *exec_tapped(struct plan *p)
{
    const struct taps *taps = p->options.taps;
    bool *tapped = ARENA_ARRAY(&p->arena, bool, (size_t)p->program.n + 1);
    for (int i = 0; tapped && i < taps->n; i++)
        if (p->program.of[taps->nodes[i]->id])
            tapped[p->program.of[taps->nodes[i]->id]->id] = true;
    return tapped;
}

// All threads wait here while thread 0 shows the tapped values of a phase.
static void meet_and_show(const struct run *r, uint8_t *local, int thread, int phase)
{
    pool_barrier(r->pool);
    if (thread == 0 && phase < r->last_phase)
        show_taps(r, local, phase);
    pool_barrier(r->pool);
}

// What each thread of the pool does in a run. It waits for two things in a phase: before the prologue, that all items
// of the phases before are done; before the items, that every thread has entered phase i - lag. A slower thread could
// otherwise still be reading, in a prologue, a value whose memory this phase's items overwrite.
static void run_thread(void *ctx, int thread)
{
    struct run *r = ctx;
    const struct schedule *s = r->schedule;
    uint8_t *local = local_of(r, thread);
    int needed = 0, all_entered = 0; // phases that must be complete; the latest phase that all threads have entered
    for (int i = 0; i < s->n_phases; i++) {
        int64_t n_items = r->sharing->items[i];
        if (thread == 0 && r->step->part)
            atomic_store_explicit(r->step->part, i * STEP_WHOLE / s->n_phases, memory_order_relaxed);
        prefetch_until(r, thread, i, needed);
        wait_for(r, thread, needed);
        if (i > r->last_phase)
            break;
        pool_pass(r->pool, thread, (uint32_t)i);
        run_prologue(r, local, thread, &s->phases[i]);
        if (i - s->lag > all_entered) // which may be POOL_END
            all_entered = (int)pool_wait_for_all(r->pool, (uint32_t)(i - s->lag));
        run_items(r, local, thread, i, n_items);
        if (r->plan->options.taps)
            meet_and_show(r, local, thread, i);
        if (i >= r->last_phase)
            break;
        if (n_items)
            needed = i + 1;
    }
    pool_pass(r->pool, thread, POOL_END);
    if (thread == 0) {
        wait_for(r, thread, needed);
        if (r->last_phase == INT_MAX)
            copy_logits(r, local);
    }
}

bool exec_run(struct plan *p, struct pool *pool, const struct step *step)
{
    bool few = step->n_tokens <= FEW_ROWS && step->n_outputs <= FEW_ROWS;
    enum schedule_kind kind = few ? SCHEDULE_FEW : SCHEDULE_MANY;
    struct run r = {p, &p->schedules[kind], &p->sharing[kind], step, pool, p->kernels, INT_MAX};
    const int rows[ROWS_KINDS] = {[ROWS_TOKENS] = step->n_tokens, [ROWS_OUTPUTS] = step->n_outputs};
    sharing_update(&p->sharing[kind], r.schedule, rows, pool_size(pool));
    struct counter *counters = p->counters;
    for (int i = 0; i < r.schedule->n_phases; i++) {
        atomic_store_explicit(&counters[i].taken, 0, memory_order_relaxed);
        atomic_store_explicit(&counters[i].begun, 0, memory_order_relaxed);
        atomic_store_explicit(&counters[i].done, 0, memory_order_relaxed);
    }
    pool_run(pool, run_thread, &r);
    return r.last_phase == INT_MAX;
}
