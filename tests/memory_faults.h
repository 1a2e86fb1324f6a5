// Makes calls fail on demand, and counts allocations. The linker redirects malloc, calloc, realloc and free of the
// whole program to this file (--wrap, see tests/meson.build); a test adds other calls with WRAP in the same way.
//
// A test lets the N-th call fail, for N = 0, 1, 2, ... until none has failed, and compares `heap_live` before and after.
// Threads: one, because the counters are not atomic.
#ifndef QUERN_MEMORY_FAULTS_H
#define QUERN_MEMORY_FAULTS_H

#include "gguf/base.h"

#include <errno.h>

// One kind of call that can fail.
struct fault {
    long after; // so many calls still succeed before one fails; negative: none fails
    bool fired; // the call has failed
    long calls; // made so far
};

static struct fault memory_fault = {.after = -1};
static long heap_live; // blocks of the heap that are allocated

// Whether the present call is the one to fail; errno is set then.
static inline bool fault_hits(struct fault *f, int number)
{
    f->calls++;
    if (f->after < 0 || f->after-- != 0)
        return false;
    f->after = -1;
    f->fired = true;
    errno = number;
    return true;
}

static inline void fault_arm(struct fault *f, long after)
{
    f->after = after;
    f->fired = false;
}

static inline void fault_disarm(struct fault *f)
{
    f->after = -1;
}

static inline bool memory_fails(void)
{
    return fault_hits(&memory_fault, ENOMEM);
}

// The head of a function that replaces a call of the C library; __real_NAME is the call itself.
//   ret   the type of its result
//   name  its name
//   args  its parameters, in brackets
// clang-format off
#define WRAP(ret, name, args) ret __real_##name args; ret __wrap_##name args; ret __wrap_##name args
// clang-format on

WRAP(void *, malloc, (size_t n))
{
    void *p = memory_fails() ? NULL : __real_malloc(n);
    heap_live += p != NULL;
    return p;
}

WRAP(void *, calloc, (size_t n, size_t size))
{
    void *p = memory_fails() ? NULL : __real_calloc(n, size);
    heap_live += p != NULL;
    return p;
}

WRAP(void *, realloc, (void *old, size_t n))
{
    void *p = memory_fails() ? NULL : __real_realloc(old, n);
    heap_live += old == NULL && p != NULL;
    return p;
}

WRAP(void, free, (void *p))
{
    heap_live -= p != NULL;
    __real_free(p);
}

#endif
