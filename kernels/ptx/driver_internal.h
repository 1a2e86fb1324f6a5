// What the files driver*.c share: the open driver, its modules and graphs, and the folder of compiled kernels.
//
// Ownership and threads: as in driver.h. Modules and graphs are kept in lists that belong to the driver.
#ifndef QUERN_DRIVER_INTERNAL_H
#define QUERN_DRIVER_INTERNAL_H

#include "kernels/ptx/cuda_api.h"
#include "kernels/ptx/driver.h"

struct driver_kernel {
    struct driver_kernel *next;
    struct cu_function *function;
    uint32_t shared; // its limit of dynamic shared memory in bytes, if it was raised; 0: it was not
};
struct driver_module {
    struct driver_module *next, **link; // link: the pointer in the list that points to this struct
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
    char *folder; // of compiled kernels; NULL: they are not kept
    bool retained, recording;
    struct cu_context *context;
    struct cu_stream *stream;
    struct cu_event *marks[2];
    struct driver_module *modules;
    struct driver_graph *graphs;
};

// Makes the driver's context current in the calling thread. Every function of driver.h that needs it calls this first.
int driver_enter(struct driver *d, struct error *err);
// The same for actions that are impossible while recording: it fails then, with `what` as the action in the error.
int driver_enter_not_recording(struct driver *d, const char *what, struct error *err);

// ---- the folder of compiled kernels (driver_cache.c)

struct cache_key {
    uint64_t h[2];
};
// Returns the key of the cubin that this driver compiles from a text for a card. Equal inputs have equal keys.
struct cache_key cache_key_of(struct str ptx, const struct driver_card *card);
// Returns the cubin of a key, which the caller frees, or NULL if there is none. *corrupt: there is a damaged entry.
void *cache_read(const char *folder, struct cache_key key, size_t *size, bool *corrupt);
// Returns whether the entry was written.
bool cache_write(const char *folder, struct cache_key key, const void *cubin, size_t size);

#endif
