// Cuts the columns of each chain into items. A chain is a list of nodes that a thread runs one after another on a part
// of their result columns; such a part is an item, the unit of work that one thread takes. In a matrix product, a
// column of the results reads one row of the weights.
//
// There are two ways to cut:
//   - Few rows of activations, products (not of experts): the time is that of reading the weights. At the start of an
//     item memory needs about a microsecond to reach full speed, in which it could have read 30 KB. So items are as
//     long as balance allows. Each thread has a contiguous part of the columns. The parts are dealt out in rounds, in
//     each of which every thread gets its next item: about half of the thread's share of the bytes of the phase that
//     are not dealt out yet. It begins where the thread's previous item ended. So the last items are short, and the
//     other threads wait little for a late one.
//   - Everything else (many rows, attention heads, experts): items of equal width.
#include "kernels/cpu/items.h"

enum {
    COLUMNS_MANY = 128,      // columns of an item for many rows, which reads all activations once: two panels of 64
    COLUMNS_STEP = 32,       // items begin at multiples of so many columns
    ITEMS_PER_THREAD = 8,    // at least, unless an item would be less than a step
    EXPERT_ITEMS = 16,       // items for each thread, counted over all experts
    BYTES_LEAST = 160 << 10, // of weights: the cost of starting a shorter item exceeds what a more even end gains
};

// The weights of a phase that are not dealt out yet.
struct deal {
    const struct schedule_options *o;
    size_t left; // bytes
};

// The weights that a chain reads for one column: their number and their bytes.
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

// Items begin at multiples of so many columns: whole units, and whole COLUMNS_STEP where that is not too wide.
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

// Columns of an item of experts. An item has costs of its own: the rows that chose the expert are gathered, and
// memory needs time to reach full speed. So items are as wide as is possible with EXPERT_ITEMS for each thread,
// counted over all experts (few rows: those that one row chooses).
static int64_t expert_item(const struct chain *c, const struct schedule_options *o)
{
    const struct tensor *n = c->nodes[0];
    const bool few = o->kind == SCHEDULE_FEW;
    const int64_t experts = few ? n->p.expert.n_used : n->w[0]->ne[2];
    const int64_t columns = c->width * experts / (o->n_threads * EXPERT_ITEMS);
    return MAX(columns, few ? (int64_t)(BYTES_LEAST / column_of(c).bytes) : COLUMNS_MANY);
}

// Columns of an item where all have the same width. There are enough items that the others wait little for a late
// thread.
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

// Whether a chain's columns are dealt out: those of products for few rows. Those of experts are not, because most
// experts are chosen by no row.
static bool is_dealt(const struct chain *c, const struct schedule_options *o)
{
    return o->kind == SCHEDULE_FEW && c->kind == CHAIN_COLUMNS && column_of(c).weights;
}

// Columns of each item in the next round, in which every thread gets one item of the chain. The limit, item_weights,
// is a number of weights and not of bytes, because multiplying takes time by their number, and what is read fast is
// best read in long pieces.
static int64_t next_round(const struct deal *d, const struct chain *c)
{
    const struct column column = column_of(c);
    size_t share = d->left / (size_t)d->o->n_threads, bytes = share < 2 * BYTES_LEAST ? share : share / 2;
    int64_t columns = MIN((int64_t)(bytes / column.bytes), d->o->item_weights / column.weights), step = step_of(c);
    return MAX((columns + step / 2) / step, (int64_t)1) * step;
}

// The first column of a thread's part of a chain: what it takes if all threads are equally fast.
static int64_t part_at(const struct chain *c, int64_t thread, int64_t n_threads)
{
    int64_t step = step_of(c), steps = (c->width + step - 1) / step;
    return MIN(steps * thread / n_threads * step, c->width);
}

// Columns of the widest part.
static int64_t widest_part(const struct chain *c, int64_t n_threads)
{
    int64_t step = step_of(c), of_all = step * n_threads;
    return (c->width + of_all - 1) / of_all * step;
}

// Makes the items of one round after another: item i of a round is for thread i. An item that would leave less than
// half of itself for the next round takes that as well.
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

// Makes at least one item: a chain that only stores has width 0.
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
