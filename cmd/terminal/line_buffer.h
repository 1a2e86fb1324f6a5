// The text of a line that is being edited, with a cursor, undo, and the movements of the cursor.
//
// Positions are byte offsets and lie between clusters (display.h). A text may contain newlines. Each change goes
// through line_buffer_replace or line_buffer_go_on, which record it for undo. If memory is short a change does not
// happen. Ownership: the struct owns its memory. Threads: one at a time.
#ifndef QUERN_LINE_BUFFER_H
#define QUERN_LINE_BUFFER_H

#include "gguf/base.h"

struct line_change {
    size_t at;
    char *removed, *added;
    size_t n_removed, n_added;
};

struct line_buffer {
    char *text; // NULL until the first text
    size_t len, cap, at;
    struct line_change *changes; // changes 0 .. n_done-1 are in the text; n_done .. n_changes-1 have been undone
    size_t n_done, n_changes, cap_changes;
};

struct str line_buffer_text(const struct line_buffer *b);
// Starts with an empty or a given text, the cursor at its end, and no undo history. False: no memory, and the text is
// empty.
bool line_buffer_reset(struct line_buffer *b, struct str text);
void line_buffer_free(struct line_buffer *b);

// Replaces what is between two positions; the cursor moves behind the new text.
bool line_buffer_replace(struct line_buffer *b, size_t from, size_t to, struct str with);
// Inserts text at the cursor as part of the previous change, if that one inserted the text before the cursor.
bool line_buffer_go_on(struct line_buffer *b, struct str with);
bool line_buffer_undo(struct line_buffer *b);
bool line_buffer_redo(struct line_buffer *b);

// Positions reached from the cursor by one movement.
size_t line_buffer_left(const struct line_buffer *b);
size_t line_buffer_right(const struct line_buffer *b);
size_t line_buffer_line_start(const struct line_buffer *b);
size_t line_buffer_line_end(const struct line_buffer *b);
size_t line_buffer_word_left(const struct line_buffer *b); // words are letters and digits
size_t line_buffer_word_right(const struct line_buffer *b);
size_t line_buffer_blank_left(const struct line_buffer *b); // words are what blanks separate
// Moves the cursor up or down by a line, into the same column if possible. False on the first or last line.
bool line_buffer_up(struct line_buffer *b);
bool line_buffer_down(struct line_buffer *b);

#endif
