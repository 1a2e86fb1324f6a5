// The part of `quern perplexity` that measures a model by tasks of choice: --hellaswag, --winogrande, --multiple-choice.
//
// Threads: the main thread.
#ifndef QUERN_PERPLEXITY_TASKS_H
#define QUERN_PERPLEXITY_TASKS_H

#include "cmd/options.h"

bool perplexity_tasks_asked(const struct options *o);
// Reads the tasks from the text, computes them and prints the accuracy.
int perplexity_tasks(const struct options *o, struct error *err);

#endif
