// A thread inherits the mask of the one that starts it, so the mask is set around the start.
#include "kernels/thread_start.h"

#include <signal.h>
#include <stddef.h>

int thread_start(pthread_t *thread, void *(*work)(void *), void *arg)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGSYS, SIGTRAP};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int status = pthread_create(thread, NULL, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
