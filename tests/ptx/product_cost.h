// Counts the cost of a product on a GPU: the interpreter runs the kernel that is chosen for a number of rows.
//
// The product has n_in = 4096 and n_out = 128, without bias or experts, so that every class fills its CTAs. The whole
// kernel is counted, with the computation of addresses and the final sums. No instruction depends on the weights.
// Ownership: none. Threads: any.
#ifndef QUERN_PRODUCT_COST_H
#define QUERN_PRODUCT_COST_H

#include "gguf/dtype.h"

struct product_cost {
    uint32_t rows; // the class, as in struct ptx_matmul
    // Thread instructions per weight and row of x. An mma.sync counts as one instruction of 32 threads.
    double instructions;
    double loop; // the estimate of ptx_loop_cost
    // Bytes of global memory read per weight, including x. A word that 32 threads read counts 32 times.
    double bytes;
};
// For n_rows of x on a GPU of that compute capability (75, 80, ...). The types are those of weight_tile.def; x is 8-bit
// if the type takes it.
int product_cost(enum dtype type, uint32_t n_rows, uint32_t target, struct product_cost *out, struct error *err);

#endif
