// Tests that quern ends well whatever ends it: a model file that is cut while it is used, signals, a limit of file sizes.
// The exit status is the promised one, the message says what happened, no temporary file is left, and what was there before
// is whole. And that streams which do not wait end nothing.
#include "tests/batch_rig.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

TestSuite(endings, .init = rig_open, .fini = rig_close, .timeout = 240);

// What is run. Its output "out" holds "old" before; it is under way once its temporary file is there, or bytes on stdout.
struct job {
    const char *what;
    const char *argv[20];
    bool streams; // it writes to stdout, and makes no file
};
static const struct job jobs[] = {
    {"run", {"run", "-m", "cut.gguf", "--device", "cpu", "-t", "4", "--ignore-eos", "-n", "4000", "-p", "a"}, true},
    {"tap",
     {"run", "-m", "cut.gguf", "--device", "cpu", "-t", "2", "--ignore-eos", "-n", "4000", "-p", "a", "--tap",
      "blk.0.attn_q=out"},
     false},
    {"logits", {"logits", "-m", "cut.gguf", "--device", "cpu", "-t", "4", "--ids", "ids", "-o", "out"}, false},
    {"kl-base",
     {"perplexity", "-m", "cut.gguf", "--device", "cpu", "-t", "2", "-c", "64", "-f", "text", "--kl-base", "out"},
     false},
    {"quantize", {"quantize", "cut.gguf", "out", "IQ3_S", "--allow-requantize", "-t", "2"}, false},
};

static bool is_there(const char *pattern)
{
    glob_t found;
    const bool yes = !glob(pattern, 0, NULL, &found);
    globfree(&found);
    return yes;
}

// Whether the process has mapped its model. Before it does, a temporary file is made only to see whether the output can be.
static bool has_model(pid_t pid)
{
    char path[40], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    bool yes = false;
    while (f && !yes && fgets(line, sizeof line, f))
        yes = strstr(line, "/cut.gguf");
    if (f)
        fclose(f);
    return yes;
}

