// What the emitters of operations with state share: emit_scan.c and emit_delta.c. Threads: pure functions.
#ifndef QUERN_EMIT_SCAN_H
#define QUERN_EMIT_SCAN_H

#include "kernels/graph.h"
#include "kernels/ptx/emit_ops.h"

// A CTA has 32 columns; neighbouring lanes share a column.
enum { SCAN_THREADS = 128, LANES_A_COLUMN = 4, SCAN_COLUMNS = SCAN_THREADS / LANES_A_COLUMN };

// Sets an address to that of a slot.
//   to    string literal: a 64-bit register
//   slot  string literal: a 32-bit register, the number of the slot
// $0: floats of a slot. The address of slot 0 stands in the header of the step.
#define SLOT(to, slot)                                                                                                 \
    "    mul.wide.u32 " to ", " slot ", $0;\n"                                                                         \
    "    shl.b64 " to ", " to ", 2;\n"                                                                                 \
    "    add.u64 " to ", " to ", %states;\n"

// Checks that a node's state lies within a slot.
static inline int ptx_check_state(const char *what, const struct ptx_state *s, uint64_t floats, struct error *err)
{
    if (s->at > INT32_MAX || s->slot > INT32_MAX || (uint64_t)s->at + floats > s->slot)
        return fail(err, E_GPU, "%s: a state of %llu floats at %u of a slot of %u", what, (unsigned long long)floats,
                    s->at, s->slot);
    return 0;
}

// Adds a sum over the four lanes of a column, in each of them.
#define ADD_LANES(sum)                                                                                                 \
    "    shfl.sync.bfly.b32 %other, " sum ", 1, 31, 0xffffffff;\n"                                                     \
    "    add.rn.f32 " sum ", " sum ", %other;\n"                                                                       \
    "    shfl.sync.bfly.b32 %other, " sum ", 2, 31, 0xffffffff;\n"                                                     \
    "    add.rn.f32 " sum ", " sum ", %other;\n"

#endif
