// The bar is drawn at most every 100 ms, and the time left is extrapolated from the mean speed since the start. What is
// done may be an estimate that falls; what is shown does not. Where the main thread is busy, a thread of its own draws
// until it is told to end.
#include "cmd/terminal/progress.h"
#include "cmd/terminal/display.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"
#include "kernels/thread_start.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 24, EIGHTHS = 8 };

void progress_begin(struct progress *p, const char *what, const char *unit)
{
    *p = (struct progress){.what = what, .unit = unit, .on = terminal_is_tty(STDERR_FILENO), .start = clock_ms()};
    p->last = p->start;
}

// Draws a bar of so many cells; its last cell has a resolution of an eighth.
static void draw_cells(double part, int cells, char *out, size_t size)
{
    static const char *const cell[EIGHTHS + 1] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int eighths = (int)(part * cells * EIGHTHS);
    size_t at = 0;
    *out = '\0';
    for (int i = 0; i < cells; i++) {
        int full = MAX(0, MIN(EIGHTHS, eighths - i * EIGHTHS));
        at += (size_t)snprintf(out + at, size - at, "%s", cell[full]);
    }
}

static void format_seconds(double seconds, char *out, size_t size)
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%lld h %02lld min", (long long)(s / 3600), (long long)(s / 60 % 60));
    else if (s >= 60)
        snprintf(out, size, "%lld min %02lld s", (long long)(s / 60), (long long)(s % 60));
    else
        snprintf(out, size, "%lld s", (long long)s);
}

// The beginning of the line that fits so many columns: fields are two blanks apart, and one that does not fit whole is left
// out, for a number that is cut is another number.
static int bytes_that_fit(const char *line, int columns)
{
    const struct str text = {line, strlen(line)};
    size_t at = 0, field = 0;
    for (int used = 0, width; at < text.len; used += width) {
        const size_t next = display_next(text, at, &width);
        if (at && !strncmp(line + at, "  ", 2) && line[at - 1] != ' ')
            field = at;
        if (used + width > columns)
            return (int)field;
        at = next;
    }
    return (int)at;
}

// In a narrow window the bar is shorter, or left out, and then the last fields. A full line would wrap, and a terminal that
// echoes Ctrl-C puts two characters behind it.
static void draw(struct progress *p, const char *speed, const char *note)
{
    char cells[3 * CELLS + 1], line[400];
    int columns, rows;
    terminal_size(STDERR_FILENO, &columns, &rows);
    columns -= 3;
    const int room = columns - (int)display_text_width(str_from(p->what)) - 2 - (int)strlen(speed);
    draw_cells(p->part, MAX(0, MIN((int)CELLS, room)), cells, sizeof cells);
    snprintf(line, sizeof line, "%s %s%s%s%s%s", p->what, cells, *cells ? " " : "", speed, note ? "  " : "",
             note ? note : "");
    fprintf(stderr, "\r\033[K%.*s", bytes_that_fit(line, columns), line);
    fflush(stderr);
    p->shown = true;
    terminal_set_bar(true);
}

void progress_show(struct progress *p, int64_t done, int64_t total, const char *note)
{
    enum { FIRST_MS = 800, DRAW_MS = 100, LINE_MS = 60 * 1000 };
    const double now = clock_ms(), elapsed = (now - p->start) / 1e3;
    if (now - p->start < FIRST_MS || now - p->last < (p->on ? DRAW_MS : LINE_MS) || total < 1 || done < 1)
        return;
    char speed[120], left[48];
    p->part = MIN(MAX(p->part, (double)done / (double)total), 1.0);
    format_seconds(elapsed * (1 - p->part) / p->part, left, sizeof left);
    snprintf(speed, sizeof speed, "%3.0f%%  %.4g %s/s  %s left", 100 * p->part, (double)done / elapsed, p->unit, left);
    if (p->on)
        draw(p, speed, note);
    else
        terminal_note("quern: %s:%s%s%s", p->what, speed, note ? "  " : "", note ? note : "");
    p->last = now;
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
    terminal_set_bar(false);
}

// --- a wait that a thread of its own shows ---

static void show_seconds(struct progress *p)
{
    if (clock_ms() - p->last < 1000)
        return;
    p->last += 1000;
    fprintf(stderr, "\r\033[K%s: %.0f s", p->what, (p->last - p->start) / 1e3);
    fflush(stderr);
    p->shown = true;
    terminal_set_bar(true);
}

static void show_work(struct progress_wait *w)
{
    int64_t total = 0, done = w->read(w->arg, &total);
    progress_show(&w->bar, done, total, NULL);
}

static void *keep_drawing(void *arg)
{
    enum { TICK_NS = 100 * 1000 * 1000 };
    struct progress_wait *w = arg;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!w->over && pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0)
            continue;
        if (!w->over && w->read)
            show_work(w);
        else if (!w->over)
            show_seconds(&w->bar);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

// If no thread can be started, nothing is shown.
static void start_drawing(struct progress_wait *w)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, &clock);
    pthread_condattr_destroy(&clock);
    w->on = thread_start(&w->thread, keep_drawing, w) == 0;
}

void progress_wait_begin(struct progress_wait *w, const char *what)
{
    *w = (struct progress_wait){0};
    progress_begin(&w->bar, what, "");
    if (w->bar.on)
        start_drawing(w);
}

void progress_follow_begin(struct progress_wait *w, const char *what, const char *unit, progress_read_fn *read,
                           const void *arg)
{
    *w = (struct progress_wait){.read = read, .arg = arg};
    progress_begin(&w->bar, what, unit);
    start_drawing(w);
}

void progress_wait_end(struct progress_wait *w)
{
    if (!w->on)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    progress_end(&w->bar);
    w->on = false;
}
