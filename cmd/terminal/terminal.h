// Where an answer goes, and what may end it: stdout without control codes, signals, and their exit status.
//
// Text of a model, and names and errors from files, are untrusted: on a terminal nothing of them reaches it but
// printable characters, tabs and line ends. Where stdout is no terminal, the bytes pass as they are. Threads: the main
// thread; the signal handlers touch atomics only.
#ifndef QUERN_TERMINAL_H
#define QUERN_TERMINAL_H

#include "gguf/base.h"
#include "kernels/text.h"

#include <stdatomic.h>

// Set by the first Ctrl-C (or SIGTERM); a second one ends the process with 130.
extern atomic_bool terminal_interrupted;
// Set by SIGTERM and, once terminal_wake_fd has been called, by SIGHUP: the program is to end.
extern atomic_bool terminal_terminated;
// Set when the window has another size.
extern atomic_bool terminal_resized;

enum terminal_phase {
    PHASE_LOADING,   // nothing is half done: Ctrl-C ends the process at once, with 130
    PHASE_ANSWERING, // Ctrl-C sets terminal_interrupted
};
void terminal_start(void); // installs the handlers: SIGINT, SIGTERM, SIGBUS; SIGPIPE is ignored
void terminal_set_phase(enum terminal_phase phase);
// A fault on reading this range means that the model file has been cut while it was mapped: exit 5. The path must
// stay; ranges beyond the 64th are not watched.
void terminal_watch_mapping(const void *from, const void *to, const char *path);

// --- a terminal that is typed at ---

enum terminal_mode {
    MODE_COOKED,    // as it was found
    MODE_EDITING,   // every key comes as it is typed, Ctrl-C too
    MODE_ANSWERING, // what is typed is not shown and stays for the editor; Ctrl-C is a signal
};
// Of the terminal on stdin; nothing where that is none. However the process ends, by a signal or a crash too, the
// terminal is as it was found; while it is stopped by Ctrl-Z also.
void terminal_set_mode(enum terminal_mode mode);
// Stops the process as Ctrl-Z does, with the terminal as it was found; returns when it goes on.
void terminal_suspend(void);
// Columns and rows of the terminal on fd, 80 and 24 where that cannot be known.
void terminal_size(int fd, int *cols, int *rows);
// A descriptor that can be read when one of the three flags has been set, to be emptied then by terminal_wake_clear.
// -1 when there is none to be had.
int terminal_wake_fd(void);
void terminal_wake_clear(void);

// Writes all of it to a descriptor, past short writes and signals: -1 with errno.
int terminal_write_fd(int fd, struct str text);
// The same to stdout. E_IO; the text is empty when the reader has gone away
// (EPIPE), which is nobody's error.
int terminal_write(struct str text, struct error *err);
// Writes untrusted text: as it is, or made harmless when stdout is a terminal.
int terminal_write_untrusted(struct str text, struct error *err);
// Copies the harmless part of untrusted text to `out`, of 3 * len bytes: control characters and bidi overrides are
// dropped, bytes that are no UTF-8 become U+FFFD. Text is to come in whole characters. Returns the bytes written.
size_t terminal_filter(struct str text, char *out);
bool terminal_is_tty(int fd);

// A line on stderr, made harmless.
void terminal_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Appends text as a JSON string; bytes that are no UTF-8 become U+FFFD.
void terminal_print_json(struct text *out, struct str text);

#endif
