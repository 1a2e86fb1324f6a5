// Reads into a buffer that starts at 64 KiB and doubles, so that pipes, whose size is not known, need no case of
// their own.
#include "cmd/input.h"
#include "cmd/terminal/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *what;
    size_t limit; // bytes
} kinds[INPUT_COUNT] = {
#define INPUT(NAME, what, limit) [INPUT_##NAME] = {what, (size_t)(limit) << 20},
#include "cmd/inputs.def"
#undef INPUT
};

size_t input_limit(enum input_kind kind)
{
    return kinds[kind].limit;
}

int input_too_long(const char *name, enum input_kind kind, struct error *err)
{
    return fail(err, E_USAGE, "%s: more than %zu MiB, the limit of a %s", name, kinds[kind].limit >> 20,
                kinds[kind].what);
}

static int read_all(int fd, const char *name, enum input_kind kind, char **data, size_t *size, struct error *err)
{
    const size_t most = kinds[kind].limit + 1; // one byte more tells that the limit is passed
    struct stat st;
    size_t cap = 0;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > (off_t)kinds[kind].limit)
        return input_too_long(name, kind, err);
    for (;;) {
        if (*size == cap) {
            cap = MIN(cap ? 2 * cap : 1 << 16, most);
            char *more = *size < most ? realloc(*data, cap) : NULL;
            if (*size == most)
                return input_too_long(name, kind, err);
            if (!more)
                return fail(err, E_MEMORY, "%s: no memory for %zu bytes", name, cap);
            *data = more;
        }
        ssize_t n = read(fd, *data + *size, cap - *size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(err, E_IO, "%s: byte %zu: %s", name, *size, strerror(errno));
        if (n == 0)
            return 0;
        *size += (size_t)n;
    }
}

// Reads an open file, and leaves out the mark of its byte order.
static int read_open(int fd, const char *name, enum input_kind kind, char **data, size_t *size, struct error *err)
{
    *data = NULL;
    *size = 0;
    int status = read_all(fd, name, kind, data, size, err);
    if (!status && *size >= 3 && !memcmp(*data, "\xef\xbb\xbf", 3))
        memmove(*data, *data + 3, *size -= 3); // a byte order mark is no part of a text
    if (status) {
        free(*data);
        *data = NULL;
    }
    return status;
}

int input_read(const char *path, enum input_kind kind, char **data, size_t *size, struct error *err)
{
    *data = NULL;
    if (!strcmp(path, "-"))
        return read_open(STDIN_FILENO, "stdin", kind, data, size, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    int status = read_open(fd, path, kind, data, size, err);
    close(fd);
    return status;
}

int input_read_regular(const char *path, enum input_kind kind, char **data, size_t *size, struct error *err)
{
    struct stat st;
    *data = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st)) {
        fail(err, E_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    int status = S_ISREG(st.st_mode) ? read_open(fd, path, kind, data, size, err)
                                     : fail(err, E_USAGE, "%s: is no regular file", path);
    close(fd);
    return status;
}

int input_take(const struct options *o, enum input_kind kind, char **data, struct str *text, struct error *err)
{
    const char *what = kinds[kind].what;
    *data = NULL;
    if ((o->prompt != NULL) + (o->file != NULL) + (o->args.n > 0) > 1)
        return fail(err, E_USAGE, "more than one %s: give one of -p, -f and an argument", what);
    if (o->args.n > 1)
        return fail(err, E_USAGE, "%s: a second %s; put the %s in quotes", o->args.at[1], what, what);
    if (o->prompt || o->args.n) {
        *text = str_from(o->prompt ? o->prompt : o->args.at[0]);
        return 0;
    }
    if (!o->file && terminal_is_tty(STDIN_FILENO))
        return fail(err, E_USAGE, "no %s: give one with -p TEXT, -f FILE, or on stdin", what);
    size_t size;
    if (input_read(o->file ? o->file : "-", kind, data, &size, err))
        return -1;
    *text = (struct str){*data, size};
    return 0;
}
