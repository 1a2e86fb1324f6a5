// A schedule cuts a program into phases: within a phase threads work without waiting for each other, and before the next
// one all of its items must be done.
//
// Two schedules are made of one program: for few rows (every thread does work on whole rows for itself, which costs less
// than a barrier) and for many (rows are shared out). Ownership: all memory is the caller's arena. Threads: read-only once
// built.
#ifndef QUERN_SCHEDULE_H
#define QUERN_SCHEDULE_H

#include "kernels/program.h"
#include "kernels/text.h"

// Where a value lies while a run goes on.
enum place {
    PLACE_NONE,    // KV_WRITE: no value
    PLACE_SHARED,  // one copy, in the shared arena
    PLACE_PRIVATE, // a copy a thread, whole
    PLACE_LOCAL,   // a copy a thread, the rows and columns of the current item only
    PLACE_TILE,    // a copy a thread, the columns of the current item and the rows of the tile at hand
    PLACE_OUTPUT,  // the caller's logits
};
struct value {
    enum place place;
    size_t offset;      // in its arena
    size_t row_bytes;   // from row to row (LOCAL and TILE: of an item)
    size_t tiles_bytes; // behind the rows: all of them in tiles, for q8_rules; 0: none
    int tiles_from;     // with so many rows all readers that take tiles do: they are made then
    bool tiles_alone;   // nothing reads the rows where there are tiles
    size_t bytes;       // in all
    int phase, last;    // made in, last read in
    int over;           // it takes the place of that value, which the making of it reads last; -1: its own place
};

enum chain_kind {
    CHAIN_ROWS,    // an item is a range of rows, all columns
    CHAIN_COLUMNS, // an item is a range of columns, all rows
    CHAIN_EXPERTS, // an item is an expert and a range of columns, the rows that chose it
    CHAIN_ATTEND,  // an item is a range of rows and the columns of the heads that share a KV head
};
struct columns {
    int64_t from, to; // to: the one behind the last
};
// Nodes that run one after another on each item, without a barrier: products and attention on all of its rows, and then the
// others on a tile of a few rows at a time, so that what one of them leaves is in the first-level cache for the next.
struct chain {
    enum chain_kind kind;
    enum rows rows;
    int64_t width;         // columns shared out (EXPERTS: of one expert)
    int64_t unit;          // columns that must stay together
    struct columns *items; // [n_items] that make it up; each begins at a multiple of unit
    int64_t n_items;
    int64_t widest;   // columns of the widest item
    int n_whole;      // nodes that take all rows of an item
    int tile;         // rows that those behind take at a time
    bool shares_rest; // of columns: items that do not go round all threads are cut by rows, too
    struct tensor **nodes;
    int n_nodes, cap_nodes;
};
struct phase {
    struct tensor **prologue; // run by every thread for itself before the items
    int n_prologue, cap_prologue;
    struct chain *chains;
    int n_chains, cap_chains;
};

enum schedule_kind { SCHEDULE_FEW, SCHEDULE_MANY, SCHEDULE_KINDS };
// For few rows, a value keeps its place for LAG_FEW more phases than it is read in: a thread that was kept from its core
// catches up while others go on. With many, threads hold nothing of their own that they would have to catch up on.
enum { LAG_FEW = 16 };
struct schedule {
    enum schedule_kind kind;
    int lag; // phases that a thread may be behind another
    struct phase *phases;
    int n_phases;
    struct value *values; // [program.n], by id
    size_t shared_bytes;
    size_t private_bytes;     // of each thread, LOCAL values included
    int max_rows[ROWS_KINDS]; // room for so many
};

struct schedule_options {
    const bool *tapped; // [program.n] values that are looked at when their phase is over; NULL: none
    enum schedule_kind kind;
    int n_threads;        // that will share the items out
    int64_t q8_block;     // columns of a row that are quantised apart from the others; 0: a row is one
    int64_t item_weights; // about, that an item of few rows reads at the most
    int max_rows[ROWS_KINDS];
};
int schedule_build(struct arena *arena, const struct program *p, const struct schedule_options *o, struct schedule *out,
                   struct error *err);
// With the costs of each node and phase: of one row, or of as many as the schedule has room for.
void schedule_print(const struct program *p, const struct schedule *s, struct text *out);

#endif
