// Weights as they lie on the card: tiles of 32 rows.
//
// A row is cut into units of 256 weights (32 of plain floats), the last one filled up with zeros. A unit's bytes, put
// in the order of weight_tile.def, are cut into chunks of 16 bytes, and what is left into at most one piece each of 8, 4, 2
// and 1. A tile holds, unit after unit: chunk 0 of its 32 rows, chunk 1 of its 32 rows, .., then the pieces likewise.
// So lane i of a warp, which has row i, reads 16 bytes right behind those of lane i - 1, always aligned, and nothing is
// padded but the last unit of a row and the last tile of a matrix.
//
// Ownership: none, all is constant. Threads: any.
#ifndef QUERN_WEIGHT_TILE_H
#define QUERN_WEIGHT_TILE_H

#include "kernels/ptx/emit_matmul.h"

enum { TILE_PART = 32, TILE_FIELDS = 5 }; // weights that a thread decodes together

struct ptx_tile_type {
    uint32_t blocks; // of a unit; 0: the type has no tiles
    struct ptx_field {
        uint32_t at, size; // of a block, bytes; size 0 ends the list
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

// Where the piece of `size` bytes (8, 4, 2 or 1) of lane 0 lies, from the unit's first byte in the tile.
static inline uint32_t tile_piece(enum dtype t, uint32_t size)
{
    return (tile_unit_bytes(t) & ~(2 * size - 1)) * PTX_TILE_ROWS;
}

// From a row of tiles to the next.
static inline uint64_t tile_bytes(enum dtype t, uint32_t n_in)
{
    return (uint64_t)tile_units(t, n_in) * tile_unit_bytes(t) * PTX_TILE_ROWS;
}

// n_in of a type that has tiles: 1 to 2^20, whole blocks.
int tile_check(const char *what, enum dtype t, uint32_t n_in, struct error *err);

#endif
