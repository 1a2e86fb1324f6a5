// The processor's own name.
#ifndef QUERN_CPU_NAME_H
#define QUERN_CPU_NAME_H

#include <stddef.h>

// From the kernel's list; "unknown" where that does not say.
void cpu_name(char *out, size_t size);

#endif
