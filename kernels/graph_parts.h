// What graph.c, which makes nodes, and graph_finish.c, which checks the whole graph, share. Threads: as in graph.h.
#ifndef QUERN_GRAPH_PARTS_H
#define QUERN_GRAPH_PARTS_H

#include "kernels/graph.h"

// Keeps a fault, unless there is one already. Returns NULL, for callers to return.
struct tensor *graph_refuse(struct graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *graph_refuse_memory(struct graph *g);

static inline const char *rows_name(enum rows rows)
{
    return rows == ROWS_TOKENS ? "tokens" : "outputs";
}

// Whether the result of an operation is rows of floats that any operation can take.
static inline bool is_plain(enum op op)
{
    return op != OP_KV_WRITE && op != OP_ROPE_TABLE && op != OP_ROUTE;
}

#endif
