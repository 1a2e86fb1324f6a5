// An interpreter of PTX for tests: a GPU where there is none, and a sanitizer of what runs on it.
//
// A text is parsed strictly: an opcode, modifier or type that is not known is an error with its line. A launch runs the
// CTAs of a grid one after the other, warps in turn from barrier to barrier, 32 lanes in lockstep. What a GPU would pass
// over ends the launch with an error that names kernel, line, CTA and thread: an access out of bounds, misaligned or
// raced, a read of a register or byte that nothing wrote, a barrier that not all threads reach.
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
// NULL when no text has a kernel of that name; the newest wins.
const struct simt_kernel *simt_find(const struct simt *s, const char *name);
// The last kernel of the last text, NULL when there is none; each names the one before it.
const struct simt_kernel *simt_newest(const struct simt *s);

// Device memory: addresses are those that kernels see, aligned to 256. 0 when memory is short.
// It counts as not written until something writes it.
uint64_t simt_alloc(struct simt *s, size_t size);
int simt_release(struct simt *s, uint64_t address, struct error *err);
int simt_put(struct simt *s, uint64_t address, const void *data, size_t size, struct error *err);
// The bytes count as not written again.
int simt_forget(struct simt *s, uint64_t address, size_t size, struct error *err);
int simt_get(struct simt *s, uint64_t address, void *data, size_t size, struct error *err);

// `params` is the block of parameters, laid out as the kernel declares them; `shared` are dynamic bytes.
int simt_launch(struct simt *s, const struct simt_kernel *kernel, struct simt_dim grid, struct simt_dim block,
                uint32_t shared, const void *params, size_t params_size, struct error *err);
// Warp instructions after which a CTA is held to run for ever; 2^28 when not set.
void simt_set_limit(struct simt *s, uint64_t instructions);
// The next launch may begin before those before it have ended: up to griddepcontrol.wait a thread may store nothing in
// global memory and read nothing there that one of those wrote. They are counted back to the last that was not so.
void simt_set_dependent(struct simt *s);
struct simt_counters simt_count(const struct simt *s);

#endif
