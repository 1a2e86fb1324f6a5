// The lines of an output: tells complete rows from incomplete ones, and sorts them.
#include "cmd/batch/batch_output.h"
#include "gguf/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// --- a line ---

static bool skip(struct str *s, struct str prefix)
{
    if (s->len < prefix.len || memcmp(s->data, prefix.data, prefix.len))
        return false;
    s->data += prefix.len;
    s->len -= prefix.len;
    return true;
}

static bool skip_number(struct str *s, int64_t *out)
{
    size_t n = 0;
    for (*out = 0; n < s->len && n < 18 && s->data[n] >= '0' && s->data[n] <= '9'; n++)
        *out = *out * 10 + (s->data[n] - '0');
    s->data += n;
    s->len -= n;
    return n && *out > 0;
}

// Reads a JSON string or null.
static bool skip_id(struct str *s, struct str *out)
{
    *out = (struct str){s->data, 4};
    if (skip(s, STR_LIT("null")))
        return true;
    if (!skip(s, STR_LIT("\"")))
        return false;
    for (size_t i = 0; i < s->len; i++) {
        if (s->data[i] == '"') {
            out->len = i + 2;
            s->data += i + 1;
            s->len -= i + 1;
            return true;
        }
        i += s->data[i] == '\\';
    }
    return false;
}

static bool ends_with(struct str s, struct str end)
{
    return s.len >= end.len && !memcmp(s.data + s.len - end.len, end.data, end.len);
}

bool output_line_parse(struct str line, struct output_line *out)
{
    struct str rest = line;
    if (!skip(&rest, STR_LIT("{\"id\":\"batch_req_")) || !skip_number(&rest, &out->number) ||
        !skip(&rest, STR_LIT("\",\"custom_id\":")) || !skip_id(&rest, &out->custom_id) ||
        !skip(&rest, STR_LIT(",\"response\":")))
        return false;
    // quotes inside strings are escaped, so only the real end of the line can look like this
    bool answered = ends_with(rest, STR_LIT(",\"error\":null}"));
    out->is_error = !answered;
    if (!answered && !(skip(&rest, STR_LIT("null,\"error\":{\"code\":")) && ends_with(rest, STR_LIT("\"}}"))))
        return false;
    return !memchr(line.data, '\0', line.len) && utf8_valid(line);
}

// --- a file of lines ---

struct scan {
    int fd;
    const char *path;
    char *buffer;
    size_t cap, n; // n bytes of the file, from offset `at`
    uint64_t at;
};

// The longest line that is read: a row, and what stands around it in a journal or in a row of an error.
enum { LINE_MOST = OUTPUT_ROW_MOST + 4096 };

// Reads more bytes behind those in the buffer. Returns 1, or 0 at the end of the file.
static int read_on(struct scan *s, struct error *err)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1 << 18;
        char *larger = realloc(s->buffer, cap);
        if (!larger)
            return fail(err, E_MEMORY, "%s: no memory for a line of %zu bytes", s->path, cap);
        s->buffer = larger;
        s->cap = cap;
    }
    ssize_t got;
    do
        got = pread(s->fd, s->buffer + s->n, s->cap - s->n, (off_t)(s->at + s->n));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail(err, E_IO, "%s: byte %llu: %s", s->path, (unsigned long long)s->at, strerror(errno));
    s->n += (size_t)got;
    return got > 0;
}

// The line at the beginning of the buffer, as far as it was read. Returns 1, or 0 if nothing is left. *is_whole: it
// has its newline. Of a line that is too long, only the beginning is there.
static int next_line(struct scan *s, struct str *line, bool *is_whole, struct error *err)
{
    size_t seen = 0;
    for (;;) {
        const char *end = s->n > seen ? memchr(s->buffer + seen, '\n', s->n - seen) : NULL;
        *is_whole = end;
        *line = (struct str){s->buffer, end ? (size_t)(end - s->buffer) : s->n};
        if (end)
            return 1;
        seen = s->n;
        if (seen > LINE_MOST)
            return 1;
        int more = read_on(s, err);
        if (more < 0)
            return -1;
        if (!more) {
            *line = (struct str){s->buffer, s->n};
            return s->n > 0;
        }
    }
}

static void pass(struct scan *s, size_t n)
{
    memmove(s->buffer, s->buffer + n, s->n - n);
    s->n -= n;
    s->at += n;
}

