// Tests what quern batch says when it is interrupted: at once, and without a rest of the bar.
#include "tests/batch_rig.h"
#include "tests/pty_harness.h"

#include <signal.h>
#include <time.h>

TestSuite(batch_interrupt, .init = rig_open, .fini = rig_close, .timeout = 120);

enum { AT_ONCE_MS = 300 };

// Each row takes long, so that a run is rarely about to end by itself.
static void write_slow_rows(const char *path)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 1; i <= 4; i++)
        fprintf(f, "{\"prompt\":\"word %d\",\"max_tokens\":500,\"n\":100,\"ignore_eos\":true}\n", i);
    cr_assert_eq(fclose(f), 0);
}

// The last row of a screen that is not blank.
static const char *last_row(const struct screen *s)
{
    int row = s->rows - 1;
    while (row > 0 && !*screen_row(s, row))
        row--;
    return screen_row(s, row);
}

Test(batch_interrupt, on_a_terminal_both_interrupts_say_at_once_what_they_do)
{
    static struct pty t;
    const char *const argv[] = {getenv("QUERN_BIN"), "batch", "in", "-o", "out", "--format", "jsonl", "-np", "2", NULL};
    write_slow_rows("in");
    if (!pty_open(&t, "xterm", SCREEN_COLS_MAX, 24, argv))
        cr_skip("this system lends no terminals");
    cr_assert(pty_wait_text(&t, " left "), "no bar");
    pty_type(&t, "\3");
    pty_watch(&t, AT_ONCE_MS);
    cr_assert(screen_shows(&t.screen, " answers; Ctrl-C again stops, and the same command goes on"), "%s",
              screen_text(&t.screen));
    int n_answers = 0;
    cr_assert_eq(sscanf(screen_row(&t.screen, 0), "quern: finishing %d answers;", &n_answers), 1);
    cr_assert(n_answers >= 1 && n_answers <= 200, "%d, where two rows of 100 are under way at most", n_answers);
    cr_assert(pty_wait_text(&t, "stopping"), "the bar does not go on: %s", screen_text(&t.screen));
    pty_type(&t, "\3");
    cr_assert_eq(pty_wait_end(&t), 130);
    cr_assert_str_eq(last_row(&t.screen), "quern: stopped; the same command goes on");
    cr_assert(!screen_shows(&t.screen, " left "), "a rest of the bar: %s", screen_text(&t.screen));
    pty_close(&t);
}

static pid_t start(const char *const *argv)
{
    pid_t pid = fork();
    if (pid == 0) {
        cr_assert(freopen("err", "w", stderr));
        execv(getenv("QUERN_BIN"), (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    return pid;
}

static void wait_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static bool says(const char *path, const char *text)
{
    char *all = read_text(path);
    bool found = strstr(all, text);
    free(all);
    return found;
}

// As a scheduler of jobs sends it. What goes to a file has no escape sequences.
Test(batch_interrupt, elsewhere_the_lines_are_plain)
{
    const char *const argv[] = {"quern", "batch", "in", "-o", "out", "--format", "jsonl", "-np", "2", NULL};
    int status = 0;
    write_slow_rows("in");
    pid_t pid = start(argv);
    while (access("out", F_OK))
        wait_a_moment();
    for (int i = 0; i < 20; i++) // it is computing by then
        wait_a_moment();
    kill(pid, SIGTERM);
    for (int i = 0; i < AT_ONCE_MS / 20 && !says("err", "\n"); i++)
        wait_a_moment();
    expect_says("err", "; a second signal stops, and the same command goes on\n");
    for (; waitpid(pid, &status, WNOHANG) == 0; wait_a_moment())
        kill(pid, SIGTERM);
    cr_assert_eq(rig_status(status), 130);
    expect_says("err", "quern: stopped; the same command goes on\n");
    cr_assert(!says("err", "\033") && !says("err", "\r"));
}

// What goes to a pipe cannot be gone on with, and is not promised.
Test(batch_interrupt, without_a_file_nothing_is_promised)
{
    const char *const argv[] = {"quern", "batch", "in", "-o", "/dev/null", "--format", "jsonl", NULL};
    int status = 0;
    write_slow_rows("in");
    pid_t pid = start(argv);
    for (int i = 0; i < 40; i++)
        wait_a_moment();
    for (; waitpid(pid, &status, WNOHANG) == 0; wait_a_moment())
        kill(pid, SIGINT);
    cr_assert_eq(rig_status(status), 130);
    expect_says("err", "; Ctrl-C again stops\nquern: stopped\n");
}
