// Text that grows: what dumps and descriptions are printed into. Errors are remembered in the struct.
//
// Ownership: a zeroed struct is an empty text; text_free takes its memory back. Threads: one at a time.
#ifndef QUERN_TEXT_H
#define QUERN_TEXT_H

#include "gguf/base.h"

struct text {
    char *data; // NUL-terminated when size > 0
    size_t size, cap;
    bool failed; // memory was short: data is what fitted
};

void text_print(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Adds the bytes as they are, NUL included.
void text_append(struct text *t, struct str s);
// A name that comes from a file: what a terminal would obey, and invalid UTF-8, is written as \xNN.
void text_print_name(struct text *t, const char *name);
void text_free(struct text *t);

#endif
