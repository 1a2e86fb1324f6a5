// Tests the progress display on stderr: only at a terminal, after a second, and erased at the end.
#include "cmd/terminal/display.h"
#include "cmd/terminal/progress.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// What a wait of so long writes to a stderr that is `line`.
static void wait_on(int line, int ms)
{
    int kept = dup(STDERR_FILENO);
    struct progress_wait w;
    fflush(stderr);
    cr_assert_geq(dup2(line, STDERR_FILENO), 0);
    progress_wait_begin(&w, "loading");
    usleep((useconds_t)ms * 1000);
    progress_wait_end(&w);
    fflush(stderr);
    cr_assert_geq(dup2(kept, STDERR_FILENO), 0);
    close(kept);
}

// All that has come, and comes within a tenth of a second.
static size_t take(int from, char *out, size_t size)
{
    struct pollfd p = {from, POLLIN, 0};
    size_t n = 0;
    while (n + 1 < size && poll(&p, 1, 100) > 0) {
        ssize_t got = read(from, out + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
    return n;
}

Test(progress, a_wait_over_a_second_counts_them_and_leaves_nothing)
{
    int terminal, line;
    char seen[256];
    if (openpty(&terminal, &line, NULL, NULL, NULL))
        cr_skip("this system lends no terminals");
    wait_on(line, 50);
    cr_expect_eq(take(terminal, seen, sizeof seen), 0, "a short wait shows nothing: %s", seen);
    wait_on(line, 1300);
    take(terminal, seen, sizeof seen);
    cr_expect(strstr(seen, "loading: 1 s"), "%s", seen);
    cr_expect(strlen(seen) > 4 && !strcmp(seen + strlen(seen) - 4, "\r\033[K"), "the line is not taken away");
    close(terminal);
    close(line);
}

static int64_t read_work(const void *arg, int64_t *total)
{
    const atomic_int *done = arg;
    *total = 400;
    return atomic_load(done);
}

// The bar of work that another thread does is there within a second, and gone when the work is over.
Test(progress, work_is_followed_while_the_main_thread_is_busy)
{
    int terminal, line, kept = dup(STDERR_FILENO);
    char seen[4096];
    struct progress_wait w;
    atomic_int done = 0;
    if (openpty(&terminal, &line, NULL, NULL, NULL))
        cr_skip("this system lends no terminals");
    fflush(stderr);
    cr_assert_geq(dup2(line, STDERR_FILENO), 0);
    progress_follow_begin(&w, "prompt", "tokens", read_work, &done);
    usleep(300 * 1000);
    atomic_store(&done, 100);
    usleep(700 * 1000);
    take(terminal, seen, sizeof seen);
    progress_wait_end(&w);
    fflush(stderr);
    cr_assert_geq(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    cr_expect(strstr(seen, "prompt ") && strstr(seen, " 25%  ") && strstr(seen, " tokens/s"), "%s", seen);
    take(terminal, seen, sizeof seen);
    cr_expect(strlen(seen) >= 4 && !strcmp(seen + strlen(seen) - 4, "\r\033[K"), "the line is not taken away: %s",
              seen);
    close(terminal);
    close(line);
}

Test(progress, where_no_terminal_is_nothing_is_written)
{
    int ends[2];
    char seen[64];
    cr_assert_eq(pipe(ends), 0);
    wait_on(ends[1], 1100);
    cr_expect_eq(take(ends[0], seen, sizeof seen), 0, "%s", seen);
    close(ends[0]);
    close(ends[1]);
}

// The bar is cut to the window, never within a number, and never goes back although the estimate of the whole grows.
static void check_bar(int columns, const char *shows, bool has_cells)
{
    int terminal, line, kept = dup(STDERR_FILENO);
    char seen[4096];
    const struct winsize narrow = {.ws_row = 24, .ws_col = (unsigned short)columns};
    if (openpty(&terminal, &line, NULL, NULL, &narrow))
        cr_skip("this system lends no terminals");
    fflush(stderr);
    cr_assert_geq(dup2(line, STDERR_FILENO), 0);
    struct progress p;
    progress_begin(&p, "batch", "t");
    p.start -= 5000; // five seconds ago
    for (int i = 0; i < 2; i++) {
        p.last -= 1000;
        progress_show(&p, 25000, i ? 250000 : 50000,
                      "a note that is longer than the window is wide, and so is left out");
    }
    progress_end(&p);
    fflush(stderr);
    cr_assert_geq(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    take(terminal, seen, sizeof seen);
    int n_bars = 0;
    for (const char *at = seen; (at = strstr(at, "batch")); n_bars++) {
        const char *end = strchr(at, '\r');
        cr_assert(end, "%s", at);
        const struct str bar = {at, (size_t)(end - at)};
        cr_expect_lt((int)display_text_width(bar), columns - 2, "%.*s", STR_ARG(bar));
        cr_expect(memmem(at, bar.len, " 50%", 4), "%.*s", STR_ARG(bar));
        cr_expect(bar.len >= strlen(shows) && !memcmp(end - strlen(shows), shows, strlen(shows)), "%.*s", STR_ARG(bar));
        cr_expect_eq(memmem(at, bar.len, "█", strlen("█")) != NULL, has_cells, "%.*s", STR_ARG(bar));
        at = end;
    }
    cr_expect_eq(n_bars, 2);
    close(terminal);
    close(line);
}

Test(progress, a_bar_fits_the_window_and_never_goes_back)
{
    // some 5,000 t/s: four digits, whatever the machine does meanwhile
    check_bar(60, " t/s  5 s left", true);
    check_bar(45, " t/s  5 s left", true);
    check_bar(34, " t/s  5 s left", false);
    check_bar(30, " t/s", false);
    check_bar(18, " 50%", false);
}

Test(progress, where_no_terminal_is_a_line_comes_each_minute)
{
    int ends[2], kept = dup(STDERR_FILENO);
    char seen[256];
    cr_assert_eq(pipe(ends), 0);
    fflush(stderr);
    cr_assert_geq(dup2(ends[1], STDERR_FILENO), 0);
    struct progress p;
    progress_begin(&p, "batch", "t");
    p.start -= 200000, p.last -= 30000;
    progress_show(&p, 50, 100, NULL);
    p.last -= 31000;
    progress_show(&p, 50, 100, "3 rows");
    progress_show(&p, 60, 100, NULL);
    progress_end(&p);
    fflush(stderr);
    cr_assert_geq(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    take(ends[0], seen, sizeof seen);
    cr_expect_str_eq(seen, "quern: batch: 50%  0.25 t/s  3 min 20 s left  3 rows\n", "%s", seen);
    close(ends[0]);
    close(ends[1]);
}
