// Items of many rows, of heads and of experts are even, and threads take them in turn. The weights of few rows are dealt out
// instead: where an item begins memory takes about a microsecond to come up to speed, in which 30 KB could be read. So
// items are as few as balance allows: each takes half of what its thread has left of the phase, and lies behind the
// thread's last one. The short ones at the end leave little undone where a thread comes late.
#include "kernels/cpu/items.h"

enum {
    COLUMNS_MANY = 128, // two panels of the many-row kernels: each item reads all activations once
    COLUMNS_STEP = 32,
    ITEMS_PER_THREAD = 8,
    EXPERT_ITEMS = 16,       // a thread, of all experts together
    BYTES_LEAST = 160 << 10, // of weights; shorter items cost more than a more even end gains
};

// What is not dealt out yet of a phase.
struct deal {
    const struct schedule_options *o;
    size_t left; // bytes of weights
};

// Weights that a chain reads for one column.
struct column {
    int64_t weights;
    size_t bytes;
};

static struct column column_of(const struct chain *c)
{
    struct column sum = {0, 0};
    for (int i = 0; i < c->n_nodes; i++) {
        const struct tensor *n = c->nodes[i];
        if (op_class(n->op) != CLASS_MATVEC)
            continue;
        sum.weights += n->w[0]->ne[0];
        sum.bytes += n->w[0]->row_bytes;
    }
    return sum;
}

// Items begin at multiples of so many columns.
static int64_t step_of(const struct chain *c)
{
    int64_t step = c->unit;
    while (step % COLUMNS_STEP)
        step += c->unit;
    return step > 4 * COLUMNS_MANY ? c->unit : step; // a head size that shares no factor with the step
}

static void add_item(struct chain *c, int64_t from, int64_t to)
{
    c->items[c->n_items++] = (struct columns){from, to};
    c->widest = MAX(c->widest, to - from);
}

// Columns of an expert's item. There are as many items as experts, or as a row chooses: each is as wide as leaves every thread
// some, for its own activations are gathered for it, and memory is slow to begin.
static int64_t expert_item(const struct chain *c, const struct schedule_options *o)
{
    const struct tensor *n = c->nodes[0];
    const bool few = o->kind == SCHEDULE_FEW;
    const int64_t experts = few ? n->p.expert.n_used : n->w[0]->ne[2];
    const int64_t columns = c->width * experts / (o->n_threads * EXPERT_ITEMS);
    return MAX(columns, few ? (int64_t)(BYTES_LEAST / column_of(c).bytes) : COLUMNS_MANY);
}

// Columns of an item where all are alike: enough items that a thread that comes late leaves little undone.
static int64_t even_item(const struct chain *c, const struct schedule_options *o)
{
    if (c->kind == CHAIN_ROWS)
        return MAX(c->width, (int64_t)1);
    if (c->kind == CHAIN_ATTEND)
        return c->unit;
    int64_t want = COLUMNS_MANY, most = c->width / (o->n_threads * ITEMS_PER_THREAD), step = step_of(c);
    if (c->kind == CHAIN_EXPERTS)
        want = expert_item(c, o), most = c->width;
    else if (o->kind == SCHEDULE_FEW)
        want = o->item_weights / MAX(column_of(c).weights, (int64_t)1);
    want = MIN(want, most);
    return MAX(want / step, (int64_t)1) * step;
}

// Experts' items are not: most of them are chosen by no row.
static bool is_dealt(const struct chain *c, const struct schedule_options *o)
{
    return o->kind == SCHEDULE_FEW && c->kind == CHAIN_COLUMNS && column_of(c).weights;
}

// Columns of a chain's items in the next round, of an item a thread. The most is a number of weights: it takes as long to
// multiply as they are many, and what is read fast is best read in long pieces.
static int64_t next_round(const struct deal *d, const struct chain *c)
{
    const struct column column = column_of(c);
    size_t share = d->left / (size_t)d->o->n_threads, bytes = share < 2 * BYTES_LEAST ? share : share / 2;
    int64_t columns = MIN((int64_t)(bytes / column.bytes), d->o->item_weights / column.weights), step = step_of(c);
    return MAX((columns + step / 2) / step, (int64_t)1) * step;
}

// Where the part of a chain begins that is a thread's if all keep pace.
static int64_t part_at(const struct chain *c, int64_t thread, int64_t n_threads)
{
    int64_t step = step_of(c), steps = (c->width + step - 1) / step;
    return MIN(steps * thread / n_threads * step, c->width);
}

static int64_t widest_part(const struct chain *c, int64_t n_threads)
{
    int64_t step = step_of(c), of_all = step * n_threads;
    return (c->width + of_all - 1) / of_all * step;
}

static void deal_out(struct deal *d, struct chain *c)
{
    const int64_t n_threads = d->o->n_threads, part = widest_part(c, n_threads);
    for (int64_t at = 0, columns; at < part; at += columns) {
        columns = next_round(d, c);
        if (part - at < columns + columns / 2)
            columns = part - at;
        for (int64_t t = 0; t < n_threads; t++) {
            int64_t from = part_at(c, t, n_threads) + at, to = MIN(from + columns, part_at(c, t + 1, n_threads));
            if (from >= to)
                continue;
            add_item(c, from, to);
            d->left -= column_of(c).bytes * (size_t)(to - from);
        }
    }
}

// One at the least: what only stores has no width.
static void cut_evenly(struct chain *c, int64_t columns)
{
    int64_t at = 0;
    do {
        add_item(c, at, MIN(at + columns, c->width));
        at += columns;
    } while (at < c->width);
}

static bool cut(struct arena *arena, struct chain *c, struct deal *d)
{
    const bool dealt = is_dealt(c, d->o);
    const int64_t even = even_item(c, d->o), least = dealt ? step_of(c) : even;
    c->widest = c->n_items = 0;
    c->items = ARENA_ARRAY(arena, struct columns, (size_t)((c->width + least - 1) / least) + 1);
    if (!c->items)
        return false;
    if (dealt)
        deal_out(d, c);
    else
        cut_evenly(c, even);
    return true;
}

bool items_cut(struct arena *arena, struct phase *phase, const struct schedule_options *o)
{
    struct deal d = {o, 0};
    bool room = true;
    for (int i = 0; i < phase->n_chains; i++)
        if (is_dealt(&phase->chains[i], o))
            d.left += column_of(&phase->chains[i]).bytes * (size_t)phase->chains[i].width;
    for (int i = 0; room && i < phase->n_chains; i++)
        room = cut(arena, &phase->chains[i], &d);
    return room;
}
