// Tests that a confined process can do no more than it needs: what an attacker would try fails, in the process that entered
// the sandbox and in the threads that it starts, and every verb still does its work in it.
#include "cmd/confine.h"
#include "engine/model.h"
#include "tests/batch_rig.h"
#include "tests/sanitized.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

TestSuite(sandbox, .init = rig_open, .fini = rig_close, .timeout = 120);

// --- attempts: each returns whether it succeeded ---

static bool writes(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const bool done = fd >= 0 && write(fd, "x", 1) == 1;
    if (fd >= 0)
        close(fd);
    return done;
}

static bool writes_elsewhere(void)
{
    return writes("elsewhere/new");
}
static bool changes_elsewhere(void)
{
    return writes("elsewhere/old");
}
static bool cuts_elsewhere(void)
{
    return !truncate("elsewhere/old", 0);
}
static bool removes_elsewhere(void)
{
    return !unlink("elsewhere/old");
}
static bool moves_elsewhere(void)
{
    return !rename("elsewhere/old", "elsewhere/other");
}
static bool links_elsewhere(void)
{
    return !symlink("old", "elsewhere/link");
}
static bool makes_a_folder(void)
{
    return !mkdir("elsewhere/folder", 0700);
}
static bool writes_home(void)
{
    return writes("written-in-the-working-folder");
}
static bool opens_a_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}
static bool opens_a_local_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}
static bool opens_a_ring(void)
{
    char zeros[256] = {0};
    return syscall(425, 4, zeros) >= 0; // io_uring_setup
}
static bool executes(void)
{
    const pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}
