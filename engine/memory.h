// What memory there is: of the machine, of the control groups around the process, and of its address space.
//
// Threads: pure but for the files of the kernel that it reads.
#ifndef QUERN_MEMORY_H
#define QUERN_MEMORY_H

#include "gguf/base.h"

struct memory_free {
    uint64_t bytes;         // that can be taken without pushing anybody out
    const char *limit;      // what sets this bound: "MemAvailable", "the control group's limit"
    uint64_t address_space; // that can still be mapped (RLIMIT_AS); UINT64_MAX when there is no limit
    uint64_t total;         // of the machine; 0 when not known
};

// `root` stands before /proc and /sys, "" but in tests. What cannot be read sets no limit.
void memory_query(const char *root, struct memory_free *out);

// What a run needs, part by part.
struct memory_need {
    uint64_t weights;        // mapped from the file, or read from it
    uint64_t kv;             // the pool of KV pages
    uint64_t plan;           // values of a step
    uint64_t other;          // logits, tables
    bool weights_are_mapped; // already a part of the address space
};

// The sum; saturates.
uint64_t memory_sum(const struct memory_need *need);
// Writes a size as "1.5 GiB".
void memory_format(uint64_t bytes, char out[24]);

#endif
