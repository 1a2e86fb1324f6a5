// See pty_harness.h.
#include "tests/pty_harness.h"
#include "gguf/base.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utmp.h>

bool pty_open(struct pty *t, const char *term, int cols, int rows, const char *const *argv)
{
    return pty_open_typed(t, term, cols, rows, argv, "");
}

bool pty_open_typed(struct pty *t, const char *term, int cols, int rows, const char *const *argv, const char *keys)
{
    struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};
    memset(t, 0, sizeof *t);
    screen_start(&t->screen, cols, rows);
    if (openpty(&t->terminal, &t->line, NULL, NULL, &size))
        return false;
    tcgetattr(t->line, &t->found);
    pty_type(t, keys);
    t->pid = fork();
    if (t->pid == 0) {
        close(t->terminal);
        setenv("TERM", term, 1);
        login_tty(t->line);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    return t->pid > 0;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void take(struct pty *t, const char *bytes, size_t n)
{
    size_t kept = MIN(n, sizeof t->log - t->n_log);
    memcpy(t->log + t->n_log, bytes, kept);
    t->n_log += kept;
    t->n_bytes += n;
    screen_write(&t->screen, bytes, n);
}

// Waits for what comes, `ms` at most: false when there was nothing.
static bool step(struct pty *t, int ms)
{
    char bytes[1 << 14];
    struct pollfd fd = {t->terminal, POLLIN, 0};
    if (poll(&fd, 1, ms) <= 0 || !(fd.revents & POLLIN))
        return false;
    ssize_t n = read(t->terminal, bytes, sizeof bytes);
    if (n > 0)
        take(t, bytes, (size_t)n);
    return n > 0;
}

void pty_watch(struct pty *t, int ms)
{
    for (double end = now_ms() + ms; now_ms() < end;)
        step(t, MAX((int)(end - now_ms()), 1));
}

void pty_type_bytes(struct pty *t, const char *keys, size_t n)
{
    while (n) {
        struct pollfd fd = {t->terminal, POLLIN | POLLOUT, 0};
        if (poll(&fd, 1, PTY_WAIT_MS) <= 0)
            return;
        if (fd.revents & POLLIN)
            step(t, 0);
        if (!(fd.revents & POLLOUT))
            continue;
        ssize_t done = write(t->terminal, keys, MIN(n, (size_t)512));
        if (done <= 0)
            return;
        keys += done;
        n -= (size_t)done;
    }
}

void pty_type(struct pty *t, const char *keys)
{
    pty_type_bytes(t, keys, strlen(keys));
}

void pty_resize(struct pty *t, int cols, int rows)
{
    while (step(t, 0))
        ;
    screen_resize(&t->screen, cols, rows);
    struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};
    ioctl(t->terminal, TIOCSWINSZ, &size);
}

bool pty_wait_text(struct pty *t, const char *text)
{
    for (double end = now_ms() + PTY_WAIT_MS; !screen_shows(&t->screen, text);) {
        if (now_ms() > end)
            return false;
        step(t, 50);
    }
    return true;
}

static bool is_at_prompt(const struct screen *s)
{
    return s->paste && s->col == 2 && !strcmp(screen_row(s, s->row), ">");
}

bool pty_wait_prompt(struct pty *t)
{
    for (double end = now_ms() + PTY_WAIT_MS; t->screen.n_pastes <= t->n_prompts || !is_at_prompt(&t->screen);) {
        if (now_ms() > end)
            return false;
        step(t, 50);
    }
    t->n_prompts = t->screen.n_pastes;
    return true;
}

int pty_wait_end(struct pty *t)
{
    int status = 0;
    for (double end = now_ms() + PTY_WAIT_MS; t->pid && waitpid(t->pid, &status, WNOHANG) == 0;) {
        if (now_ms() > end)
            kill(t->pid, SIGKILL);
        step(t, 20);
    }
    t->pid = 0;
    while (step(t, 0))
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool pty_is_restored(const struct pty *t)
{
    struct termios now;
    if (tcgetattr(t->line, &now))
        return false;
    return now.c_lflag == t->found.c_lflag && now.c_iflag == t->found.c_iflag && now.c_oflag == t->found.c_oflag &&
           !memcmp(now.c_cc, t->found.c_cc, sizeof now.c_cc) && !t->screen.paste;
}

void pty_close(struct pty *t)
{
    if (t->pid) {
        kill(t->pid, SIGKILL);
        waitpid(t->pid, NULL, 0);
    }
    close(t->terminal);
    close(t->line);
    t->pid = 0;
}
