// Output of answers and handling of signals: stdout without control codes, what interrupts an answer, exit statuses.
//
// Text from a model, and names and errors from files, are untrusted: of them only printable characters, tabs and
// newlines reach a terminal. If stdout is not a terminal, bytes pass unchanged. Threads: the main thread; signal
// handlers touch atomics only.
#ifndef QUERN_TERMINAL_H
#define QUERN_TERMINAL_H

#include "gguf/base.h"
#include "kernels/text.h"

#include <stdatomic.h>

// Set by the first Ctrl-C, SIGTERM or SIGHUP; the second one ends the process with status 130.
extern atomic_bool terminal_interrupted;
// Set by SIGTERM and SIGHUP: the program must end.
extern atomic_bool terminal_terminated;
// Set when the size of the window has changed.
extern atomic_bool terminal_resized;

enum terminal_phase {
    PHASE_LOADING,   // nothing is half done: Ctrl-C ends the process at once with status 130
    PHASE_ANSWERING, // Ctrl-C sets terminal_interrupted
};
// Occupies closed standard descriptors, makes those wait that are set not to (O_NONBLOCK), and installs the handlers of
// signals. Signals that end the process by default remove the temporary files (gguf/temporary.h) and restore the terminal
// first. A bus error in a mapped file (gguf/mapped.h), in whatever thread, means that the file was truncated while it was in
// use, and ends the process with status 5; any other one is raised again. SIGPIPE and SIGXFSZ are ignored, so that a closed
// pipe and a limit of file sizes are errors of writing. SIGINT, SIGTERM and SIGHUP stay ignored if they were, as nohup and a
// shell's & have it.
void terminal_start(void);
// Makes SIGINT, SIGTERM and SIGHUP, those that are not ignored, call this handler.
void terminal_on_interrupt(void (*handler)(int number));
// Ends the process as a second Ctrl-C does, with this status. May be called from a signal handler.
_Noreturn void terminal_end(int status);
void terminal_set_phase(enum terminal_phase phase);

// --- a terminal with somebody typing ---

enum terminal_mode {
    MODE_COOKED,    // the modes found at the start
    MODE_EDITING,   // every key is delivered as it is typed, Ctrl-C too
    MODE_ANSWERING, // typed keys are not echoed and are kept for the editor; Ctrl-C is a signal
};
// Says that a bar stands in the present line of stderr, or that it is gone. However the process ends, it is cleared.
void terminal_set_bar(bool shown);
// Sets the mode of the terminal on stdin, if it is one. The original modes are restored however the process ends, by
// a signal or a crash too, and while it is stopped by Ctrl-Z.
void terminal_set_mode(enum terminal_mode mode);
// How many of the bytes that wait on stdin were typed in the original modes, in which Enter is a newline: before the first other
// mode, and while the process was stopped. They are told once.
size_t terminal_typed_before(void);
// Stops the process as Ctrl-Z does, with the original modes of the terminal. Returns when the process is continued.
void terminal_suspend(void);
// Columns and rows of the terminal on fd; 80 and 24 if they are not known.
void terminal_size(int fd, int *cols, int *rows);
// A descriptor that becomes readable when one of the three flags is set; terminal_wake_clear empties it. -1 if it
// cannot be made.
int terminal_wake_fd(void);
void terminal_wake_clear(void);

// Writes all of the text to a descriptor, repeating after short writes and signals. Returns -1 with errno.
int terminal_write_fd(int fd, struct str text);
// Writes all of the text to stdout. E_IO; the error has no text if the reader has gone away (EPIPE), which is not
// reported. E_INTERRUPTED if Ctrl-C comes while nobody takes what is written.
int terminal_write(struct str text, struct error *err);
// Writes untrusted text to stdout: filtered if it is a terminal, unchanged otherwise.
int terminal_write_untrusted(struct str text, struct error *err);
// The same for a table: a terminal gets the beginnings of the lines that are wider than its window.
int terminal_write_table(struct str text, struct error *err);
// Copies untrusted text to `out`, which has room for 3 * len bytes, without control characters and bidi overrides;
// bytes that are not UTF-8 become U+FFFD. The text must consist of whole characters. Returns the number of bytes
// written.
size_t terminal_filter(struct str text, char *out);
bool terminal_is_tty(int fd);
// Whether $TERM names a terminal that understands escape sequences.
bool terminal_obeys_escapes(void);

// Whether stderr is a terminal that shows colours, and whose user wants them ($NO_COLOR).
bool terminal_has_colours(void);
// Prints a text on stderr as terminal_note does, dimmed where there are colours.
void terminal_aside(const char *text);
// Prints a line on stderr, filtered, and on a terminal broken between words.
void terminal_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Appends text as a JSON string; bytes that are not UTF-8 become U+FFFD.
void terminal_print_json(struct text *out, struct str text);
// Appends JSON for a terminal: control characters, bidi controls and line separators, which stand only in strings, are
// escaped as \uXXXX, so that it is the same JSON and nothing in it is obeyed.
void terminal_escape_json(struct text *out, struct str json);
// Writes JSON to stdout: escaped like this if it is a terminal, unchanged otherwise.
int terminal_write_json(struct str json, struct error *err);

#endif
