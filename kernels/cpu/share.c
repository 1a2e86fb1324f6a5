// Divides items by rows: those of rows and of attention always, those of columns where the last ones would leave
// threads without work, those of experts never. items.c has cut the columns.
#include "kernels/cpu/share.h"
#include "kernels/cpu/kernels.h"

enum { ROW_TILE_MAX = 16, PIECE_ROWS = 64 };

// Rows of an item of attention: as many as the kernel takes together, but at most rows * width / (4 * n_threads).
static int attend_tile(const struct chain *c, int rows, int n_threads)
{
    const struct tensor *n = c->nodes[0];
    int64_t most = attention_pairs(n->p.attn.dim_k, n->p.attn.dim_v) / (n->p.attn.n_head / n->p.attn.n_head_kv);
    return (int)MAX(1, MIN(most, (int64_t)rows * c->width / (4 * n_threads)));
}

// Whether a chain writes a copy in tiles in this step. Tiles interleave Q8_TILE_COLUMNS rows, so an item must have
// whole groups of them; otherwise two threads would write to the same cache lines.
static bool fills_tiles(const struct schedule *s, const struct chain *c, int rows)
{
    bool fills = false;
    for (int i = 0; i < c->n_nodes; i++) {
        const struct value *v = &s->values[c->nodes[i]->id];
        fills |= v->tiles_bytes && rows >= v->tiles_from;
    }
    return fills;
}

// Rows of an item; all rows of the step in chains of columns and of experts.
static int row_tile(const struct schedule *s, const struct chain *c, int rows, int n_threads)
{
    if (c->kind == CHAIN_ROWS)
        return fills_tiles(s, c, rows) ? Q8_TILE_COLUMNS : MAX(1, MIN(ROW_TILE_MAX, rows / (4 * n_threads)));
    return c->kind == CHAIN_ATTEND ? attend_tile(c, rows, n_threads) : MAX(rows, 1);
}

// Threads take items in turn, so in the last round some may get nothing: with two threads, 19 items take as long as
// 20. The items of the last round are then cut into pieces of fewer rows. Each piece unpacks its weights again, so a
// piece has at least PIECE_ROWS rows.
static void share_rest(const struct chain *c, int n_threads, struct grid *g)
{
    int rest = c->shares_rest && c->kind == CHAIN_COLUMNS ? (int)(g->columns % n_threads) : 0;
    int pieces = rest ? MIN((2 * n_threads + rest - 1) / rest, g->rows / PIECE_ROWS) : 1;
    g->whole = g->columns - (pieces > 1 ? rest : 0);
    g->piece = pieces > 1 ? (int)align_up((size_t)(g->rows / pieces), Q8_TILE_COLUMNS) : g->rows;
    g->pieces = g->piece ? g->rows / g->piece : 0;
}

// The most experts that the rows of a step can choose.
static int64_t choices(const struct tensor *n, int rows)
{
    return MIN(n->w[0]->ne[2], (int64_t)rows * n->p.expert.n_used);
}

static int64_t count_items(const struct chain *c, const struct grid *g)
{
    if (!g->rows)
        return 0;
    if (c->kind == CHAIN_EXPERTS)
        return g->columns * choices(c->nodes[0], g->rows);
    return c->kind == CHAIN_COLUMNS ? g->whole + (g->columns - g->whole) * g->pieces
                                    : (g->rows + g->tile - 1) / g->tile * g->columns; // one tile in scans
}

static struct grid grid_of(const struct schedule *s, const struct chain *c, int rows, int n_threads)
{
    struct grid g = {.rows = rows};
    g.tile = row_tile(s, c, rows, n_threads);
    g.columns = c->n_items;
    share_rest(c, n_threads, &g);
    g.items = count_items(c, &g);
    return g;
}

int sharing_new(struct arena *arena, const struct schedule *s, struct sharing *out, struct error *err)
{
    bool room = true;
    out->rows[ROWS_TOKENS] = out->rows[ROWS_OUTPUTS] = -1; // no step has so many
    out->items = ARENA_ARRAY(arena, int64_t, (size_t)s->n_phases + 1);
    out->grids = ARENA_ARRAY(arena, struct grid *, (size_t)s->n_phases + 1);
    for (int ph = 0; out->grids && room && ph < s->n_phases; ph++) {
        out->grids[ph] = ARENA_ARRAY(arena, struct grid, (size_t)s->phases[ph].n_chains + 1);
        room = out->grids[ph] != NULL;
    }
    return out->items && out->grids && room ? 0 : fail(err, E_MEMORY, "no memory for a plan");
}

void sharing_update(struct sharing *sharing, const struct schedule *s, const int rows[ROWS_KINDS], int n_threads)
{
    if (!memcmp(sharing->rows, rows, sizeof sharing->rows))
        return;
    memcpy(sharing->rows, rows, sizeof sharing->rows);
    for (int ph = 0; ph < s->n_phases; ph++) {
        const struct phase *phase = &s->phases[ph];
        sharing->items[ph] = 0;
        for (int c = 0; c < phase->n_chains; c++) {
            struct grid *g = &sharing->grids[ph][c];
            *g = grid_of(s, &phase->chains[c], rows[phase->chains[c].rows], n_threads);
            sharing->items[ph] += g->items;
        }
    }
}

// Rows are taken from the last to the first: under a causal mask the last rows see the most keys and take longest, so
// they start first.
struct share share_at(const struct chain *c, const struct grid *g, int64_t item)
{
    struct share s = {.row1 = g->rows};
    int64_t column = item % g->columns;
    if (c->kind == CHAIN_EXPERTS) {
        s.choice = (int)(item / g->columns);
    } else if (c->kind == CHAIN_COLUMNS && item >= g->whole) {
        column = g->whole + (item - g->whole) / g->pieces;
        int piece = (int)((item - g->whole) % g->pieces);
        s.row0 = piece * g->piece;
        s.row1 = piece + 1 < g->pieces ? s.row0 + g->piece : g->rows;
    } else if (c->kind != CHAIN_COLUMNS) {
        int tiles = (g->rows + g->tile - 1) / g->tile, t = tiles - 1 - (int)(item / g->columns);
        s.row0 = t * g->tile;
        s.row1 = MIN(g->rows, s.row0 + g->tile);
    }
    s.col0 = c->items[column].from;
    s.col1 = c->items[column].to;
    return s;
}

int share_expert(const struct tensor *n, int rows, const int32_t *ids, size_t stride, int choice)
{
    const int used = n->p.expert.n_used, row = choice / used;
    if (choices(n, rows) == n->w[0]->ne[2])
        return choice;
    const int32_t expert = ids[(size_t)row * stride + (size_t)(choice % used)];
    for (int before = 0; before < choice; before++)
        if (ids[(size_t)(before / used) * stride + (size_t)(before % used)] == expert)
            return -1;
    return expert;
}
