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

// Leaves unless a sequence begins with the row of the CTA. Then sets %mark (the slot that its state comes from, negative:
// none), %states, the head or group of heads, its part %block, the column %j in it, the lane %g of this column, and
// whether there is such a column (%inside). It follows PTX_ROW and the address of `from` in %pfrom.
//   head  string literal: the register of the head or group
// $2: the mark of a row that goes on with a sequence; $3: CTAs for each head or group; $4: its columns.
#define SCAN_PLACE(head)                                                                                               \
    "    mad.wide.u32 %pfrom, %row, 4, %pfrom;\n"                                                                      \
    "    ld.global.s32 %mark, [%pfrom];\n"                                                                             \
    "    setp.eq.s32 %none, %mark, $2;\n"                                                                              \
    "    @%none ret;\n"                                                                                                \
    "    ld.global.u64 %states, [%step+24];\n"                                                                         \
    "    cvta.to.global.u64 %states, %states;\n"                                                                       \
    "    mov.u32 %thread, %tid.x;\n"                                                                                   \
    "    mov.u32 %i, %ctaid.y;\n"                                                                                      \
    "    div.u32 " head ", %i, $3;\n"                                                                                  \
    "    rem.u32 %block, %i, $3;\n"                                                                                    \
    "    shr.u32 %j, %thread, 2;\n"                                                                                    \
    "    and.b32 %g, %thread, 3;\n"                                                                                    \
    "    mad.lo.u32 %j, %block, 32, %j;\n"                                                                             \
    "    setp.lt.u32 %inside, %j, $4;\n"

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
