// Tests failing calls through whole verbs: each call of the C library that quern makes fails once, the N-th one for every N,
// while a batch is computed, a model is quantised, logits are written, and a chat goes on. The exit status is the promised
// one, nothing leaks, no temporary file is left, what was there before is whole or replaced by what is whole, and the same
// command then ends as if nothing had been.
//
// A verb runs in a child of its own, which counts the calls; the linker redirects them here (--wrap, tests/meson.build).
#include "cmd/batch/batch_journal.h"
#include "cmd/verbs.h"
#include "tests/batch_rig.h"
#include "tests/sanitized.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

// Thousands of files are synced here: in memory, if there is such a folder.
static void open_folder(void)
{
    if (!access("/dev/shm", W_OK))
        strcpy(rig_folder, "/dev/shm/quern-test-XXXXXX");
    rig_open();
}

TestSuite(call_faults, .init = open_folder, .fini = rig_close, .timeout = 280);

// --- the calls ---

enum kind {
    READ,
    WRITE,
    SYNC,
    RENAME,
    CUT,
    STATUS,
    OPEN,
    MAP,
    THREAD,
    MEMORY,
    CONTROL,
    LOCK,
    READ_AGAIN,
    WRITE_AGAIN,
    KINDS
};
static const struct {
    const char *name;
    int number; // of errno
    int status; // the exit status that is promised
} kinds[KINDS] = {
    [READ] = {"read", EIO, E_IO},
    [WRITE] = {"write", ENOSPC, E_IO},
    [SYNC] = {"fsync", EIO, E_IO},
    [RENAME] = {"rename", EACCES, E_IO},
    [CUT] = {"ftruncate", EIO, E_IO},
    [STATUS] = {"fstat", EIO, E_IO},
    [OPEN] = {"open", EMFILE, E_IO},
    [MAP] = {"mmap", ENOMEM, E_MEMORY},
    [THREAD] = {"pthread_create", EAGAIN, E_MEMORY},
    [MEMORY] = {"malloc", ENOMEM, E_MEMORY},
    [CONTROL] = {"fcntl", EIO, E_IO},
    // a file system without locks does without
    [LOCK] = {"flock", ENOLCK, E_OK},
    // a signal interrupts these, which are done again
    [READ_AGAIN] = {"interrupted read", EINTR, E_OK},
    [WRITE_AGAIN] = {"interrupted write", EINTR, E_OK},
};

static _Atomic long left[KINDS]; // so many calls from now on one fails: 1 is the next; 0: none fails
static _Atomic long calls[KINDS];

static void disarm(void)
{
    for (int i = 0; i < KINDS; i++)
        atomic_store(&left[i], 0);
}

static bool fails(enum kind kind)
{
    atomic_fetch_add(&calls[kind], 1);
    if (atomic_load(&left[kind]) < 1 || atomic_fetch_sub(&left[kind], 1) != 1)
        return false;
    errno = kinds[kind].number;
    return true;
}

// --- blocks of the heap ---

// Those that were allocated here and not freed, in a table with open addressing: the C library's own calls (getline, stdio)
// are not seen, and their blocks may be freed here.
enum { BLOCKS = 1 << 18 };
static void *blocks[BLOCKS];
static long n_blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(const void *p)
{
    size_t at = (uintptr_t)p * 0x9e3779b97f4a7c15u >> 46;
    while (blocks[at] && blocks[at] != p)
        at = (at + 1) % BLOCKS;
    return at;
}

static void *note(void *p)
{
    pthread_mutex_lock(&blocks_lock);
    if (p) {
        blocks[slot_of(p)] = p;
        n_blocks++;
    }
    pthread_mutex_unlock(&blocks_lock);
    return p;
}

