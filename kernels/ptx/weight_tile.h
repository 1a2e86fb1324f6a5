// The layout of weights in GPU memory: tiles of 32 rows.
//
// Each row is cut into units of 256 weights (32 weights of F32, F16 and BF16); the last unit is padded with zeros.
// The bytes of a unit, in the order of weight_tile.def, are cut into chunks of 16 bytes; the remainder is cut into at
// most one piece each of 8, 4, 2 and 1 bytes. A tile stores unit after unit, and for each unit chunk 0 of its 32
// rows, then chunk 1 of its 32 rows, and so on, then the pieces in the same way. Lane i of a warp reads row i, so the
// 16-byte loads of a warp are aligned and coalesced. The only padding is in the last unit of a row and in the last
// tile of a matrix.
//
// Ownership: none, all data is constant. Threads: any.
#ifndef QUERN_WEIGHT_TILE_H
#define QUERN_WEIGHT_TILE_H

#include "kernels/ptx/emit_matmul.h"

enum { TILE_PART = 32, TILE_FIELDS = 5 }; // TILE_PART: weights that a thread decodes together

struct ptx_tile_type {
    uint32_t blocks; // blocks in a unit; 0: the type has no tile layout
    struct ptx_field {
        uint32_t at, size; // offset in a block and size, in bytes; size 0 ends the list
    } fields[TILE_FIELDS];
};
extern const struct ptx_tile_type ptx_tile_type[DT_COUNT];

static inline uint32_t tile_unit_weights(enum dtype t)
{
    return ptx_tile_type[t].blocks * (uint32_t)dtype_info[t].block;
}

static inline uint32_t tile_unit_bytes(enum dtype t)
{
    return ptx_tile_type[t].blocks * (uint32_t)dtype_info[t].bytes;
}

static inline uint32_t tile_units(enum dtype t, uint32_t n_in)
{
    return ptx_tiles(n_in, tile_unit_weights(t));
}

// Returns the offset in bytes, from the start of a unit in its tile, of lane 0's piece of `size` bytes (8, 4, 2 or 1).
static inline uint32_t tile_piece(enum dtype t, uint32_t size)
{
    return (tile_unit_bytes(t) & ~(2 * size - 1)) * PTX_TILE_ROWS;
}

// Returns the bytes of one tile: 32 rows of n_in weights.
static inline uint64_t tile_bytes(enum dtype t, uint32_t n_in)
{
    return (uint64_t)tile_units(t, n_in) * tile_unit_bytes(t) * PTX_TILE_ROWS;
}

// Fails unless the type has a tile layout and n_in is 1 to 2^20 and a multiple of the type's block.
int tile_check(const char *what, enum dtype t, uint32_t n_in, struct error *err);

#endif
