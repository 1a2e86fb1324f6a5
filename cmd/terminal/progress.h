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
// Draws the bar, at most ten times a second and not in the first 0.8 s, or writes a line, once a minute. `note` (may be
// NULL) is shown behind it.
void progress_show(struct progress *p, int64_t done, int64_t total, const char *note);
void progress_end(struct progress *p);

// A wait during which the main thread is busy; a thread of its own draws. progress_wait_begin shows the seconds of a wait
// of unknown length ("loading the model: 3 s"), on a terminal only. progress_follow_begin shows a bar of the work that
// `read` tells: what is done, and in *total how much there is; 0: not known yet. The texts must stay valid until
// progress_wait_end, which erases the line.
typedef int64_t progress_read_fn(const void *arg, int64_t *total);
struct progress_wait {
    struct progress bar;
    progress_read_fn *read; // NULL: the seconds are shown
    const void *arg;
    bool on, over;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; // signals that the wait is over
};
void progress_wait_begin(struct progress_wait *w, const char *what);
void progress_follow_begin(struct progress_wait *w, const char *what, const char *unit, progress_read_fn *read,
                           const void *arg);
void progress_wait_end(struct progress_wait *w);

#endif
