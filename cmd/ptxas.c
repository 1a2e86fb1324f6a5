// Runs ptxas as a child process. Its messages are read from a pipe; the text is passed in an unnamed file.
#include "cmd/ptxas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LOG_BYTES = 1 << 16 };

static bool is_there(char path[PATH_BYTES], const char *folder, size_t len)
{
    int n = snprintf(path, PATH_BYTES, "%.*s/ptxas", (int)len, folder);
    return len && n < PATH_BYTES && !access(path, X_OK);
}

bool ptxas_find(char path[PATH_BYTES])
{
    const char *toolkit = "/usr/local/cuda/bin", *p = getenv("PATH");
    while (p && *p) {
        size_t len = strcspn(p, ":");
        if (is_there(path, p, len))
            return true;
        p += len + (p[len] == ':');
    }
    return is_there(path, toolkit, strlen(toolkit));
}

// The child process: redirects the messages to the pipe and executes ptxas.
static void become(const char *path, int text, int arch, int words)
{
    char from[32], target[32];
    snprintf(from, sizeof from, "/proc/self/fd/%d", text);
    snprintf(target, sizeof target, "-arch=sm_%d", arch);
    if (dup2(words, 1) >= 0 && dup2(words, 2) >= 0)
        execl(path, "ptxas", "-v", target, "-o", "/dev/null", from, (char *)NULL);
    _exit(127);
}

static size_t read_words(int fd, char *log, size_t size)
{
    size_t n = 0;
    char rest[512];
    for (;;) {
        bool room = n + 1 < size;
        ssize_t got = read(fd, room ? log + n : rest, room ? size - 1 - n : sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += room ? (size_t)got : 0;
    }
    log[n] = 0;
    return n;
}

// Reads the number in front of a word, as in "0 bytes spill stores".
static int number_before(const char *log, const char *word)
{
    const char *p = strstr(log, word);
    while (p && p > log && (p[-1] == ' '))
        p--;
    while (p && p > log && p[-1] >= '0' && p[-1] <= '9')
        p--;
    return p ? (int)strtol(p, NULL, 10) : 0;
}

// The line of the log that says why ptxas failed; without one, how it ended.
static int explain(const char *log, int status, struct error *err)
{
    const char *why = strstr(log, "error");
    why = why ? why : log + strspn(log, "\n");
    if (*why)
        return fail(err, E_GPU, "ptxas: %.*s", (int)MIN(strcspn(why, "\n"), (size_t)300), why);
    return WIFEXITED(status) ? fail(err, E_GPU, "ptxas ended with status %d and said nothing", WEXITSTATUS(status))
                             : fail(err, E_GPU, "ptxas was ended by signal %d", WTERMSIG(status));
}

static int read_log(const char *log, int status, struct ptxas_facts *out, struct error *err)
{
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return explain(log, status, err);
    *out = (struct ptxas_facts){.registers = number_before(log, " registers"),
                                .shared = number_before(log, " bytes smem"),
                                .stack = number_before(log, " bytes stack frame"),
                                .spills = number_before(log, " bytes spill stores"),
                                .serialised = strstr(log, "C7510")};
    return 0;
}

static int run(const char *path, int text, int arch, char *log, struct ptxas_facts *out, struct error *err)
{
    int ends[2], status;
    if (pipe(ends))
        return fail(err, E_IO, "no pipe to ptxas: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        become(path, text, arch, ends[1]);
    close(ends[1]);
    if (child > 0)
        read_words(ends[0], log, LOG_BYTES);
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return fail(err, E_IO, "ptxas cannot be run: %s", strerror(errno));
    return read_log(log, status, out, err);
}

int ptxas_run(const char *path, struct str text, int arch, struct ptxas_facts *out, struct error *err)
{
    char *log = calloc(1, LOG_BYTES);
    int fd = memfd_create("kernel.ptx", 0);
    int rc = !log ? fail(err, E_MEMORY, "no memory for what ptxas says")
             : fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len
                 ? fail(err, E_IO, "no file for a kernel's text: %s", strerror(errno))
                 : run(path, fd, arch, log, out, err);
    if (fd >= 0)
        close(fd);
    free(log);
    return rc;
}
