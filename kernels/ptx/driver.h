// The CUDA driver, loaded at run time: one GPU, one context, one stream.
//
// All work is issued to one stream and executed in order. Only driver_get, driver_wait, driver_reach, driver_between
// and driver_free wait for it; the thread sleeps meanwhile. Every failure is an error that names the driver call and
// its result. After a fault of a kernel the context is lost: every later call fails, and only driver_close is useful.
//
// Ownership: modules, kernels and graphs belong to the driver and are freed with it at the latest; memory must be
// freed by its caller before driver_close. Threads: any thread, one at a time for each driver.
#ifndef QUERN_DRIVER_H
#define QUERN_DRIVER_H

#include "gguf/base.h"

struct driver;        // a loaded libcuda with a context on one GPU
struct driver_module; // a loaded PTX module
struct driver_kernel; // a function of a module, freed with it
struct driver_graph;  // a captured graph of launches, ready to be replayed

struct driver_options {
    const char *library;             // NULL: libcuda.so.1 as the loader finds it
    int device;                      // ordinal of the GPU
    const char *cache;               // folder of compiled kernels, created if it is missing; NULL: none are kept
    const struct driver_card *paper; // not NULL: pretend to have this GPU; calls succeed and nothing runs
};
// The properties of a GPU.
struct driver_card {
    char name[128];
    char pci[16];       // its address on the bus, as in /sys/bus/pci/devices but in upper case
    int major, minor;   // compute capability
    int n_sm, warp;     // multiprocessors; lanes of a warp
    int max_shared;     // bytes of shared memory that a thread block can get by opting in
    int version;        // of the driver: 1000 * major + 10 * minor of the newest CUDA that it supports
    size_t total, free; // bytes of memory; free: at the time of the call that filled in the struct
};
// Sets *n to the number of GPUs, 1 or more, or fails with the reason why there is none.
int driver_count(const char *library, int *n, struct error *err);
// Describes one GPU. Opens the driver and closes it again.
int driver_card(const char *library, int device, struct driver_card *out, struct error *err);
int driver_open(struct driver **out, const struct driver_options *o, struct error *err);
void driver_close(struct driver *d); // NULL is fine
const struct driver_card *driver_facts(const struct driver *d);
// Sets *free to the bytes of GPU memory that no process uses now.
int driver_memory(struct driver *d, size_t *free, struct error *err);

// ---- memory. Addresses are aligned to 256 bytes. Allocations fail with E_MEMORY if the GPU has too little memory.
int driver_alloc(struct driver *d, size_t size, uint64_t *at, struct error *err); // zeroed; size 1 or more
// Does not zero the memory. The caller writes it before it is read; a sanitizer can find where it does not.
int driver_reserve(struct driver *d, size_t size, uint64_t *at, struct error *err);
void driver_free(struct driver *d, uint64_t at); // waits for all work; 0 is fine
// The caller may change src after driver_put returns, but memory of driver_pinned only after the next wait.
int driver_put(struct driver *d, uint64_t at, const void *src, size_t n, struct error *err);
// Waits for all work, the copy included. While recording it only records the copy; dst must then be from driver_pinned.
int driver_get(struct driver *d, void *dst, uint64_t at, size_t n, struct error *err);
int driver_copy(struct driver *d, uint64_t to, uint64_t from, size_t n, struct error *err);
int driver_zero(struct driver *d, uint64_t at, size_t n, struct error *err);
int driver_pinned(struct driver *d, size_t size, void **out, struct error *err); // page-locked host memory
void driver_pinned_free(struct driver *d, void *p);

// ---- kernels
// Compiles PTX, or takes the compiled kernel from the cache folder. An error of the compiler holds the start of its log
// and the line of PTX that it names first.
int driver_load(struct driver *d, struct str ptx, struct driver_module **out, struct error *err);
void driver_unload(struct driver *d, struct driver_module *m);
int driver_find(struct driver *d, struct driver_module *m, const char *name, struct driver_kernel **out,
                struct error *err);
struct driver_kernel_facts {
    int threads;   // most threads of a block
    int registers; // per thread
    int shared;    // static shared memory in bytes
    int local;     // local memory in bytes per thread; more than 0 means spilled registers
};
int driver_kernel_facts(struct driver *d, const struct driver_kernel *k, struct driver_kernel_facts *out,
                        struct error *err);
// Counts of loaded modules since driver_open.
struct driver_cache {
    unsigned hits, compiled, corrupt; // corrupt: the entry on disk was damaged, and the module was compiled again
    unsigned unwritten;               // the compiled module could not be written to disk
};
const struct driver_cache *driver_cache_facts(const struct driver *d);
// A hash of a text for this GPU and its driver: the name, the compute capability and the version are part of it.
uint64_t driver_hash(const struct driver *d, struct str text, uint64_t seed);
// The folder of compiled kernels; NULL: they are not kept.
const char *driver_folder(const struct driver *d);
// A text beside the compiled kernels: driver_keep replaces the file `path`, which lies in `folder`, by a complete one, and
// returns whether that was done; if not, errno says why. driver_kept reads it, with a NUL behind it; NULL: there is none, or
// it is no file of at most 1 MiB. The caller frees the text.
bool driver_keep(const char *folder, const char *path, struct str text);
char *driver_kept(const char *path);

struct driver_launch {
    uint32_t grid[3], block[3], shared; // shared: dynamic shared memory in bytes
    void **params;                      // pointers to the parameters' values, which are copied
    // The kernel executes griddepcontrol.wait, so it may start before the launches ahead of it have ended. This has no
    // effect below sm_90 and with drivers that lack cuLaunchKernelEx.
    bool dependent;
    // All thread blocks are there at the same time, so that they may wait for each other. The driver refuses a launch for
    // which the card has no room.
    bool cooperative;
};
int driver_run(struct driver *d, struct driver_kernel *k, const struct driver_launch *l, struct error *err);

// From driver_record to driver_recorded, runs, copies and zeroing are captured in a graph instead of executed. Nothing
// can be allocated or loaded meanwhile. After an error, driver_recorded with out == NULL discards the capture. Host
// memory that a captured copy uses must live as long as the graph.
int driver_record(struct driver *d, struct error *err);
int driver_recorded(struct driver *d, struct driver_graph **out, struct error *err);
int driver_replay(struct driver *d, struct driver_graph *g, struct error *err);
void driver_graph_free(struct driver *d, struct driver_graph *g);

int driver_wait(struct driver *d, struct error *err); // waits for all work
// There are two marks, 0 and 1. driver_mark puts a mark in the stream after the work issued so far. driver_reach waits
// until the GPU has reached the mark. driver_between waits for mark 1 and measures the seconds from mark 0 to mark 1 by
// the GPU's clock.
int driver_mark(struct driver *d, int which, struct error *err);
int driver_reach(struct driver *d, int which, struct error *err);
int driver_between(struct driver *d, double *seconds, struct error *err);

#endif
