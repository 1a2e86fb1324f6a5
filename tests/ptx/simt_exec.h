// Runs a CTA of warps.
#ifndef QUERN_SIMT_EXEC_H
#define QUERN_SIMT_EXEC_H

#include "tests/ptx/simt_machine.h"

// Runs a CTA, whose warps are at the kernel's first instruction, to its end.
int simt_run_cta(struct cta *cta);
// Runs a CTA until all its warps wait or have ended. Returns 1 if one of them came further, 0 if none did, -1 after a fault.
int simt_run_on(struct cta *cta);
// Checks the end of a CTA of which no warp can run. The fault is that of a warp that waits.
int simt_check_end(struct cta *cta);

#endif
