// A slot is free while its beginning is NULL. It is claimed by setting the beginning, and complete once its path is set.
#include "gguf/mapped.h"

#include <stdatomic.h>
#include <unistd.h>

enum { MAPPINGS_MAX = 256 };
static struct {
    _Atomic(const char *) from, path;
    _Atomic(size_t) bytes;
} mappings[MAPPINGS_MAX];

void mapped_add(const void *from, size_t bytes, const char *path)
{
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        const char *none = NULL;
        if (!atomic_compare_exchange_strong(&mappings[i].from, &none, (const char *)from))
            continue;
        // faults concern whole pages
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        atomic_store(&mappings[i].bytes, (bytes + page - 1) / page * page);
        atomic_store(&mappings[i].path, path);
        return;
    }
}

void mapped_remove(const void *from)
{
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (from && atomic_load(&mappings[i].from) == from) {
            atomic_store(&mappings[i].path, NULL);
            atomic_store(&mappings[i].from, NULL);
            return;
        }
}

const char *mapped_find(const void *address)
{
    const char *at = address;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        const char *path = atomic_load(&mappings[i].path), *from = atomic_load(&mappings[i].from);
        if (path && from && at >= from && at < from + atomic_load(&mappings[i].bytes))
            return path;
    }
    return NULL;
}
