// Reading a file, or stdin, to its end.
//
// Ownership: the caller frees the data. Threads: any; nothing is shared.
#ifndef QUERN_INPUT_H
#define QUERN_INPUT_H

#include "cmd/options.h"

// All bytes of a file; "-" is stdin. E_IO with the path, E_MEMORY.
int input_read(const char *path, char **data, size_t *size, struct error *err);

// The text that a verb works on: from -p, the one argument, -f or stdin. `what` names it in errors ("prompt"). The text
// views *data, which the caller frees, or argv. E_USAGE when there is more than one, or none and stdin is a terminal.
int input_take(const struct options *o, const char *what, char **data, struct str *text, struct error *err);

#endif
