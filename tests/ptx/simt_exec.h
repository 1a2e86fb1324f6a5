// Runs a CTA whose warps are at the kernel's first instruction.
#ifndef QUERN_SIMT_EXEC_H
#define QUERN_SIMT_EXEC_H

#include "tests/ptx/simt_machine.h"

int simt_run_cta(struct cta *cta);

#endif
