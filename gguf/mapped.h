// Which addresses are those of mapped files: a load from a page that a file has lost, because another process made it
// shorter, raises SIGBUS, and whoever handles that signal wants to say which file it was.
//
// The table is one of the few things that change after the start of the program, because signals are sent to the process
// and not to an object. Ownership: a path must stay valid until mapped_remove. Threads: any; mapped_find may be called
// from a signal handler.
#ifndef QUERN_MAPPED_H
#define QUERN_MAPPED_H

#include <stddef.h>

// Adds a mapping of `bytes` bytes. Of more than 256 mappings the later ones are not known.
void mapped_add(const void *from, size_t bytes, const char *path);
void mapped_remove(const void *from);
// The path of the file at this address; NULL if no mapping of a file is there.
const char *mapped_find(const void *address);

#endif
