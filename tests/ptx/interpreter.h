// An interpreter of PTX for tests. It replaces a GPU, and checks kernels like a sanitizer.
//
// Parsing is strict: an unknown opcode, modifier or type is an error with its line. A launch runs the CTAs of a grid
// one after another, and the warps of a CTA in turn from barrier to barrier, with 32 lanes in lockstep; the CTAs of a
// cooperative launch, which may wait for each other, take turns where they sleep between looks at memory. A launch ends
// with an error that names kernel, line, CTA and thread at any fault that a GPU may not report: an access that is out
// of bounds, misaligned or a race; a read of a register or byte that was never written, or that a copy in flight will
// write; a barrier that not all threads reach; a phase of an mbarrier that is never complete; a wait for memory that no
// CTA will write; a load of constants that reads what the same launch has written.
//
// Ownership: the machine owns its memory and its modules until simt_free. Threads: one at a time for each machine.
#ifndef QUERN_INTERPRETER_H
#define QUERN_INTERPRETER_H

#include "gguf/base.h"

struct simt;
struct simt_kernel;

struct simt_dim {
    uint32_t x, y, z;
};

// Counted since simt_new.
struct simt_counters {
    uint64_t launches, ctas;
    uint64_t instructions;                // of warps
    uint64_t global_read, global_written; // bytes
    uint64_t barriers;                    // completed
};

struct simt *simt_new(void); // NULL when memory is short
void simt_free(struct simt *s);
// Adds the kernels of a text. They stay until simt_free.
int simt_load(struct simt *s, struct str text, struct error *err);
// Returns the kernel of that name, the newest one if there are several; NULL if there is none.
const struct simt_kernel *simt_find(const struct simt *s, const char *name);
// Returns the last kernel of the last text, which heads a list of all kernels; NULL if there is none.
const struct simt_kernel *simt_newest(const struct simt *s);

// Device memory. Addresses are those that kernels use, aligned to 256; 0 if memory is short. Bytes count as not written
// until something writes them.
uint64_t simt_alloc(struct simt *s, size_t size);
int simt_release(struct simt *s, uint64_t address, struct error *err);
int simt_put(struct simt *s, uint64_t address, const void *data, size_t size, struct error *err);
// Marks bytes as not written again.
int simt_forget(struct simt *s, uint64_t address, size_t size, struct error *err);
int simt_get(struct simt *s, uint64_t address, void *data, size_t size, struct error *err);

// `params` is the block of parameters, laid out as the kernel declares them; `shared` is the dynamic shared memory in
// bytes.
int simt_launch(struct simt *s, const struct simt_kernel *kernel, struct simt_dim grid, struct simt_dim block,
                uint32_t shared, const void *params, size_t params_size, struct error *err);
// Sets the number of warp instructions after which a CTA is considered an endless loop. The default is 2^28.
void simt_set_limit(struct simt *s, uint64_t instructions);
// Makes the next launch a programmatic dependent launch, which may start before the earlier ones have ended. Until
// griddepcontrol.wait its threads must not write global memory, nor read what the earlier launches wrote. The earlier
// launches are all those back to the last one that was not dependent, including it.
void simt_set_dependent(struct simt *s);
// Makes the next launch cooperative: all its CTAs are there at the same time, 256 warps at most, and may wait for each
// other.
void simt_set_cooperative(struct simt *s);
struct simt_counters simt_count(const struct simt *s);

#endif
