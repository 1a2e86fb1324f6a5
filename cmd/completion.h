// What shells and `man` are told about the flags: made from the tables of verbs and options, so that it is never
// behind.
//
// Ownership: the text is the caller's. Threads: none.
#ifndef QUERN_COMPLETION_H
#define QUERN_COMPLETION_H

#include "kernels/text.h"

enum completion_shell { SHELL_BASH, SHELL_ZSH, SHELL_FISH };

// A script that completes verbs, flags and their values.
void completion_print(enum completion_shell shell, struct text *out);
// The manual page, as roff.
void completion_print_man(struct text *out);

#endif
