// Reads a file or stdin to its end, up to a limit that each kind of file has: what never ends, such as /dev/zero, is refused
// before it has taken the memory. inputs.def has the kinds.
//
// Ownership: the caller frees the data. Threads: any; nothing is shared.
#ifndef QUERN_INPUT_H
#define QUERN_INPUT_H

#include "cmd/options.h"

enum input_kind {
#define INPUT(NAME, ...) INPUT_##NAME,
#include "cmd/inputs.def"
#undef INPUT
    INPUT_COUNT
};

// Reads all bytes of a file, or of stdin if the path is "-". E_IO with the path; E_USAGE with the limit; E_MEMORY.
int input_read(const char *path, enum input_kind kind, char **data, size_t *size, struct error *err);

// The same for a file whose name is made from another name or comes from a list, so that nobody has meant a device or a pipe
// by it: what is no regular file is E_USAGE, and a pipe without a writer is not waited for.
int input_read_regular(const char *path, enum input_kind kind, char **data, size_t *size, struct error *err);

// For a reader of its own: the most bytes of this kind, and the error of what is longer.
size_t input_limit(enum input_kind kind);
int input_too_long(const char *name, enum input_kind kind, struct error *err);

// Reads the text that a verb works on, from -p, the single argument, -f or stdin. The text is a view of *data, which the caller frees, or of argv. E_USAGE if more than one source is
// given, or none while stdin is a terminal.
int input_take(const struct options *o, enum input_kind kind, char **data, struct str *text, struct error *err);

#endif
