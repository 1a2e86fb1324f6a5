// Writes to a temporary file beside the target; end syncs the file, locks the folder with flock, renames the file and syncs
// the folder. A failed lock or a failed sync of the folder is ignored, because some file systems support neither. A
// symbolic link is resolved first, so that the file behind it is replaced.
#include "engine/file_replace.h"
#include "gguf/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const struct file_replace *f, const char *what, struct error *err)
{
    return fail(err, E_IO, "%s: %s: %s", f->path, what, strerror(errno));
}

int file_replace_descriptor(const char *path)
{
    enum { LINKS_MOST = 8, STANDARD_OUTPUT = 1 };
    char at[PATH_MAX], folder[PATH_MAX], real[PATH_MAX], own[64];
    if (!strcmp(path, "-"))
        return STANDARD_OUTPUT;
    snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at)
        return -1;
    for (int i = 0; i < LINKS_MOST; i++) {
        char *end, *slash = strrchr(at, '/'), to[PATH_MAX];
        snprintf(folder, sizeof folder, "%.*s", slash ? MAX((int)(slash - at), 1) : 1, slash ? at : ".");
        const char *name = slash ? slash + 1 : at;
        const long n = strtol(name, &end, 10);
        if (realpath(folder, real) && !strcmp(real, own))
            return *name && !*end && n >= 0 && n < INT_MAX ? (int)n : -1;
        const ssize_t size = readlink(at, to, sizeof to - 1);
        if (size < 0)
            return -1;
        to[size] = 0;
        char next[PATH_MAX];
        if (snprintf(next, sizeof next, "%s%s%s", *to == '/' ? "" : folder, *to == '/' ? "" : "/", to) >=
            (int)sizeof next)
            return -1;
        memcpy(at, next, sizeof at);
    }
    return -1;
}

// Sets the path and the room for the temporary name. Symbolic links are resolved, so that the file behind a link is
// replaced and not the link.
static int name_files(struct file_replace *f, const char *path)
{
    f->path = realpath(path, NULL);
    if (!f->path && !(f->path = strdup(path)))
        return -1;
    return (f->temporary = malloc(strlen(f->path) + TEMPORARY_SUFFIX)) ? 0 : -1;
}

enum { FOLDER_MAX = 4096 };

static int folder_of(const struct file_replace *f, char folder[FOLDER_MAX])
{
    const char *slash = strrchr(f->path, '/');
    size_t n = slash ? (size_t)(slash - f->path) : 1;
    if (n >= FOLDER_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    snprintf(folder, FOLDER_MAX, "%.*s", n ? (int)n : 1, slash ? (n ? f->path : "/") : ".");
    return 0;
}

static int open_folder(const struct file_replace *f)
{
    char folder[FOLDER_MAX];
    return folder_of(f, folder) ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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

// Whether what has this name may be replaced.
static int check_target(const char *path, struct error *err)
{
    if (check_replaceable(path, err))
        return -1;
    if (!access(path, F_OK) && access(path, W_OK))
        return fail(err, E_IO, "%s: is there already and cannot be written: %s", path, strerror(errno));
    return 0;
}

static int begin(struct file_replace *f, const char *path, mode_t mode, struct error *err)
{
    *f = (struct file_replace){.fd = -1};
    if (check_target(path, err))
        return -1;
    int status = name_files(f, path) ? fail(err, E_MEMORY, "no memory for a path") : 0;
    if (!status && (f->fd = temporary_create(f->path, f->temporary, mode)) < 0)
        status = refuse(f, "cannot be written", err);
    if (status)
        file_replace_abort(f);
    return status;
}

int file_replace_begin(struct file_replace *f, const char *path, struct error *err)
{
    return begin(f, path, 0600, err);
}

static int refuse_link(const char *path, struct error *err)
{
    struct stat st;
    if (!lstat(path, &st) && S_ISLNK(st.st_mode))
        return fail(err, E_USAGE, "%s: is a symbolic link, which is not followed here; move it away", path);
    return 0;
}

int file_replace_beside(struct file_replace *f, const char *path, struct error *err)
{
    *f = (struct file_replace){.fd = -1};
    return refuse_link(path, err) ? -1 : begin(f, path, 0600, err);
}

// Opens what is no file and so cannot be replaced; an open descriptor, if it is not -1, goes on where it stands.
static int open_in_place(struct file_replace *f, const char *path, int descriptor, struct error *err)
{
    *f = (struct file_replace){.path = strdup(path)};
    f->fd = descriptor >= 0 ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (!f->path)
        fail(err, E_MEMORY, "no memory for a path");
    else if (f->fd >= 0)
        return 0;
    else
        refuse(f, "cannot be written", err);
    file_replace_abort(f);
    return -1;
}

// What is written as it is and not replaced: an open descriptor, a device or a pipe.
static bool is_in_place(const char *path)
{
    struct stat st;
    return file_replace_descriptor(path) >= 0 || (!stat(path, &st) && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode)));
}

