// Records are cut out of one buffer that starts at 256 KiB and doubles when a record does not fit. stdin is copied to
// an unnamed file first, because the input is read several times: the survey alone makes two passes, one for the
// fingerprint and one to count records. The end of a record of CSV or TSV is searched byte by byte: a newline, or a CR that
// no newline follows, outside quotes. In all other formats memchr finds it.
#include "cmd/batch/batch_input.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_FIRST = 1 << 18 };
static const int64_t SPOOL_MOST = (int64_t)64 << 30;

// --- opening ---

static int write_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

// Whether a device has bytes: /dev/zero never ends, and /dev/null is an empty input. A terminal ends when its user says so.
static int refuse_device(int fd, const char *name, struct error *err)
{
    struct stat st;
    char byte;
    if (fstat(fd, &st) || !(S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) || isatty(fd) || read(fd, &byte, 1) == 0)
        return 0;
    return fail(err, E_USAGE, "%s: is a device, which has no end", name);
}

// Copies stdin to an unnamed file, which disappears with the process: stdin cannot be read twice.
static int spool(int *out, const char *folder, char *buffer, size_t cap, struct error *err)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        char path[] = "/tmp/quern-batch-XXXXXX";
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            unlink(path);
    }
    if (fd < 0)
        return fail(err, E_IO, "%s: no place for a copy of stdin: %s", folder, strerror(errno));
    for (int64_t copied = 0;;) {
        ssize_t n = read(STDIN_FILENO, buffer, cap);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0) {
            *out = fd;
            return 0;
        }
        copied += MAX(n, 0);
        if (copied > SPOOL_MOST) {
            close(fd);
            return fail(err, E_USAGE, "stdin: more than %lld GiB, the limit of a batch that is no file",
                        (long long)(SPOOL_MOST >> 30));
        }
        bool is_read = n > 0;
        if (!is_read || write_all(fd, buffer, (size_t)n)) {
            int cause = errno;
            close(fd);
            return fail(err, E_IO, "%s: %s", is_read ? "the copy of stdin" : "stdin", strerror(cause));
        }
    }
}

// The format that the first character tells: of JSON objects, or of texts.
static int format_of_head(const struct batch_input *in, enum batch_format *out, struct error *err)
{
    char head[256];
    ssize_t got, i;
    do
        got = pread(in->fd, head, sizeof head, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail(err, E_IO, "%s: %s", in->path, strerror(errno));
    i = got >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < got && strchr(" \t\r\n", head[i]))
        i++;
    *out = i < got && head[i] == '{' ? FORMAT_JSONL : FORMAT_LINES;
    return 0;
}

static int detect_format(const struct batch_input *in, enum batch_format *out, struct error *err)
{
    static const struct {
        const char *ending;
        enum batch_format format;
    } endings[] = {{".csv", FORMAT_CSV}, {".tsv", FORMAT_TSV}, {".jsonl", FORMAT_JSONL}};
    const size_t n = strlen(in->path);
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        const size_t len = strlen(endings[i].ending);
        if (n <= len || strcasecmp(in->path + n - len, endings[i].ending))
            continue;
        *out = endings[i].format;
        return 0;
    }
    return format_of_head(in, out, err);
}

int batch_input_open(struct batch_input *in, const char *path, const char *folder, enum batch_format format,
                     struct error *err)
{
    *in = (struct batch_input){.path = path, .fd = -1, .cap = BUFFER_FIRST};
    in->buffer = malloc(in->cap);
    if (!in->buffer)
        return fail(err, E_MEMORY, "no memory to read %s", path);
    if (!strcmp(path, "-")) {
        in->path = "stdin";
        if (refuse_device(STDIN_FILENO, in->path, err) || spool(&in->fd, folder, in->buffer, in->cap, err))
            goto failed;
    } else {
        in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (in->fd < 0 || lseek(in->fd, 0, SEEK_CUR) < 0) {
            fail(err, E_IO, "%s: %s%s", path, strerror(errno),
                 errno == ESPIPE ? "; what is no file is given as `-`, on stdin" : "");
            goto failed;
        }
        if (refuse_device(in->fd, path, err))
            goto failed;
    }
    in->format = format;
    if ((!format && detect_format(in, &in->format, err)) || batch_input_rewind(in, err))
        goto failed;
    return 0;
failed:
    batch_input_close(in);
    return -1;
}

void batch_input_close(struct batch_input *in)
{
    if (in->fd >= 0)
        close(in->fd);
    free(in->buffer);
    *in = (struct batch_input){.fd = -1};
}

