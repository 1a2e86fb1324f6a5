// NVIDIA's assembler, where it is installed: what a kernel becomes on a card, without one.
#ifndef QUERN_PTXAS_H
#define QUERN_PTXAS_H

#include "gguf/base.h"

struct ptxas_facts {
    int registers, shared; // of a thread; bytes of a block
    int stack, spills;     // bytes of a thread
    bool serialised;       // wgmma was (C7510)
};
// Where it is: on $PATH, or in the toolkit's own folder; false when it is not installed.
bool ptxas_find(char path[4096]);
// Assembles a text for sm_`arch` and throws the result away. E_GPU with its first complaint.
int ptxas_run(const char *path, struct str text, int arch, struct ptxas_facts *out, struct error *err);

#endif
