// What graph.c and graph_state.c, which make nodes, and graph_finish.c, which checks the whole graph, share. Threads: as in
// graph.h.
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

// Floats in a row, at most. No model comes near it. Below it the bytes of a row fit an int64 in every type.
#define WIDTH_MAX ((int64_t)1 << 28)

// A weight's name and shape for a message: "blk.0.attn_q.weight (4096, 4096)".
struct shape_text {
    char s[160];
};
struct shape_text graph_shape_of(const struct weight *w);

// Making a node: an operation calls graph_begin_node, then the take functions, which check a source, weight or number and
// return false on a fault, then sets its parameters and calls graph_finish_node. After a fault none of these does anything.
// Nodes are zeroed with their padding, because program.c compares their bytes.
struct tensor *graph_begin_node(struct graph *g, enum op op, const char *name);
struct tensor *graph_finish_node(struct graph *g, struct tensor *n, int64_t width);
// Makes x source i of node n. It must be a value of this graph with the same rows as source 0, and the result of
// operation `want` (OP_COUNT: of any with a plain result).
bool graph_take_source_of(struct graph *g, struct tensor *n, int i, struct tensor *x, enum op want);
bool graph_take_source(struct graph *g, struct tensor *n, int i, struct tensor *x);
// The same for a plain source whose rows are tokens.
bool graph_take_tokens(struct graph *g, struct tensor *n, int i, struct tensor *x);
// Makes w weight i of node n. It must be of a type that can be decoded, and have so many matrices (0: any number).
bool graph_take_weight(struct graph *g, struct tensor *n, int i, const struct weight *w, int64_t matrices);
// Makes w, `rows` vectors of `length` F32 elements, weight i of node n. w may be NULL.
bool graph_take_vectors(struct graph *g, struct tensor *n, int i, const struct weight *w, int64_t length, int64_t rows);
// The same for one vector, such as a gain or a bias.
bool graph_take_vector(struct graph *g, struct tensor *n, int i, const struct weight *w, int64_t length);
// A finite parameter of at least `least`.
bool graph_take_number(struct graph *g, struct tensor *n, const char *what, float v, float least);

// Whether the result of an operation is rows of floats that any operation can take.
static inline bool is_plain(enum op op)
{
    return op != OP_KV_WRITE && op != OP_ROPE_TABLE && op != OP_ROUTE;
}

#endif
