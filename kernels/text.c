// The text is one heap block that at least doubles when it is full. A formatted piece is measured first and then
// printed in place, so it is formatted twice and never cut.
#include "kernels/text.h"

#include <stdio.h>
#include <stdlib.h>

// Makes room for n more bytes and the NUL. After a failure it always fails, so that no part is missing inside the text.
static bool text_reserve(struct text *t, size_t n)
{
    size_t need;
    if (t->failed || size_add(t->size, n, &need) || size_add(need, 1, &need)) {
        t->failed = true;
        return false;
    }
    if (need <= t->cap)
        return true;
    size_t cap = MAX(need, MAX(2 * t->cap, (size_t)256));
    char *data = realloc(t->data, cap);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->cap = cap;
    return true;
}

void text_print(struct text *t, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0)
        t->failed = true;
    else if (text_reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->size, (size_t)n + 1, fmt, again);
        t->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void text_append(struct text *t, struct str s)
{
    if (!text_reserve(t, s.len))
        return;
    if (s.len)
        memcpy(t->data + t->size, s.data, s.len);
    t->size += s.len;
    t->data[t->size] = '\0';
}

void text_print_name(struct text *t, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(name + i, n - i, &cp);
        if (len > 0 && utf8_printable(cp)) {
            text_print(t, "%.*s", len, name + i);
            i += (size_t)len;
        } else {
            text_print(t, "\\x%02X", (unsigned char)name[i++]);
        }
    }
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}
