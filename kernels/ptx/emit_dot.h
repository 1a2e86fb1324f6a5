// Emits the product of one unit of a lane's weights with the same 256 8-bit activations of some rows: the S of
// kernels/cpu/kernels.h.
//
// The integer sums are exact in any order, so the cheapest order is used; the float operations are in the order of
// the CPU. Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_DOT_H
#define QUERN_EMIT_DOT_H

#include "kernels/ptx/weight_tile.h"

// A q8 row of n blocks of 256 holds int8 [n * 256], int16 sums [n * 16], uint8 steps [n * 8] and float scales [n], as
// on the CPU (kernels/cpu/kernels.h), with one difference: each sum of 16 elements is multiplied by its step. The
// result is at most 16 * 127 * 16, so it fits 16 bits. What is subtracted for the offset or the minimum of weights is a
// product with these sums, which so needs no steps. The sums begin at byte PTX_Q8_SUMS * n, the steps at PTX_Q8_STEPS *
// n, the scales at PTX_Q8_SCALES * n. A row is padded to a multiple of 64 bytes.
enum { PTX_Q8_SUMS = 256, PTX_Q8_STEPS = 288, PTX_Q8_SCALES = 296, PTX_Q8_BLOCK = 300 };
static inline size_t ptx_q8_row_bytes(int64_t k)
{
    return align_up((size_t)(k + 255) / 256 * PTX_Q8_BLOCK, 64);
}

struct ptx_dot {
    struct ptx *p;
    enum dtype type;
    uint32_t rows;   // rows of x
    uint32_t blocks; // blocks of 256 in a row of x
    bool shared;     // x (at most 2 rows) is in shared memory
    // If not NULL, %chunk and %unit are addresses in shared memory (at most 2 rows), and loaded(p, of) emits what
    // follows the last load of weights; it changes no register that this product needs.
    void (*loaded)(struct ptx *p, const void *of);
    const void *of;
};

// Sets %bs<r> (.f32) for each row r. Reads %chunk and %unit as ptx_type_part does, %lane, %block (the number of the
// block), and %pr<r> (the address of the block's 256 activations of row r). Changes no other registers than %pr<r>.
void ptx_dot_unit(const struct ptx_dot *dot);

#endif
