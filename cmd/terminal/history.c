// Adding an entry searches all entries for an equal one, at most HISTORY_MAX of them. The file is locked with flock;
// since another process may replace the file while this one waits for the lock, the inode is compared afterwards and
// the file is opened again if it differs. The file is compacted only when the history is opened.
#include "cmd/terminal/history.h"
#include "cmd/input.h"
#include "engine/file_replace.h"
#include "kernels/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// --- entries ---

static void drop(struct history *h, size_t i)
{
    free((char *)(uintptr_t)h->entries[i].data);
    memmove(h->entries + i, h->entries + i + 1, (h->n - i - 1) * sizeof *h->entries);
    h->n--;
}

// Appends a text, and takes ownership of its memory.
static int push(struct history *h, struct str text, struct error *err)
{
    // an equal entry is removed, or, of HISTORY_MAX entries, the oldest
    for (size_t i = h->n; i-- > 0;)
        if (str_equal(h->entries[i], text)) {
            drop(h, i);
            break;
        }
    if (h->n == HISTORY_MAX)
        drop(h, 0);
    if (h->n == h->cap) {
        size_t cap = MIN(2 * h->cap + 64, (size_t)HISTORY_MAX);
        struct str *more = realloc(h->entries, cap * sizeof *more);
        if (!more) {
            free((char *)(uintptr_t)text.data);
            return fail(err, E_MEMORY, "no memory for the history");
        }
        h->entries = more;
        h->cap = cap;
    }
    h->entries[h->n++] = text;
    return 0;
}

// --- lines of the file ---

static void print_line(struct text *out, struct str entry)
{
    for (size_t i = 0; i < entry.len; i++) {
        char c = entry.data[i];
        if (c == '\n' || c == '\\')
            text_append(out, c == '\n' ? STR_LIT("\\n") : STR_LIT("\\\\"));
        else
            text_append(out, (struct str){&c, 1});
    }
    text_append(out, STR_LIT("\n"));
}

static int take_line(struct history *h, struct str line, struct error *err)
{
    char *text = malloc(line.len + 1);
    if (!text)
        return fail(err, E_MEMORY, "no memory for the history");
    size_t n = 0;
    for (size_t i = 0; i < line.len; i++) {
        bool escaped = line.data[i] == '\\' && i + 1 < line.len;
        i += escaped;
        text[n++] = (char)(escaped && line.data[i] == 'n' ? '\n' : line.data[i]);
    }
    return push(h, (struct str){text, n}, err);
}

static size_t count_lines(struct str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == '\n';
    return n;
}

// Parses the last HISTORY_MAX lines. A last line without a newline was truncated while it was written, and is
// skipped.
static int take_lines(struct history *h, struct str text, struct error *err)
{
    size_t n_lines = count_lines(text), skip = n_lines > HISTORY_MAX ? n_lines - HISTORY_MAX : 0;
    while (text.len) {
        const char *end = memchr(text.data, '\n', text.len);
        if (!end)
            break;
        size_t n = (size_t)(end - text.data);
        if (skip)
            skip--;
        else if (n && n <= 2 * HISTORY_ENTRY_MAX && take_line(h, (struct str){text.data, n}, err))
            return -1;
        text = (struct str){end + 1, text.len - n - 1};
    }
    return 0;
}

// --- the file ---

static int write_all(int fd, struct text *text)
{
    for (size_t at = 0; at < text->size;) {
        ssize_t n = write(fd, text->data + at, text->size - at);
        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    return text->failed ? -1 : 0;
}

// Opens the file and locks it. It is opened again if it was replaced in between.
static int open_locked(const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
        if (fd < 0)
            return -1;
        struct stat mine, there;
        if (!flock(fd, LOCK_EX) && !fstat(fd, &mine) && !stat(path, &there) && file_is_same(&mine, &there))
            return fd;
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

// Replaces the file by the present entries. The caller holds the lock. After an error the file is unchanged.
static void replace_file(const struct history *h)
{
    struct text all = {0};
    struct file_replace f;
    struct error err;
    for (size_t i = 0; i < h->n; i++)
        if (h->entries[i].len <= HISTORY_ENTRY_MAX)
            print_line(&all, h->entries[i]);
    if (!all.failed && !file_replace_begin(&f, h->path, &err)) {
        if (file_replace_write(&f, all.data, all.size, &err))
            file_replace_abort(&f);
        else
            file_replace_end(&f, &err);
    }
    text_free(&all);
}

// Reads the file again under the lock, because other processes may have added to it, and removes what is not kept.
static void compact(struct history *h)
{
    struct history now = {.path = h->path};
    struct error err;
    char *data = NULL;
    size_t size;
    int fd = open_locked(h->path);
    if (fd < 0)
        return;
    if (!input_read_regular(h->path, INPUT_HISTORY, &data, &size, &err) &&
        !take_lines(&now, (struct str){data, size}, &err))
        replace_file(&now);
    free(data);
    now.path = NULL;
    history_close(&now);
    close(fd);
}

int history_open(struct history *h, const char *path, struct error *err)
{
    *h = (struct history){0};
    struct stat there;
    if (!path)
        return 0;
    h->path = strdup(path);
    if (!h->path)
        return fail(err, E_MEMORY, "no memory for the history");
    if (stat(path, &there))
        return 0;
    char *data;
    size_t size;
    if (!S_ISREG(there.st_mode))
        return fail(err, E_IO, "%s: not a regular file", path);
    if (input_read_regular(path, INPUT_HISTORY, &data, &size, err))
        return -1;
    int status = take_lines(h, (struct str){data, size}, err);
    if (!status && count_lines((struct str){data, size}) > 2 * HISTORY_MAX)
        compact(h);
    free(data);
    return status;
}

void history_close(struct history *h)
{
    while (h->n)
        drop(h, h->n - 1);
    free(h->entries);
    free(h->path);
    *h = (struct history){0};
}

int history_add(struct history *h, struct str text, struct error *err)
{
    if (!text.len || (h->n && str_equal(h->entries[h->n - 1], text)))
        return 0;
    char *copy = malloc(text.len);
    if (!copy)
        return fail(err, E_MEMORY, "no memory for the history");
    memcpy(copy, text.data, text.len);
    if (push(h, (struct str){copy, text.len}, err))
        return -1;
    if (!h->path || text.len > HISTORY_ENTRY_MAX)
        return 0;
    struct text line = {0};
    print_line(&line, text);
    int fd = open_locked(h->path);
    int status = fd < 0 || write_all(fd, &line) ? fail(err, E_IO, "%s: %s", h->path, strerror(errno)) : 0;
    if (fd >= 0)
        close(fd);
    text_free(&line);
    return status;
}

char *history_state_path(const char *name)
{
    const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[4096];
    bool own = base && base[0] == '/'; // the specification says that a relative path is to be ignored
    if (!own && (!home || home[0] != '/'))
        return NULL;
    int n = snprintf(path, sizeof path, "%s%s/quern/%s", own ? base : home, own ? "" : "/.local/state", name);
    if (n < 0 || n >= (int)sizeof path)
        return NULL;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) && errno != EEXIST)
            return NULL;
        *slash = '/';
    }
    return strdup(path);
}
