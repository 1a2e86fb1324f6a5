// The text of a line that is being edited: a cursor, undo, and the moves that keys ask for.
//
// Positions are bytes and lie between clusters. A text may hold line ends. Each change goes through
// line_buffer_replace or line_buffer_go_on, which remember it for undo. When memory is short a change does not happen.
// Ownership: the struct owns its memory. Threads: one at a time.
#ifndef QUERN_LINE_BUFFER_H
#define QUERN_LINE_BUFFER_H

#include "gguf/base.h"

struct line_change {
    size_t at;
    char *removed, *added;
    size_t n_removed, n_added;
};

struct line_buffer {
    char *text; // NULL when nothing has ever been in it
    size_t len, cap, at;
    struct line_change *changes; // the first n_done are in the text, those up to n_changes have been undone
    size_t n_done, n_changes, cap_changes;
};

struct str line_buffer_text(const struct line_buffer *b);
// An empty text, or a given one with the cursor at its end, without a past. False: no memory, the text is empty.
bool line_buffer_reset(struct line_buffer *b, struct str text);
void line_buffer_free(struct line_buffer *b);

// Puts `with` in the place of what is between two positions; the cursor goes behind it.
bool line_buffer_replace(struct line_buffer *b, size_t from, size_t to, struct str with);
// Puts text in at the cursor as a part of the change before, when that one put in what is before the cursor.
bool line_buffer_go_on(struct line_buffer *b, struct str with);
bool line_buffer_undo(struct line_buffer *b);
bool line_buffer_redo(struct line_buffer *b);

// Positions from the cursor.
size_t line_buffer_left(const struct line_buffer *b);
size_t line_buffer_right(const struct line_buffer *b);
size_t line_buffer_line_start(const struct line_buffer *b);
size_t line_buffer_line_end(const struct line_buffer *b);
size_t line_buffer_word_left(const struct line_buffer *b); // letters and digits are words
size_t line_buffer_word_right(const struct line_buffer *b);
size_t line_buffer_blank_left(const struct line_buffer *b); // words are what blanks separate
// Moves the cursor a line up or down, in the same column where it can: false on the first (last) line.
bool line_buffer_up(struct line_buffer *b);
bool line_buffer_down(struct line_buffer *b);

#endif
