// A progress bar on stderr for every wait of more than a second: what is done, how fast, and how long it will take.
// On a terminal it is cut to the width of the window. Where stderr is none, a line is written each minute.
//
// Ownership: progress_begin initialises; progress_end erases the bar. Threads: the main thread.
#ifndef QUERN_PROGRESS_H
#define QUERN_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what, *unit; // for example "perplexity" and "tokens"
    bool on, shown;          // on: stderr is a terminal
    double part;             // the most that was shown as done, so that it never goes back
    double start, last;      // in milliseconds of clock_ms
};
void progress_begin(struct progress *p, const char *what, const char *unit);
// Draws the bar, at most ten times a second and not in the first second, or writes a line, once a minute. `note` (may be
// NULL) is shown behind it.
void progress_show(struct progress *p, int64_t done, int64_t total, const char *note);
void progress_end(struct progress *p);

// The same for a wait of unknown length: "loading MODEL: 3 s", drawn after the first second by a thread of its own.
// `what` must stay valid until progress_wait_end, which erases the line.
struct progress_wait {
    const char *what;
    bool on, shown, over;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; // signals that the wait is over
};
void progress_wait_begin(struct progress_wait *w, const char *what);
void progress_wait_end(struct progress_wait *w);

#endif
