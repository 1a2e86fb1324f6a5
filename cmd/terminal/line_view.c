// Each draw divides the whole text into rows, draws the visible rows into a new frame, and compares it row by row
// with the previous frame; rows that differ are cleared and written again. The cost is linear in the length of the
// text. If memory is short, nothing is drawn and the previous frame stays.
#include "cmd/terminal/line_view.h"
#include "cmd/terminal/display.h"

#include <stdlib.h>

enum { MESSAGE_ROWS_MAX = 8, TAB_CELLS = 4, NARROW = 12 };

// A row of the screen: a part of one line of the text.
struct row {
    size_t from, to;
    bool begins_line;
};

// The rows of a text, and where the cursor is.
struct layout {
    struct row *rows;
    size_t n, cap;
    size_t cursor_row;
    int cursor_cells; // from the left edge of the row's text
    bool failed;
};

// --- the rows of a text ---

static const char *prefix_of(const struct line_view *v, const struct row *row)
{
    if (row->from == 0 && row->begins_line)
        return v->prompt;
    if (v->cols < NARROW)
        return "";
    return row->begins_line ? "| " : "  ";
}

static int cells_of_prefix(const struct line_view *v, const struct row *row)
{
    return (int)display_text_width(str_from(prefix_of(v, row)));
}

static void add_row(struct layout *l, struct row row)
{
    if (l->n == l->cap) {
        size_t cap = 2 * l->cap + 64;
        struct row *more = realloc(l->rows, cap * sizeof *more);
        if (!more) {
            l->failed = true;
            return;
        }
        l->rows = more;
        l->cap = cap;
    }
    l->rows[l->n++] = row;
}

// A cluster that is wider than a row is drawn as one character.
static bool is_too_wide(const struct line_view *v, int cells)
{
    return cells > v->cols - 3;
}

static size_t next_cells(const struct line_view *v, struct str text, size_t at, int *cells)
{
    size_t next = display_next(text, at, cells);
    if (text.data[at] == '\t')
        *cells = TAB_CELLS;
    if (is_too_wide(v, *cells))
        *cells = 1;
    return next;
}

static void place_cursor(struct layout *l, int cells)
{
    l->cursor_row = l->n;
    l->cursor_cells = cells;
}

// Divides the text into rows that leave the last column empty.
static void lay_out(const struct line_view *v, struct line_look look, struct layout *l)
{
    struct row row = {.begins_line = true};
    int room = v->cols - 1 - cells_of_prefix(v, &row), used = 0;
    for (size_t at = 0; at < look.text.len;) {
        if (look.at == at)
            place_cursor(l, used);
        bool line_end = look.text.data[at] == '\n';
        int cells = 0;
        size_t next = line_end ? at + 1 : next_cells(v, look.text, at, &cells);
        if (line_end || (used && used + cells > room)) {
            row.to = at;
            add_row(l, row);
            row = (struct row){line_end ? next : at, 0, line_end};
            room = v->cols - 1 - cells_of_prefix(v, &row);
            used = 0;
            if (!line_end && look.at == at)
                place_cursor(l, 0);
        }
        used += cells;
        at = next;
    }
    if (look.at >= look.text.len)
        place_cursor(l, used);
    row.to = look.text.len;
    add_row(l, row);
}

// --- one frame ---

struct frame {
    struct text bytes;
    size_t *ends;
    int n, cap;
};

static void end_row(struct frame *f)
{
    if (f->n == f->cap) {
        int cap = 2 * f->cap + 32;
        size_t *more = realloc(f->ends, (size_t)cap * sizeof *more);
        if (!more) {
            f->bytes.failed = true;
            return;
        }
        f->ends = more;
        f->cap = cap;
    }
    f->ends[f->n++] = f->bytes.size;
}

// Draws a cluster. Control characters and bytes that are not UTF-8 are drawn as U+FFFD, a tab as blanks.
static void draw_cluster(const struct line_view *v, struct text *out, struct str cluster)
{
    uint32_t cp;
    int n = utf8_decode(cluster.data, cluster.len, &cp), cells;
    display_next(cluster, 0, &cells);
    bool tab = cluster.data[0] == '\t';
    if (is_too_wide(v, tab ? TAB_CELLS : cells) || (!tab && (!n || !utf8_printable(cp))))
        text_append(out, STR_LIT("\xef\xbf\xbd"));
    else if (tab)
        text_print(out, "%*s", TAB_CELLS, "");
    else
        text_append(out, cluster);
}

static void draw_text(const struct line_view *v, struct text *out, struct str text)
{
    for (size_t at = 0; at < text.len;) {
        size_t next = display_next(text, at, NULL);
        draw_cluster(v, out, (struct str){text.data + at, next - at});
        at = next;
    }
}

static void draw_text_rows(const struct line_view *v, const struct layout *l, struct str text, size_t n,
                           struct frame *f)
{
    for (size_t i = v->top; i < MIN(v->top + n, l->n); i++) {
        const struct row *row = &l->rows[i];
        text_append(&f->bytes, str_from(prefix_of(v, row)));
        draw_text(v, &f->bytes, (struct str){text.data + row->from, row->to - row->from});
        end_row(f);
    }
}

// Draws at most `most` rows of a message. Returns how many.
static int message_rows(const struct line_view *v, struct str message, int most, struct frame *f)
{
    int n = 0, room = v->cols - 1;
    for (size_t at = 0; at < message.len && n < most; n++) {
        if (f && v->colours)
            text_append(&f->bytes, STR_LIT("\033[2m"));
        int used = 0, cells;
        while (at < message.len && message.data[at] != '\n') {
            size_t next = next_cells(v, message, at, &cells);
            if (used && used + cells > room)
                break;
            if (f)
                draw_cluster(v, &f->bytes, (struct str){message.data + at, next - at});
            used += cells;
            at = next;
        }
        at += at < message.len && message.data[at] == '\n';
        if (f && v->colours)
            text_append(&f->bytes, STR_LIT("\033[0m"));
        if (f)
            end_row(f);
    }
    return n;
}