static pid_t start(const struct job *job, rlim_t file_size)
{
    pid_t pid = fork();
    if (pid == 0) {
        const char *argv[21] = {"quern"};
        memcpy(argv + 1, job->argv, sizeof job->argv);
        cr_assert(freopen("err", "w", stderr) && freopen("stdout", "w", stdout));
        signal(SIGXFSZ, SIG_DFL);
        if (file_size)
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){file_size, file_size});
        execv(getenv("QUERN_BIN"), (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    return pid;
}

// Waits until the job is under way. False if it was over before that.
static bool wait_until_under_way(const struct job *job, pid_t pid, int *status)
{
    for (int i = 0; i < 20000; i++) {
        struct stat st;
        if (has_model(pid) && (job->streams ? !stat("stdout", &st) && st.st_size > 0 : is_there("out.*.tmp")))
            return true;
        if (waitpid(pid, status, WNOHANG) == pid)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static void prepare(void)
{
    FILE *f = fopen("text", "w");
    cr_assert(f);
    for (int i = 0; i < 3000; i++)
        fprintf(f, "%d ", i);
    fclose(f);
    struct synth_options o = {.preset = "llama-tiny", .mix = "F32", .n_vocab = 2000, .seed = 3};
    struct error err;
    cr_assert_eq(synth_model_write(&o, "whole.gguf", &err), 0, "%s", err.text);
    cr_assert_eq(shell("cp whole.gguf cut.gguf && $Q tokenize -m whole.gguf -f text -o ids"), 0);
}

static void clear(void)
{
    unlink("stdout");
    write_text("out", "old");
    cr_assert_eq(shell("cp whole.gguf cut.gguf"), 0);
}

static void expect_clean(const struct job *job, const char *how)
{
    cr_expect(!is_there("*.tmp"), "%s, %s: a temporary file is left", job->what, how);
    char *text = read_text("out");
    cr_expect_str_eq(text, "old", "%s, %s: the old output is gone", job->what, how);
    free(text);
}

// In each try the file is cut at another place, sometimes within the first pages of the tensors.
Test(endings, a_model_file_that_is_cut_is_said_in_whichever_thread_it_is_met)
{
    enum { TRIES = 6 };
    struct stat st;
    prepare();
    cr_assert_eq(stat("whole.gguf", &st), 0);
    for (size_t i = 0; i < COUNT_OF(jobs); i++)
        for (int k = 0; k < TRIES; k++) {
            int status;
            clear();
            pid_t pid = start(&jobs[i], 0);
            cr_assert(wait_until_under_way(&jobs[i], pid, &status), "%s was over too soon", jobs[i].what);
            cr_assert_eq(truncate("cut.gguf", 4096 + st.st_size / 2 * k / TRIES), 0);
            cr_assert_eq(waitpid(pid, &status, 0), pid);
            cr_assert_eq(rig_status(status), 5, "%s: %d, %s", jobs[i].what, rig_status(status), read_text("err"));
            expect_says("err", "cut.gguf: model file changed");
            expect_clean(&jobs[i], "cut");
        }
}

// A signal that ends the process by default still does, but leaves no file; those that interrupt have their own status.
Test(endings, every_signal_removes_what_is_not_whole)
{
    static const struct {
        int number, status;
    } signals[] = {{SIGINT, 130},  {SIGTERM, 130}, {SIGHUP, 130},  {SIGQUIT, 128 + SIGQUIT}, {SIGABRT, 128 + SIGABRT},
                   {SIGUSR1, 138}, {SIGXCPU, 152}, {SIGALRM, 142}, {SIGIO, 128 + SIGIO},     {40, 168}, // has no name
                   {SIGBUS, 135}};
    prepare();
    for (size_t i = 0; i < COUNT_OF(jobs); i++)
        for (size_t k = 0; k < COUNT_OF(signals); k++) {
            int status;
            clear();
            pid_t pid = start(&jobs[i], 0);
            cr_assert(wait_until_under_way(&jobs[i], pid, &status), "%s was over too soon", jobs[i].what);
            kill(pid, signals[k].number);
            cr_assert_eq(waitpid(pid, &status, 0), pid);
            // the rows of a tap are whole whenever they end
            const bool kept = !strcmp(jobs[i].what, "tap") && signals[k].status == 130;
            cr_expect_eq(rig_status(status), signals[k].status, "%s, signal %d: %d", jobs[i].what, signals[k].number,
                         rig_status(status));
            if (!kept)
                expect_clean(&jobs[i], strsignal(signals[k].number));
        }
}

Test(endings, nohup_is_obeyed)
{
    prepare();
    cr_assert_eq(shell("trap '' HUP; $Q run -m cut.gguf --ignore-eos -n 300 -p a >stdout & p=$!; "
                       "while [ ! -s stdout ]; do sleep 0.01; done; kill -HUP $p; wait $p"),
                 0);
}

// The file system is full at another byte each time; RLIMIT_FSIZE is a full disk for one process.
Test(endings, a_limit_of_file_sizes_is_a_full_disk)
{
    static const char *const commands[] = {
        "logits -m cut.gguf --ids ids -o out",
        "perplexity -m cut.gguf -c 64 -f text --kl-base out",
        "quantize cut.gguf out Q8_0",
        "imatrix -m cut.gguf -c 64 --chunks 2 -f text -o out",
        "run -m cut.gguf -n 200 --ignore-eos -p a --tap blk.0.attn_q=out",
        "tokenize -m cut.gguf -f text -o out",
        "embed -m cut.gguf hello there -o out",
        "embed -m cut.gguf hello there -o out --embd-output-format raw",
        "bench -m cut.gguf -p 8 -n 0 -r 1 --save ./out",
        "bench -m cut.gguf -p 8 -n 0 -r 1 --plot out",
    };
    const struct job none = {"any", {NULL}, false};
    prepare();
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        clear();
        // prlimit counts bytes, ulimit blocks of 1 KiB
        cr_expect_eq(shell("ulimit -f 1; $Q %s >/dev/null", commands[i]), 5, "%s", commands[i]);
        expect_says("err", "File too large");
        expect_clean(&none, commands[i]);
    }
}

Test(endings, rows_of_a_batch_end_with_a_limit_too)
{
    write_rows("in", 40);
    cr_assert_eq(shell("ulimit -f 4; $Q batch in -o out --format jsonl"), 5);
    expect_says("err", "resumable at row");
    cr_expect(!is_there("*.tmp"));
    cr_assert_eq(shell("$Q batch in -o out --format jsonl"), 1);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    cr_expect(same_files("out", "whole"));
}

// A file that is opened while a standard descriptor is closed must not get its number: notes would go into it.
Test(endings, closed_standard_descriptors_are_not_taken_by_files)
{
    static const char *const closed[] = {"2>&-", ">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"};
    write_rows("in", 6);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 0);
    for (size_t i = 0; i < COUNT_OF(closed); i++) {
        cr_assert_eq(shell("rm -f out out.*; $Q batch in -o out --format jsonl -v %s", closed[i]), 0, "%s", closed[i]);
        cr_expect(same_files("out", "whole"), "%s", closed[i]);
    }
    cr_expect_eq(shell("$Q run -p a -n 3 >&-"), 5);
    cr_expect_eq(shell("$Q run -n 3 <&-"), 5);
}

// A chat whose answers nobody reads.
Test(endings, a_chat_without_a_reader_ends_with_5)
{
    cr_expect_eq(shell("echo hello | $Q chat -n 3 >&-"), 5);
    cr_expect_eq(shell("echo hello | $Q chat -n 3 >/dev/full"), 5);
    expect_says("err", "stdout: No space left on device");
    cr_expect_eq(shell("((echo hello; sleep 0.5; echo again) | $Q chat -n 3; echo $? >status) | head -c 1 >said; "
                       "exit $(cat status)"),
                 5);
}

// A dialogue that cannot be kept: at once where that can be known, and else in the exit status.
Test(endings, a_session_that_is_not_kept_ends_with_5)
{
    cr_expect_eq(shell("echo hello | $Q chat -n 3 --session nowhere/s.json >said"), 5);
    expect_says("err", "nowhere/s.json");
    cr_expect_eq(shell("[ -s said ]"), 1);
    cr_expect_eq(shell("head -c 1500 /dev/zero | tr '\\0' a >long; "
                       "(ulimit -f 1; $Q chat -n 3 --session ./s.json <long >said)"),
                 5);
    expect_says("err", "the session is not kept");
    cr_expect(!is_there("*.tmp") && !is_there("s.json"));
    cr_expect_eq(shell("$Q chat -n 3 --session ./s.json <long >said && [ -s s.json ]"), 0);
}

// What a shell lets run in the background goes on when Ctrl-C ends what runs in front.
Test(endings, signals_that_are_ignored_at_the_start_stay_ignored)
{
    static const char *const kills[] = {"kill -INT $p; kill -INT $p", "kill -TERM $p; kill -TERM $p",
                                        "kill -HUP $p; kill -HUP $p"};
    for (size_t i = 0; i < COUNT_OF(kills); i++) {
        cr_expect_eq(
            shell("rm -f talk log; mkfifo talk; (trap '' INT TERM HUP; exec $Q chat -n 2 --session ./s.json -v) "
                  "<talk >said 2>log & p=$!; exec 3>talk; "
                  "for i in $(seq 1200); do grep -q s.json log && break; sleep 0.05; done; "
                  "%s; echo hello >&3; exec 3>&-; wait $p",
                  kills[i]),
            0, "%s: %s", kills[i], read_text("log"));
        cr_expect_eq(shell("[ -s said ]"), 0, "%s", kills[i]);
    }
    write_rows("rows", 30);
    cr_expect_eq(shell("(trap '' INT; exec $Q batch rows -o out -n 3) & p=$!; "
                       "for i in $(seq 1200); do ls out* >/dev/null 2>&1 && break; sleep 0.05; done; "
                       "kill -INT $p; kill -INT $p; wait $p; [ $? != 130 ] && [ -e out ] && [ ! -e out.journal ]"),
                 0, "%s", read_text("err"));
}

static void wait_not(int fd)
{
    cr_assert_eq(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

// Opens two streams, which cannot be opened anew if they are sockets. in[1] and out[0] are the test's ends.
static void open_streams(bool sockets, int in[2], int out[2])
{
    if (sockets)
        cr_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) &&
                  !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out));
    else
        cr_assert(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
    wait_not(in[0]);
    wait_not(out[1]);
}

// The program that made the streams of quern may have asked for reads and writes that do not wait: node and ssh do. The text
// comes late, and what is written is more than a pipe holds and is read late.
Test(endings, streams_that_do_not_wait_are_waited_for)
{
    static char text[200000], ids[1 << 20];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? ' ' : (char)('a' + i / 2 % 26);
    for (int sockets = 0; sockets < 2; sockets++) {
        int in[2], out[2], status;
        open_streams(sockets, in, out);
        pid_t pid = fork();
        if (pid == 0) {
            cr_assert(freopen("err", "w", stderr));
            dup2(in[0], STDIN_FILENO);
            dup2(out[1], STDOUT_FILENO);
            execl(getenv("QUERN_BIN"), "quern", "tokenize", NULL);
            _exit(99);
        }
        usleep(300000);
        for (size_t at = 0; at < sizeof text;) {
            ssize_t n = write(in[1], text + at, sizeof text - at);
            cr_assert_gt(n, 0);
            at += (size_t)n;
        }
        close(in[1]);
        size_t n_ids = 1;
        cr_expect_eq(read(out[0], ids, 1), 1);
        if (!sockets) // others who have the same open files find them as they were
            cr_expect(fcntl(in[0], F_GETFL) & fcntl(out[1], F_GETFL) & O_NONBLOCK);
        close(in[0]);
        close(out[1]);
        usleep(300000);
        for (ssize_t n; (n = read(out[0], ids + n_ids, sizeof ids - n_ids)) > 0;)
            n_ids += (size_t)n;
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_expect_eq(rig_status(status), 0, "%s", read_text("err"));
        cr_expect_gt(n_ids, 100000u);
        close(out[0]);
    }
}

// Waits until nothing more comes into a pipe that nobody reads.
static void wait_until_full(int fd)
{
    int before = 0, now = 0;
    for (int still = 0; still < 50; before = now) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        cr_assert_eq(ioctl(fd, FIONREAD, &now), 0);
        still = now > 0 && now == before ? still + 1 : 0;
    }
}

Test(endings, an_interrupt_ends_a_run_whose_reader_sleeps)
{
    int ends[2], status = 0, tries = 0;
    prepare();
    cr_assert_eq(pipe(ends), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    const pid_t pid = fork();
    if (pid == 0) {
        const char *argv[] = {"quern", "run", "-m", "whole.gguf", "--ignore-eos", "-n", "4000", "-p", "a", NULL};
        cr_assert(freopen("err", "w", stderr));
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(getenv("QUERN_BIN"), (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    close(ends[1]);
    wait_until_full(ends[0]);
    kill(pid, SIGINT);
    while (waitpid(pid, &status, WNOHANG) == 0 && tries++ < 2000)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (tries >= 2000)
        kill(pid, SIGKILL);
    cr_expect_eq(rig_status(status), 130, "%d: %s", rig_status(status), read_text("err"));
    close(ends[0]);
}
