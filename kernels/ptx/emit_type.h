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

// Where decoded weights go. put is called for 4 weights at a time, in any order: %v0 to %v3 hold weights first to first
// + 3.
struct ptx_part {
    struct ptx *p;
    uint32_t node; // names the tables, and the labels of this decode
    enum dtype type;
    void (*put)(const struct ptx_part *part, uint32_t first);
    const void *arg;
};

// The module's tables that a type needs, before its entry.
void ptx_type_tables(struct ptx *p, enum dtype type, uint32_t node);
// The code of a part, in a scope of its own. It reads %part (.u32), %chunk (.u64: the lane's place in chunk 0 of the
// unit) and %unit (.u64: the unit's place in the tile) with %lane (.u32: the row in the tile).
void ptx_type_part(const struct ptx_part *part);

// The types with codebooks, of three values and of 4-bit floats: emit_type_grid.c.
void ptx_type_grid_part(const struct ptx_part *part);

// ---- shared by the files of types (emit_bytes.c)

// %at = the lane's place in the chunk whose number is %part * times + first.
void ptx_type_chunk(struct ptx *p, uint32_t times, uint32_t first);
// %at = the lane's place of byte %part * n of the array that begins with chunk `first`, n a power of two below 16.
void ptx_type_array(struct ptx *p, uint32_t first, uint32_t n);
// %piece = the lane's place in the unit's piece of `size` bytes.
void ptx_type_piece(const struct ptx_part *part, uint32_t size);
// %d = the half in the unit's piece of 2 bytes.
void ptx_type_half_piece(const struct ptx_part *part);

#endif
