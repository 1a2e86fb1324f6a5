// A small terminal emulator: bytes go in, and the cells that a user would see are kept. The tests read them instead of
// escape sequences.
//
// It supports CR, LF, BS, wrapping as in xterm (the cursor waits after the last column), scrolling, wide and combining
// characters by the C library's wcwidth, CSI A B C D G H J K m, and the modes of paste and cursor. All other escape
// sequences are counted, because no test expects any. Rows are not wrapped again on a resize.
#ifndef QUERN_SCREEN_H
#define QUERN_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

enum { SCREEN_COLS_MAX = 200, SCREEN_ROWS_MAX = 100, CELL_BYTES = 48 };

struct cell {
    char text[CELL_BYTES]; // a base and what is combined with it; empty: blank, or the right half of a wide one
    bool dim;
};

struct screen {
    int cols, rows, row, col;
    bool pending;    // the cursor waits behind the last column
    bool dim, paste; // attributes and modes now
    struct cell cells[SCREEN_ROWS_MAX][SCREEN_COLS_MAX];
    char held[64];
    size_t n_held;
    int n_pastes;                       // how often the mode of paste was switched on
    int n_strange;                      // sequences that are not known, controls that nobody should send
    int n_scrolled;                     // rows that have left at the top
    char scrolled[SCREEN_COLS_MAX * 4]; // the last of them
};

void screen_start(struct screen *s, int cols, int rows);
void screen_write(struct screen *s, const char *bytes, size_t n);
void screen_resize(struct screen *s, int cols, int rows);
// A row without blanks at its end. The text lives until the next call but three.
const char *screen_row(const struct screen *s, int row);
// All rows down to the last one that is not blank, with line ends between.
const char *screen_text(const struct screen *s);
// Whether a text is on the screen within one row; dim: in dimmed cells.
bool screen_shows(const struct screen *s, const char *text);
bool screen_shows_dim(const struct screen *s, const char *text);

#endif
