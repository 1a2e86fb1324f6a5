// Rows in input order pass through a ring of `window` slots: a row whose turn it is is appended to the output,
// together with the finished rows behind it; any other row is kept in memory and appended to the journal. The journal
// is rewritten without the rows that have moved to the output once it has 8 MiB and four times the bytes that wait.
// Memory: up to 17 bytes per record, and the lines that wait.
#include "cmd/batch/batch_output_parts.h"
#include "cmd/batch/batch_journal.h"
#include "cmd/batch/batch_shard.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"
#include "engine/file_replace.h"
#include "gguf/temporary.h"
#include "kernels/thread_start.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// --- the sync thread ---

// Syncs both files, the journal first: rows move from it to the output.
static int sync_files(struct batch_output *o)
{
    int cause = 0;
    pthread_mutex_lock(&o->files);
    if (o->journal.fd >= 0 && fdatasync(o->journal.fd))
        cause = errno;
    if (fdatasync(o->out.fd))
        cause = errno;
    pthread_mutex_unlock(&o->files);
    return cause;
}

// Syncs once. Called with the lock held, which it releases during the sync.
static void sync_once(struct batch_output *o)
{
    int64_t n_rows = o->n_dirty;
    o->n_dirty = 0;
    pthread_mutex_unlock(&o->lock);
    double start = clock_ms();
    int cause = sync_files(o);
    double ms = clock_ms() - start;
    pthread_mutex_lock(&o->lock);
    o->sync_error = cause ? cause : o->sync_error;
    o->stats.n++;
    o->stats.n_rows += n_rows;
    o->stats.ms += ms;
    o->stats.worst_ms = MAX(o->stats.worst_ms, ms);
}

