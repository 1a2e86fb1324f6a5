// Draws a line that is being edited: takes what is to be displayed, and produces bytes for a terminal. It does no
// I/O.
//
// A line of text takes as many rows as it needs; if a text has more rows than the screen, the rows around the cursor
// are shown. Only rows that have changed are written again. The last column stays empty, so that differences in how
// terminals wrap do not matter, and nothing above the first row is touched. The terminal must support CR, LF, and CSI
// A B C K J H. Ownership: the struct owns its memory; whoever writes `out` empties it. Threads: one at a time.
#ifndef QUERN_LINE_VIEW_H
#define QUERN_LINE_VIEW_H

#include "cmd/terminal/line_editor.h"

struct line_view {
    int cols, rows; // size of the terminal
    const char *prompt;
    bool colours;    // messages are dimmed
    struct text out; // bytes to be written

    struct text frame; // the rows on the screen, one after another,
    size_t *ends;      // and where each one ends
    int n_rows, cap_rows;
    int n_made; // rows the screen has had, from the first on: below them a LF creates new ones
    int cursor_row, cursor_col;
    size_t top; // the first row of the text that is shown
};

// Starts at the beginning of an empty row. The prompt must stay valid.
void line_view_begin(struct line_view *v, int cols, int rows, const char *prompt);
void line_view_draw(struct line_view *v, struct line_look look);
// Draws the text for the last time; the cursor moves to the beginning of the row below.
void line_view_end(struct line_view *v, struct line_look look);
// Redraws everything after the terminal has changed its size.
void line_view_resize(struct line_view *v, int cols, int rows, struct line_look look);
// Redraws everything on a cleared screen.
void line_view_refresh(struct line_view *v, struct line_look look);
void line_view_free(struct line_view *v);

#endif
