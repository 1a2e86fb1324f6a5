// Makes one kernel, whole_NODE, of the kernels of a step: the persistent form of a step of one row. It is launched once a
// step, with as many CTAs (thread blocks) as are on the card at the same time, and goes through the launches of the step
// itself.
//
// The step without it:
//     for each launch of the step:
//         launch kernel[launch] with its grid and arguments       // some microseconds, of which a part is hidden
// The step from there: what a launch costs is that its CTAs start, and that all CTAs of the launch ahead have ended. CTAs
// that stay need only the second:
//     for each step s of the table, in each CTA:
//         switch (table[s].part):                                 // the kernels of the step are parts of this one
//         case k:
//             what part k does before it reads what launches ahead write     // prefetches weights, or fills its ring
//             wait until all CTAs have arrived                    // not in the first step
//             for each CTA c of the launch that is this CTA's to run: the rest of part k, as CTA c
//         arrive
//
// A part is the text of a kernel, from which a few things are replaced: its arguments and the shape of its grid come from
// the table, which is loaded to shared memory a step ahead; %ctaid and %tid are registers; its shared memory is a piece of
// that of the whole kernel; it ends with a jump instead of a return; and griddepcontrol.wait becomes the barrier. A kernel
// of at most half of the threads runs in groups of threads beside each other, each as a CTA of its own with its own named
// barriers. So values have the bits that the launches give them.
//
// Kernels that differ in nothing but numbers, such as the place of a layer's keys in the cache, are one part, and these
// numbers are in the table as well.
//
// The barrier: a counter in global memory, to which a thread of each CTA adds 1 when all its threads have come, as a
// release; it looks at the counter, as an acquire, until all CTAs have added theirs. The counter is never reset: when a
// launch begins, it is a multiple of the CTAs, apart from arrivals at the first barrier.
//
// Table: for each step PTX_WHOLE_HEAD bytes, struct ptx_whole_step, then 8 bytes for each parameter of the part in the
// order of its kernel, then 8 for each of its numbers; from one step to the next PTX_WHOLE_STRIDE bytes. Behind the last
// step there must be room for one more, of zeros. Parameters of the kernel: the table, then the counter (u64).
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_WHOLE_H
#define QUERN_EMIT_WHOLE_H

#include "kernels/ptx/emit.h"

enum {
    PTX_WHOLE_PARTS = 24,
    PTX_WHOLE_THREADS = 256, // of a part, at most, which leaves 255 registers for each
    PTX_WHOLE_NUMBERS = 16,
    PTX_WHOLE_PARAMS = 64,
    PTX_WHOLE_HEAD = 32,
    PTX_WHOLE_STRIDE = PTX_WHOLE_HEAD + 8 * (PTX_WHOLE_PARAMS + PTX_WHOLE_NUMBERS),
};

struct ptx_whole_step {
    uint32_t part, last; // last: 1 in the last step of the table
    uint32_t grid[3];
    uint32_t ctas; // their product
    uint32_t next; // offset of the next step in the table, in bytes
    uint32_t zero;
};
struct ptx_whole_part {
    struct str text; // of a kernel
    uint32_t threads, shared;
    bool loops; // its CTAs take pieces of work in turn, so that no grid has more of them than the whole kernel
    int n_numbers;
    uint32_t numbers[PTX_WHOLE_NUMBERS]; // lines of the text, from 0, whose last operand differs between the steps
};
struct ptx_whole {
    uint32_t node;
    uint32_t most_shared; // bytes of shared memory that a CTA can have
    int n_parts;
    struct ptx_whole_part parts[PTX_WHOLE_PARTS];
};
int ptx_emit_whole(struct ptx *p, const struct ptx_whole *w, struct ptx_launch *launch, struct error *err);
// Whether a kernel with this text can be steps of the part, and adds the lines in which they differ to its numbers.
bool ptx_whole_joins(struct ptx_whole_part *part, struct str text);
// Writes the numbers of a part as they are in a text that is one of its steps.
void ptx_whole_numbers(const struct ptx_whole_part *part, struct str text, uint64_t numbers[PTX_WHOLE_NUMBERS]);

// ---- between the files emit_whole*.c

enum { WHOLE_SYMBOLS = 12, WHOLE_ALIGN = 128 };
// What is found in the text of a part.
struct ptx_whole_text {
    const struct ptx_whole_part *part;
    uint32_t version, target; // of its header: 10 * major + minor; 75 for sm_75
    struct str declared;      // lines between the header and the entry, such as tables
    struct str body;          // lines between the braces of the entry
    int first_line;           // number of the first line of `body` in the text
    int n_params, n_symbols;
    struct str params[PTX_WHOLE_PARAMS];
    struct {
        struct str name;
        uint32_t at, bytes; // offset in the shared memory of a group
    } symbols[WHOLE_SYMBOLS];
    uint32_t shared, groups; // bytes of a group; groups of a CTA
    bool waits;              // it does something before it waits for the launches ahead, and says where it waits
    bool copies, bulk;       // it has cp.async; cp.async.bulk, with its mbarriers in the array `full`
};
// Takes the next line of a text, without its end. Returns false at the end of the text.
bool ptx_whole_line(struct str *text, struct str *line);
int ptx_whole_read(const struct ptx_whole_part *part, struct ptx_whole_text *out, struct error *err);
// Emits the lines of part k, which returns by a jump to LEFT_<k>.
int ptx_whole_body(struct ptx *p, const struct ptx_whole_text *t, uint32_t target_at, uint32_t k, struct error *err);
// Sets %whole_at to the number of a named barrier of the thread's group, of which each has two. It is found anew each time,
// because it would take a register all the while.
void ptx_whole_barrier(struct ptx *p, const struct ptx_whole_text *t, uint32_t id);
// Emits the wait for all CTAs. target_at: where in shared memory the arrivals are for which it waits. `label` is a number of
// its own. again: the code may run more than once in a step, and waits where %whole_came is not set, which it sets.
void ptx_whole_wait(struct ptx *p, uint32_t target_at, uint32_t label, bool again);

#endif