// Passes over the rest of a line that is too long, without keeping it.
static int pass_line(struct scan *s, struct error *err)
{
    for (int more = 1; more; more = read_on(s, err)) {
        const char *end = s->n ? memchr(s->buffer, '\n', s->n) : NULL;
        pass(s, end ? (size_t)(end - s->buffer) + 1 : s->n);
        if (end)
            return 0;
        if (more < 0)
            return -1;
    }
    return 0;
}

static int push_place(struct row_place **places, size_t *n, struct row_place place, struct error *err)
{
    if ((*n & (*n - 1)) == 0) { // the array is full whenever n is a power of two
        size_t cap = *n ? 2 * *n : 1, bytes;
        struct row_place *larger = size_mul(cap, sizeof **places, &bytes) ? NULL : realloc(*places, bytes);
        if (!larger)
            return fail(err, E_MEMORY, "no memory for a table of %zu rows", cap);
        *places = larger;
    }
    (*places)[(*n)++] = place;
    return 0;
}

// The line behind `passed` bytes of the buffer. Lines are consumed many at a time: moving the buffer for each would take longer
// than reading them. Returns as next_line does.
static int line_behind(struct scan *s, size_t *passed, struct str *line, bool *is_whole, struct error *err)
{
    const char *from = *passed ? s->buffer + *passed : s->buffer;
    const char *stop = s->n > *passed ? memchr(from, '\n', s->n - *passed) : NULL;
    *is_whole = true;
    if (stop) {
        *line = (struct str){from, (size_t)(stop - from)};
        return 1;
    }
    if (s->buffer)
        pass(s, *passed);
    *passed = 0;
    return next_line(s, line, is_whole, err);
}

int output_each_line(int fd, const char *path, output_see_fn *see, void *arg, struct error *err)
{
    struct scan s = {.fd = fd, .path = path};
    struct str line;
    bool is_whole = true;
    size_t passed = 0;
    int got;
    while ((got = line_behind(&s, &passed, &line, &is_whole, err)) > 0) {
        const bool is_long = line.len > LINE_MOST;
        if (see(arg, s.at + passed, line, is_whole && !is_long, err) || (!is_whole && is_long && pass_line(&s, err))) {
            got = -1;
            break;
        }
        if (!is_whole && !is_long)
            break;
        passed = is_whole ? passed + line.len + 1 : 0;
    }
    free(s.buffer);
    return got < 0 ? -1 : 0;
}

// What output_scan is asked for, and how far it is.
struct rows {
    const char *path;
    int file;
    struct row_place **places;
    size_t *n;
    uint64_t *end;
    output_take_fn *take;
    void *arg;
    struct output_tail *tail;
    int64_t line_number, first_bad;
    bool first_is_long; // the first bad line is longer than a row may be
};

// Whether a line may be what a crash has left of a row: its beginning, or the zeros of blocks that were not written.
static bool is_debris(struct str line)
{
    const struct str head = STR_LIT("{\"id\":\"batch_req_");
    return memchr(line.data, '\0', line.len) || !memcmp(line.data, head.data, MIN(line.len, head.len));
}

static void note_bad(struct rows *r, struct str line, bool is_whole)
{
    if (!r->first_bad) {
        r->first_bad = r->line_number;
        r->first_is_long = line.len > LINE_MOST;
    }
    if (!r->tail)
        return;
    r->tail->n_lines += is_whole;
    if (!r->tail->foreign && line.len && !is_debris(line))
        r->tail->foreign = r->line_number;
}

static int bad_line(const struct rows *r, enum err_code code, const char *what, struct error *err)
{
    if (r->first_is_long)
        return fail(err, E_USAGE, "%s: line %lld: longer than %d MiB, the limit of a row", r->path,
                    (long long)r->first_bad, OUTPUT_ROW_MOST >> 20);
    return fail(err, code, "%s: line %lld is %s", r->path, (long long)r->first_bad, what);
}

static int see_row(void *arg, uint64_t at, struct str line, bool is_whole, struct error *err)
{
    struct rows *r = arg;
    struct output_line row;
    struct row_place place = {.file = r->file, .at = at, .n = line.len};
    r->line_number++;
    if (!is_whole || !output_line_parse(line, &row)) {
        note_bad(r, line, is_whole);
        return 0;
    }
    if (r->first_bad)
        return bad_line(r, E_USAGE, "no row of a batch; move the file away, or name another output", err);
    place.number = row.number;
    *r->end = at + line.len + 1;
    return (r->places && push_place(r->places, r->n, place, err)) ||
                   (r->take && r->take(r->arg, &place, &row, line, err))
               ? -1
               : 0;
}

