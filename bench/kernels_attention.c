// Cases of attention: every type of keys and values that a cache may have, one row and many, on pages in the engine's
// layout.
//
// Pages are in a random order, and everything that no row may read is NaN. The reference reads keys and values as plain
// rows, a level in the layout of kv_words.h; both pools are written here. `exact` multiplies 8-bit keys and values as
// floats.
#include "bench/kernel_cases.h"
#include "kernels/cpu.h"
#include "kernels/cpu/kv_words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_HEAD_KV = 2, TIMED_BYTES = 64 << 20, TIMED_HEADS_MAX = 256 };
// Bounds of the NMSE: for sums in float32, and for 16-bit queries and weights times 8-bit codes (kernels.h).
#define FLOAT_BOUND 1e-10
#define WORDS_BOUND 1e-7

struct heads {
    const struct bench *b;
    enum dtype type;
    bool exact;
    int dim_k, dim_v, n_head, n_head_kv; // n_head: query heads of each KV head
    int depth, n_rows, window;
    float softcap;
    int n_pages;
    int32_t *pages, *positions, *seqs;
    size_t page_bytes, head_bytes[2], part_offset[2]; // [enum kv_part]: bytes of a KV head in a page; offset in a page
    struct room pool, reference_pool, q, y;
    void *scratch;
    enum reading reading; // of the level that runs
    struct heads *large;  // the case that is timed, or NULL
};

static int dim_of(const struct heads *h, int part)
{
    return part == KV_KEY ? h->dim_k : h->dim_v;
}

// As in kernels_matmul.c.
static void get_ready(const struct kernels *k, void *data)
{
    struct heads *h = data;
    h->reading = reading_of_floats(k, kernels_reading(k));
}

static void attend(const struct kernels *k, void *data)
{
    const struct heads *h = data;
    struct attention_args a = {.q_stride = (size_t)(h->n_head_kv * h->n_head * h->dim_k),
                               .out_stride = (size_t)(h->n_head_kv * h->n_head * h->dim_v),
                               .n_head = h->n_head,
                               .dim_k = h->dim_k,
                               .dim_v = h->dim_v,
                               .scale = 1 / sqrtf((float)h->dim_k),
                               .softcap = h->softcap,
                               .window = h->window,
                               .pages = h->pages,
                               .pages_stride = h->n_pages,
                               .page_bytes = h->page_bytes,
                               .v_row_bytes = dtype_row_bytes(h->type, h->dim_v),
                               .v_part = KV_VALUE,
                               .k_type = h->type,
                               .v_type = h->type,
                               .exact = h->exact,
                               .scratch = h->scratch,
                               .reading = h->reading};
    const int together = MAX(attention_pairs(h->dim_k, h->dim_v) / h->n_head, 1);
    for (int head = 0; head < h->n_head_kv; head++)
        for (int row = 0; row < h->n_rows; row += together) {
            a.k = h->pool.data + h->part_offset[KV_KEY] + (size_t)head * h->head_bytes[KV_KEY];
            a.v = h->pool.data + h->part_offset[KV_VALUE] + (size_t)head * h->head_bytes[KV_VALUE];
            a.n_rows = MIN(h->n_rows - row, together);
            a.positions = h->positions + row;
            a.seqs = h->seqs + row;
            a.q = room_floats(&h->q) + (size_t)row * a.q_stride + (size_t)(head * h->n_head * h->dim_k);
            a.out = room_floats(&h->y) + (size_t)row * a.out_stride + (size_t)(head * h->n_head * h->dim_v);
            k->attention(&a);
        }
}

// ---- the cache

static void put_row(struct heads *h, const uint8_t *row, int part, int head, int position)
{
    const int dim = dim_of(h, part), slot = position % KV_PAGE;
    const size_t bytes = dtype_row_bytes(h->type, dim);
    const size_t page = (size_t)h->pages[position / KV_PAGE] * h->page_bytes;
    const size_t at = page + h->part_offset[part] + (size_t)head * h->head_bytes[part];
    memcpy(h->reference_pool.data + at + (size_t)slot * bytes, row, bytes);
    if (kv_in_words(h->type))
        kv_words_put(row, dim, (enum kv_part)part, slot, h->pool.data + at);
    else
        memcpy(h->pool.data + at + (size_t)slot * bytes, row, bytes);
}

static void fill_pool(struct heads *h, struct noise *r)
{
    float x[ATTENTION_DIM_MAX];
    uint8_t row[ATTENTION_DIM_MAX * sizeof(float)];
    memset(h->pool.data, 0xff, h->pool.size);
    memset(h->reference_pool.data, 0xff, h->reference_pool.size);
    for (int position = 0; position < h->depth; position++)
        for (int part = 0; part < 2; part++)
            for (int head = 0; head < h->n_head_kv; head++) {
                for (int i = 0; i < dim_of(h, part); i++)
                    x[i] = noise_normal(r);
                dtype_encode[h->type](x, row, dim_of(h, part));
                put_row(h, row, part, head, position);
            }
}

