// Importance from a run: taps on the inputs of all matrices of a model's layers, squares added up column by column.
//
// Of a matrix with experts each row counts for the experts that it was sent to. As llama-imatrix: the matrices whose
// name begins with "blk.", and with `output` the output matrix too. Ownership: the collector owns what it gathers until
// collector_take; the graph outlives it. Threads: as struct taps.
#ifndef QUERN_IMPORTANCE_COLLECT_H
#define QUERN_IMPORTANCE_COLLECT_H

#include "engine/quantize/importance.h"
#include "kernels/machine.h"

struct collector;

int collector_open(struct collector **out, const struct graph *g, bool output, struct error *err);
const struct taps *collector_taps(const struct collector *c);
// All sums so far. E_MODEL when an input was no number, with the name of the matrix.
int collector_result(const struct collector *c, struct importance *out, struct error *err);
void collector_close(struct collector *c); // NULL is fine

#endif
