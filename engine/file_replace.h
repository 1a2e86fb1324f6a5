// Replaces a file atomically: at any time the complete old file or the complete new file is in place.
//
// The bytes are written to a temporary file in the same folder (mode 0600), which is synced and renamed into place
// while the folder is locked against other processes that do the same. Ownership: begin opens, end or abort closes.
// Threads: one at a time.
#ifndef QUERN_FILE_REPLACE_H
#define QUERN_FILE_REPLACE_H

#include "gguf/base.h"

struct file_replace {
    char *path, *temporary;
    int fd, folder;
};

// Creates the missing folders above a path. Errors are ignored here, because opening the file then fails.
void file_replace_folders(const char *path);
// Errors of all of them: E_IO with the path, and E_MEMORY. begin gives E_USAGE for a device, a pipe or a folder, which
// are never replaced. When one fails and abort is called, no temporary file is left behind.
int file_replace_begin(struct file_replace *f, const char *path, struct error *err);
int file_replace_write(struct file_replace *f, const void *data, size_t n, struct error *err);
// Gives the new file the permissions of the old one or, if there is none, those that programs usually give: read and write
// less the umask. Without it only the owner may read it.
void file_replace_share(struct file_replace *f);
int file_replace_end(struct file_replace *f, struct error *err); // closes in any case
void file_replace_abort(struct file_replace *f);                 // fine at any point after begin, and after end

#endif
