// Text that grows: what dumps and descriptions are printed into. Errors are remembered in the struct.
#ifndef QUERN_TEXT_H
#define QUERN_TEXT_H

#include "gguf/base.h"

struct text {
    char *data;   // NUL-terminated when size > 0
    size_t size, cap;
    bool failed;  // memory was short: data is what fitted
};

void text_print(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *t);

#endif
