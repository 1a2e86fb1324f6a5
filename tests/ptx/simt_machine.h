// The state of the interpreter: the machine with its memory, a CTA, a warp of 32 lanes.
#ifndef QUERN_SIMT_MACHINE_H
#define QUERN_SIMT_MACHINE_H

#include "tests/ptx/interpreter.h"
#include "tests/ptx/simt_isa.h"

// The parts of a vector clock are the warps of a CTA, then its mbarriers. A copy that an mbarrier completes counts as
// an access by the first thread of the mbarrier's part, at the time given by the number of completed phases.
enum { LANES = 32, MAX_WARPS = 32, BARRIERS = 16, MBARRIERS = 64, CLOCKS = MAX_WARPS + MBARRIERS };

// The last access to a byte, or to the four bytes of a word, with the clock of its warp.
struct access {
    uint32_t cta; // serial number over all launches, 0: nobody
    uint32_t clock;
    uint16_t thread;
    bool strong; // atomic, volatile, relaxed or stronger
};
// The last write (w), the last read (r), and the last read before it by another thread (r2).
struct cell {
    struct access w, r, r2;
};
// IN_FLIGHT: the target of a copy that was not waited for. OPAQUE: a part of an mbarrier
enum byte_state { NOT_WRITTEN, WRITTEN, IN_FLIGHT, OPAQUE };

struct region {
    uint64_t base;
    size_t size;
    uint8_t *data, *state;
    struct cell *words; // [word]: most accesses are to whole words
    struct cell *bytes; // [byte]: used where `split` is set
    uint8_t *split;     // [word]: whether the bytes of the word were accessed separately
    struct region *next;
};

// What was released at an address. In a launch whose CTAs run one after another: by this CTA, all that it had done. In a
// cooperative launch: by any CTA, and `clocks` is what the warps that released knew (warp.known).
struct release {
    uint64_t address;
    uint32_t cta;
    uint32_t *clocks; // NULL: not a cooperative launch
};

struct simt {
    struct region *regions, *last;
    struct simt_kernel *kernels;
    uint64_t next_address, limit;
    uint32_t next_cta; // serial number
    uint32_t chain;    // serial number of the first CTA of the last launch that was not dependent
    bool dependent;    // the next launch is dependent
    bool cooperative;  // the next launch is cooperative
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
    uint32_t pc, others;      // others: the lowest pc of the lanes that are not active
    uint32_t lane_pc[LANES];  // of lanes that are not active
    uint64_t (*r)[LANES];     // [slot]
    uint32_t *written;        // lanes that hold a value, [slot]
    uint32_t clock[CLOCKS];   // vector clock: its own clock, and what all its lanes know of the others'
    uint32_t together;        // its own clock when its lanes were last ordered by a barrier
    uint32_t (*seen)[CLOCKS]; // [lane]: what a lane alone has learned from mbarriers since then
    bool learned;             // whether `seen` holds anything
    bool polls;               // it found a phase of an mbarrier not completed, or sleeps, and lets other warps run
    uint32_t *known; // [launch.n_known] in a cooperative launch: the clocks of the warps of all CTAs that it knows
    int waits;       // the barrier that it waits at; -1: none
    uint8_t *local, *local_state;
    struct copy *copies;
    size_t n_copies, cap_copies;
    uint32_t groups; // committed groups of copies
    uint32_t waited; // lanes that have executed griddepcontrol.wait
};

struct barrier {
    uint32_t arrived, expected;
    uint32_t clock[CLOCKS]; // the maximum over the warps that arrived
    uint32_t *known;        // likewise, [launch.n_known] in a cooperative launch
};

// A cp.async.bulk in flight. Its bytes are read where it begins, and seen when its mbarrier completes the phase.
struct bulk {
    uint8_t *data;
    uint32_t to, size, mbarrier; // offset in shared memory; bytes; index of its mbarrier
};