int batch_input_rewind(struct batch_input *in, struct error *err)
{
    if (lseek(in->fd, 0, SEEK_SET) != 0)
        return fail(err, E_IO, "%s: %s", in->path, strerror(errno));
    in->from = in->to = 0;
    in->offset = 0;
    in->n_records = in->n_lines = 0;
    in->ended = false;
    in->read = (struct digest){0};
    return 0;
}

// --- reading ---

static int changed(const struct batch_input *in, struct error *err)
{
    return fail(
        err, E_IO,
        "%s: was changed by somebody else while it was read; with the file as it was, the same command goes on, "
        "else name another output",
        in->path);
}

// Notes n bytes that were read, none at the end of the file, and compares them at the end with what was surveyed.
static int note_read(struct batch_input *in, size_t n, struct error *err)
{
    digest_add(&in->read, in->buffer + in->to, n);
    in->to += n;
    in->ended = n == 0;
    if (!in->ended || !in->is_surveyed)
        return 0;
    const struct digest_value now = digest_end(&in->read);
    const bool is_same = now.a == in->digest.a && now.b == in->digest.b && in->read.n == in->n_bytes;
    return is_same ? 0 : changed(in, err);
}

// The bytes that a read may take: none behind the end that was surveyed.
static size_t room(const struct batch_input *in)
{
    const uint64_t rest = in->is_surveyed ? in->n_bytes - in->read.n : UINT64_MAX;
    return (size_t)MIN((uint64_t)(in->cap - in->to), rest);
}

// Reads more bytes behind those in the buffer. Sets `ended` at the end of the file.
static int fill(struct batch_input *in, struct error *err)
{
    assert(in->cap > 0);
    if (in->from) {
        memmove(in->buffer, in->buffer + in->from, in->to - in->from);
        in->to -= in->from;
        in->from = 0;
    }
    if (in->to == in->cap) {
        char *larger = realloc(in->buffer, 2 * in->cap);
        if (!larger)
            return fail(err, E_MEMORY, "%s: no memory for a line of %zu bytes", in->path, 2 * in->cap);
        in->buffer = larger;
        in->cap *= 2;
    }
    ssize_t n;
    do
        n = read(in->fd, in->buffer + in->to, room(in));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fail(err, E_IO, "%s: byte %llu: %s", in->path, (unsigned long long)(in->offset + in->to),
                    strerror(errno));
    return note_read(in, (size_t)n, err);
}

// Where a place of a CSV record is. As in Python's csv, a quote has a meaning at the beginning of a field alone, and
// within a field that began with one; elsewhere it is a sign like others.
enum csv_place { AT_FIELD, IN_PLAIN, IN_QUOTES, AT_QUOTE };

// The place behind a byte. *is_text: the byte belongs to the text of its field.
static enum csv_place csv_pass(enum csv_place place, char c, bool *is_text)
{
    *is_text = true;
    if (place == AT_FIELD && c == '"')
        *is_text = false;
    else if (place == IN_QUOTES && c == '"')
        *is_text = false;
    else if (place == AT_QUOTE && c == '"')
        return IN_QUOTES; // two quotes stand for one
    if (place == IN_QUOTES)
        return c == '"' ? AT_QUOTE : IN_QUOTES;
    if (c == ',' || c == '\n')
        return AT_FIELD;
    return place == AT_FIELD && c == '"' ? IN_QUOTES : IN_PLAIN;
}

// The state of the search for the end of a record, which may span several reads.
struct scan {
    size_t at;            // bytes scanned, counted from in->from
    enum csv_place place; // in a record of CSV
    int64_t n_lines;
};

// Whether the record ends within the bytes that were read. If so, scan->at is its length without the newline.
static bool scan_end(const struct batch_input *in, struct scan *scan)
{
    const char *data = in->buffer + in->from;
    size_t n = in->to - in->from;
    if (in->format != FORMAT_CSV && in->format != FORMAT_TSV) {
        const char *end = memchr(data + scan->at, '\n', n - scan->at);
        scan->at = end ? (size_t)(end - data) : n;
        return end;
    }
    for (; scan->at < n; scan->at++) {
        const char c = data[scan->at];
        const bool is_last = scan->at + 1 == n;
        bool is_text;
        if (c == '\r' && scan->place != IN_QUOTES && is_last && !in->ended)
            return false; // the next byte decides
        if ((c == '\n' || (c == '\r' && (is_last || data[scan->at + 1] != '\n'))) && scan->place != IN_QUOTES)
            return true;
        if (in->format == FORMAT_CSV)
            scan->place = csv_pass(scan->place, c, &is_text);
        scan->n_lines += c == '\n';
    }
    return false;
}

static void take(struct batch_input *in, size_t n)
{
    in->from += n;
    in->offset += n;
}