static void scatter_pages(struct heads *h, struct noise *r)
{
    for (int i = 0; i < h->n_pages; i++) {
        int j = (int)(noise_u64(r) % (uint64_t)(i + 1));
        h->pages[i] = h->pages[j];
        h->pages[j] = i;
    }
}

// Makes a case whose rows are the last n_rows positions of one sequence.
static struct heads *heads_new(struct heads shape)
{
    struct noise r = {SEED + 3};
    struct heads *h = must(malloc(sizeof(*h)));
    *h = shape;
    h->n_rows = MIN(h->n_rows, h->depth);
    h->n_pages = (h->depth + KV_PAGE - 1) / KV_PAGE;
    h->pages = must(calloc((size_t)h->n_pages, sizeof(*h->pages)));
    h->positions = must(calloc((size_t)h->n_rows, sizeof(*h->positions)));
    h->seqs = must(calloc((size_t)h->n_rows, sizeof(*h->seqs)));
    scatter_pages(h, &r);
    for (int i = 0; i < h->n_rows; i++)
        h->positions[i] = h->depth - h->n_rows + i;
    for (int part = 0; part < 2; part++)
        h->head_bytes[part] = KV_PAGE * dtype_row_bytes(h->type, dim_of(h, part));
    h->part_offset[KV_VALUE] = (size_t)h->n_head_kv * h->head_bytes[KV_KEY];
    h->page_bytes = h->part_offset[KV_VALUE] + (size_t)h->n_head_kv * h->head_bytes[KV_VALUE];
    h->pool = room_new((size_t)h->n_pages * h->page_bytes);
    h->reference_pool = room_new((size_t)h->n_pages * h->page_bytes);
    fill_pool(h, &r);
    h->q = room_of_noise(&r, (int64_t)h->n_rows * h->n_head_kv * h->n_head * h->dim_k);
    h->y = room_new((size_t)(h->n_rows * h->n_head_kv * h->n_head * h->dim_v) * sizeof(float));
    h->scratch = must(aligned_alloc(64, SCRATCH_BYTES));
    memset(h->scratch, 0xff, SCRATCH_BYTES);
    return h;
}

static void heads_free(struct heads *h)
{
    if (!h)
        return;
    heads_free(h->large);
    room_free(&h->pool);
    room_free(&h->reference_pool);
    room_free(&h->q);
    room_free(&h->y);
    free(h->pages);
    free(h->positions);
    free(h->seqs);
    free(h->scratch);
    free(h);
}

// ---- the reference

static float *reference_of(const struct heads *h)
{
    struct tensor q = {.id = 0, .width = h->n_head_kv * h->n_head * h->dim_k};
    struct tensor n = {.op = OP_ATTENTION, .id = 1, .width = h->n_head_kv * h->n_head * h->dim_v, .src = {&q}};
    n.p.attn.n_head = h->n_head_kv * h->n_head, n.p.attn.n_head_kv = h->n_head_kv;
    n.p.attn.dim_k = h->dim_k, n.p.attn.dim_v = h->dim_v;
    n.p.attn.scale = 1 / sqrtf((float)h->dim_k), n.p.attn.softcap = h->softcap, n.p.attn.window = h->window;
    float *y = must(malloc(h->y.size)), decoded[ATTENTION_DIM_MAX];
    double sums[ATTENTION_DIM_MAX];
    struct step step = {.n_tokens = h->n_rows,
                        .positions = h->positions,
                        .seqs = h->seqs,
                        .pages = h->pages,
                        .pages_stride = h->n_pages};
    ref_node(&(struct ref_run){.step = &step,
                               .values = (float *[]){room_floats(&h->q), y},
                               .kv_type = (enum dtype[]){h->type, h->type},
                               .kv = h->reference_pool.data,
                               .page_bytes = h->page_bytes,
                               .kv_layers = &(struct kv_layer){h->n_head_kv, h->dim_k, h->dim_v, false},
                               .kv_offset = &h->part_offset,
                               .decoded = decoded,
                               .sums = sums},
             &n);
    return y;
}

// ---- cases

// Returns the number of positions that all rows see, added up.
static double seen_by(const struct heads *h)
{
    double seen = 0;
    for (int i = 0; i < h->n_rows; i++)
        seen += h->positions[i] + 1;
    return seen;
}

