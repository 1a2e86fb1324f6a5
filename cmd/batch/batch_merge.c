// The parts are scanned once for the place of each row: part, offset and length. The places are sorted by the number
// of the row, and the lines are then copied in that order, so that memory holds a table of rows but not their text.
// Rows with the same number are compared byte by byte. A part that still has a journal is refused.
#include "cmd/batch/batch_merge.h"
#include "cmd/batch/batch_manifest.h"
#include "cmd/batch/batch_output.h"
#include "cmd/outputs.h"
#include "cmd/terminal/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct merge {
    int n_parts;
    int *fds;
    const char *const *paths;
    struct row_place *places;
    size_t n;
    int64_t n_records; // records of the input; -1: not known
    int64_t n_failed;
};

static int count_errors(void *arg, const struct row_place *place, const struct output_line *line, struct str text,
                        struct error *err)
{
    struct merge *m = arg;
    (void)place, (void)text, (void)err;
    m->n_failed += line->is_error;
    return 0;
}

// Checks that the manifests fit together: the same input and the same model.
static int check_parts(struct merge *m, bool force, struct error *err)
{
    struct batch_part first = {0}, part;
    bool has_first = false;
    m->n_records = -1;
    for (int i = 0; i < m->n_parts; i++) {
        int got = batch_manifest_read_part(m->paths[i], &part, err);
        if (got < 0)
            return -1;
        if (!got)
            continue;
        if (has_first && !force && strcmp(first.input, part.input))
            return fail(err, E_USAGE, "%s: of another input than the parts before it", m->paths[i]);
        if (has_first && !force && strcmp(first.model, part.model))
            return fail(err, E_USAGE, "%s: of another model than the parts before it", m->paths[i]);
        first = part;
        has_first = true;
        m->n_records = part.n_records;
    }
    return 0;
}

// Opens a part, which is read more than once: a device or a pipe is none.
static int open_part(struct merge *m, int i, struct error *err)
{
    struct stat st;
    m->fds[i] = open(m->paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (m->fds[i] < 0 || fstat(m->fds[i], &st))
        return fail(err, E_IO, "%s: %s", m->paths[i], strerror(errno));
    return S_ISREG(st.st_mode) ? 0 : fail(err, E_USAGE, "%s: is no regular file", m->paths[i]);
}

static int read_parts(struct merge *m, struct error *err)
{
    for (int i = 0; i < m->n_parts; i++) {
        uint64_t end;
        if (open_part(m, i, err))
            return -1;
        char *journal = output_beside(m->paths[i], ".journal");
        bool unfinished = journal && !access(journal, F_OK);
        free(journal);
        if (unfinished)
            return fail(err, E_USAGE, "%s: its run is not finished; resume it first", m->paths[i]);
        if (output_scan(m->fds[i], m->paths[i], i, NULL, &m->places, &m->n, &end, count_errors, m, err))
            return -1;
    }
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct row_place *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static bool same_bytes(const struct merge *m, const struct row_place *a, const struct row_place *b)
{
    if (a->n != b->n)
        return false;
    for (size_t at = 0; at < a->n;) {
        char x[4096], y[4096];
        size_t n = MIN(a->n - at, sizeof x);
        ssize_t got = pread(m->fds[a->file], x, n, (off_t)(a->at + at));
        if (got <= 0 || pread(m->fds[b->file], y, (size_t)got, (off_t)(b->at + at)) != got || memcmp(x, y, (size_t)got))
            return false;
        at += (size_t)got;
    }
    return true;
}

static int drop_doubles(struct merge *m, struct error *err)
{
    size_t n = 0;
    if (m->n)
        qsort(m->places, m->n, sizeof *m->places, by_number);
    for (size_t i = 0; i < m->n; i++) {
        if (n && m->places[n - 1].number == m->places[i].number) {
            if (!same_bytes(m, &m->places[n - 1], &m->places[i]))
                return fail(err, E_USAGE, "row %lld differs between %s and %s", (long long)m->places[i].number,
                            m->paths[m->places[n - 1].file], m->paths[m->places[i].file]);
            continue;
        }
        m->places[n++] = m->places[i];
    }
    m->n = n;
    return 0;
}

int batch_merge(const struct option_list *args, bool force, int64_t *n_missing, int64_t *n_failed, struct error *err)
{
    if (args->n < 2)
        return fail(err, E_USAGE, "quern batch merge OUT PART...: the output and its parts are wanted");
    const char *out = args->at[0];
    struct merge m = {.n_parts = args->n - 1, .paths = args->at + 1};
    m.fds = malloc((size_t)m.n_parts * sizeof *m.fds);
    if (!m.fds)
        return fail(err, E_MEMORY, "no memory for %d parts", m.n_parts);
    for (int i = 0; i < m.n_parts; i++)
        m.fds[i] = -1;
    int status = 0;
    for (int i = 0; !status && i < m.n_parts; i++)
        if (!strcmp(m.paths[i], out))
            status = fail(err, E_USAGE, "%s: both the output and a part", out);
        else
            status = outputs_check(out, m.paths[i], err);
    if (!status && !force && !access(out, F_OK))
        status = fail(err, E_USAGE, "%s: is there already; --force replaces it", out);
    if (!status)
        status = check_parts(&m, force, err) || read_parts(&m, err) || drop_doubles(&m, err) ||
                         output_write_sorted(out, m.fds, m.places, m.n, NULL, err)
                     ? -1
                     : 0;
    *n_failed = m.n_failed;
    *n_missing = m.n_records >= 0 ? m.n_records - (int64_t)m.n : 0;
    for (int i = 0; i < m.n_parts; i++)
        if (m.fds[i] >= 0)
            close(m.fds[i]);
    free(m.fds);
    free(m.places);
    return status;
}
