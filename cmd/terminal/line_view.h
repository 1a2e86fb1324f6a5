// Draws a line that is being edited: what is to be seen in, the bytes for a terminal out. No I/O.
//
// A line of text takes as many rows as it needs; of a text with more rows than the screen has, those around the cursor
// are shown. Only rows that have changed are written again. The last column stays free, so that no terminal's way of
// wrapping matters; nothing above the first row is ever touched. Needs of the terminal: CR, LF, and CSI A B C K J H.
// Ownership: the struct owns its memory; `out` is emptied by who writes it. Threads: one at a time.
#ifndef QUERN_LINE_VIEW_H
#define QUERN_LINE_VIEW_H

#include "cmd/terminal/line_editor.h"

struct line_view {
    int cols, rows; // of the terminal
    const char *prompt;
    bool colours;    // messages are dimmed
    struct text out; // what is to be written

    struct text frame; // the rows that are on the screen, one after the other,
    size_t *ends;      // and where each ends
    int n_rows, cap_rows;
    int n_made; // rows from the first one that the screen has had: below them LF makes new ones
    int cursor_row, cursor_col;
    size_t top; // the text's first row that is shown
};

// At the beginning of an empty row. The prompt must stay.
void line_view_begin(struct line_view *v, int cols, int rows, const char *prompt);
void line_view_draw(struct line_view *v, struct line_look look);
// The last look at the text: the cursor goes to the beginning of the row below it.
void line_view_end(struct line_view *v, struct line_look look);
// The terminal has another size: draws all anew.
void line_view_resize(struct line_view *v, int cols, int rows, struct line_look look);
// The same on an empty screen.
void line_view_refresh(struct line_view *v, struct line_look look);
void line_view_free(struct line_view *v);

#endif
