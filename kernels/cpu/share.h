// How the work of a phase is shared out: which rows and columns the items of its chains have, in a step of so many rows.
//
// A step of one row has a thousand items, so that this is computed once and holds for all steps of as many rows.
// Ownership: a sharing lies in the plan's arena. Threads: sharing_update is called between runs; what it made is only read.
#ifndef QUERN_SHARE_H
#define QUERN_SHARE_H

#include "kernels/cpu/schedule.h"

// Of a chain.
struct grid {
    int rows, tile;    // of the step; of an item
    int64_t columns;   // items of all columns, or of an expert's
    int64_t whole;     // items of all rows that come first; then those of the other columns in pieces of rows
    int pieces, piece; // of such a column; rows of one, and of the last what is left
    int64_t items;     // all of them
};

struct sharing {
    int rows[ROWS_KINDS]; // of the steps for which it holds
    struct grid **grids;  // [phases][chains of the phase]
    int64_t *items;       // [phases]: of all chains of the phase
};

// Rows row0 .. row1-1 and columns col0 .. col1-1 of an item. Where the chain has experts, of which one: where the rows choose
// fewer than there are, it is the one that row choice / n_used chose at place choice % n_used.
struct share {
    int row0, row1;
    int64_t col0, col1;
    int choice;
};

// Room for a schedule's. E_MEMORY.
int sharing_new(struct arena *arena, const struct schedule *s, struct sharing *out, struct error *err);
void sharing_update(struct sharing *sharing, const struct schedule *s, const int rows[ROWS_KINDS], int n_threads);
struct share share_at(const struct chain *c, const struct grid *g, int64_t item);

// The expert of a choice, for node n in a step of so many rows, of which row r chose n_used experts at ids + r * stride.
// -1: a row before chose it, too, and its item is that of that row's choice.
int share_expert(const struct tensor *n, int rows, const int32_t *ids, size_t stride, int choice);

#endif
