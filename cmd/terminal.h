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

enum terminal_phase {
    PHASE_LOADING,    // nothing is half done: Ctrl-C ends the process at once, with 130
    PHASE_ANSWERING,  // Ctrl-C sets terminal_interrupted
};
void terminal_start(void);  // installs the handlers: SIGINT, SIGTERM, SIGBUS; SIGPIPE is ignored
void terminal_set_phase(enum terminal_phase phase);
// A fault on reading this range means that the model file has been cut while it was mapped: exit 5. The path must
// stay; ranges beyond the 64th are not watched.
void terminal_watch_mapping(const void *from, const void *to, const char *path);

// Writes all of it to stdout, past short writes and signals. E_IO; the text is empty when the reader has gone away
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
