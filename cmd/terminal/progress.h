// A bar on stderr for every wait over a second: what is done, how fast, and how long it will take. Where stderr is no
// terminal, nothing.
//
// Ownership: zero-initialise with progress_begin; progress_end takes the bar off the screen. Threads: the main thread.
#ifndef QUERN_PROGRESS_H
#define QUERN_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what, *unit; // "perplexity", "tokens"
    bool on, shown;
    double start, last; // milliseconds of clock_ms
};
void progress_begin(struct progress *p, const char *what, const char *unit);
// Draws when a tenth of a second has passed since the last time, but not within the first second. `note` (may be NULL)
// stands behind the bar.
void progress_show(struct progress *p, int64_t done, int64_t total, const char *note);
void progress_end(struct progress *p);

// The same of a wait that cannot say how far it is: "loading MODEL: 3 s", from the second second on, by a thread of its
// own. `what` lasts until progress_wait_end, which takes the line off the screen.
struct progress_wait {
    const char *what;
    bool on, shown, over;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; // over
};
void progress_wait_begin(struct progress_wait *w, const char *what);
void progress_wait_end(struct progress_wait *w);

#endif
