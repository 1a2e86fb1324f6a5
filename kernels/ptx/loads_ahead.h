// Tells from a kernel's PTX how a thread's loads of global memory stand in its loops of products, which loop_cost.h
// describes. Times the threads of a multiprocessor, the bytes that a thread has requested at once are those in flight.
//
// An assembler moves loads to the top of a stretch of code without labels, branches and barriers, as far as the thread
// has registers for them. Such a stretch at the beginning of the loop is what is counted. Look-ups in tables, whose addresses
// are in %entry, wait for the weights and find their bytes in the cache: they do not count.
//
// Ownership: none. Threads: any; the function is pure.
#ifndef QUERN_LOADS_AHEAD_H
#define QUERN_LOADS_AHEAD_H

#include "gguf/base.h"

struct ptx_loads {
    int ahead;  // bytes that the first stretch of a turn requests; 0: none, or not known, as others load as well
    bool turns; // between loads and products all threads of a CTA wait for each other, without asynchronous copies
    int ring;   // bytes that a CTA's copies to shared memory keep in flight, as a comment "// a ring of N bytes" says
    bool early; // the kernel lets the next launch begin before it ends, and may itself begin beside the one ahead
};
// Describes the loop that requests the fewest bytes at once. `ahead` and `turns` are 0 if the text has no loop of products.
struct ptx_loads ptx_loads_ahead(struct str text);

#endif
