// See screen.h.
#include "tests/screen.h"
#include "gguf/base.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

static void blank(struct screen *s, int row, int from, int to)
{
    for (int col = from; col < to; col++)
        s->cells[row][col] = (struct cell){0};
}

void screen_start(struct screen *s, int cols, int rows)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    *s = (struct screen){.cols = cols, .rows = rows};
}

void screen_resize(struct screen *s, int cols, int rows)
{
    for (int row = 0; row < s->rows; row++)
        blank(s, row, MIN(cols, s->cols), SCREEN_COLS_MAX);
    // a lower screen keeps the cursor's row: what is above goes away
    int gone = MAX(s->row - (rows - 1), 0);
    memmove(s->cells[0], s->cells[gone], sizeof s->cells[0] * (size_t)(SCREEN_ROWS_MAX - gone));
    for (int row = s->rows - gone; row < SCREEN_ROWS_MAX; row++)
        blank(s, MAX(row, 0), 0, SCREEN_COLS_MAX);
    s->row -= gone;
    s->col = MIN(s->col, cols - 1);
    s->cols = cols;
    s->rows = rows;
    s->pending = false;
}

static void line_feed(struct screen *s)
{
    if (s->row < s->rows - 1) {
        s->row++;
        return;
    }
    snprintf(s->scrolled, sizeof s->scrolled, "%s", screen_row(s, 0));
    s->n_scrolled++;
    memmove(s->cells[0], s->cells[1], sizeof s->cells[0] * (size_t)(s->rows - 1));
    blank(s, s->rows - 1, 0, SCREEN_COLS_MAX);
}

static void combine(struct screen *s, const char *bytes, int n)
{
    int col = s->pending ? s->col : s->col - 1;
    while (col > 0 && !s->cells[s->row][col].text[0])
        col--;
    if (col < 0)
        return;
    char *cell = s->cells[s->row][col].text;
    size_t len = strlen(cell);
    if (len && len + (size_t)n < CELL_BYTES)
        memcpy(cell + len, bytes, (size_t)n);
}

static void put(struct screen *s, const char *bytes, int n, uint32_t cp)
{
    int width = wcwidth((wchar_t)cp);
    if (width <= 0) {
        combine(s, bytes, n);
        return;
    }
    if (s->pending || s->col + width > s->cols) {
        s->col = 0;
        line_feed(s);
    }
    s->pending = false;
    struct cell *cell = &s->cells[s->row][s->col];
    blank(s, s->row, s->col, s->col + width);
    memcpy(cell->text, bytes, (size_t)n);
    cell->dim = s->dim;
    s->col += width;
    if (s->col >= s->cols) {
        s->col = s->cols - 1;
        s->pending = true;
    }
}

static void erase_below(struct screen *s, int how)
{
    if (how == 0)
        blank(s, s->row, s->col, SCREEN_COLS_MAX);
    for (int row = how == 2 ? 0 : s->row + 1; row < s->rows; row++)
        blank(s, row, 0, SCREEN_COLS_MAX);
}

static void obey(struct screen *s)
{
    int a = -1, b = -1;
    char final = s->held[s->n_held - 1];
    sscanf(s->held + 2, "%d;%d", &a, &b);
    int n = MAX(a, 1);
    bool was_pending = s->pending;
    s->pending = false;
    if (final == 'A')
        s->row = MAX(s->row - n, 0);
    else if (final == 'B')
        s->row = MIN(s->row + n, s->rows - 1);
    else if (final == 'C')
        s->col = MIN(s->col + n, s->cols - 1);
    else if (final == 'D')
        s->col = MAX(s->col - n, 0);
    else if (final == 'G')
        s->col = MIN(n, s->cols) - 1;
    else if (final == 'H')
        s->row = MIN(n, s->rows) - 1, s->col = MIN(MAX(b, 1), s->cols) - 1;
    else if (final == 'J' && a != 1)
        erase_below(s, MAX(a, 0));
    else if (final == 'K' && a <= 0)
        blank(s, s->row, s->col, SCREEN_COLS_MAX);
    else if (final == 'm') {
        s->dim = a == 2 || (s->dim && a != 0 && a != -1 && a != 22);
        s->pending = was_pending;
    } else if (!strcmp(s->held, "\033[?2004h") || !strcmp(s->held, "\033[?2004l"))
        s->paste = final == 'h', s->n_pastes += s->paste;
    else
        s->n_strange++;
}

