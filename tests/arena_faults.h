// Makes allocations from arenas fail on demand, each one, whether or not it takes a new piece from the heap. They count as
// calls of memory_fault, between those of the heap.
//
// The linker redirects the calls to this file (--wrap, see arena_faults_dep in tests/meson.build). Threads: one.
#ifndef QUERN_ARENA_FAULTS_H
#define QUERN_ARENA_FAULTS_H

#include "tests/memory_faults.h"

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