// Chooses the rows of the text that are shown: the same as before if the cursor is among them.
static void scroll(struct line_view *v, const struct layout *l, size_t n)
{
    v->top = MIN(v->top, l->n > n ? l->n - n : 0);
    if (l->cursor_row < v->top)
        v->top = l->cursor_row;
    if (l->cursor_row >= v->top + n)
        v->top = l->cursor_row - n + 1;
}

// Describes where the cursor is in a text that does not fit on the screen.
static void note_place(const struct layout *l, struct text *note)
{
    size_t line = 0, lines = 0;
    for (size_t i = 0; i < l->n; i++) {
        lines += l->rows[i].begins_line;
        line += i <= l->cursor_row && l->rows[i].begins_line;
    }
    text_print(note, "line %zu of %zu", line, lines);
}

static void make_frame(struct line_view *v, struct line_look look, const struct layout *l, struct frame *f)
{
    struct text place = {0};
    int most = MIN(MESSAGE_ROWS_MAX, v->rows / 2);
    if (l->n > (size_t)v->rows && !look.message.len) {
        note_place(l, &place);
        look.message = (struct str){place.data, place.size};
    }
    size_t n = (size_t)MAX(v->rows - message_rows(v, look.message, most, NULL), 1);
    scroll(v, l, n);
    draw_text_rows(v, l, look.text, n, f);
    message_rows(v, look.message, most, f);
    text_free(&place);
}

// --- from the previous frame to this one ---

static void go_to_row(struct line_view *v, int row)
{
    if (row < v->cursor_row)
        text_print(&v->out, "\033[%dA", v->cursor_row - row);
    int below = MIN(row, v->n_made - 1) - v->cursor_row;
    if (below > 0)
        text_print(&v->out, "\033[%dB", below);
    for (; v->n_made <= row; v->n_made++)
        text_append(&v->out, STR_LIT("\r\n"));
    v->cursor_row = row;
}

static struct str row_of(const struct text *bytes, const size_t *ends, int i)
{
    size_t from = i ? ends[i - 1] : 0;
    return (struct str){bytes->data + from, ends[i] - from};
}

static void write_changes(struct line_view *v, const struct frame *f)
{
    for (int i = 0; i < f->n; i++) {
        struct str row = row_of(&f->bytes, f->ends, i);
        if (i < v->n_rows && str_equal(row, row_of(&v->frame, v->ends, i)))
            continue;
        go_to_row(v, i);
        text_append(&v->out, STR_LIT("\r\033[K"));
        text_append(&v->out, row);
    }
    if (f->n < v->n_rows) {
        go_to_row(v, f->n);
        text_append(&v->out, STR_LIT("\r\033[J"));
    }
}

static void put_cursor(struct line_view *v, int row, int col)
{
    go_to_row(v, row);
    text_append(&v->out, STR_LIT("\r"));
    if (col > 0)
        text_print(&v->out, "\033[%dC", col);
    v->cursor_col = col;
}

static void adopt(struct line_view *v, struct frame *f)
{
    text_free(&v->frame);
    free(v->ends);
    v->frame = f->bytes;
    v->ends = f->ends;
    v->n_rows = f->n;
}

void line_view_draw(struct line_view *v, struct line_look look)
{
    struct layout l = {0};
    struct frame f = {0};
    lay_out(v, look, &l);
    if (!l.failed)
        make_frame(v, look, &l, &f);
    if (l.failed || f.bytes.failed) { // nothing is drawn if memory is short
        text_free(&f.bytes);
        free(f.ends);
    } else {
        write_changes(v, &f);
        put_cursor(v, (int)(l.cursor_row - v->top), cells_of_prefix(v, &l.rows[l.cursor_row]) + l.cursor_cells);
        adopt(v, &f);
    }
    free(l.rows);
}

// --- the view as a whole ---

static void set_size(struct line_view *v, int cols, int rows)
{
    v->cols = MAX(cols, 4);
    v->rows = MAX(rows, 2);
}

static void forget(struct line_view *v)
{
    v->frame.size = 0;
    v->n_rows = v->cursor_row = v->cursor_col = 0;
    v->n_made = 1;
}

void line_view_begin(struct line_view *v, int cols, int rows, const char *prompt)
{
    set_size(v, cols, rows);
    v->prompt = prompt;
    v->top = 0;
    forget(v);
}

void line_view_end(struct line_view *v, struct line_look look)
{
    look.at = look.text.len;
    look.message = (struct str){"", 0};
    line_view_draw(v, look);
    int last = v->n_rows ? v->n_rows - 1 : 0;
    go_to_row(v, last);
    text_append(&v->out, STR_LIT("\r\n"));
    forget(v);
}

void line_view_resize(struct line_view *v, int cols, int rows, struct line_look look)
{
    // terminals differ in whether they wrap rows again; moving up as if they did not cannot overwrite what is above
    int up = MIN(v->cursor_row, MAX(rows, 2) - 1);
    if (up > 0)
        text_print(&v->out, "\033[%dA", up);
    text_append(&v->out, STR_LIT("\r\033[J"));
    set_size(v, cols, rows);
    forget(v);
    line_view_draw(v, look);
}

void line_view_refresh(struct line_view *v, struct line_look look)
{
    text_append(&v->out, STR_LIT("\033[H\033[2J"));
    forget(v);
    line_view_draw(v, look);
}

void line_view_free(struct line_view *v)
{
    text_free(&v->out);
    text_free(&v->frame);
    free(v->ends);
}