static bool traces(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    const bool done = !ptrace(PTRACE_ATTACH, pid, NULL, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return done;
}
static bool reads(void)
{
    char byte;
    const int fd = open("elsewhere/old", O_RDONLY);
    const bool done = fd >= 0 && read(fd, &byte, 1) == 1;
    close(fd);
    return done;
}
static bool replaces_an_output(void)
{
    return writes("out/x.tmp") && !rename("out/x.tmp", "out/x") && writes("out/y") && !unlink("out/y");
}
static bool maps_memory(void)
{
    return mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static const struct attempt {
    const char *name;
    bool (*try)(void);
    bool landlock, seccomp; // what hinders it; neither: nothing may
} attempts[] = {
    {"write a new file elsewhere", writes_elsewhere, true, false},
    {"write an old file elsewhere", changes_elsewhere, true, false},
    {"cut a file elsewhere", cuts_elsewhere, true, false},
    {"remove a file elsewhere", removes_elsewhere, true, false},
    {"rename a file elsewhere", moves_elsewhere, true, false},
    {"link elsewhere", links_elsewhere, true, false},
    {"make a folder elsewhere", makes_a_folder, true, false},
    {"write in the working folder", writes_home, true, false},
    {"open a socket", opens_a_socket, false, true},
    {"open a local socket", opens_a_local_socket, false, true},
    {"open a ring of io_uring", opens_a_ring, false, true},
    {"execute a program", executes, true, true},
    {"trace a process", traces, false, true},
    {"read a file elsewhere", reads, false, false},
    {"replace an output", replaces_an_output, false, false},
    {"map memory", maps_memory, false, false},
};

static void *try_in_thread(void *arg)
{
    const struct attempt *a = arg;
    return (void *)(intptr_t)a->try();
}

// In a child: enters the sandbox and tries. 0: as it must be; 1: not; 2: the kernel has no such feature.
static int try_confined(const struct attempt *a, bool threaded)
{
    const struct sandbox_needs needs = {.folders = {"out"}, .n_folders = 1};
    const struct sandbox_level level = sandbox_enter(&needs);
    const bool hindered = (a->landlock && level.landlock) || (a->seccomp && level.seccomp);
    if ((a->landlock || a->seccomp) && !hindered)
        return 2;
    pthread_t thread;
    void *done = NULL;
    if (!threaded)
        return a->try() == hindered;
    if (pthread_create(&thread, NULL, try_in_thread, (void *)(uintptr_t)a) || pthread_join(thread, &done))
        return 1;
    return (done != NULL) == hindered;
}

static int in_child(const struct attempt *a, bool confined, bool threaded)
{
    int status;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(confined ? try_confined(a, threaded) : !a->try());
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return rig_status(status);
}

static void plant(void)
{
    cr_assert_eq(shell("rm -rf elsewhere out written-*; mkdir elsewhere out; echo old >elsewhere/old"), 0);
}

Test(sandbox, what_is_not_needed_fails)
{
    int skipped = 0;
    for (size_t i = 0; !sanitized && i < COUNT_OF(attempts); i++)
        for (int threaded = 0; threaded < 2; threaded++) {
            plant();
            const int without = in_child(&attempts[i], false, false);
            plant();
            const int with = in_child(&attempts[i], true, threaded);
            cr_expect_neq(with, 1, "%s%s", attempts[i].name, threaded ? ", in a thread" : "");
            // an attempt that fails anyway shows nothing
            if (without != 0 || with == 2)
                skipped++;
        }
    printf("%d attempts could show nothing here\n", skipped);
}

// The folders that a command line names, in their own process each.
Test(sandbox, a_command_line_opens_the_folders_of_its_outputs)
{
    static const struct {
        const char *out;
        bool in_out, elsewhere;
    } cases[] = {{"out/x", true, false},       {"elsewhere/../out/x", true, false}, {"soft", false, true},
                 {"elsewhere/x", false, true}, {"/dev/null", false, false},         {"-", false, false}};
    for (size_t i = 0; !sanitized && i < COUNT_OF(cases); i++) {
        plant();
        cr_assert_eq(shell("ln -sf elsewhere/old soft"), 0);
        int status;
        const pid_t pid = fork();
        if (pid == 0) {
            const struct options o = {.verb = VERB_LOGITS, .out = cases[i].out, .device = DEVICE_CPU};
            const struct sandbox_level level = confine(&o);
            _exit(level.landlock &&
                  (writes("out/new") != cases[i].in_out || writes_elsewhere() != cases[i].elsewhere || !reads()));
        }
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_expect_eq(status, 0, "-o %s", cases[i].out);
    }
}

// Whether a line of a thread's status is in it.
static bool has_status(pid_t pid, const char *task, const char *line)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%d/task/%s/status", pid, task);
    FILE *f = fopen(path, "r");
    char all[8192];
    all[f ? fread(all, 1, sizeof all - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    return strstr(all, line);
}

Test(sandbox, every_thread_of_a_run_is_confined)
{
    char list[400], *task;
    int n = 0;
    write_text("started", "");
    const pid_t pid = fork();
    if (pid == 0) {
        cr_assert(freopen("started", "w", stdout));
        execl(getenv("QUERN_BIN"), "quern", "run", "--device", "cpu", "-t", "3", "-p", "a", "-n", "100000",
              "--ignore-eos", "-c", "110000", (char *)NULL);
        _exit(99);
    }
    for (struct stat st = {0}; !stat("started", &st) && !st.st_size;)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    snprintf(list, sizeof list, "ls /proc/%d/task >tasks", pid);
    cr_assert_eq(system(list), 0);
    char *tasks = read_text("tasks");
    for (task = strtok(tasks, "\n"); task; task = strtok(NULL, "\n"), n++)
        cr_expect(sanitized || (has_status(pid, task, "NoNewPrivs:\t1") && has_status(pid, task, "Seccomp:\t2")),
                  "thread %s", task);
    cr_expect_geq(n, 3);
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    free(tasks);
}

Test(sandbox, the_help_says_what_is_in_force)
{
    cr_assert_eq(shell("$Q help -v >said"), 0);
    expect_says("said", "sandbox: ");
    if (!sanitized)
        expect_says("said", "no new privileges");
    cr_assert_eq(shell("$Q help --verbose | cmp - said"), 0);
}

// Outputs in folders of all kinds, which a sandbox that is too tight would break.
Test(sandbox, every_verb_still_writes_its_outputs)
{
    static const char *const commands[] = {
        "logits --ids ids -o deep/er/out",
        "logits --ids ids -o /dev/null",
        "logits --ids ids -o /dev/stdout >said",
        "logits --ids ids -o /dev/fd/1 | cat >said",
        "logits --ids ids -o link",
        "logits --ids ids -o deep/../out",
        "logits --ids ids -o \"$PWD/out\"",
        "logits --ids ids -o new --tap blk.0.attn_q=deep/er/tap --tap blk.0.attn_k=tap",
        "perplexity -f x -c 16 --kl-base deep/kl",
        "quantize m.gguf deep/q.gguf Q4_0 --allow-requantize",
        "imatrix -f x -c 16 -o deep/im",
        "imatrix --in-file deep/im -o deep/im",
        "tokenize -f x -o deep/ids",
        "embed -f x -o deep/v.npy",
        "bench -p 8 -n 0 -r 1 --save name --plot deep/p.svg",
        "bench -p 8 -n 0 -r 1 --no-ceilings --synthetic llama-tiny:Q8_0",
        "batch in -o deep/out --format jsonl",
        "batch in -o 'deep/out-{shard}' --format jsonl --shard 0/2",
        "batch in -o 'deep/out-{shard}' --format jsonl --shard 1/2",
        "batch merge deep/er/all deep/out-0-of-2 deep/out-1-of-2",
        "batch - -o deep/out2 --format jsonl <in",
        "batch - -o - --format jsonl <in >said",
        "chat --session deep/s.json --cache -n 2 <x",
    };
    write_text("x", "a text that is long enough for two windows of sixteen tokens each, or so it seems to whoever "
                    "counts the words of it\n");
    write_rows("in", 5);
    cr_assert_eq(
        shell("mkdir -p deep/er state; echo old >deep/er/old; ln -s deep/er/old link; $Q tokenize -f x -o ids"), 0);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        cr_expect_eq(shell("export XDG_STATE_HOME=$PWD/state XDG_CACHE_HOME=$PWD/cache; ($Q %s) >output", commands[i]),
                     0, "%s", commands[i]);
        cr_expect_neq(shell("ls *.tmp deep/*.tmp deep/er/*.tmp"), 0, "%s", commands[i]);
    }
    cr_expect(!same_files("deep/er/old", "x") && access("state/quern/bench/name.json", F_OK) == 0);
}

// Where there are few descriptors, the error is that, and not a sandbox that lacks a folder.
Test(sandbox, few_descriptors_are_told_as_such)
{
    for (int n = 4; n < 12; n++)
        cr_expect_eq(shell("(ulimit -n %d; exec $Q tokenize a -o few) >said || grep -q 'Too many open files' err", n),
                     0, "%d: %s", n, read_text("err"));
}
