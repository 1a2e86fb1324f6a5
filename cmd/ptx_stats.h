// The tables of `quern dump ptx --stats`: the kernels of a model, and how long the launches of a step would take.
#ifndef QUERN_PTX_STATS_H
#define QUERN_PTX_STATS_H

#include "kernels/text.h"

struct machine;
struct plan;
// Prints the kernels of a GPU on paper of compute capability `arch`, and where ptxas is installed, a prediction
// (kernels/card_time.h) for a step of one row and for one of n_rows rows of the plan.
int ptx_stats_print(const struct machine *card, const struct plan *p, int arch, int n_rows, struct text *out,
                    struct error *err);

#endif
