// Text as it comes from a model, broken between words at the edge of the window.
//
// A word that turns out not to fit is taken back from the end of the line and written on the next one. Lines within
// code fences (``` or ~~~), and words wider than the window, are left for the terminal to break, so that they can be
// copied whole. Where stdout is no terminal, or one that does not obey escape sequences, text passes as it is.
//
// Ownership: nothing is owned. Threads: the main thread.
#ifndef QUERN_WRAP_H
#define QUERN_WRAP_H

#include "gguf/base.h"

struct wrap {
    bool on;
    int columns; // of the window, as it was at the last write
    int column;  // of the cursor; `columns` when the last cell of a line was just written
    bool held;   // a blank at the edge was not written; the next word begins a new line
    // The word at the end of the line: its cells, and its bytes. Below 0: it began elsewhere and can not be taken back.
    int word;
    char bytes[256];
    size_t n_bytes;
    // Whether the line, or all lines up to the next fence, are code; and what decides it: the marks at the line's beginning.
    bool in_fence, fence_line, at_start;
    char mark, fence_mark; // of this line, and of the line that opened the fence
    int n_marks;
};

// Begins at the first column. `wanted`: the user wants text to be broken.
void wrap_begin(struct wrap *w, bool wanted);
// Writes untrusted text, see terminal_write_untrusted; it must consist of whole characters.
int wrap_write(struct wrap *w, struct str text, struct error *err);

#endif
