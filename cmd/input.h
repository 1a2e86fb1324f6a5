// Reading a file, or stdin, to its end.
//
// Ownership: the caller frees the data. Threads: any; nothing is shared.
#ifndef QUERN_INPUT_H
#define QUERN_INPUT_H

#include "gguf/base.h"

// All bytes of a file; "-" is stdin. E_IO with the path, E_MEMORY.
int input_read(const char *path, char **data, size_t *size, struct error *err);

#endif
