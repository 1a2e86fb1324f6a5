// The CUDA driver, loaded at run time: one GPU, one context, one stream.
//
// All work is issued to one stream and executed in order. Only driver_get, driver_wait, driver_reach and
// driver_between wait for it, and they sleep meanwhile. Every failure is an error that names the driver call and its
// result. After a fault of a kernel the context is lost: every later call fails, and only driver_close is useful.
//
// Ownership: modules, kernels and graphs belong to the driver and are freed with it at the latest; memory must be
// freed by its caller before driver_close. Threads: any thread, one at a time for each driver.
#ifndef QUERN_DRIVER_H
#define QUERN_DRIVER_H

#include "gguf/base.h"

struct driver;        // a loaded libcuda with a context on one card
struct driver_module; // a loaded module of PTX
struct driver_kernel; // a function of it, freed with its module
struct driver_graph;  // a captured graph of launches, ready to be replayed

struct driver_options {
    const char *library;             // NULL: libcuda.so.1 as the loader finds it
    int device;                      // ordinal
    const char *cache;               // folder of compiled kernels, made when it is missing; NULL: none are kept
    const struct driver_card *paper; // not NULL: no card but its facts; calls succeed and nothing runs
};
struct driver_card {
    char name[128];
    char pci[16];     // its address on the bus, as in /sys/bus/pci/devices but for upper case
    int major, minor; // compute capability
    int n_sm, warp;
    int max_shared;     // bytes that a block may have when it asks for them
    int version;        // of the driver: 1000 * major + 10 * minor of the newest CUDA that it serves
    size_t total, free; // bytes; free: when it was asked
};
// The number of cards, 1 or more, or an error that says why there is none.
int driver_count(const char *library, int *n, struct error *err);
int driver_card(const char *library, int device, struct driver_card *out, struct error *err);
int driver_open(struct driver **out, const struct driver_options *o, struct error *err);
void driver_close(struct driver *d); // NULL is fine
const struct driver_card *driver_facts(const struct driver *d);
// Bytes that are free now, those of other processes counted as taken.
int driver_memory(struct driver *d, size_t *free, struct error *err);

// ---- memory. Addresses are aligned to 256 bytes; E_MEMORY when the card has too little.
int driver_alloc(struct driver *d, size_t size, uint64_t *at, struct error *err); // zeroed; size 1 or more
// Not zeroed, for what is written before it is read: a sanitizer then finds what is not.
int driver_reserve(struct driver *d, size_t size, uint64_t *at, struct error *err);
void driver_free(struct driver *d, uint64_t at); // waits; 0 is fine
// src may be changed when driver_put returns, unless it came from driver_pinned: then after the next wait.
int driver_put(struct driver *d, uint64_t at, const void *src, size_t n, struct error *err);
// Waits for all before it. While recording it only notes the copy; dst is then from driver_pinned.
int driver_get(struct driver *d, void *dst, uint64_t at, size_t n, struct error *err);
int driver_copy(struct driver *d, uint64_t to, uint64_t from, size_t n, struct error *err);
int driver_zero(struct driver *d, uint64_t at, size_t n, struct error *err);
int driver_pinned(struct driver *d, size_t size, void **out, struct error *err); // host memory for put and get
void driver_pinned_free(struct driver *d, void *p);

// ---- kernels
// The error holds the first lines of the compiler's log and the line of PTX that they name.
int driver_load(struct driver *d, struct str ptx, struct driver_module **out, struct error *err);
void driver_unload(struct driver *d, struct driver_module *m);
int driver_find(struct driver *d, struct driver_module *m, const char *name, struct driver_kernel **out,
                struct error *err);
struct driver_kernel_facts {
    int threads;   // of a block, at most
    int registers; // of a thread
    int shared;    // bytes, without the dynamic ones
    int local;     // bytes of a thread: more than 0 means spills
};
int driver_kernel_facts(struct driver *d, const struct driver_kernel *k, struct driver_kernel_facts *out,
                        struct error *err);
// What became of the modules since driver_open.
struct driver_cache {
    unsigned hits, compiled, corrupt; // corrupt: an entry was no good and was made again
    unsigned unwritten;               // a compiled module could not be kept on disk
};
const struct driver_cache *driver_cache_facts(const struct driver *d);

struct driver_launch {
    uint32_t grid[3], block[3], shared; // shared: dynamic bytes
    void **params;                      // pointers to the parameters' values, which are copied
    bool dependent; // the kernel has griddepcontrol.wait and may start early; without effect where cards do not know it
};
int driver_run(struct driver *d, struct driver_kernel *k, const struct driver_launch *l, struct error *err);

// From driver_record on runs, copies and zeroes are noted instead of done; nothing is allocated or loaded meanwhile.
// After an error in between, driver_recorded with out == NULL forgets what was noted. Host memory that is named must
// stay.
int driver_record(struct driver *d, struct error *err);
int driver_recorded(struct driver *d, struct driver_graph **out, struct error *err);
int driver_replay(struct driver *d, struct driver_graph *g, struct error *err);
void driver_graph_free(struct driver *d, struct driver_graph *g);

int driver_wait(struct driver *d, struct error *err);
// Two marks in the stream and the seconds between them on the card's clock; driver_between waits for the second.
int driver_mark(struct driver *d, int which, struct error *err);  // 0 or 1
int driver_reach(struct driver *d, int which, struct error *err); // waits until the card has come to the mark
int driver_between(struct driver *d, double *seconds, struct error *err);

#endif
