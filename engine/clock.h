// A monotonic clock in milliseconds, and rates computed from its differences.
//
// Threads: any.
#ifndef QUERN_CLOCK_H
#define QUERN_CLOCK_H

// Milliseconds of a clock that never goes back; its zero has no meaning.
double clock_ms(void);

// n things in `ms` milliseconds, per second; 0 when no time has passed.
double per_second(double n, double ms);

#endif
