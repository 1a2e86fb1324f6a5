// Collects an importance matrix from a run: taps on the inputs of the weight matrices of all layers add up the squares
// of the inputs per column.
//
// For a matrix with experts, a row counts for the experts that it was routed to. As in llama-imatrix, the matrices are
// those whose name begins with "blk.", and with `output` also the output matrix. Ownership: the collector owns its
// sums; the graph must outlive it. Threads: as struct taps says.
#ifndef QUERN_IMPORTANCE_COLLECTOR_H
#define QUERN_IMPORTANCE_COLLECTOR_H

#include "engine/quantize/importance.h"
#include "kernels/machine.h"

struct importance_collector;

int importance_collector_open(struct importance_collector **out, const struct graph *g, bool output, struct error *err);
const struct taps *importance_collector_taps(const struct importance_collector *c);
// Adds all sums so far to *out. E_MODEL with the name of the matrix when an input was not finite.
int importance_collector_result(const struct importance_collector *c, struct importance *out, struct error *err);
void importance_collector_close(struct importance_collector *c); // NULL is fine

#endif
