// Estimates the cost of a product with weights in a kernel's loops by counting the instructions in its PTX.
//
// Emitters of products annotate their text with comments: behind a label, what the loop that begins there does, and
// behind a forward branch, how often it is taken:
//   STEP: // 64 products a turn  weights times rows of x of one thread; the mean where threads have different work
//   PART: // 8 turns             a loop within that loop
//   @%in bra BROUGHT; // 3 of 4 times
// A branch without such a comment counts as not taken. Ownership: none. Threads: any.
#ifndef QUERN_LOOP_COST_H
#define QUERN_LOOP_COST_H

#include "gguf/base.h"

// Returns the instructions per product that a thread executes in the most expensive loop of products, or 0 if the text
// has no such loop.
double ptx_loop_cost(struct str text);

#endif
