// What a product with weights costs in a kernel's loops, counted in its text.
//
// Emitters of products say in a comment behind a label what the loop that begins there does, and behind a branch ahead
// how often it is taken:
//   STEP: // 64 products a turn     weights times rows of x, of a thread; the mean where threads have different work
//   PART: // 8 turns                a loop within that one
//   @%in bra BROUGHT; // 3 of 4 times
// A branch without that counts as not taken. Ownership: none. Threads: any.
#ifndef QUERN_LOOP_COST_H
#define QUERN_LOOP_COST_H

#include "gguf/base.h"

// Instructions that a thread executes for a product, in the dearest of the text's loops of products; 0: it has none.
double ptx_loop_cost(struct str text);

#endif
