// The kernel of attention for one row: its shape, and what its two files make of it.
//
// Ownership: none. Threads: none shared.
#ifndef QUERN_EMIT_ATTEND_ROWS_H
#define QUERN_EMIT_ATTEND_ROWS_H

#include "kernels/ptx/emit_attend_parts.h"

struct attend_shape {
    uint32_t group;             // query heads that share a KV head
    uint32_t heads, blocks;     // of a CTA; CTAs of a group. The last one may have less
    uint32_t half;              // heads whose scores a thread ends up with
    uint32_t strips, unroll;    // of a thread; in a turn of the loop
    uint32_t query;             // floats of a query in shared memory, zeros behind its end
    uint32_t wide, each;        // threads side by side; elements of a thread: d, d + wide, ..
    uint32_t groups, per_group; // of such threads, and heads of one
    uint32_t weights;           // floats of a key's weights
    uint32_t k_row, v_row;      // bytes
    uint32_t round;             // keys whose values are copied at once
    uint32_t places;            // splits that a row may have
    uint32_t partial;           // floats of a split's part of a head: values, top, sum
    bool keys_copied;
};

// From a split's sums to the row (emit_attend_fold.c): the CTA's totals or a part in memory, and the next split; the
// wait for other CTAs' parts, which only the last one survives; all parts of the row added up; the row written.
void attend_end_split(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s);
void attend_wait_for_parts(struct ptx *p);
void attend_add_parts(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s);
void attend_write_row(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s);

#endif
