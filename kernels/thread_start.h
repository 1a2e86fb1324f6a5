// Starts a thread that leaves signals to the main thread.
//
// It blocks all signals but those that a fault of the thread itself raises (SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGSYS,
// SIGTRAP): if these were blocked, the system would end the process without asking the handler, which restores the
// terminal and says what happened. Threads: any.
#ifndef QUERN_THREAD_START_H
#define QUERN_THREAD_START_H

#include <pthread.h>

// As pthread_create without attributes: 0, or a number of errno.
int thread_start(pthread_t *thread, void *(*work)(void *), void *arg);

#endif
