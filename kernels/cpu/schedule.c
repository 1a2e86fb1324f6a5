// Builds a schedule: places each node in a phase, and each value in memory.
//
// Nodes are taken in the order of the program. Each goes where its sources allow it: into a chain of the current
// phase whose items hold what it needs, into the prologue that every thread computes for itself, or, where it needs
// values that other threads compute, into a new phase. The class of an operation (op.def) decides, never a pattern of
// one model.
//
// Then items are cut (items.c), and each value gets a place: in the thread's own memory where nothing outside of its
// item reads it, else in shared memory. Memory is reused when the last phase that reads a value is over.
#include "kernels/cost.h"
#include "kernels/cpu/items.h"
#include "kernels/cpu/schedule.h"

#include <limits.h>

// Where in the current phase the sources of a node are computed: the number of a chain, or one of these.
enum {
    IN_NO_CHAIN = -1,    // not in this phase: in earlier ones, or there are no sources
    IN_PROLOGUE = -2,    // in the prologue, by each thread
    IN_MANY_CHAINS = -3, // in several chains
};
enum {
    WIDE_ITEMS_PER_THREAD = 4, // needed where items are widened to whole blocks of 8-bit activations
    TILE_BYTES = 16 << 10,     // of one value in a tile of rows: two or three values fit in a first-level cache
    TILE_ROWS = 32,            // at most
    SCAN_UNIT = 32,            // columns: whole cache lines, and whole blocks of a delta rule's state
};

// Where a node was put.
struct spot {
    int phase;
    int chain; // number in its phase, or IN_PROLOGUE
};

struct builder {
    struct arena *arena;
    const struct program *program;
    const struct schedule_options *options;
    struct schedule *out;
    struct spot *spots; // [program.n]
    int cap_phases;
    bool no_memory;
};

// Makes room for one more element of `size` bytes in an array of n elements from the arena. It doubles the array when
// it is full; the old copy stays in the arena.
static void *grow(struct builder *b, void *array, int n, int *cap, size_t size)
{
    if (n < *cap)
        return array;
    int more = *cap ? 2 * *cap : 4;
    void *bigger = arena_array(b->arena, (size_t)more, size, 16);
    if (!bigger) {
        b->no_memory = true;
        return NULL;
    }
    if (n)
        memcpy(bigger, array, (size_t)n * size);
    *cap = more;
    return bigger;
}

static struct phase *current(struct builder *b)
{
    return &b->out->phases[b->out->n_phases - 1];
}

static void open_phase(struct builder *b)
{
    struct schedule *s = b->out;
    struct phase *phases = grow(b, s->phases, s->n_phases, &b->cap_phases, sizeof(*phases));
    if (!phases)
        return;
    s->phases = phases;
    phases[s->n_phases++] = (struct phase){0};
}

static void put_in_prologue(struct builder *b, struct tensor *n)
{
    struct phase *ph = current(b);
    struct tensor **list = grow(b, ph->prologue, ph->n_prologue, &ph->cap_prologue, sizeof(*list));
    if (!list)
        return;
    ph->prologue = list;
    list[ph->n_prologue++] = n;
    b->spots[n->id] = (struct spot){b->out->n_phases - 1, IN_PROLOGUE};
}

static void put_in_chain(struct builder *b, int chain, struct tensor *n, int64_t unit)
{
    struct chain *c = &current(b)->chains[chain];
    struct tensor **list = grow(b, c->nodes, c->n_nodes, &c->cap_nodes, sizeof(*list));
    if (!list)
        return;
    c->nodes = list;
    list[c->n_nodes++] = n;
    c->unit = common_multiple(c->unit, unit);
    b->spots[n->id] = (struct spot){b->out->n_phases - 1, chain};
}

static void start_chain(struct builder *b, enum chain_kind kind, struct tensor *n, int64_t width, int64_t unit)
{
    struct phase *ph = current(b);
    struct chain *chains = grow(b, ph->chains, ph->n_chains, &ph->cap_chains, sizeof(*chains));
    if (!chains)
        return;
    ph->chains = chains;
    chains[ph->n_chains++] = (struct chain){.kind = kind, .rows = n->rows, .width = width, .unit = 1};
    put_in_chain(b, ph->n_chains - 1, n, unit);
}

