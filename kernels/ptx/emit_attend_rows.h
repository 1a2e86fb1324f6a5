// Attention with one row per CTA: the shape of the kernel, which emit_attend.c and emit_attend_half_rows.c
// compute, and the functions of emit_attend_fold.c, which emit its end.
//
// Ownership: none. Threads: no shared state.
#ifndef QUERN_EMIT_ATTEND_ROWS_H
#define QUERN_EMIT_ATTEND_ROWS_H

#include "kernels/ptx/emit_attend_parts.h"

struct attend_shape {
    uint32_t group;             // query heads that share a KV head
    uint32_t heads, blocks;     // query heads of a CTA (fewer in the last one of a group); CTAs of a group
    uint32_t half;              // heads whose complete scores a thread holds
    uint32_t strips, unroll;    // strips of a key that a thread multiplies; those of one iteration of the loop
    uint32_t query;             // floats of a query in shared memory; zeros pad it to a multiple of 16
    uint32_t wide, each;        // threads per value row; elements of a thread: d, d + wide, ...
    uint32_t groups, per_group; // sets of `wide` threads; query heads of one set
    uint32_t weights;           // floats from one key's weights to the next in shared memory
    uint32_t k_row, v_row;      // bytes of a row of keys, of values
    uint32_t round;             // keys whose values are in shared memory at the same time
    uint32_t places;            // the most splits that a row has
    uint32_t partial;           // floats of a head's part of a split: values, padding, top, sum
    bool keys_copied;           // keys are read from shared memory
    bool base_2;                // scores are logarithms of base 2 of weights, not natural ones
};

// ---- emit_attend_fold.c, in the order of the text

// Ends a split. A CTA that has all of the row's splits folds it into totals; any other CTA stores it as a part. Then
// the CTA goes on with its next split.
void attend_end_split(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s);
// Counts the CTAs of the row and its heads that are done. All but the last one return. The counter is zero again
// afterwards.
void attend_wait_for_parts(struct ptx *p);
// Folds all parts of the row into totals, in order of the splits.
void attend_add_parts(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s);
// Divides the totals by the sum of the weights and stores them to y.
void attend_write_row(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s);

#endif