static void *sync_loop(void *arg)
{
    struct batch_output *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->stopping) {
        if (!o->n_dirty) {
            pthread_cond_wait(&o->wake, &o->lock);
            continue;
        }
        sync_once(o);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SYNC_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        while (!o->stopping && pthread_cond_timedwait(&o->wake, &o->lock, &until) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static void mark_dirty(struct batch_output *o)
{
    if (!o->has_thread)
        return;
    pthread_mutex_lock(&o->lock);
    if (o->n_dirty++ == 0)
        pthread_cond_signal(&o->wake);
    pthread_mutex_unlock(&o->lock);
}

static void stop_thread(struct batch_output *o)
{
    if (!o->has_thread)
        return;
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    pthread_cond_signal(&o->wake);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    o->has_thread = false;
}

int batch_output_check(struct batch_output *o, struct error *err)
{
    pthread_mutex_lock(&o->lock);
    int cause = o->sync_error;
    pthread_mutex_unlock(&o->lock);
    return cause ? fail(err, E_IO, "%s: cannot be synced: %s", o->out.path, strerror(cause)) : 0;
}

struct batch_sync_stats batch_output_syncs(struct batch_output *o)
{
    pthread_mutex_lock(&o->lock);
    struct batch_sync_stats stats = o->stats;
    pthread_mutex_unlock(&o->lock);
    return stats;
}

// --- appending ---

// The number of the first row that is not in the output.
static int64_t resumable_at(const struct batch_output *o)
{
    int64_t number = 1;
    while (number <= o->o.n_records && (o->done[number] || !batch_shard_has(o->o.shard, number)))
        number++;
    return number;
}

static int write_failed(const struct batch_output *o, const struct file *f, int cause, struct error *err)
{
    if (o->is_regular) {
        int cut = ftruncate(f->fd, (off_t)f->size);
        return fail(err, E_IO, "%s: %s; %s, resumable at row %lld", f->path, strerror(cause),
                    cut ? "its torn tail will be dropped" : "the partial line is removed", (long long)resumable_at(o));
    }
    fail(err, E_IO, "%s: %s", f->path, strerror(cause));
    if (cause == EPIPE && err)
        err->text[0] = '\0';
    return -1;
}

static int append(struct batch_output *o, struct file *f, struct str line, struct error *err)
{
    for (size_t at = 0; at < line.len;) {
        ssize_t n = write(f->fd, line.data + at, line.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return write_failed(o, f, errno, err);
        at += (size_t)n;
    }
    f->size += line.len;
    mark_dirty(o);
    return 0;
}

// Appends what was printed to the journal, and frees it.
static int append_text(struct batch_output *o, struct file *f, struct text *text, struct error *err)
{
    int status = text->failed ? fail(err, E_MEMORY, "no memory for a line of %s", f->path)
                              : append(o, f, (struct str){text->data, text->size}, err);
    text_free(text);
    return status;
}

static struct str without_newline(struct str line)
{
    return (struct str){line.data, line.len - 1};
}

// Notes the checksum of a row that the output gets.
static int append_sum(struct batch_output *o, int64_t number, struct str line, struct error *err)
{
    struct text mark = {0};
    o->sum[number] = batch_row_sum(without_newline(line));
    o->n_sums++;
    batch_journal_print_sum(&mark, number, o->sum[number]);
    return append_text(o, &o->journal, &mark, err);
}

// A terminal gets rows without characters that it might obey.
static int append_out(struct batch_output *o, struct str line, struct error *err)
{
    if (!terminal_is_tty(o->out.fd))
        return append(o, &o->out, line, err);
    struct text shown = {0};
    terminal_escape_json(&shown, line);
    int status = shown.failed ? fail(err, E_MEMORY, "no memory for a row of the output")
                              : append(o, &o->out, (struct str){shown.data, shown.size}, err);
    text_free(&shown);
    return status;
}

int output_append_row(struct batch_output *o, int64_t number, struct str line, struct error *err)
{
    if ((o->is_regular && append_sum(o, number, line, err)) || append_out(o, line, err))
        return -1;
    o->ascending &= number > o->last_number;
    o->last_number = number;
    return 0;
}

// --- the journal ---

// Appends what was printed once it is a good many bytes; `all` appends it in any case.
static int append_much(struct batch_output *o, struct file *f, struct text *text, bool all, struct error *err)
{
    enum { MUCH = 1 << 16 };
    if (!text->failed && text->size < (all ? 1 : MUCH))
        return 0;
    return append_text(o, f, text, err);
}

// Writes what a journal holds at this moment: the checksums of the rows in the output, and the rows that wait.
static int fill_journal(struct batch_output *o, struct file *f, struct error *err)
{
    struct text text = {0};
    int status = 0;
    text_append(&text, STR_LIT(JOURNAL_HEAD));
    o->n_sums = 0;
    for (int64_t i = 1; !status && i <= o->o.n_records; i++) {
        if (!o->sum[i])
            continue;
        o->n_sums++;
        batch_journal_print_sum(&text, i, o->sum[i]);
        status = append_much(o, f, &text, false, err);
    }
    for (int i = 0; !status && i < o->n_slots; i++) {
        const struct slot *s = &o->slots[(o->first + i) % o->o.window];
        if (s->line)
            batch_journal_print_row(&text, (struct str){s->line, s->n - 1});
        status = append_much(o, f, &text, false, err);
    }
    for (size_t i = 0; !status && i < o->n_kept; i++) {
        if (o->kept[i].line)
            batch_journal_print_row(&text, (struct str){o->kept[i].line, o->kept[i].n - 1});
        status = append_much(o, f, &text, false, err);
    }
    status = status ? -1 : append_much(o, f, &text, true, err);
    text_free(&text);
    return status;
}

// Writes the journal anew.
int output_write_journal(struct batch_output *o, struct error *err)
{
    char *name = malloc(strlen(o->journal.path) + TEMPORARY_SUFFIX);
    if (!name)
        return fail(err, E_MEMORY, "no memory for a path");
    struct file fresh = {.path = o->journal.path, .fd = temporary_create(o->journal.path, name, 0644)};
    int status = fresh.fd < 0 || fcntl(fresh.fd, F_SETFL, O_APPEND)
                     ? fail(err, E_IO, "%s: %s", fresh.path, strerror(errno))
                     : fill_journal(o, &fresh, err);
    if (!status && (fsync(fresh.fd) || temporary_rename(name, o->journal.path)))
        status = fail(err, E_IO, "%s: %s", fresh.path, strerror(errno));
    if (status && fresh.fd >= 0) {
        temporary_remove(name);
        close(fresh.fd);
    }
    free(name);
    if (status)
        return -1;
    close(o->journal.fd);
    o->journal.fd = fresh.fd;
    o->journal.size = fresh.size;
    return output_sync_folder(o->journal.path, err);
}

// Removes rows that have moved to the output from the journal, once the output is synced.
static int shrink_journal(struct batch_output *o, struct error *err)
{
    enum { JOURNAL_LEAST = 8 << 20, SUM_LINE = 27 }; // SUM_LINE: bytes of a checksum's line, with 7 digits of a number
    if (o->journal.size < JOURNAL_LEAST ||
        o->journal.size < 4 * (uint64_t)o->n_waiting + 2 * SUM_LINE * (uint64_t)o->n_sums)
        return 0;
    pthread_mutex_lock(&o->files);
    int status =
        fdatasync(o->out.fd) ? fail(err, E_IO, "%s: %s", o->out.path, strerror(errno)) : output_write_journal(o, err);
    pthread_mutex_unlock(&o->files);
    return status;
}

// --- rows ---

bool batch_output_has_room(const struct batch_output *o)
{
    return o->n_slots < o->o.window && o->n_waiting < OUTPUT_WAITING_MOST;
}

static struct kept *find_kept(const struct batch_output *o, int64_t number)
{
    for (size_t low = 0, high = o->n_kept; low < high;) {
        size_t mid = low + (high - low) / 2;
        if (o->kept[mid].number == number)
            return &o->kept[mid];
        if (o->kept[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

// Writes the rows whose turn has come.
static int emit(struct batch_output *o, struct error *err)
{
    while (o->n_slots && o->slots[o->first].line) {
        struct slot *s = &o->slots[o->first];
        if (output_append_row(o, s->number, (struct str){s->line, s->n}, err))
            return -1;
        o->n_waiting -= s->n;
        free(s->line);
        *s = (struct slot){0};
        o->first = (o->first + 1) % o->o.window;
        o->n_slots--;
    }
    return shrink_journal(o, err);
}

int batch_output_expect(struct batch_output *o, int64_t number, struct error *err)
{
    struct kept *kept = find_kept(o, number);
    if (!o->o.ordered || (o->done[number] && !(kept && kept->line)))
        return 0;
    struct slot *s = &o->slots[(o->first + o->n_slots++) % o->o.window];
    *s = (struct slot){.number = number};
    if (!kept || !kept->line)
        return 0;
    s->line = kept->line;
    s->n = kept->n;
    s->is_journaled = true;
    kept->line = NULL;
    o->n_waiting += s->n;
    return emit(o, err);
}

static void mark_done(struct batch_output *o, int64_t number, bool is_error)
{
    o->done[number] = 1;
    o->n_done++;
    o->n_failed += is_error;
}

static struct slot *find_slot(const struct batch_output *o, int64_t number)
{
    int low = 0, high = o->n_slots;
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        *(o->slots[(o->first + mid) % o->o.window].number <= number ? &low : &high) = mid;
    }
    return &o->slots[(o->first + low) % o->o.window];
}

// A row whose turn it is. It is done before the rows behind it are written, so that an error of these names the right row.
static int put_next(struct batch_output *o, int64_t number, struct str line, bool is_error, struct error *err)
{
    if (output_append_row(o, number, line, err))
        return -1;
    mark_done(o, number, is_error);
    o->first = (o->first + 1) % o->o.window;
    o->n_slots--;
    return emit(o, err);
}

static int put_waiting(struct batch_output *o, struct slot *s, struct str line, struct error *err)
{
    s->line = malloc(line.len);
    if (!s->line)
        return fail(err, E_MEMORY, "no memory for a row of %zu bytes that waits for its turn", line.len);
    memcpy(s->line, line.data, line.len);
    s->n = line.len;
    o->n_waiting += line.len;
    s->is_journaled = o->is_regular;
    if (!o->is_regular)
        return 0;
    struct text kept = {0};
    batch_journal_print_row(&kept, without_newline(line));
    return append_text(o, &o->journal, &kept, err);
}

// Puts an error in the place of a row that is too long to be read again.
static int put_too_long(struct batch_output *o, int64_t number, struct str line, struct error *err)
{
    struct output_line row = {.custom_id = STR_LIT("null")};
    struct text instead = {0};
    output_line_parse(without_newline(line), &row);
    text_print(&instead,
               "{\"id\":\"batch_req_%lld\",\"custom_id\":%.*s,\"response\":null,\"error\":{\"code\":"
               "\"response_too_long\",\"message\":\"the answer takes more than %d MiB, the limit of a row\"}}\n",
               (long long)number, STR_ARG(row.custom_id), OUTPUT_ROW_MOST >> 20);
    int status = instead.failed ? fail(err, E_MEMORY, "no memory for a row")
                                : batch_output_put(o, number, (struct str){instead.data, instead.size}, true, err);
    text_free(&instead);
    return status;
}

int batch_output_put(struct batch_output *o, int64_t number, struct str line, bool is_error, struct error *err)
{
    if (line.len > OUTPUT_ROW_MOST && !is_error)
        return put_too_long(o, number, line, err);
    struct slot *s = o->o.ordered ? find_slot(o, number) : NULL;
    if (s && s == &o->slots[o->first])
        return put_next(o, number, line, is_error, err);
    if (s ? put_waiting(o, s, line, err) : output_append_row(o, number, line, err))
        return -1;
    mark_done(o, number, is_error);
    return 0;
}

bool batch_output_is_regular(const struct batch_output *o)
{
    return o->is_regular;
}

bool batch_output_is_done(const struct batch_output *o, int64_t number)
{
    return o->done[number];
}

uint64_t batch_output_id_hash(const struct batch_output *o, int64_t number)
{
    return o->id_hash ? o->id_hash[number] : 0;
}

int64_t batch_output_n_done(const struct batch_output *o)
{
    return o->n_done;
}

int64_t batch_output_n_failed(const struct batch_output *o)
{
    return o->n_failed;
}

// --- opening ---

int batch_output_check_path(const char *path, struct error *err)
{
    char *journal = output_beside(path, ".journal");
    int status = !journal ? fail(err, E_MEMORY, "no memory for a path")
                 : check_replaceable(path, err) || batch_journal_check(journal, err) ? -1
                                                                                     : 0;
    free(journal);
    return status;
}

// Where the file system has no locks, a run does without.
static int lock_output(const struct batch_output *o, struct error *err)
{
    if (!flock(o->out.fd, LOCK_EX | LOCK_NB))
        return 0;
    if (errno == EWOULDBLOCK)
        return fail(err, E_IO, "%s: another process writes to it", o->out.path);
    terminal_note("quern: note: %s cannot be locked (%s); nothing keeps a second run from writing to it", o->out.path,
                  strerror(errno));
    return 0;
}

// Opens and locks the file that the path names, which another process may be replacing at the same time.
static int open_locked(struct batch_output *o, struct error *err)
{
    for (;;) {
        struct stat ours, there;
        // a pipe that is open for reading here waits for no reader, and keeps rows that nobody takes
        const bool is_pipe = !stat(o->out.path, &there) && S_ISFIFO(there.st_mode);
        o->out.fd = open(o->out.path, (is_pipe ? O_WRONLY : O_RDWR) | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
        if (o->out.fd < 0)
            return fail(err, E_IO, "%s: %s", o->out.path, strerror(errno));
        if (fstat(o->out.fd, &ours))
            return fail(err, E_IO, "%s: %s", o->out.path, strerror(errno));
        o->is_regular = S_ISREG(ours.st_mode);
        if (!o->is_regular)
            return 0;
        if (lock_output(o, err))
            return -1;
        if (!stat(o->out.path, &there) && file_is_same(&there, &ours))
            return 0;
        close(o->out.fd);
    }
}

static int open_regular(struct batch_output *o, struct error *err)
{
    o->journal.path = output_beside(o->out.path, ".journal");
    o->id_hash = calloc((size_t)o->o.n_records + 1, sizeof *o->id_hash);
    o->sum = calloc((size_t)o->o.n_records + 1, sizeof *o->sum);
    if (!o->journal.path || !o->id_hash || !o->sum)
        return fail(err, E_MEMORY, "no memory for a table of %lld rows", (long long)o->o.n_records);
    if (output_load(o, err) || output_sync_folder(o->out.path, err))
        return -1;
    if (thread_start(&o->thread, sync_loop, o))
        return fail(err, E_MEMORY, "no thread to sync %s", o->out.path);
    o->has_thread = true;
    return 0;
}

int batch_output_open(struct batch_output **out, const struct batch_output_options *options, struct error *err)
{
    struct batch_output *o = calloc(1, sizeof *o);
    if (!o)
        return fail(err, E_MEMORY, "no memory for an output");
    *o = (struct batch_output){.o = *options, .out.fd = -1, .journal.fd = -1, .ascending = true};
    pthread_mutex_init(&o->lock, NULL);
    pthread_mutex_init(&o->files, NULL);
    pthread_cond_init(&o->wake, NULL);
    o->done = calloc((size_t)options->n_records + 1, 1);
    o->slots = calloc((size_t)options->window, sizeof *o->slots);
    bool is_stdout = !strcmp(options->path, "-");
    o->out.path = strdup(is_stdout ? "stdout" : options->path);
    int status = o->done && o->slots && o->out.path
                     ? 0
                     : fail(err, E_MEMORY, "no memory for a table of %lld rows", (long long)options->n_records);
    if (!status && is_stdout)
        status = (o->out.fd = dup(STDOUT_FILENO)) < 0 ? fail(err, E_IO, "stdout: %s", strerror(errno)) : 0;
    else if (!status)
        status = open_locked(o, err);
    if (!status && o->is_regular)
        status = open_regular(o, err);
    if (status) {
        batch_output_close(o);
        return -1;
    }
    *out = o;
    return 0;
}

// --- finishing ---

// Retried rows stand behind rows that came after them: a last pass sorts the output.
static int sort_output(struct batch_output *o, struct error *err)
{
    struct row_place *places = NULL;
    size_t n = 0;
    uint64_t end;
    int fresh;
    struct output_tail tail = {0};
    int status = output_scan(o->out.fd, o->out.path, 0, &tail, &places, &n, &end, NULL, NULL, err);
    if (!status)
        status = output_write_sorted(o->out.path, &o->out.fd, places, n, &fresh, err);
    if (!status) {
        close(o->out.fd);
        o->out.fd = fresh;
    }
    free(places);
    return status;
}

// Rows that were written to a file that has lost its name are lost with it; and if its size is not that of what was written,
// somebody else has written to it, too.
static int check_untouched(const struct batch_output *o, struct error *err)
{
    struct stat named, written;
    if (fstat(o->out.fd, &written))
        return fail(err, E_IO, "%s: %s", o->out.path, strerror(errno));
    if (stat(o->out.path, &named) || !file_is_same(&named, &written))
        return fail(err, E_IO, "%s: was removed or replaced while it was written; its rows are lost", o->out.path);
    if ((uint64_t)written.st_size != o->out.size)
        return fail(
            err, E_IO,
            "%s: was changed by somebody else while it was written: it has %lld bytes, not %llu; the same command "
            "computes what is missing, or says what cannot stay",
            o->out.path, (long long)written.st_size, (unsigned long long)o->out.size);
    return 0;
}

int batch_output_finish(struct batch_output *o, struct error *err)
{
    stop_thread(o);
    if (!o->is_regular)
        return 0;
    if (batch_output_check(o, err) || check_untouched(o, err))
        return -1;
    pthread_mutex_lock(&o->lock);
    sync_once(o);
    pthread_mutex_unlock(&o->lock);
    if (batch_output_check(o, err))
        return -1;
    bool rows_wait = o->n_slots > 0;
    for (size_t i = 0; i < o->n_kept; i++)
        rows_wait |= o->kept[i].line != NULL;
    if (rows_wait)
        return 0;
    if (o->o.ordered && !o->ascending && sort_output(o, err))
        return -1;
    if (unlink(o->journal.path))
        return fail(err, E_IO, "%s: %s", o->journal.path, strerror(errno));
    return output_sync_folder(o->out.path, err);
}

void batch_output_close(struct batch_output *o)
{
    if (!o)
        return;
    stop_thread(o);
    if (o->out.fd >= 0)
        close(o->out.fd);
    if (o->journal.fd >= 0)
        close(o->journal.fd);
    for (int i = 0; o->slots && i < o->n_slots; i++)
        free(o->slots[(o->first + i) % o->o.window].line);
    for (size_t i = 0; i < o->n_kept; i++)
        free(o->kept[i].line);
    pthread_mutex_destroy(&o->lock);
    pthread_mutex_destroy(&o->files);
    pthread_cond_destroy(&o->wake);
    void *const parts[] = {o->out.path, o->journal.path, o->done, o->id_hash, o->sum, o->slots, o->kept, o};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        free(parts[i]);
}

// Hashes the id in its JSON form, which is unique for an id.
uint64_t batch_id_hash(struct str custom_id)
{
    return digest_of(custom_id.data ? custom_id : STR_LIT("null")).a;
}