// Whether a node runs on all rows of an item, not tile by tile.
static bool takes_whole_items(const struct tensor *n)
{
    return op_class(n->op) == CLASS_MATVEC || op_class(n->op) == CLASS_ATTEND || op_class(n->op) == CLASS_SCAN;
}

// An item of this node must have whole units of so many columns.
static int64_t unit_of(const struct tensor *n)
{
    switch (n->op) {
    case OP_NORM:
        return MAX(n->p.norm.group, (int64_t)1);
    case OP_ROPE:
        return n->p.rope.head_dim;
    case OP_KV_WRITE:
        return n->p.kv.head_dim;
    case OP_SHORT_CONV:
        return SCAN_UNIT;
    case OP_DELTA_RULE:
        return n->p.delta.dim_v % SCAN_UNIT ? n->p.delta.dim_v : SCAN_UNIT;
    case OP_SELECTIVE_SCAN:
        return n->width / n->p.scan.n_group % SCAN_UNIT ? n->width / n->p.scan.n_group : SCAN_UNIT;
    default:
        return 1;
    }
}

// The class of a node: that of its operation, but a norm of groups of columns needs only its group.
static enum op_class class_of(const struct tensor *n)
{
    if (n->op == OP_NORM && n->p.norm.group)
        return CLASS_HEAD;
    return op_class(n->op);
}

// Where in the current phase the sources of n are computed. The prologue counts only where no source is in a chain:
// what is in the prologue is there for all items.
static int sources_in(const struct builder *b, const struct tensor *n)
{
    int in = IN_NO_CHAIN;
    for (int s = 0; s < SRC_MAX; s++) {
        if (!n->src[s])
            continue;
        struct spot spot = b->spots[n->src[s]->id];
        if (spot.phase != b->out->n_phases - 1 || spot.chain == in)
            continue;
        if (in == IN_NO_CHAIN || in == IN_PROLOGUE)
            in = spot.chain == IN_PROLOGUE && in != IN_NO_CHAIN ? in : spot.chain;
        else if (spot.chain != IN_PROLOGUE)
            return IN_MANY_CHAINS;
    }
    return in;
}

// The phase's chain of kind CHAIN_ROWS over such rows, or IN_NO_CHAIN.
static int rows_chain(const struct phase *ph, enum rows rows)
{
    for (int i = 0; i < ph->n_chains; i++)
        if (ph->chains[i].kind == CHAIN_ROWS && ph->chains[i].rows == rows)
            return i;
    return IN_NO_CHAIN;
}

// Places a node that works on whole rows and needs nothing that another chain of this phase computes: in the prologue
// for few rows, else in the chain of rows.
static void put_rowwise(struct builder *b, struct tensor *n)
{
    if (b->options->kind == SCHEDULE_FEW && n->op != OP_KV_WRITE) {
        put_in_prologue(b, n);
        return;
    }
    int chain = rows_chain(current(b), n->rows);
    if (chain == IN_NO_CHAIN)
        start_chain(b, CHAIN_ROWS, n, n->width, 1);
    else
        put_in_chain(b, chain, n, 1);
}

// Whether n has the rows and columns of a chain.
static bool has_columns(const struct chain *c, const struct tensor *n)
{
    return c->rows == n->rows && c->width == (n->op == OP_KV_WRITE ? n->src[0]->width : n->width);
}

static bool joins_columns(const struct chain *c, const struct tensor *n)
{
    return c->kind == CHAIN_COLUMNS && has_columns(c, n);
}

// The same for an operation on elements, which the items of a scan can hold, too.
static bool joins(const struct chain *c, const struct tensor *n)
{
    return joins_columns(c, n) || (c->kind == CHAIN_SCAN && has_columns(c, n) && op_class(n->op) == CLASS_ELEMENT);
}

