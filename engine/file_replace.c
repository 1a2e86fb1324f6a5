// Locks the folder with flock and writes to a mkostemp file beside the target; end syncs the file, renames it and
// syncs the folder. A failed lock or a failed sync of the folder is ignored, because some file systems support
// neither. A symbolic link is resolved first, so that the file behind it is replaced.
#include "engine/file_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const struct file_replace *f, const char *what, struct error *err)
{
    return fail(err, E_IO, "%s: %s: %s", f->path, what, strerror(errno));
}

// Sets the path and the temporary name. Symbolic links are resolved, so that the file behind a link is replaced and not
// the link.
static int name_files(struct file_replace *f, const char *path)
{
    f->path = realpath(path, NULL);
    if (!f->path && !(f->path = strdup(path)))
        return -1;
    return asprintf(&f->temporary, "%s.XXXXXX", f->path) < 0 ? (f->temporary = NULL, -1) : 0;
}

static int open_folder(const struct file_replace *f)
{
    char folder[4096];
    const char *slash = strrchr(f->path, '/');
    size_t n = slash ? (size_t)(slash - f->path) : 1;
    if (n >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, slash ? (n ? f->path : "/") : ".");
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void file_replace_folders(const char *path)
{
    char folder[4096];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return;
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(folder, 0700);
        *slash = '/';
    }
}

int file_replace_begin(struct file_replace *f, const char *path, struct error *err)
{
    *f = (struct file_replace){.fd = -1, .folder = -1};
    if (check_replaceable(path, err))
        return -1;
    int status;
    if (name_files(f, path)) {
        status = fail(err, E_MEMORY, "no memory for a path");
    } else {
        f->folder = open_folder(f);
        // errors are ignored, because some file systems have no locks
        if (f->folder >= 0)
            flock(f->folder, LOCK_EX);
        f->fd = f->folder < 0 ? -1 : mkostemp(f->temporary, O_CLOEXEC);
        status = f->fd < 0 ? refuse(f, "cannot be written", err) : 0;
    }
    if (status)
        file_replace_abort(f);
    return status;
}

void file_replace_share(struct file_replace *f)
{
    struct stat st;
    const mode_t mask = umask(0);
    umask(mask);
    fchmod(f->fd, stat(f->path, &st) ? 0666 & ~mask : st.st_mode & 0777);
}

int file_replace_write(struct file_replace *f, const void *data, size_t n, struct error *err)
{
    const char *at = data;
    while (n) {
        ssize_t done = write(f->fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return refuse(f, "cannot be written", err);
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

int file_replace_end(struct file_replace *f, struct error *err)
{
    int status = fsync(f->fd) || rename(f->temporary, f->path) ? refuse(f, "cannot be kept", err) : 0;
    if (!status) {
        free(f->temporary);
        f->temporary = NULL;
        fsync(f->folder); // syncs the new name; errors are ignored, because some file systems cannot sync a folder
    }
    file_replace_abort(f);
    return status;
}

void file_replace_abort(struct file_replace *f)
{
    if (f->fd >= 0) {
        if (f->temporary)
            unlink(f->temporary);
        close(f->fd);
    }
    if (f->folder >= 0)
        close(f->folder);
    free(f->path);
    free(f->temporary);
    *f = (struct file_replace){.fd = -1, .folder = -1};
}