int output_scan(int fd, const char *path, int file, struct output_tail *tail, struct row_place **places, size_t *n,
                uint64_t *end, output_take_fn *take, void *arg, struct error *err)
{
    struct rows r = {path, file, places, n, end, take, arg, tail, 0, 0, false};
    *end = 0;
    if (output_each_line(fd, path, see_row, &r, err))
        return -1;
    if (r.first_bad && !tail)
        return bad_line(&r, E_IO, "torn; resume that run first", err);
    return 0;
}

// --- sorting ---

static int by_number(const void *a, const void *b)
{
    const struct row_place *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

char *output_beside(const char *path, const char *suffix)
{
    char *out;
    return asprintf(&out, "%s%s", path, suffix) < 0 ? NULL : out;
}

int output_sync_folder(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, MAX((size_t)(slash - path), 1u)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    // a file system that cannot sync folders returns EINVAL
    int status = fd < 0 || (fsync(fd) && errno != EINVAL) ? fail(err, E_IO, "%s: %s", path, strerror(errno)) : 0;
    if (fd >= 0)
        close(fd);
    free(folder);
    return status;
}

static int copy_row(int to, const char *path, int from, const struct row_place *place, char **buffer, size_t *cap,
                    struct error *err)
{
    if (place->n + 1 > *cap) {
        char *larger = realloc(*buffer, place->n + 1);
        if (!larger)
            return fail(err, E_MEMORY, "no memory for a row of %zu bytes", place->n);
        *buffer = larger;
        *cap = place->n + 1;
    }
    for (size_t got = 0; got < place->n + 1;) {
        ssize_t n = pread(from, *buffer + got, place->n + 1 - got, (off_t)(place->at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(err, E_IO, "row %lld: %s", (long long)place->number, n ? strerror(errno) : "the file was cut");
        got += (size_t)n;
    }
    for (size_t put = 0; put < place->n + 1;) {
        ssize_t n = write(to, *buffer + put, place->n + 1 - put);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(err, E_IO, "%s: %s", path, strerror(errno));
        put += (size_t)n;
    }
    return 0;
}

static int write_sorted(const char *path, const int *fds, struct row_place *places, size_t n, int *fd,
                        struct error *err)
{
    if (check_replaceable(path, err))
        return -1;
    char *temporary = malloc(strlen(path) + TEMPORARY_SUFFIX), *buffer = NULL;
    size_t cap = 0;
    struct stat st;
    if (!temporary)
        return fail(err, E_MEMORY, "no memory for a path");
    qsort(places, n, sizeof *places, by_number);
    int out = temporary_create(path, temporary, 0644);
    int status = out < 0 || fcntl(out, F_SETFL, O_APPEND) ? fail(err, E_IO, "%s: %s", path, strerror(errno)) : 0;
    if (!status)
        flock(out, LOCK_EX | LOCK_NB); // nobody else knows it yet
    if (!status && !stat(path, &st))
        fchmod(out, st.st_mode & 0777);
    for (size_t i = 0; !status && i < n; i++)
        status = copy_row(out, temporary, fds[places[i].file], &places[i], &buffer, &cap, err);
    if (!status && (fsync(out) || temporary_rename(temporary, path)))
        status = fail(err, E_IO, "%s: %s", path, strerror(errno));
    if (status && out >= 0)
        temporary_remove(temporary);
    if (!status)
        status = output_sync_folder(path, err);
    if (fd && !status)
        *fd = out;
    else if (out >= 0)
        close(out);
    free(buffer);
    free(temporary);
    return status;
}

int output_write_sorted(const char *path, const int *fds, struct row_place *places, size_t n, int *fd,
                        struct error *err)
{
    char *behind = realpath(path, NULL); // of a link, the file behind it is replaced
    if (!behind && errno == ENOMEM)
        return fail(err, E_MEMORY, "no memory for a path");
    int status = write_sorted(behind ? behind : path, fds, places, n, fd, err);
    free(behind);
    return status;
}
