// Every character moves the cursor, and so the column is known without asking the terminal. A line is broken one cell
// before the edge: a terminal that has written its last cell leaves the cursor there until the next character comes,
// and from this state going back would count differently. A blank at the edge is held back until it is known what
// follows it, since before a newline it must not break the line a second time.
#include "cmd/terminal/wrap.h"
#include "cmd/terminal/display.h"
#include "cmd/terminal/terminal.h"
#include "kernels/text.h"

#include <stdlib.h>
#include <unistd.h>

enum { TAB = 8, FENCE_MARKS = 3 };

static void begin_word(struct wrap *w)
{
    w->word = 0;
    w->n_bytes = 0;
}

// hard: the line before ended with a newline of the text.
static void begin_line(struct wrap *w, bool hard)
{
    begin_word(w);
    w->column = 0;
    w->held = false;
    if (!hard)
        return;
    if (w->fence_line && (!w->in_fence || w->mark == w->fence_mark)) {
        w->in_fence = !w->in_fence;
        w->fence_mark = w->mark;
    }
    w->fence_line = false;
    w->at_start = true;
    w->n_marks = 0;
}

void wrap_begin(struct wrap *w, bool wanted)
{
    *w = (struct wrap){.on = wanted && terminal_is_tty(STDOUT_FILENO) && terminal_obeys_escapes()};
    begin_line(w, true);
}

// Counts the marks that a line begins with, behind blanks: three of a kind open or close a fence, unless more backticks
// follow, as in ```code```.
static void look_for_fence(struct wrap *w, char c)
{
    if (!w->at_start)
        w->fence_line &= c != '`' || w->mark != '`';
    if (!w->at_start || (c == ' ' && !w->n_marks))
        return;
    w->at_start = (c == '`' || c == '~') && (!w->n_marks || c == w->mark);
    if (!w->at_start)
        return;
    w->mark = c;
    w->fence_line = ++w->n_marks >= FENCE_MARKS;
}

// The cursor after so many cells more on a line that the terminal breaks.
static int advanced(const struct wrap *w, int cells)
{
    return w->column + cells > w->columns ? cells : w->column + cells;
}

static void put_blank(struct wrap *w, struct str blank, struct text *out)
{
    const int cells = blank.data[0] == '\t' ? TAB - w->column % TAB : 1;
    begin_word(w);
    w->held |= w->column + cells >= w->columns;
    if (w->held)
        return;
    text_append(out, blank);
    w->column += cells;
}

// Moves the word at the end of the line to the next line, if it is shorter than a line.
static void move_word(struct wrap *w, struct text *out)
{
    if (w->word < 0 || w->word >= w->column || w->column > w->columns)
        return;
    if (w->word > 0)
        text_print(out, "\033[%dD\033[K", w->word);
    text_print(out, "\n");
    text_append(out, (struct str){w->bytes, w->n_bytes});
    w->column = w->word;
}

// Adds a cluster to the word. One of two cells, as Chinese is written in, is a word of its own.
static void put_cluster(struct wrap *w, struct str cluster, int cells, struct text *out)
{
    if (w->held) {
        text_print(out, "\n");
        begin_line(w, false);
    }
    if (cells > 1)
        begin_word(w);
    if (w->column + cells >= w->columns)
        move_word(w, out);
    text_append(out, cluster);
    const bool fits = w->word >= 0 && w->n_bytes + cluster.len <= sizeof w->bytes && w->word + cells < w->columns;
    if (fits)
        memcpy(w->bytes + w->n_bytes, cluster.data, cluster.len);
    w->n_bytes += fits ? cluster.len : 0;
    w->word = fits ? w->word + cells : -1;
    w->column = advanced(w, cells);
    if (cells > 1)
        begin_word(w);
}

static void put(struct wrap *w, struct str cluster, int cells, struct text *out)
{
    const char c = cluster.data[0];
    look_for_fence(w, c);
    if (c == '\n') {
        text_append(out, cluster);
        begin_line(w, true);
    } else if (w->in_fence || w->fence_line) {
        text_append(out, cluster);
        w->column = advanced(w, c == '\t' ? TAB - w->column % TAB : cells);
        w->word = -1;
    } else if (c == ' ' || c == '\t') {
        put_blank(w, cluster, out);
    } else {
        put_cluster(w, cluster, cells, out);
    }
}

int wrap_write(struct wrap *w, struct str text, struct error *err)
{
    if (!w->on)
        return terminal_write_untrusted(text, err);
    int rows;
    struct text out = {0};
    char *clean = malloc(3 * text.len + 1);
    if (!clean)
        return fail(err, E_MEMORY, "no memory for a text of %zu bytes", text.len);
    terminal_size(STDOUT_FILENO, &w->columns, &rows);
    const struct str shown = {clean, terminal_filter(text, clean)};
    for (size_t at = 0, next; at < shown.len; at = next) {
        int cells;
        next = display_next(shown, at, &cells);
        put(w, (struct str){shown.data + at, next - at}, cells, &out);
    }
    int status = out.failed ? fail(err, E_MEMORY, "no memory for a text of %zu bytes", text.len)
                            : terminal_write((struct str){out.data, out.size}, err);
    text_free(&out);
    free(clean);
    return status;
}
