// Shell completions and the manual page, made from the tables of verbs and options, so that they always match the
// program.
//
// Ownership: the text is the caller's. Threads: any.
#ifndef QUERN_COMPLETION_H
#define QUERN_COMPLETION_H

#include "kernels/text.h"

enum completion_shell { SHELL_BASH, SHELL_ZSH, SHELL_FISH };

// Appends a script that completes verbs, flags and the values of flags.
void completion_print(enum completion_shell shell, struct text *out);
// Appends the manual page in roff.
void completion_print_man(struct text *out);

#endif
