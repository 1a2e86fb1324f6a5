// Turns any kernel into one for programmatic dependent launch: the next launch may begin beside it, and where it begins
// beside the launch ahead itself, it waits for that one at once. Such a kernel prefetches nothing, but lets those that do
// begin in time. Launched without the attribute, it does what it did before.
//
// Ownership: none. Threads: no shared state.
#ifndef QUERN_EMIT_EARLY_H
#define QUERN_EMIT_EARLY_H

#include "kernels/ptx/emit.h"

// The line that stands where griddepcontrol.wait would, in a kernel that reads constants ahead of it and is launched
// without the attribute.
#define PTX_READS_FROM_HERE "    // from here on it reads what launches ahead of it write"

// Changes a complete text of one kernel (ptx_finish) to PTX 7.8 and sm_90 at least. Fails if the buffer has no room.
int ptx_begin_early(struct ptx *p, struct error *err);

#endif
