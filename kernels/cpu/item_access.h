// The part of a step that a thread is computing, and where the values of nodes lie for it. exec.c and the operations in
// files of their own (exec_scan.c) share this.
//
// Ownership: nothing is owned here; the plan owns the memory. Threads: a struct item belongs to one thread.
#ifndef QUERN_ITEM_ACCESS_H
#define QUERN_ITEM_ACCESS_H

#include "kernels/cpu/exec.h"

// One step on its way through a plan; shared by all threads.
struct run {
    struct plan *plan;
    const struct schedule *schedule;
    const struct sharing *sharing;
    const struct step *step;
    struct pool *pool;
    const struct kernels *k;
    _Atomic int last_phase; // all threads return after it; INT_MAX unless the step was cancelled
};

// Rows of weights that a thread will probably read next.
struct upcoming {
    const void *w; // the first row; NULL: not known
    size_t stride; // bytes from row to row
    int64_t n_rows;
};

// The part of a node's value that a thread is computing.
struct item {
    const struct run *run;
    uint8_t *local; // the thread's own memory
    int thread;
    int first;            // first row of the whole item
    int row0, row1;       // rows row0 .. row1-1: the whole item, or a tile of it
    int64_t col0, col1;   // columns col0 .. col1-1; in a chain of experts, of one expert's matrix
    int choice;           // in a chain of experts: which expert, see struct share
    struct upcoming next; // what the thread will read after the node that runs
};

static inline uint8_t *local_of(const struct run *r, int thread)
{
    return r->plan->local + (size_t)thread * r->plan->local_stride;
}

static inline int rows_of(const struct run *r, enum rows rows)
{
    return rows == ROWS_TOKENS ? r->step->n_tokens : r->step->n_outputs;
}

static inline const struct value *value_of(const struct run *r, const struct tensor *n)
{
    return &r->schedule->values[n->id];
}

// Where a row of n's value begins, as the item's thread sees it. A LOCAL or TILE row begins at column it->col0.
static inline void *row_at(const struct item *it, const struct tensor *n, int row)
{
    const struct run *r = it->run;
    const struct value *v = value_of(r, n);
    row -= v->place == PLACE_LOCAL ? it->first : v->place == PLACE_TILE ? it->row0 : 0;
    size_t at = v->offset + (size_t)row * v->row_bytes;
    switch (v->place) {
    case PLACE_SHARED:
        return r->plan->shared + at;
    case PLACE_OUTPUT:
        return (uint8_t *)r->step->logits + (size_t)row * v->row_bytes;
    default:
        return it->local + r->plan->values_at + at;
    }
}

// The copy of a quantised value in tiles. NULL where it has none, or where the step has fewer rows than readers of
// tiles need.
static inline void *tiles_of(const struct item *it, const struct tensor *n)
{
    const struct run *r = it->run;
    const struct value *v = value_of(r, n);
    if (!v->tiles_bytes || rows_of(r, n->rows) < v->tiles_from)
        return NULL;
    uint8_t *base = v->place == PLACE_SHARED ? r->plan->shared : it->local + r->plan->values_at;
    return base + v->offset + v->row_bytes * (size_t)r->schedule->max_rows[n->rows];
}

static inline float *at(const struct item *it, const struct tensor *n, int row, int64_t col)
{
    enum place place = value_of(it->run, n)->place;
    if (place == PLACE_LOCAL || place == PLACE_TILE)
        col -= it->col0;
    return (float *)row_at(it, n, row) + col;
}

static inline const void *weight_row(const struct weight *w, int64_t row)
{
    return (const uint8_t *)w->data + (size_t)row * w->row_bytes;
}

// exec_heads.c: operations on heads.
void do_head_glu(const struct item *it, const struct tensor *n);
// exec_scan.c: operations that take a state through the rows of their sequences.
void do_short_conv(const struct item *it, const struct tensor *n);
void do_delta_rule(const struct item *it, const struct tensor *n);
void do_selective_scan(const struct item *it, const struct tensor *n);

#endif
