// Finds out what an earlier run has written. The journal is read first, for it has the checksums of the output. Both files
// are cut behind their last good line.
#include "cmd/batch/batch_output_parts.h"
#include "cmd/terminal/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct loading {
    struct batch_output *o;
    bool is_verified;        // the journal has checksums of rows
    int64_t n_damaged;       // lines of the journal that are none
    uint64_t journal_end;    // behind its last good line
    int64_t unknown;         // the first row of the output without a checksum; 0: none
    uint64_t unknown_at;     // its offset
    int64_t n_unknown;       // how many there are
    struct row_place *sound; // rows of the output that report no error
    size_t n_sound;
};

// Notes a row that was not there before.
static int note_done(struct batch_output *o, const struct output_line *line, const char *path, struct error *err)
{
    if (line->number > o->o.n_records)
        return fail(err, E_USAGE, "%s: row %lld, but the input has %lld: it is the output of another input", path,
                    (long long)line->number, (long long)o->o.n_records);
    o->done[line->number] = 1;
    o->id_hash[line->number] = batch_id_hash(line->custom_id);
    o->n_done++;
    o->n_failed += line->is_error;
    return 0;
}

static int row_has_changed(const struct loading *l, int64_t number, struct error *err)
{
    return fail(
        err, E_IO,
        "%s: row %lld is not as it was written, or its checksum in %s is not; restore them, or take the line of that row "
        "out and it is computed again, or take all rows as they are with --force",
        l->o->out.path, (long long)number, l->o->journal.path);
}

// Compares a row with its checksum. Returns 1 if it is to be taken, and 0 if it belongs to the end of the output whose
// checksums a crash has lost.
static int verify(struct loading *l, const struct row_place *place, int64_t number, struct str text, struct error *err)
{
    struct batch_output *o = l->o;
    const uint64_t sum = batch_row_sum(text), wanted = number <= o->o.n_records ? o->sum[number] : sum;
    if (l->is_verified && !o->o.trusts) {
        if (!wanted) {
            l->unknown_at = l->unknown ? l->unknown_at : place->at;
            l->unknown = l->unknown ? l->unknown : number;
            l->n_unknown++;
            return 0;
        }
        if (sum != wanted || l->unknown)
            return row_has_changed(l, l->unknown ? l->unknown : number, err);
    }
    if (number <= o->o.n_records)
        o->sum[number] = sum;
    return 1;
}

static int push_sound(struct loading *l, const struct row_place *place, struct error *err)
{
    struct row_place *larger = l->sound;
    if ((l->n_sound & (l->n_sound - 1)) == 0)
        larger = realloc(l->sound, (l->n_sound ? 2 * l->n_sound : 1) * sizeof *larger);
    if (!larger)
        return fail(err, E_MEMORY, "no memory for a table of rows");
    l->sound = larger;
    l->sound[l->n_sound++] = *place;
    return 0;
}

static int take_output_row(void *arg, const struct row_place *place, const struct output_line *line, struct str text,
                           struct error *err)
{
    struct loading *l = arg;
    struct batch_output *o = l->o;
    const int taken = verify(l, place, line->number, text, err);
    if (taken <= 0)
        return taken;
    if (o->o.retry_errors && line->is_error) {
        if (line->number <= o->o.n_records)
            o->sum[line->number] = 0;
        return 0;
    }
    if (line->number <= o->o.n_records && o->done[line->number])
        return fail(err, E_USAGE, "%s: row %lld is there twice", o->out.path, (long long)line->number);
    if (note_done(o, line, o->out.path, err))
        return -1;
    o->ascending &= line->number > o->last_number;
    o->last_number = line->number;
    return o->o.retry_errors ? push_sound(l, place, err) : 0;
}

// Keeps a row of the journal until the output is known.
static int keep_row(struct batch_output *o, int64_t number, struct str row, struct error *err)
{
    struct kept *larger = o->kept;
    if ((o->n_kept & (o->n_kept - 1)) == 0)
        larger = realloc(o->kept, (o->n_kept ? 2 * o->n_kept : 1) * sizeof *larger);
    o->kept = larger ? larger : o->kept;
    char *copy = larger ? malloc(row.len + 1) : NULL;
    if (!copy)
        return fail(err, E_MEMORY, "no memory for the rows of %s", o->journal.path);
    memcpy(copy, row.data, row.len);
    copy[row.len] = '\n';
    o->kept[o->n_kept++] = (struct kept){number, copy, row.len + 1};
    return 0;
}

static int see_journal_line(void *arg, uint64_t at, struct str line, bool is_whole, struct error *err)
{
    struct loading *l = arg;
    struct batch_output *o = l->o;
    struct journal_line found;
    struct output_line row = {0};
    if (!at) // the head
        return 0;
    if (!is_whole || !batch_journal_parse(line, &found) || (found.row.data && !output_line_parse(found.row, &row))) {
        l->n_damaged += is_whole || line.len > OUTPUT_ROW_MOST;
        return 0;
    }
    l->journal_end = at + line.len + 1;
    if (found.row.data)
        return keep_row(o, row.number, found.row, err);
    if (found.number <= o->o.n_records)
        o->sum[found.number] = found.sum;
    o->n_sums++;
    return 0;
}