// Merges the two chains of columns that the sources of n are in (a gate and its up projection), so that n can join
// them. Returns the number of the merged chain; -1 where there are more than two or their columns differ.
static int merge_chains(struct builder *b, const struct tensor *n)
{
    struct phase *ph = current(b);
    int first = IN_NO_CHAIN, second = IN_NO_CHAIN;
    for (int s = 0; s < SRC_MAX; s++) {
        struct spot spot = n->src[s] ? b->spots[n->src[s]->id] : (struct spot){-1, -1};
        if (spot.phase != b->out->n_phases - 1 || spot.chain < 0 || spot.chain == first || spot.chain == second)
            continue;
        if (!joins_columns(&ph->chains[spot.chain], n) || second >= 0)
            return -1;
        if (first < 0)
            first = spot.chain;
        else
            second = spot.chain;
    }
    int into = MIN(first, second), from = MAX(first, second);
    int64_t unit = ph->chains[from].unit;
    for (int i = 0; i < ph->chains[from].n_nodes; i++)
        put_in_chain(b, into, ph->chains[from].nodes[i], unit);
    for (int i = from; i + 1 < ph->n_chains; i++)
        ph->chains[i] = ph->chains[i + 1];
    ph->n_chains--;
    for (int id = 0; id < n->id; id++)
        if (b->spots[id].phase == b->out->n_phases - 1 && b->spots[id].chain > from)
            b->spots[id].chain--;
    return into;
}

// The place_ functions below place n in the current phase. They return false where it has no place there; it then
// begins the next phase.

static bool place_element(struct builder *b, struct tensor *n)
{
    int in = sources_in(b, n);
    if (in == IN_NO_CHAIN || in == IN_PROLOGUE) {
        if (in == IN_PROLOGUE && n->op == OP_KV_WRITE) // it must be stored once, not by every thread
            start_chain(b, CHAIN_COLUMNS, n, n->src[0]->width, unit_of(n));
        else
            put_rowwise(b, n);
        return true;
    }
    if (in == IN_MANY_CHAINS && (in = merge_chains(b, n)) < 0)
        return false;
    const struct chain *c = &current(b)->chains[in];
    if (!(c->kind == CHAIN_ROWS && c->rows == n->rows) && !joins(c, n))
        return false;
    put_in_chain(b, in, n, c->kind == CHAIN_ROWS ? 1 : unit_of(n));
    return true;
}

static bool place_row(struct builder *b, struct tensor *n)
{
    int in = sources_in(b, n);
    bool free = in == IN_NO_CHAIN || in == IN_PROLOGUE;
    if (!free && (in < 0 || current(b)->chains[in].kind != CHAIN_ROWS || current(b)->chains[in].rows != n->rows))
        return false;
    put_rowwise(b, n);
    return true;
}

// Whether n, a quantisation, can run on the items of a chain: they must have whole blocks of 8-bit activations, and
// there must be enough of them. For few rows it cannot: every thread quantises all rows for itself, so that it need
// not fetch what other threads have quantised from their caches.
static bool quantises_items(const struct builder *b, const struct chain *c, const struct tensor *n)
{
    const struct schedule_options *o = b->options;
    if (o->kind == SCHEDULE_FEW || !o->q8_block || n->p.quantize.k != n->width || !has_columns(c, n))
        return false;
    int64_t unit = common_multiple(c->unit, o->q8_block);
    return c->kind == CHAIN_ATTEND
               ? unit == c->unit
               : c->kind == CHAIN_COLUMNS && c->width / unit >= o->n_threads * WIDE_ITEMS_PER_THREAD;
}

static bool place_quantize(struct builder *b, struct tensor *n)
{
    int in = sources_in(b, n);
    if (in < 0 || !quantises_items(b, &current(b)->chains[in], n))
        return place_row(b, n);
    put_in_chain(b, in, n, b->options->q8_block);
    return true;
}

static bool place_gather(struct builder *b, struct tensor *n)
{
    int in = sources_in(b, n);
    if (in != IN_NO_CHAIN && in != IN_PROLOGUE)
        return false;
    put_rowwise(b, n);
    return true;
}

