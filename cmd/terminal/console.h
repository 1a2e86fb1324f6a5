// Where lines are typed: the line editor on a terminal, plain lines anywhere else.
//
// On a terminal that obeys cursor movements (TERM is set and not "dumb") a line is edited; the drawing goes to stdout,
// or to stderr when that is no terminal. Elsewhere lines are read as they come, a text between """ over several lines,
// and nothing but the answers is written. Ownership: a console owns its history. Threads: the main thread; one at a
// time, for it sets the modes of the terminal.
#ifndef QUERN_CONSOLE_H
#define QUERN_CONSOLE_H

#include "cmd/terminal/line_view.h"

enum console_event {
    CONSOLE_LINE,
    CONSOLE_CLEARED,   // Ctrl-C threw a line away
    CONSOLE_INTERRUPT, // Ctrl-C on an empty line
    CONSOLE_END,       // Ctrl-D, or the end of the input
};

struct console {
    bool typed;   // by somebody at a terminal, who is shown prompts
    bool edited;  // with the line editor
    bool colours; // on stderr and in the editor
    int out;      // where the editor draws
    struct line_editor editor;
    struct line_view view;
    struct history history;
    struct text input; // what has been read and not been used
    size_t used;
};

// `complete` may be NULL. A history that cannot be read or kept is noted, and is in memory alone.
void console_open(struct console *c, complete_fn *complete, void *arg);
void console_close(struct console *c);
// The next line, without its end and the quotes of a block. E_IO, E_MEMORY; E_INTERRUPTED when the process is told to
// end.
int console_read(struct console *c, const char *prompt, struct text *line, enum console_event *event,
                 struct error *err);
// Puts a line into the history, when lines are typed.
void console_remember(struct console *c, struct str line);

#endif