void file_replace_keep_mode(const struct file_replace *f, const struct stat *old)
{
    const bool given = !fchown(f->fd, old->st_uid, old->st_gid); // only root may give a file to another owner
    (void)given;
    fchmod(f->fd, old->st_mode & 0777);
}

int file_replace_output(struct file_replace *f, const char *path, struct error *err)
{
    struct stat st;
    const bool is_there = !stat(path, &st);
    const int descriptor = file_replace_descriptor(path);
    *f = (struct file_replace){.fd = -1};
    if (is_in_place(path))
        return open_in_place(f, path, descriptor, err);
    if (begin(f, path, 0666, err))
        return -1;
    if (is_there)
        file_replace_keep_mode(f, &st);
    return 0;
}

// Tries what is written as it is. Whether somebody reads a pipe shows when it is written.
static int try_in_place(const char *path, struct error *err)
{
    struct stat st;
    const struct file_replace f = {.path = (char *)(uintptr_t)path};
    const int descriptor = file_replace_descriptor(path), how = descriptor < 0 ? 0 : fcntl(descriptor, F_GETFL);
    errno = how < 0 ? errno : EBADF;
    if (descriptor >= 0)
        return how < 0 || (how & O_ACCMODE) == O_RDONLY ? refuse(&f, "cannot be written", err) : 0;
    if (stat(path, &st) || S_ISFIFO(st.st_mode))
        return 0;
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return refuse(&f, "cannot be written", err);
    close(fd);
    return 0;
}

static int try_beside(const char *path, struct error *err)
{
    struct file_replace f;
    if (!*path)
        return fail(err, E_USAGE, "an output without a name");
    if (begin(&f, path, 0600, err))
        return -1;
    file_replace_abort(&f);
    return 0;
}

int file_replace_check_output(const char *path, struct error *err)
{
    return is_in_place(path) ? try_in_place(path, err) : try_beside(path, err);
}

int file_replace_check_beside(const char *path, struct error *err)
{
    return refuse_link(path, err) ? -1 : try_beside(path, err);
}

FILE *file_replace_stream(struct file_replace *f, struct error *err)
{
    const int fd = f->stream ? -1 : fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && !(f->stream = fdopen(fd, "w")))
        close(fd);
    if (!f->stream)
        refuse(f, "cannot be written", err);
    return f->stream;
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

// Gives the whole file its name.
static int keep(struct file_replace *f)
{
    const int folder = open_folder(f);
    if (folder >= 0)
        flock(folder, LOCK_EX);
    int status = temporary_rename(f->temporary, f->path);
    const int cause = errno;
    if (!status) {
        free(f->temporary);
        f->temporary = NULL;
        fsync(folder);
    }
    if (folder >= 0)
        close(folder);
    errno = cause;
    return status;
}

int file_replace_end(struct file_replace *f, struct error *err)
{
    int status = f->stream && fflush(f->stream) ? refuse(f, "cannot be written", err) : 0;
    if (!status && f->temporary && (fsync(f->fd) || keep(f)))
        status = refuse(f, "cannot be kept", err);
    file_replace_abort(f);
    return status;
}

void file_replace_abort(struct file_replace *f)
{
    if (f->stream)
        fclose(f->stream);
    if (f->fd >= 0) {
        if (f->temporary)
            temporary_remove(f->temporary);
        close(f->fd);
    }
    free(f->path);
    free(f->temporary);
    *f = (struct file_replace){.fd = -1};
}