static void control(struct screen *s, char c)
{
    if (c == '\r')
        s->col = 0;
    else if (c == '\n')
        line_feed(s);
    else if (c == '\b')
        s->col = MAX(s->col - 1, 0);
    else if (c == '\t')
        s->col = MIN((s->col / 8 + 1) * 8, s->cols - 1);
    else if (c != '\a')
        s->n_strange++;
    s->pending = false;
}

static void push(struct screen *s, char c)
{
    s->held[s->n_held++] = c;
    s->held[s->n_held] = '\0';
    bool csi = s->n_held >= 2 && s->held[0] == '\033' && s->held[1] == '[';
    uint32_t cp;
    if (s->n_held == sizeof s->held - 1) {
        s->n_strange++;
    } else if (s->held[0] == '\033') {
        if (s->n_held < 2 || (csi && (s->n_held == 2 || c < 0x40)))
            return;
        if (csi)
            obey(s);
        else
            s->n_strange++;
    } else if ((unsigned char)s->held[0] < 0x20 || s->held[0] == 0x7f) {
        control(s, c);
    } else {
        int n = utf8_decode(s->held, s->n_held, &cp);
        if (!n && s->n_held < 4)
            return;
        if (n && cp >= 0x80 && cp < 0xa0)
            s->n_strange++;
        else if (n)
            put(s, s->held, n, cp);
        else
            s->n_strange++;
    }
    s->n_held = 0;
}

void screen_write(struct screen *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        push(s, bytes[i]);
}

static size_t print_row(const struct screen *s, int row, char *out, size_t size, bool dim)
{
    size_t n = 0, end = 0;
    bool wide = false;
    out[0] = '\0';
    for (int col = 0; col < s->cols; col++) {
        const struct cell *cell = &s->cells[row][col];
        bool shown = cell->text[0] && (!dim || cell->dim);
        if (wide && !cell->text[0]) {
            wide = false;
            continue;
        }
        size_t len = shown ? strlen(cell->text) : 1;
        if (n + len + 1 > size)
            break;
        memcpy(out + n, shown ? cell->text : " ", len);
        n += len;
        if (shown && strcmp(cell->text, " "))
            end = n;
        uint32_t cp;
        wide = cell->text[0] && utf8_decode(cell->text, strlen(cell->text), &cp) && wcwidth((wchar_t)cp) == 2;
    }
    out[end] = '\0';
    return end;
}

const char *screen_row(const struct screen *s, int row)
{
    static char rows[4][SCREEN_COLS_MAX * CELL_BYTES];
    static int next;
    char *out = rows[next++ % 4];
    print_row(s, row, out, sizeof rows[0], false);
    return out;
}

const char *screen_text(const struct screen *s)
{
    static char text[SCREEN_ROWS_MAX * SCREEN_COLS_MAX * 4];
    size_t n = 0, end = 0;
    for (int row = 0; row < s->rows; row++) {
        const char *line = screen_row(s, row);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", line);
        if (*line)
            end = n - 1;
    }
    text[end] = '\0';
    return text;
}

static bool shows(const struct screen *s, const char *text, bool dim)
{
    static char line[SCREEN_COLS_MAX * CELL_BYTES];
    for (int row = 0; row < s->rows; row++) {
        print_row(s, row, line, sizeof line, dim);
        if (strstr(line, text))
            return true;
    }
    return false;
}

bool screen_shows(const struct screen *s, const char *text)
{
    return shows(s, text, false);
}

bool screen_shows_dim(const struct screen *s, const char *text)
{
    return shows(s, text, true);
}