static void forget(void *p)
{
    pthread_mutex_lock(&blocks_lock);
    size_t at = p ? slot_of(p) : 0;
    if (p && blocks[at]) {
        n_blocks--;
        blocks[at] = NULL;
        // those behind it may have been put there because of it
        for (size_t next = (at + 1) % BLOCKS; blocks[next]; next = (next + 1) % BLOCKS) {
            void *moved = blocks[next];
            blocks[next] = NULL;
            blocks[slot_of(moved)] = moved;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
}

// clang-format off
#define WRAP(ret, name, args) ret __real_##name args; ret __wrap_##name args; ret __wrap_##name args
// clang-format on

WRAP(void *, malloc, (size_t n))
{
    return fails(MEMORY) ? NULL : note(__real_malloc(n));
}
WRAP(void *, calloc, (size_t n, size_t size))
{
    return fails(MEMORY) ? NULL : note(__real_calloc(n, size));
}
WRAP(void *, aligned_alloc, (size_t align, size_t n))
{
    return fails(MEMORY) ? NULL : note(__real_aligned_alloc(align, n));
}
WRAP(void *, realloc, (void *old, size_t n))
{
    if (fails(MEMORY))
        return NULL;
    forget(old);
    void *p = __real_realloc(old, n);
    return note(p ? p : old) == p ? p : NULL;
}
WRAP(void, free, (void *p))
{
    forget(p);
    __real_free(p);
}
WRAP(char *, strdup, (const char *s))
{
    return fails(MEMORY) ? NULL : note(__real_strdup(s));
}
WRAP(char *, strndup, (const char *s, size_t n))
{
    return fails(MEMORY) ? NULL : note(__real_strndup(s, n));
}
WRAP(ssize_t, read, (int fd, void *to, size_t n))
{
    return fails(READ) || fails(READ_AGAIN) ? -1 : __real_read(fd, to, n);
}
WRAP(ssize_t, pread64, (int fd, void *to, size_t n, off_t at))
{
    return fails(READ) || fails(READ_AGAIN) ? -1 : __real_pread64(fd, to, n, at);
}
// Notes on stderr are no matter of a file.
WRAP(ssize_t, write, (int fd, const void *from, size_t n))
{
    return fd > STDERR_FILENO && (fails(WRITE) || fails(WRITE_AGAIN)) ? -1 : __real_write(fd, from, n);
}
WRAP(int, fsync, (int fd))
{
    return fails(SYNC) ? -1 : __real_fsync(fd);
}
WRAP(int, fdatasync, (int fd))
{
    return fails(SYNC) ? -1 : __real_fdatasync(fd);
}
WRAP(int, rename, (const char *from, const char *to))
{
    return fails(RENAME) ? -1 : __real_rename(from, to);
}
WRAP(int, ftruncate64, (int fd, off_t n))
{
    return fails(CUT) ? -1 : __real_ftruncate64(fd, n);
}
WRAP(int, fstat64, (int fd, struct stat *st))
{
    return fails(STATUS) ? -1 : __real_fstat64(fd, st);
}
WRAP(int, open64, (const char *path, int flags, mode_t mode))
{
    return fails(OPEN) ? -1 : __real_open64(path, flags, mode);
}
WRAP(void *, mmap64, (void *at, size_t n, int protection, int flags, int fd, off_t offset))
{
    return fails(MAP) ? MAP_FAILED : __real_mmap64(at, n, protection, flags, fd, offset);
}
// Whether a descriptor of its own is open, is asked before anything else.
WRAP(int, fcntl64, (int fd, int what, long value))
{
    return fd > STDERR_FILENO && fails(CONTROL) ? -1 : __real_fcntl64(fd, what, value);
}
WRAP(int, flock, (int fd, int how))
{
    return fails(LOCK) ? -1 : __real_flock(fd, how);
}
WRAP(int, pthread_create, (pthread_t * thread, const pthread_attr_t *how, void *(*work)(void *), void *arg))
{
    return fails(THREAD) ? EAGAIN : __real_pthread_create(thread, how, work, arg);
}

// --- verbs ---

enum { LEAK = 90 };
#ifndef MEMORY_STEP
#define MEMORY_STEP                                                                                                    \
    9 // of the allocations, one in so many fails, and twice as many of the reads of a run that is gone on with
#endif

struct job {
    const char *argv[20];
    int (*verb)(int argc, char **argv);
    enum {
        REPLACES, // the output is new as a whole
        RESUMES,  // it is gone on with, and whole in the end
        GOES_ON,  // so it is, and begins with the part of an output that put_part writes
        TALKS,    // it is a dialogue
    } form;
};
static const struct job quantize = {
    {"quantize", "m.gguf", "out", "Q4_0", "--allow-requantize", "-t", "2"}, cmd_quantize, REPLACES};
static const struct job batch = {
    {"batch", "in", "-o", "out", "-np", "3", "-t", "2", "--device", "cpu", "-c", "256", "-ub", "32"},
    cmd_batch,
    RESUMES};
static const struct job again = {
    {"batch", "in", "-o", "out", "-np", "3", "-t", "2", "--device", "cpu", "-c", "256", "-ub", "32", "--retry-errors"},
    cmd_batch,
    RESUMES};
static const struct job going_on = {
    {"batch", "in", "-o", "out", "-np", "3", "-t", "2", "--device", "cpu", "-c", "256", "-ub", "32", "--retry-errors"},
    cmd_batch,
    GOES_ON};
static const struct job logits = {
    {"logits", "--ids", "ids", "-o", "out", "-t", "2", "--device", "cpu"}, cmd_logits, REPLACES};
static const struct job chat = {{"chat", "--session", "./out", "--cache", "-n", "4", "-t", "2", "--device", "cpu", "-c",
                                 "1024", "--temp", "0", "--seed", "1"},
                                cmd_chat,
                                TALKS};

static bool resumes(const struct job *job)
{
    return job->form == RESUMES || job->form == GOES_ON;
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static int run_verb(const struct job *job)
{
    char *argv[COUNT_OF(job->argv) + 1];
    int argc = 0;
    for (; job->argv[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)job->argv[argc];
    argv[argc] = NULL;
    return job->verb(argc, argv);
}

// In a child: runs the verb, whose call number n of a kind fails. *fired is shared with the parent.
static int run_with_fault(const struct job *job, enum kind kind, long n, bool *fired)
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        cr_assert(freopen("err", "w", stderr) && freopen("said", "w", stdout) &&
                  freopen(job->form == TALKS ? "lines" : "/dev/null", "r", stdin));
        const int descriptors = open_descriptors();
        const long before = n_blocks;
        atomic_store(&left[kind], n + 1);
        const int status = run_verb(job);
        *fired = n >= 0 && atomic_load(&left[kind]) < 1;
        disarm();
        const bool leaks = n_blocks != before || open_descriptors() != descriptors;
        if (leaks)
            fprintf(stderr, "leaked: %ld blocks, %d descriptors\n", n_blocks - before,
                    open_descriptors() - descriptors);
        fflush(stderr);
        _exit(leaks ? LEAK : status);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return rig_status(status);
}

// Without a shell, for this is done thousands of times.
static bool same_bytes(const char *a, const char *b)
{
    struct stat x, y;
    char *s = read_text(a), *t = read_text(b);
    const bool same = !stat(a, &x) && !stat(b, &y) && x.st_size == y.st_size && !memcmp(s, t, (size_t)x.st_size);
    free(s);
    free(t);
    return same;
}

static bool has_temporary(void)
{
    glob_t found;
    const bool yes = !glob("*.tmp", 0, NULL, &found);
    globfree(&found);
    return yes;
}

// What was said before, in a chat that is gone on with.
static const char session[] =
    "{\"format\": \"quern-session\", \"version\": 1, \"model\": \"built-in\", \"settings\": {}, \"messages\": ["
    "{\"role\": \"user\", \"content\": \"Before\"}, {\"role\": \"assistant\", \"content\": \"Indeed.\"}, "
    "{\"role\": \"user\", \"content\": \"Later\"}, {\"role\": \"assistant\", \"content\": \"Taken back.\"}]}";

static const char *const output_names[] = {"out", "out.journal", "out.manifest", "out.kv", "second", "second.kv"};
static const char *const part_names[] = {"part", "part.journal", "part.manifest"};

static void clear_output(const struct job *job)
{
    for (size_t i = 0; i < COUNT_OF(output_names); i++)
        unlink(output_names[i]);
    for (size_t i = 0; job->form == GOES_ON && i < COUNT_OF(part_names); i++) {
        char *part = read_text(part_names[i]);
        write_text(output_names[i], part);
        free(part);
    }
    if (job->form == REPLACES)
        write_text("out", "old");
    if (job->form == TALKS)
        write_text("out", session);
}

static void check_output(const struct job *job, enum kind kind, long n, int status)
{
    char *err = read_text("err"), *out = read_text("out");
    cr_assert_neq(status, (int)LEAK, "%s %ld: %s", kinds[kind].name, n, err);
    // an answer for which there was no memory is a row that fails
    const bool failed_row = resumes(job) && kind == MEMORY && status == E_ITEMS && strstr(out, "\"out_of_memory\"");
    const bool failed_line = job->form == TALKS && status == E_ITEMS; // and the next one is answered
    cr_assert(status == 0 || status == kinds[kind].status || failed_row || failed_line ||
                  (status == E_IO && kind == MEMORY && strstr(err, "memory")),
              "%s %ld: status %d, %s%s", kinds[kind].name, n, status, err, resumes(job) ? out : "");
    cr_assert(status == 0 || strstr(err, "quern: "), "%s %ld: nothing is said", kinds[kind].name, n);
    cr_assert(!has_temporary(), "%s %ld: a temporary file is left: %s", kinds[kind].name, n, err);
    if (status == 0)
        cr_assert(same_bytes("out", "whole"), "%s %ld: another output: %s%s", kinds[kind].name, n, err, out);
    else if (job->form == TALKS)
        cr_assert(strstr(out, "\"Before\"") && strstr(out, "\"Indeed.\""), "%s %ld: %s", kinds[kind].name, n, out);
    else if (job->form == REPLACES && !same_bytes("out", "whole"))
        cr_assert_str_eq(out, "old", "%s %ld: the old file is gone: %s", kinds[kind].name, n, err);
    free(err);
    free(out);
}

// Every call of a kind in turn, or one of `step`.
static void fail_each(const struct job *job, enum kind kind, long step)
{
    bool *fired = mmap(NULL, sizeof *fired, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long n = 0, failed = 0;
    cr_assert_neq(fired, MAP_FAILED);
    for (*fired = true; *fired; n += step) {
        clear_output(job);
        *fired = false;
        const int status = run_with_fault(job, kind, n, fired);
        check_output(job, kind, n, status);
        failed += status != 0;
        if (status && job->form == TALKS) {
            bool none;
            cr_assert_eq(run_with_fault(job, kind, -1, &none), 0, "%s %ld, then: %s", kinds[kind].name, n,
                         read_text("err"));
        }
        if (status && resumes(job)) {
            bool none;
            cr_assert_eq(run_with_fault(status == E_ITEMS ? &again : job, kind, -1, &none), 0, "%s %ld",
                         kinds[kind].name, n);
            cr_assert(same_bytes("out", "whole"), "%s %ld: another output in the end", kinds[kind].name, n);
        }
    }
    printf("%s, %s: %ld calls, %ld of them needed\n", job->argv[0], kinds[kind].name, (n - step) / step, failed);
}

static void write_plain_rows(const char *path)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 1; i <= 8; i++)
        fprintf(f, "{\"prompt\": \"row %d of some\", \"max_tokens\": %d, \"temperature\": 0}\n", i, 9 - i);
    cr_assert_eq(fclose(f), 0);
}

static void fail_all(const struct job *job, long memory_step)
{
    bool none;
    disarm();
    write_plain_rows("in");
    write_text(
        "lines",
        "A question\n/stats\n/regen\n/undo\n/save ./second\n/load ./second\n/read lines\nAnother one\n/set temp 0.5\n");
    cr_assert_eq(shell("$Q tokenize -f in -o ids"), 0);
    clear_output(job);
    cr_assert_eq(run_with_fault(job, READ, -1, &none), 0, "%s", read_text("err"));
    cr_assert_eq(system("mv out whole"), 0);
    for (int kind = 0; kind < KINDS; kind++) {
        const bool reads = kind == READ || kind == READ_AGAIN, interrupted = kind == READ_AGAIN || kind == WRITE_AGAIN;
        const long few = reads && job->form == GOES_ON ? (memory_step + 1) / 2 : 1;
        if (!interrupted || job->form == GOES_ON)
            fail_each(job, (enum kind)kind, kind == MEMORY ? memory_step : few);
    }
}

Test(call_faults, quantizing_survives_every_failed_call)
{
    fail_all(&quantize, MEMORY_STEP);
}

// The state of the run of `batch` that was interrupted: rows 1 to 3 are in the output, of which the second has failed, and row
// 8 waits in the journal.
static void put_part(void)
{
    static const char failed[] = "{\"id\":\"batch_req_2\",\"custom_id\":\"row-2\",\"response\":null,"
                                 "\"error\":{\"code\":\"timeout\",\"message\":\"late\"}}";
    bool none;
    struct text out = {0}, journal = {0};
    disarm();
    write_plain_rows("in");
    clear_output(&batch);
    cr_assert_eq(run_with_fault(&batch, READ, -1, &none), 0, "%s", read_text("err"));
    char *all = read_text("out"), *rest = all;
    text_append(&journal, STR_LIT(JOURNAL_HEAD));
    for (int i = 1; i <= 8; i++) {
        const struct str line = str_from(i == 2 ? failed : strsep(&rest, "\n"));
        if (i == 2)
            strsep(&rest, "\n");
        if (i <= 3) {
            text_print(&out, "%.*s\n", STR_ARG(line));
            batch_journal_print_sum(&journal, i, batch_row_sum(line));
        } else if (i == 8) {
            batch_journal_print_row(&journal, line);
        }
    }
    text_append(&out, (struct str){"", 1});
    text_append(&journal, (struct str){"", 1});
    write_text("part", out.data);
    write_text("part.journal", journal.data);
    cr_assert_eq(system("cp out.manifest part.manifest"), 0);
    text_free(&out);
    text_free(&journal);
    free(all);
}

Test(call_faults, a_batch_that_is_gone_on_with_survives_every_failed_call)
{
    put_part();
    fail_all(&going_on, MEMORY_STEP);
}

Test(call_faults, a_batch_survives_every_failed_call)
{
    fail_all(&batch, MEMORY_STEP);
}

Test(call_faults, logits_survive_every_failed_call)
{
    fail_all(&logits, MEMORY_STEP);
}

Test(call_faults, a_chat_survives_every_failed_call)
{
    fail_all(&chat, MEMORY_STEP);
}
