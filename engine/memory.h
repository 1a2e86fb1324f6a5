// How much memory is free: in the computer, in the control groups of the process, and in its address space.
//
// Threads: any; the functions read only files of the operating system's kernel.
#ifndef QUERN_MEMORY_H
#define QUERN_MEMORY_H

#include "gguf/base.h"

struct memory_free {
    uint64_t bytes;         // that can be allocated without swapping or killing other processes
    const char *limit;      // the source of this bound: "MemAvailable", "the control group's limit"
    uint64_t address_space; // that can still be mapped (RLIMIT_AS); UINT64_MAX when there is no limit
    uint64_t total;         // memory of the computer; 0 when not known
};

// `root` is put before /proc and /sys; it is "" except in tests. A file that cannot be read sets no limit.
void memory_query(const char *root, struct memory_free *out);

// The memory that a run needs, by part.
struct memory_need {
    uint64_t weights;        // mapped from the file, or read from it
    uint64_t kv;             // the pool of KV pages
    uint64_t states;         // the slots of recurrent state
    uint64_t plan;           // values of a step
    uint64_t other;          // logits, tables
    bool weights_are_mapped; // already a part of the address space
};

// The sum; saturates.
uint64_t memory_sum(const struct memory_need *need);
// Writes a size as "1.5 GiB".
void memory_format(uint64_t bytes, char out[24]);

#endif