static bool place_items(struct builder *b, struct tensor *n)
{
    int in = sources_in(b, n);
    if (in != IN_NO_CHAIN && !(in == IN_PROLOGUE && op_class(n->op) != CLASS_ATTEND))
        return false;
    if (n->op == OP_MATMUL)
        start_chain(b, CHAIN_COLUMNS, n, n->width, 1);
    else if (n->op == OP_EXPERT_MATMUL)
        start_chain(b, CHAIN_EXPERTS, n, n->w[0]->ne[1], 1);
    else if (op_class(n->op) == CLASS_SCAN)
        start_chain(b, CHAIN_SCAN, n, n->width, unit_of(n));
    else
        start_chain(b, CHAIN_ATTEND, n, n->width, n->width / n->p.attn.n_head_kv);
    return true;
}

static bool place_node(struct builder *b, struct tensor *n)
{
    switch (class_of(n)) {
    case CLASS_GATHER:
        return place_gather(b, n);
    case CLASS_ROW:
        return n->op == OP_QUANTIZE ? place_quantize(b, n) : place_row(b, n);
    case CLASS_ELEMENT:
    case CLASS_HEAD:
    case CLASS_STORE:
        return place_element(b, n);
    case CLASS_MATVEC:
    case CLASS_ATTEND:
    case CLASS_SCAN:
        return place_items(b, n);
    }
    return false;
}

// Moves products and attention to the front of a chain. None of them reads what another node of the chain computes, so
// sources still come first.
static void put_whole_first(struct chain *c)
{
    for (int i = 0; i < c->n_nodes; i++) {
        struct tensor *n = c->nodes[i];
        if (!takes_whole_items(n))
            continue;
        memmove(c->nodes + c->n_whole + 1, c->nodes + c->n_whole, (size_t)(i - c->n_whole) * sizeof(*c->nodes));
        c->nodes[c->n_whole++] = n;
    }
}

// Chooses the rows of a chain's tile: as many rows of its widest value as fit in TILE_BYTES, up to TILE_ROWS.
static void size_tile(struct chain *c)
{
    int64_t columns = c->kind == CHAIN_ROWS ? 1 : c->widest;
    for (int i = 0; i < c->n_nodes && c->kind == CHAIN_ROWS; i++)
        columns = MAX(columns, c->nodes[i]->width);
    c->tile = (int)MAX(1, MIN(TILE_ROWS, TILE_BYTES / (columns * (int64_t)sizeof(float))));
}

// Finds which phase reads each value last. leaves[id]: whether something outside of the value's own chain or prologue
// reads it.
static void find_uses(struct builder *b, bool *leaves)
{
    const struct program *p = b->program;
    for (int i = 0; i < p->n; i++) {
        b->out->values[i] = (struct value){.phase = b->spots[i].phase, .last = b->spots[i].phase, .over = -1};
        leaves[i] = b->options->tapped && b->options->tapped[i];
    }
    for (int i = 0; i < p->n; i++)
        for (int s = 0; s < SRC_MAX; s++) {
            const struct tensor *src = p->nodes[i]->src[s];
            if (!src)
                continue;
            struct value *v = &b->out->values[src->id];
            v->last = MAX(v->last, b->spots[i].phase);
            leaves[src->id] |=
                b->spots[i].phase != b->spots[src->id].phase || b->spots[i].chain != b->spots[src->id].chain;
        }
    b->out->values[p->logits->id].last = b->out->n_phases; // read after the run
    leaves[p->logits->id] = true;
}

// The distance between rows of a shared value. A matmul reads and writes the same columns of many rows. If rows were
// a power of two apart, these columns would all fall into a few sets of the caches; so long rows are an odd number of
// cache lines apart.
static size_t spread_rows(size_t row_bytes)
{
    enum { LINE = 64, LONG_ROW = 1024 };
    return row_bytes < LONG_ROW ? row_bytes : align_up(row_bytes, LINE) | LINE;
}

