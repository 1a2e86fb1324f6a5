// Runs a program at a pseudo-terminal: types keys, and keeps the screen that a user would see (screen.h).
//
// Ownership: pty_open acquires everything, pty_close releases it and ends the program if it still runs. Threads: one.
#ifndef QUERN_PTY_HARNESS_H
#define QUERN_PTY_HARNESS_H

#include "tests/screen.h"

#include <sys/types.h>
#include <termios.h>

enum { PTY_LOG = 1 << 20, PTY_WAIT_MS = 60000 };

struct pty {
    int terminal, line;   // the side that types and reads, and the one that the program has
    pid_t pid;            // 0 when it has ended
    struct termios found; // the modes before the program began
    struct screen screen;
    int n_prompts;     // that have been waited for
    char log[PTY_LOG]; // the first bytes that came
    size_t n_log, n_bytes;
};

// Runs argv (ended by NULL) with the given TERM and otherwise the caller's environment. Returns false if the system
// provides no pseudo-terminals.
bool pty_open(struct pty *t, const char *term, int cols, int rows, const char *const *argv);
// The same, after these keys were typed: before the program begins, in the modes that it will find.
bool pty_open_typed(struct pty *t, const char *term, int cols, int rows, const char *const *argv, const char *keys);
// Types keys, and reads the program's output meanwhile.
void pty_type(struct pty *t, const char *keys);
void pty_type_bytes(struct pty *t, const char *keys, size_t n);
// Reads the program's output for `ms` milliseconds.
void pty_watch(struct pty *t, int ms);
void pty_resize(struct pty *t, int cols, int rows);

// Waits for at most PTY_WAIT_MS until the text is on the screen; until the cursor is behind an empty prompt that has
// appeared since the last wait; until the program has ended (returns its status, 128 + N for signal N).
bool pty_wait_text(struct pty *t, const char *text);
bool pty_wait_prompt(struct pty *t);
int pty_wait_end(struct pty *t);
// Whether the terminal has the modes again that it had before.
bool pty_is_restored(const struct pty *t);
void pty_close(struct pty *t);

#endif
