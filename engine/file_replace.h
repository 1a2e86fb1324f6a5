// Writing a file so that there is, at any time, the old one or the new one, whole.
//
// The bytes go into a file beside it (0600), which is synced and renamed into its place, while the folder is locked
// against others who do the same. Ownership: begin opens, end or abort closes. Threads: one at a time.
#ifndef QUERN_FILE_REPLACE_H
#define QUERN_FILE_REPLACE_H

#include "gguf/base.h"

struct file_replace {
    char *path, *temporary;
    int fd, folder;
};

// Makes the folders above a path that are missing; what cannot be made shows when the file is opened.
void file_replace_folders(const char *path);
// All: E_IO with the path, E_MEMORY; begin E_USAGE for a device, a pipe or a folder, which stay as they are. Nothing is
// left behind when one fails and abort is called.
int file_replace_begin(struct file_replace *f, const char *path, struct error *err);
int file_replace_write(struct file_replace *f, const void *data, size_t n, struct error *err);
int file_replace_end(struct file_replace *f, struct error *err); // closes in any case
void file_replace_abort(struct file_replace *f);                 // fine at any point after begin, and after end

#endif