// Chooses where the value of n is stored and how many bytes it takes.
static void choose_place(struct builder *b, const struct tensor *n, bool leaves)
{
    struct value *v = &b->out->values[n->id];
    struct spot spot = b->spots[n->id];
    const struct chain *c = spot.chain >= 0 ? &b->out->phases[v->phase].chains[spot.chain] : NULL;
    int rows = b->options->max_rows[n->rows];
    bool in_items = c && !leaves && c->kind != CHAIN_EXPERTS && n->op != OP_QUANTIZE;
    v->row_bytes = program_row_bytes(b->program, n);
    if (n->op == OP_KV_WRITE)
        v->place = PLACE_NONE;
    else if (!c)
        v->place = PLACE_PRIVATE;
    else if (n == b->program->logits && c->kind == CHAIN_COLUMNS)
        v->place = PLACE_OUTPUT, v->row_bytes = (size_t)n->width * sizeof(float);
    else if (in_items)
        v->place = takes_whole_items(n) ? PLACE_LOCAL : PLACE_TILE;
    else
        v->place = PLACE_SHARED, v->row_bytes = spread_rows(v->row_bytes);
    if (in_items && c->kind != CHAIN_ROWS)
        v->row_bytes = align_up((size_t)c->widest * sizeof(float), 64);
    if (v->place != PLACE_NONE && v->place != PLACE_OUTPUT)
        v->bytes = v->row_bytes * (size_t)(v->place == PLACE_TILE ? MIN(c->tile, rows) : rows);
}

// The fewest rows for which the product n reads tiles. One more than a step can have: it never does.
static int tiles_from(const struct builder *b, const struct tensor *n)
{
    const struct act_rules *acts = &b->program->acts;
    int rows = 1, most = b->options->max_rows[n->rows];
    while (rows <= most && !acts->tiles_bytes(acts->ctx, n->w[0]->type, n->w[0]->ne[0], rows))
        rows++;
    return rows;
}

// Decides which quantised values get a copy in tiles, from how many rows on, and whether the copy in rows is then
// needed.
static void choose_tiles(struct builder *b)
{
    const struct act_rules *acts = &b->program->acts;
    struct value *values = b->out->values;
    if (!acts->tiles_bytes)
        return;
    for (int i = 0; i < b->program->n; i++)
        values[i].tiles_alone = b->program->nodes[i]->op == OP_QUANTIZE;
    for (int i = 0; i < b->program->n; i++) {
        const struct tensor *n = b->program->nodes[i], *x = n->src[0];
        if (!x || x->op != OP_QUANTIZE)
            continue;
        struct value *v = &values[x->id];
        if (v->place != PLACE_SHARED && v->place != PLACE_PRIVATE)
            continue;
        size_t bytes = n->op != OP_MATMUL
                           ? 0
                           : acts->tiles_bytes(acts->ctx, n->w[0]->type, n->w[0]->ne[0], b->options->max_rows[n->rows]);
        v->tiles_alone &= bytes > 0;
        v->bytes += MAX(v->tiles_bytes, bytes) - v->tiles_bytes;
        v->tiles_bytes = MAX(v->tiles_bytes, bytes);
        if (bytes)
            v->tiles_from = MAX(v->tiles_from, tiles_from(b, n));
    }
}

// The lowest offset at which a value overlaps no earlier value that is in use in the same phases. It looks at all
// pairs of values; with the few hundred of a graph that costs less than a millisecond.
static size_t find_offset(const struct builder *b, int id)
{
    const struct value *values = b->out->values, *v = &values[id];
    size_t at = 0;
    int kept = v->place == PLACE_SHARED && b->options->kind == SCHEDULE_FEW ? LAG_FEW : 0;
    for (int i = 0; i < id; i++) {
        const struct value *o = &values[i];
        if (!o->bytes || (o->place == PLACE_SHARED) != (v->place == PLACE_SHARED))
            continue;
        if (o->last + kept < v->phase || o->phase > v->last + kept || o->offset + o->bytes <= at ||
            at + v->bytes <= o->offset)
            continue;
        at = o->offset + o->bytes;
        i = -1; // from the start: an earlier value may lie here
    }
    return at;
}

