// Makes allocations of arenas fail on demand, beside those of the heap. An arena takes large blocks from the heap, so that few
// of its allocations would fail if only malloc did: the linker redirects its calls, too (--wrap, tests/meson.build).
//
// Threads: one, as tests/memory_faults.h.
#ifndef QUERN_ARENA_FAULTS_H
#define QUERN_ARENA_FAULTS_H

#include "tests/memory_faults.h"

WRAP(void *, aligned_alloc, (size_t align, size_t n))
{
    void *p = memory_fails() ? NULL : __real_aligned_alloc(align, n);
    heap_live += p != NULL;
    return p;
}

WRAP(void *, arena_alloc, (struct arena * arena, size_t size, size_t align))
{
    return memory_fails() ? NULL : __real_arena_alloc(arena, size, align);
}

WRAP(void *, arena_array, (struct arena * arena, size_t count, size_t size, size_t align))
{
    return memory_fails() ? NULL : __real_arena_array(arena, count, size, align);
}

WRAP(char *, arena_strdup, (struct arena * arena, struct str s))
{
    return memory_fails() ? NULL : __real_arena_strdup(arena, s);
}

#endif
