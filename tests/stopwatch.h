// Measures time for tests with a time limit: algorithms that must not be quadratic, and files made to be slow.
#ifndef QUERN_STOPWATCH_H
#define QUERN_STOPWATCH_H

#include <stdlib.h>
#include <time.h>

#include "tests/sanitized.h"

// Seconds of processor time of this thread: neighbours on the core do not count.
static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The factor by which time limits are extended, for sanitizers and valgrind, which slow programs down 30 to 60 times.
static inline double patience(void)
{
    return sanitized || getenv("QUERN_WATCHED") ? 60 : 1;
}

#endif
