// A schedule divides a program into phases. Within a phase, threads work without waiting for each other; a phase begins
// when all items of the phases before it are done.
//
// Two schedules are built from one program. In the one for few rows, every thread computes norms and other work on
// whole rows for itself, which costs less than waiting for another thread. In the one for many rows, rows are divided
// among the threads. Ownership: all memory is from the caller's arena. Threads: read-only once built.
#ifndef QUERN_SCHEDULE_H
#define QUERN_SCHEDULE_H

#include "kernels/program.h"
#include "kernels/text.h"

// Where a value is stored during a run.
enum place {
    PLACE_NONE,    // KV_WRITE: there is no value
    PLACE_SHARED,  // once, in the plan's shared memory
    PLACE_PRIVATE, // whole, in each thread's own memory
    PLACE_LOCAL,   // in each thread's own memory: the rows and columns of its current item
    PLACE_TILE,    // in each thread's own memory: the columns of its current item, the rows of its current tile
    PLACE_OUTPUT,  // in the caller's logits
};
struct value {
    enum place place;
    size_t offset;      // in the shared memory, or in a thread's own
    size_t row_bytes;   // from row to row (LOCAL and TILE: of an item)
    size_t tiles_bytes; // of a second copy in tiles, behind the rows (see act_rules); 0: there is none
    int tiles_from;     // the copy in tiles is made in steps of so many rows or more, in which all products can use it
    bool tiles_alone;   // with so many rows nothing reads the copy in rows, so it is not made
    size_t bytes;       // in all
    int phase, last;    // the phase that computes it, the last phase that reads it
    int over;           // id of the source that this value overwrites in place; -1: it has memory of its own
};

enum chain_kind {
    CHAIN_ROWS,    // an item is a range of rows, with all columns
    CHAIN_COLUMNS, // an item is a range of columns, with all rows
    CHAIN_EXPERTS, // an item is a range of one expert's columns, with the rows that chose the expert
    CHAIN_SCAN,    // an item is a range of columns, with all rows: state goes from row to row
    CHAIN_ATTEND,  // an item is a range of rows, with the columns of the query heads that share one KV head
};
struct columns {
    int64_t from, to; // columns from .. to-1
};
// Nodes that run one after another on each item, without a barrier. Products and attention run first, on all rows of
// the item. The other nodes then run on a tile of a few rows at a time, so that what one node writes is still in the
// first-level cache when the next reads it.
struct chain {
    enum chain_kind kind;
    enum rows rows;
    int64_t width;         // columns in all (EXPERTS: of one expert)
    int64_t unit;          // an item has whole units of so many columns
    struct columns *items; // [n_items], which together cover the width; each begins at a multiple of unit
    int64_t n_items;
    int64_t widest;   // columns of the widest item
    int n_whole;      // the first nodes, which run on all rows of an item
    int tile;         // rows that the other nodes take at a time
    bool shares_rest; // COLUMNS: items of the last round that are too few for all threads are cut by rows as well
    struct tensor **nodes;
    int n_nodes, cap_nodes;
};
struct phase {
    struct tensor **prologue; // nodes that every thread computes for itself before it takes items
    int n_prologue, cap_prologue;
    struct chain *chains;
    int n_chains, cap_chains;
};

enum schedule_kind { SCHEDULE_FEW, SCHEDULE_MANY, SCHEDULE_KINDS };
// In the schedule for few rows, the memory of a shared value is not reused before LAG_FEW phases after its last reader.
// So a thread that was kept from its core can still run its prologues while the others go on. In the schedule for many
// rows there are no prologues, and threads need not wait for one that lags behind.
enum { LAG_FEW = 16 };
struct schedule {
    enum schedule_kind kind;
    int lag; // phases that one thread may be ahead of another
    struct phase *phases;
    int n_phases;
    struct value *values; // [program.n], by id
    size_t shared_bytes;
    size_t private_bytes;     // of each thread: PRIVATE, LOCAL and TILE values
    int max_rows[ROWS_KINDS]; // rows of a step, at most
};

struct schedule_options {
    const bool *tapped; // [program.n] values that a tap reads after their phase; NULL: none
    enum schedule_kind kind;
    int n_threads;        // that will take the items
    int64_t q8_block;     // columns of a row that are quantised independently of the others; 0: the whole row
    int64_t item_weights; // few rows: weights that an item reads, at most and about
    int max_rows[ROWS_KINDS];
};
// Builds the schedule for the rows, threads and kind in *o. E_MEMORY; E_MODEL where an operation fits nowhere.
int schedule_build(struct arena *arena, const struct program *p, const struct schedule_options *o, struct schedule *out,
                   struct error *err);
// Appends the schedule as text, with the cost of each node and phase: for one row in the schedule for few rows, else
// for as many rows as a step can have.
void schedule_print(const struct program *p, const struct schedule *s, struct text *out);

#endif
