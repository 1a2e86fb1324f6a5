// Runs NVIDIA's assembler, if it is installed, to learn what a kernel becomes on a GPU without having one.
#ifndef QUERN_PTXAS_H
#define QUERN_PTXAS_H

#include "gguf/base.h"

struct ptxas_facts {
    int registers, shared; // registers of a thread; bytes of shared memory of a CTA
    int stack, spills;     // bytes of local memory of a thread
    bool serialised;       // ptxas serialised wgmma instructions (warning C7510)
};
// Looks for ptxas on $PATH and in the toolkit's own folder. False if it is not installed.
bool ptxas_find(char path[4096]);
// Assembles a text for sm_`arch` and discards the result. E_GPU with the first complaint of ptxas.
int ptxas_run(const char *path, struct str text, int arch, struct ptxas_facts *out, struct error *err);

#endif
