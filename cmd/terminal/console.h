// Reads lines from the user: with the line editor on a terminal, as plain lines anywhere else.
//
// The line editor is used on a terminal that can move the cursor (TERM is set and is not "dumb"). It draws on stdout,
// or on stderr if stdout is not a terminal. Elsewhere lines are read as they come, a text between """ may span
// several lines, and no prompt is written. Ownership: a console owns its history. Threads: the main thread; only one
// console at a time, because it sets the modes of the terminal.
#ifndef QUERN_CONSOLE_H
#define QUERN_CONSOLE_H

#include "cmd/terminal/line_view.h"

enum console_event {
    CONSOLE_LINE,
    CONSOLE_CLEARED,   // Ctrl-C discarded a line
    CONSOLE_INTERRUPT, // Ctrl-C on an empty line
    CONSOLE_END,       // Ctrl-D, or end of input
};

struct console {
    bool typed;   // somebody types at a terminal, and is shown prompts
    bool edited;  // the line editor is used
    bool colours; // on stderr and in the editor
    int out;      // the descriptor on which the editor draws
    struct line_editor editor;
    struct line_view view;
    struct history history;
    struct text input; // bytes that were read and not used yet
    size_t used;
    size_t typed_before; // so many of the next bytes were typed before the editor had set its mode
    bool paused;         // within a paste, nothing has come for a while
};

// Opens the console. `complete` may be NULL. If the history cannot be read or saved, this is noted, and the history
// is kept in memory only.
void console_open(struct console *c, complete_fn *complete, void *arg);
void console_close(struct console *c);
// Reads the next line, without its newline and without the quotes of a block. E_IO, E_MEMORY; E_INTERRUPTED if a
// signal asks the process to end.
int console_read(struct console *c, const char *prompt, struct text *line, enum console_event *event,
                 struct error *err);
// Adds a line to the history if lines are typed.
void console_remember(struct console *c, struct str line);

#endif
