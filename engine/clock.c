// Reads CLOCK_MONOTONIC, which changes of the system's time do not set back.
#include "engine/clock.h"

#include <time.h>

double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

double per_second(double n, double ms)
{
    return ms > 0 ? n * 1e3 / ms : 0;
}
