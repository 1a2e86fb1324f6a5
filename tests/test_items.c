// Tests work items: every column is in exactly one item, and with few rows the weights are divided into few long pieces
// so that each thread reads contiguous ones.
#include "kernels/cpu/items.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { CHAINS_MAX = 3, ITEM_WEIGHTS = 1 << 20, LEAST_BYTES = 160 << 10, EXPERTS = 128, USED = 8 };

// A phase of products.
struct cut {
    struct arena arena;
    struct weight w[CHAINS_MAX];
    struct tensor node[CHAINS_MAX];
    struct tensor *nodes[CHAINS_MAX];
    struct chain chains[CHAINS_MAX];
    struct phase phase;
    struct schedule_options o;
};

static void cut_begin(struct cut *c, enum schedule_kind kind, int n_threads)
{
    *c = (struct cut){.o = {.kind = kind, .n_threads = n_threads, .item_weights = ITEM_WEIGHTS}};
    c->phase.chains = c->chains;
}

// A node with k weights per column; k = 0: the sum of two values.
static void add_chain(struct cut *c, enum chain_kind kind, int64_t width, int64_t unit, enum dtype type, int64_t k)
{
    int i = c->phase.n_chains++;
    const bool experts = kind == CHAIN_EXPERTS;
    c->w[i] =
        (struct weight){.type = type, .ne = {k, width, experts ? EXPERTS : 1}, .row_bytes = dtype_row_bytes(type, k)};
    c->node[i] = (struct tensor){.op = experts ? OP_EXPERT_MATMUL : k ? OP_MATMUL : OP_ADD, .w[0] = &c->w[i]};
    if (experts)
        c->node[i].p.expert.n_used = USED;
    c->nodes[i] = &c->node[i];
    c->chains[i] = (struct chain){.kind = kind, .width = width, .unit = unit, .nodes = &c->nodes[i], .n_nodes = 1};
}

static void cut_now(struct cut *c)
{
    cr_assert(items_cut(&c->arena, &c->phase, &c->o));
}

static int compare(const void *a, const void *b)
{
    const struct columns *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static void expect_each_column_once(const struct chain *c)
{
    struct columns *items = malloc((size_t)c->n_items * sizeof(*items));
    int64_t at = 0, widest = 0;
    memcpy(items, c->items, (size_t)c->n_items * sizeof(*items));
    qsort(items, (size_t)c->n_items, sizeof(*items), compare);
    for (int64_t i = 0; i < c->n_items; i++) {
        cr_expect_eq(items[i].from, at, "width %lld, unit %lld", (long long)c->width, (long long)c->unit);
        cr_expect_eq(items[i].from % c->unit, 0);
        cr_expect_gt(items[i].to, items[i].from);
        widest = MAX(widest, items[i].to - items[i].from);
        at = items[i].to;
    }
    cr_expect_eq(at, c->width);
    cr_expect_eq(c->widest, widest);
    free(items);
}

// Checks what each thread reads when all threads get the same number of successive items.
static int64_t most_read(const struct cut *c)
{
    int64_t *read = calloc((size_t)c->o.n_threads, sizeof(*read)), n = 0, most = 0;
    for (int i = 0; i < c->phase.n_chains; i++)
        for (int64_t k = 0; k < c->chains[i].n_items; k++, n++) {
            const struct columns *item = &c->chains[i].items[k];
            int64_t *thread = &read[n % c->o.n_threads];
            *thread += (item->to - item->from) * (int64_t)c->w[i].row_bytes;
            most = MAX(most, *thread);
        }
    free(read);
    return most;
}

static const int64_t widths[] = {1, 31, 32, 33, 64, 100, 128, 256, 500, 896, 2048, 4864, 5632, 14336, 151936};
static const int64_t units[] = {1, 64, 80, 96, 128, 256};
static const int threads[] = {1, 2, 3, 5, 8, 16, 64};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void expect_columns(enum schedule_kind kind, enum chain_kind chain, int64_t width, int64_t unit, int64_t k)
{
    for (size_t t = 0; t < COUNT(threads); t++) {
        struct cut c;
        cut_begin(&c, kind, threads[t]);
        add_chain(&c, chain, width, unit, DT_Q4_K, k);
        add_chain(&c, CHAIN_COLUMNS, 256, 64, DT_Q8_0, k);
        cut_now(&c);
        expect_each_column_once(&c.chains[0]);
        expect_each_column_once(&c.chains[1]);
        arena_free(&c.arena);
    }
}

Test(items, every_column_is_in_one)
{
    static const int64_t lengths[] = {0, 256, 2048, 4096, 14336};
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        for (size_t w = 0; w < COUNT(widths); w++)
            for (size_t u = 0; u < COUNT(units); u++)
                for (size_t r = 0; r < COUNT(lengths) && widths[w] % units[u] == 0; r++) {
                    expect_columns((enum schedule_kind)kind, CHAIN_COLUMNS, widths[w], units[u], lengths[r]);
                    if (lengths[r])
                        expect_columns((enum schedule_kind)kind, CHAIN_EXPERTS, widths[w], units[u], lengths[r]);
                    expect_columns((enum schedule_kind)kind, CHAIN_ATTEND, widths[w], units[u], lengths[r]);
                }
}

Test(items, a_thread_takes_half_of_what_it_has_left)
{
    struct cut c;
    const int64_t part[] = {0, 512, 768, 1024}; // 590, 295 and 295 KB: none is worth halving again
    cut_begin(&c, SCHEDULE_FEW, 2);
    add_chain(&c, CHAIN_COLUMNS, 2048, 1, DT_Q4_K, 2048);
    cut_now(&c);
    cr_assert_eq(c.chains[0].n_items, 6);
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(c.chains[0].items[i].from, i % 2 * 1024 + part[i / 2]);
        cr_expect_eq(c.chains[0].items[i].to, i % 2 * 1024 + part[i / 2 + 1]);
    }
    arena_free(&c.arena);
}

