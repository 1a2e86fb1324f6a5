// Estimates the cost of a product with weights in a kernel's loops by counting the instructions in its PTX.
//
// Emitters of products annotate their text with comments behind labels and forward branches:
//   STEP: // 64 products a turn         A loop begins. In each turn, a thread forms 64 products of a weight and an
//                                       element of x, on average if threads have different work.
//   PART: // 8 turns                    A loop of 8 turns begins, within the loop of products.
//   @%in bra BROUGHT; // 3 of 4 times   The forward branch is taken 3 of 4 times.
// A forward branch without such a comment counts as not taken. Loops may be nested.
//
// Ownership: none. Threads: any; the function is pure.
#ifndef QUERN_LOOP_COST_H
#define QUERN_LOOP_COST_H

#include "gguf/base.h"

// Returns the instructions per product that a thread executes in the most expensive loop of products, or 0 if the text
// has no such loop.
double ptx_loop_cost(struct str text);

#endif
