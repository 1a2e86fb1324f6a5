// What runs: the machine with its memory, a CTA, a warp of 32 lanes.
#ifndef QUERN_SIMT_MACHINE_H
#define QUERN_SIMT_MACHINE_H

#include "tests/ptx/interpreter.h"
#include "tests/ptx/simt_isa.h"

enum { LANES = 32, MAX_WARPS = 32, BARRIERS = 16 };

// Who touched a byte, or the four of a word, last, and when by the clock of its warp.
struct access {
    uint32_t cta; // serial number over all launches, 0: nobody
    uint32_t clock;
    uint16_t thread;
    bool strong; // atomic, volatile, relaxed or stronger
};
// The last writer, the last reader, and the last reader before it that was another thread.
struct cell {
    struct access w, r, r2;
};
enum byte_state { NOT_WRITTEN, WRITTEN, IN_FLIGHT }; // in flight: a cp.async that nobody waited for

struct region {
    uint64_t base;
    size_t size;
    uint8_t *data, *state;
    struct cell *words; // [four bytes]: what is touched is mostly whole words
    struct cell *bytes; // [byte] of the words that are split
    uint8_t *split;     // [four bytes]: these were touched apart
    struct region *next;
};

struct release {
    uint64_t address;
    uint32_t cta;
};

struct simt {
    struct region *regions, *last;
    struct simt_kernel *kernels;
    uint64_t next_address, limit;
    uint32_t next_cta; // serial number
    uint32_t chain;    // the first CTA of the launch that the dependent ones since then may overlap with
    bool dependent;    // the next launch
    struct simt_counters count;
};

struct copy {
    uint8_t *to, *state;
    struct cell *words;
    uint32_t size, group;
    uint16_t thread;
    uint8_t data[16];
};

struct warp {
    struct cta *cta;
    uint32_t index, live, active, parked;
    uint32_t pc, others;       // others: the lowest pc of the lanes that are not active
    uint32_t lane_pc[LANES];   // of lanes that are not active
    uint64_t (*r)[LANES];      // [slot]
    uint32_t *written;         // lanes that hold a value, [slot]
    uint32_t clock[MAX_WARPS]; // what it knows of the others' clocks, and its own
    int waits;                 // barrier, -1: none
    uint8_t *local, *local_state;
    struct copy *copies;
    size_t n_copies, cap_copies;
    uint32_t groups; // of copies that were committed
    uint32_t waited; // lanes that have waited for the grids before
};

struct barrier {
    uint32_t arrived, expected;
    uint32_t clock[MAX_WARPS]; // joined from those that arrived
};

struct launch;
struct cta {
    struct launch *launch;
    struct region shared;
    struct simt_dim id;
    uint32_t serial;
    bool fenced;
    struct barrier bars[BARRIERS];
    struct warp *warps;
    uint64_t steps;
};

struct launch {
    struct simt *s;
    const struct simt_kernel *k;
    struct simt_dim grid, block;
    bool dependent; // may run while the launches of the chain do
    uint32_t threads, n_warps, first_cta, dynamic;
    const uint8_t *params;
    struct release *releases;
    size_t n_releases, cap_releases;
    uint8_t *known; // CTAs whose releases the running one has acquired
    struct error *err;
};

// Reports what lane `lane` did at the instruction under way; returns -1.
int simt_fault(const struct warp *w, const struct simt_insn *in, int lane, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static inline const uint64_t *simt_source(const struct warp *w, const struct simt_insn *in, unsigned o, unsigned i)
{
    return w->r[w->cta->launch->k->regs[in->o[o].first + i]];
}
// Stores what is masked by `lanes` into register i of operand o, cut to the register's width.
void simt_commit(struct warp *w, const struct simt_insn *in, unsigned o, unsigned i, const uint64_t d[LANES],
                 uint32_t lanes);

enum touch { READ, WRITE, READ_WRITE };
// The bytes behind an address of a lane, checked and noted; NULL after a fault.
uint8_t *simt_touch(struct warp *w, const struct simt_insn *in, int lane, uint64_t address, unsigned size,
                    enum touch how);
uint64_t simt_address(const struct warp *w, const struct simt_insn *in, unsigned o, int lane);
struct region *simt_region(struct simt *s, uint64_t address, size_t size);

int simt_load_store(struct warp *w, const struct simt_insn *in, uint32_t lanes);
int simt_atomic(struct warp *w, const struct simt_insn *in, uint32_t lanes);
int simt_copy(struct warp *w, const struct simt_insn *in, uint32_t lanes);
void simt_acquire(struct warp *w, uint64_t address);
void simt_release_at(struct warp *w, uint64_t address);
int simt_alu(struct warp *w, const struct simt_insn *in, uint32_t lanes);
int simt_matrix(struct warp *w, const struct simt_insn *in);
int simt_gather(struct warp *w, const struct simt_insn *in, uint32_t lanes); // shfl, vote, redux, activemask

// ---- numbers (simt_float.c)

double simt_half(uint16_t bits, bool bf16);
uint16_t simt_to_half(double x, bool bf16);
float simt_f32(uint64_t bits);
uint64_t simt_f32_bits(float f); // NaN becomes the canonical one
bool simt_float_op(const struct simt_insn *in, enum simt_type type, uint64_t a, uint64_t b, uint64_t c, uint64_t *d);
uint64_t simt_convert(const struct simt_insn *in, enum simt_type to, enum simt_type from, uint64_t v);
static inline int64_t simt_signed(uint64_t v, unsigned bits)
{
    return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

#endif
