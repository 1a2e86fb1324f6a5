// Texts in front of memory that cannot be read: a reader that goes a byte too far ends with SIGSEGV instead of reading what
// happens to follow.
//
// Each test links its own copy. Threads: one.
#ifndef QUERN_GUARDED_H
#define QUERN_GUARDED_H

#include "gguf/base.h"

#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARDED_MAX = 1 << 20 };

// A copy of a text of at most GUARDED_MAX bytes, which is good until the next call. A letter stands before it.
static inline struct str guarded(struct str text)
{
    static char *end;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = GUARDED_MAX + page;
    if (!end) {
        char *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert(base != MAP_FAILED && !mprotect(base + room, page, PROT_NONE));
        end = base + room;
    }
    cr_assert_leq(text.len, (size_t)GUARDED_MAX);
    char *copy = end - text.len;
    if (text.len)
        memmove(copy, text.data, text.len);
    copy[-1] = 'a';
    return (struct str){copy, text.len};
}

#endif