struct mbarrier {
    uint32_t at;                // offset in shared memory
    uint32_t expected, pending; // arrivals of a phase; those that the current phase lacks
    int64_t bytes;              // that the current phase expects from copies, complete or not
    int64_t in_flight;          // that copies of the current phase bring
    uint32_t phases;            // completed
    uint32_t before;            // likewise, of earlier mbarriers in its place among the parts of the clock
    uint64_t tested;            // step of the first test that found copies of the current phase in flight; 0: none
    bool fenced;                // its initialisation is visible to copies
    struct access init;
    uint32_t arrived[CLOCKS]; // what is released by the arrivals of the current phase
    uint32_t clock[CLOCKS];   // what is released by the completed phases
};

struct launch;
struct cta {
    struct launch *launch;
    struct region shared;
    struct simt_dim id;
    uint32_t serial;
    bool fenced;
    struct barrier bars[BARRIERS];
    struct mbarrier mbarriers[MBARRIERS];
    uint32_t n_mbarriers;
    struct bulk *bulks;
    size_t n_bulks, cap_bulks;
    struct warp *warps;
    uint64_t steps, progress; // progress: arrivals at mbarriers, copies begun, phases completed
    bool ended;
};

struct launch {
    struct simt *s;
    const struct simt_kernel *k;
    struct simt_dim grid, block;
    bool dependent;   // may overlap with the launches since simt.chain
    bool cooperative; // all CTAs are there at the same time, and take turns where they wait for each other
    size_t n_known;   // warps of all CTAs of a cooperative launch
    uint32_t threads, n_warps, first_cta, dynamic;
    const uint8_t *params;
    struct release *releases;
    size_t n_releases, cap_releases;
    uint8_t *known; // not cooperative: CTAs whose releases the running one has acquired
    struct error *err;
};

// Reports a fault of lane `lane` at the current instruction. Returns -1.
int simt_fault(const struct warp *w, const struct simt_insn *in, int lane, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static inline const uint64_t *simt_source(const struct warp *w, const struct simt_insn *in, unsigned o, unsigned i)
{
    return w->r[w->cta->launch->k->regs[in->o[o].first + i]];
}
// Stores the values of `lanes` in register i of operand o, truncated to the register's width.
void simt_commit(struct warp *w, const struct simt_insn *in, unsigned o, unsigned i, const uint64_t d[LANES],
                 uint32_t lanes);

enum touch { READ, WRITE, READ_WRITE };
// Checks and records an access of a lane. Returns the bytes at the address; NULL after a fault.
uint8_t *simt_touch(struct warp *w, const struct simt_insn *in, int lane, uint64_t address, unsigned size,
                    enum touch how);
uint64_t simt_address(const struct warp *w, const struct simt_insn *in, unsigned o, int lane);
struct region *simt_region(struct simt *s, uint64_t address, size_t size);

int simt_load_store(struct warp *w, const struct simt_insn *in, uint32_t lanes);
int simt_atomic(struct warp *w, const struct simt_insn *in, uint32_t lanes);
int simt_copy(struct warp *w, const struct simt_insn *in, uint32_t lanes);
// mbarrier, cp.async.bulk and the fences that they need
int simt_mbarrier(struct warp *w, const struct simt_insn *in, uint32_t lanes);
// Frees the copies in flight of a CTA and forgets its mbarriers.
void simt_mbarriers_reset(struct cta *cta);
// Checks at the end of a CTA that no phase of an mbarrier is incomplete for want of copies. `w` and `in` are for messages.
int simt_mbarriers_end(struct warp *w, const struct simt_insn *in);
// Describes what the mbarriers wait for, where all warps wait.
int simt_mbarriers_stuck(struct warp *w, const struct simt_insn *in);
// Whether nothing orders an earlier access before an access of the thread.
bool simt_ordered(const struct warp *w, unsigned thread, const struct access *a, bool strong);
// A barrier orders the lanes of the warp: all know what each has learned.
void simt_together(struct warp *w);
void simt_acquire(struct warp *w, uint64_t address);
void simt_release_at(struct warp *w, uint64_t address);
void simt_releases_free(struct launch *l);
// The warp learns what another one knew of the warps of all CTAs of a cooperative launch.
void simt_learn(uint32_t *known, const uint32_t *more, size_t n);
int simt_alu(struct warp *w, const struct simt_insn *in, uint32_t lanes);
int simt_matrix(struct warp *w, const struct simt_insn *in);
int simt_gather(struct warp *w, const struct simt_insn *in, uint32_t lanes); // shfl, vote, redux, elect, activemask

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
