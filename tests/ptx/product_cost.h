// What a product of the card costs, counted: the kernel that a number of rows gets is run on the interpreter.
//
// The product is one of 4096 by 128 without bias or experts, so that every class fills its CTAs; the whole kernel
// counts, with its addresses and the end of its sums. No instruction depends on what the weights are.
// Ownership: none. Threads: any.
#ifndef QUERN_PRODUCT_COST_H
#define QUERN_PRODUCT_COST_H

#include "gguf/dtype.h"

struct product_cost {
    uint32_t rows; // the class, as of struct ptx_matmul
    // Of threads, for each weight times a row of x. An mma.sync is one instruction of 32 threads.
    double instructions;
    double loop; // what ptx_loop_cost makes of it
    // That threads read of global memory for each weight, x among them; a word that 32 threads read counts 32 times.
    double bytes;
};
// For n_rows of x, on a card of that compute capability (75, 80, ..). The types are those of weight_tile.def; x is in 8
// bits where the type takes that.
int product_cost(enum dtype type, uint32_t n_rows, uint32_t target, struct product_cost *out, struct error *err);

#endif
