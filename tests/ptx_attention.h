// Shared by the tests of attention on the PTX interpreter: pages of keys and values, steps of rows, device memory, and
// attention computed in double.
//
// The pages of a sequence are in a mixed order. Slots behind its last position may be filled with what is no number, and
// buffers have exactly the size of their contents, so that whatever reads too much is found. Threads: one.
#ifndef QUERN_PTX_ATTENTION_H
#define QUERN_PTX_ATTENTION_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gguf/dtype.h"
#include "kernels/ptx/emit_ops.h"
#include "tests/ptx/interpreter.h"

enum { SEED = 20261121, TEXT = 1 << 20, MAX_ROWS = 64, STRIDE = 24, N_SEQS = 4, N_PAGES = N_SEQS * STRIDE };

static inline uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline float *random_floats(uint64_t *state, size_t n, double scale)
{
    float *x = malloc(n * sizeof(*x));
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(((double)(random_u64(state) >> 11) * 0x1p-52 - 1) * scale);
    return x;
}

struct heads {
    uint32_t n, n_kv, dim_k, dim_v, window, splits;
    float softcap;
    enum dtype k_type, v_type;
    float sinks; // their size, 0: none
    bool chunked;
    bool keys_only; // values are the first dim_v columns of the keys
    float queries;  // the largest element of a query, 0: 2
};

static inline float queries_of(const struct heads *h)
{
    return h->queries > 0 ? h->queries : 2;
}

static inline size_t v_row_bytes(const struct heads *h)
{
    return dtype_row_bytes(h->v_type, h->keys_only ? h->dim_k : h->dim_v);
}

// The rows of a step; the pages of the sequences are in a mixed order.
struct batch {
    int n;
    int32_t positions[MAX_ROWS], seqs[MAX_ROWS];
};

static inline void add_rows(struct batch *r, int32_t seq, int32_t from, int n)
{
    for (int i = 0; i < n; i++, r->n++) {
        cr_assert(r->n < MAX_ROWS);
        r->positions[r->n] = from + i;
        r->seqs[r->n] = seq;
    }
}

struct card {
    struct simt *simt;
    struct error err;
    struct heads h;
    struct ptx_attend a;
    uint8_t *kv;
    uint64_t kv_at;
    int32_t pages[N_PAGES];
    float *sinks; // [heads], or NULL
    uint64_t sinks_at;
    float *slopes; // [heads], or NULL
    uint64_t slopes_at;
    uint64_t state;
    float spike; // the size of one element of each head of a query, here and there; 0: as large as the others
};

static inline uint64_t to_card(struct card *c, const void *data, size_t size)
{
    uint64_t at = simt_alloc(c->simt, size);
    cr_assert(at && (!data || !simt_put(c->simt, at, data, size, &c->err)), "%s", c->err.text);
    return at;
}

// The scale of products of queries and keys: with the usual one the scores of random heads are about 1. Floats have
// their errors tested with larger ones. It makes up for the size of queries.
static inline float scale_of(const struct heads *h, bool halves)
{
    return (halves ? (float)(1 / sqrt(h->dim_k)) : 0.3f) * (2 / queries_of(h));
}

static inline struct card *card_new(struct heads h, bool halves)
{
    struct card *c = calloc(1, sizeof(*c));
    cr_assert(c && (c->simt = simt_new()));
    c->h = h;
    c->state = SEED;
    size_t k_row = dtype_row_bytes(h.k_type, h.dim_k), v_row = v_row_bytes(&h);
    size_t v_at = h.keys_only ? 0 : align_up(h.n_kv * 64 * k_row, 64), page = align_up(v_at + h.n_kv * 64 * v_row, 64);
    c->kv = calloc(N_PAGES, page);
    for (size_t i = 0; i < N_PAGES; i++)
        for (int part = 0; part < 2 - h.keys_only; part++) {
            int64_t n = (int64_t)(h.n_kv * 64 * (part ? h.dim_v : h.dim_k));
            float *x = random_floats(&c->state, (size_t)n, 2);
            dtype_encode[part ? h.v_type : h.k_type](x, c->kv + i * page + (part ? v_at : 0), n);
            free(x);
        }
    c->kv_at = to_card(c, c->kv, N_PAGES * page);
    for (int i = 0; i < N_PAGES; i++)
        c->pages[i] = i * 7 % N_PAGES; // 7 and 96 have no common divisor
    c->a = (struct ptx_attend){.node = 7,
                               .rows = ROWS_TOKENS,
                               .heads = h.n,
                               .heads_kv = h.n_kv,
                               .k = {(uint32_t)page, 0, h.dim_k, h.k_type, 0},
                               .v = {(uint32_t)page, (uint32_t)v_at, h.dim_v, h.v_type, h.keys_only ? h.dim_k : 0},
                               .scale = scale_of(&h, halves),
                               .softcap = h.softcap,
                               .window = h.window,
                               .chunked = h.chunked,
                               .sinks = h.sinks != 0,
                               .halves = halves,
                               .splits = h.splits};
    if (h.sinks != 0) {
        c->sinks = random_floats(&c->state, h.n, (double)h.sinks);
        c->sinks_at = to_card(c, c->sinks, h.n * sizeof(float));
    }
    return c;
}

