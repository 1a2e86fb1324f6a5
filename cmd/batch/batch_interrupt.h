// What Ctrl-C and SIGTERM do while rows are computed: the first one lets the answers under way end, the second one ends
// the process. Both say so at once, also within a long step.
//
// Threads: the main thread; the handler of the signals touches atomics, and writes to stderr. Installed once in a process.
#ifndef QUERN_BATCH_INTERRUPT_H
#define QUERN_BATCH_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

// Takes the two signals over from terminal_start; terminal_interrupted is set as before. `resumable`: the same command
// goes on where this one stopped.
void batch_interrupt_watch(bool resumable);
// Tells how many answers are under way, which the first signal says.
void batch_interrupt_count(int64_t n_answers);

#endif