// The id of a source that n may overwrite in place, because n reads each element just before it writes it: the source
// is of an earlier phase, and nothing else reads it in this phase or later. The residual stream is then one array
// through all layers, and no cache line is fetched only to be written. Not in the schedule for few rows, where a
// thread that lags behind may still read the source in its prologue. -1: none.
static int find_over(const struct builder *b, const struct tensor *n)
{
    const struct value *values = b->out->values, *v = &values[n->id];
    if (b->options->kind == SCHEDULE_FEW || !(class_of(n) == CLASS_ELEMENT || class_of(n) == CLASS_HEAD) ||
        v->place != PLACE_SHARED)
        return -1;
    for (int s = 0; s < SRC_MAX; s++) {
        const struct tensor *src = n->src[s];
        const struct value *o = src ? &values[src->id] : NULL;
        if (!o || o->place != PLACE_SHARED || o->phase == v->phase || o->last != v->phase || src->rows != n->rows ||
            src->width != n->width || o->row_bytes != v->row_bytes)
            continue;
        int readers = 0;
        for (int i = 0; i < b->program->n && b->spots[i].phase <= v->phase; i++)
            for (int r = 0; r < SRC_MAX && b->spots[i].phase == v->phase; r++)
                readers += b->program->nodes[i]->src[r] == src;
        if (readers == 1)
            return src->id;
    }
    return -1;
}

// Gives each value its offset, and adds up the memory.
static void lay_out(struct builder *b)
{
    for (int i = 0; i < b->program->n; i++) {
        struct value *v = &b->out->values[i];
        if (!v->bytes)
            continue;
        v->over = find_over(b, b->program->nodes[i]);
        v->offset = v->over >= 0 ? b->out->values[v->over].offset : find_offset(b, i);
        size_t *total = v->place == PLACE_SHARED ? &b->out->shared_bytes : &b->out->private_bytes;
        *total = MAX(*total, v->offset + v->bytes);
    }
}

int schedule_build(struct arena *arena, const struct program *p, const struct schedule_options *o, struct schedule *out,
                   struct error *err)
{
    struct builder b = {.arena = arena, .program = p, .options = o, .out = out};
    *out = (struct schedule){.kind = o->kind, .lag = o->kind == SCHEDULE_FEW ? LAG_FEW : INT_MAX / 2};
    memcpy(out->max_rows, o->max_rows, sizeof out->max_rows);
    b.spots = ARENA_ARRAY(arena, struct spot, (size_t)p->n);
    out->values = ARENA_ARRAY(arena, struct value, (size_t)p->n);
    bool *leaves = ARENA_ARRAY(arena, bool, (size_t)p->n);
    b.no_memory = !b.spots || !out->values || !leaves;
    if (!b.no_memory)
        open_phase(&b);
    for (int i = 0; i < p->n && !b.no_memory; i++) {
        if (place_node(&b, p->nodes[i]))
            continue;
        open_phase(&b);
        bool placed = b.no_memory || place_node(&b, p->nodes[i]);
        if (!placed)
            return fail(err, E_MODEL, "%s: no schedule for operation %s", p->nodes[i]->name, op_name(p->nodes[i]->op));
    }
    if (b.no_memory)
        return fail(err, E_MEMORY, "no memory for a schedule of %d nodes", p->n);
    for (int ph = 0; ph < out->n_phases; ph++) {
        if (!items_cut(arena, &out->phases[ph], o))
            return fail(err, E_MEMORY, "no memory for a schedule of %d nodes", p->n);
        for (int c = 0; c < out->phases[ph].n_chains; c++) {
            struct chain *chain = &out->phases[ph].chains[c];
            put_whole_first(chain);
            size_tile(chain);
            chain->shares_rest = o->kind == SCHEDULE_MANY && out->phases[ph].n_chains == 1;
        }
    }
    find_uses(&b, leaves);
    for (int i = 0; i < p->n; i++)
        choose_place(&b, p->nodes[i], leaves[i]);
    choose_tiles(&b);
    lay_out(&b);
    return 0;
}

