#include "cmd/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int read_all(int fd, const char *name, char **data, size_t *size, struct error *err)
{
    size_t cap = 0;
    for (;;) {
        if (*size == cap) {
            cap = cap ? 2 * cap : 1 << 16;
            char *more = realloc(*data, cap);
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

int input_read(const char *path, char **data, size_t *size, struct error *err)
{
    *data = NULL;
    *size = 0;
    bool is_stdin = !strcmp(path, "-");
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    int status = read_all(fd, is_stdin ? "stdin" : path, data, size, err);
    if (!is_stdin)
        close(fd);
    if (status) {
        free(*data);
        *data = NULL;
    }
    return status;
}
