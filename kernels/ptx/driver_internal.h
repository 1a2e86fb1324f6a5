// What the parts of the driver share: the open driver, its modules, the folder of compiled kernels.
#ifndef QUERN_DRIVER_INTERNAL_H
#define QUERN_DRIVER_INTERNAL_H

#include "kernels/ptx/cuda_api.h"
#include "kernels/ptx/driver.h"

struct driver_kernel {
    struct driver_kernel *next;
    struct cu_function *function;
    uint32_t shared; // dynamic bytes that it may have
};
struct driver_module {
    struct driver_module *next, **link; // link: what points to this one
    struct cu_module *module;
    struct driver_kernel *kernels;
};
struct driver_graph {
    struct driver_graph *next, **link;
    struct cu_graph_exec *exec;
};

struct driver {
    struct cuda cu;
    struct driver_card card;
    struct driver_cache cache;
    int device;
    char *folder; // NULL: compiled kernels are not kept
    bool retained, recording;
    struct cu_context *context;
    struct cu_stream *stream;
    struct cu_event *marks[2];
    struct driver_module *modules;
    struct driver_graph *graphs;
};

// Makes the driver's context that of the calling thread: first in everything that a caller can ask for.
int driver_enter(struct driver *d, struct error *err);
// What must not happen while recording.
int driver_enter_still(struct driver *d, const char *what, struct error *err);

// ---- the folder of compiled kernels (driver_cache.c)

struct cache_key {
    uint64_t h[2];
};
// Of a text for a card: the same key means the same cubin.
struct cache_key cache_key_of(struct str ptx, const struct driver_card *card);
// The cubin of a key, to be freed; NULL when there is none. *corrupt: there is an entry, which is no good.
void *cache_read(const char *folder, struct cache_key key, size_t *size, bool *corrupt);
bool cache_write(const char *folder, struct cache_key key, const void *cubin, size_t size);

#endif
