// Text that grows, into which dumps and descriptions are printed. A failure is kept in the struct.
//
// Ownership: a zeroed struct is an empty text; text_free frees its memory. Threads: one at a time.
#ifndef QUERN_TEXT_H
#define QUERN_TEXT_H

#include "gguf/base.h"

struct text {
    char *data; // NUL-terminated when size > 0
    size_t size, cap;
    bool failed; // there was no memory; data is the text until then
};

void text_print(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Appends the bytes as they are; they may contain NUL.
void text_append(struct text *t, struct str s);
// Appends a name from a file. Control characters, which a terminal would obey, and invalid UTF-8 are written as \xNN.
void text_print_name(struct text *t, const char *name);
void text_free(struct text *t);

#endif
