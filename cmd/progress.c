#include "cmd/progress.h"
#include "cmd/terminal.h"
#include "engine/model.h"

#include <stdio.h>
#include <unistd.h>

enum { CELLS = 24, EIGHTHS = 8 };

void progress_begin(struct progress *p, const char *what, const char *unit)
{
    *p = (struct progress){.what = what, .unit = unit, .on = terminal_is_tty(STDERR_FILENO), .start = clock_ms()};
    p->last = p->start;
}

// Cells of a bar, the last of them in eighths.
static void draw_cells(double part, char *out, size_t size)
{
    static const char *const cell[EIGHTHS + 1] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int eighths = (int)(part * CELLS * EIGHTHS);
    size_t at = 0;
    for (int i = 0; i < CELLS; i++) {
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

void progress_show(struct progress *p, int64_t done, int64_t total, const char *note)
{
    double now = clock_ms(), elapsed = (now - p->start) / 1e3;
    if (!p->on || elapsed < 1 || now - p->last < 100 || total < 1 || done < 1)
        return;
    char cells[3 * CELLS + 1], left[48];
    draw_cells((double)done / (double)total, cells, sizeof cells);
    format_seconds(elapsed * (double)(total - done) / (double)done, left, sizeof left);
    fprintf(stderr, "\r\033[K%s %s %3.0f%%  %.4g %s/s  %s left%s%s", p->what, cells,
            100.0 * (double)done / (double)total, (double)done / elapsed, p->unit, left, note ? "  " : "",
            note ? note : "");
    fflush(stderr);
    p->shown = true;
    p->last = now;
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
