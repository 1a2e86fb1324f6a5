// How the work of a phase is divided: which rows and columns each item of its chains has, in a step of a given number
// of rows.
//
// Even a step of one row has a thousand items, so the grids are computed once and kept while steps have the same
// number of rows. Ownership: a sharing's arrays are in the plan's arena. Threads: sharing_update is called between
// runs; during a run the sharing is only read.
#ifndef QUERN_SHARE_H
#define QUERN_SHARE_H

#include "kernels/cpu/schedule.h"

// The items of a chain, as a grid of ranges of rows and ranges of columns.
struct grid {
    int rows, tile;    // rows of the step; rows of an item
    int64_t columns;   // ranges of columns (EXPERTS: of one expert)
    int64_t whole;     // COLUMNS: the first so many ranges are items with all rows; the others are cut by rows as well
    int pieces, piece; // items of each range that is cut by rows; rows of such an item (the last takes what is left)
    int64_t items;     // in all
};

struct sharing {
    int rows[ROWS_KINDS]; // of the step that it was computed for
    struct grid **grids;  // [phases][chains of the phase]
    int64_t *items;       // [phases]: items of all chains of the phase
};

// What an item computes: rows row0 .. row1-1 and columns col0 .. col1-1. In a chain of experts `choice` says which
// expert. Where the rows choose at least as many experts as there are, it is the expert's id. Otherwise it numbers
// the choices: the expert is the one that row choice / n_used chose as number choice % n_used.
struct share {
    int row0, row1;
    int64_t col0, col1;
    int choice;
};

// Allocates the grids for a schedule. E_MEMORY.
int sharing_new(struct arena *arena, const struct schedule *s, struct sharing *out, struct error *err);
// Computes the grids for a step with so many rows, unless they are those of the last step.
void sharing_update(struct sharing *sharing, const struct schedule *s, const int rows[ROWS_KINDS], int n_threads);
// What item number `item` of a chain computes.
struct share share_at(const struct chain *c, const struct grid *g, int64_t item);

// The expert of a choice, for node n in a step of so many rows. The n_used ids that row r chose begin at ids + r *
// stride. -1: an earlier choice is of this expert too, and the item of that choice computes it for all rows.
int share_expert(const struct tensor *n, int rows, const int32_t *ids, size_t stride, int choice);

#endif