static int cut_tail(struct file *f, uint64_t end, struct error *err)
{
    f->size = end;
    return ftruncate(f->fd, (off_t)end) ? fail(err, E_IO, "%s: %s", f->path, strerror(errno)) : 0;
}

// Removes the rows that failed, by writing a new file.
static int drop_errors(struct batch_output *o, struct loading *l, struct error *err)
{
    int fresh;
    if (l->n_sound == 0)
        return cut_tail(&o->out, 0, err);
    if (output_write_sorted(o->out.path, &o->out.fd, l->sound, l->n_sound, &fresh, err))
        return -1;
    close(o->out.fd);
    o->out.fd = fresh;
    o->out.size = (uint64_t)lseek(fresh, 0, SEEK_END);
    o->last_number = l->sound[l->n_sound - 1].number;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

// What was never an output of a batch is not cut: a file without a row may hold nothing but the beginning of one, or the
// zeros that a power cut leaves.
static int check_first_row(const struct batch_output *o, uint64_t end, struct error *err)
{
    static const char begins[] = "{\"id\":\"batch_req_";
    char head[sizeof begins - 1];
    ssize_t n;
    do
        n = end ? 0 : pread(o->out.fd, head, sizeof head, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fail(err, E_IO, "%s: %s", o->out.path, strerror(errno));
    if (n == 0 || !head[0] || !memcmp(head, begins, (size_t)n))
        return 0;
    return fail(err, E_USAGE, "%s: holds something else than rows of a batch; move it away, or name another output",
                o->out.path);
}

// What stands behind the last good row is dropped, and that is said, unless somebody else has put it there.
static int check_tail(const struct batch_output *o, const struct loading *l, const struct output_tail *tail,
                      struct error *err)
{
    if (tail->foreign)
        return fail(
            err, E_IO,
            "%s: line %lld is nothing that a batch writes, or is not as it was written; take it out, and the run "
            "can go on",
            o->out.path, (long long)tail->foreign);
    if (l->unknown)
        terminal_note("quern: note: %s: the rows from %lld on have no checksums, and are computed again: %lld lines "
                      "are dropped",
                      o->out.path, (long long)l->unknown, (long long)l->n_unknown + (long long)tail->n_lines);
    else if (tail->n_lines)
        terminal_note("quern: note: %s: %lld damaged lines at the end are dropped, and their rows are computed again",
                      o->out.path, (long long)tail->n_lines);
    return 0;
}

static int load_output(struct batch_output *o, struct loading *l, struct error *err)
{
    uint64_t end;
    struct output_tail tail = {0};
    if (output_scan(o->out.fd, o->out.path, 0, &tail, NULL, NULL, &end, take_output_row, l, err) ||
        check_first_row(o, end, err) || check_tail(o, l, &tail, err))
        return -1;
    if (cut_tail(&o->out, l->unknown ? l->unknown_at : end, err))
        return -1;
    return o->o.retry_errors ? drop_errors(o, l, err) : 0;
}

// Drops the rows of the journal that are in the output too, or are to be computed again.
static int sift_kept(struct batch_output *o, struct error *err)
{
    size_t n = 0;
    if (o->n_kept)
        qsort(o->kept, o->n_kept, sizeof *o->kept, by_number);
    for (size_t i = 0; i < o->n_kept; i++) {
        struct kept k = o->kept[i];
        struct output_line line;
        output_line_parse((struct str){k.line, k.n - 1}, &line);
        if ((o->o.retry_errors && line.is_error) || (k.number <= o->o.n_records && o->done[k.number])) {
            free(k.line);
            o->kept[i].line = NULL;
            continue;
        }
        if (note_done(o, &line, o->journal.path, err))
            return -1;
        o->kept[i].line = NULL;
        o->kept[n++] = k;
    }
    o->n_kept = n;
    return 0;
}

int output_load(struct batch_output *o, struct error *err)
{
    struct loading l = {.o = o, .journal_end = sizeof JOURNAL_HEAD - 1};
    bool is_new;
    if (batch_journal_open(&o->journal.fd, o->journal.path, &is_new, err))
        return -1;
    if (output_each_line(o->journal.fd, o->journal.path, see_journal_line, &l, err) ||
        cut_tail(&o->journal, l.journal_end, err))
        return -1;
    l.is_verified = o->n_sums > 0;
    int status = load_output(o, &l, err) || sift_kept(o, err);
    free(l.sound);
    if (status && is_new) // of a run that is refused nothing remains
        unlink(o->journal.path);
    if (status)
        return -1;
    if (l.n_damaged)
        terminal_note("quern: note: %s: %lld lines are damaged; their rows are computed again", o->journal.path,
                      (long long)l.n_damaged);
    // unordered, no row has to wait
    for (size_t i = 0; !o->o.ordered && i < o->n_kept; i++) {
        if (output_append_row(o, o->kept[i].number, (struct str){o->kept[i].line, o->kept[i].n}, err))
            return -1;
        free(o->kept[i].line);
        o->kept[i].line = NULL;
    }
    return o->o.retry_errors || l.n_damaged || (!l.is_verified && o->n_done) || o->o.trusts
               ? output_write_journal(o, err)
               : 0;
}
