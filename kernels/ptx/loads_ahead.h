// Tells from a kernel's PTX how a thread's loads of global memory stand in its loops of products, which loop_cost.h
// describes. Times the threads of a multiprocessor, the bytes that a thread has requested at once are those in flight.
//
// An assembler moves loads to the top of a stretch of code without labels, branches and barriers, as far as the thread
// has registers for them. Such a stretch at the beginning of the loop is what is counted.
//
// Ownership: none. Threads: any; the function is pure.
#ifndef QUERN_LOADS_AHEAD_H
#define QUERN_LOADS_AHEAD_H

#include "gguf/base.h"

struct ptx_loads {
    int ahead;  // bytes that the first stretch of a turn requests; 0: none, or not known, as others load as well
    bool turns; // between loads and products all threads of a CTA wait for each other, without asynchronous copies
};
// Describes the loop that requests the fewest bytes at once. The result is all 0 if the text has no loop of products.
struct ptx_loads ptx_loads_ahead(struct str text);

#endif
