// Replaces a file atomically: at any time the complete old file or the complete new file is in place.
//
// The bytes are written to a temporary file in the same folder, which is synced and renamed into place while the folder is
// locked against other processes that do the same; gguf/temporary.h says when it is removed. Ownership: begin, beside or
// output opens, end or abort closes. Threads: one at a time.
#ifndef QUERN_FILE_REPLACE_H
#define QUERN_FILE_REPLACE_H

#include "gguf/base.h"

#include <stdio.h>
#include <sys/stat.h>

struct file_replace {
    char *path, *temporary; // temporary: NULL while a device or a pipe is written
    FILE *stream;           // NULL: none was asked for
    int fd;
};

// Whether two results of stat(2) are of one file, whatever its names.
static inline bool file_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// The number N if a path leads, through symbolic links, to /proc/self/fd/N, as /dev/stdout and /dev/fd/N do, or is "-", which is stdout; else -1. What
// such a path names is the open file itself, at its place, and not a file to be replaced.
int file_replace_descriptor(const char *path);
// Creates the missing folders above a path. Errors are ignored here, because opening the file then fails.
void file_replace_folders(const char *path);
// Errors of all of them: E_IO with the path, and E_MEMORY. begin gives E_USAGE for a device, a pipe or a folder, which
// are never replaced, and for a link that leads nowhere; E_IO for a file that is protected from writing. When one fails and
// abort is called, no temporary file is left behind. Only the owner may read the new file; of a symbolic link, the file
// behind it is replaced.
int file_replace_begin(struct file_replace *f, const char *path, struct error *err);
// The same for a file whose name is not given but made from another name, such as a cache: a symbolic link there is not
// ours, and refused with E_USAGE.
int file_replace_beside(struct file_replace *f, const char *path, struct error *err);
// The same for an output that a user names: a device, a pipe and an open descriptor (/dev/stdout, /dev/fd/N) are written as
// they are, and the file has the owner and the permissions of the old one or, if there is none, those that programs usually
// give.
int file_replace_output(struct file_replace *f, const char *path, struct error *err);
// Gives the new file the permissions and, where that is allowed, the owner of an old one.
void file_replace_keep_mode(const struct file_replace *f, const struct stat *old);
// Whether output or beside would succeed, for what takes long before its result is written: the temporary file is created and
// removed again, a device is opened; whether somebody reads a pipe is not known before it is written.
int file_replace_check_output(const char *path, struct error *err);
int file_replace_check_beside(const char *path, struct error *err);
// A buffered stream to write with instead of file_replace_write. end writes what it holds; end and abort close it.
FILE *file_replace_stream(struct file_replace *f, struct error *err);
int file_replace_write(struct file_replace *f, const void *data, size_t n, struct error *err);
int file_replace_end(struct file_replace *f, struct error *err); // closes in any case
void file_replace_abort(struct file_replace *f);                 // fine at any point after begin, and after end

#endif