// Skips the rest of a record that is too long without keeping it. The scan continues where it stands.
static int pass_over(struct batch_input *in, struct scan *scan, struct error *err)
{
    for (;;) {
        bool found = scan_end(in, scan);
        if (found) {
            take(in, scan->at + 1);
            scan->n_lines++;
            return 0;
        }
        take(in, scan->at);
        scan->at = 0;
        if (in->ended)
            return 0;
        if (fill(in, err))
            return -1;
    }
}

static bool is_blank(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr(" \t\r\v\f", s.data[i]) || !s.data[i])
            return false;
    return true;
}

// Reads one line or CSV record, blank or not. Returns 1, or 0 at the end.
static int next_any(struct batch_input *in, struct record *r, struct error *err)
{
    struct scan scan = {0};
    bool found;
    *r = (struct record){.line = in->n_lines + 1};
    while (!(found = scan_end(in, &scan)) && !in->ended && scan.at <= RECORD_MOST)
        if (fill(in, err))
            return -1;
    if (!found && scan.at == 0)
        return 0;
    r->bytes = (struct str){in->buffer + in->from, scan.at};
    if (scan.at > RECORD_MOST) {
        memcpy(in->beginning, r->bytes.data, sizeof in->beginning); // copied because the buffer is reused
        r->bytes = (struct str){in->beginning, sizeof in->beginning};
        r->is_too_long = true;
        if (pass_over(in, &scan, err))
            return -1;
    } else {
        take(in, scan.at + found);
        r->is_open = scan.place == IN_QUOTES;
        scan.n_lines += found;
    }
    in->n_lines += scan.n_lines;
    r->end = in->offset;
    if (r->bytes.len && r->bytes.data[r->bytes.len - 1] == '\r')
        r->bytes.len--;
    if (r->line == 1 && r->bytes.len >= 3 && !memcmp(r->bytes.data, "\xef\xbb\xbf", 3)) {
        r->bytes.data += 3;
        r->bytes.len -= 3;
    }
    return 1;
}

int batch_input_next(struct batch_input *in, struct record *record, struct error *err)
{
    int got;
    while ((got = next_any(in, record, err)) == 1)
        if (!is_blank(record->bytes)) {
            record->number = ++in->n_records;
            return 1;
        }
    return got;
}

int batch_input_survey(struct batch_input *in, struct batch_survey *out, struct error *err)
{
    struct digest digest = {0};
    *out = (struct batch_survey){0};
    in->is_surveyed = false;
    if (batch_input_rewind(in, err))
        return -1;
    for (ssize_t n; (n = read(in->fd, in->buffer, in->cap)) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(err, E_IO, "%s: byte %llu: %s", in->path, (unsigned long long)out->n_bytes, strerror(errno));
        digest_add(&digest, in->buffer, (size_t)n);
        out->n_bytes += (uint64_t)n;
    }
    out->digest = in->digest = digest_end(&digest);
    in->n_bytes = out->n_bytes;
    in->is_surveyed = true;
    if (batch_input_rewind(in, err))
        return -1;
    struct record record;
    int got;
    while ((got = batch_input_next(in, &record, err)) == 1)
        out->n_records++;
    return got < 0 ? -1 : batch_input_rewind(in, err);
}

// --- fields ---

// Parses the quoted field at *at of a CSV record into `out`, without its quotes; *at moves to the comma behind it.
static struct str take_quoted(struct str bytes, size_t *at, char *out)
{
    size_t n = 0, i = *at;
    enum csv_place place = AT_FIELD;
    for (; i < bytes.len && (place == IN_QUOTES || bytes.data[i] != ','); i++) {
        bool is_text;
        place = csv_pass(place, bytes.data[i], &is_text);
        if (is_text)
            out[n++] = bytes.data[i];
    }
    *at = i;
    return (struct str){out, n};
}

int batch_split_fields(struct str bytes, enum batch_format format, struct arena *arena, struct str *fields, int most,
                       struct error *err)
{
    char separator = format == FORMAT_TSV ? '\t' : ',';
    char *unquoted = NULL; // holds all quoted fields of the record, which together are shorter than the record
    int n = 0;
    for (size_t at = 0;; at++) {
        struct str field;
        if (format == FORMAT_CSV && at < bytes.len && bytes.data[at] == '"') {
            if (!unquoted && !(unquoted = arena_alloc(arena, bytes.len, 1)))
                return fail(err, E_MEMORY, "no memory for the fields of %zu bytes", bytes.len);
            field = take_quoted(bytes, &at, unquoted);
            unquoted += field.len;
        } else {
            const char *end = memchr(bytes.data + at, separator, bytes.len - at);
            field = (struct str){bytes.data + at, end ? (size_t)(end - bytes.data) - at : bytes.len - at};
            at += field.len;
        }
        if (n < most)
            fields[n] = field;
        n++;
        if (at >= bytes.len)
            return n;
    }
}
