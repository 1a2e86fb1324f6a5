// Tests limits of what a token may request from the system. Allocations are counted in test_engine_faults.c, barriers
// in test_plan.c.
#include "engine/model.h"
#include "engine/session.h"
#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_VOCAB = 300, N_TOKENS = 40, CANNOT_FORBID = 77 };

static void step(struct session *s, int32_t token)
{
    struct error err;
    struct session_row row = {token, 0, true};
    cr_assert_eq(session_step(s, &row, 1, &err), 0, "%s", err.text);
}

// From here on the kernel kills a thread that asks for anything but read, write or its own end.
static void generate_without_the_system(struct session *s)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        _exit(CANNOT_FORBID);
    for (int i = 0; i < N_TOKENS; i++)
        step(s, (i * 37 + 5) % N_VOCAB);
    syscall(SYS_exit, 0); // of this thread alone, which is the only one
}

static void in_a_child(const char *path)
{
    struct error err;
    struct model *m;
    struct session *s;
    struct model_options o = {.path = path, .device = DEVICE_CPU, .machine.n_threads = 1};
    struct session_options so = {.n_ctx = 256, .n_batch = 8, .n_outputs = 1};
    if (model_open(&m, &o, &err) || session_open(&s, m, &so, &err))
        _exit(1);
    step(s, 1);
    generate_without_the_system(s);
}

static int status_of_a_child(const char *path)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        in_a_child(path);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

Test(budgets, a_token_on_one_thread_makes_no_system_call, .timeout = 60)
{
    char path[] = "/tmp/quern-budgets-XXXXXX";
    struct synth_options o = {.preset = "llama-tiny", .mix = "Q4_K", .n_vocab = N_VOCAB, .seed = 3};
    struct error err;
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
    int status = status_of_a_child(path);
    unlink(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_FORBID)
        cr_skip("the system cannot forbid system calls");
    cr_expect(!WIFSIGNALED(status), "killed by signal %d: %d tokens made a system call", WTERMSIG(status), N_TOKENS);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}