Test(items, a_long_chain_is_cut_in_items_of_the_longest)
{
    struct cut c;
    cut_begin(&c, SCHEDULE_FEW, 2);
    add_chain(&c, CHAIN_COLUMNS, 32000, 1, DT_Q6_K, 2048);
    cut_now(&c);
    const struct chain *chain = &c.chains[0];
    const int64_t n = chain->n_items;
    cr_expect_eq(chain->widest, ITEM_WEIGHTS / 2048);
    for (int64_t i = 0; i + 2 < n; i++)
        cr_expect_eq(chain->items[i].to, chain->items[i + 2].from, "item %lld of %lld", (long long)i, (long long)n);
    cr_expect_leq(n, 2 * (16000 / chain->widest + 4));
    cr_expect_lt((chain->items[n - 1].to - chain->items[n - 1].from) * 1680, 2 * LEAST_BYTES + 32 * 1680);
    arena_free(&c.arena);
}

// Queries, keys and values of a shape: the imbalance at the end is measured over all three products.
Test(items, threads_read_alike)
{
    for (size_t w = 0; w < COUNT(widths); w++)
        for (size_t t = 0; t < COUNT(threads); t++) {
            struct cut c;
            cut_begin(&c, SCHEDULE_FEW, threads[t]);
            add_chain(&c, CHAIN_COLUMNS, widths[w], 1, DT_Q4_K, 2048);
            add_chain(&c, CHAIN_COLUMNS, MIN(widths[w], (int64_t)256), 1, DT_Q4_K, 2048);
            add_chain(&c, CHAIN_COLUMNS, MIN(widths[w], (int64_t)256), 1, DT_Q6_K, 2048);
            cut_now(&c);
            int64_t all = 0;
            for (int i = 0; i < 3; i++)
                all += c.chains[i].width * (int64_t)c.w[i].row_bytes;
            cr_expect_leq(most_read(&c), all / threads[t] + 3 * 32 * 1680, "width %lld, %d threads",
                          (long long)widths[w], threads[t]);
            arena_free(&c.arena);
        }
}

// An expert is divided only as far as needed to give work to threads that would have none.
Test(items, experts_are_cut_as_threads_need)
{
    static const struct {
        enum schedule_kind kind;
        int n_threads, columns;
    } cases[] = {{SCHEDULE_FEW, 1, 384},  {SCHEDULE_FEW, 2, 192},   {SCHEDULE_FEW, 16, 128}, // of 1152 bytes
                 {SCHEDULE_MANY, 2, 768}, {SCHEDULE_MANY, 16, 384}, {SCHEDULE_MANY, 64, 128}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct cut c;
        cut_begin(&c, cases[i].kind, cases[i].n_threads);
        add_chain(&c, CHAIN_EXPERTS, 768, 1, DT_Q4_K, 2048);
        cut_now(&c);
        cr_expect_eq(c.chains[0].widest, cases[i].columns, "%d threads: %lld", cases[i].n_threads,
                     (long long)c.chains[0].widest);
        arena_free(&c.arena);
    }
}

// Keys from an earlier phase are written to the cache by rows. Such a chain has no width, but must run.
Test(items, what_only_stores_is_an_item)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        struct cut c;
        cut_begin(&c, (enum schedule_kind)kind, 2);
        add_chain(&c, CHAIN_ROWS, 0, 1, DT_F32, 0);
        cut_now(&c);
        cr_expect_eq(c.chains[0].n_items, 1);
        arena_free(&c.arena);
    }
}

Test(items, many_rows_go_by_two_panels)
{
    struct cut c;
    cut_begin(&c, SCHEDULE_MANY, 2);
    add_chain(&c, CHAIN_COLUMNS, 5632, 1, DT_Q4_K, 2048);
    cut_now(&c);
    cr_expect_eq(c.chains[0].n_items, 5632 / 128);
    for (int i = 0; i < 5632 / 128; i++)
        cr_expect_eq(c.chains[0].items[i].from, i * 128);
    arena_free(&c.arena);
}