static inline void card_free(struct card *c)
{
    simt_free(c->simt);
    free(c->kv);
    free(c->sinks);
    free(c->slopes);
    free(c);
}

// The query of a row depends only on its sequence and position.
static inline void fill_query(const struct card *c, int32_t seq, int32_t position, float *q)
{
    uint64_t state = SEED + (uint64_t)seq * 100003 + (uint64_t)position;
    float *x = random_floats(&state, c->h.n * c->h.dim_k, (double)queries_of(&c->h));
    memcpy(q, x, sizeof(float) * c->h.n * c->h.dim_k);
    for (uint32_t head = 0; c->spike > 0 && head < c->h.n; head++) {
        const uint32_t at = ((uint32_t)position + 3 * head + 7 * (uint32_t)seq) % c->h.dim_k;
        if ((head + (uint32_t)position) % 3) // others have none, so that they take another scale
            q[head * c->h.dim_k + at] = (position / 2 + (int32_t)head) % 2 ? c->spike : -c->spike;
    }
    free(x);
}

struct inputs {
    uint64_t step, positions, tables, pages, q, partials, counters, y;
};

static inline struct inputs inputs_of(struct card *c, const struct batch *r)
{
    size_t width = c->h.n * c->h.dim_k;
    float *q = calloc((size_t)r->n * width, sizeof(*q));
    for (int i = 0; i < r->n; i++)
        fill_query(c, r->seqs[i], r->positions[i], q + (size_t)i * width);
    struct ptx_step step = {.rows = {(uint32_t)r->n, 0}, .pages_stride = STRIDE, .kv = c->kv_at};
    size_t counters = ptx_attend_counters(&c->a, (uint32_t)r->n);
    void *zeros = calloc(1, counters);
    struct inputs in = {
        .step = to_card(c, &step, sizeof(step)),
        .positions = to_card(c, r->positions, (size_t)r->n * 4),
        .tables = to_card(c, r->seqs, (size_t)r->n * 4),
        .pages = to_card(c, c->pages, sizeof(c->pages)),
        .q = to_card(c, q, (size_t)r->n * width * 4),
        .partials = to_card(c, NULL, ptx_attend_partials(&c->a, (uint32_t)r->n)),
        .counters = to_card(c, zeros, counters),
        .y = to_card(c, NULL, (size_t)r->n * c->h.n * c->h.dim_v * 4),
    };
    free(zeros);
    free(q);
    return in;
}

static inline void inputs_free(struct card *c, const struct inputs *in)
{
    const uint64_t all[] = {in->step, in->positions, in->tables, in->pages, in->q, in->partials, in->counters, in->y};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        cr_assert_eq(simt_release(c->simt, all[i], &c->err), 0, "%s", c->err.text);
}

// Launches a kernel of `form` for the step's rows, of which a bucket has one more; lanes: the CTAs of a KV head's splits.
static inline int launch_form(struct card *c, const struct inputs *in, const struct simt_kernel *kernel,
                              const struct ptx_launch *l, enum ptx_attend_form form, uint32_t rows, uint32_t lanes,
                              struct error *err)
{
    const bool tiles = form == PTX_ATTEND_TILES;
    struct ptx_attend a = c->a;
    uint64_t args[10] = {in->step, in->positions, in->tables, in->pages, in->q};
    size_t n = 5;
    a.form = form;
    if (a.sinks)
        args[n++] = c->sinks_at;
    if (a.slopes)
        args[n++] = c->slopes_at;
    if (!tiles) {
        args[n++] = in->partials;
        args[n++] = in->counters;
    }
    args[n++] = in->y;
    const uint32_t x = tiles ? (rows + 1 + ptx_attend_tile(&a) - 1) / ptx_attend_tile(&a) : rows + 1;
    return simt_launch(c->simt, kernel, (struct simt_dim){x, l->grid[1], tiles ? 1 : lanes},
                       (struct simt_dim){l->block[0], 1, 1}, l->shared, args, n * 8, err);
}

// ---- slots that nothing has written