// ---- As text

// The cost of a node for one row, or for as many as a step can have; the KV cache is empty before.
static struct cost cost_in(const struct schedule *s, const struct tensor *n)
{
    bool few = s->kind == SCHEDULE_FEW;
    struct cost_step step = {.n_tokens = few ? 1 : s->max_rows[ROWS_TOKENS],
                             .n_outputs = few ? MIN(1, s->max_rows[ROWS_OUTPUTS]) : s->max_rows[ROWS_OUTPUTS],
                             .n_seqs = 1,
                             .kv_type = {DT_F16, DT_F16}};
    return n->op == OP_QUANTIZE ? (struct cost){0} : cost_of_node(n, &step);
}

static void add_costs(const struct schedule *s, struct tensor *const *nodes, int n, struct cost *sum)
{
    for (int i = 0; i < n; i++) {
        struct cost c = cost_in(s, nodes[i]);
        sum->bytes += c.bytes;
        sum->products += c.products;
    }
}

static struct cost phase_cost(const struct schedule *s, const struct phase *ph)
{
    struct cost sum = {0, 0};
    add_costs(s, ph->prologue, ph->n_prologue, &sum);
    for (int i = 0; i < ph->n_chains; i++)
        add_costs(s, ph->chains[i].nodes, ph->chains[i].n_nodes, &sum);
    return sum;
}

static void print_cost(struct cost c, struct text *out)
{
    if (c.bytes > 0)
        text_print(out, ", reads %.6g MB", c.bytes / 1e6);
    if (c.products > 0)
        text_print(out, ", %.6g M multiply-adds", c.products / 1e6);
}

static void print_nodes(const struct schedule *s, struct tensor *const *nodes, int n, struct text *out)
{
    static const char *const place_name[] = {"kv", "shared", "private", "local", "tile", "output"};
    for (int i = 0; i < n; i++) {
        const struct value *v = &s->values[nodes[i]->id];
        text_print(out, "    %-16s %-28s %s", op_name(nodes[i]->op), nodes[i]->name, place_name[v->place]);
        if (v->place != PLACE_NONE && v->place != PLACE_OUTPUT)
            text_print(out, " +%zu, %zu B a row", v->offset, v->row_bytes);
        print_cost(cost_in(s, nodes[i]), out);
        text_print(out, "\n");
    }
}

void schedule_print(const struct program *p, const struct schedule *s, struct text *out)
{
    static const char *const kind_name[] = {"rows", "columns", "experts", "scan", "attend"};
    text_print(out, "schedule for %s rows: %d nodes in %d phases; %zu bytes shared, %zu a thread\n",
               s->kind == SCHEDULE_FEW ? "few" : "many", p->n, s->n_phases, s->shared_bytes, s->private_bytes);
    struct cost all = {0, 0};
    for (int i = 0; i < s->n_phases; i++) {
        struct cost c = phase_cost(s, &s->phases[i]);
        all.bytes += c.bytes;
        all.products += c.products;
    }
    text_print(out, "a step of %d rows", s->kind == SCHEDULE_FEW ? 1 : s->max_rows[ROWS_TOKENS]);
    print_cost(all, out);
    text_print(out, "\n");
    for (int i = 0; i < s->n_phases; i++) {
        const struct phase *ph = &s->phases[i];
        text_print(out, "phase %d", i);
        print_cost(phase_cost(s, ph), out);
        text_print(out, "\n");
        if (ph->n_prologue)
            text_print(out, "  every thread\n");
        print_nodes(s, ph->prologue, ph->n_prologue, out);
        for (int c = 0; c < ph->n_chains; c++) {
            const struct chain *ch = &ph->chains[c];
            text_print(out, "  by %s: %lld, up to %lld an item\n", kind_name[ch->kind], (long long)ch->width,
                       (long long)ch->widest);
            print_nodes(s, ch->nodes, ch->n_nodes, out);
        }
    }
}
