// Emits code that dequantises each weight type to float32, bit-equal with gguf/dtype.c and gguf/dtype_iq.c, which
// describe the layouts.
//
// A thread decodes a part: 32 consecutive weights of its row. The number of the part within its unit (0 to 7) is in a
// register, so that the same code serves all parts. Every operation has the suffix .rn where the definition rounds
// twice, because ptxas fuses a product and a sum without it.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_TYPE_H
#define QUERN_EMIT_TYPE_H

#include "kernels/ptx/weight_tile.h"

// Receives dequantised weights. `put` is called for 4 weights at a time, in any order: %v0 to %v3 hold weights
// `first` to `first` + 3.
struct ptx_part {
    struct ptx *p;
    uint32_t node; // names the tables and the labels of this code
    enum dtype type;
    void (*put)(const struct ptx_part *part, uint32_t first);
    const void *arg;
};

// Emits the tables that a type needs in the module, before the entry.
void ptx_type_tables(struct ptx *p, enum dtype type, uint32_t node);
// Emits the code that dequantises a part, in a scope of its own. It reads %part (.u32), %chunk (.u64: the address of
// the lane's 16 bytes in chunk 0 of the unit), %unit (.u64: the address of the unit in the tile) and %lane (.u32: the
// row in the tile).
void ptx_type_part(const struct ptx_part *part);

// The same for types with codebooks, with three values, and of 4-bit floats (emit_type_grid.c).
void ptx_type_grid_part(const struct ptx_part *part);

// ---- shared with emit_bytes.c

// TQ1_0: sets %q0 to %q7 to the bytes that hold the digits of the part's 32 weights, four per word, and %x<i> to the powers of
// 3 that they are multiplied by.
void ptx_type_digits(const struct ptx_part *part);

// Sets %at to the lane's address in chunk number %part * times + first.
void ptx_type_chunk(struct ptx *p, uint32_t times, uint32_t first);
// Sets %at to the lane's address of byte %part * n in the array that starts with chunk `first`; n is a power of two
// below 16.
void ptx_type_array(struct ptx *p, uint32_t first, uint32_t n);
// Sets %piece to the lane's address in the unit's piece of `size` bytes (weight_tile.def).
void ptx_type_piece(const struct ptx_part *part, uint32_t size);
// Sets %d to the half in the unit's piece of 2 bytes.
void ptx_type_half_piece(const struct ptx_part *part);

#endif
