// A line editor as a state machine: bytes of a terminal in, a text with a cursor out. It does no I/O and knows no
// time.
//
// It has Emacs keys, texts of several lines, bracketed paste, undo, history with search, and completion. The caller
// feeds bytes until an event comes, draws what line_editor_look returns (line_view.h does), and takes the text at
// LINE_DONE. Ownership: the editor owns its text; history and completion belong to the caller. Threads: one at a
// time.
#ifndef QUERN_LINE_EDITOR_H
#define QUERN_LINE_EDITOR_H

#include "cmd/terminal/history.h"
#include "cmd/terminal/keys.h"
#include "cmd/terminal/line_buffer.h"
#include "kernels/text.h"

enum line_event {
    LINE_MORE,      // all bytes were consumed
    LINE_DONE,      // Enter: the text is complete
    LINE_CLEARED,   // Ctrl-C: a text was discarded
    LINE_INTERRUPT, // Ctrl-C on an empty line
    LINE_END,       // Ctrl-D on an empty line
    LINE_SUSPEND,   // Ctrl-Z
    LINE_REFRESH,   // Ctrl-L: clear the screen
};

// Candidates for the word at the cursor.
struct completions {
    size_t from; // the start of the word that they replace; set to the cursor before the call
    struct arena arena;
    struct str *words;
    size_t n, cap;
};
// Adds a copy of a word. If memory is short it is left out.
void completions_add(struct completions *c, struct str word);
// Finds candidates; `before` is the text before the cursor. A candidate that ends with '/' can be completed further.
typedef void complete_fn(void *arg, struct str before, struct completions *out);

enum { KILLS_MAX = 8 };

struct line_editor {
    struct line_buffer buffer;
    struct keys keys;
    struct history *history;
    complete_fn *complete; // may be NULL
    void *complete_arg;
    enum line_event event;

    size_t history_at; // the entry that is displayed; history->n: the text being written,
    struct text draft; // which is kept here meanwhile

    bool searching, search_failed;
    struct text query;
    size_t search_at;          // the entry found last,
    struct text searched_from; // and the text before the search

    struct text kills[KILLS_MAX]; // a ring; the latest is at n_kills - 1
    size_t n_kills, yank_back;    // yank_back: how far back Alt-y has gone
    size_t yank_from;             // where the last yanked text begins
    enum { LAST_OTHER, LAST_TYPED, LAST_KILL, LAST_YANK, LAST_TAB } last;
    bool paste_cr; // the last byte of the paste was a CR, which counted as a newline
    bool in_paste; // a piece of the paste has been inserted

    struct text message; // lines below the text, until the next key
};

void line_editor_start(struct line_editor *e, struct history *history, complete_fn *complete, void *arg);
void line_editor_free(struct line_editor *e);
// Starts an empty line. Killed text can still be yanked.
void line_editor_begin(struct line_editor *e);
// Feeds bytes until an event comes. Returns how many were consumed.
size_t line_editor_push(struct line_editor *e, struct str bytes, enum line_event *event);
// Call when nothing has followed an ESC for a moment.
void line_editor_flush(struct line_editor *e, enum line_event *event);

// Ends a paste that has not ended.
void line_editor_end_paste(struct line_editor *e);

// What to display; valid until the next key.
struct line_look {
    struct str text;
    size_t at;
    struct str message; // to be shown below the text: candidates, or the search
};
struct line_look line_editor_look(struct line_editor *e);
struct str line_editor_text(const struct line_editor *e);

#endif