static struct heads *large_of(const struct heads *small)
{
    struct heads shape = *small;
    shape.depth = small->b->depth;
    size_t head =
        (size_t)shape.depth * (dtype_row_bytes(shape.type, shape.dim_k) + dtype_row_bytes(shape.type, shape.dim_v));
    size_t bytes = shape.n_rows == 1 ? MIN(small->b->bytes, (size_t)TIMED_BYTES) : 1;
    shape.n_head_kv = (int)MIN(bytes / head + 1, (size_t)TIMED_HEADS_MAX);
    return heads_new(shape);
}

static struct timing timing_of(const struct kernels *k, void *data)
{
    struct heads *small = data, *h = small->large ? small->large : (small->large = large_of(small));
    const bool words = kv_in_words(h->type) && !h->exact;
    (void)k;
    return (struct timing){.data = h,
                           .bytes = (double)h->pool.size,
                           .macs = seen_by(h) * h->n_head_kv * h->n_head * (h->dim_k + h->dim_v),
                           .from = h->pool.data,
                           .size = h->pool.size,
                           .unit = words ? UNIT_BYTES : UNIT_FLOATS,
                           .share = words ? 0.5 : 1};
}

static void bench_shape(struct bench *b, struct heads shape)
{
    char what[32];
    struct heads *h = heads_new(shape);
    float *reference = reference_of(h);
    const bool words = kv_in_words(h->type) && !h->exact;
    snprintf(what, sizeof(what), "%s%s", dtype_info[h->type].name, h->exact ? "_exact" : "");
    bench_case(b, &(struct kernel_case){.op = op_name(OP_ATTENTION),
                                        .what = what,
                                        .k = h->dim_k,
                                        .n = h->n_rows,
                                        .data = h,
                                        .ready = get_ready,
                                        .run = attend,
                                        .out = h->y,
                                        .rows = 1,
                                        .row_bytes = h->y.size,
                                        .stride = h->y.size,
                                        .reference = reference,
                                        .exact_from = h->y.size,
                                        .bound = words ? WORDS_BOUND : FLOAT_BOUND,
                                        .timing = timing_of});
    free(reference);
    heads_free(h);
}

// Heads of odd dimensions, alone and in groups, with depths and windows that end inside spans and pages.
static void check_type(struct bench *b, enum dtype type, bool exact)
{
    static const int dims[][2] = {{1, 3}, {17, 5}, {64, 64}, {96, 160}, {576, 512}};
    static const struct {
        int n_head, depth, n_rows, window;
        float softcap;
    } scenes[] = {{1, 1, 1, 0, 0},    {3, 75, 1, 0, 0},   {8, 590, 1, 70, 0},
                  {3, 200, 7, 0, 20}, {2, 590, 33, 0, 0}, {5, 150, 40, 33, 0}};
    for (size_t i = 0; i < COUNT_OF(dims); i++)
        for (size_t j = 0; j < COUNT_OF(scenes); j++)
            if (dims[i][0] % dtype_info[type].block == 0 && dims[i][1] % dtype_info[type].block == 0)
                bench_shape(b, (struct heads){.b = b,
                                              .type = type,
                                              .exact = exact,
                                              .dim_k = dims[i][0],
                                              .dim_v = dims[i][1],
                                              .n_head = scenes[j].n_head,
                                              .n_head_kv = N_HEAD_KV,
                                              .depth = scenes[j].depth,
                                              .n_rows = scenes[j].n_rows,
                                              .window = scenes[j].window,
                                              .softcap = scenes[j].softcap});
}

// Heads as models have them: 8 query heads of 64 or 4 of 128 for each KV head.
static void time_type(struct bench *b, enum dtype type, bool exact)
{
    static const int to_time[] = {1, 128, 0};
    const int dims[] = {b->k ? (int)MIN(b->k, (int64_t)ATTENTION_DIM_MAX) : 64, b->k ? 0 : 128};
    int counts[COUNTS_MAX], n = bench_counts(b, to_time, to_time, counts);
    for (size_t i = 0; i < COUNT_OF(dims) && dims[i] && dims[i] % dtype_info[type].block == 0; i++)
        for (int j = 0; j < n; j++)
            bench_shape(b, (struct heads){.b = b,
                                          .type = type,
                                          .exact = exact,
                                          .dim_k = dims[i],
                                          .dim_v = dims[i],
                                          .n_head = MAX(512 / dims[i], 1),
                                          .n_head_kv = N_HEAD_KV,
                                          .depth = 590,
                                          .n_rows = counts[j]});
}

void bench_attention(struct bench *b, enum op op)
{
    const struct kernels *k = kernels_best();
    for (enum dtype type = 0; type < DT_COUNT; type++)
        for (int exact = 0; exact <= kv_in_words(type); exact++)
            if (bench_wants(b, op_name(op)) && k->encode[type] && (b->type < 0 || (int)type == b->type))
                (b->check_only ? check_type : time_type)(b, type, exact);
}
