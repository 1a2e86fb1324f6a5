// Importance from a run: taps on the inputs of all matrices of a model's layers, squares added up column by column.
//
// Of a matrix with experts each row counts for the experts that it was sent to. As llama-imatrix: the matrices whose
// name begins with "blk.", and with `output` the output matrix too. Ownership: the collector owns what it gathers until
// collector_take; the graph outlives it. Threads: as struct taps.
#ifndef QUERN_IMPORTANCE_COLLECTOR_H
#define QUERN_IMPORTANCE_COLLECTOR_H

#include "engine/quantize/importance.h"
#include "kernels/machine.h"

struct importance_collector;

int importance_collector_open(struct importance_collector **out, const struct graph *g, bool output, struct error *err);
const struct taps *importance_collector_taps(const struct importance_collector *c);
// All sums so far. E_MODEL when an input was no number, with the name of the matrix.
int importance_collector_result(const struct importance_collector *c, struct importance *out, struct error *err);
void importance_collector_close(struct importance_collector *c); // NULL is fine

#endif
