// A journal that is there is opened without following links and without waiting for a pipe; one that is not there is
// created exclusively, so that nothing else is opened in its place.
#include "cmd/batch/batch_journal.h"
#include "cmd/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = sizeof JOURNAL_HEAD - 1, SUM_DIGITS = 16, SUM_AT = 2, REST_AT = SUM_AT + SUM_DIGITS + 1 };

static int not_ours(const char *path, struct error *err)
{
    return fail(err, E_USAGE, "%s: is no journal of a batch; move it away, or name another output", path);
}

// Whether the file has the head. *n: its bytes, fewer than those of a head if a crash came first.
static int check_head(int fd, const char *path, ssize_t *n, struct error *err)
{
    char head[HEAD];
    struct stat st;
    if (fstat(fd, &st))
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    do
        *n = S_ISREG(st.st_mode) ? pread(fd, head, HEAD, 0) : 0;
    while (*n < 0 && errno == EINTR);
    if (*n < 0)
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    return S_ISREG(st.st_mode) && !memcmp(head, JOURNAL_HEAD, (size_t)*n) ? 0 : not_ours(path, err);
}

static int write_head(int fd, const char *path, struct error *err)
{
    if (ftruncate(fd, 0) || write(fd, JOURNAL_HEAD, HEAD) != HEAD)
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    return 0;
}

enum { OPEN_FLAGS = O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK };

static int cannot_open(const char *path, struct error *err)
{
    return errno == ELOOP || errno == ENXIO || errno == EISDIR ? not_ours(path, err)
                                                               : fail(err, E_IO, "%s: %s", path, strerror(errno));
}

int batch_journal_check(const char *path, struct error *err)
{
    ssize_t n = 0;
    const int fd = open(path, OPEN_FLAGS);
    if (fd < 0)
        return errno == ENOENT ? 0 : cannot_open(path, err);
    int status = check_head(fd, path, &n, err);
    close(fd);
    return status;
}

int batch_journal_open(int *fd, const char *path, bool *is_new, struct error *err)
{
    ssize_t n = 0;
    *fd = open(path, OPEN_FLAGS);
    if (*fd < 0 && errno == ENOENT)
        *fd = open(path, OPEN_FLAGS | O_CREAT | O_EXCL, 0644);
    if (*fd < 0)
        return cannot_open(path, err);
    if (check_head(*fd, path, &n, err))
        return -1;
    *is_new = n < HEAD;
    return *is_new ? write_head(*fd, path, err) : 0;
}

uint64_t batch_row_sum(struct str row)
{
    const uint64_t sum = digest_of(row).a;
    return sum ? sum : 1;
}

void batch_journal_print_row(struct text *out, struct str row)
{
    text_print(out, "+ %016llx ", (unsigned long long)batch_row_sum(row));
    text_append(out, row);
    text_append(out, STR_LIT("\n"));
}

void batch_journal_print_sum(struct text *out, int64_t number, uint64_t sum)
{
    text_print(out, "= %016llx %lld\n", (unsigned long long)sum, (long long)number);
}

static bool parse_sum(const char *digits, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < SUM_DIGITS; i++) {
        const char c = digits[i];
        const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0)
            return false;
        *out = *out << 4 | (uint64_t)value;
    }
    return true;
}

static bool parse_number(struct str digits, int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < digits.len; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9' || digits.len > 18)
            return false;
        *out = *out * 10 + (digits.data[i] - '0');
    }
    return *out > 0;
}

bool batch_journal_parse(struct str line, struct journal_line *out)
{
    *out = (struct journal_line){0};
    if (line.len <= REST_AT || line.data[1] != ' ' || line.data[REST_AT - 1] != ' ' ||
        !parse_sum(line.data + SUM_AT, &out->sum))
        return false;
    const struct str rest = {line.data + REST_AT, line.len - REST_AT};
    if (line.data[0] == '=')
        return parse_number(rest, &out->number) && out->sum;
    out->row = rest;
    return line.data[0] == '+' && batch_row_sum(rest) == out->sum;
}