// Calls `each` for the keys and for the values of a head in the slots of a page behind the last position of its sequence.
// at: their offset in the pages.
static inline void each_free_slot(struct card *c, const struct batch *r,
                                  void (*each)(struct card *c, size_t at, size_t bytes))
{
    const size_t rows[] = {dtype_row_bytes(c->h.k_type, c->h.dim_k), v_row_bytes(&c->h)};
    int32_t last[N_SEQS] = {-1, -1, -1, -1};
    for (int i = 0; i < r->n; i++)
        last[r->seqs[i]] = MAX(last[r->seqs[i]], r->positions[i]);
    for (int32_t page = 0; page < N_PAGES; page++) {
        const int32_t written = MAX(0, last[page / STRIDE] + 1 - page % STRIDE * 64);
        for (uint32_t head = 0; head < 2 * c->h.n_kv && written < 64; head++) {
            const bool value = head >= c->h.n_kv;
            const size_t slot = (head % c->h.n_kv) * 64 + (size_t)written;
            const size_t at = (size_t)c->pages[page] * c->a.k.page_bytes + (value ? c->a.v.offset : 0);
            each(c, at + slot * rows[value], (64 - (size_t)written) * rows[value]);
        }
    }
}

static inline void spoil_slot(struct card *c, size_t at, size_t bytes)
{
    memset(c->kv + at, 0xff, bytes);
}

// Fills free slots with bytes that are no number in any type.
static inline void spoil_free_slots(struct card *c, const struct batch *r)
{
    each_free_slot(c, r, spoil_slot);
    cr_assert_eq(simt_put(c->simt, c->kv_at, c->kv, (size_t)N_PAGES * c->a.k.page_bytes, &c->err), 0);
}

static inline void forget_slot(struct card *c, size_t at, size_t bytes)
{
    cr_assert_eq(simt_forget(c->simt, c->kv_at + at, bytes, &c->err), 0, "%s", c->err.text);
}

// Makes free slots such as nothing has written.
static inline void forget_free_slots(struct card *c, const struct batch *r)
{
    each_free_slot(c, r, forget_slot);
}

// ---- the reference, in double

static inline double score(const struct card *c, const float *q, const float *k, double bias)
{
    double s = 0;
    for (uint32_t d = 0; d < c->h.dim_k; d++)
        s += (double)q[d] * (double)k[d];
    s *= (double)c->a.scale;
    return (c->h.softcap > 0 ? (double)c->h.softcap * tanh(s / (double)c->h.softcap) : s) + bias;
}

// Largest relative errors: with floats scores of long keys are large, and so are the errors of their exponentials.
// Products on tensor cores are compared by their squared errors: each of a query, a weight, and a key or value of a
// block is rounded to 11 bits, which is 2e-4 of it on average over a binade. Scores of a deviation of 1.2 so have the
// error 2.4e-4 from their queries and once more from keys in blocks, and the sum of squares is at most 2.1e-7. N4 asks
// 1e-6.
enum { ROW_OF_HALVES = 300 }; // in 1e-9
struct errors {
    double worst, largest; // of an element
    double error, size;    // sums of squares
};

static inline struct errors errors_of_head(const struct card *c, const struct batch *r, int row, uint32_t head,
                                           const float *y)
{
    const struct heads *h = &c->h;
    const size_t k_row = dtype_row_bytes(h->k_type, h->dim_k), v_row = v_row_bytes(h);
    const int32_t position = r->positions[row];
    const int32_t low = h->chunked  ? position - position % (int32_t)h->window
                        : h->window ? MAX(0, position - (int32_t)h->window + 1)
                                    : 0;
    float q[8192], k[1024], v[1024];
    cr_assert(h->n * h->dim_k <= COUNT_OF(q));
    fill_query(c, r->seqs[row], position, q);
    double sum = c->sinks ? exp((double)c->sinks[head] - 60) : 0, o[1024] = {0};
    for (int32_t at = low; at <= position; at++) {
        const uint8_t *page = c->kv + (size_t)c->pages[r->seqs[row] * STRIDE + at / 64] * c->a.k.page_bytes;
        size_t slot = head / (h->n / h->n_kv) * 64 + (size_t)at % 64;
        dtype_decode[h->k_type](page + slot * k_row, k, h->dim_k);
        dtype_decode[h->v_type](page + c->a.v.offset + slot * v_row, v, h->dim_v);
        const double bias = c->slopes ? (double)c->slopes[head] * (at - position) : 0;
        double w = exp(score(c, q + head * h->dim_k, k, bias) - 60);
        sum += w;
        for (uint32_t d = 0; d < h->dim_v; d++)
            o[d] += w * (double)v[d];
    }
    struct errors e = {0};
    for (uint32_t d = 0; d < h->dim_v; d++) {
        const double got = (double)y[((size_t)row * h->n + head) * h->dim_v + d], want = o[d] / sum;
        cr_assert(isfinite(got), "row %d is %g", row, got);
        e.worst = fmax(e.worst, fabs(got - want));
        e.largest = fmax(e.largest, fabs(want));
        e.error += (got - want) * (got - want);
        e.size += want * want;
    }
    return e;
}

#endif
