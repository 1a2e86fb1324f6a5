// Reads a file or stdin to its end.
//
// Ownership: the caller frees the data. Threads: any; nothing is shared.
#ifndef QUERN_INPUT_H
#define QUERN_INPUT_H

#include "cmd/options.h"

// Reads all bytes of a file, or of stdin if the path is "-". E_IO with the path; E_MEMORY.
int input_read(const char *path, char **data, size_t *size, struct error *err);

// Reads the text that a verb works on, from -p, the single argument, -f or stdin. `what` names the text in errors
// ("prompt"). The text is a view of *data, which the caller frees, or of argv. E_USAGE if more than one source is
// given, or none while stdin is a terminal.
int input_take(const struct options *o, const char *what, char **data, struct str *text, struct error *err);

#endif
