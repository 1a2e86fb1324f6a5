// Temporary files: what is written beside a file until it is whole and takes the file's name.
//
// However the process ends, the files that are temporary at that time are removed: whoever handles a signal that ends the
// process calls temporary_remove_all. (SIGKILL and a power cut leave them.) The list of them is one of the few things that
// change after the start of the program, because signals are sent to the process and not to an object.
// Ownership: a name belongs to the caller and must stay valid until temporary_rename has succeeded or temporary_remove was
// called. Threads: any; temporary_remove_all may be called from a signal handler.
#ifndef QUERN_TEMPORARY_H
#define QUERN_TEMPORARY_H

#include <stddef.h>
#include <sys/types.h>

enum { TEMPORARY_SUFFIX = 32 }; // most bytes by which a temporary name is longer than the path, with its NUL

// Creates an empty file beside `path`, which did not exist before, and opens it for reading and writing. `name`, of
// strlen(path) + TEMPORARY_SUFFIX bytes, becomes its name. The umask is taken off the mode. Returns the descriptor, or -1
// with errno; EMFILE if there are 256 temporary files already.
int temporary_create(const char *path, char *name, mode_t mode);
// Renames the file, which is then no temporary one any more. On an error, -1 with errno, it still is.
int temporary_rename(const char *name, const char *path);
void temporary_remove(const char *name);
void temporary_remove_all(void);

#endif
