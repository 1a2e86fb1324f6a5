// A line editor as a state machine: bytes of a terminal in, a text with a cursor out. No I/O, no time.
//
// Emacs keys; texts of many lines; bracketed paste; undo; history with search; completion. Who drives it feeds bytes
// until an event comes, draws what line_editor_look says (line_view does), and asks for the text when it is LINE_DONE.
// Ownership: the editor owns its text; history and completion are the caller's. Threads: one at a time.
#ifndef QUERN_LINE_EDITOR_H
#define QUERN_LINE_EDITOR_H

#include "cmd/terminal/history.h"
#include "cmd/terminal/keys.h"
#include "cmd/terminal/line_buffer.h"
#include "kernels/text.h"

enum line_event {
    LINE_MORE,      // the bytes are used up
    LINE_DONE,      // Enter: the text is whole
    LINE_CLEARED,   // Ctrl-C: a text was thrown away
    LINE_INTERRUPT, // Ctrl-C on an empty line
    LINE_END,       // Ctrl-D on an empty line
    LINE_SUSPEND,   // Ctrl-Z
    LINE_REFRESH,   // Ctrl-L: clear the screen
};

// Words that may stand where the cursor is.
struct completions {
    size_t from; // where the word begins that they replace; set to the cursor before the call
    struct arena arena;
    struct str *words;
    size_t n, cap;
};
// Adds a copy; one that cannot be had is left out.
void completions_add(struct completions *c, struct str word);
// `before`: the text before the cursor. A word that ends with '/' is one that goes on.
typedef void complete_fn(void *arg, struct str before, struct completions *out);

enum { KILLS_MAX = 8 };

struct line_editor {
    struct line_buffer buffer;
    struct keys keys;
    struct history *history;
    complete_fn *complete; // may be NULL
    void *complete_arg;
    enum line_event event;

    size_t history_at; // the entry that is shown; history->n: the text that is being written,
    struct text draft; // which is kept here meanwhile

    bool searching, search_failed;
    struct text query;
    size_t search_at;          // the entry that was found last,
    struct text searched_from; // and what stood there before

    struct text kills[KILLS_MAX]; // the last one at n_kills - 1, round and round
    size_t n_kills, yank_back;    // yank_back: how far back Alt-y has gone
    size_t yank_from;             // what was yanked last begins here
    enum { LAST_OTHER, LAST_TYPED, LAST_KILL, LAST_YANK, LAST_TAB } last;
    bool paste_cr; // the paste's last byte was a CR, which was taken for a line end
    bool in_paste; // a piece of the paste has come

    struct text message; // lines below the text, until the next key
};

void line_editor_start(struct line_editor *e, struct history *history, complete_fn *complete, void *arg);
void line_editor_free(struct line_editor *e);
// An empty line; what has been killed before can still be yanked.
void line_editor_begin(struct line_editor *e);
// Feeds bytes up to an event; returns how many were taken.
size_t line_editor_push(struct line_editor *e, struct str bytes, enum line_event *event);
// Nothing has followed an ESC.
void line_editor_flush(struct line_editor *e, enum line_event *event);

// What is to be seen, until the next key.
struct line_look {
    struct str text;
    size_t at;
    struct str message; // for below the text: words to choose from, what is searched for
};
struct line_look line_editor_look(struct line_editor *e);
struct str line_editor_text(const struct line_editor *e);

#endif
