// The model name of the processor.
#ifndef QUERN_CPU_NAME_H
#define QUERN_CPU_NAME_H

#include <stddef.h>

// Reads the name from the list of processors that the operating system gives; "unknown" when it has none.
void cpu_name(char *out, size_t size);

#endif
